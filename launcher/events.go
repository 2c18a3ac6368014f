package launcher

import (
	"syscall"
	"time"

	"github.com/muster-run/muster/job"
)

// What the judgement is made of: policy, state, events and deeds. They are plain values, so that a journal can keep them.

// policy is what the user decided about stopping and going on.
type policy struct {
	NodeTimeout time.Duration `json:"node_timeout,omitempty"` // silence after which a node is given up; 0: job.NodeTimeout
	StopTimeout time.Duration `json:"stop_timeout"`
	Grace       time.Duration `json:"grace"`
	MaxRestarts int           `json:"max_restarts"`      // rounds that may follow the first
	Window      time.Duration `json:"window,omitempty"`  // a round that ran so long forgives the failures before; 0: none does
	Backoff     time.Duration `json:"backoff,omitempty"` // the longest pause between failures in a row and another round
	// JobEnd is when the platform will end the job, since the loop began; 0: it did not say.
	JobEnd  time.Duration `json:"job_end,omitempty"`
	Success string        `json:"success,omitempty"` // what makes the job a success: all (or ""), rank0, node0, trainers
	Servers int           `json:"servers,omitempty"` // the last so many nodes do not train
	OnExit  string        `json:"on_exit,omitempty"` // what follows when a worker fails: stop (or ""), restart, leave
	Posix   bool          `json:"posix,omitempty"`   // a worker's death by signal n is told as 128+n

	Regroups bool          `json:"regroups,omitempty"`  // nodes that are left when one was lost meet again
	Fewest   int           `json:"fewest,omitempty"`    // nodes that make a world
	Suspects bool          `json:"suspects,omitempty"`  // what is found about machines is kept
	Exclude  int           `json:"exclude,omitempty"`   // a node on which so many rounds failed is left out; 0: none is
	Rest     time.Duration `json:"rest,omitempty"`      // for so long
	Yields   bool          `json:"yields,omitempty"`    // and when one was told to stop
	Nodes    int           `json:"nodes,omitempty"`     // of a world, at most
	Join     string        `json:"join,omitempty"`      // when late comers are let in: now (or ""), at-restart, never
	LastCall time.Duration `json:"last_call,omitempty"` // how long one waits for more of them

	Idle   int    `json:"idle,omitempty"`    // so many rounds in a row may fail before the first step, and no more; 0: any number
	OnHang string `json:"on_hang,omitempty"` // observe, dump (or ""), restart, exclude-node
}

