package launcher

import (
	"fmt"
	"maps"
	"time"

	"github.com/muster-run/muster/job"
)

// This file is the judgement of how often, and how soon, a round that failed is followed by another. Rounds that did not fail,
// because nodes came or went, or by order, are free.

const (
	longRound = time.Minute // a round that ran so long did not fail in a row with the one before
	firstRest = time.Second // after the second failure in a row; each further one doubles it
)

// forgive takes the failures before this round back, if it ran for long enough.
func (s *state) forgive(p policy) {
	if p.Window > 0 && s.Started && s.Now-s.Began >= p.Window {
		s.Free = s.Round
	}
}

// backOff is the pause before the next round: the first failure gets none, for most are over when the job has been stopped. It
// returns the end of a sentence.
func (s *state) backOff(p policy) string {
	failures := s.Round - s.Free
	if s.Started && s.Now-s.Began >= longRound || failures < 1 || p.Backoff == 0 {
		return ""
	}
	pause := p.Backoff
	if failures < 20 { // no overflow
		pause = min(pause, firstRest<<(failures-1))
	}
	s.Rest = s.Now + pause
	return fmt.Sprintf(" after %v", pause)
}

// blame counts the rounds that failed on each node, and leaves out one where too many did, if the others can do without it. It
// returns the end of a sentence.
func (s *state) blame(p policy, f job.Failure) string {
	if p.Exclude == 0 || f.Group < 0 || f.Group >= len(s.Nodes) {
		return ""
	}
	n := &s.Nodes[f.Group]
	blame := map[string]int{}
	maps.Copy(blame, s.Blame)
	s.Blame = blame
	count := blame[n.ID] + 1
	blame[n.ID] = count
	if count < p.Exclude || n.Gone || !p.Yields || s.present()-1+s.Queue < p.Fewest {
		return ""
	}
	delete(blame, n.ID)
	n.Out = fmt.Sprintf("%d rounds failed on %s", count, nodeName(s.Nodes, f.Group))
	return "; " + leftOut(n.Out, p.Rest)
}

// leftOut says it of a node.
func leftOut(why string, rest time.Duration) string {
	return fmt.Sprintf("%s, which is left out for %v", why, rest)
}
