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

// elasticWorld is a world whose nodes meet again when one was lost.
func elasticWorld(t *testing.T, nodes, fewest, most int) *world {
	w := newWorld(t, nodes)
	w.fewest = fewest
	w.policy.Regroups, w.policy.Nodes, w.policy.LastCall = true, most, 30*time.Second
	for n := range w.states {
		w.states[n].Generation = 0
	}
	return w.begin()
}

// in asserts which nodes are in the world now, by group rank, that all of them run, and in which round.
func (w *world) in(round int, members ...int) {
	w.t.Helper()
	if got := w.members[len(w.members)-1]; !slices.Equal(got, members) {
		w.t.Fatalf("the world is %d, want %d\n%s", got, members, strings.Join(w.log, "\n"))
	}
	for rank, n := range members {
		s := w.states[n]
		if s.Self != rank || !s.Started || s.Stopping || s.Round != round || s.Verdict != nil || s.Meeting {
			w.t.Fatalf("node %d: %+v\n%s", n, s, strings.Join(w.log, "\n"))
		}
	}
}

// A node is lost, and those that are left go on without it, as often as that happens; it is no failure.
func TestGoOnWithoutANode(t *testing.T) {
	w := elasticWorld(t, 4, 2, 4)
	w.die(2)
	w.run()
	w.in(1, 0, 1, 3)
	w.die(0)
	w.run()
	w.in(2, 1, 3)
	for _, n := range []int{1, 3} {
		if s := w.states[n]; s.Free != 2 {
			t.Errorf("node %d counts %d free rounds", n, s.Free)
		}
	}
	w.finish()
	w.all(0, "all 2 nodes")
	if past := w.states[1].Verdict.Rounds; len(past) != 2 || !strings.Contains(past[0].Message, "host-2) was lost") || !strings.Contains(past[1].Message, "host-0) was lost") {
		t.Errorf("the verdict tells of %+v", past)
	}
}

// Whoever may only be cut off has the time to stop its workers before others go on.
func TestFence(t *testing.T) {
	for _, gone := range []int{0, 2} { // the leader, a member
		for _, certain := range []bool{false, true} {
			w := elasticWorld(t, 3, 2, 3)
			w.dead[gone] = true
			for n := range w.states {
				if w.talk(n, gone) {
					w.later(n, 10*time.Second, lost{Node: w.states[gone].Self, Why: "silent", Certain: certain})
				}
			}
			w.run()
			left := slices.DeleteFunc([]int{0, 1, 2}, func(n int) bool { return n == gone })
			w.in(1, left...)
			fence := 10*time.Second + w.policy.StopTimeout + fenceMargin
			if began := w.began[left[0]]; began < fence != certain {
				t.Errorf("node %d is lost, certainly: %v: the next round begins after %v", gone, certain, began)
			}
			said := 0
			for _, line := range w.log {
				if strings.Contains(line, fmt.Sprintf("node %d: launcher.say {Text:in ", left[0])) && strings.Contains(line, "this node begins no round before that") {
					said++
				}
			}
			if said > 1 || said == 1 == certain {
				t.Errorf("node %d is lost, certainly: %v: the wait is said %d times", gone, certain, said)
			}
		}
	}
}

// echoed is the failure of a worker whose peer was gone.
func echoed(n, local int) finished {
	f := failure(n, local, job.Exit{Code: 1})
	f.Failure.Echo = true
	return f
}

