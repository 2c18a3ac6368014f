// Package heartbeat judges from the beats of a world whether it hangs, who is to blame, and why.
//
// It is pure: the beats of all ranks come in about once a second, findings go out, and nothing here reads a clock, sends or acts.
// Counters say who waits for whom; what is seen of a worker from outside says whether it lives. A world hangs when no rank of it
// advances for longer than it ever took, several times over; while any rank advances, none does.
package heartbeat

import (
	"slices"
	"time"

	"github.com/muster-run/muster/job"
)

// Limits are how long a world may stand still. The zero value of each is its default.
type Limits struct {
	Floor   time.Duration // no world hangs sooner; 30 s
	Ceiling time.Duration // none later, however long it took before; 10 min
	Start   time.Duration // until it trains: initialisation, compilation, the first steps; 20 min
	Busy    time.Duration // for one whose culprit is at work, with the processor, a disk or the network; Ceiling
	GPUs    bool          // the nodes have accelerators: who seems idle may wait for one that works
	Others  []Timeout     // of the framework, as the environment sets them
	Places  bool          // ranks are asked where they are as soon as somebody is blamed
	Foreign bool          // ranks are another launcher's: with which code one has ended is not known
	Trained bool          // another judge saw that it trains,
	Learned time.Duration // and learned this of it
}

const floor = 30 * time.Second

func (l Limits) withDefaults() Limits {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	if l.Ceiling > 0 { // who wants to know sooner than ours
		def(&l.Floor, min(l.Ceiling, floor))
	}
	def(&l.Floor, floor)
	def(&l.Ceiling, 10*time.Minute)
	def(&l.Start, 20*time.Minute)
	l.Ceiling = max(l.Ceiling, l.Floor)
	def(&l.Busy, l.Ceiling)
	return l
}

const (
	tick    = time.Second
	longest = 2 * tick        // what counts of the time between two looks: a judge that stood still has seen nothing
	again   = 2 * time.Second // between the look that finds a hang and the one that confirms it,
	answer  = 9 * time.Second // or so much where the culprit is yet to tell where it is: a busy machine takes long for it
	debugs  = 3               // times the limit for a world in which a debugger holds somebody

	// A world is taken to train when it was seen to advance at so many looks, every rank that counts anything has counted so much, and
	// who counts steps so many of them. What came before, such as the compilation of a model, teaches nothing about what follows.
	warm   = 5
	counts = 40
	steps  = 5

	// Short steps need fewer looks: so many that ranks were seen to do, of which no look counts for more than a part.
	plenty = 20
	ofLook = 10
)

// A Judge watches over one world in one round.
type Judge struct {
	limits Limits
	asked  Limits // as they were given
	ranks  map[int]*track
	last   time.Duration // of the last look, by the caller's clock
	looked bool
	clock  time.Duration // that we have watched
	moved  time.Duration // when the world last advanced, by clock
	found  time.Duration // when the hang was found that is to be confirmed; 0: none is
	steady int           // looks at which it had advanced
	gaps   gaps          // since it trains
	looks  uint32        // so many
	order  order         // of the ranks
	spoke  bool          // a straggler was told of
	names  []int         // room for their list
	stage  Stage         // of the standstill
	worst  Stage         // that was told of it
	told   string
}

// New begins to watch over a world.
func New(l Limits) *Judge { return &Judge{limits: l.withDefaults(), asked: l, ranks: map[int]*track{}} }

// A Look is what is known of a world at one moment. A Judge keeps nothing of it but texts.
type Look struct {
	At      time.Duration // by a clock that never jumps
	Beats   []job.Beat    // of each rank that lives and was heard lately
	Unheard []int         // ranks whose node was not
	Ended   []int         // ranks whose work is done
}

// Observe takes a look, and returns what follows from it, in a few words at each change.
func (j *Judge) Observe(l Look) []Finding {
	passed := j.pass(l.At)
	if len(l.Unheard) > 0 { // a node that is silent may advance
		return nil
	}
	j.clock += passed
	progress, counted := j.note(l.Beats, passed)
	if progress {
		return j.advanced(counted)
	}
	return j.standstill(l)
}

// pass is how much of the time since the last look counts.
func (j *Judge) pass(now time.Duration) time.Duration {
	passed := now - j.last
	if !j.looked {
		passed = 0
	}
	j.last, j.looked = now, true
	return min(max(passed, 0), longest)
}

// note takes in the beats, and reports whether anybody advanced: one that counts, or a rank that is new, has another process, or
// ended.
func (j *Judge) note(beats []job.Beat, passed time.Duration) (progress, counted bool) {
	j.looks++
	steps, goesOn := uint64(0), j.clock-j.moved <= max(j.limits.Floor/3, j.usual())
	for i := range beats {
		b := &beats[i]
		steps = max(steps, b.Steps)
		t := j.ranks[b.Rank]
		if t == nil || t.pid != b.PID || t.life != b.Life {
			t = &track{}
			j.ranks[b.Rank] = t
			progress = true
		}
		if t.second != b.Second && goesOn && j.worst < Suspect { // else it was told before, or tells of a standstill
			j.order.note(b, j.clock)
		}
		if t.note(b, passed) { // who has come to the beginning, and done no more, has not begun to train
			progress, counted = true, counted || t.sources&^job.Ready != 0 || t.paces > 0
		}
		t.look = j.looks
	}
	for rank, t := range j.ranks {
		if t.look != j.looks {
			delete(j.ranks, rank)
			progress = true
		}
	}
	j.order.pace(steps, j.clock)
	return progress, counted
}

