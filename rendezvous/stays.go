package rendezvous

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous/store"
)

// This file is about a job that ended well where the platform starts again whatever ends. Its agents stay, so that it does not begin anew. A node that is
// made again beside them waits for all the others to come again, too, as long as one of those who stay says so: without them it would give up, and come
// once more, for ever, or begin the job with the few that were made again.

// staysTime is for how long the word of those who stay counts.
const staysTime = time.Minute

// Stay says in a store in which nodes of this job meet that come again, that the job ended well with this world, and that an agent stays that was in it.
func (s *Session) Stay(ctx context.Context, at store.Store, v job.Verdict) error {
	there := &Session{World: s.World, Rank: s.Rank, rest: s.rest, protocol: s.protocol, meeting: shelf{Store: at}}
	err := there.sayOver(ctx, Over{Generation: s.World.Generation, Verdict: &v})
	if err == nil {
		_, err = there.meeting.add(ctx, keyStays, 1)
	}
	if err != nil {
		return fmt.Errorf("rendezvous: say that agents of generation %d stay: %w", s.World.Generation, err)
	}
	return nil
}

// hearStays hears whether agents stay of the job that ended well, and does not give up as long as they do.
func (n *node) hearStays(ctx context.Context) error {
	if n.before.over != nil && n.before.over.well() {
		n.well = n.before.meeting
	}
	if !n.Stays || n.well.Store == nil {
		return nil
	}
	b, found, err := n.well.peek(ctx, keyStays)
	if err != nil || !found || string(b) == n.sign {
		return err
	}
	n.sign, n.heard = string(b), time.Now()
	n.wait()
	return nil
}

// wasTold reports whether agents that stay told the store of the world with which the job ended well: it never lived there, and nobody stood by beside it.
func (n *node) wasTold(ctx context.Context, at shelf) (bool, error) {
	if !n.Stays || !n.before.over.well() {
		return false, nil
	}
	_, lived, err := at.peek(ctx, keyAlive)
	return !lived, err
}

// beside reports whether agents stay of the job that ended well: no world begins without all of its nodes.
func (n *node) beside() bool { return !n.heard.IsZero() && time.Since(n.heard) < staysTime }

// well reports whether the job ended, and well.
func (o Over) well() bool { return o.Verdict != nil && o.Verdict.OK() }
