package heartbeat

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-run/muster/job"
)

// A Timeout is a time after which the framework gives up by itself: it ends the job, and names nobody.
type Timeout struct {
	After time.Duration // 0: not known
	What  string        // it does then: "PyTorch gives up on a collective"
	From  string        // who set it
	Raise string        // how to make it longer, as the end of a sentence
}

// margin is how long before the framework gives up a hang is to be told.
const margin = 30 * time.Second

// own is the shortest time-out of a default process group.
func (j *Judge) own() Timeout {
	first, least := 0, time.Duration(0)
	for rank, t := range j.ranks {
		if t.limit > 0 && (least == 0 || t.limit < least || t.limit == least && rank < first) {
			first, least = rank, t.limit
		}
	}
	return Timeout{least, "PyTorch gives up on a collective", fmt.Sprintf("the default process group's time-out, as rank %d has it", first), "give init_process_group a longer timeout"}
}

// within shortens a limit so that a hang is told before the framework ends the job.
func (j *Judge) within(limit time.Duration) time.Duration {
	if own := j.own().After; own > 0 {
		return min(limit, before(own))
	}
	return limit
}

// busy is the limit for culprits that are at work. What was asked for is not shortened where only other groups are waited in: their
// time-outs are not known.
func (j *Judge) busy() time.Duration {
	if j.asked.Busy > 0 && j.elsewhere() {
		return j.limits.Busy
	}
	return j.within(j.limits.Busy)
}

// start is the limit until the world trains. Where the framework gives up sooner on the collective of all in which ranks wait, it is told before that, but
// for a short time-out not as long before as later: who compiles a model is at work.
func (j *Judge) start() time.Duration {
	own := j.own().After
	if own == 0 || !j.inAll() {
		return j.limits.Start
	}
	return min(j.limits.Start, max(own-min(margin, own/4), j.limits.Floor))
}

// inAll reports whether any rank waits in a collective of the default group.
func (j *Judge) inAll() bool {
	for _, t := range j.ranks {
		if slices.ContainsFunc(t.beat.Lanes, func(l job.Lane) bool { return l.Group != 0 && l.Waits() && ofAll(l) }) {
			return true
		}
	}
	return false
}

// elsewhere reports whether ranks wait in collectives, none of them in one of the default group.
func (j *Judge) elsewhere() bool {
	waits := false
	for _, t := range j.ranks {
		for _, l := range t.beat.Lanes {
			if l.Waits() && ofAll(l) {
				return false
			}
			waits = waits || l.Waits()
		}
	}
	return waits
}

// ofAll reports whether a lane is the default group's, by PyTorch's names for it, or may be.
func ofAll(l job.Lane) bool { return slices.Contains([]string{"0", "default_pg", ""}, l.Name) }

// before is the last moment to tell a hang, when the framework gives up after so long.
func before(own time.Duration) time.Duration { return max(own-margin, own/2) }

// A Clash is a time-out of the framework that does not go with our limits, or with the job's own pauses.
type Clash struct {
	Kind string // the same for what need not be told again
	Text string
}

// Clashes are those that there are by now.
func (j *Judge) Clashes() (all []Clash) {
	for _, t := range append([]Timeout{j.own()}, j.limits.Others...) {
		if why, what := j.clash(t); why != "" && t.After > 0 {
			all = append(all, Clash{why + " " + t.From, fmt.Sprintf("%s after %v (%s), %s", t.What, t.After, t.From, what)})
		}
	}
	return all
}

// clash says what is wrong with a time-out, the worst first.
func (j *Judge) clash(t Timeout) (kind, what string) {
	pause, last := j.gaps.longest.Round(time.Second), before(t.After)
	switch {
	case t.After < j.limits.Floor+again+longest:
		return "floor", fmt.Sprintf("and no standstill is called a hang before %v (--hang-floor): the job would end with nobody named; %s, or say a lower --hang-floor", j.limits.Floor, t.Raise)
	case t.After < 2*pause:
		return "pause", fmt.Sprintf("and the job has paused for %v: a pause of not twice that would end it, healthy as it is; %s", pause, t.Raise)
	case last < j.asked.Ceiling:
		return "limit", fmt.Sprintf("so that a hang must be told within %v, whatever --hang-timeout %v says; %s, or say a lower --hang-timeout", last, j.asked.Ceiling, t.Raise)
	case last < j.asked.Busy:
		return "busy", fmt.Sprintf("so that a rank at work must be blamed within %v, whatever --hang-busy-after %v says; %s, or say a lower --hang-busy-after", last, j.asked.Busy, t.Raise)
	}
	return "", ""
}
