// Package crowd decides who has to go where there is no room for all connections, so that one address cannot keep the others out.
//
// The address with the most connections gives one up: the oldest that has said nothing yet, as who means something speaks at once, and
// where all have spoken its newest one. So whoever floods a port throws himself out, and who was there before him stays.
package crowd

import (
	"container/list"
	"net/netip"
)

// A Crowd is who is there. It does no locking. The zero value is empty.
type Crowd[C comparable] struct {
	from map[netip.Prefix]*group
	all  map[C]place
}

// A group is those who come from one address, or, with IPv6, from the /64 that one machine has as a rule.
type group struct{ silent, heard list.List }

// A place is where one is found.
type place struct {
	from  netip.Prefix
	line  *list.List
	entry *list.Element
}

// Enter lets c in. When there are more than most, it returns who has to go, which may be c, and is not there any more.
func (w *Crowd[C]) Enter(c C, from netip.Addr, most int) (out C, full bool) {
	if w.all == nil {
		w.from, w.all = map[netip.Prefix]*group{}, map[C]place{}
	}
	p := place{from: Network(from)}
	g := w.from[p.from]
	if g == nil {
		g = &group{}
		w.from[p.from] = g
	}
	p.line = &g.silent
	p.entry = p.line.PushBack(c)
	w.all[c] = p
	if len(w.all) <= most {
		return out, false
	}
	out = w.largest(g).last().(C)
	w.Leave(out)
	return out, true
}

// Network is what counts as one address.
func Network(a netip.Addr) netip.Prefix {
	bits := 32
	if a = a.Unmap(); a.Is6() {
		bits = 64
	}
	p, _ := a.WithZone("").Prefix(bits) // an address that is none is one of its own
	return p
}

// largest is the group with the most; of equals g.
func (w *Crowd[C]) largest(g *group) *group {
	for _, other := range w.from {
		if other.len() > g.len() {
			g = other
		}
	}
	return g
}

func (g *group) len() int { return g.silent.Len() + g.heard.Len() }

// last is who of them goes first.
func (g *group) last() any {
	if e := g.silent.Front(); e != nil {
		return e.Value
	}
	return g.heard.Back().Value
}

// Heard notes that c has said something.
func (w *Crowd[C]) Heard(c C) {
	p, ok := w.all[c]
	if g := w.from[p.from]; ok && p.line == &g.silent {
		p.line.Remove(p.entry)
		p.line = &g.heard
		p.entry = p.line.PushBack(c)
		w.all[c] = p
	}
}

// Leave notes that c has gone. It is false when c was not there.
func (w *Crowd[C]) Leave(c C) bool {
	p, ok := w.all[c]
	if !ok {
		return false
	}
	p.line.Remove(p.entry)
	delete(w.all, c)
	if w.from[p.from].len() == 0 {
		delete(w.from, p.from)
	}
	return true
}

// Len is how many are there.
func (w *Crowd[C]) Len() int { return len(w.all) }

// All passes each who is there.
func (w *Crowd[C]) All(yield func(C) bool) {
	for c := range w.all {
		if !yield(c) {
			return
		}
	}
}
