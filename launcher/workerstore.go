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

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
)

// A workerStore is where the workers of one round meet, on the leader's node. It is fresh each round: PyTorch from
// 2.6 on puts no round into its keys, so that a store that is used again breaks a restart.
type workerStore struct {
	start start
	held  int         // rank 0 hosts the store: the socket that keeps its port; -1: none
	child *proc.Child // the agent hosts it: the process that serves it
}

// openWorkerStore takes a port and, where the agent hosts the store, starts the process that serves it.
func openWorkerStore(ctx context.Context, c Config, host string) (*workerStore, error) {
	w := &workerStore{held: -1, start: start{AgentStore: agentStore(c)}}
	var err error
	if !w.start.AgentStore {
		w.held, w.start.Port, err = takePort(c.WorkerPort, holdPort)
		return w, err
	}
	listen := func(port int, _ bool) (net.Listener, error) { return listenOn(host, port) }
	var ln net.Listener
	if ln, w.start.Port, err = takePort(c.WorkerPort, listen); err != nil {
		return nil, err
	}
	defer ln.Close() // the child has it
	return w, w.serve(ctx, c, ln)
}

// agentStore reports whether the agent hosts the workers' store. By default rank 0 does, as without a launcher:
// under an agent's store, user code that makes groups of its own hangs in one PyTorch or another
// (docs/worker-store.md has the table).
func agentStore(c Config) bool { return c.WorkerStore == "agent" }

// serve hands the listener to a child that serves an empty store on it. Connections wait in the listener's queue
// until the child is there.
func (w *workerStore) serve(ctx context.Context, c Config, ln net.Listener) error {
	file, err := ln.(*net.TCPListener).File()
	if err != nil {
		return fail(job.ExitSystem, "", "pass on the workers' port: %w", err)
	}
	defer file.Close()
	w.child, err = c.First.Start(ctx, proc.Spec{
		Argv:   []string{"/proc/self/exe", "store", "serve", "--inherit"}, // this program, also when its file was replaced
		Output: true,
		Files:  []*os.File{file},
		Label:  "store",
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
		c.First.Signal(w.child.PID, syscall.SIGKILL, proc.Leader) // it has nothing to save
	}
}

// takePort takes the port that was asked for, or a free one outside the range from which the kernel takes ports for
// outgoing connections. take is told whether the port may be one that connections of an earlier run still linger on.
func takePort[T any](asked int, take func(port int, lingering bool) (T, error)) (T, int, error) {
	var none T
	if asked != 0 {
		got, err := take(asked, true)
		if errors.Is(err, syscall.EADDRINUSE) {
			return none, 0, fail(job.ExitStranger, "choose another, or none", "--worker-port %d is held by another program%s", asked, holder(asked))
		}
		if err != nil {
			return none, 0, fail(job.ExitSystem, "", "take port %d for the workers: %w", asked, err)
		}
		return got, asked, nil
	}
	low, high := freeRange()
	var err error
	for range 256 {
		port := low + rand.IntN(high-low)
		var got T
		if got, err = take(port, false); err == nil {
			return got, port, nil
		}
	}
	return none, 0, fail(job.ExitSystem, "say --worker-port", "find a free port from %d to %d for the workers: %w", low, high-1, err)
}

// listenOn listens where the workers of all nodes can reach it.
func listenOn(host string, port int) (net.Listener, error) {
	if !isLoopback(host) {
		host = ""
	}
	return net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}

// holdPort keeps a port for rank 0: the socket is bound and never listens. With SO_REUSEADDR on both, as PyTorch has
// it, Linux lets rank 0 bind and listen beside it (net/ipv4/inet_connection_sock.c, inet_csk_bind_conflict), while
// nobody else is given the port. A port that must be free of lingering connections is bound without that option first.
func holdPort(port int, lingering bool) (int, error) {
	fd, addr, err := anySocket(port)
	if err != nil {
		return -1, err
	}
	for _, step := range holdSteps(fd, addr, lingering) {
		if err := step(); err != nil {
			unix.Close(fd)
			return -1, err
		}
	}
	return fd, nil
}

func holdSteps(fd int, addr unix.Sockaddr, lingering bool) []func() error {
	reuse := func() error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }
	bind := func() error { return unix.Bind(fd, addr) }
	if lingering {
		return []func() error{reuse, bind}
	}
	return []func() error{bind, reuse}
}

// anySocket makes a socket for all addresses of both families, or of IPv4 where the kernel has no IPv6.
func anySocket(port int) (int, unix.Sockaddr, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return fd, &unix.SockaddrInet4{Port: port}, err
	}
	err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	return fd, &unix.SockaddrInet6{Port: port}, err
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

// holder names the program that listens on a port, as far as /proc shows it to us: " (pid 12, nginx)".
func holder(port int) string {
	inode := listenerInode(port)
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
func listenerInode(port int) string {
	suffix := fmt.Sprintf(":%04X", port)
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
