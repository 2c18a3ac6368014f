package torchrun

import "time"

// How torchrun keeps time. Nodes must agree on it, and so must their clocks: heartbeats are times of the wall.
const (
	look     = time.Second      // between two looks at the state, while there is nothing to do
	beat     = 5 * time.Second  // age of a heartbeat that its node renews
	dead     = 15 * time.Second // age of a heartbeat whose node the others drop
	lastCall = 30 * time.Second // for more nodes, when there are as many as needed and fewer than allowed
)

// An action is what a node does next to become part of a round.
type action int

const (
	wait           action = iota // look again later
	renew                        // its heartbeat
	join                         // the round that is forming
	complete                     // that round
	queue                        // for the next round, which makes the running nodes restart
	spare                        // stand by, for all places are taken
	stopSparing                  // there is a place
	inRound                      // it is in a complete round
	leaveForClosed               // there will be no round any more
)

// decide says what a node that wants to take part does next. The order of the questions is torchrun's.
func decide(s *State, me Desc, limits Limits, now time.Time) action {
	_, in := s.Participants[me]
	switch full := len(s.Participants) >= limits.Max; {
	case s.Closed:
		return leaveForClosed
	case s.Redundancy[me] && !full:
		return stopSparing
	case s.Redundancy[me]:
	case s.Complete && in:
		return inRound
	case s.Complete && !full && !s.WaitList[me]:
		return queue
	case s.Complete && full && s.Layout.Redundancy:
		return spare
	case !s.Complete && in && len(s.Participants) >= limits.Min && !s.Deadline.IsZero() && s.Deadline.Before(now):
		return complete
	case !s.Complete && !in:
		return join
	}
	if now.Sub(s.Heartbeats[me]) > beat {
		return renew
	}
	return wait
}

// apply does a to the state; it reports whether that changed it.
func (s *State) apply(a action, me Desc, limits Limits, now time.Time) bool {
	switch a {
	case renew:
	case join:
		delete(s.WaitList, me)
		s.Participants[me] = 0
		if len(s.Participants) == limits.Min {
			s.Deadline = now.Add(limits.LastCall)
		}
		if len(s.Participants) == limits.Max {
			s.complete()
		}
	case complete:
		s.complete()
	case queue:
		s.WaitList[me] = true
	case spare:
		delete(s.WaitList, me)
		s.Redundancy[me] = true
	case stopSparing:
		delete(s.Redundancy, me)
	default:
		return false
	}
	s.Heartbeats[me] = now
	return true
}

// complete ends the meeting and gives the ranks.
func (s *State) complete() {
	s.Complete, s.Deadline = true, time.Time{}
	for rank, d := range sorted(s.Participants) {
		s.Participants[d] = int32(rank)
	}
}

// bury drops the nodes whose heartbeats have stopped.
func (s *State) bury(limits Limits, now time.Time) {
	for d, last := range s.Heartbeats {
		if now.Sub(last) > dead {
			s.drop(d, limits)
		}
	}
}

// drop takes a node out. A round is over when its last participant is.
func (s *State) drop(d Desc, limits Limits) {
	_, took := s.Participants[d]
	delete(s.Heartbeats, d)
	delete(s.WaitList, d)
	delete(s.Redundancy, d)
	delete(s.Participants, d)
	switch {
	case !took:
	case s.Complete && len(s.Participants) == 0:
		s.Complete = false
		s.Round++
	case !s.Complete && len(s.Participants) < limits.Min:
		s.Deadline = time.Time{}
	}
}
