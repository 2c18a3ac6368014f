package events

// Events, by what they tell of.
const (
	AgentStarted    = "agent-started"
	AgentTookOver   = "agent-took-over"
	AgentBroken     = "agent-broken"
	AgentStoodStill = "agent-stood-still"
	PlatformRead    = "platform-read"
	Preflight       = "preflight-finding"

	RendezvousBegun  = "rendezvous-begun"
	RendezvousMet    = "rendezvous-met"
	RendezvousFailed = "rendezvous-failed"
	SpareWaits       = "spare-waits"
	SpareCalled      = "spare-called"
	NodesWaiting     = "nodes-waiting"

	RoundBegun     = "round-begun"
	WorkersStarted = "workers-started"
	FirstStep      = "first-step"
	CaughtUp       = "caught-up"
	WorkerEnded    = "worker-ended"
	WorkersGone    = "workers-gone"
	NodeDone       = "node-done"

	NodeSilent  = "node-silent"
	NodeHeard   = "node-heard"
	NodeLost    = "node-lost"
	NodeLeft    = "node-left"
	NodeRenewed = "node-renewed"

	FirstCause = "first-cause"
	Decision   = "decision"
	Accused    = "machine-accused"

	HangUnclear     = "hang-unclear"
	HangSuspected   = "hang-suspected"
	HangConfirmed   = "hang-confirmed"
	HangWithdrawn   = "hang-withdrawn"
	Slow            = "slow"
	Straggler       = "straggler"
	StragglersGone  = "stragglers-gone"
	TimeoutsClash   = "timeouts-clash"
	Health          = "health"
	SignalReceived  = "signal-received"
	OrderReceived   = "order-received"
	OrderAnswered   = "order-answered"
	UpgradeAccepted = "upgrade"
	Paused          = "paused"
	Parked          = "parked"
	Note            = "note"
	LinesDropped    = "lines-dropped"
	Verdict         = "verdict"
)

// Actions of decisions.
const (
	Stop          = "stop"
	Kill          = "kill"
	Restart       = "restart"
	RestartWorker = "restart-worker"
	RunOn         = "run-on"
	Shrink        = "shrink"
	Grow          = "grow"
	Meet          = "meet"
	Exclude       = "exclude"
	Wait          = "wait"
	Pause         = "pause"
	Resume        = "resume"
	KeepEvidence  = "keep-evidence"
	Leave         = "leave"
	End           = "end"
)

// Actions says what each of them is.
var Actions = []struct{ Name, Doc string }{
	{Stop, "this node's workers are told to end, and killed after `within_seconds`"},
	{Kill, "this node's workers are killed now"},
	{Restart, "another round follows"},
	{RestartWorker, "`rank` alone is started again"},
	{RunOn, "the other workers run to their end"},
	{Shrink, "the nodes that are left meet again"},
	{Grow, "the round is called off, for nodes wait to join"},
	{Meet, "the nodes meet again: some are lost and others wait, or only the leader knows why"},
	{Exclude, "`of_node` takes no place in the next world, for `after_seconds`"},
	{Wait, "nothing is done for `after_seconds` at most: until it is known what became of a silent node, until who failed first has said so, or until no worker can be left on a lost one"},
	{Pause, "the round ends, and no other begins before an order"},
	{Resume, "the next round follows a pause"},
	{KeepEvidence, "of a standstill"},
	{Leave, "this node ends, and the job goes on without it"},
	{End, "the job ends, with `exit_code`"},
}

// A Kind is an event by its name: how its lines are, beside the fields that all have.
type Kind struct {
	Name   string
	Levels []string // one of them
	Doc    string
	Always []string // fields that are never missing
	Maybe  []string // fields that may be there
}

// Common are the fields that any line may have, and of them those that every line has.
var (
	Common = []string{"schema", "time", "level", "event", "message", "run", "seq", "host"}
	Shared = []string{"job", "node", "generation", "round", "cut"}
)

var (
	ended = []string{"of_node", "of_host", "local_rank", "pid", "exit_code", "signal", "core_dumped", "by_muster", "error", "exception", "evidence", "step", "hint"}
	hang  = []string{"class", "ranks", "of_node", "of_host", "waiting", "op", "number", "group", "quiet_seconds", "limit_seconds"}
)

