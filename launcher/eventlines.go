package launcher

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report/events"
)

// This file says what the judgement saw and decided as lines of the event log. Like the judgement it is pure, and it decides nothing: so a journal
// that is judged again has the same lines. What was decided is seen by what became of the state, and by the deeds.

// A judged is one event and what followed from it.
type judged struct {
	policy policy
	was    state
	event  any
	is     state
	todo   []any

	lines []events.Line
	said  []string // what people are told, as far as no line says it
}

// linesOf are the lines of one judgement: what happened, then what follows from it.
func linesOf(own policy, was state, event any, is state, todo []any) []events.Line {
	j := judged{policy: is.rules(own), was: was, event: event, is: is, todo: todo}
	for _, deed := range todo {
		if s, ok := deed.(say); ok {
			j.said = append(j.said, s.Text)
		}
	}
	j.happened()
	j.decided()
	for _, text := range j.said { // each sentence stands in a line
		if was.Order != "" && is.Order == was.Order { // a leader whose agent is another one tells its order again
			continue
		}
		j.line(events.Line{Level: events.Warn, Event: events.Note, Message: text})
	}
	node := is.Self
	for i := range j.lines {
		if l := &j.lines[i]; is.Nodes != nil {
			l.Node, l.Round, l.Generation = &node, events.Number(j.round(l.Event)), is.Generation
		}
	}
	return j.lines
}

// deedEvents is for each deed the event of it; or, behind a dash, why it has none.
var deedEvents = map[string]string{
	"begin":   events.RoundBegun,
	"stop":    events.Decision + " " + events.Stop,
	"kill":    events.Decision + " " + events.Kill,
	"mend":    events.Decision + " " + events.RestartWorker,
	"meet":    events.RendezvousBegun,
	"accuse":  events.Accused,
	"collect": events.Decision + " " + events.KeepEvidence,
	"reply":   events.OrderAnswered,
	"open":    "- " + events.RoundBegun + " tells when that is done",
	"say":     "- each sentence is the message of a line",
	"tell":    "- it is how other nodes hear of what is decided",
	"settle":  "- a clock",
	"expire":  "- a clock",
	"wake":    "- a clock",
}

// round is that of a line. What ends a round is of that one, although the next may begin with it.
func (j *judged) round(event string) int {
	if event == events.RoundBegun || j.was.Generation != j.is.Generation {
		return j.is.Round
	}
	return j.was.Round
}

func (j *judged) line(l events.Line) { j.lines = append(j.lines, l) }

// saying gives a line what people are told first of what no line says; otherwise is for nobody but the log.
func (j *judged) saying(l events.Line, otherwise string) {
	if l.Message = otherwise; len(j.said) > 0 {
		l.Message, j.said = j.said[0], j.said[1:]
	}
	j.line(l)
}

// of says which node a line is about.
func (j *judged) of(l events.Line, n int) events.Line {
	if n >= 0 && n < len(j.is.Nodes) {
		l.OfNode, l.OfHost = &n, j.is.Nodes[n].Name
	}
	return l
}

func (j *judged) name(n int) string {
	if n < 0 || n >= len(j.is.Nodes) {
		return fmt.Sprintf("node %d", n)
	}
	return nodeName(j.is.Nodes, n)
}

