package launcher

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
)

// A hold has its time, and who is stopped after it has its own, whatever else is waited for meanwhile: a node that is silent for a moment, in a world where
// that is given up soon.
func TestHeldWhileANodeIsSilent(t *testing.T) {
	late := failure(1, 1, job.Exit{Code: 7, Sent: true})
	late.Failure.Exception = "ValueError"
	for name, c := range map[string]struct {
		timeout  time.Duration
		restarts int
		after    time.Duration // of the hold's begin, that the first comes to it; 0: it never does
	}{
		"it comes in the hold":                     {5 * time.Second, 0, 4 * time.Second},
		"and another round follows":                {5 * time.Second, 1, 4 * time.Second},
		"it comes when it was stopped":             {0, 0, 12 * time.Second},
		"it never does, and another round follows": {5 * time.Second, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			w.policy.NodeTimeout, w.policy.StopTimeout, w.policy.MaxRestarts, w.deaf[1] = c.timeout, 30*time.Second, c.restarts, true
			w.begin()
			began := w.now
			w.feed(0, echoed(0, 0))
			w.later(0, 100*time.Millisecond, noticed{Node: 2, What: "silent", Quiet: 3 * time.Second})
			w.later(0, time.Second, noticed{Node: 2, What: "heard again"})
			if c.after == 0 { // nor does anybody hear of another's end
				w.deaf[0], w.deaf[2] = true, true
			}
			if c.after > 0 {
				w.later(1, c.after, late)
			}
			w.run()
			for n, at := range w.stoppedAt() {
				if held := at - began; held > echoTime+20*time.Millisecond {
					t.Errorf("node %d stops after %v", n, held)
				}
			}
			if c.restarts == 0 {
				w.all(7, "rank 3")
				return
			}
			want := map[bool]string{true: "rank 3", false: "rank 0"}[c.after > 0]
			if past := w.states[0].Past; len(past) != 1 || !strings.HasPrefix(past[0].Message, want) || w.states[0].Round != 1 {
				t.Errorf("%+v\n%s", past, strings.Join(w.log, "\n"))
			}
		})
	}
}

// Who asks meanwhile is told what is waited for.
func TestStatusInAHold(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.feed(0, echoed(0, 0))
	for !w.states[1].Stopping && len(w.timers) > 0 {
		w.step()
	}
	for n, s := range w.states {
		if phase, waits := s.phase(); phase != report.Stopping || !strings.HasPrefix(waits, "whoever failed first") {
			t.Errorf("node %d: %s, %q", n, phase, waits)
		}
	}
}

// When a node is lost that others can do without, all stop at once.
func TestHeldWhenANodeIsLost(t *testing.T) {
	w := elasticWorld(t, 3, 2, 3)
	w.policy.MaxRestarts = 1
	began := w.now
	w.feed(0, echoed(0, 0))
	w.later(0, time.Second, lost{Node: 2, Why: "silent", Quiet: 10 * time.Second})
	w.run()
	for n, at := range w.stoppedAt()[:2] {
		if held := at - began; held > time.Second+20*time.Millisecond {
			t.Errorf("node %d stops after %v", n, held)
		}
	}
}

// An agent that stood still in the meantime, whose workers were killed for that, says so, and the round is a free one.
func TestHeldWhenAnAgentStoodStill(t *testing.T) {
	for n := range 2 {
		w := newWorld(t, 2).begin()
		w.feed(1-n, echoed(1-n, 0))
		w.later(n, time.Second, lapsed{})
		for local := range 2 {
			w.later(n, time.Second, finished{Worker: ended(n, local, job.Exit{Signal: 9, Sent: true})})
		}
		w.later(n, time.Second, emptied{})
		w.run()
		if s := w.states[0]; s.Round != 1 || s.Free != 1 || !strings.Contains(s.Past[0].Message, "stood still") {
			t.Errorf("node %d: %+v", n, s.Past)
		}
	}
}

// The failure that counts is the second one that a node tells: it is told again to an agent that takes over from the leader's, and counts where no leader answers.
func TestHeldAndTheNewsAreLost(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.feed(1, echoed(1, 0))
	w.later(1, time.Second, failure(1, 1, job.Exit{Code: 7}))
	w.laterDoom(0, time.Second+200*time.Microsecond)
	w.later(0, time.Second+500*time.Microsecond, queued{0})
	w.run()
	w.all(7, "rank 3")

	s := newWorld(t, 2).begin().states[1]
	for i, e := range []any{echoed(1, 0), failure(1, 1, job.Exit{Code: 7}), emptied{}, expired{}} {
		s, _ = decide(testPolicy, s, time.Minute+time.Duration(i)*time.Second, e)
	}
	if !s.Ended || s.Verdict.Code != 7 {
		t.Errorf("without a leader: %+v", s.Verdict)
	}
}