// The leader's machine dies. One member gives it up before the other, and stops its workers; those of the other fail of that, or of the end of
// the leader's, before it has given the leader up as well: it meets the first again all the same, and that is no failure.
func TestFailureInTheLeadersSilence(t *testing.T) {
	fails := failure(1, 0, job.Exit{Code: 3})
	early := failure(1, 1, job.Exit{Code: 3})
	early.Failure.Ago = 30 * time.Second
	gone, silent := lost{Why: "connection refused", Certain: true}, lost{Why: "silent", Quiet: 10 * time.Second}
	for name, c := range map[string]struct {
		events   []any
		lost     lost
		restarts int
		free     int // of the next round; -1: the job ends with the failure
	}{
		"of another's end":                      {[]any{echoed(1, 0)}, silent, 0, 1},
		"of itself":                             {[]any{fails}, silent, 0, 1},
		"two":                                   {[]any{fails, echoed(1, 1)}, silent, 0, 1},
		"where failures may be made up for":     {[]any{echoed(1, 0)}, silent, 2, 1},
		"a closed connection":                   {[]any{echoed(1, 0)}, gone, 0, 1},
		"of itself, and a closed connection":    {[]any{fails}, gone, 0, 1},
		"silent before it was closed":           {[]any{noticed{0, "x", 4 * time.Second}, fails}, gone, 0, 1},
		"the agent is replaced":                 {[]any{noticed{0, "x", 4 * time.Second}, fails, doom{}, resumed{}}, lost{Why: "it was not reached", Quiet: time.Second}, 0, 1},
		"the leader gave this node up":          {[]any{echoed(1, 0)}, lost{Why: "refused", Certain: true, GaveUp: true, Quiet: 12 * time.Second}, 0, 1},
		"before":                                {[]any{early}, silent, 0, -1},
		"before, and one of another's end":      {[]any{echoed(1, 0), early}, silent, 0, -1},
		"before, and it may be made up for":     {[]any{early}, silent, 1, 0},
		"before, and the connection was closed": {[]any{early}, gone, 0, -1},
	} {
		t.Run(name, func(t *testing.T) {
			w := elasticWorld(t, 3, 2, 3)
			w.policy.MaxRestarts, w.dead[0], w.now = c.restarts, true, time.Minute
			w.later(2, 0, c.lost)
			for i, e := range c.events {
				w.later(1, time.Duration(1+i)*time.Millisecond, e)
			}
			w.later(1, 200*time.Millisecond, c.lost)
			w.run()
			if c.free < 0 {
				if s := w.states[1]; !s.Ended || s.Verdict.Code != 3 {
					t.Fatalf("%+v\n%s", s, strings.Join(w.log, "\n"))
				}
				return
			}
			w.in(1, 1, 2)
			if s := w.states[1]; s.Free != c.free {
				t.Errorf("%d rounds are free, want %d", s.Free, c.free)
			}
		})
	}
}

// A member's agent stands still, and its workers are killed for that. Those of the others fail of it before the leader has given that node up: it is
// waited for, and the loss is what went wrong. A failure from before, or while all are heard, waits for nobody.
func TestFailureInAMembersSilence(t *testing.T) {
	early := failure(1, 0, job.Exit{Code: 3})
	early.Failure.Ago = 30 * time.Second
	silent := noticed{2, "x", 3 * time.Second}
	given := lost{Node: 2, Why: "silent", Quiet: 10 * time.Second}
	for name, c := range map[string]struct {
		node     int
		failure  finished
		fate     any // of the silent node, 6 s later; nil: it stays silent
		code     int // with which all end; 0: they meet again
		elastic  bool
		restarts int
	}{
		"of a member's worker":          {1, echoed(1, 0), given, 0, true, 0},
		"of the leader's worker":        {0, echoed(0, 0), given, 0, true, 0},
		"of itself":                     {1, failure(1, 0, job.Exit{Code: 3}), given, 0, true, 0},
		"it might be made up for":       {1, echoed(1, 0), given, 0, true, 2},
		"in a fixed world":              {1, echoed(1, 0), given, job.ExitRetry, false, 0},
		"the node is heard again":       {1, echoed(1, 0), noticed{Node: 2, What: "heard again"}, 1, true, 0},
		"the node says something":       {1, echoed(1, 0), told{2, news{Kind: newsHere}}, 1, true, 0},
		"the node's fate stays unknown": {1, echoed(1, 0), nil, 1, true, 0},
		"before":                        {1, early, nil, 3, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := elasticWorld(t, 3, 2, 3)
			w.policy.MaxRestarts, w.policy.Regroups, w.now = c.restarts, c.elastic, time.Minute
			w.cut[2] = true
			w.feed(0, silent)
			w.feed(c.node, c.failure)
			if c.fate != nil {
				w.later(0, 6*time.Second, c.fate)
			}
			w.later(0, time.Minute, given)
			w.later(2, time.Minute, lost{Why: "silent", Quiet: time.Minute})
			w.run()
			if said := strings.Contains(strings.Join(w.log, "\n"), "what was first is said when node 2 (host-2) is heard again, or given up"); said == (c.code == 3) {
				t.Errorf("it is said that the node's fate is waited for: %t", said)
			}
			if c.code == 0 {
				w.in(1, 0, 1)
				if s := w.states[0]; s.Free != 1 {
					t.Errorf("%d rounds are free", s.Free)
				}
				return
			}
			for _, s := range w.states[:2] {
				if !s.Ended || s.Verdict.Code != c.code {
					t.Errorf("%+v\n%s", s.Verdict, strings.Join(w.log, "\n"))
				}
			}
		})
	}
}

