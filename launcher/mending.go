package launcher

import (
	"errors"

	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/worker"
)

// This file is how one worker is started again in place.

// in is a worker's place in its new life.
func (m mend) in(place framework.Place, errorDir string) framework.Place {
	place.Restarts, place.MaxRestarts, place.ErrorDir = m.Number, m.MaxRestarts, errorDir
	return place
}

// task is a worker's task in its new life.
func (r *round) task(m mend) job.Task {
	local := m.Rank - r.session.World.Members[r.session.Rank].First
	return r.h.withRAS(r.paged(r.plan.Tasks(m.in(*r.place, r.roundDir(m.Number)), r.c)[local]))
}

// mend starts a worker of this node again. On other nodes it is only counted.
func (r *round) mend(m mend) {
	r.record()
	if m.Node != r.session.Rank || r.group == nil {
		return
	}
	t := r.task(m)
	if err := r.errorDir(r.roundDir(m.Number), t.LocalRank); err != nil {
		r.c.Log.Warn(err.Error())
	}
	r.scene = openScene(r.c)
	r.group.Again(t.LocalRank, t, m.Number, m.After)
}

// unmended tells why a worker was not started again.
func (r *round) unmended(e worker.Exit) {
	switch {
	case errors.Is(e.Err, pid1.ErrLost):
		r.post(broken{r.firstLost()})
	case errors.Is(e.Err, pid1.ErrLapsed):
		r.post(lapsed{})
	default:
		f := r.notStarted(e.Err)
		r.post(finished{job.Ended{Rank: f.Rank, LocalRank: f.LocalRank, Group: f.Group, Exit: f.Exit}, &f})
	}
}
