# muster. `make help` lists the targets.

SHELL  := bash
# The library for command lines brings a converter of Markdown along, for manuals that we do not print.
TAGS := urfave_cli_no_docs
export GOFLAGS := -trimpath -tags=$(TAGS)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
BIN      ?= bin/muster
FUZZTIME ?= 60
BENCH    ?= .
ROUNDS   ?= 500
MINUTES  ?= 30
SCHEDULES ?= 10000
BUILDAH  ?= buildah

.PHONY: help build test race churn soak hangs fuzz fuzz-some fuzz-long bench lint cover golden demo image both release clean prepare interop matrix plays schemas random e2e chaos simulate mutants

help: ## show this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The clients of etcd and Prometheus, and what reads flags and serves pages, are small without inlining, and wait for others most of the time.
SMALL := $(patsubst %,-gcflags=%/...=-l,google.golang.org go.etcd.io go.uber.org golang.org/x/net golang.org/x/text github.com/prometheus github.com/grpc-ecosystem github.com/gogo github.com/golang github.com/urfave go.yaml.in net/http crypto/tls crypto/x509)

# The program begins with asking the kernel for late timers, where the processor is one for which that is written; then with Go.
LINK := -s -w $(if $(filter amd64 arm64,$(or $(GOARCH),$(shell go env GOARCH))),-E github.com/muster-run/muster/timerslack.begin)

build: ## build bin/muster: static, reproducible, for this machine (GOARCH=arm64 for another); its build with etcd is in it, packed
	CGO_ENABLED=0 go build -tags=$(TAGS),full $(SMALL) -ldflags='$(LINK)' -o $(BIN)-full ./cmd/muster
	env -u GOARCH -u GOOS go run ./cmd/muster/packed/pack < $(BIN)-full | gzip -9 -n > $(BIN)-full.gz
	CGO_ENABLED=0 go build -tags=$(TAGS),bundle $(SMALL) -overlay <(echo '{"Replace":{"cmd/muster/full.gz":"$(BIN)-full.gz"}}') -ldflags='$(LINK)' -o $(BIN) ./cmd/muster
	@size=$$(stat -c %s $(BIN)); [ $$size -le $$((25 << 20)) ] || { echo "$(BIN) has $$size bytes, more than 25 MiB"; exit 1; }

prepare: ## install what the tests need: Debian's PyTorch, PyPI's newest, and those between in chroots
	test/prepare

# While prepare waits for the network, the processors have the rest to do.
test: ## everything: prepare, lint, random schedules, some of the decoders fuzzed, all tests with the race detector
	$(MAKE) -j2 prepare lint schemas random fuzz-some
	$(MAKE) race

# Most tests of whole jobs wait most of the time: more packages than there are processors are tested at once, those with such tests first. The race
# detector would have each of the many processes sleep for a second at its end. lint has vetted them.
race: build ## all tests with the race detector, against what is prepared
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 TESTS_HAVE_BUILT=$(abspath $(BIN)) go test -race -vet=off -timeout 1h ./cmd/muster ./test/... ./...

# As muster is built, so that what is compiled for one serves the others.
random simulate mutants schemas lint fuzz fuzz-some fuzz-long: export CGO_ENABLED := 0

random: ## SCHEDULES (10000) random meetings, and as many random losses in running worlds, in simulated time: some minutes
	GOGC=400 go test ./rendezvous -run '^TestRandomMeetings$$' -meetings $(SCHEDULES) -count 1 -timeout 1h
	GOGC=400 go test ./launcher -run '^TestRandomLosses$$' -schedules $(SCHEDULES) -count 1 -timeout 1h

simulate: ## a job of NODES (100) nodes with SLOTS (8) workers each in virtual time, to which INCIDENTS (4) things happen; SEED (1) says when and to whom
	go test ./launcher -run '^TestSimulate$$' -nodes $(or $(NODES),100) -slots $(or $(SLOTS),8) -seed $(or $(SEED),1) -incidents $(or $(INCIDENTS),4) -count 1 -timeout 3h -v

mutants: ## mistakes planted in what fences, stops, meets and judges, and by which simulated job or random schedule each is caught: a quarter of an hour; docs/simulation.md
	go test ./test/mutants -run '^TestMutants$$' -all -page $(abspath docs/simulation.md) -v -count 1 -timeout 3h

# The examples lie outside of that module: what go test knows of them from before does not count.
schemas: ## the examples' manifests against the schemas that the operators publish
	cd test/schemas && go vet ./... && go test -vet=off -count 1 ./...

plays: build ## the jobs of all examples, each pod a machine with what its platform would give it
	go test ./test/platforms -all -v -count 1 -timeout 1h -muster $(abspath $(BIN))

e2e: prepare build ## jobs of real operators on a real Kubernetes, made on this machine: needs root; its parts are built once, a quarter of an hour; SCENE=REGEXP, KEEP=DIR for logs
	go test ./test/cluster -scene '$(if $(SCENE),$(SCENE),.)' -v -count 1 -timeout 2h -muster $(abspath $(BIN)) $(if $(KEEP),-keep $(abspath $(KEEP)))

