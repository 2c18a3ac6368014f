package launcher

import (
	"context"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/output"
	"github.com/muster-run/muster/worker"
)

// A First is the first process as an agent needs it: a [pid1.Client]. In a simulation of ten thousand nodes it is none, for there are no processes.
type First interface {
	worker.Processes
	Lost() <-chan struct{}
	Signals() <-chan os.Signal
	Legacy() *pid1.Legacy
	Life() int
	Keep(name string, data []byte) error
	Hold(name string, f syscall.Conn) error
	Drop(name string) error
	DropOld(prefix string) error
	Lease(within time.Duration) error
	LastWords(text string) error
	Counts(ctx context.Context) (output.Counts, error)
	Succeed(program *os.File) error
}

// simulated is what a simulation has in the place of a network, and of workers that are looked at. The zero value is this machine.
type simulated struct {
	dial   func(ctx context.Context, network, addr string) (net.Conn, error) // connects to another agent; nil: by TCP
	senses func(pids func() []int) senses                                    // how workers are perceived; nil: by their pages and from outside
	clock  func() time.Duration                                              // by which their pages tell time; nil: CLOCK_MONOTONIC
	awake  func()                                                            // returns when this agent does not stand still
	share  func(w *job.World) []*node                                        // has all agents of a world keep it once, and its nodes as they are at first; nil: each keeps its own
}

// plays reports whether this is a simulation.
func (s simulated) plays() bool { return s.dial != nil }
