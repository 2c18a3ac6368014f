package launcher

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/job"
)

// hangs lets the leader's watch find a hang of a class in which the first worker of a node is to blame.
func (w *world) hangs(class string, node int, halted bool) {
	f := heartbeat.Finding{Stage: heartbeat.Hung, Hang: job.Hang{Class: class, Quiet: 40 * time.Second, Culprits: []job.Culprit{{Rank: 2 * node, Halted: halted}}}}
	w.now += time.Minute
	w.feed(0, stalled{Finding: f, Text: "rank 4 has not entered all_reduce #7", Group: node})
	w.run()
}

// What is done at a hang is the user's choice; what it ends with, the class's.
func TestHang(t *testing.T) {
	for _, c := range []struct {
		on       string
		restarts int
		class    string
		halted   bool
		code     int // -1: the job goes on in the same round; -2: in the next one
	}{
		{"", 1, heartbeat.Absent, false, -1},
		{hangDump, 1, heartbeat.Odd, true, -1},
		{hangObserve, 1, heartbeat.Desync, false, -1},
		{hangRestart, 1, heartbeat.Absent, false, -2},
		{hangRestart, 1, heartbeat.Network, false, -2},
		{hangRestart, 1, heartbeat.Desync, false, job.ExitDesync},
		{hangRestart, 0, heartbeat.Absent, false, job.ExitHung},
		{hangRestart, 0, heartbeat.Absent, true, job.ExitRetry},
		{hangRestart, 0, heartbeat.Odd, true, job.ExitRetry},
		{hangRestart, 0, heartbeat.Network, false, job.ExitRetry},
		{hangRestart, 0, heartbeat.Starved, false, job.ExitHung},
		{hangExclude, 1, heartbeat.Odd, true, -2},
	} {
		t.Run(fmt.Sprintf("%s %s %d", c.on, c.class, c.restarts), func(t *testing.T) {
			w := newWorld(t, 3).begin()
			w.policy.OnHang, w.policy.MaxRestarts = c.on, c.restarts
			w.hangs(c.class, 2, c.halted)
			if c.code >= 0 {
				w.all(c.code, "hang: rank 4 has not entered all_reduce #7")
				return
			}
			for n, s := range w.states {
				if s.Verdict != nil || s.Stopping || !s.Started || s.Round != -1-c.code {
					t.Errorf("node %d: %+v", n, s)
				}
			}
			if got, want := strings.Count(strings.Join(w.log, "\n"), "collect"), map[bool]int{true: 0, false: 3}[c.on == hangObserve]; got != want {
				t.Errorf("evidence is kept %d times, not %d", got, want)
			}
		})
	}
}

// Of what could not be matched the network is not blamed alone: where there is no recorder, ranks in different collectives look the same.
func TestHangHintsAtBoth(t *testing.T) {
	for number, both := range map[uint64]bool{0: true, 7: false} {
		v := hungVerdict(cause{Hang: &job.Hang{Class: heartbeat.Network, Number: number}})
		if !strings.Contains(v.Hint, "look at the network") || strings.Contains(v.Hint, "in the same order") != both {
			t.Errorf("of number %d: %s", number, v.Hint)
		}
	}
}

// A kernel that does not end is most often the script's own; where it cannot be seen whose, it is said how it can.
func TestHangHintsAtKernels(t *testing.T) {
	v := hungVerdict(cause{Hang: &job.Hang{Class: heartbeat.Odd, Culprits: []job.Culprit{{Rank: 2, Queued: true}}}})
	if v.Code != job.ExitHung || v.Origin != "worker" || !strings.Contains(v.Hint, "on its GPU before the collective") {
		t.Errorf("%+v", v)
	}
	v = hungVerdict(cause{Hang: &job.Hang{Class: heartbeat.Network, Number: 7, Kernels: true}})
	if v.Code != job.ExitRetry || !strings.Contains(v.Hint, "look at the network") || !strings.Contains(v.Hint, "TORCH_NCCL_ENABLE_TIMING=1") {
		t.Errorf("%+v", v)
	}
}

// A hang in which others failed meanwhile is the first cause: they failed because of it.
func TestHangComesFirst(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.policy.OnHang = hangRestart
	w.now += time.Minute
	f := heartbeat.Finding{Stage: heartbeat.Hung, Hang: job.Hang{Class: heartbeat.Absent, Quiet: 40 * time.Second}}
	w.feed(0, stalled{Finding: f, Text: "rank 0 has not entered barrier #3", Group: 0})
	w.feed(1, failure(1, 0, job.Exit{Code: 1}))
	w.run()
	w.all(job.ExitHung, "rank 0 has not entered barrier #3")
	if v := w.states[1].Verdict; len(v.Consequences) != 1 || v.Hang == nil || v.Class != job.Hung {
		t.Errorf("%+v", v)
	}
}

