package launcher

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/heartbeat/page"
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
		{job.Beat{Rank: 1}, job.Beat{Rank: 1, Sources: job.FromOutput, Count: 5, Steps: 40}, true, r},
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

// The first process is asked only for what somebody wants to know. While it does not answer, what it said last holds, and it is asked now
// and then.
func TestListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, told := 0, bytes.Buffer{}
		w := &watch{ctx: t.Context(), c: Config{Log: slog.New(slog.NewTextHandler(&told, nil))}, rhythms: func(context.Context, []bool) ([]output.Rhythm, error) {
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
		answers := w.rhythms
		w.rhythms = func(ctx context.Context, _ []bool) ([]output.Rhythm, error) {
			asked++
			<-ctx.Done()
			return nil, errors.New("no answer")
		}
		for range 9 {
			if all := w.listen(true); len(all) != 1 || all[0].Bytes != 1 {
				t.Errorf("without an answer: %v, want what was said last", all)
			}
		}
		if asked != 2+maxDeaf || strings.Count(told.String(), "--progress-regex") != 1 {
			t.Errorf("asked %d times, said %q", asked, &told)
		}
		time.Sleep(deafAsk)
		if w.rhythms = answers; w.listen(true) == nil || asked != 3+maxDeaf || w.deaf != 0 {
			t.Errorf("asked %d times: who has answered before is asked again", asked)
		}
		w.c.Output.Progress = ""
		if w.listen(false); w.said != nil {
			t.Error("what was written before a standstill counts in it")
		}
	})
}

// One that never answers is not asked for ever.
func TestListenNeverAnswered(t *testing.T) {
	asked := 0
	w := &watch{ctx: t.Context(), rhythms: func(context.Context, []bool) ([]output.Rhythm, error) {
		asked++
		return nil, errors.New("no answer")
	}}
	for range 9 {
		if all := w.listen(true); all != nil {
			t.Error(all)
		}
	}
	w.asked = time.Now().Add(-2 * deafAsk)
	if w.listen(true); asked != maxDeaf {
		t.Errorf("asked %d times", asked)
	}
}

// A look at which the first process does not answer is no progress at the next one, nor output that is written; after several of them
// nobody knows whether the worker advances.
func TestBeatsOfTheDeaf(t *testing.T) {
	answer := errors.New("no answer")
	w := &watch{
		c: Config{Log: slog.New(slog.DiscardHandler)}, ctx: t.Context(), workers: func() []int { return []int{1} }, world: job.World{Members: []job.Member{{}}},
		does: &together{}, over: make([]exited, 1), stacks: make([][]string, 1), counts: make([]uint64, 1), unsaid: []bool{true},
		rhythms: func(context.Context, []bool) ([]output.Rhythm, error) {
			return []output.Rhythm{{Bytes: 70, Matches: 7}}, answer
		},
		senses: senses{func(int) page.Snapshot { return page.Snapshot{} }, func([]int) ([]job.Sight, error) { return []job.Sight{{State: 'S'}}, nil }, monotonic},
	}
	w.c.Output.Progress = "step"
	w.does.begin(1)
	for i, failed := range []bool{false, true, true, true, true} {
		if answer = nil; failed {
			answer = errors.New("no answer")
		}
		beats, _ := w.own(time.Unix(int64(10*i), 0))
		want := job.FromOutput
		if i >= maxDeaf {
			want = 0
		}
		if b := beats[0]; b.Count != 7 || b.Sources != want {
			t.Errorf("look %d: %+v", i, b)
		}
		if s := beats[0].Sight; i > 0 && (s == nil || s.Output != 70) {
			t.Errorf("look %d: %+v", i, s)
		}
	}
}
