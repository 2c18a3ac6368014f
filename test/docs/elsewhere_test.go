package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// An elsewhere is a command that is not typed in a test, or not here.
type elsewhere struct {
	page  string // "": all
	text  string // how it begins
	why   string
	check func(c typed) (why string) // what is held against it instead; "": it is right
}

var others = []elsewhere{
	{text: "make", why: "the targets do what these tests are a part of, or build what they build", check: target},
	{text: "go test", why: "make test runs all tests", check: tests},
	{text: "go run ./test/bench", why: "it measures for minutes", check: parsed},
	{text: "go test -list Fuzz ./...", why: "make fuzz does", check: syntax},
	{text: "go build", why: "make build and test/stage build it", check: syntax},
	{text: "go version -m", why: "the test in cmd/release calls it"},
	{text: "git fetch --unshallow", why: "there is nowhere to fetch from", check: syntax},
	{text: "sha256sum bin/muster", why: "cmd/release compares what two builds come to", check: syntax},
	{text: "kubectl apply", why: "a cluster takes minutes to make: test/schemas holds the manifest against what the operators publish, test/platforms plays it, and test/cluster applies some", check: manifest},
	{text: "kubectl create configmap", why: "a cluster takes minutes to make: test/platforms plays what it makes", check: syntax},
	{text: "kubectl port-forward", why: "a cluster takes minutes to make: test/cluster plays the line of docs/status-page.md", check: syntax},
	{page: "docs/images.md", text: "make image && buildah bud", why: "the base comes from NVIDIA's registry: test/images builds the steps behind that", check: image},
	{page: "docs/images.md", text: "docker buildx build", why: "docker runs as a service: test/images builds the same with buildah", check: image},
	{page: "README.md", text: "docker build -t train .", why: "docker runs as a service: test/images builds it with buildah", check: syntax},
	{page: "README.md", text: "docker run --rm", why: "docker runs as a service: test/images runs it with podman", check: syntax},
	{page: "examples/slurm/README.md", text: "sbatch job.sbatch", why: "test/platforms plays the script in a Slurm of its own", check: batch},
	{page: "examples/systemd/README.md", text: "systemctl", why: "systemd is not the first process here: test/platforms plays the unit, and systemd-analyze verifies it", check: syntax},
	{page: "docs/hangs.md", text: "muster run --nnodes 2 --node-rank 0", why: "it needs a GPU", check: syntax},
	{page: "docs/moving.md", text: "srun muster run train.py", why: "test/platforms plays it in a Slurm of its own", check: syntax},
	{page: "docs/platforms.md", text: "srun muster run", why: "test/platforms plays it in a Slurm of its own", check: syntax},

	// What these name is read, and not typed: another program, or what a script may have in it.
	{text: "docker exec", why: "named"},
	{text: "docker run --init", why: "named"},
	{text: "docker stop", why: "named"},
	{text: "kubectl exec", why: "named"},
	{page: "docs/peers.md", text: "muster accelerate launch …", why: "named: docs/moving.md has it"},
	{text: "docker unpause", why: "named"},
	{text: "kubectl describe pod", why: "named"},
	{text: "kubectl get events", why: "named"},
	{text: "systemctl start nvidia-fabricmanager", why: "named: it takes GPUs"},
	{page: "docs/troubleshooting.md", text: "make a directory", why: "a message"},
	{page: "docs/troubleshooting.md", text: "srun", why: "named: test/platforms plays a Slurm of its own"},
	{text: "ln -s", why: "named: docs/dialects.md has the whole of it"},
	{text: "pip list", why: "named"},
	{text: "srun --cpu-bind", why: "named"},
	{text: "srun --gpus-per-task", why: "named"},
	{text: "muster run --framework mpi", why: "named: docs/frameworks.md has the whole of it"},
	{text: "muster init --observe", why: "named: docs/observe.md has the whole of it"},
	{page: "docs/dialects.md", text: "make train", why: "named: a launcher in somebody's Makefile; TestScripts in cmd/muster"},
	{page: "docs/dialects.md", text: "sudo -E", why: "named"},
	{page: "docs/dialects.md", text: "torchrun … &", why: "named: a line of somebody's script", check: syntax},
	{page: "docs/dialects.md", text: "torchrun … | tee log", why: "named: a line of somebody's script", check: syntax},
	{page: "docs/platforms.md", text: "torchrun --nnodes 4 --node-rank $i …", why: "named: a line of somebody's script", check: syntax},
	{page: "examples/trainjob/README.md", text: "torchrun train.py", why: "named: what the manifest had"},
	{page: "docs/processes.md", text: "muster run train.py            the first process:", why: "a drawing"},
}

