package job

import "time"

// A Beat is what a node's agent knows of one of its workers at one moment: what the worker says of itself, and what can be
// seen of it from outside. The judgement of a hang compares those of all ranks.
type Beat struct {
	Rank  int `json:"r"`
	PID   int `json:"pid"`
	Local int `json:"l,omitempty"` // local rank

	// What the worker says. A rank that says nothing has no Sources.
	Sources Source        `json:"src,omitempty"`
	Life    int           `json:"life,omitempty"` // counts the programs that told of this rank: each begins its counters anew
	Count   uint64        `json:"n,omitempty"`    // only ever grows, and does so whenever the worker advances in anything that it tells of
	Steps   uint64        `json:"step,omitempty"` // of training, as far as they can be counted; 0: none yet, or nobody counts them
	Phase   string        `json:"ph,omitempty"`   // announced: checkpoint, evaluation, …
	Left    time.Duration `json:"left,omitempty"` // of the announced phase
	Lanes   []Lane        `json:"lanes,omitempty"`
	Limit   time.Duration `json:"limit,omitempty"` // the framework's own time-out of a collective; 0: not known
	Second  uint8         `json:"sec,omitempty"`   // of the minute, by the clock on the wall, at whose beginning this was read, from 1; 0: it was read at another moment
	Over    bool          `json:"over,omitempty"`  // its script is, and its interpreter on its way to the end; Mute says how
	Mute    string        `json:"mute,omitempty"`  // why it tells nothing, or less than it could: "torch 1.13 has no recorder"

	// What is seen from outside; nil: nobody looked, for it advances.
	Sight *Sight `json:"see,omitempty"`
	// Stack is the innermost lines of the main thread's Python code, if they were asked for: "dataset.py:88 __getitem__".
	Stack []string `json:"stack,omitempty"`
}

// A Source is where a worker's counters come from; a set of bits.
type Source uint8

// The sources, best first.
const (
	FromRecorder Source = 1 << iota // PyTorch's flight recorder: collectives of each group, entered and completed
	FromHooks                       // calls of backward, optimizer steps and torch.distributed, entered and left
	FromBeats                       // the program's own: muster beat
	FromOutput                      // lines of output that match --progress-regex
	Ready                           // none so far: the hook is there, and would tell of a collective
)

// Parted is why a rank tells nothing that has left its process groups for good, and would tell of others: it is Ready.
const Parted = "in no process group any more"

// A Lane is one process group as one rank sees it: how many of its collectives it has entered and how many are complete. All
// members number them alike. Where there is no recorder one lane without Group counts the calls into the framework instead, which
// different ranks may number differently.
type Lane struct {
	Group     uint64 `json:"g,omitempty"` // the same for all members, another for each group; 0: calls, not collectives
	Name      string `json:"name,omitempty"`
	Entered   uint64 `json:"e"`
	Completed uint64 `json:"c"`
	Op        string `json:"op,omitempty"`   // of the one with number Completed+1: all_reduce, …; a call's name
	Bytes     uint64 `json:"size,omitempty"` // that it moves; 0: not known
	Mark      uint16 `json:"was,omitempty"`  // a number for the kind of the one with number Completed, told with Op; 0: not known
	Members   int    `json:"of,omitempty"`   // ranks of the group; 0: not known. One that is none has no lane for it, and one that never used that of all ranks neither
	Mixed     bool   `json:"mix,omitempty"`  // sends and receives go through it, and may be numbered, too: members do not number alike
	Begun     bool   `json:"on,omitempty"`   // the accelerator has begun the one with number Completed+1,
	Queued    bool   `json:"q,omitempty"`    // or has it behind something else; neither: not known
	Host      bool   `json:"h,omitempty"`    // threads of the process do its collectives: who waits in one does nothing else in that thread
}

// Waits reports whether the rank is inside a collective, or a call.
func (l Lane) Waits() bool { return l.Entered > l.Completed }

// A Sight is a worker, with all it started, as /proc and the kernel's sockets show it. Sums only ever grow, but for processes that
// end.
type Sight struct {
	State  byte          `json:"st,omitempty"`     // of the worker's own process: R, S, D, T, t, Z (proc(5))
	Traced bool          `json:"traced,omitempty"` // a debugger holds it
	Frozen bool          `json:"frozen,omitempty"` // its cgroup is
	Held   bool          `json:"gil,omitempty"`    // its helper thread gets no turn: Python's lock is held, or the process does not run
	CPU    time.Duration `json:"cpu,omitempty"`    // used
	Disk   uint64        `json:"io,omitempty"`     // bytes read and written, by calls and by storage: most count twice
	Wire   uint64        `json:"net,omitempty"`    // bytes that its TCP sockets received and saw acknowledged, and that moved over the NVLinks of its GPU
	Output uint64        `json:"out,omitempty"`    // bytes that it wrote to standard output and error
	Stuck  []string      `json:"stuck,omitempty"`  // peers that do not acknowledge what was sent: "10.0.0.3:41234, 7 retransmissions"
	Waits  string        `json:"wchan,omitempty"`  // where in the kernel it sleeps
	File   string        `json:"file,omitempty"`   // that it reads or writes just now
	Stores bool          `json:"wr,omitempty"`     // it waits for a file system that is to take what was written
	Memory uint64        `json:"rss,omitempty"`    // resident bytes

	GPU      int `json:"gpu,omitempty"`  // watts that its accelerator draws; 0: not known
	GPUUsual int `json:"gpu0,omitempty"` // the most that it drew while training went on; 0: not known
	GPUBusy  int `json:"gpu%,omitempty"` // percent of the time in which a kernel runs there
}
