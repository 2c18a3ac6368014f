package launcher

import (
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

// failsAt lets a worker of node 1 fail, after a minute, at a step of training and with an exception.
func (w *world) failsAt(step uint64, e job.Exit, exception string) {
	w.now += 2 * longRound
	w.feed(0, reached{How: heard})
	f := failure(1, 0, e)
	f.Failure.Step, f.Failure.Exception = step, exception
	w.feed(1, f)
	w.run()
}

// The same failure at the same step would come again and again.
func TestSameFailure(t *testing.T) {
	one, segv := job.Exit{Code: 1}, job.Exit{Signal: 11}
	killed := job.Exit{Signal: 9}
	type end struct {
		step      uint64
		exit      job.Exit
		exception string
	}
	for name, c := range map[string]struct {
		ends []end
		code int // 0: it goes on
	}{
		"twice":               {[]end{{120, one, "ValueError: bad batch"}, {120, one, "ValueError: bad batch"}}, job.ExitSame},
		"but for an address":  {[]end{{120, one, "X: <obj at 0x7f10>"}, {120, one, "X: <obj at 0x8f10>"}}, job.ExitSame},
		"a broken program":    {[]end{{120, segv, ""}, {120, segv, ""}}, job.ExitSame},
		"another step":        {[]end{{120, one, "ValueError: bad batch"}, {121, one, "ValueError: bad batch"}}, 0},
		"another exception":   {[]end{{120, one, "ValueError: bad batch"}, {120, one, "OSError: gone"}}, 0},
		"killed by somebody":  {[]end{{120, killed, ""}, {120, killed, ""}}, 0},
		"with another beside": {[]end{{120, one, "A"}, {7, one, "A"}, {120, one, "A"}}, 0},
		"step not known":      {[]end{{0, one, "A"}, {0, one, "A"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.policy.MaxRestarts = 9
			w.begin()
			for _, e := range c.ends {
				w.failsAt(e.step, e.exit, e.exception)
			}
			if c.code != 0 {
				w.all(c.code, "at the same step (120) in the round before")
			} else if s := w.states[0]; s.Verdict != nil || s.Round != len(c.ends) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Rounds that fail before the first step are not repeated without end; one that comes further forgives those before.
func TestIdleRounds(t *testing.T) {
	for name, c := range map[string]struct {
		idle  int
		steps []uint64
		code  int // 0: it goes on
	}{
		"three in a row":   {3, []uint64{0, 0, 0}, job.ExitNoProgress},
		"two":              {3, []uint64{0, 0}, 0},
		"with a step":      {3, []uint64{0, 0, 5, 0, 0}, 0},
		"none is allowed":  {1, []uint64{0}, job.ExitNoProgress},
		"any number":       {0, []uint64{0, 0, 0, 0, 0}, 0},
		"after a long one": {2, []uint64{7, 0, 0}, job.ExitNoProgress},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.policy.MaxRestarts, w.policy.Idle = 9, c.idle
			w.begin()
			for _, step := range c.steps {
				w.failsAt(step, job.Exit{Code: 1}, "")
			}
			if c.code != 0 {
				w.all(c.code, "in a row failed before the first step")
			} else if s := w.states[0]; s.Verdict != nil || s.Round != len(c.steps) {
				t.Errorf("%+v", s)
			}
		})
	}
	t.Run("nobody can tell", func(t *testing.T) {
		w := newWorld(t, 2)
		w.policy.MaxRestarts, w.policy.Idle = 2, 1
		w.begin()
		for range 2 {
			w.now += time.Hour
			w.feed(1, failure(1, 0, job.Exit{Code: 1}))
			w.run()
		}
		if s := w.states[0]; s.Verdict != nil || s.Round != 2 {
			t.Errorf("%+v", s)
		}
	})
}

func TestProgress(t *testing.T) {
	for _, c := range []struct {
		beat job.Beat
		want int
	}{
		{job.Beat{}, unheard},
		{job.Beat{Sources: job.FromRecorder}, heard},
		{job.Beat{Sources: job.FromRecorder, Count: 39}, heard},
		{job.Beat{Sources: job.FromRecorder, Count: 40}, moving},
		{job.Beat{Sources: job.FromBeats, Steps: 1}, moving},
	} {
		if got := progress(c.beat); got != c.want {
			t.Errorf("%+v: %d, want %d", c.beat, got, c.want)
		}
	}
}
