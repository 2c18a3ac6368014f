package launcher

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report/events"
)

var testPolicy = policy{StopTimeout: 5 * time.Second, Grace: 25 * time.Second}

// world is a set of run loops without anything below them: news travels at once or later, workers obey or not,
// and time is a number. It shows what the judgement alone does.
type world struct {
	t      *testing.T
	policy policy
	own    map[int]policy // of nodes that were given another one
	states []state
	now    time.Duration
	timers []timer
	deaf   map[int]bool          // workers of these nodes leave TERM unheard; only KILL, by the end of the time, ends them
	dead   map[int]bool          // these nodes are gone, and with them all that they would do
	silent map[int]time.Duration // since when these reach no other, for that or another reason
	doomed map[int]bool          // the agents of these nodes die at their next event, before they have done what follows from it
	kept   []journal
	began  []time.Duration // when this node's workers were started last
	log    []string

	members [][]int                // by generation and group rank, which node that is
	fewest  int                    // nodes of a world
	waits   []int                  // nodes that are in the meeting for the next one
	expect  int                    // members of the last world that come, as somebody said; 0: nobody has
	heard   time.Duration          // when that was, or the first came
	cut     map[int]bool           // these nodes reach no other
	down    map[int][]int          // ranks of these nodes whose workers failed, and were not started again
	watch   func(n int, event any) // nil: nobody does
	mended  func(n int, m mend)    // the same
	told    map[int][]events.Line  // by each node, to the event log
}

type timer struct {
	at    time.Duration
	node  int
	event any
	world int // the node's generation when it was set
}

// past reports whether a timer is of a line that was closed since.
func (w *world) past(t timer) bool {
	switch t.event.(type) {
	case told, lost, departed, renewed:
		return w.states[t.node].Generation != t.world || w.states[t.node].Meeting
	}
	return false
}

func newWorld(t *testing.T, nodes int) *world {
	w := &world{t: t, policy: testPolicy, deaf: map[int]bool{}, dead: map[int]bool{}, silent: map[int]time.Duration{}, doomed: map[int]bool{}, cut: map[int]bool{}, down: map[int][]int{}, members: make([][]int, 1), told: map[int][]events.Line{}}
	for n := range nodes {
		w.members[0] = append(w.members[0], n)
		s := state{Self: n}
		for i := range nodes {
			name := fmt.Sprintf("host-%d", i)
			s.Nodes = append(s.Nodes, &node{Name: name, ID: name})
		}
		w.states = append(w.states, s)
		w.began = append(w.began, 0)
		w.kept = append(w.kept, journal{head: journalHead{Form: journalForm, State: s}})
	}
	return w
}

// flags are the policy that a node was given.
func (w *world) flags(n int) policy {
	if own, ok := w.own[n]; ok {
		return own
	}
	return w.policy
}

// begin opens the workers' store and starts two workers on each node.
func (w *world) begin() *world {
	for n := range w.states {
		w.states[n].Timeout, w.kept[n].head.State.Timeout = w.policy.NodeTimeout, w.policy.NodeTimeout
	}
	w.feed(0, opened{start{Port: 1}})
	for len(w.timers) > 0 { // the start reaches everyone
		t := w.timers[0]
		w.timers, w.now = w.timers[1:], t.at
		w.feed(t.node, t.event)
	}
	return w
}

// feed gives one event to one node and carries out what it decides.
func (w *world) feed(n int, event any) {
	switch event.(type) {
	case ending:
		w.ends()
		return
	case checked:
		w.gather()
		return
	}
	if w.dead[n] || w.states[n].Ended {
		return
	}
	switch e := event.(type) {
	case doom:
		w.doomed[n] = true
		return
	case death:
		w.die(n)
		w.gather()
		return
	case cutOff:
		w.cutOff(n, e.worked)
		return
	case stumble:
		if event = w.stumbles(n); event == nil {
			return
		}
	}
	if w.watch != nil {
		w.watch(n, event)
	}
	if e, ok := event.(finished); ok && e.Failure != nil && w.policy.mends() {
		w.down[n] = append(w.down[n], e.Worker.Rank)
	}
	if w.own == nil { // tests change what all nodes were given in the middle of a world
		w.states[n].Policy = nil
	}
	w.kept[n].head.Policy = w.flags(n)
	w.kept[n].add(w.now, event)
	s, todo := w.decide(n, event)
	w.states[n] = s
	if w.doomed[n] && !s.Ended {
		w.renew(n, todo)
		return
	}
	for _, deed := range todo {
		w.do(n, deed)
	}
	if w.states[n].Ended && !w.dead[n] {
		w.leave(n)
	}
}

// decide checks that the judgement leaves the state before as it was.
func (w *world) decide(n int, event any) (state, []any) {
	before := text(w.states[n])
	s, todo := decide(w.flags(n), w.states[n], w.now, event)
	if after := text(w.states[n]); after != before {
		w.t.Fatalf("%T changed an earlier state from\n%s to\n%s", event, before, after)
	}
	w.sumsUp(s)
	w.onlyGrows(w.states[n], s)
	w.told[n] = append(w.told[n], w.lines(n, w.states[n], event, s, todo)...)
	return s, todo
}

func text(s state) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// renew lets an agent die, with news on their way to it and from it. Of what it was to do only that is done which a clock
// reminds the next agent of. That one takes over, and its peers hear of it.
func (w *world) renew(n int, todo []any) {
	delete(w.doomed, n)
	w.log = append(w.log, fmt.Sprintf("%v node %d: its agent is replaced", w.now, n))
	w.timers = slices.DeleteFunc(w.timers, func(t timer) bool {
		news, ok := t.event.(told)
		return ok && (t.node == n || news.Node == n)
	})
	for _, deed := range todo {
		switch deed.(type) {
		case stop, kill, settle, expire, wake, mend:
			w.do(n, deed)
		}
	}
	w.states[n] = reread(w.t, w.states[n])
	w.later(n, 3*time.Millisecond, resumed{})
	for i := range w.states {
		if w.talk(i, n) {
			w.later(i, 3*time.Millisecond, renewed{w.states[n].Self})
		}
	}
}

// talk reports whether two nodes have a line to each other.
func (w *world) talk(a, b int) bool {
	x, y := &w.states[a], &w.states[b]
	return a != b && !w.cut[a] && !w.cut[b] && (x.leads() || y.leads()) && x.Generation == y.Generation && !x.Meeting && !y.Meeting
}

// reread is a state as another process reads it.
func reread(t *testing.T, s state) (again state) {
	t.Helper()
	b, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(b, &again)
	}
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func (w *world) leave(n int) {
	if w.states[n].Meeting { // the line is closed
		w.waits = slices.DeleteFunc(w.waits, func(i int) bool { return i == n })
		w.gather()
		return
	}
	w.log = append(w.log, fmt.Sprintf("%v node %d ends", w.now, n))
	w.goodbye(n)
	w.gather()
}