// Kinds are all events.
var Kinds = []Kind{
	{AgentStarted, []string{Info}, "muster was started on this node", []string{"version", "pid"}, nil},
	{PlatformRead, []string{Info}, "what this node is to do was read from flags and platform", []string{"platform", "framework", "nodes", "slots"}, []string{"endpoint"}},
	{Preflight, []string{Warn, Error}, "something about this machine may stop the job or slow it ([preflight](preflight.md))", []string{"result"}, nil},
	{RendezvousBegun, []string{Info}, "this node looks for the others", nil, []string{"endpoint", "nodes", "limit_seconds"}},
	{SpareWaits, []string{Info}, "the world is full, or the job runs without this node: it stands by", nil, nil},
	{SpareCalled, []string{Info}, "this node stood by, and has a place now", nil, []string{"waited_seconds"}},
	{RendezvousMet, []string{Info}, "the nodes have agreed on a world", []string{"nodes"}, []string{"world_size", "waited_seconds"}},
	{RendezvousFailed, []string{Error}, "they have not, and will not", []string{"exit_code", "class"}, []string{"hint"}},
	{NodesWaiting, []string{Info}, "so many nodes wait for a place in the next world (node 0)", []string{"waiting"}, nil},
	{RoundBegun, []string{Info}, "the place where the workers meet is open", nil, []string{"reason"}},
	{WorkersStarted, []string{Info}, "those of this node run", []string{"ranks"}, []string{"pids", "meet_seconds"}},
	{FirstStep, []string{Info}, "the world trains", nil, []string{"load_seconds"}},
	{CaughtUp, []string{Info}, "it has done again what the round before had done", nil, []string{"redo_seconds"}},
	{WorkerEnded, []string{Info, Error}, "a worker ended, of this node, or of `of_node` as that told node 0; `by_muster`: it had been told to stop", []string{"rank"}, ended},
	{WorkersGone, []string{Info}, "nothing is left of this node's workers", nil, []string{"stop_seconds", "step"}},
	{NodeDone, []string{Info}, "all workers of `of_node` ended well", []string{"of_node", "of_host"}, nil},
	{NodeSilent, []string{Warn}, "nothing is heard of a node", []string{"of_node", "of_host", "quiet_seconds"}, nil},
	{NodeHeard, []string{Info}, "it is heard again", []string{"of_node", "of_host"}, nil},
	{NodeLost, []string{Error}, "an agent, or its node, is gone", []string{"of_node", "of_host", "reason"}, []string{"certain", "quiet_seconds"}},
	{NodeLeft, []string{Info}, "an agent said goodbye", []string{"of_node", "of_host"}, nil},
	{NodeRenewed, []string{Warn}, "another agent took over on `of_node`", []string{"of_node", "of_host"}, nil},
	{AgentTookOver, []string{Warn}, "another agent took over on this node, from one that died or made way for it", []string{"life", "pid", "version"}, nil},
	{AgentStoodStill, []string{Warn}, "this agent stood still, and its workers were killed, for others might go on without it", nil, nil},
	{AgentBroken, []string{Error}, "this agent cannot go on, or a limit of time passed", []string{"exit_code", "class"}, []string{"hint"}},
	{FirstCause, []string{Error}, "what a round, or the job, ended of", []string{"class", "reason"}, append([]string{"rank", "origin", "detect_seconds"}, ended...)},
	{Decision, []string{Info, Warn, Error}, "what follows: see below", []string{"action", "reason"},
		[]string{"policy", "of_node", "of_host", "rank", "exit_code", "class", "origin", "hint", "after_seconds", "within_seconds", "waiting", "nodes"}},
	{Accused, []string{Warn}, "what was found about a machine is kept for jobs to come (`--suspects`)", []string{"machine", "kind", "reason"}, nil},
	{HangUnclear, []string{Warn}, "no rank advances, and what is counted may have nothing to count: nobody can tell whether it is a hang", nil, hang},
	{HangSuspected, []string{Warn}, "no rank advances: this may be a hang ([hangs](hangs.md))", nil, hang},
	{Slow, []string{Warn}, "no rank advances, and who is waited for is at work", nil, hang},
	{HangConfirmed, []string{Error}, "it is a hang", nil, hang},
	{HangWithdrawn, []string{Info}, "the ranks advance again, or nobody can say any more that they do not; `false_alarm`: it had been called a hang", nil, append([]string{"false_alarm"}, hang...)},
	{Straggler, []string{Warn}, "the others wait for a rank while training goes on", []string{"ranks"}, nil},
	{StragglersGone, []string{Info}, "they do no more", nil, nil},
	{TimeoutsClash, []string{Warn}, "a time-out of the framework does not go with muster's", nil, nil},
	{Health, []string{Warn}, "something of a machine broke, or is well again", []string{"kind"}, []string{"of_node", "of_host"}},
	{SignalReceived, []string{Warn, Info}, "this agent got a signal: to end, or to pass on to its workers", []string{"signal"}, nil},
	{OrderReceived, []string{Info, Warn}, "by `muster ctl`, on this node or `of_node`", []string{"order"}, []string{"of_node", "of_host", "refused"}},
	{OrderAnswered, []string{Info, Warn}, "what whoever gave it was told", nil, []string{"refused"}},
	{Paused, []string{Info}, "no worker is left on any node, by order", nil, nil},
	{UpgradeAccepted, []string{Info}, "this agent makes way for another program", []string{"version"}, nil},
	{Parked, []string{Info}, "the job ended well, and this agent stays", nil, nil},
	{Note, []string{Info, Warn, Error}, "what else muster says on standard error", nil, nil},
	{LinesDropped, []string{Error}, "`dropped` lines are missing before this one: what they were written to did not keep up, or had no room", []string{"dropped"}, nil},
	{Verdict, []string{Info, Warn, Error}, "how the job ended: the last line, but for an agent that stays (`parked`) ([verdict](verdict.md))", []string{"outcome", "exit_code", "class"},
		append([]string{"rank", "origin", "nodes", "world_size", "wall_seconds", "train_seconds"}, ended...)},
}