churn: ## ROUNDS (500) of crash and restart that leave nothing; MINUTES (30) in which agents are killed, and trainings do not notice
	CGO_ENABLED=0 CHURN_ROUNDS=$(ROUNDS) CHURN_MINUTES=$(MINUTES) go test ./cmd/muster -run '^TestChurn' -v -count 1 -timeout 3h

soak: build ## MINUTES (30) of healthy trainings that must not be said to hang, and many simulated hours; goes on where it was, or SOAK=fresh
	@if [ "$(SOAK)" = fresh ]; then rm -f bin/soak.json; fi
	HOURS_WORLDS=100 go test ./launcher -run '^Test.*Hours$$' -count 1 -timeout 1h
	go test ./test/hang -run '^TestSoak$$' -v -count 1 -timeout 3h -muster $(abspath $(BIN)) -soak $(abspath bin/soak.json) -long $(MINUTES)m

hangs: build ## real trainings that hang, or look as if they did: every scene with each PyTorch, about an hour, or SCENE=REGEXP
	go test ./test/hang -all $(if $(SCENE),-run '^TestHangs$$/$(SCENE)') -v -count 1 -timeout 3h -muster $(abspath $(BIN))

matrix: build ## losses of workers, agents, machines and networks over both kinds of store: all scenes, some minutes
	go test ./test/matrix -run Losses -all -v -count 1 -timeout 1h -muster $(abspath $(BIN))

chaos: build ## accidents of all kinds in a real training, until the log has an hour of them (MINUTES=60 SEED=N): it must end with the right parameters; docs/chaos.md
	go test ./test/chaos -run '^TestLaps$$' -v -count 1 -timeout 12h -muster $(abspath $(BIN)) -faults 12 -log $(abspath docs/chaos.log) -page $(abspath docs/chaos.md) $(if $(filter command% env%,$(origin MINUTES)),-total $(MINUTES)m) $(if $(SEED),-seed $(SEED))

interop: build ## trains with real PyTorch, accelerate, DeepSpeed, Transformers, Lightning, JAX, TensorFlow, Paddle, MPI and Horovod from PyPI: 8 GB, half an hour
	go test ./test/interop -v -count 1 -timeout 2h -muster $(abspath $(BIN)) -play .

fuzz: ## each decoder for FUZZTIME (60) seconds
	test/fuzz $(FUZZTIME) 0/1

fuzz-some: ## an eighth of the decoders, that the commit names, for FUZZTIME (60) seconds each
	test/fuzz $(FUZZTIME) commit/8

fuzz-long: ## each decoder for 10 minutes in sum; goes on where it was (docs/fuzz.log)
	test/fuzz 600

bench: build ## benchmarks, and side by side with torchrun
	set -o pipefail; go test -run '^$$' -bench '$(BENCH)' -benchmem ./... 2>&1 | { grep -v '^?' || true; }
	go run ./test/bench
	go test ./test/matrix -run Figures -figures 3 -v -timeout 2h

lint: ## gofmt, go vet, staticcheck, govulncheck
	@out=$$(gofmt -l .); [ -z "$$out" ] || { echo "gofmt would change: $$out"; exit 1; }
	go vet ./...
	go vet -tags=$(TAGS),full ./cmd/...
	GOARCH=arm64 CGO_ENABLED=0 go vet ./cmd/... ./launcher/... ./rendezvous/... ./timerslack/...
	go run $(STATICCHECK) ./...
	go run $(STATICCHECK) -tags=$(TAGS),full ./cmd/...
	test/vulncheck

cover: ## test coverage, as an HTML page in bin/cover.html
	mkdir -p bin && go test -coverprofile bin/cover.out ./... && go tool cover -html bin/cover.out -o bin/cover.html

golden: ## write the golden files anew; read the diff before you commit it
	go test $$(grep -rl '/test/golden"' --include=*_test.go . | xargs dirname | sort -u | grep -vE '/(cmd/muster|test/platforms)$$') -update
	go test ./cmd/muster -run Golden -update

demo: build ## train a small real model on two nodes of two workers on this machine
	test/demo

image: both ## an image that holds nothing but muster, to copy from: localhost/muster, for both architectures
	! $(BUILDAH) manifest exists localhost/muster || $(BUILDAH) manifest rm localhost/muster # which would stay before the new one
	$(BUILDAH) bud --isolation chroot --platform linux/amd64,linux/arm64 --manifest muster -f images/Dockerfile .

release: ## what was committed last, in bin/release: both architectures, checksums, SBOM, licences, manual; built twice, and compared
	go run ./cmd/release -out bin/release

# What images are made of.
both:
	for arch in amd64 arm64; do GOARCH=$$arch $(MAKE) build BIN=bin/linux-$$arch/muster || exit; done
	go run ./cmd/release -licences bin/THIRD_PARTY_LICENSES bin/linux-amd64/muster bin/linux-arm64/muster

clean: ## remove what was built here; what is prepared stays in the user's cache
	rm -rf bin
