package pid1

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
)

// A terminal with an interactive bash on it: what a person sees and types.
type terminal struct {
	t      *testing.T
	master *os.File
	bash   *exec.Cmd
	bytes  chan byte
	seen   bytes.Buffer
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var name string
	raw, _ := master.SyscallConn()
	err = raw.Control(func(fd uintptr) {
		_ = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		n, _ := unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		name = fmt.Sprintf("/dev/pts/%d", n)
	})
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	x := &terminal{t: t, master: master, bytes: make(chan byte, 1<<20)}
	x.bash = exec.Command("bash", "--norc", "--noprofile", "-i")
	x.bash.Env = append(environ(), "PS1=> ", "BIN="+self(), "HISTFILE=", "TERM=dumb")
	x.bash.Stdin, x.bash.Stdout, x.bash.Stderr = slave, slave, slave
	x.bash.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := x.bash.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			for _, c := range b[:n] {
				x.bytes <- c
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = x.bash.Process.Kill()
		_ = x.bash.Wait()
		master.Close()
		<-read
	})
	return x
}

func (x *terminal) send(text string) {
	x.t.Helper()
	if _, err := x.master.WriteString(text); err != nil {
		x.t.Fatal(err)
	}
}

// await returns what is seen until text comes, text included.
func (x *terminal) await(text string) string {
	x.t.Helper()
	from := x.seen.Len()
	timeout := time.After(patience)
	for {
		if i := strings.Index(x.seen.String()[from:], text); i >= 0 {
			return x.seen.String()[from : from+i+len(text)]
		}
		select {
		case c := <-x.bytes:
			x.seen.WriteByte(c)
		case <-timeout:
			x.t.Fatalf("no %q in\n%s", text, x.seen.String())
		}
	}
}

// ticking is a worker that shows that it lives. It starts nothing: a process that waits in vfork does not show that it is stopped.
const ticking = `'exec python3 -uc "
import itertools, os, signal, time
def saved(*_): print(\"saved\"); os._exit(3)
signal.signal(signal.SIGTERM, saved)
signal.signal(signal.SIGINT, lambda *_: print(\"worker got INT\"))
for i in itertools.count(): print(\"tick\", i); time.sleep(0.02)"'`

// job returns the first process, the agent and the worker that run on the terminal.
func (x *terminal) job() (first, agent, worker proc.Process) {
	x.t.Helper()
	all, err := table.All()
	if err != nil {
		x.t.Fatal(err)
	}
	for _, p := range all {
		if p.Parent == x.bash.Process.Pid {
			first = p
		}
	}
	for _, p := range all {
		switch {
		case p.Parent != first.PID:
		case p.Name == first.Name:
			agent = p
		default:
			worker = p
		}
	}
	if first.PID == 0 || agent.PID == 0 || worker.PID == 0 {
		x.t.Fatalf("no job: %+v", proc.Below(all, x.bash.Process.Pid))
	}
	return first, agent, worker
}

// stopped waits until p is.
func (x *terminal) stopped(p proc.Process) {
	x.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		now, _ := table.Process(p.PID)
		if now.State == 'T' {
			return
		}
		if time.Now().After(deadline) {
			x.t.Fatalf("%s %d is in state %c", p.Name, p.PID, now.State)
		}
	}
}

// foreground waits until what is typed is for p.
func (x *terminal) foreground(p proc.Process) {
	x.t.Helper()
	raw, err := x.master.SyscallConn()
	if err != nil {
		x.t.Fatal(err)
	}
	for front, deadline := 0, time.Now().Add(patience); front != p.Group; {
		_ = raw.Control(func(fd uintptr) { front, _ = unix.IoctlGetInt(int(fd), unix.TIOCGPGRP) })
		if time.Now().After(deadline) {
			x.t.Fatalf("the foreground is %d, not %d", front, p.Group)
		}
	}
}

func TestCtrlC(t *testing.T) {
	for name, before := range map[string]string{"plain": "", "tostop": "stty tostop; "} {
		t.Run(name, func(t *testing.T) {
			x := newTerminal(t)
			x.send(before + `MUSTER_TEST_AGENT=run "$BIN" ` + ticking + "; echo status $?.\n")
			x.await("] tick 3")
			x.send("\x03")
			seen := x.await("status 3.")
			if n := strings.Count(seen, "agent got interrupt"); n != 1 {
				t.Errorf("the agent got %d interrupts:\n%s", n, seen)
			}
			if strings.Contains(seen, "worker got INT") || !strings.Contains(seen, "saved") {
				t.Errorf("the worker should have got TERM, nothing else:\n%s", seen)
			}
		})
	}
}

// A worker that has standard input reads what is typed; the others, and one without, would be stopped by the kernel.
func TestTyped(t *testing.T) {
	x := newTerminal(t)
	x.send(`MUSTER_TEST_STDIN=1 MUSTER_TEST_AGENT=run "$BIN" 'echo ready; read a; echo "got $a"; exit 3'; echo status $?.` + "\n")
	x.await("] ready")
	x.send("typed\n")
	x.await("] got typed")
	x.await("status 3.")
}

func TestCtrlZ(t *testing.T) {
	x := newTerminal(t)
	x.send(`MUSTER_TEST_AGENT=run "$BIN" ` + ticking + "; echo status $?.\n")
	x.await("] tick 3")
	first, agent, worker := x.job()
	for range 3 {
		x.send("\x1a")
		x.await("Stopped")
		for _, p := range []proc.Process{first, agent, worker} {
			x.stopped(p)
		}
		x.send("fg\n")
		x.await("] tick")
		x.await("] tick")
	}
	x.send("\x1a")
	x.await("Stopped")
	x.send("bg\n")
	x.await("] tick")
	x.await("] tick")
	x.send("fg\n")
	x.foreground(first)
	x.send("\x03")
	x.await("saved")
	x.await("> ")
	x.send("echo status $?.\n")
	x.await("status 3.")
}

// The agent is killed while all is stopped: at "fg" the workers are continued, and stopped in order.
func TestCtrlZAndAgentKilled(t *testing.T) {
	x := newTerminal(t)
	x.send(`MUSTER_TEST_AGENT=run "$BIN" ` + ticking + "\n")
	x.await("] tick 3")
	_, agent, worker := x.job()
	x.send("\x1a")
	x.await("Stopped")
	if err := unix.Kill(agent.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	x.send("fg\n")
	x.await("saved")
	x.await("> ")
	x.send("echo status $?.\n")
	x.await("status 138.")
	if now, err := table.Process(worker.PID); err == nil && now.Start == worker.Start {
		t.Errorf("the worker is in state %c", now.State)
	}
}

// The terminal goes away while everything is stopped: the kernel continues the shell's jobs with HUP.
func TestHangupWhileStopped(t *testing.T) {
	x := newTerminal(t)
	x.send(`MUSTER_TEST_AGENT=run "$BIN" ` + ticking + "\n")
	x.await("] tick 3")
	first, _, _ := x.job()
	x.send("\x1a")
	x.await("Stopped")
	_ = x.bash.Process.Kill()
	for deadline := time.Now().Add(patience); ; {
		if now, err := table.Process(first.PID); err != nil || now.State != 'T' && now.State != 'D' { // D: in vfork, for its stopped child
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it is still stopped")
		}
	}
	for _, p := range having(t, "worker got INT") {
		_ = unix.Kill(p.PID, unix.SIGTERM)
	}
}
