package pid1

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// agentOf reads "agent 12, first process 1", as PIDs in the test's own namespace.
func agentOf(t *testing.T, l *life) int {
	t.Helper()
	var agent, first int
	if _, err := fmt.Sscanf(l.await("agent "), "agent %d, first process %d", &agent, &first); err != nil {
		t.Fatal(err)
	}
	if first == l.PID {
		return agent
	}
	return kidOf(t, l.PID, agent)
}

// kidOf translates the PID that a child of parent has in its own namespace.
func kidOf(t *testing.T, parent, inner int) int {
	t.Helper()
	all, err := table.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		status, _ := os.ReadFile(filepath.Join("/proc", itoa(p.PID), "status"))
		if p.Parent == parent && strings.Contains(string(status), fmt.Sprintf("\nNSpid:\t%d\t%d\n", p.PID, inner)) {
			return p.PID
		}
	}
	t.Fatalf("no child of %d is %d inside", parent, inner)
	return 0
}

func TestCodeIsTheAgents(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		for script, want := range map[string]int{"exit 0": 0, "exit 42": 42, "kill -9 $$": 137} {
			if code, out := w.start(t, []string{"MUSTER_TEST_AGENT=run"}, script).end(); code != want {
				t.Errorf("%s: exit %d\n%s", script, code, out)
			}
		}
	})
}

// The bar of the first process: a thousand orphans beside eight workers at a time.
func TestOrphanStorm(t *testing.T) {
	storm := `
import os, random, time
for i in range(1000):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(random.random() / 20)
        os._exit(0)
    if i % 20 == 0:
        try:
            while True: os.waitpid(-1, 0)
        except ChildProcessError: pass
try:
    while True: os.waitpid(-1, 0)
except ChildProcessError: pass
`
	everywhere(t, func(t *testing.T, w world) {
		code, out := w.start(t, []string{"MUSTER_TEST_AGENT=storm"}, storm).end()
		if code != 0 || !strings.Contains(out, "400 of 400 exits, 400 of 400 others, 0 zombies, 1800 orphans") {
			t.Errorf("exit %d\n%s", code, out)
		}
	})
}

// worker saves what it has on TERM, and so does what it started if it were told; the last one heeds nothing.
const (
	saves    = `sh -c 'trap "echo child got TERM; exit" TERM; while :; do sleep 0.01; done' & trap 'echo saved; kill -9 $!; exit 0' TERM; echo up; while :; do sleep 0.01; done`
	defiant  = `trap '' TERM; setsid sleep %s & echo up; while :; do sleep 0.01; done`
	obedient = `echo up; exec sleep %s`
)

func TestAgentDies(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		number := "1002." + itoa(os.Getpid()) + itoa(len(w.name))
		log := filepath.Join(t.TempDir(), "log")
		l := w.start(t, []string{"MUSTER_TEST_AGENT=run", "MUSTER_TERMINATION_LOG=" + log}, saves, fmt.Sprintf(defiant, number), fmt.Sprintf(obedient, number))
		agent := agentOf(t, l)
		for range 3 {
			l.await("up")
		}
		if err := unix.Kill(agent, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		code, out := l.end()
		if took := time.Since(began); code != 138 || took < time.Second || took > 20*time.Second {
			t.Errorf("exit %d after %v", code, took)
		}
		for _, want := range []string{"[rank 0] saved", "muster: the agent died (signal 9); workers were stopped", "muster: 1 workers did not end within 1s of TERM and are killed"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		if strings.Contains(out, "child got TERM") {
			t.Errorf("TERM was for the leader alone:\n%s", out)
		}
		if b, _ := os.ReadFile(log); string(b) != "the agent died (signal 9); workers were stopped\n" {
			t.Errorf("last words %q", b)
		}
		wantNobody(t, "sleep "+number)
	})
}

