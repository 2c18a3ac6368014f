package affinity

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/test/golden"
	"github.com/muster-run/muster/topology"
	"github.com/muster-run/muster/topology/fixture"
)

const machines = "../topology/testdata/machines"

func described(t testing.TB, name string) string {
	t.Helper()
	return fixture.Described(t, machines, name)
}

func given(t testing.TB, text, mode string, workers int, environ ...string) Given {
	t.Helper()
	m, err := topology.Probe(topology.Root(fixture.Tree(t, text)))
	if err != nil {
		t.Fatal(err)
	}
	g := Given{Machine: m, Mode: mode, Workers: workers, Getenv: func(name string) (string, bool) {
		for _, kv := range environ {
			if value, ok := strings.CutPrefix(kv, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}}
	if workers == 0 {
		g.Workers = len(m.Slots())
	}
	return g
}

func shown(c Choice) string {
	var b strings.Builder
	if c.Why != "" {
		fmt.Fprintf(&b, "nobody is bound: %s\n", c.Why)
	}
	for _, l := range c.Lines() {
		fmt.Fprintln(&b, l)
	}
	for _, w := range c.Workers {
		fmt.Fprintf(&b, "%d ", w.Threads)
	}
	return b.String() + "threads\n"
}

// Who runs where on each machine, with one worker for each GPU.
func TestGoldenMachines(t *testing.T) {
	files, err := filepath.Glob(machines + "/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no machines: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			var got string
			for _, mode := range strings.Fields(Modes()) {
				got += fmt.Sprintf("# --bind %s\n%s\n", mode, shown(Choose(given(t, described(t, name), mode, 0))))
			}
			golden.File(t, filepath.Join("testdata", name+".txt"), got)
		})
	}
}

// What keeps workers from being bound, and what is done with what is left.
func TestChoose(t *testing.T) {
	h100 := described(t, "dgx-h100")
	cgroup := func(file, text string) string { return fmt.Sprintf("file sys/fs/cgroup/%s %q\n", file, text) }
	for _, c := range []struct {
		name, text, mode string
		cpus, mems, set  string // that this process may use, and of these its cgroup's
		workers          int
		environ          []string
		want             string // of all that is shown
		bound            int
	}{
		{name: "by taskset", text: h100, cpus: "0-7", want: "nobody is bound: muster was bound to CPUs 0-7 already"},
		{name: "by taskset, and asked for", text: h100, cpus: "0-7,56-63", mode: NUMA, want: "workers 4-7 (GPUs 4-7) on CPUs 56-63, memory of NUMA node 1 first: NUMA node 1", bound: 8},
		{name: "a container's CPUs", text: h100, cpus: "0-7,56-63", set: "0-7,56-63", want: "workers 0-3 (GPUs 0-3) on CPUs 0-7, memory of NUMA node 0 first: NUMA node 0", bound: 8},
		{name: "a container at one socket", text: h100, cpus: "0-7", set: "0-7", want: "workers 4-7 (GPUs 4-7) anywhere: this container may use none of the CPUs of NUMA node 1", bound: 4},
		{name: "with one core near", text: h100, cpus: "0-7,56,168", set: "0-7,56,168", want: "workers 4-7 (GPUs 4-7) anywhere: this container may use 1 core of NUMA node 1, which is too few", bound: 4},
		{name: "two cores near for four workers", text: h100, cpus: "0-57,112-169", set: "0-57,112-169", want: "workers 0-3 (GPUs 0-3) on CPUs 0-55,112-167, memory of NUMA node 0 first: NUMA node 0\n" +
			"workers 4-7 (GPUs 4-7) anywhere: 2 cores of NUMA node 1 for 4 workers are less than half of their part of all 58", bound: 4},
		{name: "half of their part near", text: h100, cpus: "0-29,56-65", set: "0-29,56-65", want: "workers 4-7 (GPUs 4-7) on CPUs 56-65", bound: 8},
		{name: "less than that near", text: h100, cpus: "0-30,56-65", set: "0-30,56-65", want: "workers 4-7 (GPUs 4-7) anywhere: 10 cores of NUMA node 1 for 4 workers", bound: 4},
		{name: "two cores near, and asked for", text: h100, cpus: "0-57,112-169", set: "0-57,112-169", mode: NUMA, want: "workers 4-7 (GPUs 4-7) on CPUs 56-57,168-169", bound: 8},
		{name: "one core for several", text: h100, cpus: "0-7,56", mode: Core, want: "workers 4-7 (GPUs 4-7) anywhere: 4 workers would share 1 core of NUMA node 1", bound: 4},
		{name: "GPUs at a node without CPUs", text: strings.ReplaceAll(h100, "numa=1", "numa=2") + "node 2 mem=1000\n", want: "workers 4-7 (GPUs 4-7) anywhere: NUMA node 2 has no CPUs", bound: 4},
		{name: "GPUs at a node that is not there", text: strings.ReplaceAll(h100, "numa=1", "numa=2"), want: "workers 4-7 (GPUs 4-7) anywhere: the kernel does not show a NUMA node 2", bound: 4},
		{name: "a quota", text: h100 + cgroup("cpu.max", "1600000 100000"), want: "2 2 2 2 2 2 2 2 threads", bound: 8},
		{name: "a quota, and cores", text: h100 + cgroup("cpu.max", "1600000 100000"), mode: Core, want: "workers 0-3 (GPUs 0-3) on CPUs 0-55,112-167, memory of NUMA node 0 first: NUMA node 0; with a quota of time (/sys/fs/cgroup/cpu.max)", bound: 8},
		{name: "OpenMP binds", text: h100, environ: []string{"KMP_AFFINITY=compact"}, want: "nobody is bound: KMP_AFFINITY=compact says where threads run"},
		{name: "accelerate binds", text: h100, environ: []string{"ACCELERATE_CPU_AFFINITY=1"}, want: "nobody is bound: ACCELERATE_CPU_AFFINITY"},
		{name: "half of the GPUs", text: h100, workers: 4, want: "nobody is bound: 4 workers have 8 GPUs"},
		{name: "half of the GPUs, and asked for", text: h100, workers: 4, mode: NUMA, want: "workers 0-3 (GPUs 0-3) on CPUs 0-55", bound: 4},
		{name: "one worker of all GPUs", text: h100, workers: 1, mode: NUMA, want: "nobody is bound: 1 workers have 8 GPUs"},
		{name: "the user's GPUs", text: h100, workers: 2, environ: []string{"CUDA_VISIBLE_DEVICES=7,0"}, want: "worker 0 (GPU7) on CPUs 56-111,168-223, memory of NUMA node 1 first: NUMA node 1\nworker 1 (GPU0) on CPUs 0-55", bound: 2},
		{name: "GPUs in an order of their driver's", text: strings.Replace(h100, `"NVIDIA H100 80GB HBM3"`, `"NVIDIA H100 of another kind"`, 1), want: "nobody is bound: GPUs are of several kinds"},
		{name: "no GPUs", text: cpuMachine, workers: 4, want: "nobody is bound: they have no GPUs\nworkers 0-3 anywhere: they have no GPUs\n2 2 2 2 threads"},
		{name: "no GPUs, by node", text: cpuMachine, workers: 4, mode: NUMA, want: "workers 0-1 on CPUs 0-3,8-11, memory of NUMA node 0 first: NUMA node 0\nworkers 2-3 on CPUs 4-7,12-15", bound: 4},
		{name: "no GPUs, cores", text: cpuMachine, workers: 4, mode: Core, want: "worker 3 on CPUs 6-7,14-15, memory of NUMA node 1 first: 2 of the 4 cores of NUMA node 1\n2 2 2 2 threads", bound: 4},
		{name: "more workers than cores", text: cpuMachine, workers: 9, mode: Core, want: "workers 0-4 anywhere: 5 workers would share 4 cores of NUMA node 0", bound: 4},
		{name: "memory that is not the container's", text: h100, cpus: "0-111", mems: "0", mode: NUMA, want: "workers 4-7 (GPUs 4-7) on CPUs 56-111: NUMA node 1", bound: 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.mode == "" {
				c.mode = Auto
			}
			g := given(t, c.text, c.mode, c.workers, c.environ...)
			if c.cpus != "" {
				g.Machine.Limits.CPUs = cpus(t, c.cpus)
				g.Machine.Limits.Nodes, g.Machine.Limits.Set = cpus(t, c.mems), cpus(t, c.set)
			}
			choice := Choose(g)
			bound := 0
			for _, w := range choice.Workers {
				if w.CPUs != nil {
					bound++
				}
			}
			if got := shown(choice); !strings.Contains(got, c.want) || bound != c.bound || choice.Bound() != (bound > 0) {
				t.Errorf("%d bound, not %d; got:\n%swant:\n%s", bound, c.bound, got, c.want)
			}
		})
	}
	g := given(t, h100, Auto, 0)
	g.Sealed = true
	if c := Choose(g); !c.Sealed || c.Workers[0].Memory != -1 || len(c.Workers[0].CPUs) != 112 {
		t.Errorf("where memory cannot be placed: %+v", c)
	}
}

