package heartbeat

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/muster-run/muster/job"
)

// A track is what the judge knows of one rank.
type track struct {
	beat *job.Beat // of the look that is judged: the next one may use its memory
	past
	look  uint32 // at which it was seen last
	moved uint32 // what it counted since it is watched, the first look's included: up to counts of each look
	paces uint32 // the same of its steps, whichever way they count,
	made  uint32 // and those that it was seen to do since the first look
	span  uint32 // milliseconds from the first of the marks to the last
	marks []mark // what it did up to each of the last looks, the newest last; none while nobody looks from outside
	// Of the looks at which the world advanced: in how many of the last ones it was in a collective, and how many there were.
	waits, looks float32
	pending      []pending
}

// A pending is a collective in which a rank waits, and what it had done otherwise when it was seen first.
type pending struct {
	group, completed uint64
	steps, others    uint64
}

// A rank that goes on meanwhile waits in another thread: for the next command, or to write a checkpoint. What a step needs, however early it begins, it has before
// the next one; and a thread of the host waits in nothing that it has only issued. What accelerators do is issued long before it happens.
const (
	besideSteps  = 2
	besideOthers = 20 // other collectives, where a step is not one of the program's, or none is known
	mostPending  = 8  // that are remembered of a rank
	mostShown    = 30 // lanes: of ranks that have more, others are shown each time
)

// A past is what is remembered of a beat when its look is over: there may be a hundred thousand ranks.
type past struct {
	sources      job.Source
	seen         bool  // from outside
	second       uint8 // as in a beat
	pid, life    int
	count, steps uint64
	limit        time.Duration
	cpu          time.Duration
	disk, wire   uint64
	said         uint64
}

func (p *past) keep(b *job.Beat) {
	*p = past{sources: b.Sources, second: b.Second, pid: b.PID, life: b.Life, count: b.Count, steps: b.Steps, limit: b.Limit}
	if s := b.Sight; s != nil {
		p.seen, p.cpu, p.disk, p.wire, p.said = true, s.CPU, s.Disk, s.Wire, s.Output
	}
}

// A mark is how much a worker did from the look before to this one. More than fits is as good as all that does. While a world stands
// still each of its ranks has twelve of them.
type mark struct {
	took       uint16 // milliseconds of what counts; it is no more than longest
	said       bool
	cpu        uint32 // microseconds
	disk, wire uint32 // bytes
}

// How much a worker does in a while that is at work, rather than its helper threads.
const (
	window    = 10 * time.Second
	long      = 5 * time.Second // of a shorter window nothing is concluded
	workCPU   = 0.02            // of one processor
	workBytes = 4 << 10         // a second, of the network: heartbeats of a store are less
	workDisk  = 64 << 10        // a second, of a disk: logs are less
)

// note takes in a beat, and reports whether the rank advanced. Its step may be what is left to do, and fall.
func (t *track) note(b *job.Beat, passed time.Duration) bool {
	before := t.past
	t.beat = b
	t.mark(b.Sight, passed)
	t.keep(b)
	t.tally(b, before)
	t.pend(b)
	return b.Count > before.count || b.Steps != before.steps
}

// tally counts what a rank has done by what has changed, for the numbers themselves may fall, or begin anew with each epoch.
func (t *track) tally(b *job.Beat, before past) {
	change := func(now, then uint64) uint32 { return uint32(min(max(now, then)-min(now, then), counts)) }
	paces := change(b.Steps, before.steps)
	t.paces += paces
	if t.look > 0 {
		t.made += min(paces, ofLook)
	}
	t.moved += change(b.Count, before.count)
	if b.Sources&(job.FromBeats|job.FromOutput) != 0 {
		t.moved += paces // a report may stand for many steps
	}
}

// pend takes in what a rank waits in.
func (t *track) pend(b *job.Beat) {
	var now [mostPending]pending
	n, entered := 0, entered(b)
	for i := range b.Lanes {
		l := &b.Lanes[i]
		if l.Group == 0 || !l.Host || !l.Waits() || n == len(now) {
			continue
		}
		now[n] = pending{l.Group, l.Completed, b.Steps, entered - l.Entered}
		if j := slices.IndexFunc(t.pending, now[n].same); j >= 0 {
			now[n] = t.pending[j]
		}
		n++
	}
	t.pending = append(t.pending[:0], now[:n]...)
}

// entered is how many collectives a rank has, in all its groups.
func entered(b *job.Beat) (sum uint64) {
	for i := range b.Lanes {
		sum += b.Lanes[i].Entered
	}
	return sum
}

func (p pending) same(o pending) bool { return p.group == o.group && p.completed == o.completed }

// beside reports whether a rank has gone on while it waited there. What the program reports as steps may be anything.
func (t *track) beside(l *job.Lane) bool {
	if l.Group == 0 || !l.Host || !l.Waits() {
		return false
	}
	i := slices.IndexFunc(t.pending, pending{group: l.Group, completed: l.Completed}.same)
	if i < 0 {
		return false
	}
	p, b := t.pending[i], t.beat
	if b.Sources&(job.FromBeats|job.FromOutput) == 0 && b.Steps >= p.steps+besideSteps {
		return true
	}
	stepped := b.Steps == 0 || b.Steps > p.steps
	return stepped && len(b.Lanes) <= mostShown && entered(b)-l.Entered >= p.others+besideOthers
}

