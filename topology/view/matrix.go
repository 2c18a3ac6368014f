package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-run/muster/topology"
)

// A place is a row and column of the matrix.
type place struct {
	name string
	pci  topology.PCI
	gpu  *topology.GPU // nil: an adapter
}

// matrix writes what lies between each two devices, in the manner of nvidia-smi topo -m.
func matrix(b *strings.Builder, m topology.Machine) {
	var all []place
	for i := range m.GPUs {
		all = append(all, place{gpuName(m.GPUs[i]), m.GPUs[i].PCI, &m.GPUs[i]})
	}
	for i, h := range m.HCAs {
		all = append(all, place{name: fmt.Sprintf("NIC%d", i), pci: h.PCI})
	}
	if len(all) < 2 {
		return
	}
	var head []string
	for _, p := range all {
		head = append(head, p.name)
	}
	t := table(b, append([]string{""}, head...)...)
	var said []string
	for _, row := range all {
		cells := []string{row.name}
		for _, column := range all {
			cell := between(m, row, column)
			cells, said = append(cells, cell), append(said, cell)
		}
		t.row(cells...)
	}
	t.end()
	legend(b, said)
}

// between is a cell: the GPUs' own link if they have one, else what PCIe has between them.
func between(m topology.Machine, a, b place) string {
	if a.name == b.name {
		return "X"
	}
	if a.gpu != nil && b.gpu != nil {
		if p, ok := a.gpu.Linked(*b.gpu); ok {
			return p.Cell()
		}
	}
	return topology.Relate(a.pci, b.pci).String()
}

var words = [][2]string{
	{"NV", "NVLink, which GPUs on such a board have to each other; how many, only nvidia-smi says"},
	{"NV#", "so many NVLinks"},
	{"XGMI", "AMD's own links"},
	{"PIX", "at most one PCIe switch"},
	{"PXB", "several PCIe switches, no host bridge"},
	{"PHB", "a PCIe host bridge"},
	{"NODE", "two host bridges of one NUMA node"},
	{"SYS", "the link between NUMA nodes; or the kernel does not say on which they are"},
}

// legend explains the words that are in the matrix.
func legend(b *strings.Builder, said []string) {
	b.WriteString("\n")
	for _, w := range words {
		in := func(cell string) bool {
			return cell == w[0] || w[0] == "NV#" && len(cell) > 2 && strings.HasPrefix(cell, "NV")
		}
		if slices.ContainsFunc(said, in) {
			fmt.Fprintf(b, "%-5s %s\n", w[0], w[1])
		}
	}
}
