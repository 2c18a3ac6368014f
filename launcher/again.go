package launcher

import (
	"context"
	"errors"
	"time"

	"github.com/muster-run/muster/rendezvous"
)

// This file is how a node goes from one world to the next.

// tellOver tells those who wait for another world how this one ended. They find out by silence too, later.
func (r *round) tellOver(ctx context.Context, s *rendezvous.Session, how rendezvous.Over, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := s.End(ctx, how); err != nil {
		r.c.Log.Debug(err.Error())
	}
}

// keepTelling is tellOver while this node meets the others: the way to the store may be broken now, and open in a moment. The
// function that it returns ends that.
func (r *round) keepTelling(ctx context.Context, s *rendezvous.Session, how rendezvous.Over) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() {
		defer close(told)
		r.tellOver(ctx, s, how, r.c.RejoinTimeout)
	}()
	return func() { cancel(); <-told }
}

// over is how a world has ended whose leader ends.
func (s *state) over() rendezvous.Over {
	if s.Quit != nil {
		return rendezvous.Over{Expect: s.Expect, Lost: s.Lost}
	}
	v := s.verdict()
	return rendezvous.Over{Verdict: &v}
}

// meet leaves this world, which is over, and takes part in the meeting for the next.
func (r *round) meet(d meet) {
	left := r.leave()
	r.show()
	asked, err := r.meetAgain(d, left)
	if err != nil {
		e := unmet{Verdict: VerdictOf(err)}
		if missing := new(rendezvous.Missing); errors.As(err, &missing) && len(missing.Status.Here) > 0 {
			e.First = missing.Status.Here[0]
		}
		r.post(e)
		return
	}
	r.begins(asked)
}

// leave ends what this node has of a world, and returns its part in it; nil: it had left before.
func (r *round) leave() *rendezvous.Session {
	left := r.session
	if left != nil {
		left.Close()
	}
	r.clear()
	_ = r.c.First.Drop(keptHeard) // of peers of this world
	r.store.close(r.c)
	r.store, r.queue = nil, nil
	r.line.close()
	r.join(nil, &line{})
	return left
}

// meetAgain agrees with the others on the next world, after this node has told of the last one's end, if that is up to it.
func (r *round) meetAgain(d meet, left *rendezvous.Session) (asked any, err error) {
	ctx, cancel := r.within()
	defer cancel()
	options := r.meeting.brings(r.rules(), d.Past)
	options.Seen, options.Led, options.Previous = r.state.Generation, r.state.Led, r.h.World
	if d.Rest > 0 {
		options.NotBefore = time.Now().Add(d.Rest)
	}
	var l *line
	asked, err = r.c.unlessAsked(ctx, r.desk.orders, "while the nodes met for the next round", func(ctx context.Context) (err error) {
		if left != nil && d.Expect > 0 {
			defer r.keepTelling(ctx, left, rendezvous.Over{Expect: d.Expect, Lost: r.state.Lost})()
		}
		l, err = r.meeting.next(ctx, options, d.Out, r.h.met)
		return err
	})
	if err != nil {
		r.c.tellAsked(asked)
		return nil, err
	}
	r.join(r.meeting.session, l)
	return asked, nil
}

// within bounds a meeting by what limits the job. Workers that were started once were started in time.
func (r *round) within() (context.Context, context.CancelFunc) {
	c := r.c
	if r.slow == nil {
		c.StartTimeout = 0
	}
	return c.within(context.Background(), r.desk.began)
}