// In a world that may not change a failure that followed from the end of the leader's node is not what the job ends of.
func TestFailureInTheLeadersSilenceOfAFixedWorld(t *testing.T) {
	early := failure(1, 0, job.Exit{Code: 3})
	early.Failure.Ago = 30 * time.Second
	for code, e := range map[int]finished{job.ExitRetry: echoed(1, 0), 3: early} {
		w := newWorld(t, 3).begin()
		w.dead[0], w.now = true, time.Minute
		w.feed(1, e)
		w.later(1, 100*time.Millisecond, lost{Why: "silent", Quiet: 10 * time.Second})
		w.run()
		if v := w.states[1].Verdict; v == nil || v.Code != code {
			t.Errorf("%+v: %+v", e.Failure, v)
		}
	}
}

// A member whose worker failed waits for as long as its leader is silent, and when that is heard again, for what it says.
func TestWaitForTheLeadersFate(t *testing.T) {
	w := elasticWorld(t, 3, 2, 3)
	p := w.policy
	play := func(events ...any) (s state, todo []any) {
		s = w.states[1]
		for i, e := range append([]any{noticed{0, "x", 3 * time.Second}, echoed(1, 0), emptied{}, expired{}, expired{}}, events...) {
			s, todo = decide(p, s, time.Minute+time.Duration(i)*10*time.Second, e)
		}
		return s, todo
	}
	if s, todo := play(); s.Ended || s.Verdict != nil || !slices.Contains(todo, any(expire{testPolicy.leaveTime()})) {
		t.Errorf("it does not wait: %v", todo)
	}
	if s, todo := play(noticed{Node: 0, What: "heard again"}); s.Ended || !slices.Contains(todo, any(p.awaitVerdict())) {
		t.Errorf("it leaves no time for an answer: %v", todo)
	}
	if s, _ := play(noticed{Node: 0, What: "heard again"}, expired{}); !s.Ended || s.Verdict.Code != 1 {
		t.Errorf("without an answer: %+v", s.Verdict)
	}
	said := job.Verdict{Code: 7, Class: job.Failed, Sentence: "rank 0 was first"}
	if s, _ := play(told{0, news{Kind: newsVerdict, Verdict: &said}}); !s.Ended || s.Verdict.Code != 7 {
		t.Errorf("with one: %+v", s.Verdict)
	}
	if s, todo := play(told{0, news{Kind: newsStop}}, expired{}); !s.Ended {
		t.Errorf("it was heard, and says no more: %v", todo)
	}
}

// Who is told to stop meanwhile ends as told; a failure that counts is told all the same.
func TestToldToStopInTheLeadersSilence(t *testing.T) {
	early := failure(1, 0, job.Exit{Code: 3})
	early.Failure.Ago = 30 * time.Second
	for code, e := range map[int]finished{job.ExitTERM: echoed(1, 0), 3: early} {
		for _, regroups := range []bool{true, false} {
			for _, over := range []any{lost{Why: "silent", Quiet: 10 * time.Second}, expired{}} {
				w := elasticWorld(t, 3, 2, 3)
				w.policy.Regroups = regroups
				s := w.states[1]
				for i, event := range []any{noticed{0, "x", 3 * time.Second}, e, emptied{}, signalled{syscall.SIGTERM}, over} {
					s, _ = decide(w.policy, s, time.Minute+time.Duration(i)*time.Second, event)
				}
				if !s.Ended || s.Verdict.Code != code {
					t.Errorf("%+v, then %+v: %+v", e.Failure, over, s.Verdict)
				}
			}
		}
	}
}

// Nodes that wait are let in when the world is full with them, or when one has waited long enough for more.
func TestLateComers(t *testing.T) {
	for _, c := range []struct {
		policy string
		queue  int
		after  time.Duration // that the round is called off; 0: never
	}{
		{"now", 2, time.Millisecond},
		{"now", 1, 30 * time.Second},
		{"at-restart", 2, 0},
		{"never", 2, 0},
	} {
		w := elasticWorld(t, 2, 2, 4)
		w.policy.Join = c.policy
		w.feed(0, queued{c.queue})
		w.run()
		met, began := len(w.members) > 1, w.began[0]
		if met != (c.after > 0) || met && (began < c.after || began > c.after+time.Second) {
			t.Errorf("%+v: they met again: %v, and began at %v", c, met, began)
		}
		if met && (w.states[0].Free != 1 || w.states[0].Round != 1) {
			t.Errorf("%+v: round %d, of which free %d", c, w.states[0].Round, w.states[0].Free)
		}
	}
}

