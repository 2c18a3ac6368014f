package topology

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A GID is an address of an RDMA port: ports/<n>/gids/<Index>.
type GID struct {
	Index int
	Addr  netip.Addr
	Type  string // "IB/RoCE v1", "RoCE v2"; "" if the kernel does not say
	Net   string // its network device
}

// gids reads a port's table. Entries that are empty, or of another network namespace, are zero or answer EINVAL: they are none.
func (t tree) gids(port string) (gids []GID) {
	for _, i := range t.numbered(port+"/gids", "") {
		n := strconv.Itoa(i)
		addr, err := netip.ParseAddr(t.line(port + "/gids/" + n))
		if err != nil || addr.IsUnspecified() || addr.Zone() != "" || !addr.Is6() {
			continue
		}
		gids = append(gids, GID{Index: i, Addr: addr, Type: t.line(port + "/gid_attrs/types/" + n), Net: t.line(port + "/gid_attrs/ndevs/" + n)})
	}
	return gids
}

// Text is the GID as sysfs writes it: eight groups of four digits.
func (g GID) Text() string {
	if !g.Addr.IsValid() {
		return ""
	}
	return g.Addr.StringExpanded()
}

// RoCE is the port's GID by which RoCE v2 reaches others: an IPv4 address that is up here, else a global IPv6 one, else a
// link-local one; the lowest of these.
func (p Port) RoCE(nets []Net) (GID, bool) {
	for _, fit := range []func(GID) bool{
		func(g GID) bool { return routed(g.Addr) && up(nets, g.Net) },
		func(g GID) bool { return routed(g.Addr) },
		func(g GID) bool { return !g.Addr.Is4In6() && g.Addr.IsGlobalUnicast() },
		func(g GID) bool { return true },
	} {
		i := slices.IndexFunc(p.GIDs, func(g GID) bool { return strings.EqualFold(g.Type, "RoCE v2") && fit(g) })
		if i >= 0 {
			return p.GIDs[i], true
		}
	}
	return GID{}, false
}

// routed reports whether a GID stands for an IPv4 address that is not link-local.
func routed(a netip.Addr) bool { return a.Is4In6() && !a.Unmap().IsLinkLocalUnicast() }

func up(nets []Net, name string) bool {
	i := slices.IndexFunc(nets, func(n Net) bool { return n.Name == name })
	return i >= 0 && nets[i].State != "down"
}
