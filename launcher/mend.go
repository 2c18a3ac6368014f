package launcher

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-run/muster/job"
)

// This file is the judgement of what follows when a worker fails, where that need not be the end of its round. Like that of all else it
// is pure. A worker that is started again in place has a life with a number of its own: one more than any life of any worker
// before, so that it counts like a round, and no log directory is used twice.
//
//	member: ── a worker failed ──▶ told, and down ── the leader says so ──▶ started again
//	leader: ── a worker failed, and a restart is left ──▶ tell all

// What follows when a worker fails.
const (
	onExitStop    = "stop"    // all workers are stopped, and perhaps started again
	onExitRestart = "restart" // it alone is started again; as stop, when no restart is left
	onExitLeave   = "leave"   // the others run to their end. So they do when one has ended well, which was to be enough
)

// leaves reports whether nobody is stopped because somebody else ended.
func (p policy) leaves() bool { return p.OnExit == onExitLeave }

// mends reports whether a worker that failed is started again while the others run.
func (p policy) mends() bool { return p.OnExit == onExitRestart }

// A mend starts one worker again, on the node where it was. As a deed, on other nodes, it only counts.
type mend struct {
	Rank        int           `json:"rank"`
	Node        int           `json:"node"`   // its group rank
	Number      int           `json:"number"` // of the worker's new life
	MaxRestarts int           `json:"max_restarts"`
	After       time.Duration `json:"after,omitempty"` // a pause
	Why         string        `json:"why"`
}

// last is the number of the newest life of any worker, as far as this node knows.
func (s *state) last() int {
	last := s.Round
	for _, m := range s.Mends {
		last = max(last, m.Number)
	}
	return last
}

// life is how a worker was started last in this round; nil: with all the others.
func (s *state) life(rank int) *mend {
	i := slices.IndexFunc(s.Mends, func(m mend) bool { return m.Rank == rank })
	if i < 0 {
		return nil
	}
	return &s.Mends[i]
}

// lifeOf is the number of a worker's life.
func (s *state) lifeOf(rank int) int {
	if m := s.life(rank); m != nil {
		return m.Number
	}
	return s.Round
}

// mend is the leader's: it has the worker that failed started again. It reports whether that may be.
func (s *state) mend(p policy, c cause) (todo []any, may bool) {
	f := c.Failure
	if !p.mends() || f == nil || f.PID == 0 || s.Stopping || len(s.Causes) > 0 || p.excludes(s, c.Node) {
		return nil, false
	}
	s.forgive(p)
	if s.last()-s.Free >= p.MaxRestarts {
		return nil, false
	}
	m := mend{Rank: f.Rank, Node: c.Node, Number: s.last() + 1, MaxRestarts: p.MaxRestarts + s.Free, After: s.pause(p)}
	m.Why = fmt.Sprintf("%s; restart %d of %d follows%s, of this worker alone", p.failedVerdict(*f).Sentence, m.Number, m.MaxRestarts, pauseText(m.After))
	s.past(job.Round{Number: s.last(), Message: f.String() + "; it alone was started again", First: f})
	if p.Exclude > 0 {
		s.count(c.Node)
	}
	s.Mended = s.Now
	todo = append(s.accuseFailed(p, f), tell{everyone, news{Kind: newsMend, Mends: []mend{m}}})
	return append(todo, s.mended(p, m)...), true
}

// mended notes that a worker is started again, once, and has it done if it is this node's.
func (s *state) mended(p policy, m mend) []any {
	if m.Number <= s.lifeOf(m.Rank) {
		return nil
	}
	s.Mends = append(slices.DeleteFunc(slices.Clone(s.Mends), func(o mend) bool { return o.Rank == m.Rank }), m)
	if m.Node == s.Self {
		s.up(p, m.Rank)
	}
	switch {
	case s.Stopping:
		return nil
	case s.leads() || m.Node == s.Self:
		return []any{say{m.Why}, m}
	}
	return []any{m}
}

// up forgets how a worker of this node ended.
func (s *state) up(p policy, rank int) {
	s.Ranks = slices.DeleteFunc(slices.Clone(s.Ranks), func(e job.Ended) bool { return e.Rank == rank })
	s.Down = slices.DeleteFunc(slices.Clone(s.Down), func(f job.Failure) bool { return f.Rank == rank })
	s.Causes = slices.DeleteFunc(s.Causes, func(c cause) bool { return c.Failure != nil && c.Failure.Rank == rank })
	if s.Own == nil || s.Own.First == nil {
		return
	}
	s.Own = nil
	if len(s.Down) > 0 {
		v := p.failedVerdict(s.Down[0])
		s.Own = &v
	}
}

// mendedAll is a member's: what the leader told.
func (s *state) mendedAll(p policy, all []mend) (todo []any) {
	for _, m := range slices.SortedFunc(slices.Values(all), func(a, b mend) int { return cmp.Compare(a.Number, b.Number) }) {
		todo = append(todo, s.mended(p, m)...)
	}
	return todo
}
