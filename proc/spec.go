package proc

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// A Spec says what to start, and in which surroundings.
type Spec struct {
	Argv []string // Argv[0] without a slash is looked up in Env's PATH
	Env  []string // complete, as of os.Environ
	Dir  string   // "": the caller's

	Stdin  bool       // inherit standard input; otherwise it is /dev/null
	Output bool       // inherit standard output and error; otherwise they are pipes
	Lines  *Lines     // and the first process reads those, and does this; nil: the caller reads them
	Files  []*os.File // become descriptors 3, 4, …; the caller keeps and closes its own

	Tag  string // becomes TagName in the environment, and makes this a worker: stopped with TERM and grace
	Core bool   // keep RLIMIT_CORE as it is; otherwise it is 0: dumping 500 GB delays a death by minutes
	OOM  int    // added to oom_score_adj, so that the kernel takes this process before the agent

	Binding Binding
}

// A Binding is where on its machine a process runs, with all that it starts. The zero Binding is anywhere.
type Binding struct {
	CPUs   []int
	Memory []int // the nodes of NUMA of which it has its memory
	Prefer bool  // it may have it of others when there is none left of these
}

// A Child is a process that was started.
type Child struct {
	PID            int
	Stdout, Stderr *os.File        // read ends, for the caller to close; nil if it does not read them
	Exit           <-chan Exit     // delivers once
	Tail           <-chan []string // delivers the last lines once, after Exit, when they were read; nil without Spec.Lines
}

// Unseen is a child that is gone, and nobody saw how it ended.
func Unseen() *Child {
	exit, tail := make(chan Exit, 1), make(chan []string, 1)
	exit <- Exit{At: time.Now(), Lost: "nobody saw it"}
	tail <- nil
	return &Child{Exit: exit, Tail: tail}
}

// An Exit is how a process ended, as the kernel told it.
type Exit struct {
	PID    int
	Code   int            // when no signal killed it
	Signal syscall.Signal // 0: none
	Core   bool           // a core was dumped
	At     time.Time      // when it was reaped, with this process's monotonic clock
	User   time.Duration
	System time.Duration
	MaxRSS int64  // bytes
	Lapsed bool   // the first process ended it, for the agent had let its lease run out
	Lost   string // the status is unknown, and why; never taken for success
}

// String says it in words: "exited with 3", "was killed by signal 9 (killed)".
func (e Exit) String() string {
	switch {
	case e.Lost != "":
		return "ended unobserved: " + e.Lost
	case e.Signal != 0 && e.Core:
		return fmt.Sprintf("was killed by signal %d (%v), core dumped", e.Signal, e.Signal)
	case e.Signal != 0:
		return fmt.Sprintf("was killed by signal %d (%v)", e.Signal, e.Signal)
	}
	return fmt.Sprintf("exited with %d", e.Code)
}

// Status is the exit code by which a shell would tell e: 128+n for signal n.
func (e Exit) Status() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// A StartError is a command that could not be started.
type StartError struct {
	Code int    // as of a shell: 127 not found, 126 not executable, 125 the system refused
	Text string // names the thing, then the cause
}

func (e *StartError) Error() string { return e.Text }

// ErrEnded says that a process has ended: there is nobody to signal.
var ErrEnded = errors.New("the process has ended")

// A Scope says how far a signal goes.
type Scope int

const (
	Leader Scope = iota // the started process alone
	Group               // its process group
	Tree                // all that it started, wherever that went
)
