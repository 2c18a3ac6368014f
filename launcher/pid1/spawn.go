package pid1

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/timerslack"
)

// A spawn is one thing to start.
type spawn struct {
	path       string // "": look for argv[0]
	argv, env  []string
	dir        string
	files      []int // descriptors 0, 1, 2, …
	sys        syscall.SysProcAttr
	core       bool
	oom        int
	binding    proc.Binding
	keepMask   bool  // of blocked signals
	scripts    bool  // what is no program, and has no first line such as #!/bin/sh, is a shell's, as for execvp(3)
	closeAfter []int // ours no longer, once the child has them

	answer func(pid int, start uint64, err error)
	drop   func() // in place of starting it: nobody wants it any more
}

// A spawner starts processes from one thread that lives as long as we do: Pdeathsig is sent when the thread that
// forked ends, not the process, and Go ends a thread whose goroutine returns while locked to it.
type spawner struct {
	work chan spawn
	done chan func() // answers, for the main loop to run
}

// run starts what comes, for ever.
func (s *spawner) run(known *registry) {
	runtime.LockOSThread()
	told := map[string]bool{}
	once := func(text string) {
		if !told[text] {
			told[text] = true
			complain("%s", text)
		}
	}
	for w := range s.work {
		known.fork.Lock()
		pid, err := fork(w, once)
		if err == nil {
			known.add(pid)
		}
		known.fork.Unlock()
		closeAll(w.closeAfter)
		var start uint64
		if err == nil {
			p, _ := table.Process(pid) // it may have ended and been reaped: then 0
			start = p.Start
		}
		s.done <- func() { w.answer(pid, start, err) }
	}
}

// fork starts w. Every error is a *proc.StartError; what w goes without is told.
func fork(w spawn, tell func(string)) (int, error) {
	if len(w.argv) == 0 || w.argv[0] == "" {
		return 0, &proc.StartError{Code: 127, Text: "start: no command given"}
	}
	path := w.path
	if path == "" {
		var err error
		if path, err = LookPath(w.argv[0], w.dir, w.env); err != nil {
			return 0, err
		}
	}
	if !w.keepMask {
		// A mask that we inherited is not for our children. Go blocks all signals around the fork and then gives
		// the child this thread's mask.
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, new(unix.Sigset_t), nil)
	}
	defer limitCore(w.core)()
	defer raiseOOM(w.oom)()
	defer bind(w.binding, tell)()
	attr := &syscall.ProcAttr{Dir: w.dir, Env: w.env, Sys: &w.sys}
	for _, fd := range w.files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	pid, err := forkPatiently(path, w.argv, attr)
	if w.scripts && errors.Is(err, syscall.ENOEXEC) {
		pid, err = forkPatiently("/bin/sh", append([]string{"/bin/sh", path}, w.argv[1:]...), attr)
	}
	if err != nil {
		return 0, explain(path, err)
	}
	return pid, nil
}

// forkPatiently tries again for a second when there is no room for another process: it is often only for a moment.
func forkPatiently(path string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	for pause := 10 * time.Millisecond; pause < time.Second; pause *= 2 {
		err = timerslack.Given(func() (err error) {
			pid, err = syscall.ForkExec(path, argv, attr)
			return err
		})
		if attr.Sys.UseCgroupFD && cgroupRefused(err) {
			attr.Sys.UseCgroupFD = false
			continue
		}
		if !errors.Is(err, syscall.EAGAIN) {
			return pid, err
		}
		time.Sleep(pause)
	}
	return pid, err
}

// cgroupRefused reports whether a process could not be started because of the cgroup that it was to be in: clone3(2) is not let through
// by a container's filter, or the cgroup takes no processes, or somebody removed it. What has another reason will fail again.
func cgroupRefused(err error) bool {
	return err != nil && !errors.Is(err, syscall.EAGAIN)
}

// limitCore sets the soft RLIMIT_CORE that the next child inherits to 0, unless it may keep ours, and returns what undoes it.
func limitCore(keep bool) (undo func()) {
	var old unix.Rlimit
	if keep || unix.Getrlimit(unix.RLIMIT_CORE, &old) != nil || old.Cur == 0 {
		return func() {}
	}
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 0, Max: old.Max})
	return func() { _ = unix.Setrlimit(unix.RLIMIT_CORE, &old) }
}

// raiseOOM makes the next child likelier to be killed for memory than we are, and returns what undoes it for us. To raise needs
// no privilege, nor to lower again what was raised without one. Failing does no harm.
func raiseOOM(by int) (undo func()) {
	const file = "/proc/self/oom_score_adj"
	if by == 0 {
		return func() {}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return func() {}
	}
	ours, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	_ = os.WriteFile(file, []byte(strconv.Itoa(min(ours+by, 1000))), 0)
	return func() { _ = os.WriteFile(file, b, 0) }
}