// advanced ends a standstill, if there was one.
func (j *Judge) advanced(counted bool) []Finding {
	gap := j.clock - j.moved
	j.moved, j.found = j.clock, 0
	if counted && j.trains() { // else somebody has ended, of a time-out perhaps
		j.gaps.add(gap)
	}
	if counted {
		j.steady++
	}
	worst := j.worst
	j.stage, j.worst, j.told = 0, 0, ""
	for _, t := range j.ranks {
		t.sample()
	}
	if worst < Suspect {
		return nil
	}
	return []Finding{{Stage: Resumed, Hang: job.Hang{Quiet: gap}, False: worst == Hung}}
}

// trains reports whether the world is past its beginning.
func (j *Judge) trains() bool {
	known, quick := false, true
	for _, t := range j.ranks {
		if t.sources&^job.Ready == 0 {
			continue
		}
		if t.moved < counts || t.paces > 0 && t.paces < steps {
			return false
		}
		known, quick = true, quick && t.made >= plenty
	}
	return j.steady >= warm || j.limits.Trained && known || quick && known
}

// limit is how long this world may stand still, as far as its past and the kind of the standstill say.
func (j *Judge) limit(v view) time.Duration {
	t := j.start()
	switch {
	case !j.trains() && v.gone: // who has ended is not slow to begin; twice the floor, for nothing is learned yet
		t = min(2*j.limits.Floor, t)
	case !j.trains():
	case v.busy || v.late:
		t = max(j.busy(), j.learned())
	default:
		t = j.learned()
	}
	if j.any(func(b *job.Beat) bool { return b.Sight != nil && (b.Sight.Traced || b.Sight.Frozen) }) {
		t *= debugs
	}
	return t
}

// learned is the limit for a world that trains.
func (j *Judge) learned() time.Duration {
	return min(max(j.limits.Floor, j.usual()), j.ceiling())
}

// usual is what this world's own past says of it.
func (j *Judge) usual() time.Duration {
	return max(5*j.gaps.most(), 3*j.gaps.longest, j.limits.Learned)
}

// Learned is what another judge of this world has to know when it begins.
func (j *Judge) Learned() (trains bool, usual time.Duration) { return j.trains(), j.usual() }

// ceiling is the limit of what can be learned.
func (j *Judge) ceiling() time.Duration { return max(j.within(j.limits.Ceiling), j.limits.Floor) }

func (j *Judge) any(is func(*job.Beat) bool) bool {
	for _, t := range j.ranks {
		if is(t.beat) {
			return true
		}
	}
	return false
}

// standstill judges a look at which nobody had advanced.
func (j *Judge) standstill(l Look) []Finding {
	quiet := j.clock - j.moved
	if quiet < j.limits.Floor/4 || j.any(func(b *job.Beat) bool { return b.Left > 0 }) {
		return nil
	}
	v := j.view(l)
	limit := j.limit(v)
	v.Quiet, v.Limit = quiet, limit
	soon, early := limit, limit/2 // of a busy culprit people hear as early as of a dead one
	if j.trains() {
		soon = j.learned()
		early = max(j.limits.Floor/3, min(j.usual(), soon)*2/5) // by the default floor within 15 s, with all that it takes to get here
	}
	if v.over {
		early = limit
	}
	switch {
	case v.Class == "":
		j.found = 0
		return j.tell(Unclear, v, quiet >= soon && !v.over)
	case quiet < limit:
		j.found = 0
		if v.busy && quiet >= soon {
			return j.tell(Slow, v, true)
		}
		return j.tell(Suspect, v, quiet >= early)
	case j.found == 0:
		j.found = j.clock
		return j.tell(Suspect, v, true)
	case j.clock-j.found < again, j.clock-j.found < answer && j.silent(v):
		return nil
	}
	return j.tell(Hung, v, true)
}

// silent reports whether the first culprit has still to tell where it is, which only a live process of Python with the hook can.
func (j *Judge) silent(v view) bool {
	if !j.limits.Places || len(v.Culprits) == 0 {
		return false
	}
	c := v.Culprits[0]
	t := j.ranks[c.Rank]
	return t != nil && !c.Halted && len(c.Stack) == 0 && t.sources&(job.FromRecorder|job.FromHooks|job.Ready) != 0
}

// tell says something once: when it is worse than what was said of this standstill before, or blames somebody else.
func (j *Judge) tell(s Stage, v view, due bool) []Finding {
	if !due || s < j.worst || s == j.stage && v.key() == j.told {
		return nil
	}
	j.stage, j.worst, j.told = s, max(s, j.worst), v.key()
	f := v.Finding
	f.Stage = s
	return []Finding{f}
}

// Quiet is for how long nobody has advanced.
func (j *Judge) Quiet() time.Duration { return j.clock - j.moved }

// Limit is for how long the world may stand still by now, before somebody dead-looking is blamed.
func (j *Judge) Limit() time.Duration {
	if !j.trains() {
		return j.start()
	}
	return j.learned()
}

// sorted are the ranks that were seen last, in order. The list is used again: the next call makes the same, as long as the look is the same.
func (j *Judge) sorted() []int {
	j.names = j.names[:0]
	for r := range j.ranks {
		j.names = append(j.names, r)
	}
	slices.Sort(j.names)
	return j.names
}
