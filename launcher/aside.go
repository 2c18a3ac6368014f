package launcher

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous"
)

// This file is the part of a node on which no worker can run. It ends with that, whatever becomes of the job. But where it hosts the store in
// which the others meet, it takes no place, and stays until the job is over.

// declineTime is how long such a node looks for a store that it does not host, and then how long it tries to tell the others there. The machine may
// be a busy one; a node that waits here has nothing else to do.
const declineTime = 5 * time.Second

// bars takes an error for which no worker can run on this node, though others may do without it, as the reason for that, if it is the first. Any
// other is returned.
func (p *Plan) bars(err error) error {
	var why *Error
	if !errors.As(err, &why) || !slices.Contains([]int{job.ExitRefused, job.ExitSystem, job.ExitNotFound, job.ExitNotExec}, why.Code) {
		return err
	}
	if p.Unfit == "" {
		p.Unfit, p.Cure, p.Code = why.Err.Error(), why.Hint, why.Code
	}
	return nil
}

// code is the exit status of a node on which no worker can run.
func (p Plan) code() int { return cmp.Or(p.Code, job.ExitRefused) }

// unfit is the end of such a node.
func (p Plan) unfit() error { return fail(p.code(), p.Cure, "%s", p.Unfit) }

// alone is that end where there is nobody else.
func (p Plan) alone() error {
	if p.Unfit == "" || p.Endpoint != "" {
		return nil
	}
	return p.unfit()
}

// sooner is what a node ended of that was over before it was in a world: what was wrong with it comes first.
func (p Plan) sooner(err error) error {
	if code := ExitCode(err); p.Unfit == "" || code == p.code() || code == job.ExitRefused {
		return err
	}
	return p.unfit()
}

// aside tells the others that this node runs no workers, and serves the store for them if that is up to it. It always fails.
func (m *meeting) aside(ctx context.Context, o rendezvous.Options) error {
	if !m.hosting {
		ctx, cancel := context.WithTimeout(ctx, min(m.c.JoinTimeout, declineTime))
		defer cancel()
		if err := rendezvous.Decline(ctx, m.store, m.spec, m.plan.Unfit); err != nil {
			m.c.Log.Debug(err.Error())
		}
		return m.plan.unfit()
	}
	m.c.Log.Error(m.plan.unfit().Error() + "; this node takes no place, and serves the meeting point to the others until the job is over")
	m.end = time.Now().Add(m.c.JoinTimeout)
	err := m.tellOthers(ctx, o)
	if ended := new(rendezvous.Ended); errors.As(err, &ended) {
		return fail(m.plan.code(), "", "%s; the job went on without this node: %s", m.plan.Unfit, ended.Verdict.Sentence)
	}
	if refused := new(rendezvous.Refusal); errors.As(err, &refused) && refused.Told > 0 {
		return fail(m.plan.code(), "", "%w", refused)
	}
	return err
}

// tellOthers is in one meeting after the other until the job is over, or all others have heard that without this node it cannot be.
func (m *meeting) tellOthers(ctx context.Context, o rendezvous.Options) (err error) {
	for others := m.spec.Nodes + m.spec.Spares - 1; others > 0; {
		var refused *rendezvous.Refusal
		if err = m.join(ctx, o); !errors.As(err, &refused) || refused.Told < 2 {
			return err
		}
		others -= refused.Told - 1
	}
	return err
}
