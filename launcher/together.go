package launcher

import (
	"sync"
	"time"

	"github.com/muster-run/muster/heartbeat/page"
)

// Agents that do not hear each other may be cut off from each other while their workers are not: the network of collectives is another
// one. A collective of a process group of all ranks is complete only when all ranks have entered it. So while those of this node's
// workers get done, all nodes are there, and none of them has begun anything without this node: nobody is given up, and nobody needs to stop.
//
// That holds for the others, too, but not at the same moment: a rank may find complete what the others had sent long before it came, and
// count it late. Hence two answers. A node goes by the sure one when it says that others are gone, and stops its workers; by the
// likely one when it reckons for how long those may go on. That of one node is never earlier than the sure one of another.

// depth is how many collectives others can be ahead of a rank: they get none done that it has not entered, except those in which it
// only receives, such as broadcasts, of which two may follow each other.
//
// A loop of nothing but broadcasts, or reduces, is not covered, and no other number would do: a root is done when what it sends lies in
// buffers, and pages do not tell of which kind a collective was. There a node that lags behind by more than the fence's margin, and is cut
// off, may take what it was sent before for a sign that all are there, and work until it has got all of it.
const depth = 4

// together keeps account of what this node's workers get done with all others. Its times are those of CLOCK_MONOTONIC, as in pages.
type together struct {
	clock  func() time.Duration // by which pages tell time; nil: CLOCK_MONOTONIC
	mu     sync.Mutex
	size   int // ranks of the world
	lanes  map[lane][]reading
	sure   time.Duration // all took part then, or later; 0: it is not known
	likely time.Duration // this node's ranks were seen to get something done; 0: never
}

// A lane is one process group, as one program of one worker counts.
type lane struct {
	local, life int
	group       uint64
}

// A reading is how far a worker had come when its hook last looked.
type reading struct {
	at                 time.Duration
	entered, completed uint64
}

const (
	maxReadings = 64   // that are kept of a lane: a minute of looks
	maxLanes    = 4096 // bounds what pages, which workers write, make us keep
)

// begin forgets the workers there were, for a round of so many ranks; 0: there is none.
func (t *together) begin(size int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.lanes {
		t.forget(key)
	}
	t.size, t.lanes = size, map[lane][]reading{}
}

// ended forgets a worker that has ended, or is about to.
func (t *together) ended(local int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keep(local, nil)
}

// keep forgets all lanes of a worker but some.
func (t *together) keep(local int, those map[lane]bool) {
	for key := range t.lanes {
		if key.local == local && !those[key] {
			t.forget(key)
		}
	}
}

// forget drops a lane. What it may have got done since it was last read counts, if it got something done until then.
func (t *together) forget(key lane) {
	all := t.lanes[key]
	last := all[len(all)-1]
	for _, r := range all {
		if r.completed < last.completed && last.at-r.at <= silent {
			t.likely = max(t.likely, t.now())
			break
		}
	}
	delete(t.lanes, key)
}

// note takes in a worker's page.
func (t *together) note(local int, s page.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := map[lane]bool{}
	for _, l := range s.Lanes {
		key := lane{local, s.Claims, l.Group}
		all, known := t.lanes[key]
		if s.Recorder && !s.Exiting && t.size > 0 && l.Members == t.size && !l.Blind && (known || len(t.lanes) < maxLanes) {
			t.lanes[key], seen[key] = t.read(all, reading{s.Helper, l.Entered, l.Completed}), true
		}
	}
	t.keep(local, seen)
}

// read takes in a later reading of a lane.
func (t *together) read(all []reading, now reading) []reading {
	if len(all) == 0 {
		if now.completed > 0 {
			t.likely = max(t.likely, now.at)
		}
		return []reading{now}
	}
	last := all[len(all)-1]
	if now.at <= last.at {
		return all
	}
	if now.completed > last.completed {
		t.likely = max(t.likely, now.at)
		for _, r := range all { // until the last at which it had not entered what, to be complete now, all had to take part in later
			if r.entered+depth <= now.completed {
				t.sure = max(t.sure, r.at)
			}
		}
	}
	return append(all[max(0, len(all)+1-maxReadings):], now)
}

// surely is when all took part, or earlier; zero: it is not known.
func (t *together) surely() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wallTime(t.sure)
}

// perhaps is when this node may last have taken part, for all that others know; zero: it never did. While a worker's hook does not get to
// read, that is now.
func (t *together) perhaps() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for _, all := range t.lanes {
		if now-all[len(all)-1].at > silent {
			return t.wallTime(now)
		}
	}
	return t.wallTime(t.likely)
}

// wallTime is a time of CLOCK_MONOTONIC by the clock of everything else.
func (t *together) wallTime(at time.Duration) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.Now().Add(at - t.now())
}

func (t *together) now() time.Duration {
	if t.clock != nil {
		return t.clock()
	}
	return monotonic()
}
