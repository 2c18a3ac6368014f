package topology

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// An Address is where a PCI function is: domain, bus, device and function. The zero Address is that of no accelerator or adapter:
// a host bridge is there.
type Address struct {
	Domain           uint32
	Bus, Device, Fun uint8
}

// ParseAddress reads "0000:1b:00.0", with a domain of any length: Hyper-V has c941:, VMD 10000:, and nvidia-smi writes 00000000:1B:00.0.
func ParseAddress(text string) (Address, error) {
	wrong := fmt.Errorf("%.40q is no PCI address such as 0000:1b:00.0", text)
	domain, rest, ok := strings.Cut(text, ":")
	bus, slot, ok2 := strings.Cut(rest, ":")
	device, fun, ok3 := strings.Cut(slot, ".")
	if !ok || !ok2 || !ok3 || len(domain) < 4 || len(bus) != 2 || len(device) != 2 || len(fun) != 1 {
		return Address{}, wrong
	}
	var a Address
	for _, f := range []struct {
		digits string
		most   uint64
		into   func(uint64)
	}{
		{domain, 1<<32 - 1, func(n uint64) { a.Domain = uint32(n) }},
		{bus, 0xff, func(n uint64) { a.Bus = uint8(n) }},
		{device, 0x1f, func(n uint64) { a.Device = uint8(n) }},
		{fun, 7, func(n uint64) { a.Fun = uint8(n) }},
	} {
		n, err := strconv.ParseUint(f.digits, 16, 64)
		if err != nil || n > f.most {
			return Address{}, wrong
		}
		f.into(n)
	}
	return a, nil
}

// String is the address as sysfs writes it; "" for none.
func (a Address) String() string {
	if a == (Address{}) {
		return ""
	}
	return PCI{Address: a}.name()
}

// Compare orders addresses as NVML, CUDA_DEVICE_ORDER=PCI_BUS_ID and lspci do.
func (a Address) Compare(b Address) int {
	return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Bus, b.Bus), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Fun, b.Fun))
}

// A PCI is one function on the PCI buses: /sys/bus/pci/devices/<Address>.
type PCI struct {
	Address            Address
	Class              uint32 // class: base, sub and interface, as 0x030200
	Vendor, Device     uint16 // vendor, device
	SubVendor, SubType uint16 // subsystem_vendor, subsystem_device
	NUMA               int    // numa_node; -1: the kernel does not say
	CPUs               CPUs   // local_cpulist
	Driver             string // driver ->
	Virtual            bool   // physfn: a virtual function of another
	Link               Link
	Path               []string // from the host bridge down: pci0000:15 0000:15:01.0 … 0000:1b:00.0
}

// A Link is how a PCI function is attached. What the kernel does not know is 0.
type Link struct {
	Speed, MaxSpeed float64 // current_link_speed, max_link_speed in GT/s
	Width, MaxWidth int     // current_link_width, max_link_width in lanes
}

// Degraded reports whether the link has fewer lanes than the device could use. Its speed does not tell: an idle GPU slows it down.
func (l Link) Degraded() bool { return l.Width > 0 && l.Width < l.MaxWidth }

// String is "32 GT/s x16"; "": nothing is known.
func (l Link) String() string {
	switch {
	case l.Speed > 0 && l.Width > 0:
		return fmt.Sprintf("%g GT/s x%d", l.Speed, l.Width)
	case l.Width > 0:
		return fmt.Sprintf("x%d", l.Width)
	}
	return ""
}

const pciDevices = "sys/bus/pci/devices"

// pci reads every function, by address, with what tells what it is and where. complete reads the rest of those that matter.
func (t tree) pci() []PCI {
	var all []PCI
	for _, name := range t.names(pciDevices) {
		a, err := ParseAddress(name)
		if err != nil {
			t.note("%s: %v", pciDevices, err)
			continue
		}
		if p, ok := t.function(a, name); ok {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b PCI) int { return a.Address.Compare(b.Address) })
	return all
}

