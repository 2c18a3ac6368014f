package launcher

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

func newMending(t *testing.T, nodes, restarts int) *world {
	w := newWorld(t, nodes)
	w.policy.OnExit, w.policy.MaxRestarts = onExitRestart, restarts
	return w.begin()
}

// stops are how many nodes were told to stop their workers.
func (w *world) stops() int { return strings.Count(strings.Join(w.log, "\n"), "launcher.stop") }

// A worker that fails is started again where it was, and nobody else is stopped, on whichever node. Its life gets a number that
// no other has.
func TestMend(t *testing.T) {
	w := newMending(t, 3, 3)
	for number, n := range []int{1, 0, 1} {
		w.feed(n, stumble{})
		w.run()
		if s := w.states[n]; s.lifeOf(2*n) != number+1 || s.Round != 0 || s.Left != 2 || s.Own != nil || len(s.Down) > 0 {
			t.Fatalf("after failure %d, on node %d: %+v\n%s", number+1, n, s, strings.Join(w.log, "\n"))
		}
	}
	for n, s := range w.states {
		if s.last() != 3 || s.tally() != (job.Tally{Rounds: 4, Free: 1}) {
			t.Errorf("node %d counts %d, %+v", n, s.last(), s.tally())
		}
	}
	if w.stops() > 0 {
		t.Errorf("somebody is stopped:\n%s", strings.Join(w.log, "\n"))
	}
	w.finish()
	w.all(0)
	if got := w.states[0].Verdict.Rounds; len(got) != 3 || got[2].Number != 2 || !strings.Contains(got[2].Message, "it alone was started again") {
		t.Errorf("rounds: %+v", got)
	}
}

// When no restart is left a failure is one like any other.
func TestMendsUsedUp(t *testing.T) {
	w := newMending(t, 2, 1)
	w.feed(1, stumble{})
	w.run()
	w.feed(1, stumble{})
	w.run()
	w.all(3, "rank 2 on", "exited with code 3; all 2 nodes stopped, after 1 restart")
}

// A program that is not there any more is not tried again.
func TestMendWithoutProgram(t *testing.T) {
	w := newMending(t, 2, 5)
	w.feed(1, finished{job.Ended{Rank: 2}, &job.Failure{Rank: 2, Group: 1, Exit: job.Exit{Code: 127, Err: "no such program"}}})
	w.run()
	w.all(127, "no such program")
}

// The pause grows with failures in a row, of whichever worker, and a window without one forgives them all.
func TestMendPauses(t *testing.T) {
	w := newMending(t, 2, 4)
	w.policy.Backoff, w.policy.Window = 30*time.Second, time.Hour
	var pauses []time.Duration
	for _, after := range []time.Duration{time.Second, time.Second, time.Second, 2 * time.Minute, 2 * time.Hour, time.Second} {
		w.now += after
		w.feed(0, stumble{})
		pauses = append(pauses, w.states[0].Mends[0].After)
		w.run()
	}
	if want := []time.Duration{0, time.Second, 2 * time.Second, 0, 0, time.Second}; !slices.Equal(pauses, want) {
		t.Errorf("pauses %v, want %v", pauses, want)
	}
	if s := w.states[0]; s.Free != 4 || s.Mends[0].MaxRestarts != 8 {
		t.Errorf("%d of them are free, %+v", s.Free, s.Mends)
	}
}

// A node on which too many failed is not tried again, but left out, where the others can do without it.
func TestMendNotOnAWornNode(t *testing.T) {
	for _, spared := range []bool{true, false} {
		w := newMending(t, 3, 9)
		w.policy.Regroups, w.policy.Yields, w.policy.Exclude, w.policy.Fewest, w.fewest = true, true, 2, 3, 3
		if spared {
			w.policy.Fewest, w.fewest = 2, 2
		}
		for range 2 {
			w.feed(1, stumble{})
			w.run()
		}
		if out := strings.Contains(strings.Join(w.log, "\n"), "2 rounds failed on node 1"); out != spared || (w.stops() > 0) != spared {
			t.Errorf("left out: %v, want %v\n%s", out, spared, strings.Join(w.log, "\n"))
		}
	}
}

// Whichever agent is replaced at whichever moment, each worker is started again once.
func TestMendAcrossAgents(t *testing.T) {
	for doomed := range 2 {
		for failing := range 2 {
			for after := range 4 {
				w := newMending(t, 2, 2)
				lives := 0
				w.mended = func(int, mend) { lives++ }
				w.laterDoom(doomed, time.Duration(after)*500*time.Microsecond)
				w.later(failing, 0, stumble{})
				w.later(failing, 0, stumble{})
				w.run()
				s := w.states[failing]
				if got := fmt.Sprint(s.last(), lives, s.Left, len(w.down[failing]), w.stops()); got != "2 2 2 0 0" {
					t.Errorf("agent of node %d after %d, a worker of node %d: %s\n%s", doomed, after, failing, got, strings.Join(w.log, "\n"))
				}
			}
		}
	}
}

// An order for all ends what waits for the leader's word, and the next round has everybody.
func TestOrderWhileDown(t *testing.T) {
	w := newMending(t, 2, 3)
	w.feed(1, stumble{})
	w.feed(0, ordered{orderRestart})
	w.run()
	for n, s := range w.states {
		if s.Round != 2 && s.Round != 1 || !s.Started || s.Left != 2 || len(s.Down) > 0 || len(s.Mends) > 0 {
			t.Errorf("node %d: %+v", n, s)
		}
	}
}

// A round whose cause is known is counted once, whatever ends the job before another one begins.
func TestCountedOnce(t *testing.T) {
	p := testPolicy
	p.Regroups, p.Fewest, p.Nodes, p.MaxRestarts = true, 1, 2, 3
	gone := lost{Node: 1, Why: "gone", Certain: true}
	fails := failure(0, 0, job.Exit{Code: 3})
	for name, c := range map[string]struct {
		event any
		want  job.Tally
	}{
		"a node is lost": {gone, job.Tally{Rounds: 1, Free: 1}},
		"a worker fails": {fails, job.Tally{Rounds: 1}},
	} {
		s := state{Nodes: []*node{{Name: "a", ID: "a"}, {Name: "b", ID: "b"}}, Started: true, Left: 2, Start: &start{}}
		s, _ = decide(p, s, time.Second, c.event)
		s, _ = decide(p, s, 2*time.Second, settled{})
		if !s.Again || s.tally() != c.want {
			t.Errorf("%s: again %v, %+v", name, s.Again, s.tally())
		}
		for at, e := range []any{signalled{syscall.SIGTERM}, finished{job.Ended{Rank: 0}, nil}, finished{job.Ended{Rank: 1}, nil}, emptied{}, expired{}} {
			s, _ = decide(p, s, time.Duration(3+at)*time.Second, e)
			if got := s.tally(); got != c.want {
				t.Errorf("%s: after %T it counts %+v", name, e, got)
			}
		}
	}
}
