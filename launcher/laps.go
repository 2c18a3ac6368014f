package launcher

import (
	"slices"
	"time"

	"github.com/muster-run/muster/job"
)

// This file is the account of a job's time: what each round spent on what. Like the judgement, whose events it sees, it is pure, and it decides
// nothing. Every node keeps its own: one that comes to lead knows the rounds that it was in.

// marks are the moments of a round by this node's loop clock; nil: it has not come.
type marks struct {
	From   time.Duration  `json:"from"` // the end of the round before; negative: before the loop began
	World  int            `json:"world,omitempty"`
	Of     string         `json:"of,omitempty"`     // the mark of the world
	Before uint64         `json:"before,omitempty"` // the latest step of the rounds before, as far as they told; 0: they did not
	Begun  *time.Duration `json:"begun,omitempty"`  // this node's workers were started
	Moved  *time.Duration `json:"moved,omitempty"`  // the world did its first step,
	Redone *time.Duration `json:"redone,omitempty"` // and had come as far as the round before
	Told   *time.Duration `json:"told,omitempty"`   // all were told to stop, or had ended well
	Clear  *time.Duration `json:"clear,omitempty"`  // nothing is left of the workers, as far as this node knows

	Class string         `json:"class,omitempty"` // of what ended it
	Why   string         `json:"why,omitempty"`
	Node  int            `json:"node,omitempty"` // to blame, from 1; 0: none
	Rank  int            `json:"rank,omitempty"` // to blame, from 1; 0: none
	Since *time.Duration `json:"since,omitempty"`

	Met  bool `json:"met,omitempty"`  // of what is tallied: the meeting,
	Back bool `json:"back,omitempty"` // that training is as far as before,
	Seen bool `json:"seen,omitempty"` // and that something went wrong
}

// turns are those of all rounds until now.
type turns struct {
	job.Turns
	Down *time.Duration `json:"down,omitempty"` // from the end of training to that of the round before this one; nil: there was no training yet
}

// maxLaps is how many rounds are told of one by one.
const maxLaps = maxPast

// mark notes what an event meant for the account. It sees the state that the event led to.
func (s *state) mark(event any) {
	m := &s.Marks
	note := func(at **time.Duration, is bool) {
		if now := s.Now; is && *at == nil {
			*at = &now
		}
	}
	note(&m.Begun, s.Started)
	if e, ok := event.(reached); ok {
		note(&m.Moved, e.How == moving)
		note(&m.Redone, e.Again)
	}
	if s.Verdict != nil {
		s.laid(*s.Verdict)
	}
	note(&m.Told, s.Stopping || s.Verdict != nil)
	over := s.Nodes != nil && m.Told != nil && (!s.Started || s.Empty) && (!s.leads() || s.allClear() || s.Verdict != nil)
	note(&m.Clear, over)
	if n := len(s.Laps) - 1; n >= 0 && s.Start != nil && s.Start.Round == s.Laps[n].Round+1 && s.Laps[n].Why == "" {
		s.Laps = slices.Clone(s.Laps)
		s.Laps[n].Why = s.Start.Why // a member hears of it with the next one
	}
	s.turns()
}

// turns counts what has come to its end. Nothing is counted that may turn out otherwise: what was told of once does not get less.
func (s *state) turns() {
	m := &s.Marks
	met := m.Begun != nil && !m.Met
	back := m.Moved != nil && (m.Before == 0 || m.Redone != nil) && m.Told == nil && !m.Back
	seen := m.Clear != nil && !m.Seen && broke(m.Class)
	if !met && !back && !seen {
		return
	}
	l := s.lap(s.Now)
	if met {
		m.Met = true
		s.Turns.Meetings.Add(l.Meet)
	}
	if back {
		m.Back = true
		s.recovered(l.Meet + l.Load + l.Redo)
	}
	if seen {
		m.Seen = true
		s.Turns.Detections.Add(l.Detect)
	}
}

// recovered counts an interruption that is over, after so much of this round; the way to the first step is none.
func (s *state) recovered(after time.Duration) {
	if s.Turns.Down != nil {
		s.Turns.Recoveries.Add(*s.Turns.Down + after)
	}
}

// broke reports whether a round of that end had to be seen to end.
func broke(class string) bool {
	switch class {
	case "", job.Succeeded, job.Ordered, job.Grown:
		return false
	}
	return true
}

