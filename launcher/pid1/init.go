package pid1

import (
	"errors"
	"os"
	ossignal "os/signal"
	"runtime"
	"slices"
	"syscall"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1/early"
	"github.com/muster-run/muster/proc"
	"golang.org/x/sys/unix"
)

// InitOptions are what tini and dumb-init can be told.
type InitOptions struct {
	Group       bool           // signals go to the child's process group, not to the child alone
	Subreaper   bool           // adopt orphans although we are not PID 1
	ParentDeath syscall.Signal // to be sent to us when our parent dies; 0: none
	Warn        bool           // say so for each orphan that is reaped
	Zero        []int          // exit codes of the child that become 0
	Verbose     int            // 1: what is started and how it ends; 2: each signal too

	// Rewrite maps a signal that comes to the one that is passed on; 0 drops it.
	Rewrite map[syscall.Signal]syscall.Signal
}

// Init starts argv, passes on signals, reaps what is orphaned, and returns what main is to exit with: argv's exit code,
// 128+n when signal n ended it, 127 when there is no such command, 126 when it cannot be run.
func Init(argv []string, opt InitOptions) int {
	if why := cramped(12, 16); why != "" { // fewer files and threads than beside an agent
		complain("%s", why)
		return job.ExitSystem
	}
	runtime.LockOSThread() // PR_SET_PDEATHSIG is this thread's
	opt.prepare()
	i := initProcess{opt: opt, signals: make(chan os.Signal, 64)}
	i.catch()
	ended := make(chan os.Signal, 1)
	ossignal.Notify(ended, unix.SIGCHLD)
	if err := i.start(argv); err != nil {
		complain("%v", err)
		var e *proc.StartError
		if errors.As(err, &e) {
			return e.Code
		}
		return 1
	}
	for {
		select {
		case s := <-i.signals:
			i.pass(s.(syscall.Signal))
		case <-ended:
			if code, over := i.reap(); over {
				return code
			}
		}
	}
}

type initProcess struct {
	opt     InitOptions
	signals chan os.Signal
	child   int
}

func (o InitOptions) prepare() {
	if o.ParentDeath != 0 {
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(o.ParentDeath), 0, 0, 0); err != nil {
			complain("parent death signal: %v", err)
		}
	}
	if o.Subreaper {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			complain("adopt orphans: %v", err)
		}
	} else if os.Getpid() != 1 {
		complain("not PID 1: orphans go to somebody else; -s adopts them")
	}
}

// catch takes every signal that can be passed on, to the child or as Rewrite says. Not taken: those that a process
// gets for its own faults, CHLD, the terminal's TTIN and TTOU, and URG, which Go's scheduler sends to itself. Go keeps PROF.
// What is ignored stays so, for the child too.
func (i *initProcess) catch() {
	never := []syscall.Signal{
		unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG, unix.SIGTTIN, unix.SIGTTOU,
		unix.SIGFPE, unix.SIGILL, unix.SIGSEGV, unix.SIGBUS, unix.SIGABRT, unix.SIGTRAP, unix.SIGSYS,
	}
	ignored := ignoredSignals()
	for s := syscall.Signal(1); s <= 64; s++ {
		between := s >= 32 && s <= 34 // of the C library; Go leaves them alone
		if !between && !slices.Contains(never, s) && !ignored(s) {
			ossignal.Notify(i.signals, s)
		}
	}
	if os.Getpid() == 1 {
		ossignal.Notify(make(chan os.Signal, 1), unix.SIGABRT) // Go's default would end us
	}
	early.HandOver(i.signals)
}

// start runs argv in its own process group, to which the terminal, if there is one, is handed over.
func (i *initProcess) start(argv []string) error {
	spawner := spawner{work: make(chan spawn), done: make(chan func())}
	go spawner.run(&registry{pids: map[int]bool{}}) // as long as the process
	s := spawn{argv: argv, env: os.Environ(), files: []int{0, 1, 2}, core: true, keepMask: true}
	s.sys.Setpgid = true
	var failed error
	s.answer = func(pid int, _ uint64, err error) { i.child, failed = pid, err }
	spawner.work <- s
	(<-spawner.done)()
	if failed != nil {
		return failed
	}
	i.verbose(1, "started %s as pid %d", argv[0], i.child)
	i.handOver()
	return nil
}

// handOver makes the child's process group the terminal's foreground, if ours is that now. We do it, not the child between
// fork and exec: TTOU would stop it there, and it would have to inherit that signal as blocked or ignored.
func (i *initProcess) handOver() {
	front, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	if err != nil || front != unix.Getpgrp() {
		return // no terminal, or we are in its background
	}
	if err := unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, i.child); err != nil {
		complain("hand the terminal over: %v", err)
	}
	_ = unix.Kill(-i.child, unix.SIGCONT) // it may have tried to read too early
}

// pass sends s on.
func (i *initProcess) pass(s syscall.Signal) {
	to, rewritten := i.opt.Rewrite[s]
	if !rewritten {
		to = s
	}
	if to == 0 {
		i.verbose(2, "dropped signal %d", int(s))
		return
	}
	pid := i.child
	if i.opt.Group {
		pid = -pid
	}
	i.verbose(2, "signal %d came, %d goes to %d", int(s), int(to), pid)
	if err := unix.Kill(pid, to); err != nil && !errors.Is(err, unix.ESRCH) {
		complain("pass on signal %d: %v", int(to), err)
	}
}

// reap takes all that have ended. It reports whether the child was among them, and with which code.
func (i *initProcess) reap() (code int, over bool) {
	for {
		e, err := wait()
		if err != nil || e.PID == 0 {
			return code, over
		}
		if e.PID == i.child {
			i.verbose(1, "pid %d %v", e.PID, e)
			code, over = i.codeOf(e), true
		} else if i.opt.Warn {
			complain("reaped orphan pid %d, which %v", e.PID, e)
		}
	}
}

func (i *initProcess) codeOf(e proc.Exit) int {
	if slices.Contains(i.opt.Zero, e.Status()) {
		return 0
	}
	return e.Status()
}

func (i *initProcess) verbose(level int, format string, args ...any) {
	if i.opt.Verbose >= level {
		complain(format, args...)
	}
}
