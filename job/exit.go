package job

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The exit codes of `muster run`. Codes 1 to 127 are otherwise the code of the worker that failed first, verbatim;
// 128+n stands for a worker killed by SIGKILL or SIGTERM that muster did not send. docs/exit-codes.md has the table.
const (
	ExitOK         = 0
	ExitUsage      = 2   // wrong use, or a configuration that contradicts itself
	ExitPeers      = 66  // peers never came
	ExitRefused    = 67  // the nodes do not fit together, or a node does not fit the job
	ExitStore      = 68  // the meeting point did not answer, or was away when nodes were to meet: unresolvable, refused, unreachable
	ExitStranger   = 69  // something else holds the endpoint's port
	ExitInternal   = 70  // a fault of the agent itself
	ExitSystem     = 71  // the system refused what the agent needs: processes, ports, files
	ExitDeadline   = 72  // the job's limit of time passed
	ExitSlowStart  = 73  // the workers were not started in time
	ExitDesync     = 74  // the ranks wait for each other in different collectives: an error in user code
	ExitHung       = 75  // the job hung, and no machine is seen to be to blame
	ExitSame       = 76  // a worker failed in the same way at the same step as in the round before
	ExitNoProgress = 77  // several rounds in a row failed before the first step
	ExitNotExec    = 126 // the program is there but cannot be executed
	ExitNotFound   = 127 // there is no such program or script
	ExitRetry      = 138 // infrastructure: an agent or a node was lost; please retry
	ExitINT        = 130 // ended by SIGINT
	ExitTERM       = 143 // ended by SIGTERM
)

// A Verdict is how a job ended, the same on all its nodes.
type Verdict struct {
	Code     int      `json:"code"`   // exit status of muster
	Origin   string   `json:"origin"` // who failed: worker, agent, platform; empty when all is well
	Class    string   `json:"class"`  // what kind of end; the constants below
	Sentence string   `json:"sentence,omitempty"`
	Hint     string   `json:"hint,omitempty"`   // what to do, when that is known
	First    *Failure `json:"first,omitempty"`  // the first cause, when a worker failed
	Hang     *Hang    `json:"hang,omitempty"`   // the first cause, when nobody did, and all stood still
	Rounds   []Round  `json:"rounds,omitempty"` // those before the last, the latest few
	// Consequences are workers that failed after the first, and most likely because of it; the earliest few.
	Consequences []Failure `json:"consequences,omitempty"`
}

// A Round is one life of the workers of a job, which another one followed.
type Round struct {
	Number  int      `json:"round"` // rounds before it
	Message string   `json:"message"`
	First   *Failure `json:"first,omitempty"`
}

// The classes of verdicts.
const (
	Succeeded  = "succeeded"   // the job did what it should; no other class goes with code 0
	Failed     = "failed"      // a worker exited with a code, or the agent could not go on
	Killed     = "killed"      // a signal ended a worker
	NotStarted = "not-started" // a worker could not be started
	OOM        = "oom"         // a worker was killed for want of memory
	Preempted  = "preempted"   // an operator or a scheduler wanted the node; nobody is to blame
	Lost       = "lost"        // an agent or its node is gone
	Refused    = "refused"     // the job, or this node's part in it, cannot be as it was asked for
	Late       = "late"        // a limit of time passed
	Hung       = "hung"        // the workers stood still, and no one of them failed
)

// OK reports whether the job did what it should.
func (v Verdict) OK() bool { return v.Code == ExitOK }

// signal returns the signal that ended the worker: its own, or the one that a shell's code of 128+n speaks of.
func (e Exit) signal() syscall.Signal {
	if e.Signal != 0 {
		return syscall.Signal(e.Signal)
	}
	if e.Code > 128 && e.Code <= 128+64 {
		return syscall.Signal(e.Code - 128)
	}
	return 0
}

// Killed reports whether a signal ended the worker, by its own or a shell's word.
func (e Exit) Killed() bool { return e.signal() != 0 }

// signalCodes are permanent codes for signals that speak of a broken program: a code of 128+n would be
// retried without end by operators that retry from 128 on.
var signalCodes = map[syscall.Signal]int{
	unix.SIGKILL: 128 + 9,
	unix.SIGTERM: 128 + 15,
	unix.SIGHUP:  114,
	unix.SIGINT:  115,
	unix.SIGQUIT: 116,
	unix.SIGILL:  117,
	unix.SIGTRAP: 118,
	unix.SIGABRT: 119,
	unix.SIGBUS:  120,
	unix.SIGFPE:  121,
	unix.SIGSEGV: 122,
	unix.SIGPIPE: 123,
}

// otherSignal is the code for signals that signalCodes leaves out.
const otherSignal = 124

// Status returns the exit status that muster gives for a job whose first cause is e.
func (e Exit) Status() int {
	if s := e.signal(); s != 0 {
		if code, ok := signalCodes[s]; ok {
			return code
		}
		return otherSignal
	}
	if e.Code < 0 || e.Code == 0 && !e.OK() { // how it ended is not known: never success
		return ExitInternal
	}
	if e.Code > 127 { // 128, or 193 to 255: no signal, and nothing that an operator should retry
		return 1
	}
	return e.Code
}

// Posix is Status as a shell tells it: 128+n for every signal n.
func (e Exit) Posix() int {
	if s := e.signal(); s != 0 {
		return 128 + int(s)
	}
	return e.Status()
}

// String says how the worker ended, as the end of a sentence that begins with its name.
func (e Exit) String() string {
	switch s := e.signal(); {
	case e.Err != "" && e.Code == 0:
		return "ended, nobody knows how: " + e.Err
	case e.Err != "":
		return "could not be started: " + e.Err
	case e.Signal != 0:
		return "was killed by " + SignalName(s) + e.sender() + coreDumped[e.Core]
	case s != 0:
		return fmt.Sprintf("exited with code %d (a shell's word for %s)", e.Code, SignalName(s))
	default:
		return fmt.Sprintf("exited with code %d", e.Code)
	}
}

func (e Exit) sender() string {
	if e.Sent {
		return " from muster"
	}
	if s := e.signal(); s == unix.SIGKILL || s == unix.SIGTERM {
		return ", which muster did not send"
	}
	return ""
}

var coreDumped = map[bool]string{true: " (core dumped)"}

// SignalName names the signal that killed the worker; "" when none did.
func (e Exit) SignalName() string {
	if e.Signal == 0 {
		return ""
	}
	return SignalName(syscall.Signal(e.Signal))
}

// SignalName returns "SIGKILL" for 9; a real-time signal is "signal 35".
func SignalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}

// String names the failed worker, where it ran and how it ended.
func (f Failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d on %s (node %d, local rank %d", f.Rank, f.Node, f.Group, f.LocalRank)
	if f.PID != 0 {
		fmt.Fprintf(&b, ", pid %d", f.PID)
	}
	fmt.Fprintf(&b, ") %s", f.Exit)
	switch {
	case f.Exception == "":
	case f.InThread:
		b.WriteString(" after a thread of it had ended with " + f.Exception)
	case f.Caught:
		b.WriteString(" after it had caught " + f.Exception)
	default:
		b.WriteString(": " + f.Exception)
	}
	for _, e := range f.Evidence {
		b.WriteString("; " + e.Text)
	}
	return b.String()
}
