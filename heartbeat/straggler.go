package heartbeat

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/muster-run/muster/job"
)

const (
	fade    = 0.997 // of what was seen counts less at each look: half after four minutes
	enough  = 60    // looks, or moments, until anything is said
	patient = 150   // of them, until it is said without what is still not known
	behind  = 0.3   // of all looks: so much less than the others a straggler waits, or so often they wait for it
	nearly  = 0.1   // of them: who waits no less than that than the others is no straggler
)

// Stragglers are the ranks for which the others wait most, the worst first: those that spend less of their time in collectives, and
// those that are behind the others at the same moments. Each rank's share of time is seen at its own node, so it does not matter there
// that nodes do not look at the same moment. Where both will be known soon nobody is told of before, but nobody is taken back for it.
func (j *Judge) Stragglers() (all []job.Straggler) {
	median, known := j.median()
	soon := !known && !j.spoke && j.order.moments < patient && j.recorded()
	if j.order.moments < enough && j.seldom(patient) || soon {
		return nil
	}
	for _, rank := range j.sorted() {
		t, s := j.ranks[rank], job.Straggler{Rank: rank}
		if known {
			s.Waits, s.Others = t.share(), median
		}
		s.Lost, s.Last, s.Step = j.order.of(rank)
		late := s.Lost > behind && (!known || median-s.Waits > nearly)
		if late || known && median-s.Waits > behind {
			all = append(all, s)
		}
	}
	j.spoke = j.spoke || len(all) > 0
	slices.SortStableFunc(all, func(a, b job.Straggler) int {
		return cmp.Or(cmp.Compare(b.Lost, a.Lost), cmp.Compare(a.Waits, b.Waits))
	})
	return all
}

// median is how much of their time ranks spend in collectives; it is known when all have told that for long enough.
func (j *Judge) median() (share float64, known bool) {
	if !j.recorded() || j.seldom(enough) {
		return 0, false
	}
	var shares []float64
	for _, t := range j.ranks {
		shares = append(shares, t.share())
	}
	slices.Sort(shares)
	return shares[len(shares)/2], true
}

// recorded reports whether all ranks, of several, have a recorder, which tells when they leave a collective.
func (j *Judge) recorded() bool {
	for _, t := range j.ranks {
		if t.sources&job.FromRecorder == 0 {
			return false
		}
	}
	return len(j.ranks) > 1
}

// seldom reports whether any rank was looked at fewer times.
func (j *Judge) seldom(times float32) bool {
	for _, t := range j.ranks {
		if t.looks < times {
			return true
		}
	}
	return false
}

// share is that of the rank's time in collectives.
func (t *track) share() float64 { return float64(t.waits / t.looks) }

// An order is who was behind the others at the beginnings of seconds, at which all ranks' counters are read. What is read of one second
// comes in over the next few.
type order struct {
	open    [4]moment     // by second
	heard   time.Duration // when anything came last
	drift   map[uint64]*drift
	moments float64         // that count, of late
	waited  float64         // of them those at which anybody was waited for
	last    map[int]float64 // by rank, those at which it was
	steps   uint64          // the most of any rank,
	at      time.Duration   // and when that was so
	made    float64         // of late
	took    float64         // seconds
	times   float64
}

// A drift is how far the ranks of a group are apart. Some backends number sends and receives, too: of pipelines the middle stages get
// further and further ahead, and nobody waits for the others.
type drift struct {
	moments     int
	least, most uint64 // in these moments
	before      uint64 // the most in those before
	grows       bool
}

// A moment is the beginning of a second.
type moment struct {
	second uint8 // as in [job.Beat]; 0: none
	groups map[uint64]*field
}

// A field is the members of a group at one moment, as far as they have told.
type field struct {
	told, members int
	least, most   uint64 // collectives that anybody had entered
	last          []int  // who had entered the least, as many as are kept,
	lasts         int    // of so many
}

const (
	mostFields = 64 // groups that are compared
	mostLast   = 8  // ranks that are told of one
	faint      = 0.05

	drifting = 20              // moments that are compared with as many before
	stale    = 5 * time.Second // after which what was read of a moment is not waited for any more
	odd      = 100             // so many times what is usual, steps are a program's that counts anew from elsewhere
)