// asides are blocks that nothing says here: the file in which it is held, and what both have.
var asides = []struct{ page, begins, file, has string }{
	{"examples/", "pod ", "test/platforms/examples_test.go", ""}, // it compares the whole of it
	{"docs/control.md", "readinessProbe:", "docs/control.md", "[muster, health, ready]"},
	{"docs/e2e.md", "scene ", "test/cluster/scenes_test.go", "; trained again"},
	{"docs/e2e.md", "State:", "test/cluster/scenes_test.go", "exited with code 7"},
	{"docs/elastic.md", "vm (node 1) is left", "rendezvous/doubts_test.go", " is left as a spare: "},
	{"docs/elastic.md", "the flags of the job's first leader", "launcher/rules_test.go", "the flags of the job's first leader count: --max-restarts 3, not 0; give all nodes the same"},
	{"docs/elastic.md", "┌──", "docs/elastic.md", "meeting ──► running"},             // a drawing
	{"docs/events.md", `{"schema"`, "cmd/muster/events_test.go", ""},                 // it holds the line against the schema,
	{"docs/events.md", "jq ", "cmd/muster/events_test.go", ""},                       // and runs these
	{"docs/events.md", "{namespace=", "docs/events.md", "schema = `muster.event/1`"}, // Loki's own
	{"docs/evidence.md", "DIR/JOB/round-0", "evidence/bundle_test.go", "connections"},
	{"docs/hangs.md", "muster: this may be a hang", "heartbeat/heartbeat_test.go", "for 32 s; 3 others wait in it; it is in dataset.py:88 __getitem__ at /mnt/data (in the kernel, state D)"},
	{"docs/hangs.md", "muster: hang: rank 2 (node-1, local 0, pid 1180)", "heartbeat/heartbeat_test.go", " s, behind a kernel that does not end on its GPU; 3 others wait for it; it is "},
	{"docs/hangs.md", "muster: hang", "heartbeat/heartbeat_test.go", " has sent and received nothing for "},
	{"docs/hangs.md", "muster: the others wait", "heartbeat/heartbeat_test.go", ": it comes last in "},
	{"docs/observe.md", "muster: this may be a hang", "heartbeat/heartbeat_test.go", "training goes on after 50 s: it was no hang, which counts as a false alarm"},
	{"docs/observe.md", "muster: the first to fail", "test/hang/observe_test.go", "muster: the first to fail: "},
	{"README.md", "FROM ", "images/pytorch.Dockerfile", `ENTRYPOINT ["muster", "run", "--"]`}, // test/images builds it
	{"docs/images.md", "COPY --from=muster", "images/Dockerfile", "COPY --from=muster /muster /usr/local/bin/muster"},
	{"docs/no-ssh.md", "RUN ln -sf", "images/pytorch.Dockerfile", "/usr/sbin/sshd"},
	{"docs/ledger.md", "job j1", "report/testdata/ledger.txt", "0      hung   rank 3 on node 1 (ann)  40s     5s    1s    1m0s  2m0s  0.50 rank-hours\n1      lost   node 1 (ann)            10s     20s   30s   1m0s  -     0.17 rank-hours\nuseful: 87.5 % of 6.42 rank-hours; lost: meet 0.04 rank-hours, load 0.33 rank-hours, redo 0.27 rank-hours, detect 0.11 rank-hours, stop 0.06 rank-hours"},
	{"docs/output.md", "DIR/<rdzv-id>", "docs/output.md", "/attempt_<round>/"}, // a drawing; docs/output.md has the tests
	{"docs/output.md", "[rank 0] loading", "output/fold_test.go", "[rank 0] "}, // which rank is first, and who is with the others, is chance
	{"docs/moving.md", "RUN muster install", "images/pytorch.Dockerfile", "ENV PATH=/opt/muster:$PATH"},
	{"docs/security.md", "apiVersion: networking", "docs/security.md", "kind: NetworkPolicy"},
	{"docs/nccl.md", "nccl: 3 of 4 nodes", "nccl/variants_test.go", "3 of 4 nodes have 8 adapters for training, but node2 (node 2) has 7 (mlx5_3: DOWN, Polling: no cable, or nobody at its other end)"},
	{"docs/preflight.md", "the nodes are not alike", "launcher/health_test.go", "the nodes are not alike: "},
	{"docs/preflight.md", "FROM ", "cmd/muster/peers_test.go", "TO            "},
	{"docs/tcpstore.md", "s := &tcpstore.Server", "rendezvous/tcpstore/server_test.go", ".Serve("},
}

