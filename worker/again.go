package worker

import (
	"context"
	"time"

	"github.com/muster-run/muster/job"
)

// This file is how one worker of a group is started again while the others run.

// An order is to start a task again.
type order struct {
	task  job.Task
	round int
	after time.Duration
}

// Again starts the i-th task again as the one given, when its worker has failed and nothing is left of that, and this time has
// passed; round is the number of the new life, in its tag and in the names of its log files. A group that is being stopped starts nothing. How the
// new worker ends, or why it could not be started, is delivered by Exits. Options.Mends must be set, and the end of the worker before
// have been delivered.
func (g *Group) Again(i int, t job.Task, round int, after time.Duration) {
	g.orders[i] <- order{t, round, after}
}

// next waits for the order to start the i-th task again, whose worker m has ended, and obeys; nil: there will be none.
func (g *Group) next(i int, m *member) *member {
	if !g.opt.Mends || m.well {
		return nil
	}
	select {
	case o := <-g.orders[i]:
		return g.replace(i, m, o)
	case <-g.stopping:
		return nil
	}
}

// replace starts a worker in place of one that has failed.
func (g *Group) replace(i int, old *member, o order) *member {
	select {
	case <-time.After(o.after):
	case <-g.stopping:
	}
	if g.ends() { // both may be true
		return nil
	}
	m, err := (*member)(nil), old.stuck
	if err == nil {
		m, err = g.start(context.Background(), o.task, o.round)
	}
	if err != nil {
		g.exits <- Exit{Task: o.task, At: time.Now(), Err: &StartError{o.task, err}}
		return nil
	}
	g.processes.Forget(old.child.PID)
	g.enlist(i, m)
	return m
}

// ends reports whether the group was asked to stop.
func (g *Group) ends() bool {
	select {
	case <-g.stopping:
		return true
	default:
		return false
	}
}

// enlist makes m a member. What the others were asked for in the meantime it is, too.
func (g *Group) enlist(i int, m *member) {
	g.mu.Lock()
	g.members[i] = m
	stops := g.stops
	g.mu.Unlock()
	for _, how := range stops {
		m.ask(g.processes, how)
	}
	select {
	case <-g.killed:
		g.killAll([]*member{m})
	default:
	}
}
