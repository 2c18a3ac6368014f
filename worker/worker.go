// Package worker runs tasks through the first process and says how they ended.
package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/output"
	"github.com/muster-run/muster/proc"
)

// Processes is whoever starts and ends processes for us: the first process.
type Processes interface {
	Start(context.Context, proc.Spec) (*proc.Child, error)
	Signal(pid int, sig syscall.Signal, scope proc.Scope) error
	KillTree(ctx context.Context, pids ...int) error
	Tail(pid int) ([]string, error)
	Rhythms(ctx context.Context, pids []int, looks []bool) ([]output.Rhythm, error)
	Forget(pids ...int)
}

// Options are the surroundings of a group.
type Options struct {
	Processes Processes
	Console   int      // the number of the one that shows their lines
	Environ   []string // under each task's own variables; in the form of os.Environ
	Dir       string   // "": the agent's
	Job       string   // the job's id
	Round     int      // how many rounds of the job came before this one
	Output    output.Routes
	Mends     bool                               // a task that failed may be started again, with Again: the group waits for that, or for Stop
	Devices   []string                           // the accelerators' files: the group is gone when nobody has them open any more
	Bare      bool                               // no rank before the lines; the output of a single task then passes as it is, byte by byte
	Files     func(job.Task) ([]*os.File, error) // that a task inherits as descriptors 3, 4, …; they are closed here when it has them
	Heirs     []Heir                             // of the tasks, where an agent before this one came to start some: those that have no child are started
}

const (
	killTime  = time.Minute     // from KILL until we give up: pinned memory takes long to be given back
	startStop = 2 * time.Second // grace for those that were started when another one could not be
	moreOOM   = 500             // the kernel shall take a worker for its memory, not the agent
)

// A Group is the workers of this node in one round.
type Group struct {
	opt       Options
	processes Processes
	nonce     string // in the tags of this group's processes
	gate      gate
	orders    []chan order // by task: to start it again
	exits     chan Exit
	killed    chan struct{} // closed when the time to stop is over
	gone      chan struct{} // closed when nothing of the group is left

	end sync.Once // closes killed

	mu       sync.Mutex
	members  []*member     // by task
	stops    []Stopping    // how they were asked to end
	stopping chan struct{} // closed when they were
	err      error         // what could not be killed
}

// An Exit is the end of one worker.
type Exit struct {
	Task    job.Task
	PID     int
	Exit    job.Exit
	At      time.Time // when the kernel told it, on this process's monotonic clock
	Tail    []string  // its last lines, stdout and stderr as they came
	Process proc.Exit // with what it used
	Err     error     // it could not be started again: a *StartError; the rest but Task is empty
}

// member is one worker.
type member struct {
	task  job.Task
	tag   string
	child *proc.Child
	given chan struct{} // closed when we gave up on it: it does not die
	heard bool          // nobody waits for its end
	well  bool          // that was good: nobody starts it again
	stuck error         // something that it started does not die

	mu     sync.Mutex
	ended  bool                    // and reaped: its PID may be somebody else's
	asked  map[syscall.Signal]bool // signals of ours that reached it, by which it was to end
	told   []proc.Process          // whom they reached beside it
	killed bool
	over   bool // nothing of it is left
}

// A StartError is a worker that could not be started. It wraps a *proc.StartError if the command is to blame.
type StartError struct {
	Task job.Task
	Err  error
}

func (e *StartError) Error() string { return fmt.Sprintf("worker: rank %d: %v", e.Task.Rank, e.Err) }

func (e *StartError) Unwrap() error { return e.Err }

func newGroup(tasks []job.Task, opt Options) *Group {
	g := &Group{
		opt: opt, processes: opt.Processes, nonce: rand.Text()[:8], gate: gateOf(opt.Job, opt.Devices, opt.Heirs), exits: make(chan Exit, len(tasks)),
		killed: make(chan struct{}), gone: make(chan struct{}), stopping: make(chan struct{}),
	}
	for range tasks {
		g.orders = append(g.orders, make(chan order, 1))
	}
	return g
}

// Start starts one process for each task. If one cannot be started the others are stopped, and nothing is left when Start
// returns; the error then wraps a *StartError.
func Start(ctx context.Context, tasks []job.Task, opt Options) (*Group, error) {
	g := newGroup(tasks, opt)
	var failed error
	for i, t := range tasks {
		if i < len(opt.Heirs) && opt.Heirs[i].Child != nil {
			g.members = append(g.members, resume(t, opt.Heirs[i], 0))
			continue
		}
		m, err := g.start(ctx, t, opt.Round)
		if err != nil {
			failed = &StartError{Task: t, Err: err}
			break
		}
		g.members = append(g.members, m)
	}
	go g.watch()
	if failed != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startStop)
		defer cancel()
		return nil, errors.Join(failed, g.Stop(ctx, Stopping{}))
	}
	return g, nil
}

