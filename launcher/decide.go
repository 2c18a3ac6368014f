package launcher

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/lazy"
)

// This file is the judgement of the run loop. It is pure: what happened comes in as an event with its time, what
// to do goes out as a list of deeds, and nothing here waits, sends or reads a clock.
//
//	          every worker of this node ended well: tell the leader
//	running ──────────────────────────────────────────────────────▶ running, done
//	 ▲ ▲ │ a worker fails, here or elsewhere; a node is lost; others wait to join; a signal
//	 │ │ ▼
//	 │ │ stopping: workers get TERM, then KILL; the leader lets news settle, then names the first cause
//	 │ │ │ │ │ another round is allowed, and no node has a worker left
//	 │ └─┼─┼─┘
//	 │   │ │ the same, and nodes were lost, or wait: this world is over
//	 │   │ ▼
//	 └───┼ meeting, for the next world ────▶ ended, if there is none
//	     │ the verdict is known and no worker of this node is left
//	     ▼
//	ended (a member); the leader ends when all members have left

// Times of the judgement.
const (
	// settleTime is for causes that are older than the first one heard. A dead node's peers fail at once, and
	// lossTime later its death is known.
	settleTime = lossTime + 100*time.Millisecond
	lossTime   = 350 * time.Millisecond // from the end of a connection to the word that its agent is lost
	twice      = 250 * time.Millisecond // two signals closer than this are one: a terminal and a parent may both send it
	// echoTime is for whoever failed first to end, before workers get TERM on account of others who say that it is gone: a handler of
	// its exception may run, and by TERM it would end without a word.
	echoTime  = 5 * time.Second
	deathTime = time.Second     // from KILL to the word that nothing is left
	hushTime  = 4 * time.Second // from a node's last word to the word that it is silent, of whose end all may speak
)

// stopFor is how workers are stopped for a verdict: with time for a checkpoint when nobody failed, which a hold says that somebody has.
func (s *state) stopFor(p policy, v job.Verdict) stop {
	if s.Held > 0 || v.Class != job.Preempted && v.Class != job.Late {
		return stop{Within: p.StopTimeout}
	}
	how := stop{Within: p.grace(s.Now), Preempt: true}
	if v.Class == job.Preempted {
		how.Said = withTime(v.Sentence, how.Within)
	}
	return how
}

// withTime is why workers are stopped, and for how long they are let.
func withTime(why string, within time.Duration) string {
	return fmt.Sprintf("%s; workers have %v to end", why, within.Round(max(time.Millisecond, min(within, time.Second))))
}

// grace is what is left for checkpoints. A platform that says when it will end the job may have sent its signal earlier
// than that, to leave more time (Slurm: --signal=TERM@300). But one that is hours away is no promise: the node may be
// wanted now.
func (p policy) grace(now time.Duration) time.Duration {
	if left := p.JobEnd - now - endMargin; p.JobEnd > 0 && left < farEnd {
		return max(p.Grace, left)
	}
	return p.Grace
}

const (
	endMargin = 2 * time.Second  // for our own end, before the platform's
	farEnd    = 10 * time.Minute // an end beyond that has nothing to do with the signal
)

// decide takes one event and returns the new state and what to do. It is the only place where the fate of a
// running job is decided.
func decide(p policy, s state, now time.Duration, event any) (state, []any) {
	if e, ok := event.(met); ok {
		s.Policy, s.Timeout = cmp.Or(e.Policy, s.Policy), e.Timeout
	}
	p = s.rules(p)
	s.Now = now
	s.Causes = slices.Clone(s.Causes)
	var todo []any
	switch e := event.(type) {
	case opened:
		todo = s.opened(p, e.Start)
	case begun:
		s.Started, s.Left, s.Began = true, e.Workers, s.Now
	case unbegun:
		s.Empty = true
		todo = s.failed(p, e.Failure)
	case finished:
		e.Worker.Late, e.Worker.Held = s.Stopping, s.Held > 0
		s.Ranks = append(slices.Clone(s.Ranks), e.Worker)
		todo = s.finished(p, e)
	case emptied:
		s.emptied(p, e)
	case noticed:
		todo = s.noticed(p, e)
	case resumed:
		todo = s.resumed(p)
	case renewed:
		todo = append(s.heardOf(p, e.Node), s.standing(p, e.Node)...)
	case departed:
		todo = s.departed(p, e.Node)
	case lost:
		todo = s.lost(p, e)
	case told:
		todo = s.told(p, e.Node, e.News)
	case signalled:
		todo = s.signalled(p, e.Sig)
	case settled:
		todo = s.settled(p)
	case expired:
		todo = s.expired(p)
	case broken:
		todo = s.ending(p, e.Verdict)
	case met:
		todo = s.met(p, e)
	case unmet:
		todo = s.unmet(p, e)
	case queued:
		s.Queue = max(e.Nodes, 0)
	case away:
		s.Away = e.Is
		todo = s.deserted(p)
	case lapsed:
		todo = s.lapsed(p)
	case woken: // the end of this function looks at the clock
	case stalled:
		todo = s.stalled(p, e)
	case reached:
		s.Reached, s.Trained, s.Learned = max(s.Reached, e.How), s.Trained || e.Trained, max(s.Learned, e.Learned)
	case ailing:
		if e.Of != allNodes {
			e.Of = s.Self
		}
		todo = s.ailing(e.Of, e.What)
	case lagging:
		todo = s.lagging(e)
	case clashing:
		todo = s.clashing(e)
	case ordered:
		todo = s.ordered(p, e.What)
	default:
		panic(fmt.Sprintf("decide: unknown event %T", event))
	}
	todo = append(todo, s.cleared(p)...)
	todo = append(todo, s.weigh(p)...)
	todo = append(todo, s.admit(p)...)
	todo = append(todo, s.disperse(p)...)
	todo = append(todo, s.alarm()...)
	s.maybeEnd()
	s.mark(event)
	s.edits = false
	return s, s.stamped(todo)
}

