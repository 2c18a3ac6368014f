package launcher

import (
	"encoding/json"
	"time"

	"github.com/muster-run/muster/job"
)

// news is what agents tell each other over the fleet. Kinds that an agent does not know are left aside,
// so that two versions can work in one world.
type news struct {
	Kind    string        `json:"kind"`
	Round   int           `json:"round,omitempty"` // in which the teller is
	Start   *start        `json:"start,omitempty"`
	Failure *job.Failure  `json:"failure,omitempty"`
	Verdict *job.Verdict  `json:"verdict,omitempty"`
	Ranks   []job.Ended   `json:"ranks,omitempty"` // how the teller's workers ended
	Order   string        `json:"order,omitempty"`
	Held    bool          `json:"held,omitempty"`   // of a stop: workers are left to run for a moment, so that who was first can say so
	Why     string        `json:"why,omitempty"`    // of a stop by order,
	Class   string        `json:"class,omitempty"`  // as a verdict has it
	Number  int           `json:"number,omitempty"` // of an order among the teller's, or of an answer among the hearer's orders
	Answer  *reply        `json:"answer,omitempty"`
	Out     string        `json:"out,omitempty"`    // the hearer takes no place in it, and why,
	Rest    time.Duration `json:"rest,omitempty"`   // for so long
	Past    *job.Tally    `json:"past,omitempty"`   // of the next world
	Leaves  bool          `json:"leaves,omitempty"` // the teller takes no place in it
	Mends   []mend        `json:"mends,omitempty"`
	Stalled *stalled      `json:"stalled,omitempty"`

	Ailing []job.Evidence `json:"ailing,omitempty"` // what has become of a machine,
	Of     int            `json:"of,omitempty"`     // that of this node, where the leader passes it on

	Evidence json.RawMessage `json:"evidence,omitempty"`
	Picture  []byte          `json:"picture,omitempty"` // a drawing of the teller's machine, packed; none: the hearer is asked for its own
	Machine  *job.Machine    `json:"machine,omitempty"` // on which the teller is
	Charge   *charge         `json:"charge,omitempty"`  // that it brings from the world before
}

// start lets a member start its workers.
type start struct {
	Port       int  `json:"port"`               // MASTER_PORT on the leader's node
	AgentStore bool `json:"agent_store"`        // the leader's agent hosts the workers' store there
	Exchange   int  `json:"exchange,omitempty"` // port on the leader's node of a store of muster's own, where its processes, or the framework, need one

	Round       int            `json:"round,omitempty"`        // rounds before this one
	MaxRestarts int            `json:"max_restarts,omitempty"` // rounds that may follow the first
	Free        int            `json:"free,omitempty"`         // of the rounds before, those that did not fail
	Blame       map[string]int `json:"blame,omitempty"`        // by node, how many rounds failed there
	Idle        int            `json:"idle,omitempty"`         // rounds in a row that failed before the first step
	Why         string         `json:"why,omitempty"`          // what the last round ended of
	Policy      *policy        `json:"policy,omitempty"`       // the leader's, which counts; nil: of an older version, each has its own
}

const (
	newsStart    = "start"    // leader: the workers' store is open, start your workers
	newsFailed   = "failed"   // member: a worker of mine failed
	newsEnds     = "ends"     // member: a worker of mine ended well, the first
	newsDone     = "done"     // member: all my workers ended well
	newsEnding   = "ending"   // member: my node must end, and why; leader: the same, where others go on
	newsLapsed   = "lapsed"   // member: I stood still, and my workers were killed for that
	newsQuit     = "quit"     // member: my node ends, and the job can go on without it
	newsClear    = "clear"    // member: I was told to stop, and nothing is left of my workers
	newsStop     = "stop"     // leader: something failed, or an order came; stop your workers, or leave them a moment
	newsOrder    = "order"    // member: somebody on my node ordered this
	newsAnswer   = "answer"   // leader: what became of your order
	newsHere     = "here"     // on which machine I am
	newsMend     = "mend"     // leader: these workers failed, and they alone are started again
	newsMeet     = "meet"     // leader: this world is over, meet again for the next
	newsVerdict  = "verdict"  // leader: how the job ended
	newsEvidence = "evidence" // member: what is worth keeping of a standstill; not for the judgement
	newsPicture  = "picture"  // leader: draw me your machine; member: here it is. Not for the judgement
	newsStalled  = "stalled"  // leader: the workers stand still, or advance again
	newsHealth   = "health"   // member: what has become of my machine; leader: of another's
	newsKill     = "kill"     // somebody will not wait for workers that were told to stop
)
