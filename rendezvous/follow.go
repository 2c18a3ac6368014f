package rendezvous

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// follow waits for the outcome and shows presence meanwhile. It returns nothing when this node is to lead.
func (n *node) follow(ctx context.Context) (*outcome, error) {
	var leader watch
	for {
		b, found, err := n.meeting.await(ctx, keyOutcome, n.next)
		if err != nil {
			return nil, err
		}
		if found {
			return n.read(b)
		}
		if err := n.outlived(ctx); err != nil {
			return nil, err
		}
		n.next = time.Now().Add(max(n.pace, beat))
		if err := cmp.Or(n.show(ctx), n.hearStays(ctx)); err != nil {
			return nil, err
		}
		lost, err := n.look(ctx, &leader)
		if err != nil {
			return nil, err
		}
		if !lost {
			continue
		}
		if err := n.claim(ctx); err != nil || n.leader == n.ticket {
			return nil, err
		}
		leader = watch{}
	}
}

// look reads what the leader tells and reports whether nobody leads any more.
// The words of an earlier leader do not count as a sign of life of the present one.
func (n *node) look(ctx context.Context, leader *watch) (lost bool, err error) {
	b, found, err := n.meeting.peek(ctx, keySummary)
	if err != nil {
		return false, err
	}
	var s summary
	if found {
		if s, err = decode[summary](b, maxSummary); err != nil {
			return false, fmt.Errorf("read %s: %w", keySummary, err)
		}
	}
	n.pace = min(max(s.Pace, n.pace), slowest)
	leader.pace = n.pace // as we do not look more often
	if s.Epoch > n.epoch {
		n.epoch, *leader = s.Epoch, watch{pace: n.pace}
	}
	if s.Epoch < n.epoch {
		return leader.silent(""), nil
	}
	if by, ok := s.Replaced[n.ticket]; ok {
		return false, &Excluded{Reason: taken(n.spec.Self, plain(by, maxReason)), Replaced: true}
	}
	if err := s.turnedAway(n.ticket); err != nil {
		return false, err
	}
	if !s.Resigned {
		s.Here = s.Here[:min(len(s.Here), shown)]
		for i, name := range s.Here {
			s.Here[i] = plain(name, 2*maxName) // with its index
		}
		s.Others = s.Others[:min(len(s.Others), boardShown)]
		for i, id := range s.Others {
			s.Others[i] = plain(id, maxShownID)
		}
		s.Unfit = s.Unfit[:min(len(s.Unfit), maxDoubts)]
		for i, why := range s.Unfit {
			s.Unfit[i] = plain(why, maxReason)
		}
		if n.before.world == nil { // it was over when we came
			s.Running = 0
		}
		n.before.alive = s.Alive
		n.tell(Status{Here: s.Here, Count: s.Count, Expected: n.spec.Nodes, Fewest: n.spec.Fewest(), Missing: s.Missing,
			Closes: s.Closes, New: s.New, Running: s.Running, Alive: s.Alive, Quiet: s.Quiet, Unsaid: s.Unsaid, UnsaidFor: s.UnsaidFor, Others: s.Others, Unfit: s.Unfit})
	}
	return s.Resigned || leader.silent(fmt.Sprint(s.Beat)), nil
}
