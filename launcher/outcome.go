package launcher

import (
	"context"
	"errors"
	"sync"

	"github.com/muster-run/muster/job"
)

// An outcome is how a job ends, for those who wait to hear it.
type outcome struct {
	once    sync.Once
	known   chan struct{} // closed when it is
	verdict job.Verdict
}

func newOutcome() *outcome { return &outcome{known: make(chan struct{})} }

// is tells it. The first word counts.
func (o *outcome) is(v job.Verdict) {
	o.once.Do(func() {
		o.verdict = v
		close(o.known)
	})
}

// wait answers when it is known, also as the agent ends.
func (o *outcome) wait(ctx context.Context) (any, error) {
	select {
	case <-o.known:
		return o.verdict, nil
	case <-ctx.Done():
	}
	select {
	case <-o.known:
		return o.verdict, nil
	default:
		return nil, errors.New("this agent ends, and the job may go on")
	}
}