// edit is a node that is to change, which it does in this state alone.
func (s *state) edit(n int) *node {
	if !s.edits {
		s.Nodes, s.edits = slices.Clone(s.Nodes), true
	}
	changed := *s.Nodes[n]
	s.Nodes[n] = &changed
	return &changed
}

// stamped puts the round on all news, for news of another one change nothing.
func (s *state) stamped(todo []any) []any {
	for i := range todo {
		if t, ok := todo[i].(tell); ok {
			t.News.Round = s.Round
			todo[i] = t
		}
	}
	return todo
}

// ranks are the workers that ended in this round, of all nodes as far as this one was told.
func (s *state) ranks() []job.Ended {
	all := slices.Clone(s.Ranks)
	for _, n := range s.Nodes {
		all = append(all, n.Ranks...)
	}
	return all
}

func (s *state) leads() bool { return s.Self == 0 }

// opened lets workers start everywhere: the place where they meet is there.
func (s *state) opened(p policy, at start) []any {
	if s.Verdict != nil || s.Stopping {
		return nil
	}
	at.Round = s.Round
	at.MaxRestarts, at.Free, at.Blame, at.Idle, at.Policy = p.MaxRestarts+s.Free, s.Free, s.Blame, s.Idle, p.rules()
	if len(s.Past) > 0 {
		at.Why = s.Past[len(s.Past)-1].Message
	}
	s.Start = &at
	return []any{tell{everyone, news{Kind: newsStart, Start: s.Start}}, begin{at}}
}

// newRound forgets the round before.
func (s *state) newRound(number int) {
	s.turn(s.Marks.World, s.Marks.Of)
	s.Round = number
	s.Start, s.Started, s.Left, s.Empty = nil, false, 0, false
	s.Stopping, s.Causes, s.Own, s.Wanted, s.Again, s.Counted, s.Ranks, s.Fate = false, nil, nil, nil, false, false, nil, 0
	s.Order, s.Paused, s.Stall, s.Reached = "", false, nil, unheard
	s.Trained, s.Learned = false, 0
	s.Held, s.Vain, s.Slow, s.Settle, s.Mends, s.Down, s.Mended, s.Stragglers = 0, false, 0, 0, nil, nil, 0, nil
	for i, n := range s.Nodes {
		if n.Ends || n.Done || n.Clear || n.Ranks != nil { // the leader's: a member hears little of others
			n = s.edit(i)
			n.Ends, n.Done, n.Clear, n.Ranks = false, false, false, nil
		}
	}
}

// finished notes the end of one worker of this node.
func (s *state) finished(p policy, e finished) []any {
	if e.Failure == nil || !p.mends() {
		s.Left--
	}
	if e.Failure != nil {
		return s.failed(p, *e.Failure)
	}
	if who := s.enough(p, e.Worker.Rank); who != "" && !s.Stopping {
		return s.conclude(p, job.Verdict{Class: job.Succeeded, Sentence: who + " ended well, which was to be enough"})
	}
	switch {
	case s.Stopping || s.failedHere():
		return nil
	case s.Left > 0:
		return s.ends()
	}
	return s.done(p, s.Self)
}

// ends notes that a worker of this node ended well: from then on nobody else is let in.
func (s *state) ends() []any {
	if s.Nodes[s.Self].Ends {
		return nil
	}
	s.edit(s.Self).Ends = true
	if s.leads() {
		return nil
	}
	return []any{tell{0, news{Kind: newsEnds}}}
}

// enough names those of whom the user said that their success is the job's, when they have ended well by now. They run
// on the leader's node, for the leader has group rank 0.
func (s *state) enough(p policy, rank int) string {
	switch {
	case !s.leads() || s.failedHere():
	case p.Success == "rank0" && rank == 0:
		return "rank 0"
	case p.Success == "node0" && s.Left == 0:
		return "all workers of node 0"
	}
	return ""
}

// failedHere reports whether a worker of this node failed, while the others were left to run.
func (s *state) failedHere() bool {
	return s.Own != nil || slices.ContainsFunc(s.Causes, func(c cause) bool { return c.Node == s.Self })
}

// done notes that all workers of a node ended well. When that is true of every node, the job is done.
func (s *state) done(p policy, n int) []any {
	s.edit(n).Done = true
	if !s.leads() {
		return []any{tell{0, news{Kind: newsDone, Ranks: s.Ranks}}}
	}
	if slices.ContainsFunc(s.Nodes[:s.awaited(p)], func(n *node) bool { return !n.Done }) {
		return nil
	}
	return s.conclude(p, job.Verdict{Class: job.Succeeded, Sentence: s.success(p)})
}

// awaited is how many nodes must end their work, the first ones: parameter servers have none of their own.
func (s *state) awaited(p policy) int {
	if p.Success != "trainers" {
		return len(s.Nodes)
	}
	return max(len(s.Nodes)-p.Servers, 0)
}

func (s *state) success(p policy) string {
	switch n := s.awaited(p); {
	case n < len(s.Nodes):
		return fmt.Sprintf("all workers of the %d nodes that train ended well", n)
	case len(s.Nodes) == 1:
		return "all workers ended well"
	}
	return fmt.Sprintf("all workers of all %d nodes ended well", len(s.Nodes))
}

// failed notes a worker of this node that ended badly. A worker that we stopped ended as it should, unless it had an
// error of its own: a rank whose peers notice first that it is gone may take its time to end.
func (s *state) failed(p policy, f job.Failure) []any {
	stopped := f.Exit.Sent && (f.Exit.Signal != 0 || f.Exception == "" || f.Echo || ofSignal().MatchString(f.Exception))
	if stopped || s.Verdict != nil || s.Order != "" || s.Next != nil {
		return nil
	}
	if s.leads() {
		return s.heard(p, cause{At: s.Now - f.Ago, Node: s.Self, Failure: &f})
	}
	if s.Own == nil {
		v := p.failedVerdict(f)
		s.Own = &v
	}
	s.Causes = append(s.Causes, cause{At: s.Now - f.Ago, Node: s.Self, Failure: &f})
	todo := []any{tell{0, news{Kind: newsFailed, Failure: &f}}}
	if p.leaves() {
		return append(todo, s.leftRunning(p, s.Causes[len(s.Causes)-1])...)
	}
	if p.mends() {
		s.Down = append(slices.Clone(s.Down), f)
		return todo
	}
	return append(todo, s.stopOrHold(p)...)
}

