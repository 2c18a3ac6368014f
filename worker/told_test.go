package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/worker"
)

// What was told to end beside its worker has as much time for it; what was not told ends with the worker.
func TestToldWithTheirWorker(t *testing.T) {
	t.Parallel()
	const helper = `(trap 'sleep 0.3; echo saved; exit 0' TERM; echo up; while :; do sleep 0.01; done)`
	for name, c := range map[string]struct {
		script string
		scope  proc.Scope
		saves  bool
	}{
		"the tree":                    {helper + ` & wait`, proc.Tree, true},
		"a session of the tree":       {`setsid sh -c "` + helper + `" & wait`, proc.Tree, true},
		"the group":                   {helper + ` & wait`, proc.Group, true},
		"a session beside the group":  {`setsid sh -c "` + helper + `" & wait`, proc.Group, false},
		"the leader":                  {helper + ` & wait`, proc.Leader, false},
		"one of the tree that stays":  {`(trap '' TERM; echo up; while :; do sleep 0.01; done) & wait`, proc.Tree, false},
		"one of the group that stays": {`(trap '' TERM; echo up; while :; do sleep 0.01; done) & wait`, proc.Group, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, shell(c.script))
			r.await("up")
			ctx, cancel := context.WithTimeout(t.Context(), grace(c.saves))
			defer cancel()
			if err := r.Stop(ctx, worker.Stopping{Scope: c.scope}); err != nil {
				t.Error(err)
			}
			if want := (job.Exit{Signal: 15, Sent: true}); r.end()[0].Exit != want {
				t.Errorf("the worker did not end as it was told")
			}
			if out := r.out.text(); strings.Contains(out, "saved") != c.saves {
				t.Errorf("stdout %q", out)
			}
		})
	}
}

// grace is enough for whoever saves something, and short for who will not.
func grace(saves bool) time.Duration {
	if saves {
		return time.Minute
	}
	return time.Second
}
