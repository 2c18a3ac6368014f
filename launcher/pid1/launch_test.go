package pid1

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
)

// self is this binary, by a name that works in another /proc.
func self() string {
	path, err := filepath.EvalSymlinks("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	return path
}

// environ is ours, and lets a binary built with -race end without a second of sleep.
func environ() []string { return append(os.Environ(), "GORACE=atexit_sleep_ms=0") }

// launch starts argv. By os/exec: this test binary is an agent, and agents have no children of their own but these.
func launch(t *testing.T, flags uintptr, env, argv []string) *life {
	t.Helper()
	if argv[0] == "/proc/self/exe" {
		argv[0] = self()
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if flags&unix.CLONE_NEWPID != 0 {
		cmd.SysProcAttr.Unshareflags = unix.CLONE_NEWNS // with it, Go makes the mounts private
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	l := &life{t: t, PID: cmd.Process.Pid, in: in, lines: make(chan string, 10000), code: make(chan int, 1)}
	go func() {
		defer r.Close()
		for s := bufio.NewScanner(r); s.Scan(); {
			l.lines <- s.Text()
		}
		err := cmd.Wait()
		var exit *exec.ExitError
		switch {
		case err == nil:
			l.code <- 0
		case errors.As(err, &exit) && exit.ExitCode() >= 0:
			l.code <- exit.ExitCode()
		default:
			l.code <- -1
		}
		close(l.lines)
	}()
	t.Cleanup(func() {
		all, err := table.All()
		if err != nil {
			t.Error(err)
		}
		_ = unix.Kill(l.PID, unix.SIGKILL)         // before what it would replace
		for _, p := range proc.Below(all, l.PID) { // some stand still, and would for ever
			_ = unix.Kill(p.PID, unix.SIGKILL)
		}
	})
	return l
}

// having returns the processes whose command line contains text.
func having(t *testing.T, text string) []proc.Process {
	t.Helper()
	all, err := table.All()
	if err != nil {
		t.Fatal(err)
	}
	var found []proc.Process
	for _, p := range all {
		line, _ := os.ReadFile(filepath.Join("/proc", itoa(p.PID), "cmdline"))
		if strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), text) && p.PID != os.Getpid() && p.PID != os.Getppid() && !p.Gone() {
			found = append(found, p)
		}
	}
	return found
}

func wantNobody(t *testing.T, text string) {
	t.Helper()
	for _, p := range having(t, text) {
		t.Errorf("left over: %+v", p)
	}
}