func (w *world) goodbye(n int) {
	w.waits = slices.DeleteFunc(w.waits, func(i int) bool { return i == n })
	me := w.states[n]
	for i := range w.states {
		if i != n && w.states[i].Generation == me.Generation && !w.states[i].Meeting && (me.leads() || w.states[i].leads()) {
			w.later(i, time.Millisecond, departed{me.Self})
		}
	}
}

// meets brings a node to the meeting for the next world. It begins when the nodes that are expected are there, or the fewest
// and time is over.
func (w *world) meets(n, expect int) {
	if last := len(w.members) - 1; w.states[n].Generation != last && slices.Contains(w.members[last], n) {
		return // an agent before this one was there, and the world is made
	}
	w.goodbye(n)
	if len(w.waits) == 0 {
		w.heard = w.now
	}
	if w.waits = append(w.waits, n); expect > 0 && w.expect == 0 && !w.cut[n] {
		w.expect, w.heard = expect, w.now
	}
	w.timers = append(w.timers, timer{at: w.now + 10*time.Minute, node: n, event: unmet{Verdict: job.Verdict{Code: job.ExitRetry, Class: job.Lost, Sentence: "nobody came"}}})
	w.gather()
}

// complete reports whether all are there who are expected, or the others have no workers any more.
func (w *world) complete() bool {
	members := 0
	for _, i := range w.waits {
		if w.states[i].Generation == w.states[w.waits[0]].Generation {
			members++
		}
	}
	if w.expect > 0 && members >= w.expect {
		return true
	}
	end := w.heard + w.policy.fence()
	if w.expect == 0 {
		end += w.policy.LastCall
	}
	if w.now < end {
		w.timers = append(w.timers, timer{at: end, node: -1, event: checked{}})
		return false
	}
	return true
}

// gather makes the next world when all who can come are there, if they are enough.
func (w *world) gather() {
	w.waits = slices.DeleteFunc(w.waits, func(i int) bool { return w.dead[i] || w.cut[i] || w.states[i].Ended })
	if len(w.waits) < w.fewest || len(w.waits) == 0 || !w.complete() {
		return
	}
	w.expect, w.heard = 0, 0
	members := slices.Sorted(slices.Values(w.waits))
	w.waits = nil
	e := met{Generation: len(w.members), Timeout: w.policy.NodeTimeout}
	for _, i := range members {
		e.Nodes = append(e.Nodes, fmt.Sprintf("host-%d", i))
		if next := *w.states[i].Next; next.Rounds > e.Past.Rounds {
			e.Past = next
		}
	}
	w.members = append(w.members, members)
	w.timers = slices.DeleteFunc(w.timers, func(t timer) bool {
		_, late := t.event.(unmet)
		return late && slices.Contains(members, t.node)
	})
	for rank, i := range members {
		e.Self, e.Machine = rank, w.states[i].Nodes[w.states[i].Self].Machine
		w.later(i, time.Millisecond, e)
	}
}

func (w *world) do(n int, deed any) {
	w.log = append(w.log, fmt.Sprintf("%v node %d: %T %+v", w.now, n, deed, deed))
	switch d := deed.(type) {
	case mend:
		if d.Node == w.states[n].Self {
			if w.mended != nil {
				w.mended(n, d)
			}
			w.down[n] = slices.DeleteFunc(w.down[n], func(rank int) bool { return rank == d.Rank })
		}
	case begin:
		w.began[n], w.down[n] = w.now, nil
		w.feed(n, begun{2})
	case stop:
		after := 10 * time.Millisecond
		if w.deaf[n] {
			after = d.Within
		}
		w.later(n, after, emptied{})
	case kill:
		w.later(n, 0, emptied{})
	case tell:
		for i := range w.states {
			if w.talk(n, i) && (d.To == everyone || d.To == w.states[i].Self) {
				w.later(i, time.Millisecond, told{w.states[n].Self, d.News})
			}
		}
	case settle:
		w.later(n, d.Within, settled{})
	case expire:
		w.timers = slices.DeleteFunc(w.timers, func(t timer) bool { return t.node == n && t.event == any(expired{}) })
		if d.Within > 0 {
			w.later(n, d.Within, expired{})
		}
	case wake:
		w.timers = slices.DeleteFunc(w.timers, func(t timer) bool { return t.node == n && t.event == any(woken{}) })
		w.later(n, d.Within, woken{})
	case meet:
		if d.Rest > 0 {
			w.goodbye(n)
			w.later(n, d.Rest, unmet{Verdict: job.Verdict{Code: job.ExitRetry, Class: job.Lost, Sentence: d.Out}})
		} else {
			w.meets(n, d.Expect)
		}
	case open:
		w.later(n, time.Millisecond, opened{start{Port: 2}})
	}
}

func (w *world) later(n int, after time.Duration, event any) {
	world := 0
	if n >= 0 {
		world = w.states[n].Generation
	}
	w.timers = append(w.timers, timer{w.now + after, n, event, world})
}

// laterDoom makes an agent die at its first event after a time.
func (w *world) laterDoom(n int, after time.Duration) { w.later(n, after, doom{}) }

// What happens to nodes is no event of the judgement.
type (
	doom    struct{} // the agent dies at its next event
	death   struct{}
	cutOff  struct{ worked bool } // its agent was cut off before, while its workers went on
	stumble struct{}              // a worker fails
	ending  struct{}              // of all workers that are left
	checked struct{}              // who waits
)

// stumbles is the failure of a worker of a node that runs; nil: none does.
func (w *world) stumbles(n int) any {
	s := w.states[n]
	for rank := 2 * s.Self; rank < 2*s.Self+2; rank++ {
		if !slices.Contains(w.down[n], rank) && s.Left > len(w.down[n]) {
			return finished{job.Ended{Rank: rank}, &job.Failure{Rank: rank, Group: s.Self, Restarts: s.lifeOf(rank), PID: 100, Exit: job.Exit{Code: 3}, Echo: w.now%3 == 0}}
		}
	}
	return nil
}

// cutOff parts a node from all others. Both sides notice, within a second, that nothing is heard; where agents did not hear each other
// before, and collectives went on until now, each is sure of that until some seconds ago.
func (w *world) cutOff(n int, worked bool) {
	for i := range w.states {
		silence := w.policy.nodeTimeout() + time.Duration(i*n%7)*150*time.Millisecond
		for _, side := range [][2]int{{i, n}, {n, i}} {
			sure := time.Duration(0)
			if worked {
				sure = time.Duration(side[0]*5%9) * time.Second
			}
			w.loses(side[0], side[1], silence-sure, lost{Why: "silent", Owed: sure, Quiet: silence})
		}
	}
	w.cut[n], w.silent[n] = true, w.now
	w.gather()
}