// happened is the event itself.
func (j *judged) happened() {
	switch e := j.event.(type) {
	case met:
		l := events.Line{Level: events.Info, Event: events.RendezvousMet, Nodes: len(e.Nodes), WorldSize: e.World, Message: fmt.Sprintf("%s with %s have met", counted(len(e.Nodes), "node"), counted(e.World, "worker"))}
		if e.Waited > 0 {
			l.Waited = events.Seconds(e.Waited)
		}
		j.line(l)
	case unmet:
		if e.Verdict.Class != job.Preempted { // who asked for the end is in a line of its own
			j.line(unmetLine(e.Verdict))
		}
	case queued:
		if e.Nodes != j.was.Queue {
			j.line(events.Line{Level: events.Info, Event: events.NodesWaiting, Waiting: e.Nodes, Message: queueing(e.Nodes) + " to join"})
		}
	case begun:
		j.line(events.Line{Level: events.Info, Event: events.WorkersStarted, Meet: events.Seconds(j.lap().Meet), Message: counted(e.Workers, "worker") + " of this node started"})
	case reached:
		j.reached(e)
	case finished:
		j.finished(e)
	case unbegun:
		j.failure(e.Failure, j.is.Self)
	case emptied:
		l := events.Line{Level: events.Info, Event: events.WorkersGone, Step: e.Step, Message: "nothing is left of this node's workers"}
		if j.was.Marks.Told != nil {
			l.Stop = events.Seconds(j.lap().Stop)
		}
		j.line(l)
	case noticed:
		l := events.Line{Level: events.Warn, Event: events.NodeSilent, Quiet: events.Seconds(e.Quiet)}
		if e.Quiet == 0 {
			l = events.Line{Level: events.Info, Event: events.NodeHeard}
		}
		j.saying(j.of(l, e.Node), j.name(e.Node)+": "+e.What)
	case lost:
		j.lost(e)
	case departed:
		l := j.of(events.Line{Level: events.Info, Event: events.NodeLeft, Message: j.name(e.Node) + ": " + leftJob}, e.Node)
		if text, said := j.loses(e.Node, leftJob); said {
			l.Message = text
		}
		j.line(l)
	case resumed:
		j.line(tookOver(fmt.Sprintf("round %d", j.is.Round)))
		if j.was.Stall != nil && j.is.Stall == nil {
			j.saying(events.Line{Level: events.Info, Event: events.HangWithdrawn}, "node 0 says it again if it lasts")
		}
	case renewed:
		j.line(j.of(events.Line{Level: events.Warn, Event: events.NodeRenewed, Message: "another agent took over on " + j.name(e.Node)}, e.Node))
	case lapsed:
		j.line(events.Line{Level: events.Warn, Event: events.AgentStoodStill, Message: "this agent stood still, and its workers were killed, for others might go on without it"})
	case broken:
		j.line(events.Line{Level: events.Error, Event: events.AgentBroken, Message: e.Verdict.Sentence, ExitCode: &e.Verdict.Code, Class: e.Verdict.Class, Hint: e.Verdict.Hint})
	case signalled:
		name := job.SignalName(e.Sig)
		j.line(events.Line{Level: events.Warn, Event: events.SignalReceived, Signal: name, Message: "this agent was told to stop by " + name})
	case ordered:
		j.line(events.Line{Level: events.Info, Event: events.OrderReceived, Order: e.What, Message: fmt.Sprintf("muster ctl %s on this node", e.What)})
	case stalled:
		j.stalled(e)
	case lagging:
		j.lagging(e)
	case clashing:
		if len(j.said) > 0 {
			j.saying(events.Line{Level: events.Warn, Event: events.TimeoutsClash}, e.Text)
		}
	case ailing:
		j.ailing(e.Of, e.What)
	case told:
		j.told(e)
	}
	if j.begins() {
		j.roundBegun()
	}
}

// begins reports whether this node hears that a round is open, or is opened again.
func (j *judged) begins() bool {
	if _, again := j.event.(resumed); !again && slices.ContainsFunc(j.todo, func(d any) bool { _, is := d.(begin); return is }) {
		return true
	}
	return j.is.Start != nil && (j.was.Start == nil || j.was.Round != j.is.Round || j.was.Generation != j.is.Generation)
}

func (j *judged) roundBegun() {
	l := events.Line{Level: events.Info, Event: events.RoundBegun, Reason: j.is.Start.Why, Message: fmt.Sprintf("round %d begins", j.is.Round)}
	if j.is.Start.Why == "" || j.is.leads() || j.is.Round == j.was.Round || j.is.Generation != j.was.Generation {
		j.line(l)
		return
	}
	switch j.was.Order { // a member hears what the leader has decided, or heard it when it was ordered
	case "":
		d := j.decision(events.Restart, events.Warn, j.is.Start.Why)
		d.Policy = j.restarts()
		j.saying(d, j.is.Start.Why)
		j.line(l)
		return
	case orderPause:
		d := j.decision(events.Resume, events.Info, byOrder)
		d.Message = "the next round follows the pause"
		j.line(d)
	}
	j.saying(l, l.Message)
}

// lap is the account of the round that the state before was in, which this event may have ended.
func (j *judged) lap() job.Lap {
	s := j.is
	if s.Round != j.was.Round || s.Generation != j.was.Generation {
		s = j.was
	}
	return s.lap(j.is.Now)
}

