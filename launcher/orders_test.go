package launcher

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
)

// said returns the answers to orders so far.
func (w *world) said() string {
	var all []string
	for _, line := range w.log {
		if strings.Contains(line, "launcher.reply") || strings.Contains(line, "refused: ") {
			all = append(all, line)
		}
	}
	return strings.Join(all, "\n")
}

// An order may come on any node: all stop with time for a checkpoint, and the next round follows, at once or on resume. A job
// without restarts has them all the same.
func TestOrders(t *testing.T) {
	for _, nodes := range []int{1, 2, 3} {
		for from := range nodes {
			w := newWorld(t, nodes).begin()
			w.feed(from, ordered{orderRestart})
			w.run()
			w.inRound(1)
			w.feed(from, ordered{orderPause})
			w.run()
			for n, s := range w.states {
				if phase, waits := s.phase(); phase != report.Paused || waits != "muster ctl resume" || s.Round != 1 {
					t.Fatalf("%d nodes, node %d is %s: %+v\n%s", nodes, n, phase, s, strings.Join(w.log, "\n"))
				}
			}
			w.now += 10 * time.Hour
			w.feed(from, ordered{orderResume})
			w.run()
			w.inRound(2)
			if got := strings.Join(w.log, "\n"); strings.Count(got, "launcher.stop {Within:25s Preempt:true Said:") != 2*nodes || strings.Contains(got, "kill") {
				t.Errorf("%d nodes: not all had time for a checkpoint:\n%s", nodes, got)
			}
			w.finish()
			w.all(0)
			if got := strings.Join(w.log, "\n"); strings.Contains(got, "restart 1 of") || nodes > 1 && !strings.Contains(got, "told to pause by muster ctl; round 2 follows") {
				t.Errorf("%d nodes: what a member says of it:\n%s", nodes, got)
			}
			for n, s := range w.states {
				if len(s.Laps) < 2 || s.Laps[0].Class != job.Ordered || s.Laps[1].Class != job.Ordered {
					t.Errorf("%d nodes, node %d: its account has %+v", nodes, n, s.Laps)
				}
			}
			if past := w.states[0].Verdict.Rounds; len(past) != 2 || past[1].Message != nodeName(w.states[0].Nodes, from)+" was told to pause by muster ctl" {
				t.Errorf("%d nodes: rounds %+v", nodes, past)
			}
		}
	}
}

// A member does not know for how long a pause after failures is, and asks its leader.
func TestOrderInABackOff(t *testing.T) {
	for from := range 2 {
		w := newWorld(t, 2)
		w.policy.MaxRestarts, w.policy.Backoff = 9, 30*time.Second
		w.begin()
		for range 3 {
			w.now += time.Second
			w.feed(0, failure(0, 0, job.Exit{Code: 3}))
			w.run()
		}
		w.feed(0, failure(0, 0, job.Exit{Code: 3}))
		for w.states[0].Rest <= w.now || !w.states[1].Empty {
			w.step()
		}
		w.feed(from, ordered{orderPause})
		for !strings.Contains(w.said(), "launcher.reply") && len(w.timers) > 0 {
			w.step()
		}
		if got := w.said(); !strings.Contains(got, "after several failures in a row the next round begins in") {
			t.Errorf("node %d: %s", from, got)
		}
	}
}

// inRound asserts that all nodes run workers of a round.
func (w *world) inRound(number int) {
	w.t.Helper()
	for n, s := range w.states {
		if phase, _ := s.phase(); phase != report.Running || s.Round != number || s.Start.MaxRestarts != w.policy.MaxRestarts+number {
			w.t.Fatalf("node %d is %s in round %d, want round %d: %+v\n%s", n, phase, s.Round, number, s, strings.Join(w.log, "\n"))
		}
	}
}

