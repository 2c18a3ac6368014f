package launcher

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/muster-run/muster/job"
)

// This file is the judgement of the run loop. It is pure: what happened comes in as an event with its time, what
// to do goes out as a list of deeds, and nothing here waits, sends or reads a clock.
//
//	          every worker of this node ended well: tell the leader
//	running ──────────────────────────────────────────────────────▶ running, done
//	   │ a worker fails, here or elsewhere; a node is lost; a signal
//	   ▼
//	stopping: workers get TERM, then KILL; the leader lets news settle, then names the first cause to all
//	   │ the verdict is known and no worker of this node is left
//	   ▼
//	ended (a member); the leader ends when all members have left

// state is what the run loop of one node knows.
type state struct {
	self  int // group rank; 0 leads
	nodes []node
	now   time.Duration // of the last event, since the loop began

	start    *start // where this round's workers meet, once the leader has opened that place
	started  bool   // this node's workers were started
	left     int    // workers of this node that have not ended
	empty    bool   // no worker of this node is left, nor anything that one started
	stopping bool
	asked    bool          // a signal asked us to stop
	ctrlC    time.Duration // when the first INT came; 0: none did
	causes   []cause
	own      *job.Verdict // a member's: what it would say without its leader
	verdict  *job.Verdict
	ended    bool
}

// node is what the leader knows of one node.
type node struct {
	name string
	done bool // all its workers ended well
	gone bool // its agent said goodbye or was lost
}

// cause is one thing that went wrong, at a time of this node's clock.
type cause struct {
	at      time.Duration
	node    int
	failure *job.Failure // nil: the node itself was lost
	why     string
}

// Events. Each is a value of its own type.
type (
	opened   struct{ start start }          // the leader's workers' store is open
	begun    struct{ workers int }          // this node's workers were started
	unbegun  struct{ failure job.Failure }  // one could not be started, and none is left
	finished struct{ failure *job.Failure } // a worker of this node ended; nil: well
	emptied  struct{}                       // nothing is left of this node's workers
	noticed  struct {
		node int
		what string
	} // an agent is silent, or heard again
	departed struct{ node int } // an agent said goodbye
	lost     struct {
		node int
		why  string
	} // an agent or its node is gone
	told struct {
		node int
		news news
	} // news from another agent
	signalled struct{ sig os.Signal }       // somebody asks this agent to stop
	settled   struct{}                      // the time for further news is over
	expired   struct{}                      // the time for members to leave is over
	broken    struct{ verdict job.Verdict } // this agent cannot go on by itself
)

// Deeds. The run loop does them in order.
type (
	begin struct{ start start }          // start this node's workers
	stop  struct{ within time.Duration } // TERM to each worker, KILL to the rest after this time
	kill  struct{}                       // KILL to everything now
	tell  struct {
		to   int
		news news
	} // everyone, from the leader; the leader, from a member
	settle struct{ within time.Duration } // raise settled after this time
	expire struct{ within time.Duration } // raise expired after this time
	say    struct{ text string }          // a line for people
)

// preempted is the class of a verdict that blames nobody: an operator or a scheduler wanted the node.
const preempted = "preempted"

// everyone is tell's address for all members.
const everyone = -1

// Times of the judgement.
const (
	// settleTime is for causes that are older than the first one heard. A dead node's peers fail at once, and
	// lossTime later its death is known.
	settleTime = lossTime + 100*time.Millisecond
	lossTime   = 350 * time.Millisecond // from the end of a connection to the word that its agent is lost
	twice      = 250 * time.Millisecond // two signals closer than this are one: a terminal and a parent may both send it
	leaveTime  = 10 * time.Second       // for members to leave beyond what their workers may take to stop
)

// policy is what the user decided about stopping.
type policy struct {
	stopTimeout time.Duration
	grace       time.Duration
}

// within is how long workers may take to stop: long enough for a checkpoint when the job is only preempted.
func (p policy) within(v job.Verdict) time.Duration {
	if v.Class == preempted {
		return p.grace
	}
	return p.stopTimeout
}

// decide takes one event and returns the new state and what to do. It is the only place where the fate of a
// running job is decided.
func decide(p policy, s state, now time.Duration, event any) (state, []any) {
	s.now = now
	s.nodes = slices.Clone(s.nodes)
	s.causes = slices.Clone(s.causes)
	var todo []any
	switch e := event.(type) {
	case opened:
		todo = s.opened(e.start)
	case begun:
		s.started, s.left = true, e.workers
	case unbegun:
		s.empty = true
		todo = s.failed(p, e.failure)
	case finished:
		todo = s.finished(p, e.failure)
	case emptied:
		s.empty = true
	case noticed:
		todo = []any{say{fmt.Sprintf("node %d (%s): %s", e.node, s.nodes[e.node].name, e.what)}}
	case departed:
		todo = s.departed(p, e.node)
	case lost:
		todo = s.lost(p, e.node, e.why)
	case told:
		todo = s.told(p, e.node, e.news)
	case signalled:
		todo = s.signalled(p, e.sig)
	case settled:
		todo = s.settled(p)
	case expired:
		todo = s.expired(p)
	case broken:
		todo = s.ending(p, e.verdict)
	default:
		panic(fmt.Sprintf("decide: unknown event %T", event))
	}
	return s, append(todo, s.maybeEnd()...)
}