func (j *judged) reached(e reached) {
	if e.How == moving && j.was.Reached < moving {
		load := j.lap().Load
		j.line(events.Line{Level: events.Info, Event: events.FirstStep, Load: events.Seconds(load), Message: fmt.Sprintf("the world trains, %v after its workers were started", load.Round(time.Millisecond))})
	}
	if e.Again {
		j.line(events.Line{Level: events.Info, Event: events.CaughtUp, Redo: events.Seconds(j.lap().Redo), Message: "the world has come as far as the round before"})
	}
}

func (j *judged) finished(e finished) {
	if e.Failure != nil {
		j.failure(*e.Failure, j.is.Self)
		return
	}
	j.line(events.Line{Level: events.Info, Event: events.WorkerEnded, Rank: &e.Worker.Rank, LocalRank: &e.Worker.LocalRank, PID: e.Worker.PID, ExitCode: events.Number(0), Message: fmt.Sprintf("rank %d ended well", e.Worker.Rank)})
	if done := j.is.Nodes[j.is.Self].Done; done && !j.was.Nodes[j.was.Self].Done {
		j.nodeDone(j.is.Self)
	}
}

func (j *judged) nodeDone(n int) {
	j.line(j.of(events.Line{Level: events.Info, Event: events.NodeDone, Message: "all workers of " + j.name(n) + " ended well"}, n))
}

// failure is a worker that ended badly, or because it had to.
func (j *judged) failure(f job.Failure, node int) {
	l := events.Line{Level: events.Error, Event: events.WorkerEnded, Message: f.String()}
	if f.Exit.Sent {
		l.Level = events.Info
	}
	failureOf(&l, f)
	if node != j.is.Self {
		l = j.of(l, node)
	}
	j.line(l)
}

// failureOf puts a failure into a line.
func failureOf(l *events.Line, f job.Failure) {
	rank, local := f.Rank, f.LocalRank
	l.Rank, l.LocalRank, l.PID, l.Exception, l.Step, l.Hint = &rank, &local, f.PID, f.Exception, f.Step, f.Hint
	l.Error, l.CoreDumped, l.ByMuster = f.Exit.Err, f.Exit.Core, f.Exit.Sent
	if l.Signal = f.Exit.SignalName(); l.Signal == "" {
		l.ExitCode = events.Number(f.Exit.Code)
	}
	for _, e := range f.Evidence {
		l.Evidence = append(l.Evidence, e.Kind)
	}
}

func (j *judged) lost(e lost) {
	if j.was.Nodes[e.Node].Gone {
		return
	}
	l := j.of(events.Line{Level: events.Error, Event: events.NodeLost, Reason: e.Why, Certain: e.Certain}, e.Node)
	if e.Quiet > 0 {
		l.Quiet = events.Seconds(e.Quiet)
	}
	l.Message, _ = j.loses(e.Node, e.Why)
	j.line(l)
}

// loses is the sentence that a node was lost, and whether it is said: where another round follows anyway.
func (j *judged) loses(n int, why string) (text string, said bool) {
	text = lostVerdict(j.is.Nodes[n].Name, n, why).Sentence
	if said = len(j.said) > 0 && j.said[0] == text; said {
		j.said = j.said[1:]
	}
	return text, said
}

// told is what other nodes have to say. What they decided is seen by what follows from it.
func (j *judged) told(e told) {
	if e.News.Kind == newsHealth {
		j.health(e.Node, e.News)
		return
	}
	if j.was.stale(e.Node, e.News) {
		return
	}
	switch n := e.News; {
	case n.Kind == newsFailed && n.Failure != nil && j.is.leads():
		j.failure(*n.Failure, e.Node)
	case n.Kind == newsDone && j.is.leads():
		j.nodeDone(e.Node)
	case n.Kind == newsStalled && n.Stalled != nil && len(j.said) > 0:
		j.stalled(*n.Stalled)
	case n.Kind == newsOrder && n.Number > j.was.Nodes[e.Node].Wishes:
		j.orderOf(e.Node, n.Order)
	case n.Kind == newsEnding && n.Verdict != nil && j.is.Nodes[e.Node].Gone && !j.was.Nodes[e.Node].Gone:
		j.line(j.of(events.Line{
			Level: events.Error, Event: events.NodeLost, Reason: cmp.Or(n.Verdict.Sentence, unsaid), Certain: true, Message: lostVerdict(j.is.Nodes[e.Node].Name, e.Node, n.Verdict.Sentence).Sentence,
		}, e.Node))
		if len(j.said) > 0 && j.said[0] == j.lines[len(j.lines)-1].Message { // another round follows anyway
			j.said = j.said[1:]
		}
	case n.Kind == newsLapsed && j.is.leads() && len(j.is.Causes) > len(j.was.Causes):
		why := j.is.Causes[len(j.is.Causes)-1].Why
		j.line(j.of(events.Line{Level: events.Error, Event: events.NodeLost, Reason: why, Certain: true, Message: lostVerdict(j.is.Nodes[e.Node].Name, e.Node, why).Sentence}, e.Node))
	}
}

