package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A running is a job under way.
type running struct {
	dir    string
	fifo   *os.File
	agents []*agent
	stamps []stamp
	began  time.Time
}

// An agent is one started command line.
type agent struct {
	cmd    *exec.Cmd
	ended  chan struct{} // closed at its end, after the following were set
	at     time.Time
	status string
}

// A stamp is what a worker says in its main.
type stamp struct {
	node, local, pid int
	at               time.Time
	fd               int // pidfd: no other process is ever meant by it
}

// begin starts all agents of a job and waits until all workers have stamped the clock.
func begin(l launcher, j job, dir, worker string, within time.Duration) (*running, error) {
	r := &running{}
	var err error
	if r.dir, err = os.MkdirTemp(dir, "job-"); err != nil {
		return nil, err
	}
	path := filepath.Join(r.dir, "stamps")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, err
	}
	// Also open for writing, so that it never ends.
	if r.fifo, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	if j.port, err = freePort(); err != nil {
		return nil, err
	}
	j.id = filepath.Base(r.dir)
	j.worker = append([]string{worker, path}, j.worker...)
	r.began = time.Now()
	for node := range j.nodes {
		if err := r.start(l.agent(j, node), node); err != nil {
			r.end()
			return nil, err
		}
	}
	go r.hurry()
	if err := r.collect(j.nodes*j.workers, within); err != nil {
		r.end()
		return nil, fmt.Errorf("%s: %w\n%s", l.name, err, r.said())
	}
	return r, nil
}

// freePort returns a port which nothing listens at now, below those that the kernel gives to clients.
func freePort() (int, error) {
	for n := 21000; n < 30000; n++ {
		port := 21000 + (n+int(time.Now().UnixNano()))%9000
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, ln.Close()
		}
	}
	return 0, fmt.Errorf("no free port")
}

func (r *running) start(argv []string, node int) error {
	a := &agent{cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	a.cmd.Env = append(os.Environ(), "BENCH_NODE="+strconv.Itoa(node), "OMP_NUM_THREADS=1")
	a.cmd.Dir = r.dir
	// A file for what they say: a goroutine that copied a pipe would wait for orphans of the agent too.
	log, err := os.Create(filepath.Join(r.dir, fmt.Sprint("agent", node)))
	if err != nil {
		return err
	}
	defer log.Close()
	a.cmd.Stdout, a.cmd.Stderr = log, log
	if err := a.cmd.Start(); err != nil {
		return err
	}
	r.agents = append(r.agents, a)
	go func() {
		err := a.cmd.Wait()
		a.at, a.status = time.Now(), "0"
		if err != nil {
			a.status = status(a.cmd.ProcessState)
		}
		close(a.ended)
	}()
	return nil
}

func status(s *os.ProcessState) string {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return w.Signal().String()
	}
	return strconv.Itoa(s.ExitCode())
}

// hurry ends the wait for stamps when there is no agent left. It returns when they have ended, which end sees to.
func (r *running) hurry() {
	for _, a := range r.agents {
		<-a.ended
	}
	r.fifo.SetReadDeadline(time.Now().Add(time.Second))
}

// collect reads the workers' stamps.
func (r *running) collect(n int, within time.Duration) error {
	if err := r.fifo.SetReadDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	lines := bufio.NewScanner(r.fifo)
	for len(r.stamps) < n && lines.Scan() {
		var s stamp
		var ns int64
		if _, err := fmt.Sscan(lines.Text(), &s.node, &s.local, &s.pid, &ns); err != nil {
			return fmt.Errorf("stamp %q: %w", lines.Text(), err)
		}
		s.at = time.Unix(0, ns)
		var err error
		if s.fd, err = unix.PidfdOpen(s.pid, unix.PIDFD_NONBLOCK); err != nil {
			s.fd = -1 // it has ended already
		}
		r.stamps = append(r.stamps, s)
	}
	if len(r.stamps) < n {
		return fmt.Errorf("%d of %d workers began within %v", len(r.stamps), n, within)
	}
	return nil
}

// last is the time from the start of the agents to the last worker's main.
func (r *running) last() time.Duration {
	var last time.Duration
	for _, s := range r.stamps {
		last = max(last, s.at.Round(0).Sub(r.began.Round(0))) // wall clocks both
	}
	return last
}

// gone returns when the last of the workers of one node had ended, but for those to be left out.
func (r *running) gone(node int, from time.Time, within time.Duration) time.Duration {
	var left []unix.PollFd
	for _, s := range r.stamps {
		if s.node == node && s.fd >= 0 {
			left = append(left, unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN})
		}
	}
	for len(left) > 0 {
		rest := within - time.Since(from)
		if rest <= 0 {
			return never
		}
		if n, err := unix.Poll(left, int(rest.Milliseconds())+1); n == 0 || err != nil && err != unix.EINTR {
			continue
		}
		alive := left[:0]
		for _, p := range left {
			if p.Revents == 0 {
				alive = append(alive, p)
			}
		}
		left = alive
	}
	return time.Since(from)
}

// exited waits for the end of an agent.
func (r *running) exited(node int, from time.Time, within time.Duration) (time.Duration, string) {
	a := r.agents[node]
	select {
	case <-a.ended:
		return a.at.Sub(from), a.status
	case <-time.After(max(0, within-time.Since(from))):
		return never, "-"
	}
}

// end kills what is left of the job, the workers first, and forgets it.
func (r *running) end() {
	for _, s := range r.stamps {
		if s.fd >= 0 {
			unix.PidfdSendSignal(s.fd, unix.SIGKILL, nil, 0)
		}
	}
	for _, a := range r.agents {
		select {
		case <-a.ended:
			continue
		case <-time.After(2 * time.Second):
		}
		a.cmd.Process.Kill() // a torchrun in its exit barrier
		<-a.ended
	}
	for _, s := range r.stamps {
		if s.fd >= 0 {
			unix.Close(s.fd)
		}
	}
	r.fifo.Close()
}

func (r *running) said() string {
	var all []byte
	for node := range r.agents {
		text, _ := os.ReadFile(filepath.Join(r.dir, fmt.Sprint("agent", node)))
		all = append(all, text...)
	}
	return string(all)
}
