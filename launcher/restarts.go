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

// ran is for how long nothing has failed since the last start.
func (s *state) ran() time.Duration {
	if !s.Started {
		return 0
	}
	return s.Now - max(s.Began, s.Mended)
}

// forgive takes the failures before this round back, if it ran for long enough until something, or an order, ended it.
func (s *state) forgive(p policy) {
	if p.Window > 0 && s.Order == "" && s.Started && s.ran() >= p.Window {
		s.Free = s.last()
	}
}

// backOff is the pause before the next round: the first failure gets none, for most are over when the job has been stopped. It
// returns the end of a sentence.
func (s *state) backOff(p policy) string {
	pause := s.pause(p)
	if pause > 0 {
		s.Rest = s.Now + pause
	}
	return pauseText(pause)
}

// pause is how long it takes.
func (s *state) pause(p policy) time.Duration {
	failures := s.last() - s.Free
	switch {
	case s.ran() >= longRound || failures < 1 || p.Backoff == 0:
		return 0
	case failures >= 20: // no overflow
		return p.Backoff
	}
	return min(p.Backoff, firstRest<<(failures-1))
}

func pauseText(pause time.Duration) string {
	if pause == 0 {
		return ""
	}
	return fmt.Sprintf(" after %v", pause)
}

// blame counts the rounds that failed on each node, and leaves out one where too many did, if the others can do without it. It
// returns the end of a sentence.
func (s *state) blame(p policy, f job.Failure) string {
	if p.Exclude == 0 || f.Group < 0 || f.Group >= len(s.Nodes) {
		return ""
	}
	out := p.excludes(s, f.Group)
	count := s.count(f.Group)
	if !out {
		return ""
	}
	n := s.edit(f.Group)
	delete(s.Blame, n.ID)
	n.Out = fmt.Sprintf("%d rounds failed on %s", count, nodeName(s.Nodes, f.Group))
	return "; " + leftOut(n.Out, p.Rest)
}

// count counts one more failure on a node.
func (s *state) count(n int) int {
	blame := map[string]int{}
	maps.Copy(blame, s.Blame)
	blame[s.Nodes[n].ID]++
	s.Blame = blame
	return blame[s.Nodes[n].ID]
}

// excludes reports whether a node is left out for one more failure: too many were there, and the others can do without it.
func (p policy) excludes(s *state, n int) bool {
	return p.Exclude > 0 && s.Blame[s.Nodes[n].ID]+1 >= p.Exclude && !s.Nodes[n].Gone && p.Yields && s.present()-1+s.Queue >= p.Fewest
}

// leftOut says it of a node.
func leftOut(why string, rest time.Duration) string {
	return fmt.Sprintf("%s, which is left out for %v", why, rest)
}
