# muster. `make help` lists the targets.

SHELL  := bash
# The library for command lines brings a converter of Markdown along, for manuals that we do not print.
TAGS := urfave_cli_no_docs
export GOFLAGS := -trimpath -tags=$(TAGS)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
BIN      ?= bin/muster
FUZZTIME ?= 60s
BENCH    ?= .
ROUNDS   ?= 500
MINUTES  ?= 30
SCHEDULES ?= 10000

.PHONY: help build test race churn soak hangs fuzz bench lint cover golden demo image clean prepare interop matrix plays schemas random

help: ## show this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/muster: static, reproducible, for this machine (GOARCH=arm64 for another); its build with etcd is in it, packed
	CGO_ENABLED=0 go build -tags=$(TAGS),full -ldflags=-s\ -w -o $(BIN)-full ./cmd/muster
	gzip -9 -n < $(BIN)-full > $(BIN)-full.gz
	CGO_ENABLED=0 go build -tags=$(TAGS),bundle -overlay <(echo '{"Replace":{"cmd/muster/full.gz":"$(BIN)-full.gz"}}') -ldflags=-s\ -w -o $(BIN) ./cmd/muster
	@size=$$(stat -c %s $(BIN)); [ $$size -le $$((25 << 20)) ] || { echo "$(BIN) has $$size bytes, more than 25 MiB"; exit 1; }

prepare: ## install what the tests need: Debian's PyTorch, PyPI's newest, and those between in chroots
	test/prepare

test: prepare lint schemas random race ## everything: prepare, lint, random schedules, all tests with the race detector

race: build ## all tests with the race detector, against what is prepared
	CGO_ENABLED=1 go test -race -timeout 1h ./...

random: ## SCHEDULES (10000) random meetings, and as many random losses in running worlds, in simulated time: less than a minute
	GOGC=400 go test ./rendezvous -run '^TestRandomMeetings$$' -meetings $(SCHEDULES) -count 1 -timeout 1h
	GOGC=400 go test ./launcher -run '^TestRandomLosses$$' -schedules $(SCHEDULES) -count 1 -timeout 1h

# The examples lie outside of that module: what go test knows of them from before does not count.
schemas: ## the examples' manifests against the schemas that the operators publish
	cd test/schemas && go vet ./... && go test -count 1 ./...

plays: build ## the jobs of all examples, each pod a machine with what its platform would give it
	go test ./test/platforms -all -v -count 1 -timeout 1h -muster $(abspath $(BIN))

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

interop: build ## trains with real PyTorch, accelerate, DeepSpeed, Transformers, Lightning, JAX, TensorFlow, Paddle, MPI and Horovod from PyPI: 8 GB, half an hour
	go test ./test/interop -v -count 1 -timeout 2h -muster $(abspath $(BIN)) -play .

fuzz: ## fuzz each decoder for FUZZTIME
	@set -e; go list ./... | while read -r pkg; do \
	  for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$pkg; done; done

bench: build ## benchmarks, and side by side with torchrun
	set -o pipefail; go test -run '^$$' -bench '$(BENCH)' -benchmem ./... 2>&1 | { grep -v '^?' || true; }
	go run ./test/bench
	go test ./test/matrix -run Figures -figures 3 -v -timeout 2h

lint: ## gofmt, go vet, staticcheck, govulncheck
	@out=$$(gofmt -l .); [ -z "$$out" ] || { echo "gofmt would change: $$out"; exit 1; }
	go vet ./...
	go vet -tags=$(TAGS),full ./cmd/...
	GOARCH=arm64 CGO_ENABLED=0 go vet ./cmd/... ./launcher/... ./rendezvous/...
	go run $(STATICCHECK) ./...
	go run $(STATICCHECK) -tags=$(TAGS),full ./cmd/...
	test/vulncheck

cover: ## test coverage, as an HTML page in bin/cover.html
	mkdir -p bin && go test -coverprofile bin/cover.out ./... && go tool cover -html bin/cover.out -o bin/cover.html

golden: ## write the golden files anew; read the diff before you commit it
	go test ./framework ./dialect -update
	go test ./cmd/muster -run Golden -update
	go test ./rendezvous/torchrun -update
	go test ./topology/view -update

demo: build ## train a small real model on two nodes of two workers on this machine
	test/demo

image: build ## an image that holds nothing but muster, to copy from
	buildah bud --isolation chroot -t muster -f images/Dockerfile .

clean: ## remove what was built here; what is prepared stays in the user's cache
	rm -rf bin
