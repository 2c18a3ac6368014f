package fleet

import (
	"net"
	"sync"
	"time"
)

const (
	gripePause = 30 * time.Second // between two lines about one address
	maxGripes  = 64               // addresses that have lines of their own
)

// gripes are complaints about strangers: a line for the first of an address, and then how many there were.
type gripes struct {
	mu   sync.Mutex
	from map[string]*gripe
}

// A gripe counts what was not said about one address.
type gripe struct {
	unsaid int
	last   error
}

// first notes a complaint, and reports whether it is the first one for a while.
func (g *gripes) first(address string, why error) (string, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.from == nil {
		g.from = map[string]*gripe{}
	}
	if g.from[address] == nil && len(g.from) >= maxGripes {
		address = "many addresses"
	}
	known := g.from[address]
	if known == nil {
		g.from[address] = &gripe{}
		return address, true
	}
	known.unsaid, known.last = known.unsaid+1, why
	return address, false
}

// take returns what was not said, and forgets addresses of which there is nothing.
func (g *gripes) take() map[string]gripe {
	g.mu.Lock()
	defer g.mu.Unlock()
	due := map[string]gripe{}
	for address, known := range g.from {
		if known.unsaid == 0 {
			delete(g.from, address)
			continue
		}
		due[address] = *known
		*known = gripe{}
	}
	return due
}

// complain tells of a connection that was refused.
func (f *Fleet) complain(c net.Conn, why error) {
	if from, first := f.gripes.first(host(c), why); first {
		f.Log.Warn("fleet: connection refused", "from", from, "why", why)
	}
}

// sumUp tells of those that complain did not.
func (f *Fleet) sumUp() {
	for from, g := range f.gripes.take() {
		f.Log.Warn("fleet: more connections refused", "from", from, "count", g.unsaid, "why", g.last)
	}
}
