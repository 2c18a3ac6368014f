package page

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Under another launcher, which imports PyTorch itself and starts workers.
var below = []struct {
	scene
	ranks []int // that should have made a page
	steps uint64
}{
	{scene{name: "a launcher", seen: true, script: "import torch; look()"}, nil, 0},
	{scene{name: "its workers", seen: true, script: launcher + "import torch; look(); run('import torch', 0, 1)"}, []int{0, 1}, 0},
	{scene{name: "workers that run more", script: launcher + "run('import torch, subprocess; subprocess.run([sys.executable, \"-c\", \"import torch\"])', 0, 3)"}, []int{0, 3}, 0},
	{scene{name: "a platform that counts nodes by RANK", vars: []string{"RANK=1", "WORLD_SIZE=2"}, seen: true, script: "import torch; look()"}, nil, 0},
	{scene{name: "a training alone", script: "import torch; " + step + "; look()"}, []int{0}, 1},
	{scene{name: "an older PyTorch", vars: []string{"FAKE_TORCH=old"}, script: "import torch; " + step + "; look()"}, []int{0}, 1},
	{scene{name: "steps that another hooks, too", script: "import torch; " + hooked + "; " + step + "; " + step + "; look()"}, []int{0}, 2},
	{scene{name: "steps of an older PyTorch", vars: []string{"FAKE_TORCH=old"}, script: "import torch; " + step + "; " + step + "; " + step + "; look()"}, []int{0}, 3},
	{scene{name: "off", vars: []string{"MUSTER_HOOK=off"}, script: launcher + "run('import torch', 0)"}, nil, 0},
	{scene{name: "a directory that is not there", vars: []string{"MUSTER_PAGES=/none/of/that"}, script: launcher + "run('import torch', 0)"}, nil, 0},
}

// step does a step of an optimizer.
const step = "torch.optim.optimizer.Optimizer().step()"

// hooked has a program's own function called after each.
const hooked = "torch.optim.optimizer.register_optimizer_step_post_hook(lambda *_: None)"

// launcher is a function that starts ranks as launchers do, one after the other.
const launcher = `
import subprocess
def run(script, *ranks):
    for rank in ranks:
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE="4", LOCAL_RANK=str(rank))
        print(rank, subprocess.run([sys.executable, "-c", "import sys; " + script], env=env).returncode, flush=True)
`

// Each prints, and ends, as without the hook, and the pages are those of the ranks.
func TestBelow(t *testing.T) {
	hook := unpacked(t)
	for _, which := range []string{"debian", "sid"} {
		interpreter := python(t, which)
		for _, s := range below {
			t.Run(which+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				pages := t.TempDir()
				want := s.run(t, interpreter, nil)
				got := s.run(t, interpreter, func(given func(string) (string, bool)) []Var { return EnvBelow(hook, pages, given) })
				if s.seen {
					got = withoutHook(got, hook)
				}
				if got != want {
					t.Errorf("without the hook:\n%s\nwith it:\n%s", want, got)
				}
				if made, steps := ranksIn(t, pages); !slices.Equal(made, s.ranks) || steps != s.steps {
					t.Errorf("pages of ranks %v and %d steps, want %v and %d", made, steps, s.ranks, s.steps)
				}
			})
		}
	}
}

// ranksIn are those whose page is in dir, and was filled, and how many steps they did.
func ranksIn(t *testing.T, dir string) (ranks []int, steps uint64) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		rank, ok := OfRank(f.Name())
		if strings.HasSuffix(f.Name(), StackFile("")) {
			continue
		}
		if !ok {
			t.Errorf("%s was left behind", f.Name())
			continue
		}
		p, err := Attach(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		said, err := p.Read()
		if err != nil || said.PID == 0 || said.Claims != 1 {
			t.Errorf("rank %d says %+v, %v", rank, said, err)
		}
		steps += said.Optimizer
		p.Close()
		ranks = append(ranks, rank)
	}
	return ranks, steps
}

func TestOfRank(t *testing.T) {
	for name, want := range map[string]int{"rank-0": 0, "rank-17": 17, "rank-": -1, "rank--1": -1, "rank-01": -1, "rank-1.77": -1, "page-0-1": -1, "rank-0.stack": -1} {
		if got, ok := OfRank(name); ok != (want >= 0) || ok && got != want {
			t.Errorf("%s: %d, %v; want %d", name, got, ok, want)
		}
	}
}
