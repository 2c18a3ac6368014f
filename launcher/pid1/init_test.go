package pid1

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
)

// initMain is "muster init" for these tests.
func initMain(argv []string) int {
	opt := InitOptions{Rewrite: map[syscall.Signal]syscall.Signal{}}
	flags := flag.NewFlagSet("init", flag.ExitOnError)
	flags.BoolVar(&opt.Group, "g", false, "")
	flags.BoolVar(&opt.Subreaper, "s", false, "")
	flags.BoolVar(&opt.Warn, "w", false, "")
	flags.IntVar(&opt.Verbose, "v", 0, "")
	flags.Func("p", "", func(s string) error { _, err := fmt.Sscan(s, (*int)(&opt.ParentDeath)); return err })
	flags.Func("e", "", func(s string) error {
		var n int
		_, err := fmt.Sscan(s, &n)
		opt.Zero = append(opt.Zero, n)
		return err
	})
	flags.Func("rewrite", "", func(s string) error {
		var from, to syscall.Signal
		_, err := fmt.Sscanf(s, "%d:%d", &from, &to)
		opt.Rewrite[from] = to
		return err
	})
	_ = flags.Parse(argv)
	return Init(flags.Args(), opt)
}

var initEnv = []string{"MUSTER_TEST_INIT=1"}

func TestInitCodes(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		argv []string
		code int
		want string
	}{
		{argv: []string{"--", "true"}, code: 0},
		{argv: []string{"--", "false"}, code: 1},
		{argv: []string{"--", "sh", "-c", "exit 64"}, code: 64},
		{argv: []string{"--", "sh", "-c", "exit 255"}, code: 255},
		{argv: []string{"--", "sh", "-c", "kill -TERM $$"}, code: 143},
		{argv: []string{"--", "sh", "-c", "kill -KILL $$"}, code: 137},
		{argv: []string{"-e", "3", "-e", "143", "--", "sh", "-c", "kill -TERM $$"}, code: 0},
		{argv: []string{"-e", "3", "-e", "143", "--", "sh", "-c", "exit 3"}, code: 0},
		{argv: []string{"-e", "3", "-e", "143", "--", "sh", "-c", "exit 4"}, code: 4},
		{argv: []string{"--", "no-such"}, code: 127, want: "muster: start no-such: no such command in PATH"},
		{argv: []string{"--", dir}, code: 126, want: "muster: start " + dir + ": is a directory"},
		{argv: nil, code: 127, want: "muster: start: no command given"},
	} {
		everywhere(t, func(t *testing.T, w world) {
			if code, out := w.start(t, initEnv, c.argv...).end(); code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("%q: exit %d\n%s", c.argv, code, out)
			}
		})
	}
}

func TestInitZero(t *testing.T) {
	for zero := range 256 {
		i := initProcess{opt: InitOptions{Zero: []int{zero}}}
		for code := range 256 {
			want := code
			if code == zero {
				want = 0
			}
			e := proc.Exit{Code: code}
			if got := i.codeOf(e); got != want {
				t.Fatalf("-e %d: %d becomes %d", zero, code, got)
			}
		}
	}
}

func TestInitPassesStandardInput(t *testing.T) {
	l := worlds[0].start(t, initEnv, "--", "sh")
	fmt.Fprintln(l.in, "echo hello; exit 9")
	if code, out := l.end(); code != 9 || !strings.Contains(out, "hello") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

// The child makes a hundred orphans, and looks who is left under init when they have ended.
const orphanage = `
import os, sys, time
n = int(sys.argv[1])
for i in range(n):
    if os.fork() == 0:
        if os.fork() == 0: time.sleep(0.2)
        os._exit(0)
    os.wait()
parent = os.getppid()
deadline = time.time() + 10
while time.time() < deadline:
    under = [p for t in os.listdir(f'/proc/{parent}/task') for p in open(f'/proc/{parent}/task/{t}/children').read().split()]
    if under == [str(os.getpid())]: break
print(f'{len(under)} left') # in one write, beside others'
`

func TestInitReaps(t *testing.T) {
	for name, c := range map[string]struct {
		world int
		argv  []string
		lines int // of warnings
		want  string
	}{
		"PID 1":         {world: 1, want: "1 left"},
		"PID 1, -w":     {world: 1, argv: []string{"-w"}, lines: 100, want: "1 left"},
		"subreaper, -w": {argv: []string{"-s", "-w"}, lines: 100, want: "1 left"},
		"neither":       {want: "muster: not PID 1: orphans go to somebody else; -s adopts them"},
	} {
		t.Run(name, func(t *testing.T) {
			argv := append(c.argv, "--", "python3", "-c", orphanage, "100")
			code, out := worlds[c.world].start(t, initEnv, argv...).end()
			if n := strings.Count(out, "muster: reaped orphan pid "); code != 0 || n != c.lines || !strings.Contains(out, c.want) {
				t.Errorf("exit %d, %d warnings\n%s", code, n, out)
			}
		})
	}
}

// tell prints each signal that it gets and ends at a TERM. It has them blocked and waits for them: between a handler and pause(2) one could
// be missed.
const tell = `
import os, signal
every = set(range(1, 65)) - {9, 17, 19, 32, 33}
signal.pthread_sigmask(signal.SIG_BLOCK, every)
print('up', os.getpid(), flush=True)
while True:
    s = signal.sigwait(every)
    print('got', s, flush=True)
    if s == signal.SIGTERM: os._exit(0)
`

func TestInitPassesSignals(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		l := w.start(t, initEnv, "--", "python3", "-c", tell)
		l.await("up")
		for s := unix.Signal(1); s <= 64; s++ {
			switch s {
			case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGTTIN, unix.SIGTTOU, unix.SIGURG, unix.SIGPROF, unix.SIGTERM, 32, 33, 34,
				unix.SIGFPE, unix.SIGILL, unix.SIGSEGV, unix.SIGBUS, unix.SIGABRT, unix.SIGTRAP, unix.SIGSYS:
				continue
			}
			l.signal(s)
			if line, want := l.next(), fmt.Sprintf("got %d", int(s)); line != want {
				t.Errorf("%q, want %q", line, want)
			}
		}
		l.signal(unix.SIGTERM)
		if code, out := l.end(); code != 0 || strings.Contains(out, "got 23") {
			t.Errorf("exit %d\n%s", code, out)
		}
	})
}