// ofSignal is how an exception looks that a handler of the signal raised with which workers are told to end.
var ofSignal = lazy.Regexp(`(?i)\bSIG(TERM|INT)\b|signals?:? ?(15|2)\b|^KeyboardInterrupt`)

// heard is the leader's: something went wrong somewhere. All are stopped at once; who is to blame is said when
// older news had the time to arrive, for one rank that fails makes the others fail a moment later, and louder.
func (s *state) heard(p policy, c cause) []any {
	if s.Verdict != nil || s.Next != nil || s.Order != "" && c.Failure != nil {
		return nil
	}
	if todo, may := s.mend(p, c); may {
		return todo
	}
	first := !c.echo() && s.echoes()
	s.Causes = append(s.Causes, c)
	switch {
	case p.leaves():
		return s.leftRunning(p, c)
	case len(s.Causes) > 1 && first && !s.Again: // the one that was waited for; news of an older one may still be on their way
		s.Slow, s.Settle = 0, s.Now+settleTime
		return nil
	case len(s.Causes) > 1:
		return nil
	}
	todo := s.stopOrHold(p)
	return append([]any{tell{everyone, news{Kind: newsStop, Held: s.Held > 0}}, settle{settleTime}}, todo...)
}

// echoes reports whether all that is known to have failed says that another one had gone: who that is cannot be among them.
func (s *state) echoes() bool {
	return !slices.ContainsFunc(s.Causes, func(c cause) bool { return !c.echo() })
}

// stopOrHold stops this node's workers because one failed, here or elsewhere. A member waits for its leader's verdict.
func (s *state) stopOrHold(p policy) (todo []any) {
	if !s.leads() {
		todo = []any{p.awaitVerdict()}
	}
	if !s.echoes() || p.mends() {
		return append(todo, s.stop(stop{Within: p.StopTimeout})...)
	}
	return append(todo, s.hold(p)...)
}

// hold stops them in a while, or when who was first has failed. What they do until then counts as if they had not been stopped.
func (s *state) hold(p policy) []any {
	switch {
	case s.Stopping:
		return nil
	case !s.Started:
		return s.stop(stop{Within: p.StopTimeout})
	}
	s.Stopping, s.Held = true, s.Now+min(p.StopTimeout, echoTime)
	return nil
}

// unhold stops them where that was held, and there is nothing to wait for any more, or somebody wants this node or another. The leader has all
// nodes do so.
func (s *state) unhold(p policy) []any {
	leaves := func(n *node) bool { return n.Quits }
	if s.Held == 0 || s.echoes() && s.Now < s.Held && !s.Asked && !slices.ContainsFunc(s.Nodes, leaves) {
		return nil
	}
	s.Vain = s.echoes() && s.Now >= s.Held && p.StopTimeout > 0
	return s.release(p)
}

// release is the end of a hold.
func (s *state) release(p policy) []any {
	todo := s.stop(stop{Within: p.StopTimeout})
	if s.leads() {
		todo = append([]any{tell{everyone, news{Kind: newsStop}}}, todo...)
	}
	return todo
}

// alarm wakes the judgement when the first of what it waits for is over: there is one clock for all.
func (s *state) alarm() []any {
	at := time.Duration(0)
	for _, t := range []time.Duration{s.Held, s.Fate, s.Slow, s.Settle, s.Fence, s.Rest, s.Admit} {
		if t > s.Now && (at == 0 || t < at) {
			at = t
		}
	}
	if at == 0 {
		return nil
	}
	return []any{wake{at - s.Now}}
}

// leftRunning tells of a failed worker or a lost node, of which nobody would hear before all others have ended. Of many the first are told.
func (s *state) leftRunning(p policy, c cause) []any {
	if c.Hang != nil || len(s.Causes) > maxConsequences {
		return nil
	}
	return []any{say{p.judge([]cause{c}, s.Nodes).Sentence + "; the others run on to their end"}}
}

// cleared acts when nothing is left of this node's workers, after they were told to stop or left to end. A member says so. When that is
// true of every node, the leader has heard all there was to hear, and need not wait any longer.
func (s *state) cleared(p policy) []any {
	clear := s.Nodes[s.Self].Clear
	if s.Ended || s.Started && !s.Empty || !s.Stopping && !(s.Started && p.leaves()) {
		return nil
	}
	if !s.leads() {
		if clear {
			return nil
		}
		s.edit(s.Self).Clear = true
		if s.Nodes[0].Gone {
			return nil
		}
		return []any{tell{0, news{Kind: newsClear, Ranks: s.Ranks}}}
	}
	if !clear {
		s.edit(s.Self).Clear = true
	}
	if s.Verdict != nil || s.Next != nil || !s.allClear() {
		return nil
	}
	if s.Order != "" {
		return s.carryOut(p)
	}
	if len(s.Causes) == 0 {
		return nil
	}
	if s.Again {
		return s.goOn(p)
	}
	if s.mayBeAsked() && !p.leaves() {
		return nil
	}
	return s.settled(p)
}

func (s *state) allClear() bool {
	return !slices.ContainsFunc(s.Nodes, func(n *node) bool { return !n.Clear && !n.Gone })
}

// mayBeAsked reports whether a cause looks like a scheduler's signal to all processes of a container, which this node's
// agent gets as well, perhaps a moment later.
func (s *state) mayBeAsked() bool {
	return slices.ContainsFunc(s.Causes, func(c cause) bool {
		return c.Failure != nil && slices.Contains([]int{int(syscall.SIGTERM), int(syscall.SIGINT), int(syscall.SIGHUP)}, c.Failure.Exit.Signal)
	})
}

