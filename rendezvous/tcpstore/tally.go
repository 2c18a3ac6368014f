package tcpstore

import (
	"maps"
	"math/bits"
	"time"

	"github.com/muster-run/muster/rendezvous/store"
)

// Bounds are the upper bounds of the buckets in which a Tally's times are counted.
var Bounds = [...]time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second}

// A Tally is how often one command was executed, and how long its clients were in the server's hands: from the moment that its bytes were there until
// the replies of its batch were written. That a WAIT is not answered yet is not counted.
type Tally struct {
	Count   uint64              `json:"count"`
	Seconds float64             `json:"seconds"` // in sum
	Within  [len(Bounds)]uint64 `json:"within"`  // how many took so long, and longer than the bound before
}

// Add is both together.
func (t Tally) Add(o Tally) Tally {
	t.Count, t.Seconds = t.Count+o.Count, t.Seconds+o.Seconds
	for i, n := range o.Within {
		t.Within[i] += n
	}
	return t
}

// tallies are what one loop counts. It alone touches its own; what others may read is a copy of each pass, so that a request costs no more than a few
// plain additions.
type tallies struct {
	of    [numVerbs]tally
	now   [numVerbs]uint32 // executed since the clock was read last
	dirty uint32           // verbs of which there are some, by bit
	born  time.Time        // of the loop
	since time.Duration    // from then until what is executed now was ready
	fresh uint32           // verbs whose tallies the copy lacks
}

// A tally is a Tally as a loop counts it.
type tally struct {
	count  uint64
	spent  time.Duration
	within [len(Bounds)]uint64
}

// ran notes that a request was executed.
func (t *tallies) ran(v verb) {
	t.now[v]++
	t.dirty |= 1 << v
}

// begin notes that what is executed from now on is ready.
func (t *tallies) begin() { t.since = time.Since(t.born) }

// answered notes that the replies to all that was executed have gone.
func (t *tallies) answered() {
	if t.dirty == 0 {
		return
	}
	took := time.Since(t.born) - t.since
	bucket := 0
	for bucket < len(Bounds) && took > Bounds[bucket] {
		bucket++
	}
	for left := t.dirty; left != 0; left &= left - 1 {
		v := bits.TrailingZeros32(left)
		n := uint64(t.now[v])
		of := &t.of[v]
		of.count, of.spent, t.now[v] = of.count+n, of.spent+took*time.Duration(n), 0
		if bucket < len(Bounds) {
			of.within[bucket] += n
		}
	}
	t.fresh, t.dirty = t.fresh|t.dirty, 0
}

// show brings a copy up to date.
func (t *tallies) show(copied *[numVerbs]tally) {
	for ; t.fresh != 0; t.fresh &= t.fresh - 1 {
		v := bits.TrailingZeros32(t.fresh)
		copied[v] = t.of[v]
	}
}

// Tallies are those of all commands that were executed at least once, by name.
func (s *Server) Tallies() map[string]Tally {
	s.mu.Lock()
	loops := s.loops
	all := maps.Clone(s.past)
	s.mu.Unlock()
	if all == nil {
		all = map[string]Tally{}
	}
	for _, l := range loops {
		l.tell(all)
	}
	return all
}

// tell adds what a loop has counted.
func (l *loop) tell(all map[string]Tally) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for v, of := range l.told {
		if of.count > 0 {
			name := verb(v).String()
			all[name] = all[name].Add(Tally{of.count, of.spent.Seconds(), of.within})
		}
	}
}

// Keys is how many keys the store has.
func (s *Server) Keys() (n int) {
	s.mu.Lock()
	of := s.Store
	s.mu.Unlock()
	if of != nil {
		of.Do(func(t *store.Table) { n = t.Len() })
	}
	return n
}
