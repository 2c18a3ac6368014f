package topology

// A Relation is what lies between two PCI devices, in the words of nvidia-smi topo -m, the nearest first. NCCL's own words differ:
// it says PHB for NODE.
type Relation int

const (
	Same Relation = iota // the device itself
	PIX                  // at most one PCIe switch
	PXB                  // several PCIe switches, and no host bridge
	PHB                  // a PCIe host bridge
	NODE                 // two host bridges of one NUMA node
	SYS                  // the link between NUMA nodes, or the kernel does not say
	None                 // there is no such pair
)

func (r Relation) String() string {
	return [...]string{"X", "PIX", "PXB", "PHB", "NODE", "SYS", "-"}[min(max(r, Same), None)]
}

// Relate is the relation of two PCI devices by their paths and NUMA nodes.
func Relate(a, b PCI) Relation {
	if a.Address == b.Address && a.Address != (Address{}) {
		return Same
	}
	common := 0
	for common < min(len(a.Path), len(b.Path)) && a.Path[common] == b.Path[common] {
		common++
	}
	switch {
	case common > 1 && len(a.Path)-common <= 2 && len(b.Path)-common <= 2:
		return PIX
	case common > 1:
		return PXB
	case common == 1 && hostBridge(a.Path[0]):
		return PHB
	case a.NUMA >= 0 && a.NUMA == b.NUMA:
		return NODE
	}
	return SYS
}

// Bridges are the PCIe bridges above the device, the uppermost first.
func (p PCI) Bridges() []string {
	if len(p.Path) < 2 {
		return nil
	}
	return p.Path[1 : len(p.Path)-1]
}