// state is what the run loop of one node knows.
type state struct {
	Self  int           `json:"self"`  // group rank; 0 leads
	Nodes []*node       `json:"nodes"` // they never change: see edit
	Now   time.Duration `json:"now"`   // of the last event, since the loop began

	Start    *start        `json:"start,omitempty"`   // where this round's workers meet, once the leader has opened that place
	Started  bool          `json:"started,omitempty"` // this node's workers were started
	Began    time.Duration `json:"began,omitempty"`   // when
	Left     int           `json:"left,omitempty"`    // workers of this node that have not ended
	Empty    bool          `json:"empty,omitempty"`   // no worker of this node is left, nor anything that one started
	Stopping bool          `json:"stopping,omitempty"`
	Until    time.Duration `json:"until,omitempty"`  // workers that are stopping are killed then
	Held     time.Duration `json:"held,omitempty"`   // until then workers are left to run all the same, so that who was first can say so; 0: they are not
	Vain     bool          `json:"vain,omitempty"`   // and nobody did
	Asked    bool          `json:"asked,omitempty"`  // a signal asked us to stop
	Leave    time.Duration `json:"leave,omitempty"`  // when this node has left that was told to; 0: it was not
	CtrlC    time.Duration `json:"ctrl_c,omitempty"` // when the first INT came; 0: none did
	Causes   []cause       `json:"causes,omitempty"`
	Own      *job.Verdict  `json:"own,omitempty"`     // a member's: what it would say without its leader
	Wanted   *job.Verdict  `json:"wanted,omitempty"`  // a member's: the end that was asked for when it had failed
	Away     bool          `json:"away,omitempty"`    // the leader's: the store does not hear of this world
	Again    bool          `json:"again,omitempty"`   // the leader's: the cause is known, and a new round follows when all are clear,
	Counted  bool          `json:"counted,omitempty"` // and Free says of this one whether it failed, whatever follows
	Round    int           `json:"round,omitempty"`   // rounds before this one
	Order    string        `json:"order,omitempty"`   // what all nodes were told by order, and are about: restart, pause, resume
	Paused   bool          `json:"paused,omitempty"`  // the leader's: all nodes are clear, by order
	Wishes   int           `json:"wishes,omitempty"`  // a member's: orders that it passed on,
	Wish     string        `json:"wish,omitempty"`    // and the last of them, while the leader has not answered
	Free     int           `json:"free,omitempty"`    // the leader's: rounds that began by order and not because of a failure
	Past     []job.Round   `json:"past,omitempty"`    // the leader's: those rounds, the last few
	Ranks    []job.Ended   `json:"ranks,omitempty"`   // this node's workers that ended in this round
	Policy   *policy       `json:"policy,omitempty"`  // the leader's, or that of the leader before, which this one takes over; nil: its own
	Timeout  time.Duration `json:"timeout,omitempty"` // after which the nodes of this world give each other up; 0: job.NodeTimeout
	Verdict  *job.Verdict  `json:"verdict,omitempty"`
	Ended    bool          `json:"ended,omitempty"`

	Generation int            `json:"generation,omitempty"` // of this world
	Queue      int            `json:"queue,omitempty"`      // the leader's: nodes that wait for the next world
	Flaps      int            `json:"flaps,omitempty"`      // rounds in a row that lost a node soon after they had begun
	Admit      time.Duration  `json:"admit,omitempty"`      // the leader's: when they are let in; 0: they are not
	Fate       time.Duration  `json:"fate,omitempty"`       // the leader's: until then it waits to learn what became of silent nodes; 0: it does not
	Slow       time.Duration  `json:"slow,omitempty"`       // the leader's: until then it waits for who was first to end; 0: it does not
	Settle     time.Duration  `json:"settle,omitempty"`     // the leader's: until then news may come of an older cause than the one that was waited for; 0: it was not
	Fence      time.Duration  `json:"fence,omitempty"`      // until then workers may live on a lost node
	Fenced     time.Duration  `json:"fenced,omitempty"`     // the same, as it was said
	Rest       time.Duration  `json:"rest,omitempty"`       // until then there is no other round, after several that failed
	Blame      map[string]int `json:"blame,omitempty"`      // by node, how many rounds failed there
	Mends      []mend         `json:"mends,omitempty"`      // workers that were started again in this round, each as it was last
	Mended     time.Duration  `json:"mended,omitempty"`     // the leader's: when that was last
	Down       []job.Failure  `json:"down,omitempty"`       // a member's: workers that failed, of which the leader has not said what follows
	Next       *job.Tally     `json:"next,omitempty"`       // this world ends when it has no workers, and its nodes meet again with this tally
	Quit       *job.Verdict   `json:"quit,omitempty"`       // with which this node ends, while the job goes on without it
	Expect     int            `json:"expect,omitempty"`     // so many of them do; 0: another node says it
	Lost       []int          `json:"lost,omitempty"`       // the others, by group rank
	Led        bool           `json:"led,omitempty"`        // a member's: the leader lives, and comes to the next world, for all that it says
	Meeting    bool           `json:"meeting,omitempty"`    // they do now

	Charge  *charge       `json:"charge,omitempty"`  // about the leader that this world, or the one before, has lost
	Charged []job.Machine `json:"charged,omitempty"` // the leader's: whose were kept
	Was     int           `json:"was,omitempty"`     // generation of the world that this node was in before; 0: none

	Reached int           `json:"reached,omitempty"` // how far this round has come, as far as this node sees
	Trained bool          `json:"trained,omitempty"` // the leader's: it is past its beginning,
	Learned time.Duration `json:"learned,omitempty"` // and may stand still for so long, at least
	Idle    int           `json:"idle,omitempty"`    // rounds in a row that failed before the first step

	Marks marks     `json:"marks,omitzero"` // of this round, for the account of the job's time
	Laps  []job.Lap `json:"laps,omitempty"` // the rounds before, the last few,
	Older job.Spent `json:"older,omitzero"` // and those before them

	Turns turns  `json:"turns,omitzero"`
	Peak  uint64 `json:"peak,omitempty"` // the latest step that was told of; 0: none was

	fresh []*node // Nodes as they were when this world began; nil: nobody knows
	edits bool    // in this event: Nodes is not that of another state

	Stall   *stalled      `json:"stall,omitempty"`   // what was said last of the standstill that lasts
	Stood   time.Duration `json:"stood,omitempty"`   // since when it does
	Alarms  int           `json:"alarms,omitempty"`  // standstills that were called a hang, and were none
	Clashes []string      `json:"clashes,omitempty"` // time-outs that do not go with each other

	Ailing []string `json:"ailing,omitempty"` // what broke of machines during the job, the last few

	Stragglers []job.Straggler `json:"stragglers,omitempty"` // the leader's: for whom the others wait in this round
}

