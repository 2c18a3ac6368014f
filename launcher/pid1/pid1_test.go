package pid1

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
)

func itoa(n int) string { return strconv.Itoa(n) }

// sh starts a script with inherited output.
func sh(t *testing.T, script string, change ...func(*proc.Spec)) *proc.Child {
	t.Helper()
	s := proc.Spec{Argv: []string{"sh", "-c", script}, Env: os.Environ()}
	for _, c := range change {
		c(&s)
	}
	child, err := client.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return child
}

// outputOf runs a script to its end and returns what it wrote.
func outputOf(t *testing.T, script string, change ...func(*proc.Spec)) string {
	t.Helper()
	c := sh(t, script, change...)
	defer c.Stderr.Close()
	text := readAll(t, c.Stdout)
	if e := <-c.Exit; e.Status() != 0 {
		t.Errorf("%s: it %v", script, e)
	}
	return text
}

func readAll(t *testing.T, f *os.File) string {
	t.Helper()
	defer f.Close()
	var b strings.Builder
	if _, err := f.WriteTo(&b); err != nil {
		t.Error(err)
	}
	return b.String()
}

// inherit lets a child write to the test's own output: no pipes to look after.
func inherit(s *proc.Spec) { s.Output = true }

func TestExitCodes(t *testing.T) {
	for code := range 256 {
		if e := <-sh(t, fmt.Sprintf("exit %d", code), inherit).Exit; e.Code != code || e.Signal != 0 || e.Status() != code {
			t.Errorf("exit %d: %+v", code, e)
		}
	}
}

func TestDeadlySignals(t *testing.T) {
	for s := syscall.Signal(1); s < 32; s++ {
		switch s {
		case unix.SIGCHLD, unix.SIGCONT, unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGURG, unix.SIGWINCH:
			continue // not deadly
		}
		if e := <-sh(t, fmt.Sprintf("kill -%d $$; exec sleep 10", s), inherit).Exit; e.Signal != s || e.Status() != 128+int(s) || e.Core {
			t.Errorf("signal %d: %+v", s, e)
		}
	}
}

// A child that ends before we know its PID, many at a time.
func TestExitBeforeStartReturns(t *testing.T) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				e := <-sh(t, fmt.Sprintf("exit %d", i), inherit).Exit
				if e.Code != i || e.Lost != "" {
					t.Errorf("exit %d: %+v", i, e)
				}
			}
		})
	}
	all.Wait()
}

