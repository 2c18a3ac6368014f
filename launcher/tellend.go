package launcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/store"
)

// This file is how the leader tells how the job ended. A spare that does not hear it begins the job again, and who hosts the store and has no workers
// waits for minutes.

// How long that may take: where nobody can wait, and where somebody may. The store may be on a machine that is busy, or be away just now.
const (
	endTime     = 2 * time.Second
	lateEndTime = 20 * time.Second
	endPause    = time.Second     // between two tries that failed
	sayTime     = 6 * time.Second // until it is said that the store is away: by then it is known why
)

// tellEnd tells those who wait for another world. The exit status is known by then: it is not that of this.
func (r *round) tellEnd(ctx context.Context) error {
	how, patience := r.state.over(), r.endPatience(time.Now())
	if patience <= endTime {
		r.tellBriefly(ctx, how)
		return nil
	}
	r.meeting.gone.Store(nil) // what was so while the world lived
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	late := make(chan struct{})
	timer := time.AfterFunc(sayTime, func() { defer close(late); r.sayLate(patience) })
	err := r.keepEnding(ctx, how)
	if !timer.Stop() {
		<-late
		if err == nil {
			r.c.Log.Info("the store answers again, and how the job ended was said there, for who waits")
		}
	}
	if err != nil && !errors.Is(err, store.ErrClosed) {
		r.c.Log.Warn(fmt.Sprintf("how the job ended was not said in the store at %s: %s; who waits there may begin it again", r.meeting.port, r.untold(err)))
	}
	return nil
}

// tellBriefly is tellEnd where there is no time, or nobody is known to wait: then not in a store that refuses, for the member that hosted it may have
// heard of the end, and be gone.
func (r *round) tellBriefly(ctx context.Context, how rendezvous.Over) {
	ctx, vain := context.WithCancel(ctx)
	defer vain()
	if r.session.Awaited() == 0 {
		r.meeting.vain.Store(&vain)
		defer r.meeting.vain.Store(nil)
	}
	r.tellOver(ctx, r.session, how, endTime)
}

// tellAgain is tellEnd in the place of an agent that died meanwhile, for all it had said. It has the time that is, anew.
func (c Config) tellAgain(ctx context.Context, h *heritage, s state, began time.Time) {
	if !s.leads() || s.Quit != nil || !h.Plan.Spec.Standby() {
		return
	}
	desk := openDesk(c, h.Plan, h.Dir, began)
	defer desk.close()
	_, _ = c.unlessAsked(ctx, desk.orders, "", func(ctx context.Context) error {
		m, err := openMeeting(ctx, c, h, desk)
		defer m.close()
		if err != nil {
			c.Log.Warn(err.Error())
			return nil
		}
		m.resumeSession()
		r := &round{c: c, h: h, plan: h.Plan, policy: h.Policy, meeting: m, session: m.session, desk: desk, state: s}
		return r.tellEnd(ctx)
	})
}

// keepEnding says how the world ended until the store has heard it, or says for longer than a moment why it does not.
func (r *round) keepEnding(ctx context.Context, how rendezvous.Over) error {
	begun := time.Now()
	for {
		err := r.session.End(ctx, how)
		if err == nil || ctx.Err() != nil || errors.Is(err, store.ErrClosed) || !errors.Is(err, store.ErrUncertain) && time.Since(begun) >= endTime {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(endPause):
		}
	}
}

// untold is why the store did not take it: what it said itself, or why it is away.
func (r *round) untold(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUncertain) {
		return "it is away: " + r.meeting.because()
	}
	return err.Error()
}

// endPatience is how long this node tells how the job ended. Who came when etcd was about to go, or was away, is not known to wait; where a job has
// such nodes, it is as long as if one did. A store that a node hosts has gone with that node. One that was told to stop has no more time than its workers had.
func (r *round) endPatience(now time.Time) time.Duration {
	if r.state.Quit != nil || r.session.Awaited() == 0 && (r.plan.Etcd == nil || !r.plan.Spec.Standby()) {
		return endTime
	}
	if !r.told.IsZero() {
		return min(lateEndTime, r.told.Add(r.rules().Grace).Sub(now))
	}
	return lateEndTime
}

// sayLate says why this node does not end yet.
func (r *round) sayLate(patience time.Duration) {
	who := "nodes may wait"
	if n := r.session.Awaited(); n > 0 {
		who = queueing(n)
	}
	why := fmt.Sprintf("%s to hear how the job ended, and the store at %s is away: %s", who, r.meeting.port, r.meeting.because())
	r.c.Log.Warn(fmt.Sprintf("%s; this node tries for %v more to tell it", why, (patience - sayTime).Round(time.Second)))
	s := r.desk.now()
	s.waits = why
	r.desk.show(s)
}