// ends lets workers end well wherever there are any, as often as it takes.
func (w *world) ends() {
	left := false
	for n, s := range w.states {
		if w.dead[n] || s.Ended {
			continue
		}
		left = true
		if s.Started && !s.Stopping && s.Left > len(w.down[n]) {
			w.feed(n, finished{})
			if w.states[n].Left == 0 {
				w.later(n, 0, emptied{})
			}
		}
	}
	if left {
		w.timers = append(w.timers, timer{at: w.now + time.Second, node: -1, event: ending{}})
	}
}

// run lets time pass until nothing more is due.
func (w *world) run() {
	for steps := 0; len(w.timers) > 0; steps++ {
		if steps > 10000 {
			w.t.Fatalf("the world does not come to rest: \n%s", strings.Join(w.log[:min(len(w.log), 200)], "\n"))
		}
		w.step()
	}
}

// step lets what is due next happen.
func (w *world) step() {
	next := 0
	for i, t := range w.timers {
		if t.at < w.timers[next].at {
			next = i
		}
	}
	t := w.timers[next]
	w.timers = append(w.timers[:next], w.timers[next+1:]...)
	w.now = t.at
	if !w.past(t) {
		w.feed(t.node, t.event)
	}
}

// finish lets all workers that still run end well.
func (w *world) finish() {
	for n := range w.states {
		for !w.dead[n] && w.states[n].Started && !w.states[n].Stopping && w.states[n].Left > 0 {
			w.feed(n, finished{})
		}
		w.later(n, 0, emptied{})
	}
	w.run()
}

// die is a node that is gone without a word; its peers learn it a little later.
func (w *world) die(n int) {
	for i := range w.states {
		w.loses(i, n, 300*time.Millisecond, lost{Why: "connection refused", Certain: true})
	}
	w.dead[n], w.silent[n] = true, w.now
}

// loses lets node i notice that n is gone: in the world in which both are, or will be in a moment.
func (w *world) loses(i, n int, after time.Duration, e lost) {
	last := len(w.members) - 1
	me, other := slices.Index(w.members[last], i), slices.Index(w.members[last], n)
	switch {
	case w.cut[i] || w.cut[n] || w.dead[n] || i == n:
	case me >= 0 && other >= 0 && (me == 0 || other == 0) && !w.states[n].Ended && !slices.Contains(w.waits, n):
		e.Node = other
		w.timers = append(w.timers, timer{w.now + after, i, e, last})
	}
}

// all asserts that every living node ended with the same code, and that its sentence holds the words.
func (w *world) all(code int, words ...string) {
	w.t.Helper()
	for n, s := range w.states {
		if w.dead[n] {
			continue
		}
		if !s.Ended || s.Verdict == nil {
			w.t.Fatalf("node %d never ended\n%s", n, strings.Join(w.log, "\n"))
		}
		if s.Verdict.Code != code {
			w.t.Errorf("node %d ends with %d (%s), want %d", n, s.Verdict.Code, s.Verdict.Sentence, code)
		}
		for _, word := range words {
			if !strings.Contains(s.Verdict.Sentence, word) {
				w.t.Errorf("node %d says %q, want %q in it", n, s.Verdict.Sentence, word)
			}
		}
	}
}

func failure(n, local int, e job.Exit) finished {
	return finished{ended(n, local, e), &job.Failure{Node: fmt.Sprintf("host-%d", n), Group: n, Rank: 2*n + local, LocalRank: local, PID: 100 + local, Exit: e}}
}

func ended(n, local int, e job.Exit) job.Ended {
	return job.Ended{Rank: 2*n + local, LocalRank: local, Group: n, PID: 100 + local, Exit: e}
}