// note takes in how far a rank was at a moment, in its groups of the two largest sizes: that of all ranks may be one of several, or used
// at the start alone.
func (o *order) note(b *job.Beat, now time.Duration) {
	first, second := sizes(b.Lanes)
	if b.Second == 0 || b.Second > 60 || first == 0 {
		return
	}
	if now-o.heard > stale {
		o.open = [len(o.open)]moment{}
	}
	o.heard = now
	m := &o.open[int(b.Second)%len(o.open)]
	switch ahead := (int(b.Second) - int(m.second) + 60) % 60; {
	case m.second != 0 && ahead > 30: // it comes too late
		return
	case m.second == 0 || ahead > 0:
		o.close(m)
		*m = moment{second: b.Second, groups: map[uint64]*field{}}
	}
	for _, size := range [...]int{first, second} {
		for i := range b.Lanes {
			if l := &b.Lanes[i]; l.Group != 0 && l.Members == size {
				m.note(b.Rank, l)
			}
		}
	}
}

func (m *moment) note(rank int, lane *job.Lane) {
	f := m.groups[lane.Group]
	if f == nil && len(m.groups) < mostFields {
		f = &field{members: lane.Members, least: lane.Entered}
		m.groups[lane.Group] = f
	}
	if f != nil {
		f.note(rank, lane.Entered)
	}
}

// sizes are the two largest of a rank's groups; -1: there is no other.
func sizes(lanes []job.Lane) (first, second int) {
	second = -1
	for i := range lanes {
		switch l := &lanes[i]; {
		case l.Group == 0 || l.Entered == 0 || l.Members < 2 || l.Members == first || l.Members <= second:
		case l.Members > first && first > 0:
			first, second = l.Members, first
		case l.Members > first:
			first = l.Members
		default:
			second = l.Members
		}
	}
	return first, second
}

func (f *field) note(rank int, entered uint64) {
	f.told++
	f.most = max(f.most, entered)
	if entered < f.least {
		f.least, f.last, f.lasts = entered, f.last[:0], 0
	}
	if entered == f.least {
		if f.lasts++; len(f.last) < mostLast {
			f.last = append(f.last, rank)
		}
	}
}

// behind is who the others were waiting for; of a group of which a tenth is not heard that is not known.
func (f *field) behind() (ranks []int, known bool) {
	if f.told*10 < f.members*9 {
		return nil, false
	}
	if f.least == f.most || f.lasts*2 > f.told {
		return nil, true
	}
	return f.last, true
}

// close counts a moment.
func (o *order) close(m *moment) {
	late, counts := map[int]bool{}, false
	for g, f := range m.groups {
		ranks, known := f.behind()
		if known && o.drifts(g, f.most-f.least) {
			continue
		}
		counts = counts || known
		for _, r := range ranks {
			late[r] = true
		}
	}
	if !counts {
		return
	}
	o.moments, o.waited = o.moments*fade+1, o.waited*fade
	if len(late) > 0 {
		o.waited++
	}
	for r := range o.last {
		o.last[r] *= fade
	}
	maps.DeleteFunc(o.last, func(_ int, n float64) bool { return n < faint })
	if o.last == nil {
		o.last = map[int]float64{}
	}
	for r := range late {
		o.last[r]++
	}
}

// drifts takes in how far the ranks of a group are apart, and reports whether that has grown of late, so that nobody is behind.
func (o *order) drifts(group, apart uint64) bool {
	d := o.drift[group]
	switch {
	case d == nil && len(o.drift) >= mostFields:
		return false
	case d == nil:
		if o.drift == nil {
			o.drift = map[uint64]*drift{}
		}
		d = &drift{before: math.MaxUint64}
		o.drift[group] = d
	}
	if d.moments == 0 {
		d.least, d.most = apart, apart
	}
	d.least, d.most = min(d.least, apart), max(d.most, apart)
	if d.moments++; d.moments == drifting {
		d.grows = d.least > d.before
		d.before, d.moments = d.most, 0
	}
	return d.grows
}

// pace takes in how many steps the world has made by now.
func (o *order) pace(steps uint64, now time.Duration) {
	if made := float64(steps - o.steps); o.steps > 0 && steps > o.steps {
		if o.made > odd*made*o.times { // what was usual was not
			o.made, o.took, o.times = 0, 0, 0
		}
		if o.times == 0 || made*o.times <= odd*o.made {
			o.made, o.took, o.times = o.made*fade+made, o.took*fade+(now-o.at).Seconds(), o.times*fade+1
		}
	}
	if steps != o.steps {
		o.steps, o.at = steps, now
	}
}

// of says how much of their time the others wait for a rank, how many of all waits those are, and how long a step takes; 0: not known.
func (o *order) of(rank int) (lost, last float64, step time.Duration) {
	n := o.last[rank]
	if o.moments < enough || n == 0 {
		return 0, 0, 0
	}
	if o.made > 0 {
		step = time.Duration(o.took / o.made * float64(time.Second))
	}
	return n / o.moments, n / o.waited, step
}
