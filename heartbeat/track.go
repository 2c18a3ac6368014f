package heartbeat

import (
	"fmt"
	"time"

	"github.com/muster-run/muster/job"
)

// A track is what the judge remembers of one rank.
type track struct {
	beat  job.Beat
	look  int    // at which it was seen last
	marks []mark // what it had done at the last looks, the newest last; none while nobody looks from outside
	// Of the looks at which the world advanced: in how many of the last ones it was in a collective, and how many there were.
	waits, looks float64
}

// A mark is how much a worker had done at one moment.
type mark struct {
	at         time.Duration
	cpu        time.Duration
	disk, wire uint64
	said       uint64
}

// How much a worker does in a while that is at work, rather than its helper threads.
const (
	window    = 10 * time.Second
	seen      = 5 * time.Second // of a shorter window nothing is concluded
	workCPU   = 0.02            // of one processor
	workBytes = 4 << 10         // a second, of the network: heartbeats of a store are less
	workDisk  = 64 << 10        // a second, of a disk: logs are less
)

// note takes in a beat, and reports whether the rank advanced.
func (t *track) note(b job.Beat, at time.Duration) bool {
	before := t.beat
	t.beat = b
	t.sums(before.Sight, b.Sight, at)
	return b.Count > before.Count || b.Steps > before.Steps
}

// sums adds up what was done between two sights. What a process did that has ended is gone from the sums of its worker.
func (t *track) sums(before, now *job.Sight, at time.Duration) {
	if now == nil {
		t.marks = nil
		return
	}
	m := mark{at: at}
	if n := len(t.marks); n > 0 && before != nil {
		m = t.marks[n-1]
		m.at = at
		m.cpu += max(now.CPU-before.CPU, 0)
		m.disk += more(now.Disk, before.Disk)
		m.wire += more(now.Wire, before.Wire)
		if before.Output > 0 { // else it may not have been known
			m.said += more(now.Output, before.Output)
		}
	}
	t.marks = append(t.marks, m)
	for len(t.marks) > 2 && at-t.marks[1].at >= window {
		t.marks = t.marks[1:]
	}
}

func more(now, before uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

// work says what a worker has been doing lately; "": nothing, as far as can be seen, and nil: it cannot be seen.
func (t *track) work() *string {
	what := ""
	if len(t.marks) < 2 {
		return nil
	}
	first, last := t.marks[0], t.marks[len(t.marks)-1]
	span := last.at - first.at
	switch {
	case span < seen:
		return nil
	case float64(last.cpu-first.cpu) > workCPU*float64(span):
		what = "using the processor"
	case float64(last.disk-first.disk) > workDisk*span.Seconds():
		what = "reading or writing its disk"
	case float64(last.wire-first.wire) > workBytes*span.Seconds():
		what = "sending or receiving"
	case last.said > first.said:
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
	case *what == "":
		return "asleep" + in(t.beat.Sight.Waits) + power(t.beat.Sight)
	case *what == "using the processor" && t.beat.Sight.Held:
		return *what + ", and holding Python's lock"
	}
	return *what
}

// waiting reports whether the rank is inside a collective, or inside a call from which nothing is known.
func (t *track) waiting() bool {
	for _, l := range t.beat.Lanes {
		if l.Waits() {
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
	first, last := t.marks[0], t.marks[len(t.marks)-1]
	return float64(last.wire-first.wire) > workBytes*(last.at-first.at).Seconds()
}
