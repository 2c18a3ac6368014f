package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/timerslack"
)

// A Server runs commands for those who have one of its keys.
type Server struct {
	Keys []Key

	// Prepare makes the process of a command, whose variables, directory and streams are set later. It is to end when it
	// gets TERM, and to live as long as what it started: what is below it is killed when it does not.
	Prepare func(Command) *exec.Cmd

	Grace time.Duration                 // from TERM to KILL when a connection is lost
	Say   func(string, ...any)          // to people: who was refused, what was broken off
	Files func(dir string) (env string) // the variable by which a command learns in which directory its files are
}

// maxGuests bounds connections on which nobody has proved anything yet.
const maxGuests = 128

// Serve answers until ctx ends; then it ends what runs, and returns when all of it is gone. It closes ln.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	var all sync.WaitGroup
	defer all.Wait()
	defer ln.Close()
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	guests := make(chan struct{}, maxGuests)
	for {
		c, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // of one connection, or for want of descriptors
			s.Say("accept: %v", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		select {
		case guests <- struct{}{}:
			all.Go(func() { s.greet(ctx, c, func() { <-guests }) })
		default:
			s.Say("%v is refused: too many have not said who they are", c.RemoteAddr())
			c.Close()
		}
	}
}

// greet finds out who called, and serves him.
func (s *Server) greet(ctx context.Context, c net.Conn, known func()) {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) }) // as long as it is nobody's
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(alive)
	}
	l, err := admit(c, s.Keys)
	known()
	switch {
	case !stop():
		return
	case errors.Is(err, errSilent):
		return
	case err != nil:
		s.Say("%v is refused: %v", c.RemoteAddr(), err)
		return
	}
	if err := s.serve(ctx, l); err != nil {
		s.Say("for %v: %v", c.RemoteAddr(), err)
	}
}