func TestExitTellsUsage(t *testing.T) {
	before := time.Now()
	e := <-sh(t, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done", inherit).Exit
	if e.User <= 0 || e.MaxRSS < 100<<10 || e.At.Before(before) || e.At.After(time.Now()) {
		t.Errorf("%+v", e)
	}
}

func TestStopIsNoExit(t *testing.T) {
	c := sh(t, "exec sleep 1000", inherit)
	signal(t, c, unix.SIGSTOP)
	for p, _ := table.Process(c.PID); p.State != 'T'; p, _ = table.Process(c.PID) {
	}
	<-sh(t, "true", inherit).Exit // news comes in order: c's would have come before
	select {
	case e := <-c.Exit:
		t.Errorf("it %v", e)
	default:
	}
	if err := client.KillTree(t.Context(), c.PID); err != nil {
		t.Error(err)
	}
	if e := <-c.Exit; e.Signal != unix.SIGKILL {
		t.Errorf("it %v", e)
	}
}

func signal(t *testing.T, c *proc.Child, s syscall.Signal) {
	t.Helper()
	if err := client.Signal(c.PID, s, proc.Leader); err != nil {
		t.Fatal(err)
	}
}

// The leader of a process has ended, another thread has not: the process lives.
func TestZombieLeaderLives(t *testing.T) {
	script := `
import ctypes, os, sys, threading
def other():
    sys.stdin.readline()
    os._exit(7)
threading.Thread(target=other).start()
print(os.getpid(), flush=True)
ctypes.CDLL(None).pthread_exit(None)
`
	var pair [2]int // os.Pipe's does not block, which Python does not expect
	if err := unix.Pipe2(pair[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w := os.NewFile(uintptr(pair[0]), "r"), os.NewFile(uintptr(pair[1]), "w")
	c := sh(t, `exec python3 -c "$SCRIPT" <&3`, func(s *proc.Spec) {
		s.Env = append(s.Env, "SCRIPT="+script)
		s.Files = []*os.File{r}
	})
	r.Close()
	defer c.Stderr.Close()
	for p, _ := table.Process(c.PID); p.State != 'Z'; p, _ = table.Process(c.PID) {
		if p.PID == 0 {
			t.Fatal("it is gone")
		}
	}
	<-sh(t, "true", inherit).Exit
	select {
	case e := <-c.Exit:
		t.Fatalf("it %v, with a thread alive", e)
	default:
	}
	signal(t, c, unix.SIGWINCH) // it is there
	w.Close()
	if e := <-c.Exit; e.Code != 7 {
		t.Errorf("it %v", e)
	}
	readAll(t, c.Stdout)
	if err := client.Signal(c.PID, unix.SIGTERM, proc.Leader); !errors.Is(err, proc.ErrEnded) {
		t.Errorf("signal after the end: %v", err)
	}
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		argv []string
		dir  string
		code int
		want string
	}{
		{argv: []string{"no-such"}, code: 127, want: "start no-such: no such command in PATH (" + dir + ":/bin)"},
		{argv: []string{"/no/such"}, code: 127, want: "start /no/such: no such file"},
		{argv: []string{"./no-such"}, dir: dir, code: 127, want: "start " + dir + "/no-such: no such file"},
		{argv: []string{dir}, code: 126, want: "start " + dir + ": is a directory"},
		{argv: []string{write("plain", "x", 0o644)}, code: 126, want: "start " + dir + "/plain: permission denied; is it executable (chmod +x)?"},
		{argv: []string{"plain"}, code: 126, want: "start " + dir + "/plain: permission denied; is it executable (chmod +x)?"},
		{argv: []string{write("noexec", "echo hi\n", 0o755)}, code: 126,
			want: "start " + dir + "/noexec: not a program for this machine, nor a script with a first line such as #!/bin/sh"},
		{argv: []string{write("badint", "#!/no/python -u\n", 0o755)}, code: 127, want: "start " + dir + "/badint: its interpreter /no/python is not there"},
		{argv: []string{write("crlf", "#!/bin/sh\r\nexit 0\r\n", 0o755)}, code: 127,
			want: "start " + dir + `/crlf: its first line ends with CR LF, so its interpreter would be "/bin/sh"+"\r"`},
		{argv: []string{"true"}, dir: dir + "/none", code: 126, want: "start true: its directory: stat " + dir + "/none: no such file or directory"},
		{argv: []string{"true"}, dir: dir + "/plain", code: 126, want: "start true: its directory: " + dir + "/plain is not one"},
		{argv: []string{"true", strings.Repeat("x", 200<<10)}, code: 126, want: "start /bin/true: arguments and environment are too long"},
		{argv: nil, code: 127, want: "start: no command given"},
		{argv: []string{""}, code: 127, want: "start: no command given"},
		{argv: []string{"nul\x00byte"}, code: 126, want: "start " + dir + "/nul\x00byte: invalid argument"},
		{argv: []string{"true", "nul\x00byte"}, code: 126, want: "start /bin/true: invalid argument"},
	} {
		_, err := client.Start(t.Context(), proc.Spec{Argv: c.argv, Dir: c.dir, Env: []string{"PATH=" + dir + ":/bin"}})
		var e *proc.StartError
		if !errors.As(err, &e) || e.Code != c.code || c.want != "" && e.Text != c.want {
			t.Errorf("%.60q: %v", c.argv, err)
		}
	}
}

func TestSurroundings(t *testing.T) {
	const where = "grep Cpus_allowed_list /proc/self/status; cut -d' ' -f2 /proc/self/numa_maps | uniq"
	if got := outputOf(t, where, func(s *proc.Spec) { s.Binding = proc.Binding{CPUs: []int{0}, Memory: []int{0}} }); got != "Cpus_allowed_list:\t0\nbind:0\n" {
		t.Errorf("bound to core 0 and memory 0: %q", got)
	}
	if got := outputOf(t, where, func(s *proc.Spec) { s.Binding = proc.Binding{Memory: []int{0}, Prefer: true} }); !strings.HasSuffix(got, "\nprefer:0\n") {
		t.Errorf("memory 0 preferred: %q", got)
	}
	own, _ := os.ReadFile("/proc/self/status")
	if got := outputOf(t, where); !strings.Contains(string(own), strings.TrimSuffix(got, "default\n")) || !strings.HasSuffix(got, "\ndefault\n") {
		t.Errorf("bound to nothing, after others that were: %q", got)
	}
	if got := outputOf(t, "cat /proc/self/oom_score_adj", func(s *proc.Spec) { s.OOM = 300 }); got != "300\n" && got != "1000\n" {
		t.Errorf("oom_score_adj %q", got)
	}
	wd, _ := os.Getwd()
	if got := outputOf(t, "pwd"); got != wd+"\n" {
		t.Errorf("directory %q", got)
	}
	if got := outputOf(t, "pwd", func(s *proc.Spec) { s.Dir = "/usr" }); got != "/usr\n" {
		t.Errorf("directory %q", got)
	}
	if got := outputOf(t, "readlink /proc/self/fd/0"); got != "/dev/null\n" {
		t.Errorf("stdin %q", got)
	}
	if got := outputOf(t, `echo "$MUSTER_WORKER$MUSTER_PID1"`, func(s *proc.Spec) { s.Tag = "a/0/1/b" }); got != "a/0/1/b\n" {
		t.Errorf("environment %q", got)
	}
	if got := outputOf(t, "cut -d' ' -f5,6 /proc/$$/stat; echo $$"); !strings.HasPrefix(got, strings.Fields(got)[2]+" ") {
		t.Errorf("process group, session and PID %q", got)
	}
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// One more than those is where ls reads the directory.
	if got := outputOf(t, "head -c 5 <&4; exec ls /proc/self/fd", func(s *proc.Spec) { s.Files = []*os.File{f, f} }); got != "Name:0\n1\n2\n3\n4\n5\n" {
		t.Errorf("descriptors %q", got)
	}
}

// An environment of several hundred KB, with bytes that are not text.
func TestBigEnvironment(t *testing.T) {
	env := []string{"PATH=" + os.Getenv("PATH"), "RAW=\xff\xfe"}
	for i := range 8 {
		env = append(env, fmt.Sprintf("V%d=%s", i, strings.Repeat(itoa(i), 100<<10)))
	}
	got := outputOf(t, `printf %s "$RAW$V0$V7" | wc -c; printf %s "$RAW" | od -An -tx1`, func(s *proc.Spec) { s.Env = env })
	if got != "204802\n ff fe\n" {
		t.Errorf("%q", got)
	}
}

// What is around the first process is not for its children: descriptors, masks, ignored signals; limits are as they were.
func TestHygiene(t *testing.T) {
	before := `
import os, resource, signal, sys
for fd in 5, 7, 10: os.dup2(0, fd)
resource.setrlimit(resource.RLIMIT_NOFILE, (512, 4096))
resource.setrlimit(resource.RLIMIT_CORE, (4096, 4096))
for s in signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE: signal.signal(s, signal.SIG_IGN)
signal.signal(signal.SIGTTOU, signal.SIG_DFL) # the test itself is an agent
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR2, signal.SIGCHLD])
os.execv(sys.argv[1], sys.argv[1:])
`
	script := `ls -x /proc/self/fd; ulimit -Sn; ulimit -Hn; ulimit -Sc; env | grep ^MUSTER_PID1`
	path := filepath.Join(t.TempDir(), "before.py")
	if err := os.WriteFile(path, []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	l := launch(t, 0, []string{"MUSTER_TEST_AGENT=run"}, []string{"python3", path, self(), script + "; exit 0"})
	code, out := l.end()
	want := []string{"[rank 0] 0  1  2  3", "[rank 0] 512", "[rank 0] 4096", "[rank 0] 0", "[rank 0] exited with 0"}
	if lines := strings.Split(out, "\n"); code != 0 || strings.Join(lines[1:], "\n") != strings.Join(want, "\n") {
		t.Errorf("exit %d\n%s", code, out)
	}
	// No shell here: it would clear the mask itself.
	code, out = launch(t, 0, []string{"MUSTER_TEST_AGENT=run"}, []string{"python3", path, self(), "!grep -E ^Sig(Blk|Ign) /proc/self/status"}).end()
	out = withoutInternal(out)
	if code != 0 || !strings.Contains(out, "SigBlk:\t0000000000000000") || !strings.Contains(out, "SigIgn:\t0000000000000000") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestKillTree(t *testing.T) {
	// A worker that does what it can to leave something behind; everything carries the same number on its command line.
	hydra := `
import os, signal, sys, time
n = sys.argv[1]
def child(*steps, env=os.environ):
    if os.fork() == 0:
        for s in steps:
            if s == 'fork':
                if os.fork(): os._exit(0)
            elif s == 'term': signal.signal(signal.SIGTERM, signal.SIG_IGN)
            else: getattr(os, s)()
        os.execvpe('sleep', ['sleep', n], env)
child()
child('setpgrp')
child('setsid')
child('setsid', 'fork')
child('fork', 'setsid', 'fork')
child('term')
child('setsid', 'fork', 'setsid', env={'PATH': os.environ['PATH']})
print('up', flush=True)
time.sleep(float(sys.argv[2]))
`
	for name, lives := range map[string]string{"leader lives": "1000", "leader has ended": "0"} {
		t.Run(name, func(t *testing.T) {
			number := "1000." + itoa(os.Getpid()) + lives
			c, err := client.Start(t.Context(), proc.Spec{
				Argv: []string{"python3", "-c", hydra, number, lives}, Env: os.Environ(), Tag: "hydra/0/1/" + lives,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Stdout.Close()
			defer c.Stderr.Close()
			for len(having(t, "sleep "+number)) < 7 { // until all heads are grown
			}
			if lives == "0" {
				<-c.Exit
			}
			if err := client.KillTree(t.Context(), c.PID); err != nil {
				t.Error(err)
			}
			wantNobody(t, "sleep "+number)
		})
	}
}

// A chain of processes each of which forks the next in a new session and ends: there is never anyone for long.
func TestKillTreeRestless(t *testing.T) {
	chain := `
import os, time
print('up', flush=True)
while True:
    if os.fork(): os._exit(0)
    os.setsid()
    time.sleep(0.0005)
`
	c, err := client.Start(t.Context(), proc.Spec{Argv: []string{"python3", "-c", chain, "restless"}, Env: os.Environ(), Tag: "chain/0/1/x"})
	if err != nil {
		t.Fatal(err)
	}
	<-c.Exit
	defer c.Stdout.Close()
	defer c.Stderr.Close()
	if err := client.KillTree(t.Context(), c.PID); err != nil {
		t.Error(err)
	}
	wantNobody(t, "restless")
}

func TestGroupScope(t *testing.T) {
	c := sh(t, "sleep 1000 & sleep 1000 & echo up; wait")
	defer c.Stderr.Close()
	b := make([]byte, 3)
	if _, err := c.Stdout.Read(b); err != nil {
		t.Fatal(err)
	}
	if err := client.Signal(c.PID, unix.SIGTERM, proc.Group); err != nil {
		t.Fatal(err)
	}
	if e := <-c.Exit; e.Signal != unix.SIGTERM {
		t.Errorf("it %v", e)
	}
	readAll(t, c.Stdout) // to its end: nobody holds it any more
}

func TestStartGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	number := "1001." + itoa(os.Getpid())
	for range 20 {
		if c, err := client.Start(ctx, proc.Spec{Argv: []string{"sleep", number}, Env: os.Environ()}); err == nil {
			_ = client.KillTree(t.Context(), c.PID) // it was quicker
		} else if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	<-sh(t, "true", inherit).Exit
	for deadline := time.Now().Add(patience); len(having(t, number)) > 0; {
		if time.Now().After(deadline) {
			t.Fatal("abandoned processes live on")
		}
	}
}

func TestAgentEnv(t *testing.T) {
	for _, c := range []struct {
		cpus       int
		user, want string
	}{{2, "", "2"}, {192, "", "8"}, {192, "64", "64"}} {
		t.Setenv("GOMAXPROCS", c.user)
		if c.user == "" {
			os.Unsetenv("GOMAXPROCS")
		}
		var got []string
		for _, kv := range agentEnv(c.cpus, 0) {
			if value, ok := strings.CutPrefix(kv, "GOMAXPROCS="); ok {
				got = append(got, value)
			}
		}
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("%d CPUs, the user says %q: got %q, want %q", c.cpus, c.user, got, c.want)
		}
	}
}

func TestCramped(t *testing.T) {
	if why := cramped(0, 0); why != "" {
		t.Errorf("asking for nothing: %s", why)
	}
	if why := cramped(1<<40, 0); !strings.Contains(why, "muster needs 1099511627776 open files") {
		t.Errorf("asking for too much: %q", why)
	}
}

// A cgroup's limit of processes counts wherever it stands: in our cgroup, above it, in either version, and in a container,
// where the path is the host's.
func TestTasksLeft(t *testing.T) {
	const most = 50 // threads of ours, which count as room
	for name, c := range map[string]struct {
		cgroup string
		files  map[string]string // group below /sys/fs/cgroup: pids.max, pids.current
		file   string
		left   uint64 // without us
	}{
		"no cgroups":      {"", nil, "", math.MaxUint64},
		"no limit":        {"0::/pod\n", map[string]string{"pod": "max 1000"}, "", math.MaxUint64},
		"version 2":       {"0::/pod\n", map[string]string{"pod": "100 1070"}, "/sys/fs/cgroup/pod/pids.max", 0},
		"above":           {"0::/pod/box\n", map[string]string{"pod": "1100 1090", "pod/box": "5000 1010"}, "/sys/fs/cgroup/pod/pids.max", 10},
		"version 1":       {"3:cpu,pids:/box\n2:cpu:/box\n", map[string]string{"pids/box": "1100 1090"}, "/sys/fs/cgroup/pids/box/pids.max", 10},
		"a container's":   {"8:pids:/docker/f00\n", map[string]string{"pids": "1100 1099"}, "/sys/fs/cgroup/pids/pids.max", 1},
		"outside of ours": {"0::/../../f00\n", map[string]string{"": "1100 1000"}, "/sys/fs/cgroup/pids.max", 100},
	} {
		root := t.TempDir()
		put := func(name, text string) {
			file := filepath.Join(root, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		put("proc/self/cgroup", c.cgroup)
		for group, numbers := range c.files {
			most, now, _ := strings.Cut(numbers, " ")
			put(filepath.Join("sys/fs/cgroup", group, "pids.max"), most+"\n")
			put(filepath.Join("sys/fs/cgroup", group, "pids.current"), now+"\n")
		}
		if file, left := tasksLeft(root); file != c.file || left < c.left || c.file != "" && left > c.left+most {
			t.Errorf("%s: %q leaves %d, want %q and %d to %d", name, file, left, c.file, c.left, c.left+most)
		}
	}
}

// A worker of ours that ended, and was reaped, just after all processes were seen is no stranger whose children are to be killed.
func TestReapedIsNoStranger(t *testing.T) {
	worker := exec.Command("sleep", "1000")
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	defer worker.Wait()
	seen, err := table.Process(worker.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	all := []proc.Process{seen, {PID: 1 << 23, Name: "its child", State: 'S', Parent: seen.PID, Threads: 1, Start: seen.Start}}
	which := trees{last: true, known: &registry{pids: map[int]bool{}}}
	if found := which.find(all); len(found) != 2 {
		t.Errorf("of a stranger: %+v", found)
	}
	worker.Process.Kill()
	worker.Wait()
	if found := which.find(all); len(found) != 0 {
		t.Errorf("of one that was reaped: %+v", found)
	}
}
