package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/test/golden"
)

// A scene is one thing that is tried with muster init, tini and dumb-init alike. What comes of it stands in the scene's row of
// docs/pid1.md.
type scene struct {
	name  string
	flags [3]string // for muster init, tini and dumb-init, in words; lacks: it has no such thing
	vars  string
	argv  []string            // the command; nil: the flags are all
	runs  [][]string          // more words, for a run each; nil: one run
	plain bool                // not PID 1
	front []string            // stands before init, and starts it or becomes it
	do    func(*trial) string // what comes of it; nil: the exit code is all
	odd   map[string]string   // what it comes to for muster under another's name, where that is something else
}

const lacks = "–"

func all(flags string) [3]string { return [3]string{flags, flags, flags} }

func sh(script string) []string { return []string{"sh", "-c", script} }

// py is a command that needs more than a shell.
func py(script string, args ...string) []string {
	return append([]string{"python3", "-Sc", script}, args...)
}

// tells prints the signals that it gets, and ends at TERM. It has them blocked and waits for them: between a handler and pause(2) one could be
// missed.
const tells = `
import os, signal
every = set(range(1, 65)) - {9, 17, 19, 32, 33}
signal.pthread_sigmask(signal.SIG_BLOCK, every)
os.write(1, b'up\n')
while True:
    s = signal.sigwait(every)
    os.write(1, b'got %d\n' % s)
    if s == 15: os._exit(0)
`

// A trial is a scene with one init.
type trial struct {
	t    *testing.T
	want string // comes of it if all is well
	mark string // is in the environment of all processes
	cmd  *exec.Cmd
	in   *os.File
	out  output
	seen int           // that counts has waited for
	done chan struct{} // closed when init has ended
	read chan struct{} // closed when nobody can write any more
}