func TestDecide(t *testing.T) {
	killed := job.Exit{Signal: 9}
	for _, c := range []struct {
		name  string
		nodes int
		what  func(w *world)
		code  int
		words []string
	}{
		{"all end well", 3, func(w *world) {
			for n := range 3 {
				w.feed(n, finished{})
				w.feed(n, finished{})
				w.later(n, 0, emptied{})
			}
		}, 0, []string{"all 3 nodes"}},

		{"alone, and well", 1, func(w *world) {
			w.feed(0, finished{})
			w.feed(0, finished{})
			w.later(0, 0, emptied{})
		}, 0, []string{"all workers ended well"}},

		{"a worker of the leader is killed", 2, func(w *world) { w.feed(0, failure(0, 1, killed)) },
			137, []string{"rank 1 on host-0", "SIGKILL", "all 2 nodes stopped"}},

		{"a worker of a member is killed", 3, func(w *world) { w.feed(2, failure(2, 0, killed)) },
			137, []string{"rank 4 on host-2 (node 2, local rank 0, pid 100)", "SIGKILL"}},

		{"the first cause wins over louder ones that come first", 3, func(w *world) {
			w.now = 10 * time.Second
			w.feed(0, failure(0, 0, job.Exit{Code: 1}))
			first := failure(2, 1, job.Exit{Code: 7})
			first.Failure.Ago = 50 * time.Millisecond
			w.later(2, 5*time.Millisecond, first)
		}, 7, []string{"rank 5 on host-2"}},

		{"who says that another one went away is not the first", 2, func(w *world) {
			w.now = 10 * time.Second
			w.feed(0, echoed(0, 0))
			w.later(1, 5*time.Millisecond, failure(1, 1, job.Exit{Code: 6}))
		}, 6, []string{"rank 3 on host-1"}},

		{"a culprit that takes its time to end", 2, func(w *world) {
			w.feed(0, echoed(0, 0))
			late := failure(1, 1, job.Exit{Code: 6, Sent: true}) // it got our TERM while it ended
			late.Failure.Exception = "ValueError: bad"
			w.later(1, 8*time.Millisecond, late)
		}, 6, []string{"rank 3 on host-1", "ValueError: bad"}},

		{"what a worker says when it is stopped is no cause", 2, func(w *world) {
			w.feed(0, failure(0, 0, job.Exit{Code: 5}))
			late := failure(1, 1, job.Exit{Code: 6, Sent: true})
			late.Failure.Exception = "RuntimeError: terminated"
			w.later(1, 8*time.Millisecond, late)
		}, 5, []string{"rank 0 on host-0"}},

		{"only echoes: the earliest", 2, func(w *world) {
			for n := range 2 {
				echo := failure(n, 0, job.Exit{Code: 1 + n})
				echo.Failure.Echo = true
				w.later(n, time.Duration(3*n)*time.Millisecond, echo)
			}
		}, 1, []string{"rank 0 on host-0"}},

		{"only echoes, of one that ended well", 2, func(w *world) {
			w.feed(1, finished{Worker: ended(1, 1, job.Exit{})})
			w.later(0, 3*time.Millisecond, echoed(0, 0))
			w.later(1, 5*time.Millisecond, finished{Worker: ended(1, 0, job.Exit{Sent: true})}) // as we asked
		}, 1, []string{"rank 0 on host-0", "; rank 3 on host-1 (node 1, local rank 1) had ended with code 0 by then; all 2 nodes"}},

		{"only echoes, of one whose interpreter took its time", 2, func(w *world) {
			w.feed(0, echoed(0, 0))
			late := ended(1, 1, job.Exit{Signal: 15, Sent: true})
			late.Over = true
			w.later(1, 5*time.Millisecond, finished{Worker: late})
		}, 1, []string{"rank 0 on host-0", "; rank 3 on host-1 (node 1, local rank 1) had come to the end of its program by then; all 2 nodes"}},

		{"only echoes, and one was stopped", 2, func(w *world) {
			for n, local := range []int{1, 0} {
				w.feed(n, echoed(n, local))
			}
			w.later(1, echoTime+5*time.Millisecond, finished{Worker: ended(1, 1, job.Exit{Signal: 15, Sent: true})})
		}, 1, []string{"rank 1 on host-0", "; rank 3 on host-1 (node 1, local rank 1) had not failed, and was stopped; all 2 nodes"}},

		{"only echoes, and several were stopped", 2, func(w *world) {
			w.feed(0, echoed(0, 1))
			w.later(0, echoTime+2*time.Millisecond, finished{Worker: ended(0, 0, job.Exit{Signal: 15, Sent: true})})
			w.later(1, echoTime+5*time.Millisecond, finished{Worker: ended(1, 1, job.Exit{Signal: 15, Sent: true})})
		}, 1, []string{"rank 1 on host-0", "; ranks 0 on host-0, 3 on host-1 had not failed, and were stopped; all 2 nodes"}},

		{"a lost node, and a failure that does not speak of it", 3, func(w *world) {
			w.die(1)
			w.later(2, 200*time.Millisecond, failure(2, 0, job.Exit{Code: 1}))
		}, job.ExitRetry, []string{"node 1 (host-1) was lost: connection refused; rank 4 on host-2 (node 2, local rank 0, pid 100) exited with code 1, too"}},

		{"who ended well has nothing to do with a failure of its own", 2, func(w *world) {
			w.feed(1, finished{Worker: ended(1, 1, job.Exit{})})
			w.feed(0, failure(0, 0, job.Exit{Code: 5}))
		}, 5, []string{"rank 0 on host-0 (node 0, local rank 0, pid 100) exited with code 5; all 2 nodes"}},

		{"two nodes at the same moment", 2, func(w *world) {
			w.feed(0, failure(0, 0, job.Exit{Code: 5}))
			other := failure(1, 0, job.Exit{Code: 6})
			other.Failure.Ago = time.Millisecond
			w.later(1, time.Millisecond, other)
		}, 5, []string{"rank 0 on host-0", "at the same time, as far as clocks tell, rank 2 on host-1"}},

		{"workers that we stopped are no causes", 2, func(w *world) {
			w.feed(1, failure(1, 0, job.Exit{Code: 3}))
			w.later(0, 5*time.Millisecond, failure(0, 0, job.Exit{Signal: 15, Sent: true}))
		}, 3, []string{"rank 2 on host-1"}},

		{"a member is lost", 3, func(w *world) { w.die(1) }, job.ExitRetry, []string{"node 1 (host-1) was lost", "refused"}},

		{"the leader is lost", 3, func(w *world) { w.die(0) }, job.ExitRetry, []string{"node 0 (host-0) was lost"}},

		{"a lost node is the cause of its peers' failures", 3, func(w *world) {
			w.die(1)
			w.later(2, 200*time.Millisecond, failure(2, 0, job.Exit{Code: 1}))
		}, job.ExitRetry, []string{"node 1 (host-1) was lost"}},

		{"a failure that a node still told is the cause of its loss", 3, func(w *world) {
			w.feed(1, failure(1, 0, job.Exit{Code: 4}))
			w.timers = append(w.timers, timer{at: w.now + 2*time.Millisecond, event: lost{Node: 1, Why: "reset", Certain: true}})
			w.later(1, 3*time.Millisecond, emptied{})
		}, 4, []string{"rank 2 on host-1"}},

		{"the leader is asked to stop", 3, func(w *world) { w.feed(0, signalled{syscall.SIGTERM}) },
			143, []string{"node 0 (host-0) was told to stop by SIGTERM"}},

		{"a member is asked to stop", 3, func(w *world) { w.feed(1, signalled{syscall.SIGTERM}) },
			143, []string{"node 1 (host-1) was told to stop by SIGTERM"}},

		{"a signal that comes when a failure stops all is not the cause", 2, func(w *world) {
			w.feed(1, failure(1, 1, job.Exit{Code: 6}))
			w.later(0, 100*time.Millisecond, signalled{syscall.SIGTERM})
			w.later(1, 110*time.Millisecond, signalled{syscall.SIGTERM})
		}, 6, []string{"rank 3 on host-1"}},

		{"asked twice is asked once", 1, func(w *world) {
			w.feed(0, signalled{syscall.SIGINT})
			w.now += 10 * time.Millisecond
			w.feed(0, signalled{syscall.SIGINT})
		}, 130, []string{"host-0 was told to stop by SIGINT"}},

		{"a worker cannot be started", 2, func(w *world) {}, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.nodes).begin()
			if c.words == nil { // before any worker runs
				w = newWorld(t, c.nodes)
				w.feed(0, unbegun{job.Failure{Node: "host-0", Exit: job.Exit{Code: 127, Err: "no such program"}}})
				c.code, c.words = 127, []string{"could not be started: no such program"}
			}
			c.what(w)
			w.run()
			w.all(c.code, c.words...)
		})
	}
}

// A worker that fails is started again with all others, as often as was allowed; the cause of each round is kept.
func TestRestart(t *testing.T) {
	for _, nodes := range []int{1, 2, 3} {
		w := newWorld(t, nodes)
		w.policy.MaxRestarts = 2
		w.begin()
		last := nodes - 1
		w.feed(last, failure(last, 1, job.Exit{Code: 3}))
		w.run()
		for n, s := range w.states {
			if s.Round != 1 || s.Stopping || !s.Started || s.Verdict != nil || s.Start.Port != 2 || s.Start.MaxRestarts != 2 {
				t.Fatalf("%d nodes, node %d after one failure: %+v\n%s", nodes, n, s, strings.Join(w.log, "\n"))
			}
		}
		if w.began[last] > 100*time.Millisecond {
			t.Errorf("%d nodes: the next round came after %v", nodes, w.began[last])
		}
		for _, code := range []int{4, 5} {
			w.feed(0, failure(0, 0, job.Exit{Code: code}))
			w.run()
		}
		w.all(5, "rank 0 on host-0", "exited with code 5", "after 2 restarts")
		rounds := w.states[last].Verdict.Rounds
		if len(rounds) != 2 || rounds[0].First.Exit.Code != 3 || rounds[1].First.Exit.Code != 4 || rounds[1].Number != 1 {
			t.Errorf("%d nodes: rounds %+v", nodes, rounds)
		}
	}
}