// A hang that ends by itself is taken back on all nodes.
func TestHangEnds(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.hangs(heartbeat.Absent, 1, false)
	for n, s := range w.states {
		if s.Stall == nil || !strings.HasPrefix(s.Stall.line(), "hang: rank 4") {
			t.Errorf("node %d knows of no hang: %+v", n, s.Stall)
		}
		if lasted := s.Now - s.Stood; lasted != s.Stall.Finding.Quiet {
			t.Errorf("node %d: it lasts for %v, not %v", n, lasted, s.Stall.Finding.Quiet)
		}
	}
	w.feed(0, stalled{Finding: heartbeat.Finding{Stage: heartbeat.Resumed, False: true}, Text: "training goes on", Group: -1})
	w.run()
	for n, s := range w.states {
		if s.Stall != nil || s.Alarms != 1 {
			t.Errorf("node %d: %+v, %d false alarms", n, s.Stall, s.Alarms)
		}
	}
}

// When the agent that told of a standstill is replaced, the next one takes that back on all nodes; when another's is, that hears of it.
func TestHangOutlivesItsTeller(t *testing.T) {
	for replaced := range 2 {
		w := newWorld(t, 2).begin()
		w.hangs(heartbeat.Absent, 1, false)
		since := w.states[0].Stood
		w.now += time.Minute
		w.renew(replaced, nil)
		w.run()
		for n, s := range w.states {
			if told := s.Stall != nil; told != (replaced == 1) || s.Alarms != 0 {
				t.Errorf("agent %d was replaced, and node %d knows of %+v, %d false alarms", replaced, n, s.Stall, s.Alarms)
			}
			if s.Stall != nil && s.Stood > since+time.Second {
				t.Errorf("node %d: it stands still since %v, and not %v", n, s.Stood, since)
			}
		}
	}
}

// A node to blame for a hang is left out of the next world, where others can do without it; of one in which all ranks wait for input none is.
func TestHangExcludes(t *testing.T) {
	for name, c := range map[string]struct {
		hang  job.Hang
		stays []int
	}{
		"stopped":          {job.Hang{Class: heartbeat.Odd, Culprits: []job.Culprit{{Rank: 2, Halted: true}}}, []int{0, 2}},
		"stopped, at once": {job.Hang{Class: heartbeat.Starved, Culprits: []job.Culprit{{Rank: 2, Halted: true}, {Rank: 0}, {Rank: 4}}}, []int{0, 2}},
		"all wait":         {job.Hang{Class: heartbeat.Starved, Culprits: []job.Culprit{{Rank: 2}, {Rank: 0}, {Rank: 4}}}, []int{0, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			w := elasticWorld(t, 3, 2, 3)
			w.policy.OnHang, w.policy.MaxRestarts, w.policy.Fewest, w.policy.Rest, w.policy.Yields = hangExclude, 9, 2, time.Hour, true
			w.now += time.Minute
			w.feed(0, stalled{Finding: heartbeat.Finding{Stage: heartbeat.Hung, Hang: c.hang}, Text: "rank 2 is stopped", Group: 1})
			w.aMinute()
			w.in(1, c.stays...)
		})
	}
}

// News of a standstill that come when the round is being ended mean nothing.
func TestHangTooLate(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.policy.OnHang = hangRestart
	w.feed(1, failure(1, 0, job.Exit{Code: 7}))
	w.hangs(heartbeat.Desync, 0, false)
	w.all(7)
}

// stalls lets the leader's watch find a standstill.
func (w *world) stalls(stage heartbeat.Stage, culprits ...job.Culprit) {
	f := heartbeat.Finding{Stage: stage, Hang: job.Hang{Class: heartbeat.Absent, Quiet: 40 * time.Second, Culprits: culprits}}
	w.now += time.Minute
	w.feed(0, stalled{Finding: f, Text: "rank 2 has not entered all_reduce #7 for 40 s; 3 others wait in it", Group: 1})
	w.now += 5 * time.Second
}