// Workers that Ctrl-Z, or somebody, stopped are continued to be ended.
func TestAgentDiesWhileWorkersAreStopped(t *testing.T) {
	l := worlds[0].start(t, []string{"MUSTER_TEST_AGENT=run"}, saves+"\n# 1003")
	agent := agentOf(t, l)
	l.await("up")
	for _, p := range having(t, "# 1003") {
		if p.Parent == l.PID && p.PID != agent {
			if err := unix.Kill(-p.PID, unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := unix.Kill(agent, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code, out := l.end(); code != 138 || !strings.Contains(out, "[rank 0] saved") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestAgentEnds(t *testing.T) {
	number := "1004." + itoa(os.Getpid())
	for _, c := range []struct {
		role string
		code int
		want string
	}{
		{role: "panic", code: 138, want: "panic: on purpose"},
		{role: "panic", code: 138, want: "muster: the agent died (exit code 2); workers were stopped"},
		{role: "vanish", code: 138, want: "muster: the agent died (exit code 6); workers were stopped"},
		{role: "leave", code: 5},
	} {
		everywhere(t, func(t *testing.T, w world) {
			code, out := w.start(t, []string{"MUSTER_TEST_AGENT=" + c.role}, fmt.Sprintf(obedient, number), fmt.Sprintf(defiant, number)).end()
			if code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("%s: exit %d\n%s", c.role, code, out)
			}
			wantNobody(t, "sleep "+number)
		})
	}
}

// What a shell started before it became the first process is not ours to kill.
func TestInheritedChildIsSpared(t *testing.T) {
	number := "1005." + itoa(os.Getpid())
	l := launch(t, 0, []string{"MUSTER_TEST_AGENT=leave"}, []string{"/bin/sh", "-c", `sleep ` + number + ` & exec "$@"`, "sh", self(), fmt.Sprintf(obedient, "1")})
	t.Cleanup(func() {
		for _, p := range having(t, "sleep "+number) {
			_ = unix.Kill(p.PID, unix.SIGKILL)
		}
	})
	agentOf(t, l)
	code := make(chan int, 1)
	go func() { code <- <-l.code }() // the output stays open in the sleeper
	for {
		if _, err := table.Process(l.PID); err != nil || zombie(l.PID) {
			break
		}
	}
	if n := len(having(t, "sleep "+number)); n != 1 {
		t.Errorf("%d sleepers", n)
	}
}

func zombie(pid int) bool {
	p, err := table.Process(pid)
	return err == nil && p.Gone()
}

func TestFirstProcessIsKilled(t *testing.T) {
	number := "1006." + itoa(os.Getpid())
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			l := w.start(t, []string{"MUSTER_TEST_AGENT=run"}, fmt.Sprintf(obedient, number), fmt.Sprintf(obedient, number))
			agent := agentOf(t, l)
			l.await("up")
			l.await("up")
			l.signal(unix.SIGKILL)
			l.end()
			for deadline := time.Now().Add(patience); len(having(t, "sleep "+number)) > 0; {
				if time.Now().After(deadline) {
					t.Fatal("workers live on")
				}
			}
			for deadline := time.Now().Add(patience); ; {
				if _, err := table.Process(agent); err != nil || zombie(agent) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("the agent lives on")
				}
			}
		})
	}
}

// An agent that hears nothing ends with the first process, too.
func TestFirstProcessIsKilledWithADeafAgent(t *testing.T) {
	l := worlds[0].start(t, []string{"MUSTER_TEST_AGENT=deaf"})
	l.await("deaf")
	l.signal(unix.SIGKILL)
	l.end() // the agent has our pipe
}

func TestControlSignals(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		l := w.start(t, []string{"MUSTER_TEST_AGENT=run"}, `trap 'echo worker got one' INT HUP QUIT USR1 USR2 WINCH CONT; echo up; while :; do sleep 0.01; done`)
		agentOf(t, l)
		l.await("up")
		for _, s := range []unix.Signal{unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH} {
			l.signal(s)
			if line, want := l.next(), fmt.Sprintf("agent got %v", s); line != want {
				t.Errorf("%q, want %q", line, want)
			}
		}
		l.signal(unix.SIGURG)
		l.signal(unix.SIGPIPE)
		l.signal(unix.SIGTERM)
		if line := l.next(); line != "agent got terminated" {
			t.Errorf("%q", line)
		}
		if line := l.next(); line != "[rank 0] was killed by signal 15 (terminated)" {
			t.Errorf("%q", line)
		}
		if code, out := l.end(); code != 143 {
			t.Errorf("exit %d\n%s", code, out)
		}
	})
}

// From inside the container nobody can kill or stop PID 1; TERM is as from outside.
func TestInitFromInside(t *testing.T) {
	l := worlds[1].start(t, []string{"MUSTER_TEST_AGENT=run"}, `kill -KILL 1; kill -STOP 1; kill -TSTP 1; kill -ABRT 1; kill -TERM 1; exec sleep 1000`)
	l.await("agent ")
	if line := l.next(); line != "agent got terminated" {
		t.Errorf("%q", line)
	}
	if code, out := l.end(); code != 143 {
		t.Errorf("exit %d\n%s", code, out)
	}
}

