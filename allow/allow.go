// Package allow says from which addresses a port takes connections.
package allow

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// World is the word for the nodes of a job's world, whose addresses only the job itself knows.
const World = "world"

// A Rule is whom a person wants to be let in. The zero value has no wish.
type Rule struct {
	World bool // the nodes of the world
	List       // and these
}

// Parse reads a rule: the word "world", addresses and networks, with commas between them.
func Parse(text string) (r Rule, err error) {
	var all []netip.Prefix
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word == World {
			r.World = true
			continue
		}
		p, ok := network(word)
		if !ok {
			return Rule{}, fmt.Errorf("%q is neither %s nor an address, nor a network such as 10.0.0.0/16 or fd00::/48", word, World)
		}
		all = append(all, p)
	}
	r.List = r.With(all...)
	return r, nil
}

// network reads an address, which is a network of one, or a network. A network of mapped addresses must be one of IPv4's.
func network(word string) (p netip.Prefix, ok bool) {
	if a, err := netip.ParseAddr(word); err == nil && !strings.Contains(word, "/") { // which may be a part of a zone
		return One(a), true
	}
	p, err := netip.ParsePrefix(word)
	if a := p.Addr(); err == nil && a.Is4In6() {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p.Masked(), err == nil && p.IsValid()
}

// String is the rule as Parse reads it; "": it has no wish.
func (r Rule) String() string {
	text := r.List.String()
	if r.World {
		text = strings.TrimSuffix(World+","+text, ",")
	}
	return text
}

// None reports whether the rule has no wish.
func (r Rule) None() bool { return !r.World && r.Empty() }

// A List is addresses and networks. The zero value is empty. A list does not change.
type List struct {
	hosts map[netip.Addr]bool // networks of one: the nodes of a world may be many
	nets  []netip.Prefix
}

// One is the network of an address alone, as it is compared: ::ffff:10.0.0.1 is 10.0.0.1, and a zone does not count.
func One(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	return netip.PrefixFrom(a, a.BitLen())
}

// With is the list with more networks. Those that are none are left out.
func (l List) With(more ...netip.Prefix) List {
	out := List{hosts: maps.Clone(l.hosts), nets: slices.Clone(l.nets)}
	if out.hosts == nil {
		out.hosts = map[netip.Addr]bool{}
	}
	for _, p := range more {
		switch {
		case !p.IsValid():
		case p.IsSingleIP():
			out.hosts[p.Addr()] = true
		case !slices.Contains(out.nets, p):
			out.nets = append(out.nets, p)
		}
	}
	return out
}

// Has reports whether an address is on the list.
func (l List) Has(a netip.Addr) bool {
	a = One(a).Addr()
	return l.hosts[a] || slices.ContainsFunc(l.nets, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Empty reports whether nothing is on the list.
func (l List) Empty() bool { return len(l.hosts)+len(l.nets) == 0 }

// String is the list as Parse reads it, its addresses in order and then the networks; "": it is empty.
func (l List) String() string {
	var words []string
	for _, a := range slices.SortedFunc(maps.Keys(l.hosts), netip.Addr.Compare) {
		words = append(words, a.String())
	}
	for _, p := range l.nets {
		words = append(words, p.String())
	}
	return strings.Join(words, ",")
}
