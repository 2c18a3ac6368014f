package topology

import (
	"fmt"
	"strings"
)

const cpuDir = "sys/devices/system/cpu"

// A Processor is what the machine computes with.
type Processor struct {
	Vendor  string // vendor_id of /proc/cpuinfo; of an Arm CPU its implementer
	Model   string // model name
	Online  CPUs   // the machine's, whatever this process may use
	Cores   []Core // by their first CPU
	Virtual bool   // under a hypervisor, which may hide where devices are
}

// A Core is one physical core.
type Core struct {
	CPUs    CPUs // its hardware threads
	Package int  // its socket; -1: the kernel does not say
}

// processor reads the CPUs and what they are.
func (t tree) processor() Processor {
	p := Processor{Online: t.cpus(cpuDir + "/online")}
	seen := map[int]bool{}
	for _, n := range p.Online {
		if seen[n] {
			continue
		}
		siblings := t.cpus(fmt.Sprintf("%s/cpu%d/topology/thread_siblings_list", cpuDir, n))
		if len(siblings) == 0 {
			siblings = CPUs{n}
		}
		for _, s := range siblings {
			seen[s] = true
		}
		p.Cores = append(p.Cores, Core{CPUs: siblings, Package: t.socket(n)})
	}
	first, _, _ := strings.Cut(t.head("proc/cpuinfo", 16<<10), "\n\n") // the first CPU stands for all
	for line := range strings.Lines(first) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "vendor_id", "CPU implementer":
			p.Vendor = value
		case "model name", "Processor", "cpu":
			p.Model = value
		case "flags":
			p.Virtual = strings.Contains(" "+value+" ", " hypervisor ")
		}
	}
	return p
}

// Sockets is how many packages the cores are in; 0: the kernel does not say.
func (p Processor) Sockets() int {
	packages := map[int]bool{}
	for _, c := range p.Cores {
		if c.Package >= 0 {
			packages[c.Package] = true
		}
	}
	return len(packages)
}

// socket is the package of a CPU; -1: the kernel does not say.
func (t tree) socket(cpu int) int {
	n, ok := t.number(fmt.Sprintf("%s/cpu%d/topology/physical_package_id", cpuDir, cpu))
	if !ok || n < 0 || n > maxCPU {
		return -1
	}
	return n
}