// goOn begins the next round, in this world or in another.
func (s *state) goOn(p policy) []any {
	if wait := s.fenced(); wait != nil {
		return wait
	}
	if s.mustMeet(p) {
		return s.disband(p)
	}
	s.newRound(s.last() + 1)
	return []any{expire{0}, open{}}
}

// stop stops this node's workers, once.
func (s *state) stop(how stop) []any {
	if s.Stopping && s.Held == 0 {
		return nil
	}
	s.Stopping, s.Held = true, 0
	if !s.Started {
		s.Empty = true
	}
	if s.Empty {
		return nil
	}
	s.Until = s.Now + how.Within
	return []any{how}
}

// settled names the first cause: to all, as the verdict, or as the reason for another round.
func (s *state) settled(p policy) []any {
	if s.Verdict != nil || len(s.Causes) == 0 || s.Again {
		return nil
	}
	if wait, must := s.undecided(p); must {
		return wait
	}
	v := s.judge(p, s.Causes)
	s.forgive(p)
	goOn := s.mayGoOn(p, v)
	if code, why := s.hopeless(p, v); goOn && why != "" {
		goOn, v.Code, v.Sentence = false, code, v.Sentence+"; "+why
	}
	switch {
	case s.Asked && s.Own != nil && (goOn || s.mayBeAsked()): // by a signal that came when the failure had stopped all
		if goOn && s.Own.First == nil {
			return s.conclude(p, after(*s.Own, v.Sentence, v.First))
		}
		return s.conclude(p, *s.Own)
	case !goOn:
		if s.Asked && s.Own != nil && v.First != nil && v.First.Echo {
			v.Sentence += "; before it was known which, " + s.Own.Sentence
		}
		return append(s.accuseFailed(p, v.First), s.conclude(p, s.inAll(p, v))...)
	}
	s.laid(v)
	v.Sentence = s.stood(v).Sentence
	s.Again, s.Counted, s.Held = true, true, 0
	text, out := v.Sentence+"; the nodes that are left meet again", ""
	switch {
	case v.First != nil:
		text, out = again(v.Sentence, s.last()+1, p.MaxRestarts+s.Free)+s.backOff(p), s.blame(p, *v.First)
	case v.Hang != nil:
		text, out = again(v.Sentence, s.last()+1, p.MaxRestarts+s.Free)+s.backOff(p), s.excluded(p, v)
	default:
		s.Free++
	}
	text += out
	s.past(job.Round{Number: s.last(), Message: v.Sentence + out, First: v.First})
	todo := append([]any{say{text}, expire{p.StopTimeout + p.leaveTime()}}, append(s.accuseFailed(p, v.First), s.accuseExcluded(p, v.First)...)...)
	if s.allClear() {
		todo = append(todo, s.goOn(p)...)
	}
	return todo
}

// again says, on all nodes alike, that a round follows another one.
func again(why string, number, most int) string {
	return fmt.Sprintf("%s; restart %d of %d follows", why, number, most)
}

// undecided reports whether what was first may still turn out to be something else, and is waited for.
func (s *state) undecided(p policy) (todo []any, must bool) {
	if s.Now < s.Settle && !s.allClear() {
		return nil, true
	}
	slow := s.awaitsFirst(p)
	todo, must = s.awaitsSilent(p)
	return todo, must || slow
}

// awaitsFirst reports whether all that is known says that it followed from another's end, and who that was may still say so: it may take its time, until it is
// killed, and who counts the dead has told of it.
func (s *state) awaitsFirst(p policy) bool {
	if first := p.judge(s.Causes, s.Nodes).First; first == nil || !first.Echo || s.allClear() || p.leaves() {
		return false
	}
	if s.Slow == 0 {
		s.Slow = max(s.Now, s.Held) + max(p.StopTimeout+deathTime, hushTime)
	}
	return s.Now < s.Slow
}

// awaitsSilent reports whether a node is silent whose loss would be the first cause, so that what failed would have followed from it. For a
// while its fate is waited for.
func (s *state) awaitsSilent(p policy) (todo []any, must bool) {
	causes, names := slices.Clone(s.Causes), []string{}
	for n, node := range s.Nodes {
		if node.Mute > 0 && !node.Gone {
			causes, names = append(causes, cause{At: node.Mute, Node: n}), append(names, fmt.Sprintf("node %d (%s)", n, node.Name))
		}
	}
	if first := p.judge(causes, s.Nodes); len(names) == 0 || first.First != nil || first.Hang != nil {
		return nil, false
	}
	if s.Fate == 0 {
		s.Fate = s.Now + p.fateTime()
		text := fmt.Sprintf("%s; what was first is said when %s is heard again, or given up", s.Causes[0].text(s.Nodes), names[0])
		return []any{say{text}}, true
	}
	return nil, s.Now < s.Fate
}

// weigh looks again when that may be known, and whether workers were left to run for long enough.
func (s *state) weigh(p policy) []any {
	todo := s.unhold(p)
	if s.Fate == 0 && s.Slow == 0 && s.Settle == 0 {
		return todo
	}
	return append(todo, s.settled(p)...)
}

// rounds adds to those that the leader tells of the ones before, of which it may not know: it need not have been there.
func (s *state) rounds(told []job.Round) []job.Round {
	before := slices.IndexFunc(s.Past, func(r job.Round) bool { return len(told) > 0 && r.Number >= told[0].Number })
	if before < 0 {
		before = len(s.Past)
	}
	all := slices.Concat(s.Past[:before], told)
	return all[max(0, len(all)-maxPast):]
}