func TestInitRewrites(t *testing.T) {
	l := worlds[0].start(t, initEnv, "-v", "2", "--rewrite", "10:12", "--rewrite", "12:10", "--rewrite", "2:0", "--rewrite", "1:31", "--", "python3", "-c", tell)
	l.await("up")
	for _, c := range []struct {
		send unix.Signal
		want string
	}{{unix.SIGUSR1, "got 12"}, {unix.SIGUSR2, "got 10"}, {unix.SIGINT, "muster: dropped signal 2"}, {unix.SIGHUP, "got 31"}, {unix.SIGWINCH, "got 28"}} {
		l.signal(c.send)
		l.await(c.want)
	}
	l.signal(unix.SIGTERM)
	if code, out := l.end(); code != 0 || strings.Contains(out, "got 2\n") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

// The child ignores USR1, what it started does not: with -g the signal ends that, and the child after it.
func TestInitGroup(t *testing.T) {
	script := `
import os, signal
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    print('up', flush=True)
    while True: signal.pause()
_, status = os.wait()
os._exit(os.WTERMSIG(status))
`
	l := worlds[0].start(t, initEnv, "-g", "--", "python3", "-c", script)
	l.await("up")
	l.signal(unix.SIGUSR1)
	if code, out := l.end(); code != 10 {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestInitParentDeath(t *testing.T) {
	cmd := []string{"python3", "-c", `
import os, subprocess, sys, time
p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
print(p.stdout.readline(), end='', flush=True)
print('parent', os.getpid(), flush=True)
os.dup2(p.stdout.fileno(), 0)
os.execvp('sleep', ['sleep', '1000'])
`, self(), "-p", "12", "--", "python3", "-c", tell}
	l := launch(t, 0, initEnv, cmd)
	var child int
	if _, err := fmt.Sscanf(l.await("up"), "up %d", &child); err != nil {
		t.Fatal(err)
	}
	l.await("parent")
	log := filepath.Join("/proc", itoa(child), "fd/1")
	out, err := os.Open(log) // the pipe to the parent, read by us when it is gone
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	l.signal(unix.SIGKILL)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "got 12\n" {
		t.Errorf("%q, %v", line, err)
	}
	_ = unix.Kill(child, unix.SIGKILL)
}

// withoutInternal clears the signals 32 and 33 in a line of /proc/PID/status: they are libc's own, and ignored in whatever
// a program starts by glibc's posix_spawn, as make does.
func withoutInternal(status string) string {
	return hexMask.ReplaceAllStringFunc(status, func(mask string) string {
		n, _ := strconv.ParseUint(mask, 16, 64)
		return fmt.Sprintf("%016x", n&^(1<<31|1<<32))
	})
}

var hexMask = regexp.MustCompile(`\b[0-9a-f]{16}\b`)

// What was ignored or blocked for init is so for its child, as with tini, as far as Go's runtime lets it.
func TestInitKeepsSignalState(t *testing.T) {
	before := `
import os, signal, sys
for s in signal.SIGINT, signal.SIGHUP, signal.SIGTTOU: signal.signal(s, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
os.execv(sys.argv[1], sys.argv[1:])
`
	path := filepath.Join(t.TempDir(), "before.py")
	if err := os.WriteFile(path, []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out := launch(t, 0, initEnv, []string{"python3", path, self(), "-s", "--", "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"}).end()
	if want := "SigBlk:\t0000000000000800\nSigIgn:\t0000000000200003"; code != 0 || withoutInternal(out) != want {
		t.Errorf("exit %d\n%s", code, out)
	}
}

// The terminal belongs to the child: it reads what is typed, and Ctrl-C is for it.
func TestInitTerminal(t *testing.T) {
	x := newTerminal(t)
	x.send(`MUSTER_TEST_INIT=1 "$BIN" -s -- sh -c 'echo up; exec cat'; echo status $?.` + "\n")
	x.await("\nup")
	x.send("hello\n")
	x.await("hello\r\nhello")
	x.send("\x04")
	x.await("status 0.")
	x.send(`MUSTER_TEST_INIT=1 "$BIN" -s -- sh -c 'echo up; exec sleep 1000'; echo status $?.` + "\n")
	x.await("\nup")
	x.send("\x03")
	x.await("status 130.")
}

// An onlooker whose init is gone before it looked is one that hears nothing, not another init.
func TestOnlookerOrphaned(t *testing.T) {
	t.Setenv(onlooker, "-1")
	news, is := Onlooker()
	if !is {
		t.Fatal("it would start the command again")
	}
	if told, more := <-news; more {
		t.Errorf("heard %+v", told)
	}
}