// Who had not failed is named when it had been waited for in vain, was stopped, and is one of a few; nobody else is.
func TestHeldInVain(t *testing.T) {
	sent := job.Exit{Signal: 15, Sent: true}
	own := failure(1, 1, job.Exit{Code: 1, Sent: true})
	own.Failure.Exception, own.Failure.Echo = "RuntimeError: Connection reset by peer", true
	raised := finished{Worker: ended(1, 1, sent)}
	raised.Worker.Raised = true
	well := finished{Worker: ended(1, 1, job.Exit{})}
	killed := finished{Worker: ended(2, 1, job.Exit{Signal: 9, Sent: true})}
	over := echoTime + 5*time.Millisecond
	for name, c := range map[string]struct {
		what  func(w *world)
		names string // "": nobody
	}{
		"stopped":                {func(w *world) { w.later(1, over, finished{Worker: ended(1, 1, sent)}) }, "; rank 3 on host-1 (node 1, local rank 1) had not failed, and was stopped"},
		"stopped, and killed":    {func(w *world) { w.later(1, over, finished{Worker: ended(1, 1, sent)}); w.later(2, over, killed) }, "; ranks 3 on host-1, 5 on host-2 had not failed, and were stopped"},
		"its own end, after all": {func(w *world) { w.later(1, over, own) }, ""},
		"it was at its end":      {func(w *world) { w.later(1, over, raised) }, ""},
		"it ended well later":    {func(w *world) { w.later(1, 3*time.Second, well) }, "; rank 3 on host-1 (node 1, local rank 1) had ended with code 0 by then"},
		"when it was stopped":    {func(w *world) { w.later(1, over, well) }, ""},
		"it ended well, and another was stopped": {func(w *world) { w.later(1, 3*time.Second, well); w.later(2, over, killed) },
			"; rank 5 on host-2 (node 2, local rank 1) had not failed, and was stopped"},
		"a person was faster": {func(w *world) {
			w.later(1, time.Second, signalled{syscall.SIGTERM})
			w.later(1, time.Second+5*time.Millisecond, finished{Worker: ended(1, 1, sent)})
		}, ""},
	} {
		w := newWorld(t, 3).begin()
		w.deaf[2] = true
		for n := range 3 {
			w.feed(n, echoed(n, 0))
		}
		c.what(w)
		w.run()
		w.all(1, "rank 0 on host-0", c.names)
		if v := w.states[0].Verdict; c.names == "" && (strings.Contains(v.Sentence, "had ") || v.Hint != "") {
			t.Errorf("%s: %s; %s", name, v.Sentence, v.Hint)
		}
	}
}

// What had gone wrong before the end that somebody asked for is told once.
func TestHangBeforeAnEndAfterAFailure(t *testing.T) {
	for _, after := range []time.Duration{100 * time.Millisecond, 2 * time.Second} {
		w := newWorld(t, 2)
		w.policy.MaxRestarts, w.deaf[0] = 1, true
		w.begin()
		w.stalls(heartbeat.Hung, job.Culprit{Rank: 2})
		w.feed(1, failure(1, 1, job.Exit{Code: 3}))
		w.later(0, after, signalled{syscall.SIGTERM})
		w.run()
		for n, s := range w.states {
			if strings.Count(s.Verdict.Sentence, "hang:") != 1 || s.Verdict.Hang == nil {
				t.Errorf("%v, node %d: %s", after, n, s.Verdict.Sentence)
			}
		}
	}
}

// A member that is told to stop in a hold gives its workers no more time than the others give theirs.
func TestToldToStopInAHold(t *testing.T) {
	for by := range 2 {
		w := newWorld(t, 2).begin()
		w.feed(0, echoed(0, 0))
		w.later(by, time.Second, signalled{syscall.SIGTERM})
		w.run()
		if i := slices.IndexFunc(w.log, func(l string) bool { return strings.Contains(l, "launcher.stop {Within:25s") }); i >= 0 {
			t.Errorf("by node %d: %s", by, w.log[i])
		}
	}
}

// Whoever comes to it at last is judged as if there had been no hold: news of somebody who was before may still be on their way.
func TestOrderInAHold(t *testing.T) {
	older := failure(2, 1, job.Exit{Code: 7})
	older.Failure.Ago = 50 * time.Millisecond
	for name, c := range map[string]struct {
		event any
		after time.Duration // of the one that is heard first
		code  int
		says  string
	}{
		"an older failure": {older, 5 * time.Millisecond, 7, "rank 5"},
		"a node that died": {death{}, -20 * time.Millisecond, job.ExitRetry, "node 2 (host-2) was lost"},
	} {
		for held := range 3 { // and 2: a node is silent for a moment meanwhile
			w := newWorld(t, 4).begin()
			w.now = 10 * time.Second
			if held > 0 {
				w.feed(0, echoed(0, 0))
			}
			if held > 1 {
				w.later(0, 100*time.Millisecond, noticed{Node: 3, What: "silent", Quiet: 3 * time.Second})
				w.later(0, time.Second, noticed{Node: 3, What: "heard again"})
			}
			w.later(1, 2*time.Second, failure(1, 0, job.Exit{Code: 1}))
			w.later(2, 2*time.Second+c.after, c.event)
			w.run()
			if v := w.states[0].Verdict; v.Code != c.code || !strings.HasPrefix(v.Sentence, c.says) {
				t.Errorf("%s, held %v: %d %s", name, held, v.Code, v.Sentence)
			}
		}
	}
}

