package launcher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/ports"
	"github.com/muster-run/muster/proc"
)

// A workerStore is where the workers of one round meet, on the leader's node. It is fresh each round: PyTorch from
// 2.6 on puts no round into its keys, so that a store that is used again breaks a restart.
type workerStore struct {
	start start
	held  int         // rank 0 hosts the store: the socket that keeps its port; -1: none
	child *proc.Child // the process that serves a store of muster's: that one where the agent hosts it, or start.Exchange's
}

// openWorkerStore takes a port and, where the agent hosts the store, starts the process that serves it, by these words. exchange is what serves
// another store, which the framework or muster's own processes need; nil: none. A c10d store that the agent hosts is both.
func openWorkerStore(ctx context.Context, c Config, host string, words, exchange []string) (*workerStore, error) {
	w := &workerStore{held: -1, start: start{AgentStore: agentStore(c)}}
	listen := func(port int, lingering bool) (net.Listener, error) { return listenOn(host, port, lingering) }
	var ln net.Listener
	var err error
	if w.start.AgentStore {
		ln, w.start.Port, err = takePort(c, listen)
	} else {
		w.held, w.start.Port, err = takePort(c, ports.Hold)
	}
	switch {
	case err != nil:
		return nil, err
	case exchange != nil && w.start.AgentStore:
		w.start.Exchange = w.start.Port
	case exchange != nil:
		if ln, w.start.Exchange, err = ports.Take(0, listen); err != nil {
			unix.Close(w.held)
			return nil, fail(job.ExitSystem, "", "take a port at which the workers of all nodes find each other: %w", err)
		}
	}
	if ln == nil {
		return w, nil
	}
	defer ln.Close() // the child has it
	if w.start.AgentStore {
		exchange = words
	}
	return w, w.serve(ctx, c, ln, exchange)
}

// agentStore reports whether the agent hosts the workers' store. By default rank 0 does, as without a launcher:
// under an agent's store, user code that makes groups of its own hangs in one PyTorch or another
// (docs/worker-store.md has the table).
func agentStore(c Config) bool { return c.WorkerStore == "agent" }

// serve hands the listener to a child, this program with these words, that serves an empty store on it. Connections wait in the
// listener's queue until the child is there.
func (w *workerStore) serve(ctx context.Context, c Config, ln net.Listener, words []string) error {
	file, err := ln.(*net.TCPListener).File()
	if err != nil {
		return fail(job.ExitSystem, "", "pass on the workers' port: %w", err)
	}
	defer file.Close()
	w.child, err = c.First.Start(ctx, proc.Spec{
		Argv:   append([]string{"/proc/self/exe"}, words...), // this program, also when its file was replaced
		Output: true,
		Files:  []*os.File{file},
	})
	if err != nil {
		return fail(job.ExitSystem, "", "start the workers' store: %w", err)
	}
	return nil
}

// ended delivers the end of the store's process, which should not come.
func (w *workerStore) ended() <-chan proc.Exit {
	if w == nil || w.child == nil {
		return nil
	}
	return w.child.Exit
}

// close ends the store: no worker needs it any more.
func (w *workerStore) close(c Config) {
	if w == nil {
		return
	}
	if w.held >= 0 {
		unix.Close(w.held)
	}
	if w.child != nil {
		c.end(w.child) // and its port is free
	}
}

// end kills a child that has nothing to save.
func (c Config) end(child *proc.Child) {
	c.First.Signal(child.PID, syscall.SIGKILL, proc.Tree)
	select {
	case <-child.Exit:
	case <-time.After(childEnd):
		c.Log.Warn(fmt.Sprintf("a child of muster's own (pid %d) does not end", child.PID))
	}
}

// childEnd is how long a child that was killed may take to be gone.
const childEnd = 2 * time.Second

// takePort takes the workers' port, with words for people where that fails.
func takePort[T any](c Config, take func(port int, lingering bool) (T, error)) (T, int, error) {
	got, port, err := ports.Take(c.WorkerPort, take)
	asked := c.said("worker-port", c.WorkerPort)
	switch {
	case c.WorkerPort != 0 && errors.Is(err, syscall.EADDRINUSE):
		err = fail(job.ExitStranger, "choose another, or none", "%s is held by another program%s", asked, ports.Holder(c.WorkerPort))
	case c.WorkerPort != 0 && err != nil:
		err = fail(job.ExitSystem, "choose another, or none", "take %s for the workers: %w", asked, err)
	case err != nil:
		err = fail(job.ExitSystem, "say --worker-port", "take a port for the workers: %w", err)
	}
	return got, port, err
}

// listenOn listens where the workers of all nodes can reach it. Go sets SO_REUSEADDR, by which that would also do at a port that somebody
// else holds for his workers. One that nobody asked for is held for a moment itself.
func listenOn(host string, port int, lingering bool) (net.Listener, error) {
	if !lingering {
		held, err := ports.Hold(port, lingering)
		if err != nil {
			return nil, err
		}
		defer unix.Close(held)
	}
	if !isLoopback(host) {
		host = ""
	}
	return net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}