// What a member answers with success is done, and once, whichever agent dies meanwhile, and when: on its way to the leader,
// there, or on the way back. Only the death of the member's own agent leaves whoever asked without an answer.
func TestOrdersOutliveAgents(t *testing.T) {
	const step = 250 * time.Microsecond
	for _, order := range []string{orderRestart, orderPause} {
		for first := range 2 * 24 {
			for second := range 2 * 24 {
				w := newWorld(t, 2).begin()
				w.feed(1, ordered{order})
				for _, death := range []int{first, second} {
					after := time.Duration(death/2) * step
					w.laterDoom(death%2, after)
					w.later(death%2, after, noticed{Node: 1 - death%2, What: "suspect", Quiet: 3 * time.Second})
				}
				w.run()
				log := strings.Join(w.log, "\n")
				answered := strings.Contains(log, "node 1: launcher.reply {Text:"+orderTexts[order]+" Refused:false}")
				done := strings.Count(log, "node 1 (host-1) was told to "+order)
				if !answered && first%2+second%2 == 0 || answered && done == 0 || strings.Count(log, "launcher.reply") > 1 {
					t.Fatalf("%s, deaths %d and %d: answered %v\n%s", order, first, second, answered, log)
				}
				if order == orderPause && done > 0 {
					w.feed(0, ordered{orderResume})
					w.run()
				}
				w.inRound(min(done, 1))
			}
		}
	}
}

// Rounds that were ordered are not among those that failures may be followed by.
func TestOrdersAreFree(t *testing.T) {
	w := newWorld(t, 2)
	w.policy.MaxRestarts = 1
	w.begin()
	for range 3 {
		w.feed(1, ordered{orderRestart})
		w.run()
	}
	w.inRound(3)
	w.feed(1, failure(1, 0, job.Exit{Code: 3}))
	w.run()
	if s := w.states[1]; s.Round != 4 || s.Verdict != nil || !strings.Contains(strings.Join(w.log, "\n"), "restart 4 of 4 follows") {
		t.Fatalf("a failure after ordered rounds: %+v\n%s", s, strings.Join(w.log, "\n"))
	}
	w.feed(1, failure(1, 0, job.Exit{Code: 3}))
	w.run()
	w.all(3)
}

// What cannot be ordered is refused with the reason, and changes nothing.
func TestRefusedOrders(t *testing.T) {
	for _, c := range []struct {
		name string
		what func(w *world)
		want string
	}{
		{"resume what runs", func(w *world) { w.feed(0, ordered{orderResume}) }, "the job is not paused"},
		{"restart twice", func(w *world) { w.feed(0, ordered{orderRestart}); w.feed(0, ordered{orderRestart}) }, "about to begin already"},
		{"restart what is paused", func(w *world) { w.feed(0, ordered{orderPause}); w.run(); w.feed(1, ordered{orderRestart}) }, "muster ctl resume starts"},
		{"pause a failing round", func(w *world) { w.feed(0, failure(0, 0, job.Exit{Code: 1})); w.feed(0, ordered{orderPause}) }, "workers failed"},
		{"a member that does not know yet", func(w *world) {
			w.feed(0, failure(0, 0, job.Exit{Code: 1}))
			w.feed(1, ordered{orderPause})
		}, "node 1 (host-1) was told to pause by muster ctl: refused: workers failed"},
		{"stop twice", func(w *world) { w.feed(1, ordered{orderStop}); w.feed(1, ordered{orderStop}) }, "ending already"},
	} {
		w := newWorld(t, 2).begin()
		c.what(w)
		w.run()
		if !strings.Contains(w.said(), c.want) {
			t.Errorf("%s: said %s; want %q", c.name, w.said(), c.want)
		}
	}
}

// What ends a job ends one that is about to pause, or paused, or restarts.
func TestEndsInSpiteOfOrders(t *testing.T) {
	for _, order := range []string{orderPause, orderRestart} {
		for _, settled := range []bool{true, false} {
			for _, c := range []struct {
				name string
				what func(w *world)
				code int
				say  string
			}{
				{"stop", func(w *world) { w.feed(2, ordered{orderStop}) }, 143, "node 2 (host-2) was told to stop by muster ctl"},
				{"TERM", func(w *world) { w.feed(0, signalled{syscall.SIGTERM}) }, 143, "node 0 (host-0) was told to stop by SIGTERM"},
				{"a lost member", func(w *world) { w.die(1) }, job.ExitRetry, "node 1 (host-1) was lost"},
				{"a lost leader", func(w *world) { w.die(0) }, job.ExitRetry, "node 0 (host-0) was lost"},
				{"a broken agent", func(w *world) {
					w.feed(1, broken{job.Verdict{Code: 71, Class: job.Failed, Sentence: "no room"}})
				}, 71, "no room"},
			} {
				if settled && order == orderRestart {
					continue // then it simply runs
				}
				w := newWorld(t, 3).begin()
				w.feed(1, ordered{order})
				if settled {
					w.run()
				}
				c.what(w)
				w.run()
				t.Logf("%s, %v: %s", order, settled, c.name)
				w.all(c.code, c.say)
			}
		}
	}
}

