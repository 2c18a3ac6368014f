package dialects

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/dialect"
	"github.com/muster-run/muster/job"
)

// A gpuMachine is some nodes of NUMA with GPUs, of which so many workers have one each.
type gpuMachine struct {
	Nodes   [][]int // their CPUs
	Socket  []int   // of each node
	Cores   int     // CPUs that are so far apart are threads of one
	Cache   int     // so many cores, one after the other, share a cache
	Allowed []int   // nil: all
	GPUs    []int   // the node of each
	Workers int
}

var gpuMachines = []gpuMachine{
	{Nodes: [][]int{span(0, 8)}, Socket: []int{0}, Cores: 8, Cache: 8, GPUs: []int{-1}, Workers: 1},
	{Nodes: [][]int{span(0, 8), span(8, 16)}, Socket: []int{0, 1}, Cores: 16, Cache: 4, GPUs: []int{0, 0, 1, 1}, Workers: 4},
	{Nodes: [][]int{span(0, 8), span(8, 16)}, Socket: []int{0, 1}, Cores: 16, Cache: 4, GPUs: []int{1, 0, 1, 0}, Workers: 3},
	{Nodes: [][]int{append(span(0, 6), span(12, 18)...), append(span(6, 12), span(18, 24)...)}, Socket: []int{0, 1}, Cores: 12, Cache: 3, GPUs: []int{0, 0, 0, 0, 1}, Workers: 5},
	{Nodes: [][]int{span(0, 4), span(4, 8), span(8, 12), span(12, 16)}, Socket: []int{0, 0, 1, 1}, Cores: 16, Cache: 2, GPUs: []int{0, 3, 1, 2}, Workers: 4},
	{Nodes: [][]int{span(0, 8), span(8, 16)}, Socket: []int{0, 1}, Cores: 16, Cache: 4, Allowed: []int{1, 4, 5, 6, 8, 9}, GPUs: []int{0, 0, 1}, Workers: 3},
	{Nodes: [][]int{span(0, 8), span(8, 16)}, Socket: []int{0, 0}, Cores: 16, Cache: 8, Allowed: []int{1, 9}, GPUs: []int{0, 0}, Workers: 2},
	{Nodes: [][]int{span(0, 4)}, Socket: []int{0}, Cores: 4, Cache: 1, GPUs: []int{0, 0, 0, 0, 0, 0}, Workers: 6},
	{Nodes: [][]int{span(0, 4), span(4, 8)}, Socket: []int{0, 1}, Cores: 8, Cache: 4, Allowed: span(0, 4), GPUs: []int{0, 1}, Workers: 1},
}

// Where muster binds workers under --numa-binding is where PyTorch's torchrun does, on machines that are not this one.
func TestNumaBinding(t *testing.T) {
	t.Parallel()
	var cases []map[string]any
	for _, m := range gpuMachines {
		cases = append(cases, map[string]any{"Files": m.files(), "Allowed": m.allowed(), "GPUs": m.GPUs, "Workers": m.Workers})
	}
	text, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python(t), "scripts/numa_binding.py")
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(text)), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var theirs []map[string][][]int
	if err := json.Unmarshal(out, &theirs); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	bound := 0
	for i, m := range gpuMachines {
		for mode, want := range theirs[i] {
			bindings, err := dialect.Cores{Near: mode, From: "--numa-binding"}.NearGPUs(m.host(), m.GPUs, m.Workers)
			var got [][]int
			for _, b := range bindings {
				got = append(got, b.CPUs)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s of %+v: PyTorch binds to %v, muster to %v, %v", mode, m, want, got, err)
			}
			if err == nil {
				bound++
			}
		}
	}
	if bound < 20 {
		t.Errorf("only %d of %d could be compared", bound, 4*len(gpuMachines))
	}
}

func (m gpuMachine) allowed() []int {
	if m.Allowed != nil {
		return m.Allowed
	}
	return slices.Sorted(slices.Values(slices.Concat(m.Nodes...)))
}

// files are what the kernel says of it.
func (m gpuMachine) files() map[string]string {
	files := map[string]string{"/sys/devices/system/node/possible": fmt.Sprintf("0-%d\n", len(m.Nodes)-1)}
	for node, cpus := range m.Nodes {
		files[fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", node)] = listed(cpus) + "\n"
		for _, cpu := range cpus {
			dir := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/", cpu)
			var siblings, near []int
			for _, other := range cpus {
				if other%m.Cores == cpu%m.Cores {
					siblings = append(siblings, other)
				}
				if other%m.Cores/m.Cache == cpu%m.Cores/m.Cache {
					near = append(near, other)
				}
			}
			files[dir+"topology/thread_siblings_list"] = listed(siblings) + "\n"
			files[dir+"topology/physical_package_id"] = fmt.Sprintln(m.Socket[node])
			for index, cache := range []struct {
				kind, shared string
				level        int
			}{{"Data", listed(siblings), 1}, {"Instruction", listed(siblings), 9}, {"Unified", listed(near), 3}, {"Unified", listed(siblings), 2}} {
				at := fmt.Sprintf("%scache/index%d/", dir, index)
				files[at+"type"], files[at+"level"], files[at+"shared_cpu_list"] = cache.kind+"\n", fmt.Sprintln(cache.level), cache.shared+"\n"
			}
		}
	}
	return files
}

func (m gpuMachine) host() job.Host {
	files := m.files()
	files["/proc/self/status"] = "Name:\tx\nCpus_allowed_list:\t" + listed(m.allowed()) + "\n"
	return job.Host{ReadFile: func(path string) ([]byte, error) {
		if text, ok := files[path]; ok {
			return []byte(text), nil
		}
		return nil, os.ErrNotExist
	}}
}
