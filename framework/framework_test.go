package framework

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// twoByTwo is a world of two nodes with two slots each, seen by the second.
func twoByTwo(group int) Place {
	return Place{
		World: job.World{ID: "job1", Generation: 1, Members: []job.Member{
			{Node: job.Node{Name: "ann", Slots: 2}, First: 0},
			{Node: job.Node{Name: "lee", Slots: 2}, First: 2},
		}},
		Group: group, MasterAddr: "10.0.0.1", MasterPort: 23457, ErrorDir: "/run/muster/job1",
	}
}

// The golden file of a framework holds the whole environment of every rank of a 2x2 world.
func TestEnvOfEveryRank(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	for _, f := range frameworks {
		var b strings.Builder
		for group := range 2 {
			for _, task := range f.Tasks(twoByTwo(group), []string{"python3", "-u", "train.py"}, none) {
				fmt.Fprintf(&b, "rank %d, local rank %d: %s\n", task.Rank, task.LocalRank, strings.Join(task.Argv, " "))
				for _, v := range task.Env {
					fmt.Fprintf(&b, "  %s=%s  # %s\n", v.Name, v.Value, v.Why)
				}
			}
		}
		golden(t, f.Name+".want", b.String())
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (run with -update to see the diff):\n%s", path, got)
	}
}

func TestUserWins(t *testing.T) {
	set := map[string]string{"OMP_NUM_THREADS": "8", "RANK": "7", "PYTHONUNBUFFERED": ""}
	given := func(name string) (string, bool) { v, ok := set[name]; return v, ok }
	env := torch.Tasks(twoByTwo(1), nil, given)[0].Env
	for _, name := range []string{"OMP_NUM_THREADS", "PYTHONUNBUFFERED"} {
		if v, ok := env.Lookup(name); ok {
			t.Errorf("%s, which the user set, is overwritten with %q", name, v)
		}
	}
	if v, _ := env.Lookup("RANK"); v != "2" {
		t.Errorf("RANK, which counts nodes in the platform's words, stays %q", v)
	}
}

func TestAgentStore(t *testing.T) {
	p := twoByTwo(0)
	p.AgentStore = true
	env := torch.Tasks(p, nil, func(string) (string, bool) { return "", false })[0].Env
	if v, _ := env.Lookup("TORCHELASTIC_USE_AGENT_STORE"); v != "True" {
		t.Errorf("TORCHELASTIC_USE_AGENT_STORE=%s", v)
	}
}

func TestOneSlotKeepsThreads(t *testing.T) {
	p := twoByTwo(0)
	p.World.Members[0].Slots = 1
	env := torch.Tasks(p, nil, func(string) (string, bool) { return "", false })[0].Env
	if v, ok := env.Lookup("OMP_NUM_THREADS"); ok {
		t.Errorf("OMP_NUM_THREADS=%s for a single worker", v)
	}
}

func TestLookup(t *testing.T) {
	if f, err := Lookup(""); err != nil || f.Name != "torch" {
		t.Errorf("default: %q, %v", f.Name, err)
	}
	if _, err := Lookup("torhc"); err == nil || !strings.Contains(err.Error(), "torch") {
		t.Errorf("unknown framework: %v", err)
	}
}