// pauses notes how long training has been interrupted at the end of a round. Of one that tells nothing of its progress, its start counts as the end
// of the interruption before it.
func (s *state) pauses(l job.Lap) {
	if l.Blind && !s.Marks.Back {
		s.recovered(l.Meet)
	}
	switch {
	case s.Marks.Back || l.Blind:
		down := l.Detect + l.Stop
		s.Turns.Down = &down
	case s.Turns.Down != nil:
		down := *s.Turns.Down + l.Wall()
		s.Turns.Down = &down
	}
}

// laid notes what ended the round, and who is to blame; what was noted first counts.
func (s *state) laid(v job.Verdict) {
	m := &s.Marks
	if m.Class != "" {
		return
	}
	m.Class, m.Why = v.Class, v.Sentence
	if v.Class != job.Hung { // it hung before that, too
		v.Hang = nil
	}
	node, rank := -1, -1
	switch {
	case v.Class == job.Preempted: // nobody is to blame, whatever had failed before
	case v.First != nil:
		node, rank = v.First.Group, v.First.Rank
	case v.Hang != nil && len(v.Hang.Culprits) > 0:
		rank = v.Hang.Culprits[0].Rank
	}
	at := s.Now
	if i := slices.IndexFunc(s.Causes, func(c cause) bool {
		return v.First != nil && c.Failure != nil && c.Failure.Rank == rank || v.Hang != nil && c.Hang == v.Hang || v.First == nil && v.Hang == nil && c.Failure == nil && c.Hang == nil
	}); i >= 0 && v.Class != job.Preempted {
		at = s.Causes[i].At
		if node < 0 && (v.Hang == nil || rank >= 0) {
			node = s.Causes[i].Node
		}
	}
	m.Node, m.Rank, m.Since = node+1, rank+1, &at
}

// lap is the account of the round until now, or until it was over.
func (s *state) lap(now time.Duration) job.Lap {
	m := s.Marks
	at := func(t *time.Duration, otherwise time.Duration) time.Duration {
		if t == nil {
			return otherwise
		}
		return *t
	}
	l := job.Lap{Round: s.Round, World: m.World, Of: m.Of, Over: m.Clear != nil, Class: m.Class, Why: m.Why, Blind: m.Begun != nil && s.Reached == unheard}
	if m.Node > 0 && m.Node <= len(s.Nodes) {
		node := m.Node - 1
		l.Node, l.Host = &node, s.Nodes[node].Name
	}
	if rank := m.Rank - 1; rank >= 0 {
		l.Rank = &rank
	}
	end := max(at(m.Clear, now), m.From)
	// Each moment is not before the one before it, and not after the end: so the parts sum up, whatever clocks and news say.
	last := m.From
	part := func(until time.Duration) time.Duration {
		until = min(max(until, last), end)
		d := until - last
		last = until
		return d
	}
	told := at(m.Told, end)
	fault := min(at(m.Since, told), told)
	begun := at(m.Begun, told)
	moved := at(m.Moved, fault)
	if l.Blind {
		moved = begun
	}
	redone := moved
	if m.Moved != nil && m.Before > 0 {
		redone = at(m.Redone, fault)
	}
	l.Meet, l.Load, l.Redo, l.Train, l.Detect, l.Stop = part(min(begun, told)), part(min(moved, fault)), part(min(redone, fault)), part(fault), part(told), part(end)
	return l
}

// turn ends the account of a round, and begins that of the next, in a world of so many workers with this mark.
func (s *state) turn(world int, of string) {
	if s.Nodes == nil { // the first
		s.Marks = marks{World: world, Of: of}
		return
	}
	end := s.Now
	if s.Marks.Clear != nil {
		end = *s.Marks.Clear
	}
	s.Marks.Clear = &end
	s.turns()
	l := s.lap(end)
	s.pauses(l)
	s.Laps = append(slices.Clone(s.Laps), l)
	if len(s.Laps) > maxLaps {
		s.Older = s.Older.Add(s.Laps[0])
		s.Laps = s.Laps[1:]
	}
	s.Marks = marks{From: end, World: world, Of: of, Before: s.Peak}
}

// spent is where the job's time went until now, as this node knows it.
func (s *state) spent(now time.Duration) job.Account {
	return job.Account{Older: s.Older, Laps: append(slices.Clone(s.Laps), s.lap(now)), Turns: s.Turns.Turns}
}
