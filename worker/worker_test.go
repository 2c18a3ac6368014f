package worker_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/output"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/worker"
)

// A run is a group under test, with what it wrote.
type run struct {
	*worker.Group
	t        *testing.T
	console  *pid1.Console
	out, err *capture
}

// capture reads a pipe to its end.
type capture struct {
	w    *os.File
	buf  bytes.Buffer
	done chan struct{}
}

func newCapture(t *testing.T) *capture {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := &capture{w: w, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		defer r.Close()
		_, _ = io.Copy(&c.buf, r)
	}()
	t.Cleanup(func() { c.w.Close() })
	return c
}

func (c *capture) text() string {
	c.w.Close()
	<-c.done
	return c.buf.String()
}

// shell makes one task of each script.
func shell(scripts ...string) []job.Task {
	var tasks []job.Task
	for i, s := range scripts {
		tasks = append(tasks, job.Task{Rank: i, LocalRank: i, Argv: []string{"sh", "-c", s}})
	}
	return tasks
}

// jobID is this run's own: other tests may run beside it.
func jobID() string { return "worker-test-" + strconv.Itoa(os.Getpid()) }

// consoles counts them.
var consoles atomic.Int64

func newConsole(t testing.TB, stdout, stderr *os.File) *pid1.Console {
	t.Helper()
	c, err := first.OpenConsole(int(consoles.Add(1)), stdout, stderr, output.Style{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) }) // if the test did not
	return c
}

func options(c *pid1.Console) worker.Options {
	return worker.Options{Processes: first, Console: c.Number, Environ: os.Environ(), Job: jobID(), Round: 1}
}

func start(t *testing.T, tasks []job.Task, change ...func(*worker.Options)) *run {
	t.Helper()
	r := &run{t: t, out: newCapture(t), err: newCapture(t)}
	r.console = newConsole(t, r.out.w, r.err.w)
	opt := options(r.console)
	for _, c := range change {
		c(&opt)
	}
	g, err := worker.Start(t.Context(), tasks, opt)
	if err != nil {
		t.Fatal(err)
	}
	r.Group = g
	return r
}

// end waits for everything and returns the exits in the order of ranks.
func (r *run) end() []worker.Exit {
	r.t.Helper()
	var exits []worker.Exit
	for e := range r.Exits() {
		exits = append(exits, e)
	}
	if err := r.console.Close(context.Background()); err != nil {
		r.t.Error(err)
	}
	slices.SortFunc(exits, func(a, b worker.Exit) int { return a.Task.Rank - b.Task.Rank })
	return exits
}

func TestExits(t *testing.T) {
	r := start(t, shell("exit 0", "exit 42", "kill -9 $$", "echo last words >&2; exit 1", "ulimit -c; kill -SEGV $$"))
	want := []job.Exit{{}, {Code: 42}, {Signal: 9}, {Code: 1}, {Signal: 11}}
	for i, e := range r.end() {
		if e.Exit != want[i] || e.Task.Rank != i || e.PID != r.PIDs()[i] {
			t.Errorf("rank %d: %+v, want %+v", i, e, want[i])
		}
		if i == 3 && !slices.Equal(e.Tail, []string{"last words"}) {
			t.Errorf("tail %q", e.Tail)
		}
		if age := time.Since(e.At); age < 0 || age > 10*time.Second {
			t.Errorf("rank %d ended %v ago", i, age)
		}
	}
	if out := r.out.text(); out != "[rank 4] 0\n" { // no cores unless asked for
		t.Errorf("stdout %q", out)
	}
	if err := r.err.text(); err != "[rank 3] last words\n" {
		t.Errorf("stderr %q", err)
	}
}

func TestStartFails(t *testing.T) {
	tasks := shell("exec sleep 1000", "exit 0")
	tasks[1].Argv = []string{"no-such-program"}
	out := newCapture(t)
	_, err := worker.Start(t.Context(), tasks, options(newConsole(t, out.w, out.w)))
	var e *proc.StartError
	var which *worker.StartError
	if !errors.As(err, &which) || which.Task.Rank != 1 {
		t.Errorf("which one: %v", err)
	}
	if !errors.As(err, &e) || e.Code != 127 || !strings.Contains(err.Error(), "worker: rank 1: start no-such-program: no such command in PATH") {
		t.Errorf("error %v", err)
	}
	nobody(t)
}

// nobody fails the test if a process carries a worker's tag.
func nobody(t *testing.T) {
	t.Helper()
	all, err := proc.Root("/proc").All()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if tag := proc.Root("/proc").Getenv(p.PID, proc.TagName); strings.HasPrefix(tag, jobID()+"/") && !p.Gone() {
			t.Errorf("left over: %+v of %s", p, tag)
		}
	}
}

