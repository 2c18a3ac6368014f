package pid1

import (
	"os"
	ossignal "os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/launcher/pid1/early"
)

// control are the signals by which a person or a platform steers a job. They go to the agent and to nobody else.
// Not URG: Go's scheduler sends itself dozens a second under load. Not CHLD: it is news for us.
var control = []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH}

// systemdStop is RTMIN+3, by which images that were made for systemd are told to stop (STOPSIGNAL). To PID 1 it means TERM.
const systemdStop = syscall.Signal(37)

// catch directs the signals to c that have a meaning for the first process.
//
// Nothing is ever ignored with signal.Ignore: children would inherit it. A signal caught is reset to its default in a child.
func catch(c chan os.Signal, isInit bool) {
	ignored := ignoredSignals()
	// SIGPIPE: else the Go runtime ends us when standard output is closed.
	dropped := []os.Signal{unix.SIGPIPE}
	for _, s := range control {
		if ignored(s) { // by nohup, or a shell's "&" without job control: so be it, for the agent too, but not for workers
			dropped = append(dropped, s)
		} else {
			ossignal.Notify(c, s)
		}
	}
	switch {
	case isInit: // nobody could say "fg" to us; the kernel drops stop signals
		ossignal.Notify(c, systemdStop)
		drop(faults)
		drop([]syscall.Signal{unix.SIGSTKFLT, unix.SIGXCPU, unix.SIGXFSZ})
	case !ignored(unix.SIGTSTP):
		ossignal.Notify(c, unix.SIGTSTP)
	}
	ossignal.Notify(make(chan os.Signal, 1), dropped...)
	early.HandOver(c)
}

// faults are the signals that a process gets for its own faults. The kernel keeps them from PID 1 when others send them, unless there is a
// handler; Go has handlers for all, which would end us, and the container. Real faults do so still.
var faults = []syscall.Signal{unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGSEGV, unix.SIGSYS, unix.SIGTRAP}

// drop keeps Go from ending us at these signals.
func drop(all []syscall.Signal) {
	for _, s := range all {
		ossignal.Notify(make(chan os.Signal, 1), s)
	}
}

// ignoredSignals returns which signals are ignored at the moment. (os/signal knows it only of INT and HUP.)
func ignoredSignals() func(os.Signal) bool {
	var set uint64
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if hex, ok := strings.CutPrefix(line, "SigIgn:"); ok {
			set, _ = strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		}
	}
	return func(s os.Signal) bool { return set>>(s.(syscall.Signal)-1)&1 == 1 }
}

// control handles a signal that came to the first process.
func (f *first) control(s os.Signal) {
	switch s {
	case unix.SIGTSTP:
		f.suspend()
		return
	case systemdStop:
		s = unix.SIGTERM
	}
	f.held = append(f.held, s)
	if f.hello {
		f.release()
	}
}

// helloTime is how long a signal waits for an agent that has not yet had the time to catch it, and would die of it. One that hangs
// before its hello can be ended all the same.
const helloTime = 5 * time.Second

// release forwards what was held back.
func (f *first) release() {
	if f.agent == 0 || f.agentEnd != nil { // perhaps another one comes
		return
	}
	for _, s := range f.held {
		f.forward(s.(syscall.Signal))
		f.forwarded[s] = time.Now()
	}
	f.held = nil
}

// forward tells the agent of a signal. It is told in words: what comes to the agent as a signal is somebody else's.
func (f *first) forward(s syscall.Signal) {
	if f.hello {
		f.tell(message{Kind: tellSignal, Signal: s})
		return
	}
	_ = unix.Kill(f.agent, s)
}

func (f *first) sent(s os.Signal) bool { return !f.forwarded[s].IsZero() }

// unheeded is how old a signal may be that an agent which died may not have heeded. Agents take a moment, unless they are
// stopped.
const unheeded = time.Second

// repeat says to the next agent what the last one may have died over. A request to stop is never lost: it is repeated
// as TERM, for a second one changes nothing, while a second INT would kill the workers.
func (f *first) repeat() {
	var again []os.Signal
	if f.sent(unix.SIGTERM) || f.sent(unix.SIGINT) {
		again = append(again, unix.SIGTERM)
	}
	for _, s := range []os.Signal{unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH} {
		if time.Since(f.forwarded[s]) < unheeded {
			again = append(again, s)
		}
	}
	f.held = append(again, f.held...)
	clear(f.forwarded)
}

// suspend does what Ctrl-Z means: everything stops, in the order in which nobody is surprised, and goes on at "fg" or "bg".
func (f *first) suspend() {
	f.groups(unix.SIGSTOP)
	f.signalAgent(unix.SIGSTOP)
	stopSelf()
	f.fence() // before they go on
	f.signalAgent(unix.SIGCONT)
	f.groups(unix.SIGCONT)
}

// stopSelf stops this process until somebody continues it. The signal goes to this very thread: it is stopped before the
// call returns. With TSTP the shell would learn more exactly why, but Go keeps its handler for it.
func stopSelf() {
	if orphanedGroup() {
		return // no shell is there to continue us, and the kernel would not have stopped us either
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// orphanedGroup reports whether no parent outside our process group, but in our session, looks after it (POSIX.1).
// It asks for our own parent only: whoever else is in the group came from the same shell.
func orphanedGroup() bool {
	parent := os.Getppid()
	session, err := unix.Getsid(parent)
	if err != nil {
		return true
	}
	ours, _ := unix.Getsid(0)
	group, _ := unix.Getpgid(parent)
	return session != ours || group == unix.Getpgrp()
}

// groups sends s to the process group of every child that lives.
func (f *first) groups(s syscall.Signal) {
	for pid, c := range f.children {
		if c.alive {
			_ = unix.Kill(-pid, s)
		}
	}
}

func (f *first) signalAgent(s syscall.Signal) {
	if f.agent != 0 && f.agentEnd == nil {
		_ = unix.Kill(f.agent, s)
	}
}
