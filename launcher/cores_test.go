package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/affinity"
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
	c := nearConfig(t)
	c.Dialect.Cores, c.Bind = dialect.Cores{Asked: true, Near: "exclusive", From: "--numa-binding"}, affinity.Auto
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

// nearConfig is a job of one worker for each GPU of a machine with two sockets.
func nearConfig(t *testing.T) Config {
	t.Helper()
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
	return c
}

// Without other words workers run near their GPUs, with threads for their part of the cores; the user's and other launchers' words stand.
func TestBind(t *testing.T) {
	for _, x := range []struct {
		name    string
		edit    func(*Config)
		cpus    []int // where workers 0 and 7 begin; nil: they are not bound
		memory  int   // of worker 7
		threads string
		shown   string // of the settings, or of the error
	}{
		{"auto", func(*Config) {}, []int{0, 56}, 1, "13", "workers 4-7 (GPUs 4-7) on CPUs 56-111,168-223"},
		{"core", func(c *Config) { c.Bind = affinity.Core }, []int{1, 99}, 1, "12", "worker 7 (GPU7) on CPUs 99-111,211-223"},
		{"none", func(c *Config) { c.Bind = affinity.None }, nil, 0, "13", "no worker: --bind none"},
		{"the user's threads", func(c *Config) { c.Environ = append(c.Environ, "OMP_NUM_THREADS=5") }, []int{0, 56}, 1, "", "workers 4-7"},
		{"a launcher with words of its own", func(c *Config) { c.Dialect.Command, c.Dialect.Binds = []string{"sh"}, true }, nil, 0, "1", "no worker: the launcher whose words these are"},
		{"the same, and asked for", func(c *Config) {
			c.Dialect.Command, c.Dialect.Binds, c.From = []string{"sh"}, true, map[string]string{"bind": "MUSTER_BIND"}
		}, []int{0, 56}, 1, "1", "workers 4-7"},
		{"a launcher without", func(c *Config) { c.Dialect.Command = []string{"sh"} }, []int{0, 56}, 1, "1", "workers 4-7"},
		{"no CPUs of one socket", func(c *Config) {
			c.From, c.Root = map[string]string{"bind": "--bind"}, topology.Root(edited(t, string(c.Root), "sys/fs/cgroup/cpuset.cpus.effective", "0-55"))
		}, []int{0, -1}, 0, "", "--bind auto does not bind all workers: this container may use none of the CPUs of NUMA node 1"},
		{"OpenMP's words", func(c *Config) { c.Environ = append(c.Environ, "KMP_AFFINITY=x") }, nil, 0, "13", "no worker: KMP_AFFINITY=x says where threads run"},
		{"contradicting words", func(c *Config) {
			c.From, c.Environ = map[string]string{"bind": "--bind"}, append(c.Environ, "GOMP_CPU_AFFINITY=0")
		}, nil, 0, "", "GOMP_CPU_AFFINITY=0 and --bind auto both say where threads run"},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := nearConfig(t)
			c.Bind = affinity.Auto
			x.edit(&c)
			p, err := NewPlan(c)
			if said := fmt.Sprint(p.Settings, p.Notes, err); !strings.Contains(said, x.shown) {
				t.Errorf("want %q: %s", x.shown, said)
			}
			if err != nil {
				return
			}
			tasks := p.Tasks(framework.Place{World: uniform(p), MasterAddr: "h", AgentStore: true}, c)
			for i, t0 := range []job.Task{tasks[0], tasks[7]} {
				threads, _ := t0.Env.Lookup("OMP_NUM_THREADS")
				b := t0.Binding
				if bound := x.cpus != nil && x.cpus[i] >= 0; bound != (len(b.CPUs) > 0) || bound && (b.CPUs[0] != x.cpus[i] || !sealed() && (!b.Prefer || b.Memory[0] != i*x.memory)) {
					t.Errorf("rank %d: %+v", t0.Rank, b)
				}
				if threads != x.threads && (x.threads != "" || len(c.Environ) > 1) {
					t.Errorf("rank %d: %q threads, not %q", t0.Rank, threads, x.threads)
				}
			}
		})
	}
}

// edited is a tree with another text in one of its files.
func edited(t *testing.T, root, file, text string) string {
	t.Helper()
	at := filepath.Join(root, file)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}