// inAll adds to a verdict what it meant for the job.
func (s *state) inAll(p policy, v job.Verdict) job.Verdict {
	if v.First != nil && len(s.Nodes) > 1 && !p.leaves() {
		v.Sentence += fmt.Sprintf("; all %d nodes stopped", len(s.Nodes))
	}
	switch last := s.last(); last {
	case 0:
	case 1:
		v.Sentence += ", after 1 restart"
	default:
		v.Sentence += fmt.Sprintf(", after %d restarts", last)
	}
	return v
}

// maxPast is how many rounds a verdict tells of.
const maxPast = 16

// mayGoOn reports whether another round may make up for what ended this one: a worker that ran, and failed, or a lost node
// which others can do without.
func (s *state) mayGoOn(p policy, v job.Verdict) bool {
	switch {
	case s.present() < len(s.Nodes) && !p.Regroups:
		return false
	case v.Hang != nil:
		return v.Hang.Class != heartbeat.Desync && s.last()-s.Free < p.MaxRestarts
	case v.First == nil:
		return true
	}
	return v.First.PID != 0 && s.last()-s.Free < p.MaxRestarts
}

// judge names the first cause. Where that one says that another had gone, it is said who that may have been.
func (s *state) judge(p policy, causes []cause) job.Verdict {
	v := p.judge(causes, s.Nodes)
	if v.Class == job.Lost && s.hearsNobody() {
		v.Sentence += "; no other node is heard either: this one may be the one that is cut off"
	}
	if v.First == nil || !v.First.Echo || p.leaves() {
		return v
	}
	if who, hint := s.suspects(v.First.Rank); who != "" {
		v.Sentence, v.Hint = v.Sentence+"; "+who, hint
	}
	return v
}

// hearsNobody reports whether this node leads several others, and all of them are silent.
func (s *state) hearsNobody() bool {
	silent := func(n *node) bool { return n.Mute > 0 && !n.Gone || n.Cut }
	return s.leads() && len(s.Nodes) > 2 && !slices.ContainsFunc(s.Nodes[1:], func(n *node) bool { return !silent(n) })
}

// suspects are somebody who had ended well before, for who takes fewer steps than the others leaves them alone, and nobody failed before them; or the few
// who were stopped when they had been waited for in vain; or somebody who ended well while it was waited for others: its peers lose a rank when it
// takes its process group apart, which may be a while before.
func (s *state) suspects(but int) (who, hint string) {
	var well, stopped, meanwhile []job.Ended
	for _, e := range slices.SortedFunc(slices.Values(s.ranks()), func(a, b job.Ended) int { return cmp.Compare(a.Rank, b.Rank) }) {
		switch {
		case e.Rank == but || e.Group < 0 || e.Group >= len(s.Nodes):
		case endedWell(e):
			well = append(well, e)
		case wasStopped(e) && s.Vain && s.allClear():
			stopped = append(stopped, e)
		case e.Held && e.Exit.OK() && !e.Exit.Sent:
			meanwhile = append(meanwhile, e)
		}
	}
	switch {
	case len(well) > 0:
		return s.hadEnded(well), unevenHint
	case len(stopped) == 1:
		return s.ranked(stopped[0]) + " had not failed, and was stopped",
			"look at that rank first: a handler of its exception may have run for longer than it is waited for"
	case len(stopped) > 1 && len(stopped) <= maxSuspected:
		names := []string{}
		for _, e := range stopped {
			names = append(names, fmt.Sprintf("%d on %s", e.Rank, s.Nodes[e.Group].Name))
		}
		return fmt.Sprintf("ranks %s had not failed, and were stopped", strings.Join(names, ", ")),
			"look at those ranks first, whose connections to the others had gone: a handler of an exception may have run for longer than it is waited for"
	case len(meanwhile) > 0:
		return s.hadEnded(meanwhile), unevenHint
	}
	return "", ""
}

// endedWell reports whether a worker had come to its end before anybody was stopped, and not because of that. An older release does not say Late.
func endedWell(e job.Ended) bool { return e.Over || e.Exit.OK() && !e.Late && !e.Exit.Sent }

// wasStopped reports whether a worker ended only because it was told to.
func wasStopped(e job.Ended) bool {
	return e.Exit.Sent && !e.Raised && (e.Exit.Signal != 0 || e.Exit.Code == 0 || e.Exit.Code == job.ExitTERM)
}

// hadEnded is what is said of those who had ended well.
func (s *state) hadEnded(well []job.Ended) string {
	how, others := "ended with code 0", ""
	if well[0].Over {
		how = "come to the end of its program"
	}
	if more := len(well) - 1; more > 0 {
		others = fmt.Sprintf(", and so had %d more", more)
	}
	return fmt.Sprintf("%s had %s by then%s", s.ranked(well[0]), how, others)
}

const unevenHint = "see that all ranks take the same number of steps: uneven data, or a return or exit in the middle, leaves the others alone"

// maxSuspected is how many ranks are named of those that were stopped: where there are more, those that failed are what tells something.
const maxSuspected = 4

// ranked is a worker in a sentence.
func (s *state) ranked(e job.Ended) string {
	return fmt.Sprintf("rank %d on %s (node %d, local rank %d)", e.Rank, s.Nodes[e.Group].Name, e.Group, e.LocalRank)
}

// judge names the first cause, and what followed from it.
func (p policy) judge(causes []cause, nodes []*node) job.Verdict {
	causes = slices.Clone(causes)
	slices.SortStableFunc(causes, func(a, b cause) int {
		return cmp.Or(compareBool(a.echo(), b.echo()), cmp.Compare(a.At, b.At))
	})
	first := firstOf(causes)
	switch {
	case first.Hang != nil:
		return consequences(hungVerdict(first), causes)
	case first.Failure == nil:
		v := consequences(lostVerdict(nodes[first.Node].Name, first.Node, first.Why), causes)
		if i := slices.IndexFunc(causes, func(c cause) bool { return c.Failure != nil && !c.echo() }); i >= 0 {
			v.Sentence += fmt.Sprintf("; %v, too", causes[i].Failure)
		}
		return v
	}
	v := p.failedVerdict(*first.Failure)
	if i := slices.IndexFunc(causes, first.ties); i >= 0 {
		v.Sentence += fmt.Sprintf("; at the same time, as far as clocks tell, %v", causes[i].Failure)
	}
	return consequences(v, causes)
}

