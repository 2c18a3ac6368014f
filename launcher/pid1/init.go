package pid1

import (
	"cmp"
	"errors"
	"os"
	ossignal "os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1/early"
	"github.com/muster-run/muster/proc"
)

// Apart is how the command is set apart from init.
type Apart int

const (
	// OwnGroup is tini's way: a process group of its own, which gets the terminal. What was blocked or ignored stays so.
	OwnGroup Apart = iota

	// OwnSession is dumb-init's: a session of its own, with the terminal if that was ours, the whole group of which gets the signals, and TERM
	// when the command has ended. Nothing is blocked or ignored. TSTP, TTIN and TTOU stop everybody, init too.
	OwnSession

	// SameGroup is that of dumb-init -c: init's own process group, and the command alone gets the signals.
	SameGroup
)

// InitOptions are what tini and dumb-init can be told.
type InitOptions struct {
	Apart       Apart
	Group       bool           // signals go to the child's process group, not to the child alone
	Subreaper   bool           // adopt orphans although we are not PID 1
	ParentDeath syscall.Signal // to be sent to us when our parent dies; 0: none
	Warn        bool           // say so for each orphan that is reaped
	Zero        []int          // exit codes of the child that become 0
	Linger      time.Duration  // when the command ended of a signal that we passed on: how long what it started may take to end
	NoExec      int            // exit code when argv cannot be started; 0: a shell's, 127 or 126

	// Stay tells which processes below us matter as the command does; nil: none. Once the command has ended, over, init goes on as long as there are
	// any. Signals that go to the command's process group go to those as well that are in another.
	Stay func(over bool) (pids []int)

	Verbose int // -1: not even that orphans are lost; 1: what is started and how it ends; 2: each signal too

	Env    []string // of the command, in the form of os.Environ; nil: ours
	LookOn bool     // this program is started once more, to look on, see Onlooker,
	Note   string   // and hears this

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
	i := initProcess{opt: opt, signals: make(chan os.Signal, 64), skip: map[syscall.Signal]bool{}}
	i.catch()
	ended := make(chan os.Signal, 1)
	ossignal.Notify(ended, unix.SIGCHLD)
	if err := i.start(argv); err != nil {
		complain("%v", err)
		var e *proc.StartError
		if errors.As(err, &e) {
			return cmp.Or(opt.NoExec, e.Code)
		}
		return 1
	}
	if opt.LookOn {
		i.lookOn()
	}
	_ = os.Chdir("/") // so that no file system is in use only because of us
	again(ended)      // who ended before us, as a shell's child that it left to us, sent no signal
	for {
		select {
		case s := <-i.signals:
			i.got(s.(syscall.Signal))
		case <-ended:
			if end, over := i.reap(); over {
				code := i.codeOf(end)
				i.stay(ended)
				i.linger(ended)
				i.farewell(end, code, ended)
				return code
			}
		}
	}
}

type initProcess struct {
	opt     InitOptions
	signals chan os.Signal
	skip    map[syscall.Signal]bool // the next one is the terminal's farewell to us
	told    bool                    // to end
	child   int
	spawner spawner
	beside  beside
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
	} else if os.Getpid() != 1 && !isSubreaper() && o.Verbose >= 0 {
		complain("not PID 1: orphans go to somebody else; -s adopts them")
	}
	// A message on a terminal that we have handed over must not stop us. This thread writes all of them, and no child has its mask.
	var stops unix.Sigset_t
	stops.Val[0] = 1<<(unix.SIGTTIN-1) | 1<<(unix.SIGTTOU-1)
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &stops, nil)
}

// isSubreaper reports whether orphans come to us anyway: who was this process before exec(2) may have seen to it.
func isSubreaper() bool {
	var bit int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&bit)), 0, 0, 0)
	return err == nil && bit == 1
}

// catch takes every signal that can be passed on, to the child or as Rewrite says. Never taken is URG, which Go's scheduler sends
// to itself; Go keeps PROF and 34. tini leaves the faults alone, too, drops the terminal's TTIN and TTOU, and what is ignored stays so, for the child
// as well; dumb-init takes all.
func (i *initProcess) catch() {
	never := []syscall.Signal{unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG}
	ignored := func(os.Signal) bool { return false }
	if i.opt.Apart == OwnGroup {
		never = append(never, unix.SIGTTIN, unix.SIGTTOU)
		never = append(never, faults...)
		ignored = ignoredSignals()
	}
	for s := syscall.Signal(1); s <= 64; s++ {
		between := s >= 32 && s <= 34 // of the C library; Go leaves them alone
		_, rewritten := i.opt.Rewrite[s]
		if !between && (rewritten || !slices.Contains(never, s)) && !ignored(s) {
			ossignal.Notify(i.signals, s)
		}
	}
	for _, s := range []syscall.Signal{unix.SIGTTIN, unix.SIGTTOU} {
		if !ignored(s) {
			drop([]syscall.Signal{s})
		}
	}
	if os.Getpid() == 1 {
		drop(faults)
	}
	early.HandOver(i.signals)
}

