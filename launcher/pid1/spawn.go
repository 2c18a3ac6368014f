package pid1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/muster-run/muster/proc"
	"golang.org/x/sys/unix"
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
	keepMask   bool  // of blocked signals
	closeAfter []int // ours no longer, once the child has them

	answer func(pid int, start uint64, err error)
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
	for w := range s.work {
		known.fork.Lock()
		pid, err := fork(w)
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

// fork starts w. Every error is a *proc.StartError.
func fork(w spawn) (int, error) {
	if len(w.argv) == 0 || w.argv[0] == "" {
		return 0, &proc.StartError{Code: 127, Text: "start: no command given"}
	}
	path := w.path
	if path == "" {
		var err error
		if path, err = lookPath(w.argv[0], w.dir, w.env); err != nil {
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
	attr := &syscall.ProcAttr{Dir: w.dir, Env: w.env, Sys: &w.sys}
	for _, fd := range w.files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	pid, err := forkPatiently(path, w.argv, attr)
	if err != nil {
		return 0, explain(path, err)
	}
	return pid, nil
}

// forkPatiently tries again for a second when there is no room for another process: it is often only for a moment.
func forkPatiently(path string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	for pause := 10 * time.Millisecond; pause < time.Second; pause *= 2 {
		pid, err = syscall.ForkExec(path, argv, attr)
		if !errors.Is(err, syscall.EAGAIN) {
			return pid, err
		}
		time.Sleep(pause)
	}
	return pid, err
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
	b, err := os.ReadFile(file)
	ours, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	if by == 0 || err != nil {
		return func() {}
	}
	_ = os.WriteFile(file, []byte(strconv.Itoa(min(ours+by, 1000))), 0)
	return func() { _ = os.WriteFile(file, b, 0) }
}

// lookPath finds the file that execvp(3) would run in dir with env: errors are those of a shell, 127 when there is
// no such file, 126 when there is one that cannot be run.
func lookPath(name, dir string, env []string) (string, error) {
	if dir != "" {
		if info, err := os.Stat(dir); err != nil {
			return "", &proc.StartError{Code: 126, Text: fmt.Sprintf("start %s: its directory: %v", name, err)}
		} else if !info.IsDir() {
			return "", &proc.StartError{Code: 126, Text: fmt.Sprintf("start %s: its directory: %s is not one", name, dir)}
		}
	}
	if strings.Contains(name, "/") {
		path := within(dir, name)
		return path, explain(path, runnable(path))
	}
	search := pathOf(env)
	var found error // something of that name that cannot be run; perhaps a later one can
	for _, elem := range filepath.SplitList(search) {
		path := within(dir, filepath.Join(elem, name)) // an empty element is the directory itself
		err := runnable(path)
		if err == nil {
			return path, nil
		}
		if found == nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			found = explain(path, err)
		}
	}
	if found != nil {
		return "", found
	}
	return "", &proc.StartError{Code: 127, Text: fmt.Sprintf("start %s: no such command in PATH (%s)", name, search)}
}

// pathOf returns the PATH of env, and what execvp uses when there is none.
func pathOf(env []string) string {
	path := "/bin:/usr/bin"
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = value
		}
	}
	return path
}

// within makes path absolute, seen from dir: the directory is changed before the file is run, but we look before.
func within(dir, path string) string {
	if filepath.IsAbs(path) || dir == "" {
		return path
	}
	return filepath.Join(dir, path)
}

// runnable reports why path is no program.
func runnable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return errors.Unwrap(err) // the cause without "stat path"
	}
	if info.IsDir() {
		return syscall.EISDIR
	}
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
}

// explain turns the error of looking at or running path into words and a shell's code; nil stays nil.
func explain(path string, err error) error {
	code, why := 126, ""
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOENT):
		code, why = 127, missing(path)
	case errors.Is(err, syscall.ENOTDIR):
		code, why = 127, "no such file"
	case errors.Is(err, syscall.EISDIR):
		why = "is a directory"
	case errors.Is(err, syscall.EACCES):
		why = "permission denied; is it executable (chmod +x)?"
	case errors.Is(err, syscall.ENOEXEC):
		why = "not a program for this machine, nor a script with a first line such as #!/bin/sh"
	case errors.Is(err, syscall.E2BIG):
		why = "arguments and environment are too long"
	case errors.Is(err, syscall.EAGAIN):
		code, why = 125, "no room for another process (pids.max of the cgroup, or ulimit -u)"
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		code, why = 125, err.Error()
	default:
		why = err.Error()
	}
	return &proc.StartError{Code: code, Text: fmt.Sprintf("start %s: %s", path, why)}
}

// missing says what ENOENT meant: the file, or the interpreter that it names.
func missing(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "no such file"
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 4096).ReadSlice('\n') // the kernel reads 256 bytes
	words, ok := bytes.CutPrefix(line, []byte("#!"))
	switch fields := bytes.Fields(words); {
	case bytes.HasPrefix(line, []byte("\x7fELF")):
		return "its dynamic loader is not on this machine (another C library?)"
	case !ok || len(fields) == 0:
		return "no such file"
	case bytes.HasSuffix(line, []byte("\r\n")):
		return fmt.Sprintf("its first line ends with CR LF, so its interpreter would be %q", fields[0]) + `+"\r"`
	default:
		return fmt.Sprintf("its interpreter %s is not there", fields[0])
	}
}
