package job

import (
	"fmt"
	"strings"
	"time"
)

// A Hang is a standstill of a world in which no worker failed: who waits for whom.
type Hang struct {
	Class    string        `json:"class,omitempty"`    // a letter, which docs/hangs.md explains: A absent, B odd one out, C network, D desync, E input
	Culprits []Culprit     `json:"culprits,omitempty"` // who is waited for, by rank; none: nobody in particular
	Waiting  int           `json:"waiting,omitempty"`  // ranks that wait
	Op       string        `json:"op,omitempty"`       // what they wait in
	Number   uint64        `json:"number,omitempty"`   // of that collective in its group, from 1; 0: not known
	Group    string        `json:"group,omitempty"`    // the group's name
	Quiet    time.Duration `json:"quiet"`              // since any rank advanced
	Limit    time.Duration `json:"limit,omitempty"`    // after which that is a hang
	Ops      []string      `json:"ops,omitempty"`      // what they wait in, and who, where that is not the same for all
	Stuck    []string      `json:"stuck,omitempty"`    // network: connections over which nothing gets
	Done     int           `json:"done,omitempty"`     // input: ranks that have ended
	Kernels  bool          `json:"kernels,omitempty"`  // network: it may as well be an accelerator's kernel that does not end
}

// Lasted is how long it has lasted, as sentences have it.
func (h Hang) Lasted() string { return fmt.Sprintf("%.0f s", h.Quiet.Round(time.Second).Seconds()) }

// Cut divides a sentence about it where that says how long it has lasted.
func (h Hang) Cut(sentence string) (before, after string, found bool) {
	return strings.Cut(sentence, " for "+h.Lasted())
}

// A Culprit is a rank that is waited for, and how it looks.
type Culprit struct {
	Rank   int      `json:"rank"`
	PID    int      `json:"pid,omitempty"`
	Ended  bool     `json:"ended,omitempty"`  // its work was done
	Well   bool     `json:"well,omitempty"`   // and it is known that it ended with code 0
	Halted bool     `json:"halted,omitempty"` // it cannot run: stopped, frozen, or in the kernel without end
	Kernel bool     `json:"kernel,omitempty"` // the kernel does not let it go: state D
	Queued bool     `json:"queued,omitempty"` // what the others wait in is queued on its accelerator, behind something that does not end
	Looks  string   `json:"looks,omitempty"`  // "stopped, state T", "using the processor", …
	Over   string   `json:"over,omitempty"`   // that its script has ended, and how, though the process has not: "its script is over"
	Stack  []string `json:"stack,omitempty"`  // where its Python code is, the telling line first
	File   string   `json:"file,omitempty"`   // that it reads or writes
}
