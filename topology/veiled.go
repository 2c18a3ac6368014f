package topology

import "slices"

// A Pairing is a GPU and the adapter that is behind the same PCIe switch, where a virtual machine does not show the switch.
type Pairing struct {
	GPU  int // its index
	HCA  string
	Node int // the NUMA node of both
}

// A veiled machine is one of a cloud's whose host publishes which devices share a switch (Azure/azhpc-images, topology/*.xml).
type veiled struct {
	platform string
	pairs    []veiledPair
}

type veiledPair struct {
	gpu, hca uint32 // PCI domains: Hyper-V gives each device its own
	node     int
}

var veiledMachines = []veiled{
	{"azure-ndv5", []veiledPair{
		{0x0001, 0x0101, 0}, {0x0002, 0x0102, 0}, {0x0003, 0x0103, 0}, {0x0008, 0x0104, 0},
		{0x0009, 0x0105, 1}, {0x000a, 0x0106, 1}, {0x000b, 0x0107, 1}, {0x000c, 0x0108, 1},
	}},
	{"azure-ndv4", []veiledPair{
		{0x0003, 0x0103, 0}, {0x0004, 0x0104, 0}, {0x0001, 0x0101, 1}, {0x0002, 0x0102, 1},
		{0x000d, 0x0107, 2}, {0x000e, 0x0108, 2}, {0x000b, 0x0105, 3}, {0x000c, 0x0106, 3},
	}},
}

// Veiled is which GPU and which adapter are neighbours though the kernel does not show it. It is nil unless the machine is exactly
// one that is known: a topology file with a device that is not there would be worse than none.
func (m Machine) Veiled() []Pairing {
	pairs, missing := m.paired()
	if len(missing) > 0 {
		return nil
	}
	return pairs
}

// Missing is where such a machine has adapters, and the kernel shows none, though it shows all of its GPUs.
func (m Machine) Missing() []string {
	_, missing := m.paired()
	return missing
}

// paired are the neighbours of a machine that is known, and where adapters of it are not there; nothing of any other machine.
func (m Machine) paired() (pairs []Pairing, missing []string) {
	i := slices.IndexFunc(veiledMachines, func(v veiled) bool { return v.platform == m.Platform() })
	if i < 0 || len(m.GPUs) != len(veiledMachines[i].pairs) {
		return nil, nil
	}
	for _, g := range m.GPUs {
		k := slices.IndexFunc(veiledMachines[i].pairs, func(p veiledPair) bool { return p.gpu == g.PCI.Address.Domain })
		if k < 0 {
			return nil, nil
		}
		p := veiledMachines[i].pairs[k]
		at := Address{Domain: p.hca}
		h := slices.IndexFunc(m.HCAs, func(h HCA) bool { return h.PCI.Address == at })
		if h < 0 {
			missing = append(missing, at.String())
			continue
		}
		pairs = append(pairs, Pairing{GPU: g.Index, HCA: m.HCAs[h].Name, Node: p.node})
	}
	return pairs, missing
}