// An Heir is a worker that an agent before this one started.
type Heir struct {
	*proc.Child // nil: nobody knows it any more

	Tag    string
	Asked  []syscall.Signal // what it was sent
	Killed bool             // while it lived
	Heard  bool             // its end was delivered to that agent, and is not to be again
}

// Resume makes a group of workers that an agent before this one started: opt.Heirs[i] is that of tasks[i]. stop is what tells them
// to end, beside TERM.
func Resume(tasks []job.Task, stop syscall.Signal, opt Options) *Group {
	g := newGroup(tasks, opt)
	for i, h := range opt.Heirs {
		if h.Child == nil {
			h.Child = proc.Unseen()
		}
		g.members = append(g.members, resume(tasks[i], h, stop))
	}
	go g.watch()
	return g
}

func resume(t job.Task, h Heir, stop syscall.Signal) *member {
	m := &member{
		task: t, tag: h.Tag, child: h.Child, heard: h.Heard, killed: h.Killed,
		given: make(chan struct{}), asked: map[syscall.Signal]bool{},
	}
	for _, sig := range h.Asked {
		if sig == syscall.SIGTERM || sig == stop {
			m.asked[sig] = true
		}
	}
	return m
}

// start starts a task for the time with this number.
func (g *Group) start(ctx context.Context, t job.Task, round int) (*member, error) {
	opt := g.opt
	lines := opt.Output.Lines(t, round)
	lines.Console, lines.Bare, lines.Raw = opt.Console, opt.Bare, opt.Bare && len(g.orders) == 1
	tag := fmt.Sprintf("%s/%d/%d/%s", opt.Job, t.Rank, round, g.nonce)
	files, err := opt.files(t)
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	child, err := opt.Processes.Start(ctx, proc.Spec{
		Files: files, Argv: t.Argv, Env: t.Env.Over(untagged(opt.Environ)), Dir: opt.Dir, Lines: lines,
		Tag: tag, OOM: moreOOM, Stdin: opt.Output.Reads(t), Binding: proc.Binding(t.Binding),
	})
	if err != nil {
		return nil, err
	}
	return &member{task: t, tag: tag, child: child, given: make(chan struct{}), asked: map[syscall.Signal]bool{}}, nil
}

// files are those that a task inherits.
func (o Options) files(t job.Task) ([]*os.File, error) {
	if o.Files == nil {
		return nil, nil
	}
	return o.Files(t)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// untagged returns environ without the tag of a worker that may have started us.
func untagged(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool { return strings.HasPrefix(kv, proc.TagName+"=") })
}

// Exits delivers the end of each worker once its output has been read, and is closed when all of them are gone with
// all they started, and all output is with the console. It need not be read.
func (g *Group) Exits() <-chan Exit { return g.exits }

// PIDs returns the workers' process numbers, in the order of the tasks.
func (g *Group) PIDs() []int {
	var pids []int
	for _, m := range g.all() {
		pids = append(pids, m.child.PID)
	}
	return pids
}

// all returns the members as they are now.
func (g *Group) all() []*member {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.members)
}

// Tail returns the last lines of the i-th task so far; nil when they cannot be had any more.
func (g *Group) Tail(i int) []string {
	lines, _ := g.processes.Tail(g.all()[i].child.PID)
	return lines
}

// Rhythms returns what the tasks' output tells so far, by task; looks says whether lines of each are to be looked at for progress.
func (g *Group) Rhythms(ctx context.Context, looks []bool) ([]output.Rhythm, error) {
	return g.processes.Rhythms(ctx, g.PIDs(), looks)
}

// Forget drops what the first process keeps of a group that is gone.
func (g *Group) Forget() { g.processes.Forget(g.PIDs()...) }

// Stopping says how workers are asked to end. The zero value is TERM to each of them, not to what they started, since a
// worker needs its helpers (PyTorch's data loaders) to write a checkpoint.
type Stopping struct {
	Signal syscall.Signal // 0: TERM. A worker without a handler for another one gets TERM
	Scope  proc.Scope
	Term   time.Duration // after this time TERM follows another Signal
}

