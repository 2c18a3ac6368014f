package topology

import (
	"cmp"
	"fmt"
	"slices"
)

// A GPU is an accelerator of the machine, whether this container may use it or not.
type GPU struct {
	Index   int    // among the machine's, by PCI address: what nvidia-smi counts where all are visible
	Vendor  string // nvidia, amd, ascend, …
	Device  string // its device node: /dev/nvidia0, /dev/dri/renderD128; "" if it has none, or which is not known
	UUID    string // "" until the driver has set the GPU up once
	Model   string // as its driver says it, else the PCI device's number
	PCI     PCI    // zero where the kernel shows no PCI device for the node
	Visible bool   // this container may use it
	Why     string // it may not
	Memory  int    // the NUMA node that its own memory is, on Grace; -1: none
	MIG     []MIG  // its instances, if it is cut up
	Links   []Peer // to GPUs of this machine, without PCIe: NVLink, xGMI
	Told    Told   // by nvidia-smi

	integrated bool // into a processor, for a display
}

// A Peer is another GPU that is reached by the GPUs' own links.
type Peer struct {
	Index int    // of the other GPU
	Kind  string // nvlink, xgmi
	Links int    // how many; 0: not told
	MBps  int    // bandwidth in megabytes a second; 0: the kernel does not say
}

// Cell is the link in the manner of nvidia-smi topo: NV18, XGMI.
func (p Peer) Cell() string {
	switch {
	case p.Kind == "xgmi":
		return "XGMI"
	case p.Links > 0:
		return fmt.Sprintf("NV%d", p.Links)
	}
	return "NV"
}

// Linked is the GPUs' own link from g to another.
func (g GPU) Linked(to GPU) (Peer, bool) {
	i := slices.IndexFunc(g.Links, func(p Peer) bool { return p.Index == to.Index })
	if i < 0 {
		return Peer{}, false
	}
	return g.Links[i], true
}

// gpus reads the accelerators of all vendors, and gives them their numbers.
func (t tree) gpus(devices []PCI) []GPU {
	gpus := slices.Concat(t.nvidia(devices), t.amd(devices), t.others(devices))
	slices.SortStableFunc(gpus, func(a, b GPU) int {
		if a.PCI.Address == (Address{}) || b.PCI.Address == (Address{}) { // those of the nodes alone last, by number
			return cmp.Compare(lacking(a), lacking(b))
		}
		return a.PCI.Address.Compare(b.PCI.Address)
	})
	for i := range gpus {
		gpus[i].Index = i
	}
	t.xgmi(gpus)
	nvlinked(gpus)
	ofOneVendor(gpus)
	return gpus
}

// ofOneVendor sets aside what a job does not train on though it could be opened: an integrated GPU beside any other, and the GPUs of all
// vendors but one, for no runtime drives those of two.
func ofOneVendor(gpus []GPU) {
	cards := slices.ContainsFunc(gpus, func(g GPU) bool { return !g.integrated })
	for i := range gpus {
		if g := &gpus[i]; g.Visible && g.integrated && cards {
			g.Visible, g.Why = false, "it is integrated into the processor, and the machine has others"
		}
	}
	vendor := chosen(gpus)
	for i := range gpus {
		if g := &gpus[i]; g.Visible && g.Vendor != vendor {
			g.Visible, g.Why = false, fmt.Sprintf("workers use GPUs of one vendor, here %s", vendor)
		}
	}
}

// chosen is the vendor with the most accelerators that this container may use; those that drive displays, and nodes of which the kernel
// shows no device, count where there is nothing better. Of two that are alike the first one's counts.
func chosen(gpus []GPU) (vendor string) {
	var most [3]int
	of := map[string][3]int{}
	for _, g := range gpus {
		n := of[g.Vendor]
		switch {
		case !g.Visible:
		case g.PCI.compute():
			n[0]++
		case g.PCI.Vendor != 0:
			n[1]++
		default:
			n[2]++
		}
		of[g.Vendor] = n
	}
	for _, g := range gpus {
		if n := of[g.Vendor]; slices.Compare(n[:], most[:]) > 0 {
			vendor, most = g.Vendor, n
		}
	}
	return vendor
}

func lacking(g GPU) int {
	if g.PCI.Address == (Address{}) {
		return 1
	}
	return 0
}

// node fills in whether the device node can be used.
func (t tree) giveNode(g *GPU, name string) {
	g.Device = "/" + name
	g.Why = t.device(name)
	g.Visible = g.Why == ""
}

// base is a PCI device's class in two digits: 0x03 display, 0x12 accelerator.
func (p PCI) base() uint32 { return p.Class >> 16 }

// sub is a PCI device's class in four digits: 0x0302 3D controller.
func (p PCI) sub() uint32 { return p.Class >> 8 }

// compute reports whether a PCI device's class is an accelerator's, or a GPU's that drives no display.
func (p PCI) compute() bool { return p.base() == 0x12 || p.sub() == 0x0302 || p.sub() == 0x0380 }

// number is a PCI device's vendor and type in the manner of lspci: 10de:2330.
func (p PCI) number() string { return fmt.Sprintf("%04x:%04x", p.Vendor, p.Device) }
