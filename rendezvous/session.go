package rendezvous

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous/store"
)

// A Session is this node's part in a world, from the agreement to the end.
//
// The store carried the meeting only. While the world lives, the leader, group rank 0, counts up one key so
// that newcomers see that the job runs; losing the store then ends nothing.
type Session struct {
	World job.World
	Rank  int // group rank of this node

	meeting shelf
	stop    context.CancelFunc
	stopped chan struct{} // closed when the key is not counted up any more
}

func begin(meeting shelf, w job.World, rank int) *Session {
	ctx, stop := context.WithCancel(context.Background())
	s := &Session{World: w, Rank: rank, meeting: meeting, stop: stop, stopped: make(chan struct{})}
	if rank != 0 {
		close(s.stopped)
		return s
	}
	go s.live(ctx)
	return s
}

// Resume is the session of a node whose agent took the place of one that died. Where the store came back empty, group rank 0
// makes the world known in it again.
func Resume(s store.Store, w job.World, rank int) *Session {
	return begin(shelf{Store: s}, w, rank)
}

// live counts up the world's key each beat. A store that does not answer is asked again at the next beat. A count that does
// not go up by itself means that the store came back empty.
func (s *Session) live(ctx context.Context) {
	defer close(s.stopped)
	ticks := time.NewTicker(beat)
	defer ticks.Stop()
	var signs int64
	for known := s.meeting.prefix != ""; ; {
		if known {
			now, err := s.meeting.add(ctx, keyAlive, 1)
			known = err != nil || now > signs
			signs = max(now, signs)
		}
		if !known && s.publish(ctx) == nil {
			known, signs = true, 0
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// publish makes the world known again, for those who come late.
func (s *Session) publish(ctx context.Context) error {
	n := &node{store: s.meeting.Store, spec: job.Spec{ID: s.World.ID}, seen: s.World.Generation - 1}
	past, err := n.arrive(ctx)
	if err != nil {
		return err
	}
	if past == nil {
		b, err := encodeOutcome(&outcome{World: &s.World})
		if err != nil {
			return err
		}
		if _, err := n.meeting.once(ctx, keyOutcome, b); err != nil {
			return err
		}
	}
	s.meeting = n.meeting
	_, err = s.meeting.add(ctx, keyAlive, 1)
	return err
}

// Close ends this node's part without a word: newcomers find out when the leader has been silent for 5 s.
func (s *Session) Close() error {
	s.stop()
	<-s.stopped
	return nil
}

// End says that the world is over, so that whoever waits for the next one need not find out by silence.
// Any member may say it, also twice. The error is the store's, and no reason to do anything.
func (s *Session) End(ctx context.Context) error {
	_ = s.Close()
	if s.meeting.prefix == "" {
		return nil // resumed, and not known again yet
	}
	b, err := json.Marshal(s.World.Generation)
	if err == nil {
		err = s.meeting.put(ctx, keyOver, b)
	}
	if err != nil {
		return fmt.Errorf("rendezvous: end generation %d: %w", s.World.Generation, err)
	}
	return nil
}