// node is what the leader knows of one node.
type node struct {
	Name  string `json:"name"`
	Ends  bool   `json:"ends,omitempty"`  // one of its workers ended well in this round,
	Done  bool   `json:"done,omitempty"`  // all of them did
	Clear bool   `json:"clear,omitempty"` // it was told to stop, and nothing is left of its workers
	Gone  bool   `json:"gone,omitempty"`  // its agent said goodbye or was lost,
	Cut   bool   `json:"cut,omitempty"`   // and may only be cut off
	Quits bool   `json:"quits,omitempty"` // it will, when it is clear
	ID    string `json:"id,omitempty"`    // its name, and what else tells it from others
	Out   string `json:"out,omitempty"`   // why it is left out of the next world

	Mute time.Duration `json:"mute,omitempty"` // since when nothing was heard of it; 0: it is heard

	Machine *job.Machine `json:"machine,omitempty"` // on which it is; nil: nobody asks, or it has not said

	Wishes int    `json:"wishes,omitempty"` // orders that it passed on and the leader judged,
	Answer *reply `json:"answer,omitempty"` // and the answer to the last of them

	Ranks []job.Ended `json:"ranks,omitempty"` // its workers that ended in this round, as it told
}

// cause is one thing that went wrong, at a time of this node's clock.
type cause struct {
	At      time.Duration `json:"at"`
	Node    int           `json:"node"`
	Failure *job.Failure  `json:"failure,omitempty"` // nil: the node itself was lost, or
	Hang    *job.Hang     `json:"hang,omitempty"`    // the world hangs
	Why     string        `json:"why,omitempty"`
}