// firstOf picks from causes in their order: the earliest of those that do not speak of another's end. The loss of a node
// is dated back by the time that it takes to notice, for its peers fail at once; what the node itself still told
// before comes first.
func firstOf(causes []cause) cause {
	first := causes[0]
	if first.Failure == nil && first.Hang == nil {
		return first
	}
	for _, c := range causes {
		if c.Failure == nil && c.Hang == nil && (c.At-lossTime <= first.At || first.echo()) && c.Node != first.Node {
			return c
		}
	}
	return first
}

// echo reports whether a cause says of itself that it followed from another one.
func (c cause) echo() bool { return c.Failure != nil && c.Failure.Echo }

// ties reports whether another node's failure is so near in time that either may have been first. On one node the
// kernel's order counts.
func (c cause) ties(other cause) bool {
	return other.Failure != nil && other.Node != c.Node && !other.echo() && (other.At-c.At).Abs() < tieTime
}

// tieTime is how far two nodes' words of the same moment may lie apart: what is left of the way's time when half of the
// shortest round trip is taken off, and of the kernel's scheduling.
const tieTime = 2 * time.Millisecond

// consequences adds the other failures to a verdict, shortened.
func consequences(v job.Verdict, causes []cause) job.Verdict {
	for _, c := range causes {
		if c.Failure != nil && (v.First == nil || c.Failure.Rank != v.First.Rank) && len(v.Consequences) < maxConsequences {
			f := *c.Failure
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

func (p policy) failedVerdict(f job.Failure) job.Verdict {
	code := f.Exit.Status()
	if p.Posix {
		code = f.Exit.Posix()
	}
	class := job.Failed
	switch {
	case f.PID == 0:
		class = job.NotStarted
	case f.Exit.Killed() && slices.ContainsFunc(f.Evidence, func(e job.Evidence) bool { return e.Kind == job.OOM }):
		class = job.OOM
	case f.Exit.Killed():
		class = job.Killed
	}
	return job.Verdict{Code: code, Origin: "worker", Class: class, Sentence: f.String(), Hint: f.Hint, First: &f}
}

// conclude fixes this node's own verdict.
func (s *state) conclude(p policy, v job.Verdict) []any {
	v.Rounds = nil
	return s.accept(p, s.stood(v))
}

// accept fixes the verdict. The leader tells it to all and then waits for them to leave.
func (s *state) accept(p policy, v job.Verdict) []any {
	if s.Verdict != nil {
		return nil
	}
	v.Rounds = s.rounds(v.Rounds)
	s.Verdict = &v
	var todo []any
	if !v.OK() || s.Left > 0 && !p.leaves() {
		todo = s.stop(s.stopFor(p, v))
	}
	if s.leads() {
		todo = append([]any{tell{everyone, news{Kind: newsVerdict, Verdict: &v}}}, todo...)
		if !v.OK() || !p.leaves() {
			todo = append(todo, expire{max(p.grace(s.Now), p.StopTimeout) + p.leaveTime()})
		}
	}
	return todo
}

// departed notes a goodbye. A member that leaves before the verdict has let its workers down, unless they were done.
func (s *state) departed(p policy, n int) []any {
	switch {
	case s.Verdict != nil, s.Next != nil, s.Nodes[n].Quits, s.Nodes[n].Done && s.Order == "":
		s.edit(n).Gone = true
		return nil
	case !s.leads() && !p.Regroups: // it has not told how the job ended, and will not lead another world
		s.edit(n).Gone = true
		return s.alone(p, lost{Why: leftJob})
	}
	return s.lost(p, lost{Node: n, Why: leftJob, Certain: true})
}

const leftJob = "its agent left the job"

// lost notes an agent that is gone: for the leader one more cause, for a member the end of all news.
func (s *state) lost(p policy, e lost) []any {
	if s.Nodes[e.Node].Gone {
		return nil
	}
	needed := !s.Nodes[e.Node].Done || s.Again || s.Order != ""
	gone := s.edit(e.Node)
	gone.Gone, gone.Cut = true, !e.Certain
	if s.Verdict != nil || s.Next != nil || !needed {
		return append(s.hurry(p, e), s.deserted(p)...)
	}
	found := s.accuseLost(p, e)
	if p.Regroups {
		return slices.Concat(found, s.bereft(p, e), s.hurry(p, e))
	}
	if !s.leads() {
		return append(found, s.alone(p, e)...)
	}
	todo := append(found, s.heard(p, cause{At: s.since(e), Node: e.Node, Why: e.Why})...)
	if s.Again || s.Order != "" { // without this node there is no next round
		s.Again = false
		todo = append(todo, s.conclude(p, s.inAll(p, s.judge(p, s.Causes)))...)
	}
	return todo
}

// alone is a member's verdict without a leader: what went wrong here is all that it knows.
func (s *state) alone(p policy, e lost) []any {
	if s.asks() {
		return s.conclude(p, *s.Own)
	}
	v := s.foremost(p, e)
	if v.First == nil && s.Wanted != nil {
		v = *s.Wanted
	}
	return s.conclude(p, v)
}

// asks reports whether a member wants the end of the job for another reason than a worker's failure.
func (s *state) asks() bool { return s.Own != nil && s.Own.First == nil }

// foremost names the first cause of a member that has lost its leader. What fails in the leader's silence may follow from its end, which
// is noticed later: it is judged as a leader judges the loss of a member.
func (s *state) foremost(p policy, e lost) job.Verdict {
	return s.judge(p, append(slices.Clone(s.Causes), cause{At: s.since(e), Node: 0, Why: e.Why}))
}

// since is when a node was lost, as far as that is known: when it was heard last, for what came later may have followed from its end.
func (s *state) since(e lost) time.Duration {
	at := s.Now - e.Quiet
	if mute := s.Nodes[e.Node].Mute; mute > 0 {
		at = min(at, mute)
	}
	return at
}

// noticed tells of a node's silence, and of its end.
func (s *state) noticed(p policy, e noticed) []any {
	todo := []any{say{fmt.Sprintf("node %d (%s): %s", e.Node, s.Nodes[e.Node].Name, e.What)}}
	if e.Quiet == 0 {
		return append(todo, s.heardOf(p, e.Node)...)
	}
	if s.Nodes[e.Node].Mute == 0 {
		s.edit(e.Node).Mute = max(1, s.Now-e.Quiet)
	}
	return todo
}

// heardOf ends the silence of a node. A leader that was silent has the time that it needs to say what follows from a failure.
func (s *state) heardOf(p policy, n int) []any {
	if s.Nodes[n].Mute == 0 {
		return nil
	}
	s.edit(n).Mute = 0
	if s.awaitsFate() {
		return []any{p.awaitVerdict()}
	}
	return nil
}

// awaitsFate reports whether a member whose workers were stopped waits for its leader's verdict, and nobody wants this node.
func (s *state) awaitsFate() bool {
	return !s.leads() && s.Stopping && !s.Asked && s.Verdict == nil && s.Next == nil && !s.Nodes[0].Gone
}

// awaitVerdict is how long a member waits for it.
func (p policy) awaitVerdict() expire { return expire{echoTime + p.StopTimeout + 2*p.leaveTime()} }

// expired ends the wait for others.
func (s *state) expired(p policy) []any {
	if s.Next != nil && s.Verdict == nil { // members that have no workers and do not leave
		for i := range s.Nodes {
			s.edit(i).Gone = true
		}
		return nil
	}
	if s.Again {
		s.Again = false
		v := s.inAll(p, s.judge(p, s.Causes))
		v.Sentence += fmt.Sprintf("; no restart, for workers are left on %s", s.unclear())
		return append(s.conclude(p, v), kill{})
	}
	if s.leads() && s.Order != "" && s.Verdict == nil {
		return append(s.conclude(p, s.unheeded()), kill{})
	}
	if s.awaitsFate() && s.Nodes[0].Mute > 0 { // it will be heard, or given up
		return []any{expire{p.leaveTime()}}
	}
	var todo []any
	if s.Verdict == nil {
		todo = s.unanswered(p)
	}
	s.Ended = true
	return append(todo, kill{})
}

// unanswered is a member's verdict when its leader did not say one in time.
func (s *state) unanswered(p policy) []any {
	switch {
	case s.Own == nil || s.Nodes[0].Mute > 0:
	case s.asks() || len(s.Causes) == 0:
		return s.conclude(p, *s.Own)
	default:
		return s.conclude(p, p.judge(s.Causes, s.Nodes))
	}
	return s.alone(p, lost{Why: "its agent did not say how the job ended"})
}

// unclear names a node on which workers do not end.
func (s *state) unclear() string {
	return nodeName(s.Nodes, max(slices.IndexFunc(s.Nodes, func(n *node) bool { return !n.Clear && !n.Gone }), 0))
}

// told takes news: failures, completions and orders to stop from members; starts, stops and the verdict from the leader.
func (s *state) told(p policy, from int, n news) []any {
	return append(s.heardOf(p, from), s.learnt(p, from, n)...)
}

// learnt is what they come to.
func (s *state) learnt(p policy, from int, n news) []any {
	switch {
	case n.Kind == newsHealth: // of whatever round
		return s.ails(from, n)
	case s.stale(from, n):
	case s.leads() && n.Kind == newsFailed && n.Failure != nil:
		return s.heard(p, cause{At: s.Now - min(max(n.Failure.Ago, 0), s.Now), Node: from, Failure: n.Failure})
	case s.leads() && n.Kind == newsEnds:
		s.edit(from).Ends = true
	case s.leads() && n.Kind == newsDone:
		s.edit(from).Ranks = n.Ranks
		return s.done(p, from)
	case s.leads() && n.Kind == newsClear:
		if !s.Nodes[from].Done {
			s.edit(from).Ranks = n.Ranks
		}
		s.edit(from).Clear = true
	case s.leads() && n.Kind == newsEnding && n.Verdict != nil && p.forsakes(*n.Verdict):
		return s.lost(p, lost{Node: from, Why: n.Verdict.Sentence, Certain: true})
	case s.leads() && n.Kind == newsEnding && n.Verdict != nil:
		return s.wanted(p, sane(*n.Verdict))
	case s.leads() && n.Kind == newsLapsed:
		return s.stoodStill(p, from)
	case s.leads() && n.Kind == newsQuit:
		return s.left(p, from, n.Why)
	case from == 0 && n.Kind == newsEnding && n.Verdict != nil:
		return s.lost(p, lost{Why: n.Verdict.Sentence, Certain: true})
	case from == 0 && n.Kind == newsStart && n.Start != nil:
		return s.begun(*n.Start)
	case s.leads() && n.Kind == newsOrder:
		return s.passedOn(p, from, n)
	case from == 0 && n.Kind == newsAnswer:
		return s.answered(n)
	case from == 0 && n.Kind == newsStalled && n.Stalled != nil && !s.Stopping && s.Verdict == nil:
		return s.noted(p, *n.Stalled)
	case from == 0 && n.Kind == newsStop && n.Order != "":
		if n.Class != "" { // an older release does not say
			s.laid(job.Verdict{Class: n.Class, Sentence: n.Why})
		}
		return s.halt(p, n.Order, n.Why)
	case from == 0 && n.Kind == newsStop && n.Held:
		return append([]any{p.awaitVerdict()}, s.hold(p)...)
	case from == 0 && n.Kind == newsStop:
		return append(s.stop(stop{Within: p.StopTimeout}), p.awaitVerdict())
	case n.Kind == newsHere && (s.leads() || from == 0):
		s.edit(from).Machine = n.Machine
		if s.leads() {
			return s.charged(p, n.Charge)
		}
	case from == 0 && n.Kind == newsMend:
		return s.mendedAll(p, n.Mends)
	case from == 0 && n.Kind == newsMeet && n.Past != nil:
		return s.sent(n)
	case from == 0 && n.Kind == newsVerdict && n.Verdict != nil:
		return s.accept(p, sane(*n.Verdict))
	case n.Kind == newsKill && (s.leads() || from == 0):
		return s.killedToo()
	}
	return nil // of a newer version, or too late: no reason to fail
}

// begun is a member's: the leader has opened a round.
func (s *state) begun(at start) []any {
	var todo []any
	if at.Round > s.Round && s.Nodes[s.Self].Clear {
		text := again(at.Why, at.Round, at.MaxRestarts)
		if s.Order != "" { // nothing failed
			text = fmt.Sprintf("%s; round %d follows", at.Why, at.Round)
		}
		s.newRound(at.Round)
		todo = []any{say{text}, expire{0}}
	}
	if at.Round != s.Round || s.Start != nil || s.Stopping {
		return todo
	}
	s.Start, s.Free, s.Blame, s.Idle, s.Policy = &at, at.Free, at.Blame, at.Idle, at.Policy
	return append(todo, begin{at})
}

// wanted is the leader's: the end of the job is asked for, by a node that cannot or must not go on. A failure that
// stopped all before is what the job ended of, unless another round was to follow.
func (s *state) wanted(p policy, v job.Verdict) []any {
	if len(s.Causes) == 0 || s.Again {
		if s.Again {
			last := s.Past[len(s.Past)-1]
			v = after(v, last.Message, last.First)
			v.Hang, _ = s.hung() // which is told there
		}
		s.Again = false
		return s.conclude(p, v)
	}
	if s.Own == nil {
		s.Asked, s.Own = true, &v
	}
	return nil
}

// after adds to an end that was asked for what had gone wrong before, and would have been made up for.
func after(v job.Verdict, what string, first *job.Failure) job.Verdict {
	v.Sentence, v.First = v.Sentence+"; before that: "+what, first
	return v
}

// sane is a verdict from another agent, with a code that a process can end with.
func sane(v job.Verdict) job.Verdict {
	if v.Code < 0 || v.Code > 255 || (v.Code == 0) != (v.Class == job.Succeeded) {
		v.Code = job.ExitInternal
	}
	return v
}

// signalled obeys a request to stop. It comes twice from Slurm and from terminals; INT twice, apart, means now.
func (s *state) signalled(p policy, sig syscall.Signal) []any {
	if sig == syscall.SIGINT && s.interrupted() {
		return s.killAll()
	}
	return s.askedToStop(p, job.SignalName(sig), codeFor(sig))
}

// killAll leaves the workers of all nodes no more time.
func (s *state) killAll() []any {
	to := 0
	if s.leads() {
		to = everyone
	}
	return []any{tell{to, news{Kind: newsKill}}, kill{}}
}

// killedToo is the same on another node, on which the job is ending as well.
func (s *state) killedToo() []any {
	switch {
	case !s.Stopping:
		return nil
	case s.leads():
		return s.killAll()
	}
	return []any{kill{}}
}

// codeFor is the exit status of a job that a signal ended.
func codeFor(sig syscall.Signal) int {
	if sig == syscall.SIGINT {
		return job.ExitINT
	}
	return job.ExitTERM
}

// askedToStop ends the job because somebody on this node wants it to.
func (s *state) askedToStop(p policy, by string, code int) []any {
	if s.Leave == 0 {
		s.Leave = s.Now + p.grace(s.Now) + endMargin
	}
	if s.Asked || s.Verdict != nil {
		return nil
	}
	s.Asked = true
	if s.Nodes[s.Self].Done && !s.leads() && s.Order == "" { // its work is done, and an operator cleans up: that is success
		s.Ended = true
		return nil
	}
	v := preemptedVerdict(nodeName(s.Nodes, s.Self), by, code)
	if p.Yields && by == job.SignalName(syscall.SIGTERM) {
		return s.quit(p, v)
	}
	return s.ending(p, v)
}

// interrupted notes an INT and reports whether it is a second one, on purpose.
func (s *state) interrupted() bool {
	if s.CtrlC == 0 {
		s.CtrlC = max(s.Now, 1)
		return false
	}
	return s.Now-s.CtrlC >= twice
}

// ending ends the job for a reason of this node: the leader says so to all, a member asks the leader to.
func (s *state) ending(p policy, v job.Verdict) []any {
	if p.forsakes(v) && len(s.Nodes) > 1 && (p.Regroups || !s.leads()) {
		return s.forsake(p, v)
	}
	if s.leads() {
		return s.wanted(p, v)
	}
	if s.Nodes[0].Gone || s.Meeting { // nobody hears it
		return s.conclude(p, v)
	}
	if s.Own == nil {
		s.Own = &v
	} else {
		s.Wanted = &v
	}
	how := s.stopFor(p, v)
	todo := []any{tell{0, news{Kind: newsEnding, Verdict: &v}}, expire{how.Within + p.leaveTime()}}
	return append(todo, s.stop(how)...)
}

func preemptedVerdict(who, by string, code int) job.Verdict {
	return job.Verdict{Code: code, Origin: "platform", Class: job.Preempted, Sentence: fmt.Sprintf("%s was told to stop by %s", who, by)}
}

// maybeEnd ends the loop when there is nothing to wait for: the verdict is known and nothing of ours is left.
// The leader leaves last, so that the members find it.
func (s *state) maybeEnd() {
	if s.Verdict != nil && s.mayLeave() {
		s.Ended = true
	}
}

// mayLeave reports whether nothing of this node's is left in the world, and nobody needs it there.
func (s *state) mayLeave() bool {
	needed := s.leads() && slices.ContainsFunc(s.Nodes[1:], func(n *node) bool { return !n.Gone })
	return (!s.Started || s.Empty) && !needed
}