// start runs argv, set apart as it is to be.
func (i *initProcess) start(argv []string) error {
	i.spawner = spawner{work: make(chan spawn), done: make(chan func())}
	go i.spawner.run(&registry{pids: map[int]bool{}}) // as long as the process
	s := spawn{argv: argv, env: i.opt.Env, files: []int{0, 1, 2}, core: true, scripts: true}
	if s.env == nil {
		s.env = os.Environ()
	}
	switch i.opt.Apart {
	case OwnGroup:
		s.sys.Setpgid, s.keepMask = true, true
	case OwnSession:
		s.sys.Setsid, s.sys.Setctty = true, i.leaveTerminal()
	}
	var failed error
	s.answer = func(pid int, _ uint64, err error) { i.child, failed = pid, err }
	i.spawner.work <- s
	(<-i.spawner.done)()
	if failed != nil {
		return failed
	}
	i.verbose(1, "started %s as pid %d", argv[0], i.child)
	if i.opt.Apart == OwnGroup {
		i.handOver()
	}
	return nil
}

// leaveTerminal gives up our terminal, which the child's session can then have, and reports whether it was ours to give: that of a session
// which we lead. The kernel says goodbye with HUP and CONT, which are not for the child.
func (i *initProcess) leaveTerminal() bool {
	session, _ := unix.Getsid(0)
	if session != os.Getpid() || unix.IoctlSetInt(0, unix.TIOCNOTTY, 0) != nil {
		return false
	}
	i.skip[unix.SIGHUP], i.skip[unix.SIGCONT] = true, true
	return true
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

// stayTick is how often init looks whether there still is somebody for whom it stays: who is no child of ours ends without a signal.
const stayTick = 500 * time.Millisecond

// stay waits for those who matter as the command did, unless they were told to end: then linger does.
func (i *initProcess) stay(ended <-chan os.Signal) {
	if i.opt.Stay == nil {
		return
	}
	tick := time.NewTicker(stayTick)
	defer tick.Stop()
	for !i.told && len(i.opt.Stay(true)) > 0 {
		select {
		case s := <-i.signals:
			i.got(s.(syscall.Signal))
		case <-ended:
			i.reap()
		case <-tick.C:
		}
	}
}

// linger waits for what the command started, as long as there is any, when it ended because it was told to: a shell dies of
// a signal at once, the job that it runs has work to save. That hears the signals, if they go to the process group.
func (i *initProcess) linger(ended <-chan os.Signal) {
	if i.opt.Linger == 0 || !i.told {
		return
	}
	late := time.NewTimer(i.opt.Linger)
	defer late.Stop()
	for {
		i.reap()
		if err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); errors.Is(err, unix.ECHILD) {
			return
		}
		select {
		case s := <-i.signals:
			i.got(s.(syscall.Signal))
		case <-ended:
		case <-late.C:
			return
		}
	}
}

// got handles a signal that came to us.
func (i *initProcess) got(s syscall.Signal) {
	if i.skip[s] {
		delete(i.skip, s)
		i.verbose(2, "signal %d is about the terminal that we left", int(s))
		return
	}
	i.pass(s)
	if i.opt.Apart != OwnGroup && stops(s) {
		i.verbose(2, "stopping")
		_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP) // as PID 1 we go on: the kernel does not stop that
	}
}

// stops reports whether s is one of the terminal's signals to stop.
func stops(s syscall.Signal) bool {
	return s == unix.SIGTSTP || s == unix.SIGTTIN || s == unix.SIGTTOU
}

// pass sends s on.
func (i *initProcess) pass(s syscall.Signal) {
	to, rewritten := i.opt.Rewrite[s]
	switch {
	case rewritten:
	case i.opt.Apart == OwnSession && stops(s):
		to = unix.SIGSTOP // in an orphaned process group, as a session's first is, the kernel drops the others
	default:
		to = s
	}
	if to == 0 {
		i.verbose(2, "dropped signal %d", int(s))
		return
	}
	pid := i.child
	if i.opt.Apart == OwnSession || i.opt.Apart == OwnGroup && i.opt.Group {
		pid = -pid
	}
	i.told = i.told || to != unix.SIGCONT && to != unix.SIGWINCH && !stops(to)
	i.verbose(2, "signal %d came, %d goes to %d", int(s), int(to), pid)
	if err := unix.Kill(pid, to); err != nil && !errors.Is(err, unix.ESRCH) {
		complain("pass on signal %d: %v", int(to), err)
	}
	if pid < 0 && i.opt.Stay != nil {
		i.passBeyond(to)
	}
}

// passBeyond sends s to those of Stay that have left the command's process group.
func (i *initProcess) passBeyond(s syscall.Signal) {
	for _, pid := range i.opt.Stay(false) {
		if group, err := unix.Getpgid(pid); err == nil && group != i.child {
			_ = unix.Kill(pid, s) // it may have ended
		}
	}
}

// reap takes all that have ended. It reports whether the child was among them, and how that ended. In a session of its own what the child
// leaves behind is told to end; unless we are PID 1, with which the kernel ends all at once.
func (i *initProcess) reap() (end proc.Exit, over bool) {
	for {
		e, err := wait()
		if err != nil || e.PID == 0 {
			if over && i.opt.Apart == OwnSession {
				i.pass(unix.SIGTERM)
			}
			return end, over
		}
		switch {
		case e.PID == i.child:
			i.verbose(1, "pid %d %v", e.PID, e)
			end, over = e, true
		case e.PID == i.beside.pid:
			i.besideEnded(e)
		case i.opt.Warn:
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