// orderOf is an order that another node passed on.
func (j *judged) orderOf(node int, what string) {
	l := j.of(events.Line{Level: events.Info, Event: events.OrderReceived, Order: what, Message: fmt.Sprintf("muster ctl %s on %s", what, j.name(node))}, node)
	if a := j.is.Nodes[node].Answer; a != nil && a.Refused {
		l.Level, l.Refused = events.Warn, true
		j.saying(l, l.Message)
		return
	}
	j.line(l)
}

func (j *judged) health(from int, n news) {
	of := from
	if !j.is.leads() {
		of = n.Of
	}
	j.ailing(of, n.Ailing)
}

func (j *judged) ailing(of int, what []job.Evidence) {
	if _, own := j.event.(ailing); own && of != allNodes {
		of = j.is.Self
	}
	for i := range what {
		if len(j.said) == 0 {
			return
		}
		j.saying(j.of(events.Line{Level: events.Warn, Event: events.Health, Kind: what[i].Kind}, of), "")
	}
}

// stalled is the judgement of a standstill, of the leader's own watch or as it told.
func (j *judged) stalled(e stalled) {
	if len(j.said) == 0 { // it came too late to matter
		return
	}
	h := e.Finding.Hang
	l := events.Line{Class: h.Class, Op: h.Op, Number: h.Number, Group: h.Group, Waiting: h.Waiting}
	for _, c := range h.Culprits {
		l.Ranks = append(l.Ranks, c.Rank)
	}
	if h.Quiet > 0 {
		l.Quiet = events.Seconds(h.Quiet)
	}
	if h.Limit > 0 {
		l.Limit = events.Seconds(h.Limit)
	}
	switch e.Finding.Stage {
	case heartbeat.Suspect:
		l.Level, l.Event = events.Warn, events.HangSuspected
	case heartbeat.Slow:
		l.Level, l.Event = events.Warn, events.Slow
	case heartbeat.Hung:
		l.Level, l.Event = events.Error, events.HangConfirmed
	case heartbeat.Unclear:
		l.Level, l.Event = events.Warn, events.HangUnclear
	default:
		l.Level, l.Event, l.False = events.Info, events.HangWithdrawn, e.Finding.False
	}
	if len(h.Culprits) > 0 {
		l = j.of(l, e.Group)
	}
	j.saying(l, e.Text)
}

func (j *judged) lagging(e lagging) {
	switch {
	case e.Text != "":
		l := events.Line{Level: events.Warn, Event: events.Straggler}
		for _, s := range e.All {
			l.Ranks = append(l.Ranks, s.Rank)
		}
		if l.Ranks == nil {
			l.Event = events.StragglersGone
			l.Level = events.Info
		}
		j.saying(l, e.Text)
	case len(e.All) == 0 && len(j.was.Stragglers) > 0:
		j.line(events.Line{Level: events.Info, Event: events.StragglersGone, Message: "the others wait for nobody any more"})
	}
}

// decided is what follows.
func (j *judged) decided() {
	if j.was.Generation != j.is.Generation || j.was.Nodes == nil { // a world begins
		j.was = state{Self: j.is.Self, Nodes: j.is.Nodes, Generation: j.is.Generation, Round: j.is.Round, Verdict: j.was.Verdict, Marks: j.is.Marks, Laps: j.is.Laps}
	}
	j.undecided()
	j.cause()
	j.out()
	j.again()
	j.ordered()
	j.parts()
	j.fence()
	j.ends()
	for i, deed := range j.todo {
		if !isStop(deed) || !slices.ContainsFunc(j.todo[i+1:], isStop) { // the last one counts
			j.deed(deed)
		}
	}
}

