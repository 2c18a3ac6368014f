package launcher

import "github.com/muster-run/muster/heartbeat"

// This file is the judgement after an agent was replaced, this one or a peer's: each side tells the other how it stands, and
// what was begun is done again. News that come twice change nothing.

// resumed goes on with what the agent that died may not have come to do.
func (s *state) resumed(p policy) []any {
	to := 0
	s.Wish = "" // who gave it knows that it was not answered
	if s.leads() {
		to = everyone
	}
	todo := append(s.forgotten(p), s.standing(p, to)...)
	switch {
	case s.Meeting:
		return []any{s.meet(p)}
	case s.mayBegin():
		todo = append(todo, begin{*s.Start})
	case s.leads() && s.waits():
		todo = append(todo, open{})
	}
	return todo
}

// forgotten takes back what the agent that died had said of a standstill: the next begins to watch anew, and says so again if it lasts. A
// member hears from its leader, which tells what it has said when it sees the member again. Where workers are being stopped nobody judges it any
// more, and it is what the round ended of.
func (s *state) forgotten(p policy) []any {
	if s.Stall == nil || s.Stopping {
		return nil
	}
	if !s.leads() {
		s.Stall = nil
		return nil
	}
	e := stalled{Finding: heartbeat.Finding{Stage: heartbeat.Resumed}, Text: "another agent watches over the workers now; it begins anew to judge whether they stand still", Group: -1}
	return append([]any{tell{everyone, news{Kind: newsStalled, Stalled: &e}}}, s.noted(p, e)...)
}

// waits reports whether this round's workers were not started, and are to be.
func (s *state) waits() bool {
	return s.Verdict == nil && s.Next == nil && !s.Stopping && !s.Started && !s.Empty
}

// mayBegin reports whether they can be: the place where they meet is there.
func (s *state) mayBegin() bool { return s.waits() && s.Start != nil }

// standing is what others must know of this node, whatever they have heard before.
func (s *state) standing(p policy, to int) []any {
	todo := s.isHere(p)
	say := func(n news) { todo = append(todo, tell{to, n}) }
	if !s.leads() {
		s.account(say)
		return todo
	}
	if s.Start != nil {
		say(news{Kind: newsStart, Start: s.Start})
	}
	if s.Stopping {
		stop := news{Kind: newsStop, Order: s.Order, Held: s.Held > 0}
		if s.Order != "" && len(s.Past) > 0 {
			stop.Why = s.Past[len(s.Past)-1].Message
		}
		say(stop)
	}
	if len(s.Mends) > 0 {
		say(news{Kind: newsMend, Mends: s.Mends})
	}
	if s.Stall != nil {
		still := *s.Stall
		still.Finding.Quiet = s.Now - s.Stood
		say(news{Kind: newsStalled, Stalled: &still})
	}
	if s.Next != nil {
		todo = append(todo, s.farewell(p, to)...)
	}
	if s.Verdict != nil {
		say(news{Kind: newsVerdict, Verdict: s.Verdict})
	}
	return todo
}

// account is a member's: what became of its workers, and what it wants.
func (s *state) account(say func(news)) {
	me := s.Nodes[s.Self]
	switch {
	case s.Own != nil && s.Own.First != nil:
		for _, c := range s.Causes {
			if f := c.Failure; f != nil && c.Node == s.Self {
				again := *f
				again.Ago = s.Now - c.At
				say(news{Kind: newsFailed, Failure: &again})
			}
		}
	case s.Own != nil:
		say(news{Kind: newsEnding, Verdict: s.Own})
	}
	if s.Wanted != nil {
		say(news{Kind: newsEnding, Verdict: s.Wanted})
	}
	for _, f := range s.Down {
		say(news{Kind: newsFailed, Failure: &f})
	}
	if me.Quits && s.Verdict != nil { // else its goodbye is a loss to another agent of the leader
		say(news{Kind: newsQuit, Why: s.Verdict.Sentence})
	}
	switch {
	case me.Done:
		say(news{Kind: newsDone, Ranks: s.Ranks})
	case me.Ends:
		say(news{Kind: newsEnds})
	}
	if me.Clear {
		say(news{Kind: newsClear, Ranks: s.Ranks})
	}
	if s.Wish != "" {
		say(s.wish().News)
	}
}

// stale reports whether news are of another round, or known.
func (s *state) stale(from int, n news) bool {
	switch n.Kind {
	case newsFailed:
		return n.Round != s.Round || s.knows(from, n)
	case newsDone:
		return n.Round != s.Round || s.Nodes[from].Done
	case newsClear:
		return n.Round != s.Round || s.Nodes[from].Clear
	case newsStop, newsMeet, newsLapsed, newsMend, newsEnds:
		return n.Round != s.Round
	}
	return false
}

// knows reports whether a failure was told before.
func (s *state) knows(from int, n news) bool {
	if n.Failure == nil {
		return false
	}
	if m := s.life(n.Failure.Rank); m != nil && n.Failure.Restarts < m.Number {
		return true
	}
	for _, c := range s.Causes {
		if c.Node == from && c.Failure != nil && c.Failure.PID == n.Failure.PID && c.Failure.Rank == n.Failure.Rank {
			return true
		}
	}
	return false
}
