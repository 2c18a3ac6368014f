package launcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muster-run/muster/rendezvous/store"
)

// This file is how the leader tells how the job ended. A spare that does not hear it begins the job again, and who hosts the store and has no workers
// waits for minutes.

// How long that may take: where nobody is known to wait, and where somebody is. The store may be on a machine that is busy, or be away just now.
const (
	endTime     = 2 * time.Second
	lateEndTime = 20 * time.Second
	endPause    = time.Second // between two tries that failed
)

// tellEnd tells those who wait for another world. The exit status is known by then: it is not that of this.
func (r *round) tellEnd(ctx context.Context) error {
	how, patience := r.state.over(), r.endPatience(time.Now())
	if patience <= endTime {
		r.tellOver(ctx, r.session, how, endTime)
		return nil
	}
	r.meeting.gone.Store(nil) // what was so while the world lived
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	late := make(chan struct{})
	timer := time.AfterFunc(endTime, func() { defer close(late); r.sayLate(patience) })
	err := r.session.End(ctx, how)
	for err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrClosed) {
		select {
		case <-ctx.Done():
		case <-time.After(endPause):
			err = r.session.End(ctx, how)
		}
	}
	if timer.Stop() {
		return nil
	}
	<-late
	if err == nil {
		r.c.Log.Info("who waits was told how the job ended")
		return nil
	}
	r.c.Log.Warn(fmt.Sprintf("nobody who waits was told how the job ended, for the store at %s is away: %s; they may begin it again", r.meeting.port, r.meeting.because()))
	return nil
}

// endPatience is how long this node tells how the job ended. One that was told to stop has no more time than its workers had.
func (r *round) endPatience(now time.Time) time.Duration {
	if r.state.Quit != nil || r.session.Awaited() == 0 {
		return endTime
	}
	if !r.told.IsZero() {
		return min(lateEndTime, r.told.Add(r.rules().Grace).Sub(now))
	}
	return lateEndTime
}

// sayLate says why this node does not end yet.
func (r *round) sayLate(patience time.Duration) {
	why := fmt.Sprintf("%s to hear how the job ended, and the store at %s is away: %s", queueing(r.session.Awaited()), r.meeting.port, r.meeting.because())
	r.c.Log.Warn(fmt.Sprintf("%s; this node tries for %v more to tell it", why, (patience - endTime).Round(time.Second)))
	s := r.desk.now()
	s.waits = why
	r.desk.show(s)
}
