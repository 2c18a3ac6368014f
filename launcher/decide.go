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
//	   ▲ │ a worker fails, here or elsewhere; a node is lost; a signal
//	   │ ▼
//	   │ stopping: workers get TERM, then KILL; the leader lets news settle, then names the first cause
//	   │ │    │ another round is allowed, and no node has a worker left
//	   └─┼────┘
//	     │ the verdict is known and no worker of this node is left
//	     ▼
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
	again    bool         // the leader's: the cause is known, and a new round follows when all are clear
	round    int          // rounds before this one
	past     []job.Round  // the leader's: those rounds, the last few
	ranks    []job.Ended  // this node's workers that ended in this round; on the leader also those that members told of
	verdict  *job.Verdict
	ended    bool
}

// node is what the leader knows of one node.
type node struct {
	name  string
	done  bool // all its workers ended well
	clear bool // it was told to stop, and nothing is left of its workers
	gone  bool // its agent said goodbye or was lost
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
	opened   struct{ start start }         // the leader's workers' store is open
	begun    struct{ workers int }         // this node's workers were started
	unbegun  struct{ failure job.Failure } // one could not be started, and none is left
	finished struct {
		worker  job.Ended
		failure *job.Failure // nil: it ended well
	} // a worker of this node ended
	emptied struct{} // nothing is left of this node's workers
	noticed struct {
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
	expire struct{ within time.Duration } // raise expired after this time; 0: not at all
	open   struct{}                       // open the place where the next round's workers meet
	say    struct{ text string }          // a line for people
)

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

// policy is what the user decided about stopping and going on.
type policy struct {
	stopTimeout time.Duration
	grace       time.Duration
	maxRestarts int // rounds that may follow the first
}

// within is how long workers may take to stop: long enough for a checkpoint when the job is only preempted.
func (p policy) within(v job.Verdict) time.Duration {
	if v.Class == job.Preempted {
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
		todo = s.opened(p, e.start)
	case begun:
		s.started, s.left = true, e.workers
	case unbegun:
		s.empty = true
		todo = s.failed(p, e.failure)
	case finished:
		s.ranks = append(slices.Clone(s.ranks), e.worker)
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
	todo = append(todo, s.cleared(p)...)
	return s, append(todo, s.maybeEnd()...)
}

func (s *state) leads() bool { return s.self == 0 }

// opened lets workers start everywhere: the place where they meet is there.
func (s *state) opened(p policy, at start) []any {
	if s.verdict != nil || s.stopping {
		return nil
	}
	at.Round = s.round
	at.MaxRestarts = p.maxRestarts
	if len(s.past) > 0 {
		at.Why = s.past[len(s.past)-1].Message
	}
	s.start = &at
	return []any{tell{everyone, news{Kind: newsStart, Start: s.start}}, begin{at}}
}

// newRound forgets the round before.
func (s *state) newRound(number int) {
	s.round = number
	s.start, s.started, s.left, s.empty = nil, false, 0, false
	s.stopping, s.causes, s.own, s.again, s.ranks = false, nil, nil, false, nil
	for i := range s.nodes {
		s.nodes[i].done, s.nodes[i].clear = false, false
	}
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
		return []any{tell{0, news{Kind: newsDone, Ranks: s.ranks}}}
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

// failed notes a worker of this node that ended badly. A worker that we stopped ended as it should, unless it had an
// error of its own: a rank whose peers notice first that it is gone may take its time to end.
func (s *state) failed(p policy, f job.Failure) []any {
	stopped := f.Exit.Sent && (f.Exit.Signal != 0 || f.Exception == "" || f.Echo)
	if stopped || s.verdict != nil {
		return nil
	}
	if s.leads() {
		return s.heard(p, cause{at: s.now - f.Ago, node: s.self, failure: &f})
	}
	if s.own == nil {
		v := failedVerdict(f)
		s.own = &v
	}
	todo := []any{tell{0, news{Kind: newsFailed, Failure: &f}}, expire{p.stopTimeout + 2*leaveTime}}
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

// cleared acts when nothing is left of this node's workers, after they were told to stop. A member says so. When that is
// true of every node, the leader has heard all there was to hear, and need not wait any longer.
func (s *state) cleared(p policy) []any {
	me := &s.nodes[s.self]
	if !s.stopping || s.ended || s.started && !s.empty {
		return nil
	}
	if !s.leads() {
		if me.clear {
			return nil
		}
		me.clear = true
		return []any{tell{0, news{Kind: newsClear, Ranks: s.ranks}}}
	}
	me.clear = true
	if s.verdict != nil || len(s.causes) == 0 || !s.allClear() {
		return nil
	}
	if s.again {
		return s.goOn()
	}
	if s.mayBeAsked() {
		return nil
	}
	return s.settled(p)
}

func (s *state) allClear() bool {
	return !slices.ContainsFunc(s.nodes, func(n node) bool { return !n.clear && !n.gone })
}

// mayBeAsked reports whether a cause looks like a scheduler's signal to all processes of a container, which this node's
// agent gets as well, perhaps a moment later.
func (s *state) mayBeAsked() bool {
	return slices.ContainsFunc(s.causes, func(c cause) bool {
		return c.failure != nil && slices.Contains([]int{int(syscall.SIGTERM), int(syscall.SIGINT), int(syscall.SIGHUP)}, c.failure.Exit.Signal)
	})
}

// goOn begins the next round.
func (s *state) goOn() []any {
	s.newRound(s.round + 1)
	return []any{expire{0}, open{}}
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

// settled names the first cause: to all, as the verdict, or as the reason for another round.
func (s *state) settled(p policy) []any {
	if s.verdict != nil || len(s.causes) == 0 || s.again {
		return nil
	}
	v := judge(s.causes, s.nodes)
	switch goOn := s.mayGoOn(p, v); {
	case s.asked && s.own != nil && (goOn || s.mayBeAsked()): // by a signal that came when the failure had stopped all
		return s.conclude(p, *s.own)
	case !goOn:
		return s.conclude(p, s.inAll(v))
	}
	s.again = true
	s.past = append(slices.Clone(s.past), job.Round{Number: s.round, Message: v.Sentence, First: v.First})
	s.past = s.past[max(0, len(s.past)-maxPast):]
	text := fmt.Sprintf("%s; restart %d of %d follows", v.Sentence, s.round+1, p.maxRestarts)
	todo := []any{say{text}, expire{p.stopTimeout + leaveTime}}
	if s.allClear() {
		todo = append(todo, s.goOn()...)
	}
	return todo
}

// inAll adds to a verdict what it meant for the job.
func (s *state) inAll(v job.Verdict) job.Verdict {
	if v.First != nil && len(s.nodes) > 1 {
		v.Sentence += fmt.Sprintf("; all %d nodes stopped", len(s.nodes))
	}
	switch s.round {
	case 0:
	case 1:
		v.Sentence += ", after 1 restart"
	default:
		v.Sentence += fmt.Sprintf(", after %d restarts", s.round)
	}
	return v
}

// maxPast is how many rounds a verdict tells of.
const maxPast = 16

// mayGoOn reports whether another round may make up for what ended this one: a worker that ran, and failed.
func (s *state) mayGoOn(p policy, v job.Verdict) bool {
	if v.First == nil || v.First.PID == 0 || s.round >= p.maxRestarts {
		return false
	}
	return !slices.ContainsFunc(s.nodes, func(n node) bool { return n.gone })
}

// judge names the first cause, and what followed from it.
func judge(causes []cause, nodes []node) job.Verdict {
	causes = slices.Clone(causes)
	slices.SortStableFunc(causes, func(a, b cause) int {
		return cmp.Or(compareBool(a.echo(), b.echo()), cmp.Compare(a.at, b.at))
	})
	first := firstOf(causes)
	if first.failure == nil {
		return consequences(lostVerdict(nodes[first.node].name, first.node, first.why), causes)
	}
	v := failedVerdict(*first.failure)
	if i := slices.IndexFunc(causes, first.ties); i >= 0 {
		v.Sentence += fmt.Sprintf("; at the same time, as far as clocks tell, %v", causes[i].failure)
	}
	return consequences(v, causes)
}

// firstOf picks from causes in their order: the earliest of those that do not speak of another's end. The loss of a node
// is dated back by the time that it takes to notice, for its peers fail at once; what the node itself still told
// before comes first.
func firstOf(causes []cause) cause {
	first := causes[0]
	for _, c := range causes {
		if c.failure == nil && (c.at-lossTime <= first.at || first.echo()) && c.node != first.node {
			return c
		}
	}
	return first
}

// echo reports whether a cause says of itself that it followed from another one.
func (c cause) echo() bool { return c.failure != nil && c.failure.Echo }

// ties reports whether another node's failure is so near in time that either may have been first. On one node the
// kernel's order counts.
func (c cause) ties(other cause) bool {
	return other.failure != nil && other.node != c.node && !other.echo() && (other.at-c.at).Abs() < tieTime
}

// tieTime is how far two nodes' words of the same moment may lie apart: what is left of the way's time when half of the
// shortest round trip is taken off, and of the kernel's scheduling.
const tieTime = 2 * time.Millisecond

// consequences adds the other failures to a verdict, shortened.
func consequences(v job.Verdict, causes []cause) job.Verdict {
	for _, c := range causes {
		if c.failure != nil && (v.First == nil || c.failure.Rank != v.First.Rank) && len(v.Consequences) < maxConsequences {
			f := *c.failure
			f.Tail = nil
			v.Consequences = append(v.Consequences, f)
		}
	}
	return v
}

// maxConsequences is how many failures a verdict lists beside the first.
const maxConsequences = 32

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func lostVerdict(name string, n int, why string) job.Verdict {
	return job.Verdict{Code: job.ExitRetry, Origin: "platform", Class: job.Lost,
		Sentence: fmt.Sprintf("node %d (%s) was lost: %s", n, name, why)}
}

func failedVerdict(f job.Failure) job.Verdict {
	class := job.Failed
	switch {
	case f.PID == 0:
		class = job.NotStarted
	case f.Exit.Killed():
		class = job.Killed
	}
	return job.Verdict{Code: f.Exit.Status(), Origin: "worker", Class: class, Sentence: f.String(), Hint: f.Hint, First: &f}
}

// conclude fixes the verdict. The leader tells it to all and then waits for them to leave.
func (s *state) conclude(p policy, v job.Verdict) []any {
	if s.verdict != nil {
		return nil
	}
	if s.leads() {
		v.Rounds = s.past
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
	if !s.leads() {
		return s.alone(p, why)
	}
	todo := s.heard(p, cause{at: s.now, node: n, why: why})
	if s.again { // without this node there is no next round
		s.again = false
		todo = append(todo, s.conclude(p, s.inAll(judge(s.causes, s.nodes)))...)
	}
	return todo
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
	if s.again {
		s.again = false
		v := s.inAll(judge(s.causes, s.nodes))
		v.Sentence += fmt.Sprintf("; no restart, for workers are left on %s", s.unclear())
		return append(s.conclude(p, v), kill{})
	}
	var todo []any
	if s.verdict == nil {
		todo = s.alone(p, "its agent did not say how the job ended")
	}
	s.ended = true
	return append(todo, kill{})
}

// unclear names a node on which workers do not end.
func (s *state) unclear() string {
	n := max(slices.IndexFunc(s.nodes, func(n node) bool { return !n.clear && !n.gone }), 0)
	return fmt.Sprintf("node %d (%s)", n, s.nodes[n].name)
}

// told takes news: failures, completions and orders to stop from members; starts, stops and the verdict from the leader.
func (s *state) told(p policy, from int, n news) []any {
	switch {
	case s.leads() && n.Kind == newsFailed && n.Failure != nil:
		return s.heard(p, cause{at: s.now - min(max(n.Failure.Ago, 0), s.now), node: from, failure: n.Failure})
	case s.leads() && n.Kind == newsDone:
		s.ranks = append(slices.Clone(s.ranks), n.Ranks...)
		return s.done(p, from)
	case s.leads() && n.Kind == newsClear:
		if !s.nodes[from].done {
			s.ranks = append(slices.Clone(s.ranks), n.Ranks...)
		}
		s.nodes[from].clear = true
	case s.leads() && n.Kind == newsEnding && n.Verdict != nil:
		return s.wanted(p, sane(*n.Verdict))
	case from == 0 && n.Kind == newsStart && n.Start != nil:
		return s.begun(*n.Start)
	case from == 0 && n.Kind == newsStop:
		return append(s.stop(p.stopTimeout), expire{p.stopTimeout + 2*leaveTime})
	case from == 0 && n.Kind == newsVerdict && n.Verdict != nil:
		return s.conclude(p, sane(*n.Verdict))
	}
	return nil // of a newer version, or too late: no reason to fail
}

// begun is a member's: the leader has opened a round.
func (s *state) begun(at start) []any {
	var todo []any
	if at.Round > s.round && s.nodes[s.self].clear {
		s.newRound(at.Round)
		todo = []any{say{fmt.Sprintf("%s; restart %d of %d", at.Why, at.Round, at.MaxRestarts)}, expire{0}}
	}
	if at.Round != s.round || s.start != nil || s.stopping {
		return todo
	}
	s.start = &at
	return append(todo, begin{at})
}

// wanted is the leader's: the end of the job is asked for, by a node that cannot or must not go on. A failure that
// stopped all before is what the job ended of, unless another round was to follow.
func (s *state) wanted(p policy, v job.Verdict) []any {
	if len(s.causes) == 0 || s.again {
		s.again = false
		return s.conclude(p, v)
	}
	if s.own == nil {
		s.asked, s.own = true, &v
	}
	return nil
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
	if s.asked || s.verdict != nil {
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
		return s.wanted(p, v)
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
	return job.Verdict{Code: code, Origin: "platform", Class: job.Preempted,
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
