package launcher

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/output"
)

// Lines of output are heartbeats of those who have no better ones.
func TestHeardOf(t *testing.T) {
	r := output.Rhythm{Bytes: 99, Matches: 5, Step: 40}
	for _, c := range []struct {
		b, want job.Beat
		look    bool
		r       output.Rhythm
	}{
		{job.Beat{Rank: 1}, job.Beat{Rank: 1, Sources: job.FromOutput, Count: 45, Steps: 40}, true, r},
		{job.Beat{Rank: 1}, job.Beat{Rank: 1}, true, output.Rhythm{Bytes: 99}},
		{job.Beat{Sources: job.FromBeats, Count: 3}, job.Beat{Sources: job.FromBeats, Count: 3}, false, r},
		{job.Beat{Sources: job.FromRecorder, Count: 3, Steps: 2}, job.Beat{Sources: job.FromRecorder, Count: 3, Steps: 2}, false, r},
	} {
		got := c.b
		if look := heardOf(&got, c.r); look != c.look || got.Sources != c.want.Sources || got.Count != c.want.Count || got.Steps != c.want.Steps {
			t.Errorf("%+v, %v; want %+v, %v", got, look, c.want, c.look)
		}
	}
}

// The first process is asked only for what somebody wants to know; one that never answers is not asked for ever.
func TestListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		w := &watch{ctx: t.Context(), rhythms: func(context.Context, []bool) ([]output.Rhythm, error) {
			asked++
			return []output.Rhythm{{Bytes: 1}}, nil
		}}
		if w.listen(false); asked != 0 {
			t.Error("asked, though nobody stands still")
		}
		if all := w.listen(true); asked != 1 || len(all) != 1 {
			t.Errorf("%d %v", asked, all)
		}
		w.c.Output.Progress = "step"
		if w.listen(false); asked != 2 {
			t.Error("not asked for progress")
		}
		w.rhythms = func(ctx context.Context, _ []bool) ([]output.Rhythm, error) {
			asked++
			<-ctx.Done()
			return nil, errors.New("no answer")
		}
		began := time.Now()
		for range 9 {
			w.listen(true)
		}
		if asked != 2+maxDeaf || time.Since(began) > time.Minute {
			t.Errorf("asked %d times, in %v", asked, time.Since(began))
		}
	})
}