// What a job or a round ends of when it hung, and nobody did anything about that, is mostly somebody's patience: that it hung is told, and for how long.
func TestHangIsToldAtTheEnd(t *testing.T) {
	const hung = "; before that: hang: rank 2 has not entered all_reduce #7 for 45 s; 3 others wait in it"
	late := failure(0, 1, job.Exit{Signal: 6})
	late.Failure.Echo = true // of a time-out
	for name, c := range map[string]struct {
		stage  heartbeat.Stage
		events []any // on node 1
		code   int
		says   string
		tells  bool
	}{
		"a node is told to stop":     {heartbeat.Hung, []any{signalled{syscall.SIGTERM}}, job.ExitTERM, "node 1 (host-1) was told to stop by SIGTERM" + hung, true},
		"a person ends it":           {heartbeat.Hung, []any{ordered{orderStop}}, job.ExitTERM, "told to stop by muster ctl" + hung, true},
		"a worker fails":             {heartbeat.Hung, []any{failure(1, 1, job.Exit{Code: 3})}, 3, "exited with code 3; all 2 nodes stopped" + hung, true},
		"it only may be a hang":      {heartbeat.Suspect, []any{signalled{syscall.SIGTERM}}, job.ExitTERM, "SIGTERM", false},
		"it was over before":         {heartbeat.Resumed, []any{signalled{syscall.SIGTERM}}, job.ExitTERM, "SIGTERM", false},
		"a time-out of a framework":  {heartbeat.Hung, []any{late}, 119, "all 2 nodes stopped" + hung, true},
		"all end well after all":     {heartbeat.Hung, []any{finished{}, finished{}, emptied{}}, 0, "all workers of all 2 nodes ended well", false},
		"the round was ended before": {heartbeat.Hung, []any{ordered{orderPause}, signalled{syscall.SIGTERM}}, job.ExitTERM, "SIGTERM", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2).begin()
			w.stalls(c.stage, job.Culprit{Rank: 2})
			for i, e := range c.events {
				w.later(1, time.Duration(i)*time.Second, e)
			}
			if c.code == 0 {
				w.finish()
			}
			w.run()
			w.all(c.code, c.says)
			for n, s := range w.states {
				v := s.Verdict
				if tells := v.Hang != nil; tells != c.tells || strings.Contains(v.Sentence, "hang") != c.tells {
					t.Errorf("node %d: %+v", n, v)
				}
				if c.tells && (v.Hang.Quiet.Round(time.Second) != 45*time.Second || v.Class == job.Hung || v.First == nil && v.Hint != hungHints[heartbeat.Absent]) {
					t.Errorf("node %d: %v, %s, hint %q", n, v.Hang.Quiet, v.Class, v.Hint)
				}
			}
		})
	}
}

// It is the same with a round that another one follows, and the one after it does not hear of it.
func TestHangBeforeARestart(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.policy.MaxRestarts = 1
	w.stalls(heartbeat.Hung, job.Culprit{Rank: 2})
	w.feed(1, failure(1, 1, job.Exit{Code: 3}))
	w.run()
	if past := w.states[0].Past; len(past) != 1 || !strings.HasSuffix(past[0].Message, "exited with code 3; before that: hang: rank 2 has not entered all_reduce #7 for 45 s; 3 others wait in it") {
		t.Fatalf("%+v", past)
	}
	w.feed(1, failure(1, 1, job.Exit{Code: 4}))
	w.run()
	w.all(4, "exited with code 4; all 2 nodes stopped, after 1 restart")
	if v := w.states[0].Verdict; v.Hang != nil || strings.Contains(v.Sentence, "hang") {
		t.Errorf("%+v", v)
	}
}

// All nodes say the same of it, though the leader has another agent meanwhile.
func TestHangIsToldByAll(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.deaf[1] = true
	w.stalls(heartbeat.Hung, job.Culprit{Rank: 2})
	w.later(1, time.Second, failure(1, 1, job.Exit{Code: 3}))
	w.laterDoom(0, 900*time.Millisecond)
	w.later(0, 1200*time.Millisecond, queued{0})
	w.run()
	w.all(3, "rank 3")
	if one, other := w.states[0].Verdict, w.states[1].Verdict; one.Sentence != other.Sentence || one.Hang == nil || other.Hang == nil {
		t.Errorf("%+v\n%+v", one, other)
	}
}

// Who failed of a hang's time-out has no better advice than the hang; who failed of itself has. A rank that has ended well comes to nothing any more.
func TestHangHintsAtTheEnd(t *testing.T) {
	for hint, of := range map[string]func(*job.Failure){
		hungHints[heartbeat.Absent]: func(f *job.Failure) { f.Hint, f.Echo = "look at the others", true },
		"use a smaller batch":       func(f *job.Failure) { f.Hint = "use a smaller batch" },
	} {
		w := newWorld(t, 2).begin()
		w.stalls(heartbeat.Hung, job.Culprit{Rank: 2})
		f := failure(1, 1, job.Exit{Code: 3})
		of(f.Failure)
		w.feed(1, f)
		w.run()
		if got := w.states[0].Verdict.Hint; got != hint {
			t.Errorf("%q, want %q", got, hint)
		}
	}
	if got := hungHint(job.Hang{Class: heartbeat.Absent, Culprits: []job.Culprit{{Ended: true}}}); got != unevenHint {
		t.Error(got)
	}
}
