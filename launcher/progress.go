package launcher

import (
	"fmt"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/muster-run/muster/job"
)

// This file is the judgement of whether another round may come further than those before. Like that of all else it is pure.

// How far this round has come, as heartbeats tell.
const (
	unheard = iota // nobody has told
	heard          // somebody tells of progress, and of none so far
	moving         // the world has trained
)

// idleTime is how long a round may have run of which it is said that it came nowhere: one that runs for longer works by other means than
// those that are counted.
const idleTime = 10 * time.Minute

// reached: this node's watch sees how far the round has come; the leader's by the beats of all.
type reached struct {
	How   int
	Again bool `json:",omitempty"` // as far as the rounds before

	// What the leader's judge of hangs has learned, for that of an agent which takes over: it trains, and for how long it may stand still.
	Trained bool          `json:",omitempty"`
	Learned time.Duration `json:",omitempty"`
}

// A round has trained when a rank has done a step, or, where those cannot be counted, so many things that are counted: more than it
// takes to set up a process group and to hand the parameters out.
const someProgress = 40

func progress(b job.Beat) int {
	switch {
	case b.Steps > 0 || b.Count >= someProgress:
		return moving
	case b.Sources&^job.Ready != 0:
		return heard
	}
	return unheard
}

// hopeless says why another round would only end as this one did; "": it may do better. Only a script that ended by itself is judged:
// what a signal ended, or a machine, may go well next time.
func (s *state) hopeless(p policy, v job.Verdict) (code int, why string) {
	f := v.First
	if f == nil || f.Exit.Killed() && f.Exit.Signal != int(syscall.SIGSEGV) && f.Exit.Signal != int(syscall.SIGABRT) {
		s.Idle = 0
		return 0, ""
	}
	if before, found := s.before(); found && f.Step > 0 && len(f.Evidence) == 0 && !p.excludes(s, f.Group) && same(*before.First, *f) {
		return job.ExitSame, fmt.Sprintf("it failed in the same way at the same step (%d) in the round before, so another would end the same", f.Step)
	}
	if s.Reached == unheard && f.Step == 0 {
		return 0, ""
	}
	if s.Idle++; s.Reached == moving || f.Step > 0 || s.Started && s.Now-s.Began >= idleTime {
		s.Idle = 0
	}
	if p.Idle > 0 && s.Idle >= p.Idle {
		return job.ExitNoProgress, fmt.Sprintf("%s in a row failed before the first step (--max-idle-rounds %d)", rounds(s.Idle), p.Idle)
	}
	return 0, ""
}

func rounds(n int) string {
	if n == 1 {
		return "1 round"
	}
	return fmt.Sprintf("%d rounds", n)
}

// before is the round before this one, if a worker's failure ended it.
func (s *state) before() (job.Round, bool) {
	if len(s.Past) == 0 || s.Past[len(s.Past)-1].First == nil {
		return job.Round{}, false
	}
	return s.Past[len(s.Past)-1], true
}

// same reports whether two failures are one, but for addresses, times and the like in what was said of them.
func same(a, b job.Failure) bool {
	return a.Rank == b.Rank && a.Step == b.Step && a.Exit == b.Exit && words(a.Exception) == words(b.Exception)
}

// words is a text without what has a digit in it.
func words(text string) string {
	fields := strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("()[]{},;:=", r) })
	kept := fields[:0]
	for _, f := range fields {
		if !strings.ContainsAny(f, "0123456789") {
			kept = append(kept, f)
		}
	}
	return strings.Join(kept, " ")
}
