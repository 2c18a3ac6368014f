package launcher

import (
	"context"
	"testing"
	"time"
)

// The time for the workers' start bounds no meeting after they were started, as the deadline does.
func TestLimitsOfAnotherMeeting(t *testing.T) {
	for _, test := range []struct {
		deadline time.Duration
		slow     <-chan time.Time
		over     bool
	}{
		{0, nil, false},
		{time.Second, nil, true},
		{0, make(chan time.Time), true}, // no worker was started yet
	} {
		r := round{c: Config{Deadline: test.deadline, StartTimeout: time.Second}, desk: &desk{began: time.Now().Add(-time.Minute)}, slow: test.slow}
		ctx, cancel := r.within()
		if over := ctx.Err() != nil; over != test.over {
			t.Errorf("%+v: %v", test, context.Cause(ctx))
		}
		cancel()
	}
}
