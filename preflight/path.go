package preflight

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-run/muster/topology"
)

// gpuDirect is whether adapters can read and write the memory of GPUs.
func gpuDirect(h Host, n Need) []Finding {
	if len(nvidia(h)) == 0 || len(h.Machine.Compute()) == 0 {
		return nil
	}
	if h.Machine.Transport() == "efa" { // its own module does it
		return nil
	}
	peer := h.Root.Exists("sys/module/nvidia_peermem")
	for _, name := range []string{"nv_mem", "nvidia-peermem", "nv_mem_nc"} {
		peer = peer || h.Root.Exists("sys/kernel/mm/memory_peers/"+name+"/version")
	}
	newer, known := h.atLeast(5, 12)
	major, _, _ := strings.Cut(h.Machine.NVIDIA.Driver, ".")
	version, err := strconv.Atoi(major)
	switch {
	case peer:
		return pass("nvidia_peermem is loaded")
	case err != nil || !known:
		return unknown("nvidia_peermem is not seen, and the versions of driver and kernel are not shown")
	case h.Machine.NVIDIA.Open && newer && version >= 515:
		return pass("DMA-BUF: the open kernel module %s on Linux %s; NCCL 2.22 and older look for nvidia_peermem alone", h.Machine.NVIDIA.Driver, h.Kernel)
	}
	return found(Warn, "data between machines goes through the memory of the host: a tenth of the bandwidth has been seen",
		"on the host: modprobe nvidia-peermem, or the open kernel module; a container cannot", "neither nvidia_peermem nor DMA-BUF (driver %s, Linux %s)", h.Machine.NVIDIA.Driver, h.Kernel)
}

// acs tells by the IOMMU's groups whether PCIe switches send what goes from device to device up to the host bridge: the configuration
// of the switches is not shown without privilege. Devices behind one switch then are in groups of their own.
func acs(h Host, _ Need) []Finding {
	m := h.Machine
	if m.Processor.Virtual { // there it has to be on
		return nil
	}
	var apart []string
	looked := 0
	for _, g := range m.GPUs {
		for _, r := range m.Compute() {
			if d := topology.Relate(g.PCI, r.HCA.PCI); d > topology.PXB {
				continue
			}
			a, b := h.group(g.PCI), h.group(r.HCA.PCI)
			if a == "" || b == "" {
				continue
			}
			if looked++; a != b {
				apart = append(apart, fmt.Sprintf("%s and %s", gpuName(g.Index), r.Name()))
			}
		}
	}
	switch {
	case looked == 0:
		return nil
	case apart != nil:
		return found(Warn, "what goes from one to the other takes the way over the processor: GPUDirect is slow or hangs",
			"switch ACS off in the BIOS, or on the host: setpci -s BRIDGE ECAP_ACS+6.w=0000 for each PCIe switch", "%s are below one PCIe switch and in two IOMMU groups: ACS is on", strings.Join(apart, ", "))
	}
	return pass("devices below one PCIe switch are in one IOMMU group")
}

// group is the IOMMU group of a device; "": it has none, or it is not shown.
func (h Host) group(p topology.PCI) string {
	link := h.Root.Link("sys/bus/pci/devices/" + p.Address.String() + "/iommu_group")
	return link[strings.LastIndex(link, "/")+1:]
}

// iommu is whether addresses of devices are translated on a machine that is none of a cloud's.
func iommu(h Host, _ Need) []Finding {
	if h.Machine.Processor.Virtual || len(h.Machine.Slots()) == 0 {
		return nil
	}
	if len(h.Root.Names("sys/class/iommu")) == 0 {
		return nil
	}
	for _, g := range h.Machine.GPUs {
		group := h.group(g.PCI)
		if kind := h.Root.Line("sys/kernel/iommu_groups/" + group + "/type"); group != "" && strings.HasPrefix(kind, "DMA") {
			return found(Warn, "what goes from device to device hangs or is slow", "boot the host with iommu=pt", "the IOMMU translates addresses of %s (%s)", gpuName(g.Index), kind)
		}
	}
	return pass("the IOMMU leaves the GPUs' addresses as they are")
}