func cpus(t *testing.T, list string) topology.CPUs {
	t.Helper()
	set, err := topology.ParseCPUs(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

const cpuMachine = `machine two-sockets
cpu vendor=GenuineIntel family=6 model=143 name="A CPU" online=0-15 smt_offset=8
node 0 cpus=0-3,8-11 mem=1000 dist="10 20"
node 1 cpus=4-7,12-15 mem=1000 dist="20 10"
`

// Whatever the machine, the cpuset and the mode, no worker leaves the CPUs that it may use, shares of cores do not overlap, and each has a thread.
func TestBounds(t *testing.T) {
	for _, name := range []string{"dgx-a100", "dgx-h100", "gb200-nvl72-tray", "workstation-1gpu"} {
		g := given(t, described(t, name), Auto, 0)
		for _, mode := range strings.Fields(Modes()) {
			for shift := range 24 {
				g.Mode, g.Workers = mode, 1+shift%len(g.Machine.Slots())
				g.Machine.Limits.CPUs, g.Machine.Limits.Set = nil, nil
				for _, cpu := range g.Machine.Processor.Online {
					if cpu*7%24 >= shift {
						g.Machine.Limits.CPUs = append(g.Machine.Limits.CPUs, cpu)
					}
				}
				g.Machine.Limits.Set = g.Machine.Limits.CPUs
				taken := map[int]int{}
				for i, w := range Choose(g).Workers {
					if w.Threads < 1 || w.Threads > 16 || len(w.CPUs.And(g.Machine.Limits.CPUs)) != len(w.CPUs) {
						t.Fatalf("%s, --bind %s, worker %d: %+v", name, mode, i, w)
					}
					for _, cpu := range w.CPUs {
						if taken[cpu]++; mode == Core && taken[cpu] > 1 {
							t.Fatalf("%s: CPU %d is of two workers", name, cpu)
						}
					}
					if !slices.IsSorted(w.CPUs) {
						t.Fatalf("%v", w.CPUs)
					}
				}
			}
		}
	}
}