// serve runs the command that l asks for.
func (s *Server) serve(ctx context.Context, l *line) error {
	stop := context.AfterFunc(ctx, func() { l.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	c, err := l.receiveCommand()
	if errors.Is(err, io.EOF) { // who only looked whether anybody serves here
		return nil
	}
	if err != nil {
		return fmt.Errorf("what is to be run: %w", err)
	}
	p, err := s.start(c)
	if err != nil {
		return errors.Join(err, l.send(failed, []byte(err.Error())))
	}
	defer p.remove()
	lost := make(chan struct{})
	var owned sync.WaitGroup
	owned.Go(func() { defer close(lost); p.feed(l) }) // until the connection ends
	over := make(chan struct{})
	owned.Go(func() { defer close(over); p.pump(l) }) // until the process has ended, and all that writes for it
	select {
	case <-over:
		if l.send(ended, []byte{p.code()}) == nil {
			_ = l.SetReadDeadline(time.Now().Add(helloTime)) // it hangs up when it has read that
			<-lost
		}
	case <-lost:
		l.Close() // what writes for nobody is not to stand still
		why := "the connection was lost"
		if ctx.Err() != nil {
			why = "sshd is to end"
		}
		err = p.end(why, s.Grace)
	}
	l.Close()
	owned.Wait()
	return err
}

// A process is a command that runs.
type process struct {
	cmd             *exec.Cmd
	in, out, errput *os.File      // our ends of its streams
	done            chan struct{} // closed when it has ended
	dir             string        // of its files; "": it has none
}

func (s *Server) start(c Command) (p *process, err error) {
	p = &process{cmd: s.Prepare(c), done: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir = append(os.Environ(), Strings(c.Env)...), string(c.Dir)
	if p.cmd.Dir == "" {
		p.cmd.Dir = home()
	}
	if _, err := os.Stat(p.cmd.Dir); err != nil { // of which exec would say that the program is not there
		return nil, fmt.Errorf("working directory: %w", err)
	}
	if len(c.Files) > 0 {
		if p.dir, err = lay(c.Files); err != nil {
			return nil, err
		}
		p.cmd.Env = append(p.cmd.Env, s.Files(p.dir))
	}
	if err := p.spawn(); err != nil {
		p.remove()
		return nil, err
	}
	return p, nil
}

// spawn starts the process with pipes for its streams.
func (p *process) spawn() (err error) {
	var theirs [3]*os.File
	ours := []**os.File{&p.in, &p.out, &p.errput}
	defer func() {
		for i, f := range theirs {
			f.Close() // of nil, too
			if err != nil {
				(*ours[i]).Close()
			}
		}
	}()
	for i, our := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		if *our, theirs[i] = r, w; i == 0 {
			*our, theirs[i] = w, r
		}
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	return timerslack.Given(p.cmd.Start)
}

// remove takes away the command's files.
func (p *process) remove() {
	if p.dir != "" {
		os.RemoveAll(p.dir)
	}
}

// feed gives the process what the connection brings for it, until that ends.
func (p *process) feed(l *line) {
	pieces := make(chan []byte, 1) // the caller sends the next when this one was taken
	var owned sync.WaitGroup
	owned.Go(func() { p.write(l, pieces) })
	defer owned.Wait()
	defer p.in.Close() // so that write does not wait for the process
	defer close(pieces)
	for {
		k, data, err := l.receive()
		if err != nil || k != input {
			return
		}
		select {
		case pieces <- data:
		default:
			return // it did not wait
		}
	}
}

// write writes pieces to the process. One that does not read any more has not to.
func (p *process) write(l *line, pieces <-chan []byte) {
	for data := range pieces {
		if len(data) == 0 {
			p.in.Close()
			continue
		}
		_, _ = p.in.Write(data)
		if l.send(taken, nil) != nil {
			return
		}
	}
}

// pump sends what the process writes, until it has ended and all that it left its streams to.
func (p *process) pump(l *line) {
	var owned sync.WaitGroup
	owned.Go(func() { copyOut(l, out, p.out) })
	owned.Go(func() { copyOut(l, errput, p.errput) })
	_ = p.cmd.Wait() // its state says more
	close(p.done)
	owned.Wait()
}

// copyOut sends what is read from f. When nobody hears it any more, the writer is not to stand still for that.
func copyOut(l *line, k kind, f *os.File) {
	defer f.Close()
	buffer := make([]byte, maxData)
	for deaf := false; ; {
		n, err := f.Read(buffer)
		if n > 0 && !deaf {
			deaf = l.send(k, buffer[:n]) != nil
		}
		if err != nil {
			return
		}
	}
}

// code is the exit code of a process that has ended, as a shell has it.
func (p *process) code() byte {
	w, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if w.Signaled() {
		return byte(128 + int(w.Signal()))
	}
	return byte(w.ExitStatus())
}

// end ends the process and all that it started. What an earlier command left behind when it had ended is none of it.
func (p *process) end(why string, grace time.Duration) error {
	defer p.out.Close() // what has them may live on, if the process had ended before
	defer p.errput.Close()
	command := p.command()
	_ = p.cmd.Process.Signal(unix.SIGTERM) // it may have ended
	late, look := time.NewTimer(grace), time.NewTicker(100*time.Millisecond)
	defer late.Stop()
	defer look.Stop()
	for waiting := true; waiting; {
		select {
		case <-p.done:
			return errors.New(why + "; the command was stopped")
		case <-look.C:
			if command.PID != 0 && p.orphaned(command) {
				command.PID = 0
			}
		case <-late.C:
			waiting = false
		}
	}
	err := killBelow(p.cmd.Process.Pid)
	_ = p.cmd.Process.Kill()
	<-p.done
	if err != nil {
		return fmt.Errorf("%s; kill the command: %w", why, err)
	}
	return fmt.Errorf("%s; the command did not end within %v, and was killed", why, grace)
}

const table = proc.Root("/proc")

// command is what the process runs and waits for: the oldest that it started.
func (p *process) command() (oldest proc.Process) {
	all, _ := table.All() // none: it will be killed with all else
	for _, q := range all {
		older := cmp.Or(cmp.Compare(q.Start, oldest.Start), cmp.Compare(q.PID, oldest.PID)) < 0 // many start in one tick
		if q.Parent == p.cmd.Process.Pid && (oldest.PID == 0 || older) {
			oldest = q
		}
	}
	return oldest
}

// orphaned tells what the command left in other process groups to end, once the command itself has, and reports whether it has.
func (p *process) orphaned(command proc.Process) bool {
	all, err := table.All()
	if err != nil || slices.ContainsFunc(all, func(q proc.Process) bool {
		return q.PID == command.PID && q.Start == command.Start && !q.Gone()
	}) {
		return false
	}
	for _, q := range proc.Below(all, p.cmd.Process.Pid) {
		_ = unix.Kill(q.PID, unix.SIGTERM) // it may have ended
	}
	return true
}

const killTime = 10 * time.Second

// killBelow kills all that descends from a process.
func killBelow(pid int) error {
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	left, err := table.Kill(ctx, proc.Hunt{Find: func(all []proc.Process) []proc.Process { return proc.Below(all, pid) }})
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("process %d does not die", left[0].PID)
	}
	return err
}

func home() string {
	if dir, err := os.UserHomeDir(); err == nil {
		if i, err := os.Stat(dir); err == nil && i.IsDir() {
			return dir
		}
	}
	return "/"
}

// lay writes files below a directory of their own.
func lay(files map[string][]byte) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "muster-files-"); err != nil {
		return "", err
	}
	for path, text := range files {
		at := filepath.Join(dir, filepath.Join("/", path)) // no way leads up from /
		if err = os.MkdirAll(filepath.Dir(at), 0o700); err == nil {
			err = os.WriteFile(at, text, 0o600)
		}
		if err != nil {
			os.RemoveAll(dir)
			return "", err
		}
	}
	return dir, nil
}