// other is what says most of a command, of its own page's before all others.
func other(c typed) (best elsewhere, found bool) {
	for _, e := range others {
		if (e.page == c.page || e.page == "") && begins(c.text, e.text) && (!found || len(e.page) > len(best.page) || len(e.page) == len(best.page) && len(e.text) > len(best.text)) {
			best, found = e, true
		}
	}
	return best, found
}

// aside is why a block is not held by anything; "": it is.
func aside(b shown) string {
	for _, a := range asides {
		if !strings.HasPrefix(b.page, a.page) || !strings.HasPrefix(strings.TrimSpace(b.lines[0]), a.begins) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(top, a.file))
		if err != nil {
			return err.Error()
		}
		for name, here := range map[string]string{b.page: strings.Join(b.lines, "\n"), a.file: string(text)} {
			if !strings.Contains(here, a.has) {
				return fmt.Sprintf("%s does not have %q (any more)", name, a.has)
			}
		}
		return ""
	}
	return `nothing says it: name it in "shows" of the line in test/docs/scenes_test.go that does, or in elsewhere_test.go the test that holds it`
}

// target asks make what it would do.
func target(c typed) string {
	line := strings.Replace(c.text, "make", "make -n", 1)
	cmd := exec.Command("bash", "-euc", line)
	cmd.Dir = top
	return failed(cmd)
}

// parsed has a program look at its flags, and go no further.
func parsed(c typed) string {
	cmd := exec.Command("bash", "-euc", c.text+" -h")
	cmd.Dir = top
	return failed(cmd)
}

// syntax has a shell read it.
func syntax(c typed) string { return failed(exec.Command("bash", "-nc", c.text)) }

func failed(cmd *exec.Cmd) string {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return ""
}

// tests looks for the packages, the tests and the flags.
func tests(c typed) string {
	words := strings.Fields(strings.ReplaceAll(c.text, "'", ""))[2:]
	dir := ""
	for _, w := range words {
		if strings.HasPrefix(w, "./") {
			dir = filepath.Join(top, w)
		}
	}
	files, err := filepath.Glob(dir + "/*_test.go")
	if err != nil || dir == "" || len(files) == 0 {
		return "there are no such tests"
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		all.Write(text)
	}
	if strings.Contains(all.String(), `/test/golden"`) {
		all.WriteString(`flag.Bool("update"`)
	}
	for i := 0; i < len(words); i++ {
		switch word := words[i]; {
		case word == "-run" || word == "-bench":
			kind := map[string]string{"-run": "Test", "-bench": "Benchmark"}[word]
			if i++; i == len(words) {
				return word + " has no value"
			}
			if words[i] != "xxx" && words[i] != "^$" && !regexp.MustCompile(`func `+kind+`\w*(`+words[i]+`)`).MatchString(all.String()) {
				return "no " + kind + " is like " + words[i]
			}
		case slices.Contains(strings.Fields("-timeout -benchtime -count"), word):
			i++
		case word == "-v" || !strings.HasPrefix(word, "-"):
		case !regexp.MustCompile(`flag\.\w+\("` + word[1:] + `"`).MatchString(all.String()):
			return "no flag " + word
		}
	}
	return ""
}

// manifest looks for what is applied.
func manifest(c typed) string {
	words := strings.Fields(c.text)
	file := words[slices.Index(words, "-f")+1]
	if _, err := os.Stat(filepath.Join(top, filepath.Dir(c.page), file)); err != nil {
		return err.Error()
	}
	return ""
}

// image looks for the Dockerfile.
func image(c typed) string {
	words := strings.Fields(c.text)
	if _, err := os.Stat(filepath.Join(top, words[slices.Index(words, "-f")+1])); err != nil {
		return err.Error()
	}
	return syntax(c)
}

// batch has a shell read the script.
func batch(c typed) string {
	return failed(exec.Command("bash", "-n", filepath.Join(top, filepath.Dir(c.page), strings.Fields(c.text)[1])))
}