// mark takes in what was done between two sights. What a process did that has ended is gone from the sums of its worker.
func (t *track) mark(now *job.Sight, passed time.Duration) {
	if now == nil {
		t.marks, t.span = nil, 0
		return
	}
	m := mark{took: uint16(passed.Milliseconds())}
	if t.seen {
		m.cpu = more(uint64(now.CPU.Microseconds()), uint64(t.cpu.Microseconds()))
		m.disk, m.wire = more(now.Disk, t.disk), more(now.Wire, t.wire)
		m.said = t.said > 0 && now.Output > t.said // before the first it may not have been known
	}
	if t.marks == nil {
		t.marks = make([]mark, 0, window/tick+2)
		m.took = 0
	}
	t.span += uint32(m.took)
	for len(t.marks) > 1 && t.span-uint32(t.marks[1].took) >= uint32(window/time.Millisecond) {
		t.span -= uint32(t.marks[1].took)
		t.marks = slices.Delete(t.marks, 0, 1)
	}
	t.marks = append(t.marks, m)
}

func more(now, before uint64) uint32 {
	if now < before {
		return 0
	}
	return uint32(min(now-before, math.MaxUint32))
}

// done is what a worker did in the window, which is so long.
func (t *track) done() (span, cpu time.Duration, disk, wire float64, said bool) {
	for _, m := range t.marks[1:] {
		cpu += time.Duration(m.cpu) * time.Microsecond
		disk, wire, said = disk+float64(m.disk), wire+float64(m.wire), said || m.said
	}
	return time.Duration(t.span) * time.Millisecond, cpu, disk, wire, said
}

// work says what a worker has been doing lately; "": nothing, as far as can be seen, and nil: it cannot be seen.
func (t *track) work() *string {
	what := ""
	if len(t.marks) < 2 {
		return nil
	}
	span, cpu, disk, wire, said := t.done()
	switch {
	case span < long:
		return nil
	case float64(cpu) > workCPU*float64(span):
		what = "using the processor"
	case disk > workDisk*span.Seconds():
		what = "reading or writing its disk"
	case wire > workBytes*span.Seconds():
		what = "sending or receiving"
	case said:
		what = "writing output"
	case computes(t.beat.Sight):
		what = "computing on its accelerator"
	case t.beat.Sight.State == 'R':
		what = "waiting for a processor"
	}
	return &what
}

// computes reports whether a worker's accelerator draws about as much as it did while training went on. In a collective it is as busy, for
// NCCL's kernels wait by spinning, but draws less.
func computes(s *job.Sight) bool {
	return s.GPUBusy > 0 && s.GPUUsual > 0 && s.GPU*5 >= s.GPUUsual*4
}

// power is what an accelerator draws, beside what it drew while training went on.
func power(s *job.Sight) string {
	if s.GPU == 0 || s.GPUUsual == 0 {
		return ""
	}
	return fmt.Sprintf(", its GPU at %d W of %d W", s.GPU, s.GPUUsual)
}

// idle reports whether a worker is seen to do nothing.
func (t *track) idle() bool {
	what := t.work()
	return what != nil && *what == ""
}

// stores reports whether a worker waits for a file system that is to take what it wrote: those that upload when a file is closed, or is to be safe, take
// as long as they take, and nobody can tell that from one that has died. One that is stopped waits for nobody, wherever it was.
func (t *track) stores() bool {
	s := t.beat.Sight
	return s != nil && s.Stores && !s.Frozen && (s.State == 'S' || s.State == 'D')
}

// halted says why a worker cannot run at all; "": it can.
func (t *track) halted() string {
	s := t.beat.Sight
	switch {
	case s == nil:
	case s.Frozen:
		return "its cgroup is frozen"
	case s.State == 'T':
		return "stopped, state T"
	case s.State == 't':
		return "held by a debugger"
	case s.State == 'Z' || s.State == 'X':
		return "dead"
	case s.State == 'D' && t.idle():
		return "in the kernel, state D" + in(s.Waits)
	}
	return ""
}

func in(wchan string) string {
	if wchan == "" {
		return ""
	}
	return " in " + wchan
}

// appearance is how a worker looks.
func (t *track) appearance() string {
	if h := t.halted(); h != "" {
		return h
	}
	what := t.work()
	switch {
	case what == nil:
		return ""
	case *what == "" && t.stores():
		return "writing to its storage" + in(t.beat.Sight.Waits)
	case *what == "":
		return "asleep" + in(t.beat.Sight.Waits) + power(t.beat.Sight)
	case *what == "using the processor" && t.beat.Sight.Held:
		return *what + ", and holding Python's lock"
	}
	return *what
}

// waiting reports whether the rank is inside a collective, beside which it does nothing else, or inside a call from which nothing is known.
func (t *track) waiting() bool {
	for i := range t.beat.Lanes {
		if l := &t.beat.Lanes[i]; l.Waits() && !t.beside(l) {
			return true
		}
	}
	return false
}

// sample remembers whether the rank waited, for the report of stragglers.
func (t *track) sample() {
	t.waits *= fade
	t.looks = t.looks*fade + 1
	if t.waiting() {
		t.waits++
	}
}

// moves reports whether the network moves data for a worker.
func (t *track) moves() bool {
	if len(t.marks) < 2 {
		return false
	}
	span, _, _, wire, _ := t.done()
	return wire > workBytes*span.Seconds()
}
