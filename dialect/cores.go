package dialect

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-run/muster/job"
)

// Cores are those on which workers are to run, as a launcher is told.
type Cores struct {
	Asked bool
	List  string // of cores, 1,3-5,7; "": all of the machine
	Near  string // which CPUs near its GPU each worker is to have: node, socket, exclusive, core-complex; "": List says
	From  string // as the user knows it
}

// ErrNotHere is a core of the list that another node may have.
var ErrNotHere = errors.New("not one on which this node's workers may run")

// Bindings are the cores of each of so many workers on this node, and the nodes of NUMA of which each has its memory, as DeepSpeed chooses
// them (deepspeed/utils/numa.py, get_numactl_cmd): a slice of the list for each, all of one length, and memory of the node in which all
// cores of the slice are, if they are in one. Without a list it takes as many of the first cores as the machine has without their further threads;
// here those are counted that this container may use.
func (c Cores) Bindings(h job.Host, workers int) (bindings []job.Binding, err error) {
	allowed := allowedCPUs(h)
	list := cpuList(c.List)
	if c.List == "" {
		list = allowed[:min(len(allowed), coresOf(h, allowed))]
	}
	for _, cpu := range list {
		if !slices.Contains(allowed, cpu) {
			return nil, fmt.Errorf("%s: core %d is %w; those are %s", c.From, cpu, ErrNotHere, ranges(allowed))
		}
	}
	each := len(list) / workers
	if each == 0 {
		return nil, fmt.Errorf("%s: this node has %d workers, and only %d cores for them", c.From, workers, len(list))
	}
	memory := memories(h)
	for cpus := range slices.Chunk(list[:each*workers], each) {
		b := job.Binding{CPUs: cpus}
		b.Memory, b.Prefer = memoryFor(memory, cpus)
		bindings = append(bindings, b)
	}
	return bindings, nil
}

// allowedCPUs are those on which this process may run, which a container's may be fewer than the machine's.
func allowedCPUs(h job.Host) []int {
	status, _ := h.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return cpuList(strings.TrimSpace(list))
		}
	}
	return nil
}

// A memory is a node of NUMA, and the CPUs that are near to it.
type memory struct {
	node int
	cpus []int
}

// memories are the machine's nodes of NUMA, by number; none: the kernel does not say.
func memories(h job.Host) (all []memory) {
	online, _ := h.ReadFile("/sys/devices/system/node/online")
	for _, node := range cpuList(strings.TrimSpace(string(online))) {
		cpus, err := h.ReadFile(fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", node))
		if err != nil {
			return nil
		}
		all = append(all, memory{node, cpuList(strings.TrimSpace(string(cpus)))})
	}
	return all
}

// memoryFor is the memory for a worker on these cores; none: any. If prefer is true, it may have another when that is full.
func memoryFor(all []memory, cpus []int) (nodes []int, prefer bool) {
	of := func(m memory) bool {
		return !slices.ContainsFunc(cpus, func(cpu int) bool { return !slices.Contains(m.cpus, cpu) })
	}
	var near, bare []int
	for _, m := range all {
		if len(m.cpus) == 0 {
			bare = append(bare, m.node)
		} else {
			near = append(near, m.node)
		}
	}
	fast := len(bare) > 0 && len(bare) == len(near) // memory in the processor's package, a node without cores for each with some
	groups := divided(all)
	for _, m := range all {
		group := slices.IndexFunc(groups, func(g []int) bool { return slices.Contains(g, m.node) })
		switch {
		case !of(m):
		case fast:
			return []int{bare[slices.Index(near, m.node)]}, true
		case len(groups) == 0:
			return []int{m.node}, false
		case group >= 0:
			return groups[group], false
		}
	}
	return nil, false
}

// divided are the nodes, one after the other, that have the same cores: parts of one that a kernel was told to divide (numa=fake).
func divided(all []memory) (groups [][]int) {
	for i, m := range all {
		switch {
		case i == 0 || len(m.cpus) == 0 || !slices.Equal(m.cpus, all[i-1].cpus):
		case len(groups) > 0 && slices.Contains(groups[len(groups)-1], all[i-1].node):
			groups[len(groups)-1] = append(groups[len(groups)-1], m.node)
		default:
			groups = append(groups, []int{all[i-1].node, m.node})
		}
	}
	return groups
}

// ranges writes numbers that ascend as the kernel does: 0-3,8.
func ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); i++ {
		first := i
		for i+1 < len(numbers) && numbers[i+1] == numbers[i]+1 {
			i++
		}
		part := fmt.Sprint(numbers[first])
		if i > first {
			part += fmt.Sprint("-", numbers[i])
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}
