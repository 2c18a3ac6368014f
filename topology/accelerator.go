package topology

import (
	"fmt"
	"slices"
	"strconv"
)

// A maker is a vendor of accelerators that this package knows by PCI numbers alone.
type maker struct {
	vendor uint16
	name   string
	bases  []uint32 // PCI base classes of its accelerators
	node   string   // device nodes, numbered in the order of the addresses; "": which nodes its driver makes is not known
}

// makers are those for training; FPGAs and the like are of the same class, and no places for workers.
var makers = []maker{
	{0x19e5, "ascend", []uint32{0x12}, "dev/davinci"},
	{0x1da3, "gaudi", []uint32{0x12}, "dev/accel/accel"},
	{0xcabc, "cambricon", []uint32{0x12, 0x03}, "dev/cambricon_dev"},
	{0x1d94, "hygon", []uint32{0x12, 0x03}, ""},
	{0x9999, "metax", []uint32{0x12, 0x03}, ""},
	{0x1ed5, "moorethreads", []uint32{0x12, 0x03}, ""},
	{0x1e3e, "iluvatar", []uint32{0x12, 0x03}, "dev/iluvatar"},
	{0x1e36, "enflame", []uint32{0x12, 0x03}, ""},
}

// others reads accelerators that are neither NVIDIA's nor AMD's: that they are there, where, and whether they can be used.
func (t tree) others(devices []PCI) (gpus []GPU) {
	count := map[string]int{}
	for _, p := range devices {
		i := slices.IndexFunc(makers, func(m maker) bool { return m.vendor == p.Vendor && slices.Contains(m.bases, p.base()) })
		if i < 0 {
			continue
		}
		g := GPU{Vendor: makers[i].name, PCI: t.complete(p), Memory: -1}
		g.Model = g.PCI.number()
		switch node := t.driverNode(p); {
		case node != "":
			t.giveNode(&g, node)
		case makers[i].node != "":
			t.giveNode(&g, makers[i].node+strconv.Itoa(count[g.Vendor]))
		default:
			g.Why = fmt.Sprintf("which device node is %s's is not known to muster", g.Vendor)
		}
		count[g.Vendor]++
		gpus = append(gpus, g)
	}
	return gpus
}

// driverNode is the node that the kernel names itself, below the PCI device: accel/accel0 (Documentation/accel/introduction.rst).
func (t tree) driverNode(p PCI) string {
	for _, n := range t.numbered(pciDevices+"/"+p.Address.String()+"/accel", "accel") {
		return "dev/accel/accel" + strconv.Itoa(n)
	}
	return ""
}