// Where all run to their end although one failed, nobody is let in any more, for whom they would be stopped.
func TestLateComersWhereNobodyIsStopped(t *testing.T) {
	for _, failed := range []bool{false, true} {
		w := elasticWorld(t, 2, 2, 4)
		w.policy.Regroups, w.policy.OnExit = false, onExitLeave
		if failed {
			w.feed(1, failure(1, 0, job.Exit{Code: 3}))
			w.run()
		}
		w.feed(0, queued{2})
		w.run()
		if met := len(w.members) > 1; met == failed {
			t.Errorf("a failure: %v: they met again: %v", failed, met)
		}
	}
}

// Nor is anybody from when a worker's work is done, on whichever node that is: it would be begun again. In the next round, if there is one, it counts no more.
func TestLateComersAtTheEnd(t *testing.T) {
	for n := range 2 {
		w := elasticWorld(t, 2, 2, 4)
		w.policy.MaxRestarts = 1
		w.feed(n, finished{job.Ended{Rank: 2 * n}, nil})
		w.run()
		w.feed(0, queued{2})
		w.run()
		if len(w.members) > 1 {
			t.Errorf("a worker of node %d had ended, and they met again", n)
		}
		w.feed(n, failure(n, 1, job.Exit{Code: 3}))
		w.run()
		if s := w.states[0]; len(w.members) < 2 || s.Round != 1 || slices.ContainsFunc(s.Nodes, func(n *node) bool { return n.Ends }) {
			t.Errorf("after a failure on node %d: %d meetings, %+v", n, len(w.members)-1, s.Nodes)
		}
	}
}

// A round that failed is followed by one with those who wait, unless they are not let in at all.
func TestLateComersAtRestart(t *testing.T) {
	for policy, met := range map[string]bool{"at-restart": true, "never": false} {
		w := elasticWorld(t, 2, 2, 4)
		w.policy.Join, w.policy.MaxRestarts = policy, 1
		w.feed(0, queued{2})
		w.feed(1, failure(1, 0, job.Exit{Code: 3}))
		w.run()
		if got := len(w.members) > 1; got != met || w.states[0].Round != 1 || w.states[0].Free != 0 {
			t.Errorf("%s: they met again: %v; %+v", policy, got, w.states[0])
		}
	}
}

// A failure counts in each world, whoever leads.
func TestFailuresCountAcrossWorlds(t *testing.T) {
	w := elasticWorld(t, 3, 2, 3)
	w.policy.MaxRestarts = 1
	w.feed(2, failure(2, 0, job.Exit{Code: 3}))
	w.run()
	w.in(1, 0, 1, 2)
	w.die(0)
	w.run()
	w.in(2, 1, 2)
	w.feed(2, failure(1, 0, job.Exit{Code: 4}))
	w.run()
	w.all(4, "after 2 restarts")
}

// An agent that dies at any moment of all this is taken over from, and it ends as well.
func TestTakeOverWhileTheyMeetAgain(t *testing.T) {
	for n := range 3 {
		for after := range 30 {
			w := elasticWorld(t, 4, 2, 4)
			w.die(3)
			w.laterDoom(n, time.Duration(after)*20*time.Millisecond)
			w.run()
			w.in(1, 0, 1, 2)
		}
	}
}

// Nobody else comes: the job ends as one that lost a node, on all that are left.
func TestNoOtherWorld(t *testing.T) {
	w := elasticWorld(t, 3, 3, 3)
	w.die(1)
	w.run()
	w.all(job.ExitRetry, "nobody came")
}

// A node that is told to stop while its world comes to an end ends as told.
func TestToldToStopBetweenWorlds(t *testing.T) {
	for after := range 40 {
		for n := range 3 {
			w := elasticWorld(t, 3, 3, 3)
			w.policy.Nodes = 3
			w.dead[2] = true
			if n != 2 {
				w.dead[2] = false
				w.die(2)
				w.later(n, time.Duration(after)*20*time.Millisecond, signalled{syscall.SIGTERM})
				w.run()
				if s := w.states[n]; !s.Meeting && (!s.Ended || s.Verdict.Code != job.ExitTERM) {
					t.Fatalf("node %d, after %d: %+v\n%s", n, after, s, strings.Join(w.log, "\n"))
				}
			}
		}
	}
}