// why is the reason for what happens to this round, as far as this node knows.
func (j *judged) why() string {
	s := &j.is
	switch e := j.event.(type) {
	case told:
		switch {
		case e.News.Kind == newsStop && e.News.Order == "":
			return j.name(0) + " said so: something failed in the job"
		case e.News.Kind == newsStop && e.News.Why != "":
			return e.News.Why
		}
	case signalled:
		return preemptedVerdict(j.name(s.Self), job.SignalName(e.Sig), 0).Sentence
	case ordered:
		return s.who(s.Self, e.What)
	case broken:
		return e.Verdict.Sentence
	}
	switch {
	case s.Verdict != nil:
		return s.Verdict.Sentence
	case (s.Order != "" || s.Next != nil) && len(s.Past) > 0:
		return s.Past[len(s.Past)-1].Message
	case len(s.Causes) > 0:
		return s.Causes[0].text(s.Nodes)
	case s.Own != nil:
		return s.Own.Sentence
	}
	return cmp.Or(s.Marks.Why, "what other nodes said")
}

func (j *judged) decision(action, level, reason string) events.Line {
	return events.Line{Level: level, Event: events.Decision, Action: action, Reason: cmp.Or(reason, unsaid)}
}

// unsaid is for reasons that another node did not give.
const unsaid = "nobody said why"

// undecided is a wait for what is not known yet, and what is left to run although something failed.
func (j *judged) undecided() {
	switch is, was := &j.is, &j.was; {
	case is.Held > 0 && was.Held == 0:
		l := j.decision(events.Wait, events.Warn, j.why())
		l.After, l.Message = events.Seconds(is.Held-is.Now), "this node's workers are left to run for a moment, so that who failed first can say so: "+l.Reason
		j.line(l)
	case is.Fate > 0 && was.Fate == 0:
		l := j.decision(events.Wait, events.Warn, is.Causes[0].text(is.Nodes))
		l.After = events.Seconds(is.Fate - is.Now)
		j.saying(l, l.Reason)
	}
	if n := len(j.is.Causes); j.policy.leaves() && n > len(j.was.Causes) && len(j.said) > 0 {
		l := j.decision(events.RunOn, events.Warn, j.is.Causes[n-1].text(j.is.Nodes))
		l.Policy = map[string]any{"on_worker_exit": onExitLeave}
		j.saying(l, l.Reason)
	}
}

// laid is the round that this event found out the end of, and whether it did.
func (j *judged) laid() (job.Lap, bool) {
	switch {
	case j.was.Marks.Class != "":
		return job.Lap{}, false
	case j.is.Marks.Class != "":
		return j.is.lap(j.is.Now), true
	case len(j.is.Laps) > 0 && j.is.Round != j.was.Round:
		last := j.is.Laps[len(j.is.Laps)-1]
		return last, last.Class != ""
	}
	return job.Lap{}, false
}

// blameless are the classes of ends for which nobody is to blame, and whose decision says why.
var blameless = []string{job.Succeeded, job.Preempted, job.Ordered, job.Grown, job.Late, job.Refused}

// cause is the first cause, when it is known.
func (j *judged) cause() {
	lap, is := j.laid()
	if !is || slices.Contains(blameless, lap.Class) {
		return
	}
	l := events.Line{Level: events.Error, Event: events.FirstCause, Class: lap.Class, Reason: cmp.Or(lap.Why, unsaid), Message: "the first cause: " + cmp.Or(lap.Why, unsaid), Rank: lap.Rank, Detect: events.Seconds(lap.Detect)}
	first := (*job.Failure)(nil)
	switch v := j.is.Verdict; {
	case v != nil:
		l.Origin, first = v.Origin, v.First
	case len(j.is.Past) > 0:
		first = j.is.Past[len(j.is.Past)-1].First
	}
	if first != nil {
		l.Origin = "worker"
		failureOf(&l, *first)
	}
	if lap.Node != nil {
		l = j.of(l, *lap.Node)
	}
	j.line(l)
}