// Workers that die because others were stopped are no failure, whether or not their agent has heard of the order.
func TestOrderedEndIsNoFailure(t *testing.T) {
	for _, order := range []string{orderPause, orderRestart} {
		for victim := range 2 {
			w := newWorld(t, 2).begin()
			w.feed(0, ordered{order})
			early := failure(victim, 0, job.Exit{Code: 1}) // the peer's connection went away
			w.feed(victim, early)
			late := failure(victim, 1, job.Exit{Code: 1, Sent: true})
			late.Failure.Exception = "KeyboardInterrupt"
			w.later(victim, 5*time.Millisecond, late)
			w.run()
			if order == orderPause {
				if s := w.states[0]; !s.Paused {
					t.Fatalf("not paused: %+v\n%s", s, strings.Join(w.log, "\n"))
				}
				w.feed(0, ordered{orderResume})
				w.run()
			}
			w.inRound(1)
		}
	}
}

// Resume may come before all have stopped.
func TestResumeAtOnce(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.deaf[1] = true
	w.feed(0, ordered{orderPause})
	w.feed(0, ordered{orderResume})
	w.run()
	w.inRound(1)
}

// A node whose workers do not end is named; the job does not wait for ever.
func TestOrderWithoutEnd(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.dead[1] = true // and nobody notices
	w.feed(0, ordered{orderRestart})
	w.run()
	w.all(job.ExitRetry, "node 0 (host-0) was told to restart by muster ctl, but workers are left on node 1 (host-1)")
}

// With --on-worker-exit leave an order stops all the same, and forgets what had failed.
func TestOrdersWithLeave(t *testing.T) {
	w := newWorld(t, 2)
	w.policy.OnExit = onExitLeave
	w.begin()
	w.feed(1, failure(1, 0, job.Exit{Code: 3}))
	w.run()
	w.feed(1, ordered{orderRestart})
	w.run()
	w.inRound(1)
	w.finish()
	w.all(0)
}

// A job whose last word of success crosses an order is a success.
func TestDoneCrossesOrder(t *testing.T) {
	w := newWorld(t, 2).begin()
	for n := range 2 {
		w.feed(n, finished{})
		w.feed(n, finished{})
		w.later(n, 0, emptied{})
	}
	w.feed(0, ordered{orderPause})
	w.run()
	w.all(0)
}

func TestStatus(t *testing.T) {
	w := newWorld(t, 3).begin()
	w.feed(0, finished{})
	w.feed(2, failure(2, 1, job.Exit{Code: 3}))
	w.timers = nil // the news is on its way
	w.feed(0, told{2, news{Kind: newsFailed, Failure: &job.Failure{Node: "host-2", Group: 2, Rank: 5, Exit: job.Exit{Code: 3}}}})
	for n, want := range []string{
		"stopping, waits for the workers of this node to end; [rank 5 on host-2 (node 2, local rank 0) exited with code 3]",
		"running, waits for ; []",
		"stopping, waits for the workers of this node to end; [rank 5 on host-2 (node 2, local rank 1, pid 101) exited with code 3]",
	} {
		var s report.Status
		w.states[n].describe(&s)
		phase, waits := w.states[n].phase()
		if got := fmt.Sprintf("%s, waits for %s; %v", phase, waits, s.Causes); got != want || *s.Node != n || len(s.Nodes) != 3 {
			t.Errorf("node %d: %s, want %s", n, got, want)
		}
	}
}