func (t tree) function(a Address, name string) (PCI, bool) {
	dir := pciDevices + "/" + name
	text := t.line(dir + "/class")
	class, ok := parseNumber(text)
	if !ok || class < 0 || class > 0xffffff {
		if text != "" {
			t.note("%s/class: %s is no PCI class", dir, quote(text))
		}
		return PCI{}, false
	}
	p := PCI{Address: a, Class: uint32(class), Vendor: t.id(dir + "/vendor"), Device: t.id(dir + "/device"), NUMA: -1}
	p.Path = below(t.link(dir))
	if len(p.Path) == 0 {
		p.Path = []string{name}
	}
	return p, true
}

func (t tree) id(name string) uint16 {
	n, ok := t.number(name)
	if !ok || n < 0 || n > 0xffff {
		return 0
	}
	return uint16(n)
}

// complete reads what else is known of a function.
func (t tree) complete(p PCI) PCI {
	dir := pciDevices + "/" + p.name()
	p.SubVendor, p.SubType = t.id(dir+"/subsystem_vendor"), t.id(dir+"/subsystem_device")
	p.NUMA, p.CPUs = t.node(dir+"/numa_node"), t.cpus(dir+"/local_cpulist")
	p.Driver = path.Base(t.link(dir + "/driver"))
	if p.Driver == "." {
		p.Driver = ""
	}
	p.Virtual = t.link(dir+"/physfn") != ""
	p.Link = t.pcieLink(dir)
	return p
}

func (t tree) pcieLink(dir string) Link {
	return Link{
		Speed: speed(t.line(dir + "/current_link_speed")), MaxSpeed: speed(t.line(dir + "/max_link_speed")),
		Width: t.lanes(dir + "/current_link_width"), MaxWidth: t.lanes(dir + "/max_link_width"),
	}
}

// name is the function's own: it has one at 0000:00:00.0, too.
func (p PCI) name() string {
	a := p.Address
	return fmt.Sprintf("%04x:%02x:%02x.%x", a.Domain, a.Bus, a.Device, a.Fun)
}

// speed reads "32.0 GT/s PCIe" or, of older kernels, "8 GT/s"; 0 for "Unknown".
func speed(text string) float64 {
	word, _, _ := strings.Cut(text, " ")
	v, err := strconv.ParseFloat(word, 64)
	if err != nil || !(v > 0 && v < 1000) {
		return 0
	}
	return v
}

// lanes is a link's width: 0 on virtual functions; 63 and 255 stand for unknown.
func (t tree) lanes(name string) int {
	n, ok := t.number(name)
	if !ok || n < 0 || n > 32 {
		return 0
	}
	return n
}

// below is a device's path from its host bridge (pci0000:15) down to the last PCI function in it. What is above differs: nothing on a PC,
// platform/… on Arm, LNXSYSTM:00/…/VMBUS:00/… on Hyper-V. What follows the function is its own: net/eth0, virtio2.
func below(dir string) []string {
	parts := strings.Split(dir, "/")
	first := slices.IndexFunc(parts, hostBridge)
	if first < 0 {
		return nil
	}
	last := first
	for i := first; i < len(parts); i++ {
		if _, err := ParseAddress(parts[i]); err == nil {
			last = i
		}
	}
	return parts[first : last+1]
}

// hostBridge reports whether a part of a path is pci and a bus: pci0000:15.
func hostBridge(part string) bool {
	rest, ok := strings.CutPrefix(part, "pci")
	domain, bus, ok2 := strings.Cut(rest, ":")
	return ok && ok2 && len(domain) >= 4 && len(bus) == 2
}

// addressIn is the PCI function that a device of any class belongs to, by its path.
func addressIn(dir string) Address {
	parts := below(dir)
	if len(parts) == 0 {
		return Address{}
	}
	a, _ := ParseAddress(parts[len(parts)-1]) // the host bridge's is none
	return a
}