// begin starts argv, as PID 1 of a new namespace unless plain.
func begin(t *testing.T, s scene, argv []string) *trial {
	t.Helper()
	dir := t.TempDir()
	p := &trial{t: t, mark: "TRIAL=" + dir, done: make(chan struct{}), read: make(chan struct{})}
	if s.front != nil && s.front[0] == "sh" {
		argv = slices.Concat([]string{"sh"}, argv)
	}
	argv = slices.Concat(s.front, argv)
	if !s.plain {
		argv = slices.Concat(sh(`mount -t proc proc /proc && exec "$@"`), []string{"sh"}, argv)
	}
	p.out.changed = make(chan struct{})
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Dir = "/usr"
	p.cmd.Env = append([]string{asMuster + "=1", atOnce, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, p.mark}, strings.Fields(s.vars)...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // who signals a group shall not find us
	if !s.plain {
		p.cmd.SysProcAttr.Cloneflags, p.cmd.SysProcAttr.Unshareflags = unix.CLONE_NEWPID, unix.CLONE_NEWNS
	}
	inside, in := pipe(t)
	out, outside := pipe(t)
	p.in, p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, inside, outside, outside
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inside.Close()
	outside.Close()
	go func() { _, _ = out.WriteTo(&p.out); close(p.read) }()
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() { p.clear(); in.Close(); out.Close() })
	return p
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// clear ends all that the trial has started; after it nobody writes any more. It looks again and again: who is in the middle of execve(2)
// has no environment to show.
func (p *trial) clear() {
	p.t.Helper()
	p.until(func() bool {
		for _, line := range alive(p.t, p.mark) {
			pid, _ := strconv.Atoi(strings.Fields(line)[0])
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		return closed(p.done) && closed(p.read)
	}, "it cannot be killed")
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// says waits until one of texts is there.
func (p *trial) says(texts ...string) {
	p.t.Helper()
	found := func(text string) bool { return strings.Contains(p.out.String(), text) }
	p.until(func() bool { return slices.ContainsFunc(texts, found) }, fmt.Sprintf("it does not say %q", texts))
}

// enough bounds each wait for one process, which takes milliseconds on an idle machine.
const enough = 3 * time.Minute

// fatal ends the test with what there is to see.
func (p *trial) fatal(otherwise string) {
	p.t.Helper()
	p.t.Fatalf("%s; it said:\n%s\nthere is:\n%s", otherwise, p.out.String(), strings.Join(alive(p.t, p.mark), "\n"))
}

// until looks again and again: there is no news of what other processes do.
func (p *trial) until(done func() bool, otherwise string) {
	p.t.Helper()
	if !comes(enough, done) {
		p.fatal(otherwise)
	}
}

func comes(limit time.Duration, done func() bool) bool {
	again := time.NewTicker(3 * time.Millisecond)
	defer again.Stop()
	end := time.After(limit)
	for !done() {
		select {
		case <-again.C:
		case <-end:
			return false
		}
	}
	return true
}

// settles returns what is seen when that is what is expected, or at last.
func (p *trial) settles(see func() string) string { return p.settlesOn(p.want, see) }

// settlesPart is settles for a part of what is expected: parts are separated by semicolons.
func (p *trial) settlesPart(n int, see func() string) string {
	parts := append(strings.Split(p.want, "; "), make([]string, n+1)...)
	return p.settlesOn(parts[n], see)
}

func (p *trial) settlesOn(want string, see func() string) (seen string) {
	limit := enough
	if golden.Update() { // nobody knows yet what to wait for
		limit = 3 * time.Second
	}
	comes(limit, func() bool { seen = see(); return seen == want })
	return seen
}

func (p *trial) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.fatal(fmt.Sprintf("signal %d: %v", int(s), err))
	}
}

// code waits for the end.
func (p *trial) code() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(enough):
		p.fatal("it does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *trial) ended() string { return strconv.Itoa(p.code()) }

// lines returns what the command, or rank 0, printed in lines that begin with word, without it.
func (p *trial) lines(word string) []string {
	var found []string
	for line := range strings.Lines(p.said()) {
		if rest, ok := strings.CutPrefix(strings.TrimPrefix(line, "[rank 0] "), word); ok && !strings.HasPrefix(line, "muster:") {
			found = append(found, strings.TrimSpace(rest))
		}
	}
	return found
}

// child is the PID, as we see it, of the one process that init has started.
func (p *trial) child() int {
	p.t.Helper()
	var pids []int
	p.until(func() bool {
		pids, _ = proc.Root("/proc").Children(p.cmd.Process.Pid)
		return len(pids) == 1
	}, "it has no child")
	return pids[0]
}

// children counts init's.
func (p *trial) children() int {
	pids, _ := proc.Root("/proc").Children(p.cmd.Process.Pid)
	return len(pids)
}

// counts waits for one more of text.
func (p *trial) counts(text string) {
	p.t.Helper()
	p.seen++
	p.until(func() bool { return strings.Count(p.out.String(), text) >= p.seen }, "there is not one more "+text)
}

func state(pid int) byte {
	now, _ := proc.Root("/proc").Process(pid)
	return now.State
}

// initUnderTest is an init with the arguments that stand before the flags.
type initUnderTest struct {
	name string
	argv []string
	like int // whose flags it takes

	column int // by which it is measured
}

func initsUnderTest(t *testing.T) []initUnderTest {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	found := []initUnderTest{{"muster init", []string{self, "init"}, 0, 1}}
	dir := t.TempDir()
	for i, name := range []string{"tini", "dumb-init"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("%v; `make prepare` installs it", err)
		}
		link := filepath.Join(dir, name)
		if err := os.Symlink(self, link); err != nil {
			t.Fatal(err)
		}
		found = append(found, initUnderTest{name, []string{path}, i + 1, i + 2}, initUnderTest{"muster as " + name, []string{link}, i + 1, i + 2})
	}
	return found
}

// The same scenes with muster init, with tini and dumb-init, and with muster by a link of their names.
func TestInits(t *testing.T) {
	if !golden.Update() { // else another test may write docs/pid1.md
		t.Parallel()
	}
	inits := initsUnderTest(t)
	table := readTable(t)
	for _, s := range scenes() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			row := table.row(t, "TestInits/"+s.name)
			for _, i := range inits {
				want := row.measured[i.column]
				if odd, ok := s.odd[i.name]; ok {
					want = odd
				}
				if s.flags[i.like] == lacks {
					row.check(t, i, want, lacks)
					continue
				}
				t.Run(i.name, func(t *testing.T) { row.check(t, i, want, s.with(t, i, want)) })
			}
		})
	}
	t.Cleanup(func() { table.write(t) }) // when the parallel ones are through
}

// with tells what comes of s with i.
func (s scene) with(t *testing.T, i initUnderTest, want string) string {
	do, runs := s.do, s.runs
	if do == nil {
		do = (*trial).ended
	}
	if runs == nil {
		runs = [][]string{nil}
	}
	var results []string
	for _, words := range runs {
		p := begin(t, s, slices.Concat(i.argv, strings.Fields(s.flags[i.like]), s.argv, words))
		p.want = want
		results = append(results, do(p))
		p.clear()
		if t.Failed() {
			t.Log(p.out.String())
		}
	}
	return strings.Join(results, " ")
}