// The loss of the leader leaves workers that were being stopped for a checkpoint no more time than the fence gives.
func TestLeaderLostInAnOrderedStop(t *testing.T) {
	w := elasticWorld(t, 2, 1, 2)
	s := w.states[1]
	s, _ = decide(w.policy, s, 0, told{0, news{Kind: newsStop, Order: orderRestart, Why: "x"}})
	s, todo := decide(w.policy, s, time.Second, lost{Why: "silent"})
	if !slices.Contains(todo, any(stop{Within: w.policy.StopTimeout})) {
		t.Errorf("it does %v", todo)
	}
	if s, todo = decide(w.policy, s, 2*time.Second, emptied{}); s.Meeting || !slices.Contains(todo, any(wake{8 * time.Second})) {
		t.Errorf("it does not wait for the fence: %v", todo)
	}
	if s, todo = decide(w.policy, s, 10*time.Second, woken{}); !s.Meeting || !slices.Contains(todo, any(meet{Past: job.Tally{Rounds: 1, Free: 1}, Expect: 1})) {
		t.Errorf("it does %v", todo)
	}
}

// A node that has done its work and loses the leader does not say that the world is over: a leader that lives goes on without it.
func TestDoneAndCutOff(t *testing.T) {
	w := elasticWorld(t, 3, 1, 3)
	for range 2 {
		w.feed(2, finished{Worker: job.Ended{Rank: 4}})
	}
	w.feed(2, emptied{})
	w.run()
	s, todo := decide(w.policy, w.states[0], w.now, lost{Node: 2, Why: "silent"})
	if s.Stopping || s.Next != nil {
		t.Errorf("the leader does %v", todo)
	}
	s, _ = decide(w.policy, w.states[2], w.now, lost{Why: "silent"})
	s, todo = decide(w.policy, s, w.now+w.policy.fence(), woken{})
	if !s.Meeting || s.Expect != 0 {
		t.Errorf("the one that was cut off does %v", todo)
	}
}

// One of which the store does not hear, either, may be the one that is cut off: it stops its workers before those begin another round. Of a node that is gone
// for certain nothing is to be feared.
func TestLeaderIsDeserted(t *testing.T) {
	for name, c := range map[string]struct {
		events []any
		stops  bool
	}{
		"first the nodes":     {[]any{lost{Node: 1, Why: "silent"}, lost{Node: 2, Why: "silent"}, away{true}}, true},
		"first the store":     {[]any{away{true}, lost{Node: 2, Why: "silent"}, lost{Node: 1, Why: "silent"}}, true},
		"too few for a world": {[]any{away{true}, lost{Node: 2, Why: "silent"}}, false},
		"and one who waits":   {[]any{queued{1}, away{true}, lost{Node: 2, Why: "silent"}}, true},
		"for certain":         {[]any{away{true}, lost{Node: 2, Why: "connection refused", Certain: true}, lost{Node: 1, Why: "x", Certain: true}}, false},
		"the store is back":   {[]any{away{true}, away{false}, lost{Node: 1, Why: "silent"}, lost{Node: 2, Why: "silent"}}, false},
		"the store alone":     {[]any{away{true}}, false},
		"a node is not heard": {[]any{lost{Node: 1, Why: "silent"}}, false},
	} {
		w := elasticWorld(t, 3, 2, 3)
		w.policy.Fewest = 2
		for n := 1; n < 3; n++ {
			for local := range 2 {
				w.feed(n, finished{Worker: ended(n, local, job.Exit{})})
			}
			w.feed(n, emptied{})
		}
		w.run()
		s := w.states[0]
		var todo []any
		for _, e := range c.events {
			var more []any
			s, more = decide(w.policy, s, w.now, e)
			todo = append(todo, more...)
		}
		if s.Stopping != c.stops || slices.Contains(todo, any(stop{Within: w.policy.StopTimeout})) != c.stops {
			t.Errorf("%s: %v", name, todo)
		}
	}
}

// A leader that hears none of several others says that it may be the one that is cut off; of one that it alone does not hear, nobody knows.
func TestLeaderHearsNobody(t *testing.T) {
	for silent := 1; silent <= 2; silent++ {
		w := newWorld(t, 3).begin()
		s := w.states[0]
		for n := range silent {
			s, _ = decide(w.policy, s, w.now, noticed{Node: n + 1, What: "nothing heard for 3.1s", Quiet: 3100 * time.Millisecond})
		}
		for n := range silent {
			s, _ = decide(w.policy, s, w.now+7*time.Second, lost{Node: n + 1, Why: "silent for 10s", Quiet: 10 * time.Second})
		}
		s, _ = decide(w.policy, s, w.now+8*time.Second, settled{})
		v := s.Verdict
		if says := strings.Contains(v.Sentence, "this one may be the one that is cut off"); says != (silent == 2) || !strings.HasPrefix(v.Sentence, "node 1 (host-1) was lost") {
			t.Errorf("%d silent: %s", silent, v.Sentence)
		}
	}
}

