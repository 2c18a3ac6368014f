package interop

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/test/stage"
)

var play = flag.String("play", "", "`REGEXP` of the scripts to run; none if not given, for they need several GB from PyPI")

// patience is how long a training may take; the machine may be busy with much else.
const patience = 8 * time.Minute

// A training is a script, and the job in which it runs.
type training struct {
	script string
	python string // with what requirements/NAME.txt lists
	nodes  int
	flags  string
	ranks  int    // how many tell of their end
	of     string // the packages of which the table in docs/frameworks.md tells the versions
	vars   string // in the environment of each node
}

var trainings = []training{
	{"ddp", "torch", 2, "--nproc-per-node 2", 4, "torch", ""},
	{"fsdp2", "torch", 2, "--nproc-per-node 2", 4, "torch", ""},
	{"accelerate_bf16", "torch", 2, "--nproc-per-node 2", 4, "accelerate torch", ""},
	{"transformers_trainer", "torch", 2, "--nproc-per-node 2", 4, "transformers torch", ""},
	{"lightning_ddp", "torch", 2, "--nproc-per-node 2", 4, "lightning torch", ""},
	{"jax_psum", "jax", 2, "--nproc-per-node 2", 4, "jax", ""},
	{"paddle_collective", "paddle", 2, "--nproc-per-node 2", 4, "paddlepaddle", ""},
	{"paddle_ps", "paddle-ps", 3, "--ps 1", 2, "paddlepaddle", ""},
	{"paddle_ps", "paddle-ps", 3, "--ps 1", 2, "paddlepaddle", "PADDLE_WITH_GLOO=1 PADDLE_GLOO_RENDEZVOUS=3 PADDLE_GLOO_HTTP_ENDPOINT=not-yet:36018"}, // as paddle-operator's withGloo
	{"tf_multiworker", "tensorflow", 2, "", 2, "tensorflow-cpu", ""},
	{"tf_ps", "tensorflow", 3, "--ps 1", 1, "tensorflow-cpu", ""},
	{"horovod_torch", "horovod", 2, "--nproc-per-node 2", 4, "horovod", ""},
	{"mpi4py_allreduce", "mpich", 2, "--nproc-per-node 2 --framework mpi", 4, "mpich mpi4py", ""},
	{"mpi4py_allreduce", "intelmpi", 2, "--nproc-per-node 2 --framework mpi", 4, "impi-rt mpi4py", ""},
}

func TestMain(m *testing.M) { stage.Main(m, 1) }

// TestTrainings runs them, one after the other: each is a world of processes of its own.
func TestTrainings(t *testing.T) {
	muster := stage.Build(t)
	table := "for the table of docs/frameworks.md:\n"
	for _, c := range trainings {
		if !playing(t, c.script+"/"+c.python) {
			continue // TestTable has looked at it
		}
		if t.Run(c.script+"/"+c.python, func(t *testing.T) { c.run(t, muster) }) {
			table += fmt.Sprintf("| %s | `%s` | %s |\n", c.versions(t), c.script, time.Now().UTC().Format(time.DateOnly))
		}
	}
	t.Log(table)
}

// playing reports whether a script is to be run.
func playing(t *testing.T, script string) bool {
	t.Helper()
	asked, err := regexp.MatchString(*play, script)
	if err != nil {
		t.Fatal(err)
	}
	return asked && *play != ""
}

// versions are those of what a training's requirements pin, and of PyTorch, if its Python has that.
func (c training) versions(t *testing.T) string {
	t.Helper()
	wants, err := os.ReadFile("requirements/" + c.python + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	const list = `
import importlib.metadata as m, re, sys
for name in dict.fromkeys(re.findall(r"(?m)^([A-Za-z][\w.-]*)==", sys.argv[1]) + ["torch"]):
    try: print(name, m.version(name))
    except m.PackageNotFoundError: pass`
	out, err := exec.Command(stage.Printed(t, "./python", c.python), "-c", list, string(wants)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.Join(strings.Split(strings.TrimSpace(string(out)), "\n"), ", ")
}

// said is how a script tells its end: "rank 3 of 4: equal parameters 1.25". Before it is who passed it on, muster run or pdsh.
var said = regexp.MustCompile(`(?m)^(?:\[rank \d+\]|h\d:) rank (\d+) of \d+: (.*)$`)

// ownSys shows a node its own network in /sys, as a container's does: MPICH's UCX looks there for it.
const ownSys = `mount -t sysfs sysfs /sys && exec "$@"`

// run plays a training.
func (c training) run(t *testing.T, muster string) {
	python := stage.Printed(t, "./python", c.python)
	argv := append([]string{"sh", "-c", ownSys, "sh", muster, "run", "--nnodes", fmt.Sprint(c.nodes), "--rdzv-endpoint", "h0:29400"}, strings.Fields(c.flags)...)
	argv = append(argv, stage.File(t, "scripts/"+c.script+".py"))
	agree(t, c.nodes, c.ranks, func(int) []string { return append(strings.Fields(c.vars), "PYTHON_EXEC="+python) }, argv...)
}

// agree runs a command on nodes h0, h1, …, with more in the environment of each. All must end well, and that many ranks have said the same.
func agree(t *testing.T, nodes, want int, env func(node int) []string, argv ...string) {
	t.Helper()
	s := stage.Open(t, 1)
	var agents []*stage.Program
	for i := range nodes {
		name := fmt.Sprint("h", i)
		s.Add(name, name)
	}
	for i, m := range s.Machines() {
		agents = append(agents, m.Run(append(env(i), "CUDA_VISIBLE_DEVICES="), argv...))
	}
	if !s.Await(patience, s.Over) {
		t.Errorf("not all have ended in %v", patience)
	}
	results, ranks := map[string]bool{}, map[string]bool{}
	for i, agent := range agents {
		if agent.Code() != 0 {
			t.Errorf("h%d %s", i, agent.Ending())
		}
		if strings.Contains(agent.Said(), "train alone") || strings.Contains(agent.Said(), "muster: no worker ") {
			t.Errorf("h%d took them for workers that train alone:\n%s", i, agent.Said())
		}
		for _, m := range said.FindAllStringSubmatch(agent.Said(), -1) {
			ranks[m[1]], results[m[2]] = true, true
		}
	}
	if len(ranks) != want || len(results) != 1 {
		t.Errorf("%d ranks came to %d results, want %d and 1", len(ranks), len(results), want)
	}
	for result := range results {
		t.Logf("%d ranks: %s", len(ranks), result)
	}
}