// What another round cannot mend ends the job, however many are left.
func TestNoRestart(t *testing.T) {
	for _, c := range []struct {
		name  string
		what  func(w *world)
		code  int
		words string
	}{
		{"a node is lost", func(w *world) { w.die(1) }, job.ExitRetry, "node 1 (host-1) was lost"},
		{"a node is lost while the others stop", func(w *world) {
			w.deaf[1] = true
			w.feed(2, failure(2, 0, job.Exit{Code: 8}))
			w.later(1, time.Second, nil)
		}, 8, "rank 4 on host-2"},
		{"a program that cannot be started", func(w *world) {
			w.feed(1, unbegun{job.Failure{Node: "host-1", Group: 1, Exit: job.Exit{Code: 127, Err: "none"}}})
		}, 127, "could not be started"},
		{"asked to stop before", func(w *world) { w.feed(1, signalled{syscall.SIGTERM}) }, 143, "node 1 (host-1) was told to stop"},
		{"asked to stop right after", func(w *world) {
			w.feed(2, failure(2, 0, job.Exit{Code: 8}))
			w.feed(1, signalled{syscall.SIGTERM})
		}, 143, "node 1 (host-1) was told to stop"},
		{"asked to stop while the workers take their time", func(w *world) {
			w.deaf[1] = true
			w.feed(2, failure(2, 0, job.Exit{Code: 8}))
			w.later(2, time.Second, signalled{syscall.SIGTERM})
		}, 143, "node 2 (host-2) was told to stop"},
		{"a scheduler's TERM reaches a worker before its agent", func(w *world) {
			w.feed(2, failure(2, 0, job.Exit{Signal: 15}))
			w.later(2, 100*time.Millisecond, signalled{syscall.SIGTERM})
		}, 143, "node 2 (host-2) was told to stop"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 3)
			w.policy.MaxRestarts = 5
			w.begin()
			c.what(w)
			if i := slices.IndexFunc(w.timers, func(t timer) bool { return t.event == nil }); i >= 0 {
				w.timers = slices.Delete(w.timers, i, i+1)
				w.die(1)
				w.timers[len(w.timers)-1].at += time.Second
			}
			w.run()
			w.all(c.code, c.words)
		})
	}
}

// A node whose workers do not end keeps the others from going on, and is named.
func TestRestartWithoutEnd(t *testing.T) {
	w := newWorld(t, 2)
	w.policy.MaxRestarts = 1
	w.begin()
	w.feed(0, failure(0, 0, job.Exit{Code: 9}))
	w.timers = slices.DeleteFunc(w.timers, func(t timer) bool { _, stop := t.event.(emptied); return stop && t.node == 1 })
	w.deaf[1], w.dead[1] = true, true // it hears nothing, and is not gone either
	w.run()
	w.all(9, "rank 0 on host-0", "workers are left on node 1 (host-1)")
}

// Who is enough for success ends the job; the others are stopped, or left to end.
func TestSuccess(t *testing.T) {
	for _, c := range []struct {
		success, exit string
		ended         []int // local ranks of node 0 that end well
		want          string
		stops         int // nodes that stop workers
	}{
		{"all", "stop", []int{0, 1}, "", 0},
		{"rank0", "stop", []int{0}, "rank 0 ended well, which was to be enough", 2},
		{"rank0", "stop", []int{1}, "", 0},
		{"node0", "stop", []int{0}, "", 0},
		{"node0", "stop", []int{0, 1}, "all workers of node 0 ended well", 1},
		{"node0", "leave", []int{0, 1}, "all workers of node 0 ended well", 0},
	} {
		w := newWorld(t, 2)
		w.policy.Success, w.policy.OnExit = c.success, c.exit
		w.begin()
		for _, local := range c.ended {
			w.feed(0, finished{Worker: job.Ended{Rank: local, LocalRank: local}})
		}
		w.run()
		stops := strings.Count(strings.Join(w.log, "\n"), "launcher.stop")
		v := w.states[0].Verdict
		if (v == nil) != (c.want == "") || v != nil && (!v.OK() || !strings.Contains(v.Sentence, c.want)) || stops != c.stops {
			t.Errorf("%+v: %+v, %d nodes stop\n%s", c, v, stops, strings.Join(w.log, "\n"))
		}
		for n := range w.states { // the rest may do what it likes
			for w.states[n].Left > 0 && !w.states[n].Ended {
				w.feed(n, finished{})
			}
			w.later(n, 0, emptied{})
		}
		w.run()
		w.all(0)
	}
}

// Parameter servers do not end by themselves: the job ends with those who train.
func TestTrainers(t *testing.T) {
	for _, c := range []struct {
		trained []int // nodes whose workers end well
		want    string
	}{
		{[]int{0}, ""},
		{[]int{1}, ""},
		{[]int{2}, ""},
		{[]int{0, 1}, "all workers of the 2 nodes that train ended well"},
		{[]int{2, 1, 0}, "all workers of the 2 nodes that train ended well"},
	} {
		w := newWorld(t, 3)
		w.policy.Success, w.policy.Servers = "trainers", 1
		w.begin()
		for _, n := range c.trained {
			for local := range 2 {
				w.feed(n, finished{Worker: job.Ended{Rank: 2*n + local, LocalRank: local}})
			}
			w.later(n, 0, emptied{})
		}
		w.run()
		if v := w.states[0].Verdict; (v == nil) != (c.want == "") || v != nil && (!v.OK() || v.Sentence != c.want) {
			t.Errorf("%v: %+v\n%s", c.trained, v, strings.Join(w.log, "\n"))
		}
		if c.want != "" {
			w.all(0)
		}
	}
}

// With --on-worker-exit leave a failure stops nobody; when all have ended it is the job's.
func TestLeave(t *testing.T) {
	for restarts := range 2 {
		for failing := range 2 {
			w := newWorld(t, 2)
			w.policy.OnExit, w.policy.MaxRestarts = onExitLeave, restarts
			w.begin()
			w.feed(failing, failure(failing, 0, job.Exit{Code: 3}))
			w.run()
			if got := strings.Join(w.log, "\n"); strings.Contains(got, "launcher.stop") || w.states[0].Verdict != nil {
				t.Fatalf("a failure on node %d ends something:\n%s", failing, got)
			}
			for n := range 2 {
				for w.states[n].Left > 0 && !w.states[n].Ended {
					w.feed(n, finished{})
				}
				w.later(n, time.Duration(n)*time.Second, emptied{})
			}
			w.run()
			if restarts == 1 {
				if w.states[1].Round != 1 {
					t.Errorf("no restart: %+v", w.states[1])
				}
				continue
			}
			w.all(3, fmt.Sprintf("rank %d on host-%d", 2*failing, failing))
		}
	}
}