// out is for each node that is left out of the next world. A member hears it with the end of the world.
func (j *judged) out() {
	for n, node := range j.is.Nodes {
		if node.Out == "" || n < len(j.was.Nodes) && j.was.Nodes[n].Out != "" {
			continue
		}
		rest := j.policy.Rest
		if e, ok := j.event.(told); ok && e.News.Rest > 0 {
			rest = e.News.Rest
		}
		l := j.of(j.decision(events.Exclude, events.Warn, node.Out), n)
		l.After, l.Policy = events.Seconds(rest), map[string]any{"exclude_for_seconds": rest.Seconds(), "exclude_after": j.policy.Exclude, "on_hang": cmp.Or(j.policy.OnHang, hangDump)}
		l.Message = leftOut(node.Out, rest)
		if !j.is.leads() && n == j.is.Self {
			j.saying(l, l.Message)
			continue
		}
		j.line(l)
	}
}

// restarts is the policy about rounds that follow others.
func (j *judged) restarts() map[string]any {
	s := &j.is
	p := map[string]any{"max_restarts": j.policy.MaxRestarts, "restarts": max(s.last()-s.Free, 0)}
	if j.policy.Regroups {
		p["min_nodes"] = j.policy.Fewest
	}
	return p
}

// again is the leader's: the round failed, and another follows.
func (j *judged) again() {
	goesOn := j.is.Again || j.is.Next != nil || j.is.Round > j.was.Round
	if !j.is.leads() || j.was.Again || !goesOn || len(j.was.Past) > 0 && len(j.is.Past) == len(j.was.Past) && j.is.Past[len(j.is.Past)-1].Message == j.was.Past[len(j.was.Past)-1].Message {
		return
	}
	lap, is := j.laid()
	if !is || slices.Contains(blameless, lap.Class) {
		return
	}
	action := events.Restart
	if lap.Class == job.Lost {
		action = j.meets()
	}
	l := j.decision(action, events.Warn, lap.Why)
	l.Policy = j.restarts()
	if lap.Class != job.Lost && j.is.Round == j.was.Round { // it counts, and has not begun yet
		l.Policy["restarts"] = l.Policy["restarts"].(int) + 1
	}
	if lap.Class == job.Hung {
		l.Policy["on_hang"] = j.policy.OnHang
	}
	if rest := j.is.Rest - j.is.Now; rest > 0 {
		l.After = events.Seconds(rest)
	}
	j.saying(l, lap.Why)
}

// meets is what another meeting does to the world, as far as this node knows.
func (j *judged) meets() string {
	lost := j.is.present() < len(j.is.Nodes)
	switch {
	case j.is.Queue > 0 && !lost:
		return events.Grow
	case lost && j.is.Queue == 0:
		return events.Shrink
	}
	return events.Meet
}

// ordered is what people ordered, or what is done as if they had: to let nodes in, or one go.
func (j *judged) ordered() {
	order := j.is.Order
	if e, is := j.event.(ordered); is && j.is.Round != j.was.Round { // nothing ran, and it is carried out already
		order = e.What
	}
	if order != "" && order != j.was.Order {
		class := j.is.Marks.Class
		action := map[string]string{orderPause: events.Pause, orderResume: events.Resume}[order]
		if action == "" {
			action = events.Restart
		}
		switch {
		case class == job.Grown:
			action = events.Grow
		case class == job.Preempted || class == job.Lost:
			action = events.Shrink
		}
		j.saying(j.decision(action, events.Info, j.why()), j.why())
	} else if j.was.Order != orderResume && j.was.Order != "" && j.is.leads() && order == "" && j.was.Paused {
		j.saying(j.decision(events.Resume, events.Info, byOrder), byOrder)
	}
	if j.is.Paused && !j.was.Paused {
		j.saying(events.Line{Level: events.Info, Event: events.Paused}, "paused on all nodes")
	}
}

// parts is the end of this world, after which its nodes meet again, where that was not said before.
func (j *judged) parts() {
	if j.is.Next == nil || j.was.Next != nil || j.is.Verdict != nil || j.is.Nodes[j.is.Self].Out != "" {
		return
	}
	if j.is.leads() && (slices.Contains([]string{job.Lost, job.Grown, job.Preempted}, j.is.Marks.Class)) {
		return
	}
	action := events.Meet
	if _, alone := j.event.(lost); alone || j.is.leads() {
		action = j.meets()
	}
	l := j.decision(action, events.Warn, j.why())
	l.Policy = j.restarts()
	j.saying(l, j.why()+"; the nodes meet again")
}