// Who comes to the next world is said by name. A node that comes back, and hears from the leader that it was given up, says nothing of
// others: the leader does. Nor does one that was told so by its leader.
func TestWhoComes(t *testing.T) {
	w := elasticWorld(t, 3, 2, 3)
	leader, _ := decide(w.policy, w.states[0], time.Second, lost{Node: 2, Why: "silent"})
	for _, event := range []any{emptied{}, told{1, news{Kind: newsClear}}, settled{}, woken{}} {
		leader, _ = decide(w.policy, leader, time.Minute, event)
	}
	if leader.Next == nil || leader.Led || leader.Expect != 2 || !slices.Equal(leader.Lost, []int{2}) {
		t.Errorf("the leader: %+v", leader)
	}
	for _, c := range []struct {
		event  any
		expect int
		lost   []int
		led    bool
	}{
		{lost{Why: "refused: it was given up", Certain: true, GaveUp: true}, 0, nil, true},
		{lost{Why: "connection refused", Certain: true}, 2, []int{0}, false},
		{lost{Why: "silent"}, 2, []int{0}, false},
		{told{0, news{Kind: newsMeet, Past: &job.Tally{Rounds: 1}}}, 0, nil, true},
	} {
		if s, _ := decide(w.policy, w.states[1], time.Second, c.event); s.Next == nil || s.Expect != c.expect || !slices.Equal(s.Lost, c.lost) || s.Led != c.led {
			t.Errorf("%+v: %+v", c.event, s)
		}
	}
}

// A leader that quits is not among those who come.
func TestLeaderThatQuits(t *testing.T) {
	w := elasticWorld(t, 3, 2, 3)
	s, _ := decide(w.policy, w.states[0], time.Second, broken{job.Verdict{Code: 71, Class: job.Lost, Sentence: "no disk"}})
	if over := s.over(); !s.Ended || over.Expect != 2 || !slices.Equal(over.Lost, []int{0}) || over.Verdict != nil {
		t.Errorf("it says %+v: %+v", over, s)
	}
}

// Nor does anybody who heard its goodbye take it for one of them.
func TestLeaderThatIsTold(t *testing.T) {
	w := elasticWorld(t, 3, 2, 3)
	w.policy.Yields = true
	s, todo := w.states[0], []any(nil)
	for _, event := range []any{signalled{syscall.SIGTERM}, emptied{}, told{1, news{Kind: newsClear}}, told{2, news{Kind: newsClear}}, woken{}} {
		var deeds []any
		s, deeds = decide(w.policy, s, time.Minute, event)
		todo = append(todo, deeds...)
	}
	i := slices.IndexFunc(todo, func(deed any) bool { t, ok := deed.(tell); return ok && t.News.Kind == newsMeet })
	if i < 0 || s.Expect != 2 || !slices.Equal(s.Lost, []int{0}) {
		t.Fatalf("it does %+v: %+v", todo, s)
	}
	if m, _ := decide(w.policy, w.states[1], time.Minute, told{0, todo[i].(tell).News}); m.Next == nil || m.Led {
		t.Errorf("a member: %+v", m)
	}
}

// Each node that is told to stop says for how long its workers have, whoever was told before.
func TestEachSaysHowLong(t *testing.T) {
	for self := range 3 {
		for name, before := range map[string][]any{
			"first":          nil,
			"after a member": {told{2, news{Kind: newsQuit, Why: "node 2 (host-2) was told to stop by SIGTERM"}}},
			"last":           {told{1, news{Kind: newsQuit, Why: "1"}}, told{2, news{Kind: newsQuit, Why: "2"}}},
			"after the word": {told{0, news{Kind: newsStop, Order: orderRestart, Why: "node 2 (host-2) was told to stop by SIGTERM"}}},
		} {
			w := elasticWorld(t, 3, 2, 3)
			w.policy.Yields, w.policy.Grace = true, 25*time.Second
			s, said := w.states[self], 0
			for _, event := range append(before, signalled{syscall.SIGTERM}) {
				var todo []any
				s, todo = decide(w.policy, s, time.Minute, event)
				for _, deed := range todo {
					text := ""
					switch d := deed.(type) {
					case say:
						text = d.Text
					case stop:
						text = d.Said
					}
					if text == fmt.Sprintf("node %d (host-%d) was told to stop by SIGTERM; workers have 25s to end", self, self) {
						said++
					}
				}
			}
			if said != 1 {
				t.Errorf("node %d, told %s: it says so %d times", self, name, said)
			}
		}
	}
}