// So it is with a node that is lost: that is told at once, and what failed before is what the job ends with, also where it could be restarted.
func TestLeaveWithoutANode(t *testing.T) {
	for _, failed := range []bool{false, true} {
		w := newWorld(t, 3)
		w.policy.OnExit, w.policy.MaxRestarts = onExitLeave, 1
		w.begin()
		code, why := job.ExitRetry, "node 2 (host-2) was lost: the first process on host-2 was killed"
		if failed {
			code, why = 3, "rank 2 on host-1"
			w.feed(1, failure(1, 0, job.Exit{Code: 3}))
			w.run()
		}
		w.later(2, time.Second, broken{job.Verdict{Code: job.ExitRetry, Class: job.Lost, Sentence: "the first process on host-2 was killed"}})
		w.run()
		if !w.states[2].Ended {
			t.Errorf("a failure before: %v: a node with nothing left waits for the others", failed)
		}
		w.dead[2] = true
		got := strings.Join(w.log, "\n")
		if told := strings.Count(got, "launcher.say {Text:rank 2 on host-1 (node 1, local rank 0, pid 100) exited with code 3; the others run on to their end"); failed && told != 2 {
			t.Errorf("the failure is told %d times, want once on its node and once on the leader's:\n%s", told, got)
		}
		if strings.Contains(got, "launcher.stop") || !strings.Contains(got, "was killed; the others run on to their end") {
			t.Errorf("a failure before: %v: the loss stops the others, or is not told:\n%s", failed, got)
		}
		for n := range 2 {
			for w.states[n].Left > 0 && !w.states[n].Ended {
				w.feed(n, finished{})
			}
			w.later(n, 0, emptied{})
		}
		w.run()
		w.all(code, why)
		if text := w.states[0].Verdict.Sentence; strings.Contains(text, "stopped") {
			t.Errorf("nobody was stopped: %s", text)
		}
	}
}

// A platform that says when it will end the job may have sent its signal to leave time.
func TestGraceUntilTheJobEnds(t *testing.T) {
	p := policy{Grace: 25 * time.Second}
	for end, want := range map[time.Duration]time.Duration{
		0: p.Grace, 40 * time.Second: p.Grace, 5 * time.Minute: 5*time.Minute - 32*time.Second, time.Hour: p.Grace, -time.Minute: p.Grace,
	} {
		p.JobEnd = end
		if got := p.grace(30 * time.Second); got != want {
			t.Errorf("end at %v: %v, want %v", end, got, want)
		}
	}
}

// A goodbye that comes before the work is done is a loss, whoever says it.
func TestEarlyGoodbye(t *testing.T) {
	w := newWorld(t, 3).begin()
	w.dead[1] = true
	w.feed(0, departed{1})
	w.run()
	w.all(job.ExitRetry, "node 1 (host-1) was lost", "left the job")
}

// A member whose agent is replaced as the leader forsakes the job hears no more than a goodbye. Where others go on it meets them: the store
// says whether the job is over.
func TestGoodbyeOfALeaderThatForsakes(t *testing.T) {
	w := elasticWorld(t, 3, 2, 3)
	v := job.Verdict{Code: job.ExitRetry, Class: job.Lost, Sentence: "the first process on host-0 was killed"}
	w.dead[0] = true
	w.feed(1, departed{0})
	w.feed(2, told{0, news{Kind: newsEnding, Verdict: &v}})
	w.run()
	w.in(1, 1, 2)
}

// A scheduler cleans up the other pods when one is done: that is no failure.
func TestTermAfterSuccess(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.feed(1, finished{})
	w.feed(1, finished{})
	w.feed(1, signalled{syscall.SIGTERM})
	if s := w.states[1]; !s.Ended || s.Verdict != nil && s.Verdict.Code != 0 {
		t.Errorf("a member that was done: %+v", s)
	}
	w.feed(0, finished{})
	w.feed(0, finished{})
	w.later(0, 0, emptied{})
	w.run()
	if v := w.states[0].Verdict; v == nil || v.Code != 0 || !w.states[0].Ended {
		t.Errorf("the leader: %+v", v)
	}
}

// The first Ctrl-C never kills: not when the other node was asked first, nor after a failure.
func TestFirstInterruptLeavesGrace(t *testing.T) {
	for _, before := range []any{signalled{syscall.SIGTERM}, failure(0, 0, job.Exit{Code: 1})} {
		w := newWorld(t, 2).begin()
		w.now += time.Second
		w.deaf[1] = true
		w.feed(0, before)
		w.later(1, 5*time.Millisecond, signalled{syscall.SIGINT})
		w.run()
		for _, line := range w.log {
			if strings.Contains(line, "node 1: launcher.kill") && !strings.Contains(line, "35s") {
				t.Errorf("after %T the first INT kills: %s", before, line)
			}
		}
	}
}

// What ends one agent is told to all, in the same words.
func TestBrokenMember(t *testing.T) {
	w := newWorld(t, 3).begin()
	w.feed(2, broken{job.Verdict{Code: job.ExitRetry, Class: job.Lost, Sentence: "the first process on host-2 was killed"}})
	w.run()
	w.all(job.ExitRetry, "the first process on host-2 was killed")
}

// A leader that others can do without leaves word in the store of how many will come: the first word of a world's end stands.
func TestBrokenLeaderSaysWhoComes(t *testing.T) {
	for gone, want := range map[int]int{0: 2, 2: 1} {
		w := newWorld(t, 3)
		w.policy.Regroups = true
		w.begin()
		if gone > 0 {
			w.states[0].Nodes[gone].Gone = true
		}
		w.feed(0, broken{job.Verdict{Code: job.ExitRetry, Class: job.Lost, Sentence: "the first process on host-0 was killed"}})
		if over := w.states[0].over(); over.Expect != want || over.Verdict != nil {
			t.Errorf("with node %d gone it leaves %+v, not %d", gone, over, want)
		}
	}
}

// Another agent's word is not taken for success when it makes no sense.
func TestSenselessVerdict(t *testing.T) {
	for _, v := range []job.Verdict{{Class: job.Failed}, {Code: -1}, {Code: 256}, {Code: 3, Class: job.Succeeded}} {
		w := newWorld(t, 2).begin()
		w.feed(0, told{1, news{Kind: newsEnding, Verdict: &v}})
		w.run()
		if code := w.states[0].Verdict.Code; code != job.ExitInternal {
			t.Errorf("%+v ends with %d", v, code)
		}
	}
}

func TestSecondInterruptKills(t *testing.T) {
	w := newWorld(t, 1).begin()
	w.deaf[0] = true
	w.feed(0, signalled{syscall.SIGINT})
	w.now += 300 * time.Millisecond
	w.feed(0, signalled{syscall.SIGINT})
	if last := w.log[len(w.log)-1]; !strings.Contains(last, "launcher.kill") {
		t.Errorf("the second INT does %q", last)
	}
	w.run()
	w.all(130)
	if w.now > 5*time.Minute {
		t.Errorf("took %v", w.now)
	}
}