// An agent that is not ready for signals does not get any; one that never will be does not hold us for ever.
func TestSignalBeforeHello(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		l := w.start(t, []string{"MUSTER_TEST_AGENT=deaf"})
		l.await("deaf")
		l.signal(unix.SIGTERM)
		began := time.Now()
		if code, out := l.end(); code != 143 || time.Since(began) > 25*time.Second {
			t.Errorf("exit %d\n%s", code, out)
		}
	})
	l := worlds[0].start(t, []string{"MUSTER_TEST_AGENT=run"}, "exec sleep 1000")
	for deadline := time.Now().Add(patience); !table.Catches(l.PID, unix.SIGTSTP); { // Go itself handles the others from the start
		if time.Now().After(deadline) {
			t.Fatal("the first process never caught TERM")
		}
	}
	l.signal(unix.SIGTERM) // most likely before the agent's hello
	if code, out := l.end(); code != 143 || !strings.Contains(out, "agent got terminated") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestNohup(t *testing.T) {
	l := launch(t, 0, []string{"MUSTER_TEST_AGENT=run"}, []string{"nohup", self(), `trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done`})
	agentOf(t, l)
	l.await("up")
	l.signal(unix.SIGHUP)
	l.signal(unix.SIGTERM)
	if line := l.next(); line != "agent got terminated" {
		t.Errorf("%q", line)
	}
	if code, out := l.end(); code != 9 || strings.Contains(out, "hangup") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestClosedOutput(t *testing.T) {
	// head goes away after a line; the worker goes on to its end, which the exit code proves.
	l := launch(t, 0, []string{"MUSTER_TEST_AGENT=run"}, []string{"bash", "-o", "pipefail", "-c", `"$0" "$@" | head -n1`, self(), `for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.02; done; exit 33`})
	if code, out := l.end(); code != 33 {
		t.Errorf("exit %d\n%s", code, out)
	}
}

func TestLastWords(t *testing.T) {
	log := filepath.Join(t.TempDir(), "termination-log")
	if err := os.WriteFile(log, []byte(strings.Repeat("old ", 200)), 0o644); err != nil {
		t.Fatal(err)
	}
	everywhere(t, func(t *testing.T, w world) {
		if code, out := w.start(t, []string{"MUSTER_TEST_AGENT=words", "MUSTER_TERMINATION_LOG=" + log}).end(); code != 0 {
			t.Errorf("exit %d\n%s", code, out)
		}
		if b, _ := os.ReadFile(log); string(b) != "agent's last words\n" {
			t.Errorf("%q", b)
		}
	})
}

// Whenever we are killed, one text or the other stands there whole, padded perhaps.
func TestWordsAreNeverTorn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for range 20 {
		l := worlds[0].start(t, []string{"MUSTER_TEST_AGENT=wordy", "MUSTER_TERMINATION_LOG=" + path})
		l.await("writing")
		for info, err := os.Stat(path); err != nil || info.Size() == 0; info, err = os.Stat(path) {
		}
		l.signal(unix.SIGKILL)
		l.end()
		b, err := os.ReadFile(path)
		if text := strings.TrimRight(string(b), " \n"); err != nil || text != "short" && text != strings.Repeat("long", 200) {
			t.Fatalf("%q, %v", b, err)
		}
	}
}

// The file is never empty between two texts.
func TestWordsAreNeverGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	w := openWords(path)
	w.write("short")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				w.write(strings.Repeat("long", 200))
				w.write("short")
			}
		}
	}()
	for range 20000 {
		if info, err := os.Stat(path); err != nil || info.Size() < int64(len("short\n")) {
			t.Errorf("%+v, %v", info, err)
			break
		}
	}
	close(stop)
	<-stopped
}

func TestWordsAreClipped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	openWords(path).write(strings.Repeat("é", 2000))
	if b, _ := os.ReadFile(path); len(b) > 1024 || len(b) < 1020 || strings.Trim(string(b), "é") != "\n" {
		t.Errorf("%d bytes, end %q", len(b), b[len(b)-8:])
	}
}

// What cannot be replaced as a whole is no termination log, and does not hold the first process up.
func TestWordsAbsent(t *testing.T) {
	silent, heard := filepath.Join(t.TempDir(), "silent"), filepath.Join(t.TempDir(), "heard")
	if err := errors.Join(unix.Mkfifo(silent, 0o600), unix.Mkfifo(heard, 0o600)); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(heard, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, path := range []string{"/no/such/directory/log", t.TempDir(), os.DevNull, silent, heard, "/proc/self/fd/2"} {
		if w := openWords(path); w != nil {
			t.Errorf("%s: %+v", path, w)
		}
	}
	(*words)(nil).write("nobody reads this")
}

func TestStaleMarker(t *testing.T) {
	for _, value := range []string{"", "x", "3", "1:" + itoa(os.Getppid()), "3:1", "3:" + itoa(os.Getppid()+100000)} {
		t.Setenv(marker, value)
		if _, err := Connect(); err != ErrNone {
			t.Errorf("%q: %v", value, err)
		}
		if _, set := os.LookupEnv(marker); set {
			t.Errorf("%q: the variable is still there", value)
		}
	}
}
