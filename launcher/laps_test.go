package launcher

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

// sumsUp checks, after each event of each test in simulated time, that the account holds all of the time until now, or until the workers' end,
// once, and all rounds.
func (w *world) sumsUp(s state) {
	w.t.Helper()
	spent := s.spent(s.Now)
	sum, end := 0.0, s.Now
	for _, seconds := range spent.Sum().Seconds {
		sum += seconds
	}
	for _, l := range spent.Laps {
		for i, part := range l.Parts() {
			if part < 0 {
				w.t.Fatalf("round %d: %s is %v: %+v", l.Round, job.Parts[i], part, s.Marks)
			}
		}
	}
	if s.Marks.Clear != nil {
		end = *s.Marks.Clear
	}
	if math.Abs(sum-end.Seconds()) > 1e-6 {
		w.t.Fatalf("%.6f s are accounted for, and %v have passed: %+v\n%s", sum, end, s.Marks, text(s))
	}
}

// onlyGrows checks that what was told of once is never told of less: scrapes may come at any time.
func (w *world) onlyGrows(before, after state) {
	w.t.Helper()
	was, is := before.spent(before.Now).Turns, after.spent(after.Now).Turns
	for i, of := range [][2]job.Times{{was.Meetings, is.Meetings}, {was.Detections, is.Detections}, {was.Recoveries, is.Recoveries}} {
		if of[1].Count < of[0].Count || of[1].Seconds < of[0].Seconds {
			w.t.Fatalf("turn %d: %+v became %+v", i, of[0], of[1])
		}
	}
}

// account is a lap in few words: whole seconds of each part, and what ended it.
func account(l job.Lap) string {
	text := fmt.Sprint(l.Round)
	for i, p := range l.Parts() {
		if p >= time.Second {
			text += fmt.Sprintf(" %s %.0f", job.Parts[i], p.Seconds())
		}
	}
	if l.Blind {
		text += " blind"
	}
	if l.Over {
		text += " | " + l.Class
		if l.Rank != nil {
			text += fmt.Sprintf(" rank %d", *l.Rank)
		}
		if l.Node != nil {
			text += " " + l.Host
		}
	}
	return text
}

// A job's time is where it went: a failure, a hang that was found late, an order, a machine that died, and steps done twice.
func TestLaps(t *testing.T) {
	trains := func(w *world, load, train time.Duration, again bool) {
		w.now += load
		w.feed(0, reached{How: moving, Again: again})
		w.now += train
	}
	restarts := func(w *world) { w.policy.MaxRestarts = 3 }
	for name, c := range map[string]struct {
		play func(*world)
		want []string
		told string // of how long its turning points took: how many, and seconds in sum
	}{
		"ends well":             {func(w *world) { trains(w, 3*time.Second, time.Minute, false); w.finish() }, []string{"0 load 3 train 60 | succeeded"}, "1 0, 0 0, 0 0"},
		"nobody tells of steps": {func(w *world) { w.now += time.Minute; w.finish() }, []string{"0 train 60 blind | succeeded"}, "1 0, 0 0, 0 0"},
		"a worker fails": {func(w *world) {
			restarts(w)
			trains(w, 3*time.Second, time.Minute, false)
			f := failure(1, 1, job.Exit{Code: 3})
			f.Failure.Ago = 2 * time.Second // its node was slow
			w.feed(1, f)
			w.run()
			trains(w, 5*time.Second, 20*time.Second, false)
			w.finish()
		}, []string{"0 load 3 train 58 detect 2 | failed rank 3 host-1", "1 load 5 train 20 | succeeded"}, "2 0, 1 2, 1 7"},
		"before the first step": {func(w *world) {
			restarts(w)
			w.now += 7 * time.Second
			w.feed(0, reached{How: heard})
			w.feed(0, failure(0, 0, job.Exit{Code: 3}))
			w.run()
			w.feed(0, reached{How: heard})
			w.now += 4 * time.Second
			w.finish()
		}, []string{"0 load 7 | failed rank 0 host-0", "1 load 4 | succeeded"}, "2 0, 1 0, 0 0"},
		"a hang": {func(w *world) {
			restarts(w)
			w.policy.OnHang = hangRestart
			trains(w, 3*time.Second, time.Minute, false)
			w.hangs("A", 1, false)
			trains(w, 3*time.Second, 9*time.Second, false)
			w.finish()
		}, []string{"0 load 3 train 80 detect 40 | hung rank 2 host-1", "1 load 3 train 9 | succeeded"}, "2 0, 1 40, 1 43"},
		"steps done twice": {func(w *world) {
			restarts(w)
			trains(w, 3*time.Second, time.Minute, false)
			w.feed(0, emptied{Step: 900})
			w.feed(0, failure(0, 1, job.Exit{Code: 3}))
			w.run()
			trains(w, time.Second, 11*time.Second, false)
			trains(w, 0, 30*time.Second, true)
			w.finish()
		}, []string{"0 load 3 train 60 | failed rank 1 host-0", "1 load 1 redo 11 train 30 | succeeded"}, "2 0, 1 0, 1 12"},
		"an order": {func(w *world) {
			trains(w, 3*time.Second, time.Minute, false)
			w.feed(0, ordered{orderRestart})
			w.run()
			trains(w, 3*time.Second, time.Minute, false)
			w.finish()
		}, []string{"0 load 3 train 60 | ordered", "1 load 3 train 60 | succeeded"}, "2 0, 0 0, 1 3"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			for n := range w.states {
				w.states[n].Marks.World = 4
			}
			w.begin()
			c.play(w)
			laps := w.states[0].spent(w.now).Laps
			for i := range max(len(laps), len(c.want)) {
				if i >= len(laps) || i >= len(c.want) || account(laps[i]) != c.want[i] {
					t.Errorf("%d rounds, want %d", len(laps), len(c.want))
					for _, l := range laps {
						t.Logf("is   %s: %+v", account(l), l)
					}
					t.Fatalf("want %q", c.want)
				}
			}
			for i, l := range w.states[1].spent(w.now).Laps[:len(laps)-1] { // a member is told why
				if l.Why == "" || l.Why != laps[i].Why {
					t.Errorf("round %d ended of %q, a member says %q", i, laps[i].Why, l.Why)
				}
			}
			told := w.states[0].spent(w.now).Turns
			text := ""
			for _, t := range []job.Times{told.Meetings, told.Detections, told.Recoveries} {
				text += fmt.Sprintf(", %d %.0f", t.Count, t.Seconds)
			}
			if text[2:] != c.told {
				t.Errorf("turns are %s, want %s", text[2:], c.told)
			}
			if s := w.states[0].spent(w.now).Sum(); s.Rounds != len(laps) || math.Abs(s.Wall()-4*w.states[0].Marks.Clear.Seconds()) > 1e-6 {
				t.Errorf("%+v", s)
			}
		})
	}
}