// Nor does it leave those of other nodes their grace, for which the impatient one would wait.
func TestSecondInterruptKillsEverywhere(t *testing.T) {
	for n := range 3 {
		w := newWorld(t, 3).begin()
		w.deaf[0], w.deaf[1], w.deaf[2] = true, true, true
		w.feed(n, signalled{syscall.SIGINT})
		w.later(n, 300*time.Millisecond, signalled{syscall.SIGINT})
		w.run()
		w.all(130)
		for i, s := range w.states {
			if s.Now > time.Second {
				t.Errorf("asked twice on node %d, node %d ends after %v", n, i, s.Now)
			}
		}
	}
}

// An agent that took over and is told to stop before it has found the others stops its workers at once, and ends as told,
// whether they are lost in the end or only silent.
func TestToldToStopAlone(t *testing.T) {
	for self := range 2 {
		for _, found := range []bool{true, false} {
			w := newWorld(t, 2).begin()
			w.dead[1-self] = true
			if found {
				w.later(self, 10*time.Second, lost{Node: 1 - self, Why: "it was not reached within 10s"})
			}
			w.feed(self, resumed{})
			w.feed(self, signalled{syscall.SIGTERM})
			if got := strings.Join(w.log, "\n"); !strings.Contains(got, fmt.Sprintf("node %d: launcher.stop {Within:25s Preempt:true Said:", self)) {
				t.Errorf("node %d does not stop its workers:\n%s", self, got)
			}
			w.run()
			w.all(job.ExitTERM, fmt.Sprintf("node %d (host-%d) was told to stop by SIGTERM", self, self))
		}
	}
}

// Preemption leaves time for a checkpoint on every node, a failure does not.
func TestGraceIsForPreemption(t *testing.T) {
	for _, c := range []struct {
		event any
		want  time.Duration
	}{{signalled{syscall.SIGTERM}, testPolicy.Grace}, {failure(1, 0, job.Exit{Code: 1}), testPolicy.StopTimeout}} {
		w := newWorld(t, 3).begin()
		w.feed(1, c.event)
		w.run()
		got := 0
		for _, line := range w.log {
			if strings.Contains(line, fmt.Sprintf("launcher.stop {Within:%v ", c.want)) {
				got++
			}
		}
		if got < 3 {
			t.Errorf("%T: %d of 3 nodes stop within %v\n%s", c.event, got, c.want, strings.Join(w.log, "\n"))
		}
	}
}

// A leader that never says why is waited for, but not for ever.
func TestSilentLeader(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.dead[0] = true // and nobody notices
	w.feed(1, failure(1, 0, job.Exit{Code: 5}))
	w.run()
	w.all(5, "rank 2 on host-1")
}

// Who is gone is told nothing.
func TestNoNewsForTheLost(t *testing.T) {
	s := state{Self: 1, Nodes: []*node{{Name: "a"}, {Name: "b"}}, Started: true, Left: 1}
	p := policy{StopTimeout: time.Second}
	s, _ = decide(p, s, 0, lost{Why: "refused", Certain: true})
	if _, todo := decide(p, s, 0, emptied{}); slices.ContainsFunc(todo, func(deed any) bool { _, ok := deed.(tell); return ok }) {
		t.Errorf("%+v", todo)
	}
}

// Another round is due, and while one node is slow to stop for it another one leaves: that it was lost is in the line of that.
func TestLeavesBeforeAnotherRound(t *testing.T) {
	w := newWorld(t, 4)
	w.policy.Regroups, w.policy.MaxRestarts, w.policy.Nodes, w.fewest = true, 1, 4, 1
	w.deaf[3] = true
	w.begin()
	w.later(1, time.Second, failure(1, 0, job.Exit{Code: 3}))
	w.later(0, 3*time.Second, departed{Node: 2})
	for len(w.timers) > 0 && w.now < 3*time.Second {
		w.step()
	}
	if !slices.ContainsFunc(w.told[0], func(l events.Line) bool {
		return l.Event == events.NodeLeft && l.Message == "node 2 (host-2) was lost: "+leftJob
	}) {
		t.Errorf("not so:\n%s", described(w.told[0]))
	}
}

// Whatever happens in whatever order: every node ends, all that hear each other with one code.
func TestAllEndAlike(t *testing.T) {
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 1))
		nodes := 1 + r.IntN(4)
		w := newWorld(t, nodes).begin()
		for n := range nodes {
			w.deaf[n] = r.IntN(4) == 0
		}
		w.policy.MaxRestarts = r.IntN(3)
		for n := range w.kept {
			w.kept[n].most = []int{0, 1000}[seed%2]
		}
		if n := r.IntN(2 * nodes); n < nodes { // one of the workers ends well, and the other one may, too
			w.later(n, time.Duration(r.IntN(600))*time.Millisecond, finished{})
		}
		for range 1 + r.IntN(3) {
			n := r.IntN(nodes)
			events := []any{
				failure(n, 0, job.Exit{Code: 1 + r.IntN(9)}), failure(n, 1, job.Exit{Signal: 9}), failure(n, 1, job.Exit{Err: "no status"}),
				signalled{syscall.SIGTERM}, signalled{syscall.SIGINT},
				broken{job.Verdict{Code: job.ExitRetry, Class: job.Lost, Sentence: "no first process"}},
				ordered{orderStop}, ordered{orderRestart}, ordered{orderPause}, ordered{orderResume},
			}
			w.later(n, time.Duration(r.IntN(600))*time.Millisecond, events[r.IntN(len(events))])
		}
		for range r.IntN(3) * int(seed%2) {
			w.laterDoom(r.IntN(nodes), time.Duration(r.IntN(600))*time.Millisecond)
		}
		w.run()
		clear(w.doomed) // an order that the agent which was asked dies over is given again
		if w.states[0].Paused {
			w.feed(r.IntN(nodes), ordered{orderResume})
			w.run()
		}
		w.finish()
		if seed%16 < 2 {
			w.replays()
		}
		codes := map[int]bool{}
		for n, s := range w.states {
			if !s.Ended || s.Verdict == nil {
				t.Fatalf("seed %d: node %d never ended\n%s", seed, n, strings.Join(w.log, "\n"))
			}
			if (s.Verdict.Code == 0) != (s.Verdict.Class == job.Succeeded) {
				t.Fatalf("seed %d: node %d: %+v", seed, n, *s.Verdict)
			}
			codes[s.Verdict.Code] = true
		}
		if len(codes) != 1 {
			t.Fatalf("seed %d: codes %v\n%s", seed, codes, strings.Join(w.log, "\n"))
		}
	}
}