func TestStop(t *testing.T) {
	r := start(t, shell(
		"trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.01; done",
		"trap '' TERM; setsid sleep 1000 & echo up; while :; do sleep 0.01; done",
		"echo up; exec sleep 1000",
		"trap 'exit 0' TERM; echo up; kill -STOP $$; echo never; exit 1",
	))
	for range 3 {
		r.await("up")
	}
	ctx, cancel := context.WithCancel(t.Context())
	pids := r.PIDs()
	go func() { // the grace is over when only the deaf one is left
		for i, pid := range pids {
			for i != 1 && alive(pid) {
				<-time.After(time.Millisecond)
			}
		}
		cancel()
	}()
	if err := r.Stop(ctx, worker.Stopping{}); err != nil {
		t.Error(err)
	}
	nobody(t)
	want := []job.Exit{{Sent: true}, {Signal: 9, Sent: true}, {Signal: 15, Sent: true}, {Sent: true}}
	for i, e := range r.end() {
		if e.Exit != want[i] {
			t.Errorf("rank %d: %+v, want %+v", i, e.Exit, want[i])
		}
	}
	if err := r.Stop(t.Context(), worker.Stopping{}); err != nil {
		t.Error(err)
	}
	if out := r.out.text(); !strings.Contains(out, "[rank 0] saved\n") {
		t.Errorf("stdout %q", out)
	}
}

// Workers that the first process killed, for their agent stood still, were ended by us.
func TestLapsed(t *testing.T) {
	r := start(t, shell("echo up; exec sleep 1000", "setsid sleep 1000 & echo up; exec sleep 1000"))
	r.await("up")
	if err := first.Lease(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for _, e := range r.end() {
		if e.Exit != (job.Exit{Signal: 9, Sent: true}) || !e.Process.Lapsed {
			t.Errorf("rank %d: %+v, lapsed %v", e.Task.Rank, e.Exit, e.Process.Lapsed)
		}
	}
	nobody(t)
}

// await waits until each worker has a line that contains text in its tail.
func (r *run) await(text string) {
	r.t.Helper()
	for i := range r.PIDs() {
		for deadline := time.After(2 * time.Minute); !strings.Contains(strings.Join(r.Tail(i), "\n"), text); {
			select {
			case <-deadline:
				r.t.Fatalf("rank %d never said %q, but %q", i, text, r.Tail(i))
			case <-time.After(time.Millisecond):
			}
		}
	}
}

// A group is gone when nobody of it has an accelerator open any more; who had it before, or is another job's, is not waited for, and who got
// away is named.
func TestGate(t *testing.T) {
	device := t.TempDir() + "/nvidia0"
	f, err := os.Create(device)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // ours, before
	got := t.TempDir() + "/away"
	r := start(t, shell("exec 3<"+device+"; exit 0"), func(o *worker.Options) { o.Devices = []string{device} })
	r.end()
	if err := r.Stop(t.Context(), worker.Stopping{}); err != nil {
		t.Error(err)
	}
	r = start(t, shell("echo up; while [ ! -e "+got+" ]; do sleep 0.01; done"), func(o *worker.Options) { o.Devices = []string{device} })
	r.await("up")
	hold := func(environ ...string) *proc.Child {
		c, err := first.Start(t.Context(), proc.Spec{Argv: []string{"sh", "-c", "exec 3<" + device + "; echo open; exec sleep 1000"}, Env: append(environ, os.Environ()...)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Stdout.Read(make([]byte, 10)); err != nil { // it has it open
			t.Fatal(err)
		}
		return c
	}
	other, neighbour := hold(), hold(proc.TagName+"="+jobID()+"-of-others/0/0/x")
	if err := os.WriteFile(got, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	<-r.Exits()
	select {
	case <-r.Exits():
		t.Error("the group is gone, and somebody has its device open")
	case <-time.After(200 * time.Millisecond):
	}
	if err := first.KillTree(t.Context(), other.PID); err != nil {
		t.Fatal(err)
	}
	r.end()
	if err := r.Stop(t.Context(), worker.Stopping{}); err != nil {
		t.Error(err)
	}
	if err := first.KillTree(t.Context(), neighbour.PID); err != nil {
		t.Fatal(err)
	}
}

// An agent that died had started some of its workers: they go on, and the others are started.
func TestSomeWereStarted(t *testing.T) {
	var heir worker.Heir
	r := start(t, shell("exit 3", "exit 4", "exit 5"), func(o *worker.Options) {
		tag := jobID() + "/1/1/x"
		child, err := first.Start(t.Context(), proc.Spec{
			Argv: []string{"sh", "-c", "exit 9"}, Tag: tag, Lines: &proc.Lines{Console: o.Console, Rank: 1, Shown: [2]bool{true, true}},
		})
		if err != nil {
			t.Fatal(err)
		}
		heir = worker.Heir{Child: child, Tag: tag}
		o.Heirs = []worker.Heir{{}, heir, {}}
	})
	for rank, e := range r.end() {
		if want := []int{3, 9, 5}[rank]; e.Exit.Code != want || (e.PID == heir.PID) != (rank == 1) {
			t.Errorf("rank %d: %+v", rank, e)
		}
	}
}