// Who leaves a world in a hold gives its workers no more time than the others wait for.
func TestQuitsInAHold(t *testing.T) {
	for wanted := range 2 {
		w := elasticWorld(t, 3, 2, 3)
		w.policy.Yields, w.policy.MaxRestarts, w.deaf[wanted] = true, 1, true
		w.feed(2, echoed(2, 0))
		w.later(wanted, time.Second, signalled{syscall.SIGTERM})
		w.run()
		if s := w.states[2]; s.Round != 1 || s.Verdict != nil {
			t.Errorf("node %d is wanted: round %d, %+v\n%s", wanted, s.Round, s.Verdict, strings.Join(w.log, "\n"))
		}
	}
}

// A pause before the next round is no longer for a hold that came to its end by itself, whatever happens meanwhile.
func TestPauseAfterAHold(t *testing.T) {
	w := newWorld(t, 2)
	w.policy.MaxRestarts, w.policy.Backoff, w.policy.StopTimeout = 9, 30*time.Second, 30*time.Second
	w.begin()
	for range 4 {
		w.now += time.Second
		w.feed(0, failure(0, 0, job.Exit{Code: 3}))
		w.run()
	}
	round := w.states[0].Round
	w.feed(0, echoed(0, 0))
	w.feed(0, emptied{})
	w.later(1, time.Second, echoed(1, 1))
	w.later(1, time.Second, emptied{})
	w.later(0, 6*time.Second, queued{0})
	for w.states[0].Round == round && len(w.timers) > 0 {
		w.step()
	}
	if s := w.states[0]; s.Round != round+1 || s.Rest == 0 || w.now-s.Rest > 10*time.Millisecond {
		t.Errorf("round %d begins at %v, and was to at %v", s.Round, w.now, s.Rest)
	}
}

// A worker of an agent of an older release that was stopped, and ended with 0, has not gone first.
func TestStoppedByAnOlderRelease(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.feed(0, echoed(0, 0))
	w.feed(0, emptied{})
	w.feed(0, told{1, news{Kind: newsClear, Ranks: []job.Ended{ended(1, 0, job.Exit{Sent: true}), ended(1, 1, job.Exit{Sent: true})}}})
	w.run()
	if v := w.states[0].Verdict; strings.Contains(v.Sentence, "code 0") || v.Hint == unevenHint {
		t.Errorf("%+v", v)
	}
}

// What a handler of the signal does with which workers are stopped is no failure: who was first is still whoever had to be stopped without one.
func TestHandlersInVain(t *testing.T) {
	for what, exit := range map[string]job.Exit{"Term: got SIGTERM": {Code: 1, Sent: true}, "torch.SignalException: Process 7 got signal: 15": {Code: 1, Sent: true}, "KeyboardInterrupt": {Code: 130, Sent: true}, "": {Code: job.ExitTERM, Sent: true}} {
		w := newWorld(t, 2).begin()
		w.deaf[0], w.deaf[1] = true, true
		w.feed(0, echoed(0, 0))
		handled := failure(1, 0, exit)
		handled.Failure.Exception = what
		handled.Worker.Exit = exit
		w.later(1, 5100*time.Millisecond, handled)
		w.later(0, 5200*time.Millisecond, finished{Worker: ended(0, 1, job.Exit{Signal: 15, Sent: true})})
		w.later(0, 5300*time.Millisecond, emptied{})
		w.later(1, 5300*time.Millisecond, emptied{})
		w.run()
		who := "rank 1 on host-0 (node 0, local rank 1) had not failed, and was stopped"
		if what == "" {
			who = "ranks 1 on host-0, 2 on host-1 had not failed, and were stopped"
		}
		w.all(1, "rank 0", who)
	}
}

// A job that is told to stop while it is not known who was first says so.
func TestToldToStopBeforeItIsKnown(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.feed(0, echoed(0, 0))
	w.later(1, time.Second, signalled{syscall.SIGTERM})
	w.run()
	w.all(1, "rank 0", "; before it was known which, node 1 (host-1) was told to stop by SIGTERM; all 2 nodes stopped")
}

// Nobody was waited for where workers get no time, so nobody is named for that; and a node of whose end the others may speak is waited for until its silence shows.
func TestNoHoldWithoutTime(t *testing.T) {
	for _, silent := range []bool{false, true} {
		w := newWorld(t, 3)
		w.policy.StopTimeout = 0
		w.begin()
		w.feed(0, echoed(0, 0))
		if silent {
			w.cutOff(2, false)
			w.later(0, 3*time.Second, noticed{Node: 2, What: "silent", Quiet: 3 * time.Second})
			w.later(0, 10*time.Second, lost{Node: 2, Why: "silent", Quiet: 10 * time.Second})
		}
		w.run()
		v := w.states[0].Verdict
		if lost := v.Class == job.Lost; lost != silent || strings.Contains(v.Sentence, "had not failed") {
			t.Errorf("silent %v: %+v", silent, v)
		}
	}
}
