package interop

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	another = flag.String("muster", "", "`FILE` to test; else make builds it from what is here")
	play    = flag.String("play", "", "`REGEXP` of the scripts to run; none if not given, for they need several GB from PyPI")
)

// A training is a script, and the job in which it runs.
type training struct {
	script string
	python string // with what requirements/NAME.txt lists
	nodes  int
	flags  string
	ranks  int // how many tell of their end
}

var trainings = []training{
	{"fsdp2", "torch", 2, "--nproc-per-node 2", 4},
	{"accelerate_bf16", "torch", 2, "--nproc-per-node 2", 4},
	{"transformers_trainer", "torch", 2, "--nproc-per-node 2", 4},
	{"lightning_ddp", "torch", 2, "--nproc-per-node 2", 4},
	{"jax_psum", "jax", 2, "--nproc-per-node 2", 4},
	{"paddle_collective", "paddle", 2, "--nproc-per-node 2", 4},
	{"paddle_ps", "paddle-ps", 3, "--ps 1", 2},
	{"tf_multiworker", "tensorflow", 2, "", 2},
	{"tf_ps", "tensorflow", 3, "--ps 1", 1},
}

// TestTrainings runs them, one after the other: each is a world of processes of its own.
func TestTrainings(t *testing.T) {
	chosen, err := regexp.Compile(*play)
	if err != nil {
		t.Fatal(err)
	}
	if *play == "" {
		return // TestScripts has looked at them
	}
	muster := build(t)
	for _, c := range trainings {
		if chosen.MatchString(c.script) {
			t.Run(c.script, func(t *testing.T) { c.run(t, muster) })
		}
	}
}

// Each script is played, and each is in the table that people read.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("scripts/*.py")
	if err != nil || len(files) != len(trainings)+1 { // one is only played with a link
		t.Errorf("%d scripts, %v; %d are played", len(files), err, len(trainings))
	}
	table, err := os.ReadFile("../../docs/frameworks.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range trainings {
		for _, file := range []string{"scripts/" + c.script + ".py", "requirements/" + c.python + ".txt"} {
			if _, err := os.Stat(file); err != nil {
				t.Error(err)
			}
		}
		if !strings.Contains(string(table), "`"+c.script+"`") {
			t.Errorf("docs/frameworks.md does not tell of %s", c.script)
		}
	}
}

// said is how a script tells its end: "rank 3 of 4: equal parameters 1.25".
var said = regexp.MustCompile(`(?m)^\[rank \d+\] rank (\d+) of \d+: (.*)$`)

// run plays a training. All nodes must end well, and all ranks have said the same.
func (c training) run(t *testing.T, muster string) {
	python := interpreter(t, c.python)
	s := openStage(t, c.nodes)
	argv := append([]string{muster, "run", "--nnodes", fmt.Sprint(c.nodes), "--rdzv-endpoint", "h0:29400"}, strings.Fields(c.flags)...)
	argv = append(argv, absolute(t, "scripts/"+c.script+".py"))
	for i := range c.nodes {
		s.start(i, append([]string{"env", "PYTHON_EXEC=" + python}, argv...))
	}
	s.agree(c.ranks)
}

// agree waits for the end: all nodes must end well, and that many ranks have said the same.
func (s *stage) agree(want int) {
	s.t.Helper()
	text, codes := s.end()
	results, ranks := map[string]bool{}, map[string]bool{}
	for _, m := range said.FindAllStringSubmatch(text, -1) {
		ranks[m[1]], results[m[2]] = true, true
	}
	if strings.Trim(codes, "0 ") != "" || len(ranks) != want || len(results) != 1 {
		s.t.Errorf("exit codes %s; %d ranks came to %d results, want %d and 1:\n%s", codes, len(ranks), len(results), want, text)
	}
	for result := range results {
		s.t.Logf("%d ranks: %s", len(ranks), result)
	}
}

func build(t *testing.T) string {
	t.Helper()
	if *another != "" {
		return *another
	}
	path := filepath.Join(t.TempDir(), "muster")
	if out, err := exec.Command("make", "-C", "../..", "build", "BIN="+path).CombinedOutput(); err != nil {
		t.Fatalf("make build: %v: %s", err, out)
	}
	return path
}

// interpreter is the Python with a framework, installed if it was not there.
func interpreter(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command("./python", name)
	cmd.Stderr = os.Stderr // it takes its time
	path, err := cmd.Output()
	if err != nil {
		t.Fatalf("test/interop/python %s: %v", name, err)
	}
	return strings.TrimSpace(string(path))
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