// Who failed first may take its time to end, and be stopped by KILL alone. Where all others say that they failed because somebody had gone, it is waited
// for, as long as workers are left; and where nobody comes, what is known is told.
func TestFirstTakesItsTime(t *testing.T) {
	for _, comes := range []bool{true, false} {
		for _, first := range []int{0, 1} {
			w := newWorld(t, 2).begin()
			w.deaf[first] = true
			w.feed(1-first, echoed(1-first, 0))
			if comes {
				late := failure(first, 0, job.Exit{Code: 1})
				late.Failure.Exception = "ValueError: first"
				w.later(first, echoTime+w.policy.StopTimeout-100*time.Millisecond, late)
			}
			w.run()
			says := fmt.Sprintf("rank %d", 2*(1-first))
			if comes {
				says = "ValueError: first"
			}
			w.all(1, says)
		}
	}
}

// stoppedAt are the moments at which each node's workers were told to stop; 0: they were not.
func (w *world) stoppedAt() []time.Duration {
	at := make([]time.Duration, len(w.states))
	for _, line := range w.log {
		var when string
		var n int
		if _, err := fmt.Sscanf(line, "%s node %d: launcher.stop", &when, &n); err == nil && at[n] == 0 {
			at[n], _ = time.ParseDuration(when)
		}
	}
	return at
}

// While all who failed say that another one had gone, nobody is stopped on their account: who was first may need a while to say so, and TERM
// would end it without a word. That has an end; and it ends at once when somebody fails of itself, a node is lost, or somebody wants to stop.
func TestHeld(t *testing.T) {
	own := failure(1, 1, job.Exit{Code: 7})
	short := testPolicy
	short.StopTimeout = 2 * time.Second
	mends := testPolicy
	mends.OnExit, mends.MaxRestarts = onExitRestart, 0
	for name, c := range map[string]struct {
		policy policy
		first  finished
		then   any           // on node 1,
		after  time.Duration // this
		held   time.Duration
		code   int
		says   string
	}{
		"nobody says why":             {testPolicy, echoed(0, 0), nil, 0, echoTime, 1, "rank 0 on host-0"},
		"a member's fails":            {testPolicy, echoed(2, 0), nil, 0, echoTime, 1, "rank 4 on host-2"},
		"another one says the same":   {testPolicy, echoed(0, 0), echoed(1, 0), time.Second, echoTime, 1, "rank 0 on host-0"},
		"a short stop":                {short, echoed(0, 0), nil, 0, 2 * time.Second, 1, "rank 0 on host-0"},
		"who was first comes to it":   {testPolicy, echoed(0, 0), own, time.Second, time.Second, 7, "rank 3 on host-1"},
		"who was first comes at once": {testPolicy, echoed(0, 0), own, 100 * time.Millisecond, 100 * time.Millisecond, 7, "rank 3 on host-1"},
		"first on a third node":       {testPolicy, echoed(2, 0), own, time.Second, time.Second, 7, "rank 3 on host-1"},
		"a failure of its own":        {testPolicy, failure(0, 0, job.Exit{Code: 3}), nil, 0, 0, 3, "rank 0 on host-0"},
		"no restart of it alone left": {mends, echoed(0, 0), nil, 0, 0, 1, "rank 0 on host-0"},
		"a node was told to stop":     {testPolicy, echoed(0, 0), signalled{syscall.SIGTERM}, time.Second, time.Second, 1, "rank 0 on host-0"},
		"a node is lost":              {testPolicy, echoed(0, 0), death{}, time.Second, 1300 * time.Millisecond, job.ExitRetry, "host-1) was lost"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			w.policy = c.policy
			w.begin()
			w.later(c.first.Failure.Group, 0, c.first)
			if c.then != nil {
				w.later(1, c.after, c.then)
			}
			began := w.now
			w.run()
			for n, at := range w.stoppedAt() {
				if held := at - began; !w.dead[n] && (held < c.held || held > c.held+20*time.Millisecond) {
					t.Errorf("node %d: %v, want %v\n%s", n, held, c.held, strings.Join(w.log, "\n"))
				}
			}
			w.all(c.code, c.says)
		})
	}
}

// An agent that is replaced meanwhile goes on with it, and another one hears that workers are not to be stopped yet.
func TestHeldByAnotherAgent(t *testing.T) {
	for n := range 2 {
		w := newWorld(t, 2).begin()
		w.feed(1, echoed(1, 0))
		w.laterDoom(n, 500*time.Microsecond)
		began := w.now
		w.run()
		for n, at := range w.stoppedAt() {
			if held := at - began; held < echoTime || held > echoTime+50*time.Millisecond {
				t.Errorf("node %d: %v\n%s", n, held, strings.Join(w.log, "\n"))
			}
		}
		w.all(1, "rank 2 on host-1")
	}
}

// Who asks for the end while a round that failed is being stopped, and another one would have followed, ends the job; what had failed is told all the same, on all nodes.
func TestToldToStopAfterAFailure(t *testing.T) {
	for _, by := range []int{0, 1} {
		for _, after := range []time.Duration{100 * time.Millisecond, 2 * time.Second} { // before the first cause is known, and when it is
			for _, f := range []finished{failure(1, 1, job.Exit{Code: 9}), echoed(1, 1)} {
				w := newWorld(t, 2)
				w.policy.MaxRestarts, w.deaf[0] = 1, true
				w.begin()
				w.feed(1, f)
				w.later(by, after, signalled{syscall.SIGTERM})
				w.run()
				w.all(job.ExitTERM, fmt.Sprintf("node %d (host-%d) was told to stop by SIGTERM; before that: rank 3 on host-1", by, by))
				for n, s := range w.states {
					if s.Verdict.First == nil || s.Verdict.First.Rank != 3 || s.Verdict.Class != job.Preempted {
						t.Errorf("node %d: %+v", n, s.Verdict)
					}
				}
			}
		}
	}
}

// Whoever waits for the end of a job that was told to stop hears at once how long that may take, on each node.
func TestSaysWhatTimeIsLeft(t *testing.T) {
	for by := range 2 {
		w := newWorld(t, 2).begin()
		w.feed(by, signalled{syscall.SIGINT})
		w.run()
		for n := range 2 {
			if said := fmt.Sprintf("node %d: launcher.stop {Within:25s Preempt:true Said:node %d (host-%d) was told to stop by SIGINT; workers have 25s to end}", n, by, by); strings.Count(strings.Join(w.log, "\n"), said) != 1 {
				t.Errorf("%s\n%s", said, strings.Join(w.log, "\n"))
			}
		}
	}
}

// Whoever asks for the end of a job when it has failed there is heard by the agent, too, that takes over from the leader's.
func TestToldToStopTwice(t *testing.T) {
	w := newWorld(t, 2)
	w.policy.MaxRestarts, w.deaf[0], w.deaf[1] = 1, true, true
	w.begin()
	w.feed(1, failure(1, 0, job.Exit{Code: 3}))
	w.later(1, time.Second, signalled{syscall.SIGTERM})
	w.laterDoom(0, time.Second+200*time.Microsecond)
	w.later(0, time.Second+500*time.Microsecond, queued{0})
	w.run()
	w.all(job.ExitTERM, "node 1 (host-1) was told to stop by SIGTERM", "before that: rank 2")
}