// A leader that was told to stop leaves others behind, unless all were told, and knows when its platform may end it.
func TestLeavesOthers(t *testing.T) {
	quits := func(n int) any { return told{n, news{Kind: newsQuit, Why: "was told"}} }
	term := signalled{syscall.SIGTERM}
	for _, c := range []struct {
		events []any
		others bool
		leave  time.Duration
	}{
		{[]any{quits(1)}, false, 0},
		{[]any{term}, true, time.Minute + 27*time.Second},
		{[]any{term, quits(1)}, true, time.Minute + 27*time.Second},
		{[]any{quits(1), term, departed{1}, quits(2), departed{2}}, false, time.Minute + 27*time.Second},
		{[]any{term, quits(1), quits(2), queued{1}}, true, time.Minute + 27*time.Second},
		{[]any{broken{job.Verdict{Code: 71, Class: job.Lost, Sentence: "no disk"}}}, true, 0},
		{[]any{broken{job.Verdict{Code: 71, Class: job.Lost, Sentence: "no disk"}}, term}, true, time.Minute + 27*time.Second},
	} {
		w := elasticWorld(t, 3, 2, 3)
		w.policy.Yields, w.policy.Grace = true, 25*time.Second
		s := w.states[0]
		for _, event := range c.events {
			s, _ = decide(w.policy, s, time.Minute, event)
		}
		if s.leavesOthers() != c.others || s.Leave != c.leave {
			t.Errorf("%+v: %v, %v", c.events, s.leavesOthers(), s.Leave)
		}
	}
}

// A leader's agent that died may not have left what a member told it: that it quits. The next one is told again, and takes the member's goodbye for none
// of a node that was lost.
func TestQuitIsToldAgain(t *testing.T) {
	w := elasticWorld(t, 3, 2, 3)
	w.policy.Yields = true
	leader, _ := decide(w.policy, w.states[0], time.Minute, resumed{})
	member, deeds := w.states[1], []any(nil)
	for _, e := range []any{signalled{syscall.SIGTERM}, renewed{0}} {
		member, deeds = decide(w.policy, member, time.Minute, e)
	}
	for _, deed := range deeds {
		if d, ok := deed.(tell); ok {
			leader, _ = decide(w.policy, leader, time.Minute, told{1, d.News})
		}
	}
	if !leader.Stopping {
		t.Errorf("it is not told that a member quits: %+v", deeds)
	}
	if leader, _ = decide(w.policy, leader, time.Minute, departed{1}); len(leader.Causes) > 0 || !leader.Nodes[1].Gone {
		t.Errorf("gone %v, causes %+v", leader.Nodes[1].Gone, leader.Causes)
	}
}

// A node that is lost as soon as it is in is not let in again at once, each time less so.
func TestFlapping(t *testing.T) {
	w := elasticWorld(t, 2, 1, 2)
	w.policy.Join = joinNow
	var waits []time.Duration
	for range 3 {
		s := w.states[0]
		s, _ = decide(w.policy, s, w.now+time.Second, lost{Node: 1, Why: "refused", Certain: true})
		s, _ = decide(w.policy, s, w.now+2*time.Second, met{Generation: s.Generation + 1, Nodes: []string{"host-0"}})
		s, _ = decide(w.policy, s, w.now+2*time.Second, opened{start{Port: 1}})
		s, _ = decide(w.policy, s, w.now+2*time.Second, begun{2})
		s, todo := decide(w.policy, s, w.now+3*time.Second, queued{1})
		for _, deed := range todo {
			if d, ok := deed.(wake); ok {
				waits = append(waits, d.Within)
			}
		}
		s, _ = decide(w.policy, s, w.now+4*time.Second, met{Generation: s.Generation + 1, Nodes: []string{"host-0", "host-1"}})
		s, _ = decide(w.policy, s, w.now+4*time.Second, opened{start{Port: 1}})
		w.states[0], _ = decide(w.policy, s, w.now+4*time.Second, begun{2})
		w.now += 5 * time.Second
	}
	if want := []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute}; !slices.Equal(waits, want) {
		t.Errorf("it waits %v, want %v", waits, want)
	}
}