func (s *state) leads() bool { return s.self == 0 }

// opened lets workers start everywhere: the place where they meet is there.
func (s *state) opened(at start) []any {
	s.start = &at
	if s.verdict != nil || s.stopping {
		return nil
	}
	return []any{tell{everyone, news{Kind: newsStart, Start: s.start}}, begin{at}}
}

// finished notes the end of one worker of this node.
func (s *state) finished(p policy, failure *job.Failure) []any {
	s.left--
	if failure != nil {
		return s.failed(p, *failure)
	}
	if s.left > 0 || s.stopping {
		return nil
	}
	return s.done(p, s.self)
}

// done notes that all workers of a node ended well. When that is true of every node, the job is done.
func (s *state) done(p policy, n int) []any {
	s.nodes[n].done = true
	if !s.leads() {
		return []any{tell{0, news{Kind: newsDone}}}
	}
	if slices.ContainsFunc(s.nodes, func(n node) bool { return !n.done }) {
		return nil
	}
	return s.conclude(p, job.Verdict{Class: job.Succeeded, Sentence: s.success()})
}

func (s *state) success() string {
	if len(s.nodes) == 1 {
		return "all workers ended well"
	}
	return fmt.Sprintf("all workers of all %d nodes ended well", len(s.nodes))
}

// failed notes a worker of this node that ended badly. A worker that we stopped ended as it should.
func (s *state) failed(p policy, f job.Failure) []any {
	if f.Exit.Sent || s.verdict != nil {
		return nil
	}
	if s.leads() {
		return s.heard(p, cause{at: s.now - f.Ago, node: s.self, failure: &f})
	}
	if s.own == nil {
		v := failedVerdict(f, len(s.nodes))
		s.own = &v
	}
	todo := []any{tell{0, news{Kind: newsFailed, Failure: &f}}, expire{p.stopTimeout + leaveTime}}
	return append(todo, s.stop(p.stopTimeout)...)
}

// heard is the leader's: something went wrong somewhere. All are stopped at once; who is to blame is said when
// older news had the time to arrive, for one rank that fails makes the others fail a moment later, and louder.
func (s *state) heard(p policy, c cause) []any {
	if s.verdict != nil {
		return nil
	}
	s.causes = append(s.causes, c)
	if len(s.causes) > 1 {
		return nil
	}
	todo := []any{tell{everyone, news{Kind: newsStop}}, settle{settleTime}}
	return append(todo, s.stop(p.stopTimeout)...)
}

// stop stops this node's workers, once.
func (s *state) stop(within time.Duration) []any {
	if s.stopping {
		return nil
	}
	s.stopping = true
	if !s.started {
		s.empty = true
		return nil
	}
	return []any{stop{within}}
}

// settled names the first cause to all.
func (s *state) settled(p policy) []any {
	if s.verdict != nil {
		return nil
	}
	return s.conclude(p, judge(s.causes, s.nodes))
}

// judge picks the first cause: the earliest. The loss of a node is dated back by the time that it takes to notice,
// for its peers fail at once; what the node itself still told before comes first.
func judge(causes []cause, nodes []node) job.Verdict {
	first := slices.MinFunc(causes, func(a, b cause) int { return cmp.Compare(a.at, b.at) })
	for _, c := range causes {
		if c.failure == nil && c.at-lossTime <= first.at && c.node != first.node {
			first = c
			break
		}
	}
	if first.failure == nil {
		return lostVerdict(nodes[first.node].name, first.node, first.why)
	}
	return failedVerdict(*first.failure, len(nodes))
}

func lostVerdict(name string, n int, why string) job.Verdict {
	return job.Verdict{Code: job.ExitRetry, Origin: "platform", Class: "lost",
		Sentence: fmt.Sprintf("node %d (%s) was lost: %s", n, name, why)}
}

func failedVerdict(f job.Failure, nodes int) job.Verdict {
	sentence := f.String()
	if nodes > 1 {
		sentence += fmt.Sprintf("; all %d nodes stopped", nodes)
	}
	class := "failed"
	if f.Exit.Killed() {
		class = "killed"
	}
	return job.Verdict{Code: f.Exit.Status(), Origin: "worker", Class: class, Sentence: sentence, First: &f}
}

// conclude fixes the verdict. The leader tells it to all and then waits for them to leave.
func (s *state) conclude(p policy, v job.Verdict) []any {
	if s.verdict != nil {
		return nil
	}
	s.verdict = &v
	var todo []any
	if !v.OK() {
		todo = s.stop(p.within(v))
	}
	if s.leads() {
		todo = append([]any{tell{everyone, news{Kind: newsVerdict, Verdict: &v}}}, todo...)
		todo = append(todo, expire{max(p.grace, p.stopTimeout) + leaveTime})
	}
	return todo
}

