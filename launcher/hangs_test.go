package launcher

import (
	"fmt"
	"strings"
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

// A node to blame for a hang is left out of the next world, where others can do without it.
func TestHangExcludes(t *testing.T) {
	w := elasticWorld(t, 3, 2, 3)
	w.policy.OnHang, w.policy.MaxRestarts, w.policy.Fewest, w.policy.Rest, w.policy.Yields = hangExclude, 9, 2, time.Hour, true
	w.now += time.Minute
	f := heartbeat.Finding{Stage: heartbeat.Hung, Hang: job.Hang{Class: heartbeat.Odd, Culprits: []job.Culprit{{Rank: 2, Halted: true}}}}
	w.feed(0, stalled{Finding: f, Text: "rank 2 is stopped", Group: 1})
	w.aMinute()
	w.in(1, 0, 2)
}

// News of a standstill that come when the round is being ended mean nothing.
func TestHangTooLate(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.policy.OnHang = hangRestart
	w.feed(1, failure(1, 0, job.Exit{Code: 7}))
	w.hangs(heartbeat.Desync, 0, false)
	w.all(7)
}
