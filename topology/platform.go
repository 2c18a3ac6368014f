package topology

import (
	"slices"
	"strings"
)

// azureTag is the asset tag of every machine of Azure's, which Hyper-V elsewhere does not have.
const azureTag = "7783-7084-3265-9085-8269-3286-77"

// A platform is whose machine this is, and which of theirs.
type platform struct {
	here func(Machine) bool
	name func(Machine) string
}

// platforms are asked in order. The words of the firmware come first: nothing else tells a cloud's machine from its neighbour's.
var platforms = []platform{
	{func(m Machine) bool { return m.DMI.ChassisTag == azureTag }, func(m Machine) string {
		return "azure" + m.series(map[uint16]string{0x2330: "-ndv5", 0x2335: "-ndv5", 0x20b0: "-ndv4", 0x20b2: "-ndv4"})
	}},
	{func(m Machine) bool { return m.DMI.Vendor == "Amazon EC2" }, func(m Machine) string {
		family, _, ok := strings.Cut(m.DMI.Product, ".") // p5.48xlarge
		if !ok {
			return "aws"
		}
		return "aws-" + family
	}},
	{func(m Machine) bool { return m.DMI.Product == "Google Compute Engine" }, named("gcp")},
	{func(m Machine) bool { return m.DMI.ChassisTag == "OracleCloud.com" }, func(m Machine) string {
		return "oci" + m.series(map[uint16]string{0x2330: "-h100", 0x2335: "-h200", 0x20b0: "-a100", 0x20b2: "-a100", 0x2901: "-b200", 0x2941: "-gb200"})
	}},
	{func(m Machine) bool { return strings.HasPrefix(m.DMI.Product, "Alibaba Cloud") }, named("alibaba")},
	{func(m Machine) bool { return m.DMI.ChassisTag == "HUAWEICLOUD" }, named("huawei")},
	{func(m Machine) bool { return m.DMI.Vendor == "DigitalOcean" }, named("digitalocean")},
	{func(m Machine) bool { return m.DMI.Vendor == "Vultr" }, named("vultr")},
	{func(m Machine) bool { return m.DMI.Vendor == "Hetzner" }, named("hetzner")},
	{func(m Machine) bool { return m.DMI.Vendor == "Akamai" || m.DMI.Vendor == "Linode" }, named("akamai")},
	{func(m Machine) bool { return m.DMI.Vendor == "NVIDIA" && strings.HasPrefix(m.DMI.Product, "DGX") }, named("dgx")},
	{func(m Machine) bool { return strings.HasPrefix(m.DMI.Product, "GB300") || m.has(0x31c2) }, named("gb300")},
	{func(m Machine) bool { return strings.HasPrefix(m.DMI.Product, "GB200") || m.has(0x2941) }, named("gb200")},
	{func(m Machine) bool { return m.Transport() == "roce" }, named("generic-roce")},
}

func named(name string) func(Machine) string { return func(Machine) string { return name } }

// Platform is whose machine this is: dgx, gb200, aws-p5, azure-ndv5, oci-h100, gcp, …; generic-roce or generic where nothing says so.
func (m Machine) Platform() string {
	for _, p := range platforms {
		if p.here(m) {
			return p.name(m)
		}
	}
	return "generic"
}

// has reports whether the machine has a GPU of a type of NVIDIA's.
func (m Machine) has(device uint16) bool {
	return slices.ContainsFunc(m.GPUs, func(g GPU) bool { return g.PCI.Vendor == vendorNVIDIA && g.PCI.Device == device })
}

// series tells a cloud's machines with RDMA apart by their eight GPUs.
func (m Machine) series(names map[uint16]string) string {
	for _, g := range m.GPUs {
		if name := names[g.PCI.Device]; g.PCI.Vendor == vendorNVIDIA && name != "" && len(m.HCAs) >= len(m.GPUs) {
			return name
		}
	}
	return ""
}
