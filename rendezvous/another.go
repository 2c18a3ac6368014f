package rendezvous

import (
	"cmp"
	"context"
	"time"

	"github.com/muster-run/muster/job"
)

// This file is about jobs that meet in one store under one id, as those do to which nobody gave any: of two users of one head node, or a new job and the one before it, of
// which nodes are left. Nobody may take them for one. A world that is full and runs another command than a newcomer is another job's: the newcomer does not meet
// with its members, whatever worlds follow in that job, and begins its own when nobody is left of it. It leaves no ticket meanwhile, for a leader of an older release
// would count it.
//
// Nodes of one job may run different commands. So nobody is refused for that, and where the nodes of a world do, or it takes in whoever comes, nobody can tell. Nor is one
// another job's that comes in the place of a node which died: its command may have the time in it. Who came before that one was known to have died waits all the same, until
// those whom it would join give up: two jobs in one world would be worse.

// program is what the nodes of a world run.
func program(tickets []ticket) uint64 {
	known, unknown := uint64(0), false
	for _, t := range tickets {
		switch {
		case t.Program == 0: // it is of an older release
			unknown = true
		case known == 0:
			known = t.Program
		case known != t.Program:
			return job.Various
		}
	}
	if unknown {
		return 0
	}
	return known
}

// runsAnother reports whether a world that takes nobody in runs another command than this node, which was in none yet. Of a job of which one did it is every
// world that does not run this node's: a node that came in the place of another may have changed what is known of that.
func (n *node) runsAnother(w *world) bool {
	theirs, own := w.Terms.Program, n.spec.Program
	if n.apart {
		return theirs != own
	}
	return n.Seen == 0 && !w.Terms.Standby() && theirs != 0 && theirs != job.Various && own != 0 && theirs != own
}

// isApart reports whether the world before is another job's, which goes on. Once it was, the worlds that follow it are, too.
func (n *node) isApart(ctx context.Context) (bool, error) {
	switch {
	case n.before.world == nil || !n.runsAnother(n.before.world):
		return false, nil
	case n.apart, n.contradicts(n.record()) != nil:
		n.apart = true
		return true, nil
	case n.before.running() == 0: // it is about to take in others for those whom it lost
		return false, nil
	}
	m, lives, err := n.incumbent(ctx)
	n.apart = err == nil && (m == nil || lives)
	return n.apart, err
}

// outlast waits until the world before and all that follow it are over, or nobody is left of them. It returns when there is something new to find.
func (n *node) outlast(ctx context.Context) error {
	var meets watch // its members, for their next world
	for {
		if err := n.before.look(ctx); err != nil {
			return err
		}
		n.tell(Status{Here: []string{n.spec.Self.String()}, Count: 1, Expected: n.spec.Nodes, Fewest: n.spec.Fewest(),
			Running: n.before.world.Generation, Another: true, Meets: n.before.over != nil, Alive: n.before.alive, Quiet: n.before.quiet()})
		moved := meets.moved
		left, err := n.left(ctx, &meets)
		if meets.moved != moved { // they live
			n.wait()
		}
		if err != nil {
			return err
		}
		if left {
			n.outlasted = n.before.world.Nonce
			return errAgain
		}
		if err := n.changes(ctx); err != nil {
			return err
		}
	}
}

// left reports whether nobody is left of the job before: nothing is heard of its world for as long as its members may live without its leader, and nobody answers,
// or nobody meets for its next one.
func (n *node) left(ctx context.Context, meets *watch) (bool, error) {
	need := max(silent, n.Fence, n.before.fence())
	if n.before.over == nil {
		if n.before.watch.still() < need {
			return false, nil
		}
		if n.answers(ctx, nil) {
			n.before.answered()
			n.wait()
			return false, nil
		}
		return true, nil
	}
	b, _, err := n.meeting.peek(ctx, keySummary)
	return meets.silent(string(b)) && time.Since(n.before.heard) >= need, err
}

// changes waits for a beat, or until the job before is over, or has another world, or the store came back empty. Then the error is errAgain.
func (n *node) changes(ctx context.Context) error {
	at, key := n.before.meeting, keyOver
	if n.before.over != nil {
		at, key = n.meeting, keyOutcome
	}
	_, found, err := at.await(ctx, key, time.Now().Add(beat))
	if err != nil {
		return err
	}
	if lost, err := n.forgotten(ctx); lost || err != nil {
		return cmp.Or(err, errAgain)
	}
	if n.before.over != nil && found {
		return errAgain
	}
	if over, err := n.before.ended(ctx); !over || err != nil || n.before.over.Verdict == nil {
		return err
	}
	return errAgain
}