// Events. Each is a value of its own type.
type (
	// opened: the leader's workers' store is open.
	opened struct{ Start start }
	// begun: this node's workers were started.
	begun struct{ Workers int }
	// unbegun: one could not be started, and none is left.
	unbegun struct{ Failure job.Failure }
	// finished: a worker of this node ended.
	finished struct {
		Worker  job.Ended
		Failure *job.Failure // nil: it ended well
	}
	// emptied: nothing is left of this node's workers.
	emptied struct {
		Worked time.Duration `json:",omitempty"` // how long ago they may have got something done with those of all nodes; 0: they never did
		Step   uint64        `json:",omitempty"` // the latest that they told of; 0: none
	}
	// noticed: an agent is silent, or heard again.
	noticed struct {
		Node  int
		What  string
		Quiet time.Duration `json:",omitempty"` // for so long; 0: it is heard again
	}
	// resumed: this agent took over from one that died.
	resumed struct{}
	// renewed: so did another one, of a peer; what was told and not heard is to be told again.
	renewed struct{ Node int }
	// departed: an agent said goodbye.
	departed struct{ Node int }
	// lost: an agent or its node is gone.
	lost struct {
		Node    int
		Why     string
		Certain bool // nobody goes on there
		// Owed: if it is not certain, how much longer it may go on until it gives us up.
		Owed   time.Duration `json:",omitempty"`
		GaveUp bool          `json:",omitempty"` // a member's: the leader lives, and gave this node up
		Quiet  time.Duration `json:",omitempty"` // for so long nothing was heard of it; 0: until now
	}
	// told: news from another agent.
	told struct {
		Node int
		News news
	}
	// signalled: somebody asks this agent to stop.
	signalled struct{ Sig syscall.Signal }
	// settled: the time for further news is over.
	settled struct{}
	// expired: the time for members to leave is over.
	expired struct{}
	// ordered: somebody on this node orders something, by the control socket.
	ordered struct{ What string }
	// broken: this agent cannot go on by itself.
	broken struct{ Verdict job.Verdict }
	// met: the nodes have agreed on a world.
	met struct {
		Generation int
		Self       int
		Nodes      []string
		IDs        []string // the same, told from each other
		Past       job.Tally
		Machine    *job.Machine  // on which this node is; nil: nobody asks
		Policy     *policy       `json:",omitempty"` // that counts in it; nil: this node's own, or nobody told
		Timeout    time.Duration `json:",omitempty"` // as state has it
		World      int           `json:",omitempty"` // workers in it
		Of         string        `json:",omitempty"` // its mark
		Waited     time.Duration `json:",omitempty"` // for this job's first world
		Hold       bool          // no round is to be opened: the end of the job is asked for already

		fresh []*node // they, as they are at first; nil: to be made
	}
	// unmet: they have not, and will not.
	unmet struct {
		Verdict job.Verdict
		First   string `json:",omitempty"` // who was the first of those that waited for the others; "": nobody knows
	}
	// queued: so many nodes wait for the next world.
	queued struct{ Nodes int }
	// away: the store has not taken the leader's word that this world lives for as long as a node may be silent; or it has again.
	away struct{ Is bool }
	// lapsed: this agent stood still, and its workers were killed for that.
	lapsed struct{}
	// woken: a time has come that was waited for.
	woken struct{}
)

// Deeds. The run loop does them in order.
type (
	// begin: start this node's workers.
	begin struct{ Start start }
	// stop: tell each worker to end, KILL to the rest after this time.
	stop struct {
		Within  time.Duration
		Preempt bool   // nobody failed: there is time for a checkpoint
		Said    string `json:",omitempty"` // to people, with it
	}
	// kill: KILL to everything now.
	kill struct{}
	// tell: everyone or one member, from the leader; the leader, from a member.
	tell struct {
		To   int
		News news
	}
	// settle: raise settled after this time.
	settle struct{ Within time.Duration }
	// expire: raise expired after this time; 0: not at all.
	expire struct{ Within time.Duration }
	// open: open the place where the next round's workers meet.
	open struct{}
	// meet: leave this world, and take part in the meeting for the next.
	meet struct {
		Past   job.Tally
		Rest   time.Duration // before this node may take a place
		Out    string        // why
		Expect int           // of the nodes of this world, so many come, as this one has to say; 0: another one does
	}
	// wake: raise woken after this time.
	wake struct{ Within time.Duration }
	// say: a line for people.
	say struct{ Text string }
	// reply: an answer to whoever gave the order last.
	reply struct {
		Text    string `json:"text"`
		Refused bool   `json:"refused,omitempty"`
	}
)

// everyone is tell's address for all members.
const everyone = -1
