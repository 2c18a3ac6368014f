package dialect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// NearGPUs are the cores of each of so many workers on this node, as torchrun's --numa-binding chooses them (torch/numa/binding.py): near the GPU whose number is
// the worker's local rank. nodes are the nodes of NUMA of all GPUs that workers see, in their order; -1: the kernel does not say.
func (c Cores) NearGPUs(h job.Host, nodes []int, workers int) (bindings []job.Binding, err error) {
	if workers > len(nodes) {
		return nil, fmt.Errorf("%s binds each worker to the CPUs near its GPU, and this node has %d workers and %d GPUs", c.From, workers, len(nodes))
	}
	n := nearness{h, allowedCPUs(h)}
	for local := range workers {
		node := max(nodes[local], 0) // a machine with one node has no numbers for it
		var rivals, place int        // GPUs of that node, and this one's number among them
		for i, other := range nodes {
			if max(other, 0) != node {
				continue
			}
			if i < local {
				place++
			}
			rivals++
		}
		cpus := n.choose(c.Near, node, place, rivals)
		if len(cpus) == 0 {
			return nil, fmt.Errorf("%s: no CPU is left for worker %d: its GPU is near node %d of NUMA, with %d GPUs in all, and of that node's CPUs this container may use %q",
				c.From, local, node, rivals, ranges(n.of(node)))
		}
		bindings = append(bindings, job.Binding{CPUs: cpus})
	}
	return bindings, nil
}

// nearness is what the kernel says of CPUs and the nodes of NUMA.
type nearness struct {
	h       job.Host
	allowed []int
}

// choose are the CPUs of a GPU that is one of several at a node.
func (n nearness) choose(mode string, node, place, rivals int) []int {
	switch mode {
	case "socket":
		return n.socket(node)
	case "exclusive":
		cores := n.groups(n.of(node), func(cpu int) int { return least(n.list(cpu, "topology/thread_siblings_list")) })
		each, more := len(cores)/rivals, len(cores)%rivals
		if each == 0 {
			return nil
		}
		first := place*each + min(place, more)
		if place < more {
			each++
		}
		return sorted(slices.Concat(cores[first : first+each]...))
	case "core-complex":
		caches := n.groups(n.of(node), func(cpu int) int { return least(n.cache(cpu)) })
		slices.SortStableFunc(caches, func(a, b []int) int { return len(b) - len(a) })
		if len(caches) == 0 {
			return nil
		}
		return caches[place%len(caches)]
	}
	return n.of(node)
}

// of are the CPUs of a node that this process may use.
func (n nearness) of(node int) (cpus []int) {
	text, _ := n.h.ReadFile(fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", node))
	for _, cpu := range cpuList(strings.TrimSpace(string(text))) {
		if slices.Contains(n.allowed, cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return sorted(cpus)
}

// socket are the CPUs of all nodes in the socket of one.
func (n nearness) socket(node int) (cpus []int) {
	mine := n.of(node)
	if len(mine) == 0 {
		return nil
	}
	possible, _ := n.h.ReadFile("/sys/devices/system/node/possible")
	for _, other := range cpuList(strings.TrimSpace(string(possible))) {
		if theirs := n.of(other); len(theirs) > 0 && n.number(theirs[0], "topology/physical_package_id") == n.number(mine[0], "topology/physical_package_id") {
			cpus = append(cpus, theirs...)
		}
	}
	return sorted(cpus)
}

// groups are the CPUs that have something in common, in its order.
func (n nearness) groups(cpus []int, what func(cpu int) int) (groups [][]int) {
	with := map[int][]int{}
	var order []int
	for _, cpu := range cpus {
		common := what(cpu)
		if with[common] == nil {
			order = append(order, common)
		}
		with[common] = append(with[common], cpu)
	}
	for _, common := range sorted(order) {
		groups = append(groups, with[common])
	}
	return groups
}

// cache are the CPUs that share the last of a CPU's caches for data.
func (n nearness) cache(cpu int) (cpus []int) {
	last := -1
	for i := 0; ; i++ {
		dir := fmt.Sprintf("cache/index%d/", i)
		kind := n.text(cpu, dir+"type")
		if kind == "" {
			return cpus
		}
		if level := n.number(cpu, dir+"level"); (kind == "Unified" || kind == "Data") && level > last {
			last, cpus = level, n.list(cpu, dir+"shared_cpu_list")
		}
	}
}

// text is what a file of a CPU's says; "": there is none.
func (n nearness) text(cpu int, file string) string {
	text, _ := n.h.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/%s", cpu, file))
	return strings.TrimSpace(string(text))
}

func (n nearness) list(cpu int, file string) []int { return cpuList(n.text(cpu, file)) }

func (n nearness) number(cpu int, file string) int {
	i, err := strconv.Atoi(n.text(cpu, file))
	if err != nil {
		return -1
	}
	return i
}

// least is the first of them; -1: there is none, as where the kernel does not say.
func least(cpus []int) int {
	if len(cpus) == 0 {
		return -1
	}
	return slices.Min(cpus)
}

func sorted(cpus []int) []int {
	slices.Sort(cpus)
	return slices.Compact(cpus)
}