// A leader that came later does not know of the first rounds; the verdict of those who were there tells of them all the same.
func TestRoundsBeforeTheLeader(t *testing.T) {
	first, second := job.Round{Number: 0, Message: "first"}, job.Round{Number: 1, Message: "second"}
	for _, c := range []struct{ known, told, want []job.Round }{
		{[]job.Round{first, second}, nil, []job.Round{first, second}},
		{[]job.Round{first}, []job.Round{second}, []job.Round{first, second}},
		{[]job.Round{first, second}, []job.Round{second}, []job.Round{first, second}},
		{nil, []job.Round{first, second}, []job.Round{first, second}},
		{nil, nil, nil},
	} {
		w := newWorld(t, 2).begin()
		s := w.states[1]
		s.Past = c.known
		s, _ = decide(w.policy, s, w.now, told{0, news{Kind: newsVerdict, Verdict: &job.Verdict{Class: job.Succeeded, Rounds: c.told}}})
		if !slices.EqualFunc(s.Verdict.Rounds, c.want, func(a, b job.Round) bool { return a.Number == b.Number && a.Message == b.Message }) {
			t.Errorf("%v and %v: %v", c.known, c.told, s.Verdict.Rounds)
		}
	}
}

// Who is lost may have seen this node's workers work until their end.
func TestFenceOfThoseWhoWorked(t *testing.T) {
	p := policy{Regroups: true, StopTimeout: 5 * time.Second}
	for _, c := range []struct{ fence, worked, want time.Duration }{
		{0, time.Second, 0},
		{29 * time.Second, 0, 29 * time.Second},
		{29 * time.Second, 12 * time.Second, 29 * time.Second},
		{29 * time.Second, time.Second, 38 * time.Second},
	} {
		s := state{Now: 20 * time.Second, Fence: c.fence}
		if s.emptied(p, emptied{Worked: c.worked}); !s.Empty || s.Fence != c.want {
			t.Errorf("%+v: %v", c, s.Fence)
		}
	}
}

// A pause does not outlive its world. A leader that cannot hear a node, which may meet others without it, meets them too; one that knows
// that nobody is left there waits on for who resumes.
func TestPauseEndsWithItsWorld(t *testing.T) {
	for _, certain := range []bool{false, true} {
		for _, gone := range []int{0, 2} { // the leader, a member
			w := elasticWorld(t, 3, 2, 3)
			w.feed(1, ordered{orderPause})
			w.run()
			if !w.states[0].Paused {
				t.Fatalf("not paused\n%s", strings.Join(w.log, "\n"))
			}
			w.dead[gone] = true
			for n := range w.states {
				if w.talk(n, gone) {
					w.later(n, 10*time.Second, lost{Node: gone, Why: "silent", Certain: certain})
				}
			}
			w.run()
			left := slices.DeleteFunc([]int{0, 1, 2}, func(n int) bool { return n == gone })
			leader := w.states[left[0]]
			if gone == 2 && certain {
				if !leader.Paused {
					t.Errorf("the pause of those who are left is over\n%s", strings.Join(w.log, "\n"))
				}
				w.feed(0, ordered{orderResume})
				w.run()
				w.in(1, left...)
				continue
			}
			w.in(1, left...)
			if why := w.states[left[0]].Past[0].Message; !strings.HasSuffix(why, fmt.Sprintf("node %d (host-%d) was lost: silent%s", gone, gone, pauseIsOver)) {
				t.Errorf("it is told: %s", why)
			}
		}
	}
}

// The leader of a paused job can leave, and the others go on.
func TestLeaderLeavesPause(t *testing.T) {
	w := elasticWorld(t, 3, 2, 3)
	w.policy.Yields = true
	w.feed(0, ordered{orderPause})
	w.run()
	w.feed(0, signalled{syscall.SIGTERM})
	w.run()
	w.in(1, 1, 2)
	if v := w.states[0].Verdict; v == nil || v.Code != job.ExitTERM {
		t.Errorf("who left ends with %+v", v)
	}
}

// Nor is anybody left to run in a round that fails, for the sake of who was first, when a node is wanted.
func TestHeldWhereANodeIsWanted(t *testing.T) {
	for _, wanted := range []int{0, 1} {
		w := elasticWorld(t, 3, 2, 3)
		w.policy.Yields, w.policy.MaxRestarts = true, 1
		w.feed(2, echoed(2, 0))
		w.later(wanted, time.Second, signalled{syscall.SIGTERM})
		began := w.now
		w.run()
		for n, at := range w.stoppedAt() {
			if held := at - began; held < time.Second || held > time.Second+20*time.Millisecond {
				t.Errorf("node %d is wanted: node %d stops after %v", wanted, n, held)
			}
		}
		w.in(1, slices.DeleteFunc([]int{0, 1, 2}, func(n int) bool { return n == wanted })...)
	}
}
