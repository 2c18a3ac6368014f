package launcher

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/dialect"
	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/topology"
	"github.com/muster-run/muster/topology/fixture"
)

// Each worker has its part of the cores, and threads for it, whatever the user said of threads.
func TestCoresOfWorkers(t *testing.T) {
	c := Config{Argv: []string{"sh"}, NProc: "2", Nodes: 1, Standalone: true, NodeRank: -1, Environ: []string{"PATH=/bin", "OMP_NUM_THREADS=9"}, Root: topology.Root(t.TempDir())}
	c.Host = job.Host{Getenv: func(string) string { return "" }, ReadFile: func(path string) ([]byte, error) {
		if path == "/proc/self/status" {
			return []byte("Cpus_allowed_list:\t0-3,8-9\n"), nil
		}
		return []byte(path), nil // each CPU is a core of its own
	}}
	c.Dialect.Cores = dialect.Cores{Asked: true, From: "--bind"}
	p, err := NewPlan(c)
	if err != nil {
		t.Fatal(err)
	}
	place := framework.Place{World: uniform(p), MasterAddr: "h", AgentStore: true}
	for i, want := range [][]int{{0, 1, 2}, {3, 8, 9}} {
		task := p.Tasks(place, c)[i]
		if threads, _ := task.Env.Lookup("OMP_NUM_THREADS"); !slices.Equal(task.Binding.CPUs, want) || threads != "3" {
			t.Errorf("worker %d: cores %v, %s threads", i, task.Binding.CPUs, threads)
		}
	}
	for _, bad := range []struct {
		variable, list, workers, want string
		code                          int
	}{
		{"KMP_AFFINITY=compact", "", "2", "KMP_AFFINITY=compact and --bind both say where threads run", job.ExitUsage},
		{"", "2", "2", "this node has 2 workers, and only 1 cores for them", job.ExitUsage},
		{"", "3-5", "2", "core 4 is not one on which this node's workers may run; those are 0-3,8-9", job.ExitRefused},
		{"", "", "7", "this node has 7 workers, and only 6 cores for them", job.ExitRefused},
	} {
		c := c
		c.Environ, c.Dialect.Cores.List, c.NProc = append(c.Environ, bad.variable), bad.list, bad.workers
		if _, err := NewPlan(c); ExitCode(err) != bad.code || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%+v: %v", bad, err)
		}
		c.Nodes, c.Standalone, c.Endpoint = 2, false, "host0:29400"
		if p, err := planned(c); (err == nil) != (bad.code == job.ExitRefused) || err == nil && !strings.Contains(p.Unfit, bad.want) { // else the others wait for it
			t.Errorf("%+v of two nodes: %v, %q", bad, err, p.Unfit)
		}
	}
}

// Under torchrun's --numa-binding each worker has CPUs near its GPU, and the threads that it would have anyway; not where nobody knows which GPU is whose.
func TestNearGPUs(t *testing.T) {
	text, err := os.ReadFile("../topology/testdata/machines/dgx-h100.txt")
	if err != nil {
		t.Fatal(err)
	}
	root := fixture.Tree(t, string(text))
	c := Config{Argv: []string{"sh"}, NProc: "8", Nodes: 1, Standalone: true, NodeRank: -1, Environ: []string{"PATH=/bin"}, Root: topology.Root(root)}
	c.Host = job.Host{Getenv: func(string) string { return "" }, ReadFile: func(path string) ([]byte, error) {
		if path == "/proc/self/status" {
			return []byte("Cpus_allowed_list:\t0-223\n"), nil
		}
		return os.ReadFile(root + path)
	}}
	c.Dialect.Cores = dialect.Cores{Asked: true, Near: "exclusive", From: "--numa-binding"}
	p, err := NewPlan(c)
	if err != nil {
		t.Fatal(err)
	}
	place := framework.Place{World: uniform(p), MasterAddr: "h", AgentStore: true}
	for i, first := range []int{0, 14, 28, 42, 56, 70, 84, 98} {
		task := p.Tasks(place, c)[i]
		threads, _ := task.Env.Lookup("OMP_NUM_THREADS")
		if got := task.Binding.CPUs; len(got) != 28 || got[0] != first || got[14] != first+112 || threads != "1" || task.Binding.Memory != nil {
			t.Errorf("worker %d: %+v, %s threads", i, task.Binding, threads)
		}
	}
	c.Environ = append(c.Environ, "CUDA_VISIBLE_DEVICES=4,0")
	c.NProc = "2"
	if p, err = NewPlan(c); err != nil || p.Bindings[0].CPUs[0] != 56 || p.Bindings[1].CPUs[0] != 0 {
		t.Errorf("%v, %+v", err, p.Bindings)
	}
	for _, bad := range []struct {
		root  topology.Root
		nproc string
		want  string
	}{
		{c.Root, "3", "--numa-binding binds each worker to the CPUs near its GPU, and this node has 3 workers and 2 GPUs"},
		{topology.Root(t.TempDir()), "1", "this node has 1 workers and 0 GPUs"},
	} {
		c := c
		c.Root, c.NProc = bad.root, bad.nproc
		if _, err := NewPlan(c); ExitCode(err) != job.ExitRefused || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%v, want %q", err, bad.want)
		}
	}
}
