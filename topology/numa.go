package topology

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	nodesDir = "sys/devices/system/node"
	maxNodes = 1 << 10 // the kernel's limit: MAX_NUMNODES with NODES_SHIFT 10
)

// A Node is one NUMA node. One without CPUs is memory: a GPU's own on Grace, or a CXL device's.
type Node struct {
	ID       int
	CPUs     CPUs  // cpulist
	Memory   int64 // MemTotal of meminfo, in bytes
	Distance []int // to each node, in the order of the nodes; 10 is to itself
	Package  int   // the socket of its first CPU; -1: no CPU, or the kernel does not say
}

// nodes reads the NUMA nodes. A kernel without NUMA has none.
func (t tree) nodes() (nodes []Node) {
	for _, id := range t.numbered(nodesDir, "node") {
		if id >= maxNodes {
			continue
		}
		n := Node{ID: id, CPUs: t.cpus(nodeFile(id, "cpulist")), Memory: t.memory(id), Package: -1}
		for word := range strings.FieldsSeq(t.line(nodeFile(id, "distance"))) {
			d, _ := strconv.Atoi(word)
			n.Distance = append(n.Distance, d)
		}
		if len(n.CPUs) > 0 {
			n.Package = t.socket(n.CPUs[0])
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func nodeFile(id int, name string) string { return fmt.Sprintf("%s/node%d/%s", nodesDir, id, name) }

// memory is a node's memory in bytes: "Node 0 MemTotal:       1055744000 kB".
func (t tree) memory(id int) int64 {
	for line := range strings.Lines(t.text(nodeFile(id, "meminfo"))) {
		words := strings.Fields(line)
		if len(words) == 5 && words[2] == "MemTotal:" {
			kB, err := strconv.ParseInt(words[3], 10, 64)
			if err == nil && kB >= 0 && kB < 1<<50 {
				return kB << 10
			}
		}
	}
	return 0
}