// departed notes a goodbye. A member that leaves before the verdict has let its workers down, unless they were done.
func (s *state) departed(p policy, n int) []any {
	if !s.nodes[n].done && s.verdict == nil {
		return s.lost(p, n, "its agent left the job")
	}
	s.nodes[n].gone = true
	return nil
}

// lost notes an agent that is gone: for the leader one more cause, for a member the end of all news.
func (s *state) lost(p policy, n int, why string) []any {
	s.nodes[n].gone = true
	if s.verdict != nil || s.nodes[n].done {
		return nil
	}
	if s.leads() {
		return s.heard(p, cause{at: s.now, node: n, why: why})
	}
	return s.alone(p, why)
}

// alone is a member's verdict without a leader: what went wrong here is all that it knows.
func (s *state) alone(p policy, why string) []any {
	if s.own != nil {
		return s.conclude(p, *s.own)
	}
	return s.conclude(p, lostVerdict(s.nodes[0].name, 0, why))
}

// expired ends the wait for others.
func (s *state) expired(p policy) []any {
	var todo []any
	if s.verdict == nil {
		todo = s.alone(p, "its agent did not say how the job ended")
	}
	s.ended = true
	return append(todo, kill{})
}

// told takes news: failures, completions and orders to stop from members; starts, stops and the verdict from the leader.
func (s *state) told(p policy, from int, n news) []any {
	switch {
	case s.leads() && n.Kind == newsFailed && n.Failure != nil:
		return s.heard(p, cause{at: s.now - min(max(n.Failure.Ago, 0), s.now), node: from, failure: n.Failure})
	case s.leads() && n.Kind == newsDone:
		return s.done(p, from)
	case s.leads() && n.Kind == newsEnding && n.Verdict != nil && len(s.causes) == 0:
		return s.conclude(p, sane(*n.Verdict))
	case from == 0 && n.Kind == newsStart && n.Start != nil && s.start == nil && !s.stopping:
		s.start = n.Start
		return []any{begin{*n.Start}}
	case from == 0 && n.Kind == newsStop:
		return append(s.stop(p.stopTimeout), expire{p.stopTimeout + leaveTime})
	case from == 0 && n.Kind == newsVerdict && n.Verdict != nil:
		return s.conclude(p, sane(*n.Verdict))
	}
	return nil // of a newer version, or too late: no reason to fail
}

// sane is a verdict from another agent, with a code that a process can end with.
func sane(v job.Verdict) job.Verdict {
	if v.Code < 0 || v.Code > 255 || (v.Code == 0) != (v.Class == job.Succeeded) {
		v.Code = job.ExitInternal
	}
	return v
}

// signalled obeys a request to stop. It comes twice from Slurm and from terminals; INT twice, apart, means now.
func (s *state) signalled(p policy, sig os.Signal) []any {
	if sig == syscall.SIGINT && s.interrupted() {
		return []any{kill{}}
	}
	if s.asked || s.stopping || s.verdict != nil { // it stops already, maybe for a reason that matters more
		return nil
	}
	s.asked = true
	if s.nodes[s.self].done && !s.leads() { // its work is done, and an operator cleans up: that is success
		s.ended = true
		return nil
	}
	return s.ending(p, preemptedVerdict(s.nodes[s.self].name, s.self, sig, len(s.nodes)))
}

// interrupted notes an INT and reports whether it is a second one, on purpose.
func (s *state) interrupted() bool {
	if s.ctrlC == 0 {
		s.ctrlC = max(s.now, 1)
		return false
	}
	return s.now-s.ctrlC >= twice
}

// ending ends the job for a reason of this node: the leader says so to all, a member asks the leader to.
func (s *state) ending(p policy, v job.Verdict) []any {
	if s.leads() {
		return s.conclude(p, v)
	}
	if s.own == nil {
		s.own = &v
	}
	within := p.within(v)
	todo := []any{tell{0, news{Kind: newsEnding, Verdict: &v}}, expire{within + leaveTime}}
	return append(todo, s.stop(within)...)
}

func preemptedVerdict(name string, n int, sig os.Signal, nodes int) job.Verdict {
	code := job.ExitTERM
	number, _ := sig.(syscall.Signal)
	if number == syscall.SIGINT {
		code = job.ExitINT
	}
	who := name
	if nodes > 1 {
		who = fmt.Sprintf("node %d (%s)", n, name)
	}
	return job.Verdict{Code: code, Origin: "platform", Class: preempted,
		Sentence: fmt.Sprintf("%s was told to stop by %s", who, job.SignalName(number))}
}

// maybeEnd ends the loop when there is nothing to wait for: the verdict is known and nothing of ours is left.
// The leader leaves last, so that the members find it.
func (s *state) maybeEnd() []any {
	if s.ended || s.verdict == nil || s.started && !s.empty {
		return nil
	}
	if s.leads() {
		for n := range s.nodes {
			if n != s.self && !s.nodes[n].gone {
				return nil
			}
		}
	}
	s.ended = true
	return nil
}
