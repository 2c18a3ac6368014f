package launcher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
)

// A workerStore is where the workers of one round meet, on the leader's node. It is fresh each round: PyTorch from
// 2.6 on puts no round into its keys, so that a store that is used again breaks a restart.
type workerStore struct {
	start start
	port  net.Listener // rank 0's port, kept until it is started; nil when a child serves it
	child *proc.Child  // the store that the agent hosts, a process of its own
}

// openWorkerStore takes a port and, where the agent hosts the store, starts the process that serves it.
func openWorkerStore(ctx context.Context, c Config, host string, agent bool) (*workerStore, error) {
	ln, err := listenForWorkers(c.WorkerPort, host)
	if err != nil {
		return nil, err
	}
	w := &workerStore{port: ln, start: start{Port: ln.Addr().(*net.TCPAddr).Port, AgentStore: agent}}
	if agent {
		err = w.serve(ctx, c)
	}
	if err != nil {
		ln.Close()
		return nil, err
	}
	return w, nil
}

// serve hands the listener to a child that serves an empty store on it. Connections wait in the listener's queue
// until the child is there.
func (w *workerStore) serve(ctx context.Context, c Config) error {
	file, err := w.port.(*net.TCPListener).File()
	if err != nil {
		return fail(job.ExitSystem, "", "pass on the workers' port: %w", err)
	}
	defer file.Close()
	self, err := os.Executable()
	if err != nil {
		return fail(job.ExitSystem, "", "find muster's own program: %w", err)
	}
	w.child, err = c.First.Start(ctx, proc.Spec{
		Argv:   []string{self, "store", "serve", "--inherit"},
		Env:    c.Environ,
		Output: true,
		Files:  []*os.File{file},
		Label:  "store",
	})
	if err != nil {
		return fail(job.ExitSystem, "", "start the workers' store: %w", err)
	}
	w.port.Close()
	w.port = nil
	return nil
}

// release lets go of the port that rank 0 is about to take.
func (w *workerStore) release() {
	if w != nil && w.port != nil {
		w.port.Close()
		w.port = nil
	}
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
	w.release()
	if w != nil && w.child != nil {
		c.First.Signal(w.child.PID, syscall.SIGKILL, proc.Leader) // it has nothing to save
	}
}

// listenForWorkers binds the workers' port: the one that was asked for, else a free one outside the range from
// which the kernel takes ports for outgoing connections, so that none of those can have it in the next round.
func listenForWorkers(port int, host string) (net.Listener, error) {
	addr := ""
	if isLoopback(host) {
		addr = host
	}
	if port != 0 {
		ln, err := net.Listen("tcp", net.JoinHostPort(addr, strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fail(job.ExitStranger, "choose another, or none", "--worker-port %d is held by another program%s", port, holder(":"+strconv.Itoa(port)))
		}
		if err != nil {
			return nil, fail(job.ExitSystem, "", "take the workers' port: %w", err)
		}
		return ln, nil
	}
	low, high := freeRange()
	for range 64 {
		candidate := low + rand.IntN(high-low)
		if ln, err := net.Listen("tcp", net.JoinHostPort(addr, strconv.Itoa(candidate))); err == nil {
			return ln, nil
		}
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
	if err != nil {
		return nil, fail(job.ExitSystem, "", "find a free port for the workers: %w", err)
	}
	return ln, nil
}

// freeRange returns a range of unprivileged ports outside net.ipv4.ip_local_port_range
// (kernel, Documentation/networking/ip-sysctl.rst), below it where there is room.
func freeRange() (low, high int) {
	data, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range") // without it, the kernel's default
	first, last := 32768, 60999
	if f := strings.Fields(string(data)); len(f) == 2 {
		a, errA := strconv.Atoi(f[0])
		b, errB := strconv.Atoi(f[1])
		if errA == nil && errB == nil && a <= b {
			first, last = a, b
		}
	}
	switch {
	case first > 21000:
		return max(20000, first-12000), first
	case last < 64000:
		return last + 1, 65536
	}
	return 20000, 30000
}

// holder names the program that listens on addr's port, as far as /proc shows it to us: " (pid 12, nginx)".
func holder(addr string) string {
	inode := listenerInode(portOf(addr))
	if inode == "" {
		return ""
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == "socket:["+inode+"]" {
			pid := strings.Split(link, "/")[2]
			name, _ := os.ReadFile("/proc/" + pid + "/comm")
			return fmt.Sprintf(" (pid %s, %s)", pid, strings.TrimSpace(string(name)))
		}
	}
	return ""
}

// listenerInode finds the socket that listens on port (proc_net_tcp(5): state 0A, port in hexadecimal).
func listenerInode(port string) string {
	n, err := strconv.Atoi(port)
	if err != nil {
		return ""
	}
	suffix := fmt.Sprintf(":%04X", n)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, _ := os.ReadFile(table)
		for _, row := range strings.Split(string(data), "\n") {
			if f := strings.Fields(row); len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], suffix) {
				return f[9]
			}
		}
	}
	return ""
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}