// Stop ends the workers. When ctx ends what is left of their trees is killed. Stop returns when nothing of the group is
// left; the error names what does not die. It may be called again, and at any time.
func (g *Group) Stop(ctx context.Context, how Stopping) error {
	g.ask(how)
	var term <-chan time.Time
	if how.Signal != 0 && how.Signal != syscall.SIGTERM {
		term = time.After(how.Term)
	}
	for gone := false; !gone; {
		select {
		case <-g.gone:
			gone = true
		case <-term:
			g.ask(Stopping{Scope: how.Scope})
		case <-ctx.Done():
			g.kill()
			<-g.gone
			gone = true
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// ask sends the signal, to each worker once. None is started from here on.
func (g *Group) ask(how Stopping) {
	g.mu.Lock()
	if len(g.stops) == 0 {
		close(g.stopping)
	}
	g.stops = append(g.stops, how)
	members := slices.Clone(g.members)
	g.mu.Unlock()
	for _, m := range members {
		m.ask(g.processes, how)
	}
}

// Signal sends sig to every worker that has a handler for it; the others would die of it. It returns how many there were.
func (g *Group) Signal(sig syscall.Signal) int {
	n := 0
	for _, m := range g.all() {
		if m.signal(g.processes, sig) {
			n++
		}
	}
	return n
}

func (m *member) signal(p Processes, sig syscall.Signal) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	pid := m.child.PID
	return !m.ended && table.Catches(pid, sig) && p.Signal(pid, sig, proc.Leader) == nil
}

func (g *Group) kill() {
	g.end.Do(func() { close(g.killed) })
	g.killAll(g.all())
}

func (g *Group) killAll(members []*member) {
	var pids []int
	for _, m := range members {
		m.mu.Lock()
		m.killed = true
		if !m.over {
			pids = append(pids, m.child.PID)
		}
		m.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	if err := g.processes.KillTree(ctx, pids...); err != nil {
		g.fail(err)
		for _, m := range members {
			m.giveUp()
		}
	}
}

func (g *Group) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = fmt.Errorf("worker: %w", err)
	}
}

// watch sees every worker to its end.
func (g *Group) watch() {
	var all sync.WaitGroup
	for i, m := range g.all() {
		all.Go(func() {
			for ; m != nil; m = g.next(i, m) {
				g.see(m)
			}
		})
	}
	all.Wait()
	if err := g.gate.wait(); err != nil {
		g.fail(err)
	}
	close(g.exits)
	close(g.gone)
}

// see waits for the end of m, reports it, and ends what m left behind.
func (g *Group) see(m *member) {
	e := m.wait()
	var leftovers sync.WaitGroup
	leftovers.Go(func() {
		g.linger(m)
		ctx, cancel := context.WithTimeout(context.Background(), killTime)
		defer cancel()
		if m.stuck = g.processes.KillTree(ctx, m.child.PID); m.stuck != nil {
			g.fail(m.stuck)
		}
	})
	exit := Exit{Task: m.task, PID: m.child.PID, Exit: m.judge(e), At: e.At, Tail: m.lines(), Process: e}
	m.well = exit.Exit.OK()
	if !m.heard {
		g.exits <- exit
	}
	leftovers.Wait()
	m.mu.Lock()
	m.over = true
	m.mu.Unlock()
}

// wait returns how m ended, or that we know no better.
func (m *member) wait() proc.Exit {
	select {
	case e := <-m.child.Exit:
		return e
	case <-m.given:
		return proc.Exit{PID: m.child.PID, At: time.Now(), Signal: syscall.SIGKILL, Lost: "it does not die"}
	}
}

// lines returns m's last lines, when all of them were read; at once if we gave up on it.
func (m *member) lines() []string {
	select {
	case lines := <-m.child.Tail:
		return lines
	case <-m.given:
		return nil
	}
}

// giveUp ends the wait for a worker that does not die. If it did, and only something that it started lives, its end is told.
func (m *member) giveUp() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, err := table.Process(m.child.PID); m.ended || err != nil || p.Gone() {
		return
	}
	select {
	case <-m.given:
	default:
		close(m.given)
	}
}

// ask sends the signal, each once. The lock is held until we know whether it arrived, so that judge knows it too.
func (m *member) ask(p Processes, how Stopping) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sig := how.Signal
	if sig == 0 || !table.Catches(m.child.PID, sig) {
		sig = syscall.SIGTERM
	}
	if m.ended || m.asked[sig] || m.asked[syscall.SIGTERM] {
		return
	}
	told := m.toldWith(how.Scope)
	if p.Signal(m.child.PID, sig, how.Scope) == nil {
		m.asked[sig] = true
		m.told = append(m.told, told...)
	}
}

// judge puts e in the words of a job: was it the worker's end, or our doing?
func (m *member) judge(e proc.Exit) job.Exit {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	return job.Exit{
		Code: e.Code, Signal: int(e.Signal), Core: e.Core, Err: e.Lost,
		Sent: len(m.asked) > 0 || e.Lapsed || m.killed && e.Signal == syscall.SIGKILL,
	}
}