// fence is a wait for the end of workers elsewhere.
func (j *judged) fence() {
	if f := j.is.Fenced; f != j.was.Fenced && f > j.is.Now {
		l := j.decision(events.Wait, events.Warn, "workers may live on a node that was lost")
		l.After = events.Seconds(f - j.is.Now)
		j.saying(l, l.Reason)
	}
}

// ends is the end of the job, or of this node's part in it.
func (j *judged) ends() {
	v := j.is.Verdict
	switch {
	case v == nil && j.is.Ended && !j.was.Ended:
		v = &job.Verdict{Class: job.Succeeded, Sentence: "the work of this node was done, and it was told to end"}
	case v == nil || j.was.Verdict != nil:
		return
	}
	action := events.End
	if j.is.Quit != nil || j.is.Nodes[j.is.Self].Quits {
		action = events.Leave
	}
	l := j.decision(action, levelOf(*v), v.Sentence)
	l.ExitCode, l.Class, l.Origin, l.Hint = &v.Code, v.Class, v.Origin, v.Hint
	if v.First != nil || v.Hang != nil || v.Class == job.Lost {
		l.Policy = j.restarts()
	}
	if v.Hang != nil {
		l.Policy["on_hang"] = j.policy.OnHang
	}
	l.Message = fmt.Sprintf("the job ends: %s; exit %d", l.Reason, v.Code)
	if action == events.Leave {
		l.Message = "this node ends, and the job goes on: " + v.Sentence
	}
	j.line(l)
}

// levelOf is how much a verdict matters.
func levelOf(v job.Verdict) string {
	switch {
	case v.OK():
		return events.Info
	case v.Class == job.Preempted:
		return events.Warn
	}
	return events.Error
}

// isStop reports whether a deed is to stop this node's workers.
func isStop(deed any) bool { _, is := deed.(stop); return is }

// deed is what this node does.
func (j *judged) deed(deed any) {
	switch d := deed.(type) {
	case stop:
		l := j.decision(events.Stop, events.Warn, j.why())
		l.Within, l.Policy, l.Message = events.Seconds(d.Within), map[string]any{"stop_timeout_seconds": j.policy.StopTimeout.Seconds()}, "this node's workers are stopped: "+l.Reason
		if d.Preempt {
			l.Policy = map[string]any{"grace_seconds": j.policy.Grace.Seconds()}
		}
		l.Message = cmp.Or(d.Said, l.Message)
		j.line(l)
	case kill:
		l := j.decision(events.Kill, events.Warn, j.why())
		l.Message = "this node's workers are killed: " + l.Reason
		j.line(l)
	case mend:
		l := j.of(j.decision(events.RestartWorker, events.Warn, d.Why), d.Node)
		l.Rank, l.After, l.Policy = &d.Rank, events.Seconds(d.After), map[string]any{"max_restarts": d.MaxRestarts, "restarts": d.Number, "on_worker_exit": onExitRestart}
		j.saying(l, d.Why)
	case collect:
		l := j.decision(events.KeepEvidence, events.Info, d.Why)
		l.Policy, l.Message = map[string]any{"on_hang": cmp.Or(j.policy.OnHang, hangDump)}, "evidence is kept of what the workers do"
		j.line(l)
	case meet:
		j.line(events.Line{Level: events.Info, Event: events.RendezvousBegun, Nodes: max(d.Expect, 0), Message: "the nodes of the next world are looked for"})
	case accuse:
		j.line(events.Line{Level: events.Warn, Event: events.Accused, Machine: d.Machine.String(), Kind: d.Kind, Reason: d.Why, Message: fmt.Sprintf("kept for jobs to come: %v: %s", d.Machine, d.Why)})
	case reply:
		l := events.Line{Level: events.Info, Event: events.OrderAnswered, Refused: d.Refused, Message: d.Text}
		if d.Refused {
			l.Level = events.Warn
		}
		j.line(l)
	}
}

// unmetLine is a meeting that came to nothing.
func unmetLine(v job.Verdict) events.Line {
	return events.Line{Level: events.Error, Event: events.RendezvousFailed, ExitCode: &v.Code, Class: v.Class, Hint: v.Hint, Message: v.Sentence}
}

// tookOver is another agent's begin.
func tookOver(where string) events.Line {
	return events.Line{Level: events.Warn, Event: events.AgentTookOver, Message: "took over from an agent that died, or made way: " + where}
}

// counted is "1 node", "2 nodes".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
