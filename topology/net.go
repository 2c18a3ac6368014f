package topology

import (
	"encoding/hex"
	"slices"
	"strings"
)

const netDir = "sys/class/net"

// A Net is a network device of this network namespace: /sys/class/net/<Name>.
type Net struct {
	Name     string
	Address  Address // of its PCI device; zero for a virtual one
	Type     int     // type: 1 Ethernet, 32 InfiniBand, 772 loopback (include/uapi/linux/if_arp.h)
	State    string  // operstate: up, down, unknown, …
	Speed    int     // Mb/s; 0: the driver does not say
	MTU      int
	Hardware string   // address
	Port     int      // dev_port, else dev_id: which port of its adapter, from 0
	Master   string   // the bond or bridge that it is part of
	Slaves   []string // of a bond
	Mode     string   // of a bond: 802.3ad
	Loopback bool
}

const (
	typeInfiniBand = 32
	typeLoopback   = 772
)

// nets reads the network devices, by name.
func (t tree) nets() (all []Net) {
	for _, name := range t.names(netDir) {
		dir := netDir + "/" + name
		kind, ok := t.number(dir + "/type")
		if !ok { // bonding_masters
			continue
		}
		n := Net{Name: name, Address: addressIn(t.link(dir)), Type: kind, State: t.line(dir + "/operstate"), Hardware: t.line(dir + "/address"), Loopback: kind == typeLoopback}
		if v, ok := t.number(dir + "/speed"); ok && v > 0 && v < 1<<30 { // -1 and 4294967295 stand for unknown
			n.Speed = v
		}
		n.MTU, _ = t.number(dir + "/mtu")
		if n.Port, _ = t.number(dir + "/dev_port"); n.Port == 0 {
			n.Port, _ = t.number(dir + "/dev_id")
		}
		if home := t.link(dir); home != "" {
			n.Master = lastOf(t.link(home + "/master"))
		}
		n.Slaves = strings.Fields(t.line(dir + "/bonding/slaves"))
		n.Mode, _, _ = strings.Cut(t.line(dir+"/bonding/mode"), " ")
		all = append(all, n)
	}
	return all
}

// lastOf is the last part of a path, "" of none.
func lastOf(path string) string { return path[strings.LastIndex(path, "/")+1:] }

// netOf is the network device of an adapter's port: by the device that its GIDs name, which also holds in a pod's network namespace and
// for a bond; else one of the same PCI function and port; for IPoIB the one whose hardware address ends in the port's GUID.
func netOf(h HCA, p Port, nets []Net) string {
	for _, g := range p.GIDs {
		if g.Net != "" {
			return g.Net
		}
	}
	for _, n := range nets {
		if h.PCI.Address != (Address{}) && n.Address == h.PCI.Address && n.Port == p.Number-1 {
			return n.Name
		}
	}
	for _, n := range nets {
		if n.Type == typeInfiniBand && len(p.GIDs) > 0 && endsIn(n.Hardware, p.GIDs[0]) {
			return n.Name
		}
	}
	return ""
}

// endsIn reports whether the last eight bytes of an IPoIB hardware address are a GID's.
func endsIn(hardware string, g GID) bool {
	b := g.Addr.As16()
	return strings.HasSuffix(strings.ReplaceAll(hardware, ":", ""), hex.EncodeToString(b[8:]))
}

// bonded reports whether a network device is a bond.
func bonded(name string, nets []Net) bool {
	i := slices.IndexFunc(nets, func(n Net) bool { return n.Name == name })
	return i >= 0 && len(nets[i].Slaves) > 0
}
