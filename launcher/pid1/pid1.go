// Package pid1 is the first process: it owns every child process, their pipes and the last words, and outlives the agent.
//
// It is small so that it cannot fail. The agent, the same binary started again, decides everything and asks the first
// process over a socketpair (wire.go) to start, signal and kill. One loop (loop) has all state; beside it run
// one goroutine that starts processes (spawn.go), one that reads from the agent, one that writes to it, and, only when there
// is something to kill or to drain, those who do that.
package pid1

import (
	"context"
	"fmt"
	"os"
	ossignal "os/signal"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/output"
	"github.com/muster-run/muster/proc"
)

// Config is what the first process must know before there is an agent to tell it.
type Config struct {
	Argv []string // the agent's command line; empty: os.Args

	// TerminationLog is the file for the last words, made if need be.
	// Empty: /dev/termination-log if there is one, as Kubernetes puts it into a container.
	TerminationLog string

	Grace    time.Duration // from TERM to KILL for the workers of an agent that died
	LostCode int           // exit code when the agent died; 0: job.ExitRetry

	boottime func() time.Duration // nil: CLOCK_BOOTTIME
}

const (
	killTime  = 10 * time.Second // after the agent's end, for what is left to die
	closeTime = 2 * time.Second  // after that, for the last lines
)

// marker is the variable that tells the agent its end of the socketpair: see agentEnv and marked.
const marker = "MUSTER_PID1"

// Main is the whole life of the first process: it starts the agent, serves it, and when the agent has ended ends everything else.
// It returns the exit code for main to leave with. Nothing else may have been started in this process.
func Main(cfg Config) int {
	if len(cfg.Argv) == 0 {
		cfg.Argv = os.Args
	}
	if why := cramped(leastFiles, leastTasks); why != "" {
		complain("%s", why)
		return job.ExitSystem
	}
	if why := blind(); why != "" {
		complain("no process table at %s, which muster cannot do without (%s); mount it: mount -t proc proc /proc", table, why)
		return job.ExitSystem
	}
	if cfg.LostCode == 0 {
		cfg.LostCode = job.ExitRetry
	}
	if cfg.boottime == nil {
		cfg.boottime = boottime
	}
	f := &first{
		cfg:       cfg,
		isInit:    os.Getpid() == 1,
		spawner:   spawner{work: make(chan spawn), done: make(chan func())},
		children:  map[int]*child{},
		unclaimed: map[int]proc.Exit{},
		forwarded: map[os.Signal]time.Time{},
		consoles:  map[int]*console{},
		legacy:    legacy{blobs: map[string][]byte{}, files: map[string]held{}, program: ownProgram},
		words:     openWords(cfg.TerminationLog),
	}
	f.cpus = prepare(f.isInit)
	f.known = registry{pids: map[int]bool{}, inherited: inherited()}
	for _, p := range f.known.inherited {
		f.known.add(p.PID)
	}
	return f.run()
}

// blind says why /proc does not show the processes of this PID namespace; "": it does. In that of another one each number means somebody else.
func blind() string {
	if _, err := table.Process(os.Getpid()); err != nil {
		return err.Error()
	}
	if self, err := os.Readlink(string(table) + "/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return "what is there is of another PID namespace"
	}
	return ""
}

// first is the state of the first process. It belongs to the goroutine in loop, but for known and orphans.
type first struct {
	cfg    Config
	isInit bool
	cpus   int // that Go would use

	spawner  spawner // its done also brings home other goroutines' results
	queue    []spawn
	forking  bool // a spawn is with the spawner
	inbox    chan message
	late     []message // read from it before their turn
	outbox   []message
	sending  chan message
	signals  chan os.Signal
	children map[int]*child // by PID; workers until the agent forgets them
	consoles map[int]*console
	cgroups  cgroups
	filled   []cgroup // of workers that are gone, in which something still was
	known    registry
	since    uint64 // proc.Process.Start of the first worker since there was none

	agent     int // its PID, 0 before it runs
	agentEnd  *proc.Exit
	hello     bool // the agent handles signals
	goodbye   bool // the agent ends because it wants to,
	code      int  // with this exit code
	held      []os.Signal
	forwarded map[os.Signal]time.Time // to this agent, and when the last time
	legacy    legacy
	lease     lease

	unclaimed map[int]proc.Exit // ended while a spawn was under way: perhaps its child
	orphans   atomic.Int64      // adopted and reaped

	words *words
}

// A child is a process that the agent asked for.
type child struct {
	pid     int
	started uint64 // proc.Process.Start
	tag     string // not empty: a worker
	alive   bool
	asked   []syscall.Signal // that it was sent
	killed  bool             // while it lived
	lapses  int              // of leases, before it was asked for
	lapsed  bool             // while it lived, one ran out
	end     *wireExit
	read    bool            // its output, to the end
	tail    []string        // of it
	pipes   []int           // read ends of its stdout and stderr, on their way to who reads them
	carrier *output.Carrier // that does; nil: the agent
	lines   *proc.Lines
	cgroup  cgroup
}

// registry is who may be a child of ours without being an orphan that we adopted.
type registry struct {
	fork sync.Mutex // held from before a fork until the child is in pids
	mu   sync.Mutex
	pids map[int]bool

	inherited []proc.Process // children that we had before we became the first process
}

func (r *registry) add(pid int)    { r.mu.Lock(); r.pids[pid] = true; r.mu.Unlock() }
func (r *registry) remove(pid int) { r.mu.Lock(); delete(r.pids, pid); r.mu.Unlock() }
func (r *registry) has(pid int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pids[pid]
}

func (f *first) run() int {
	f.signals = make(chan os.Signal, 64)
	catch(f.signals, f.isInit)
	go f.spawner.run(&f.known) // lives as long as the process: its thread is the parent of all children
	for first := true; first || f.succeed(); first = false {
		if err := f.startAgent(); err != nil {
			f.complain("%v", err)
			if first {
				return job.ExitSystem
			}
			break
		}
		if first { // while the agent begins
			warm(f.cpus) // more than two run when there is output
			f.cgroups = openCgroups("/")
		}
		f.loop(func() bool { return f.agentEnd != nil }, nil)
		f.loop(func() bool { return f.inbox == nil }, time.After(time.Second)) // its last messages
	}
	f.legacy.drop("", f.legacy.agents, false) // peers see now that nobody follows
	code := f.verdict()
	f.stopWorkers()
	f.sweep()
	f.clean()
	return code
}

// startAgent starts this binary again, with the same arguments and environment and our socket.
func (f *first) startAgent() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("start the agent: socketpair: %w", err)
	}
	ours, err := newLink(pair[0])
	if err != nil {
		unix.Close(pair[1])
		return fmt.Errorf("start the agent: %w", err)
	}
	f.inbox, f.sending = make(chan message), make(chan message)
	go f.receive(ours, f.inbox) // until the agent has closed its end
	go f.send(ours, f.sending)  // until succeed
	s := spawn{
		path:       f.legacy.program,
		argv:       f.cfg.Argv,
		env:        agentEnv(f.cpus, f.legacy.agents),
		files:      []int{0, 1, 2, pair[1]},
		closeAfter: pair[1:],
		core:       true,
	}
	// In its own process group the agent does not get the terminal's signals, only what we forward: each once.
	s.sys.Setpgid = true
	if !f.isInit { // the kernel ends the whole namespace with its init, nobody needs to be told
		s.sys.Pdeathsig = syscall.SIGTERM
	}
	var failed error
	f.legacy.agents, f.legacy.born, f.legacy.busy = f.legacy.agents+1, time.Now(), f.workers() > 0
	s.answer = func(pid int, _ uint64, err error) {
		f.agent, failed = pid, err
		f.claim(pid)
	}
	f.queue = append(f.queue, s)
	f.loop(func() bool { return f.agent != 0 || failed != nil }, nil)
	return failed
}

// receive brings the agent's messages into the loop until the agent is gone.
func (f *first) receive(l *link, inbox chan<- message) {
	defer close(inbox)
	defer l.conn.Close()
	for {
		m, err := l.receive()
		if err != nil {
			return // its end will be reaped; that is the news
		}
		inbox <- m
	}
}

// send takes what the loop has for the agent. It may stand still while the agent does; the loop must not.
func (f *first) send(l *link, sending <-chan message) {
	for m := range sending {
		_ = l.send(m) // an agent that does not listen is dead or dying
	}
}

// loop handles what happens until until is true, or, reporting false, until stop.
func (f *first) loop(until func() bool, stop <-chan time.Time) bool {
	childEnded := make(chan os.Signal, 1)
	ossignal.Notify(childEnded, unix.SIGCHLD)
	defer ossignal.Stop(childEnded)
	tick := time.NewTicker(time.Second) // should a SIGCHLD be lost, the child is not
	defer tick.Stop()
	f.reap()
	for len(f.late) > 0 || !until() {
		f.fence()
		if len(f.late) > 0 {
			m := f.late[0]
			f.late = f.late[1:]
			f.serve(m)
			continue
		}
		work, spawn := f.nextSpawn()
		sending, out := f.nextMessage()
		select {
		case work <- spawn:
			f.queue, f.forking = f.queue[1:], true
		case sending <- out:
			f.outbox = f.outbox[1:]
		case done := <-f.spawner.done:
			done()
		case m, open := <-f.inbox:
			if !open {
				f.inbox = nil
				break
			}
			f.serve(m)
		case s := <-f.signals:
			f.control(s)
		case <-childEnded:
			if f.reap() == reapAtOnce { // there may be more, but others have their turn first
				again(childEnded)
			}
		case <-tick.C:
			f.reap()
			if f.hello || time.Since(f.legacy.born) >= helloTime {
				f.release()
			}
		case <-f.lease.ringing(): // for fence
		case <-stop:
			return false
		}
	}
	return true
}

func (f *first) nextSpawn() (chan<- spawn, spawn) {
	if len(f.queue) == 0 || f.forking {
		return nil, spawn{}
	}
	return f.spawner.work, f.queue[0]
}

func (f *first) nextMessage() (chan<- message, message) {
	if len(f.outbox) == 0 {
		return nil, message{}
	}
	return f.sending, f.outbox[0]
}

func again(c chan os.Signal) {
	select {
	case c <- unix.SIGCHLD:
	default:
	}
}

// tell puts a message in line for the agent. An answer for one that died meanwhile is nobody's.
func (f *first) tell(m message) {
	if m.Kind == answer && m.ID>>32 != uint64(f.legacy.agents-1) {
		closeAll(m.files)
		return
	}
	f.outbox = append(f.outbox, m)
}

// serve does what the agent asks.
func (f *first) serve(m message) {
	f.fence()
	switch m.Kind {
	case tellHello:
		f.hello = true
		f.lease.greet(m)
		f.release()
	case tellGoodbye:
		f.goodbye, f.code = true, m.Code
	case tellWords:
		f.words.write(m.Text)
	case askStart:
		f.start(m)
	case askSignal:
		f.tell(message{Kind: answer, ID: m.ID, Gone: !f.signalChild(m)})
	case askKill:
		f.kill(m)
	case askOrphans:
		f.tell(message{Kind: answer, ID: m.ID, Count: int(f.orphans.Load())})
	case askConsole:
		f.openConsole(m)
	case askTail:
		f.tellTail(m)
	case askRhythms:
		f.tellRhythms(m)
	case askCounts:
		f.tellCounts(m)
	case askClose:
		f.closeConsole(m)
	case tellLines:
		f.say(m)
	case tellForget:
		f.forget(m.PIDs)
	case tellLease:
		f.renew(m)
	default:
		f.serveLegacy(m)
	}
}

// start queues a process for the spawner, with pipes for its output.
func (f *first) start(m message) {
	if f.agentEnd != nil || m.Spec == nil {
		closeAll(m.files)
		return
	}
	if m.Spec.Tag != "" && m.Lapses != f.lease.lapses {
		closeAll(m.files)
		f.tell(message{Kind: answer, ID: m.ID, Lapses: f.lease.lapses})
		return
	}
	c := &child{tag: m.Spec.Tag, lines: m.Spec.Lines, alive: true, lapses: m.Lapses}
	s, err := f.spawnOf(m, c)
	if err != nil {
		closeAll(m.files)
		closeAll(c.pipes)
		f.tell(message{Kind: answer, ID: m.ID, Code: 125, Text: fmt.Sprintf("start a process: %v", err)})
		return
	}
	s.answer = func(pid int, started uint64, err error) {
		c.pid, c.started = pid, started
		if c.tag != "" && f.workers() == 0 {
			f.since = started
		}
		f.started(m.ID, c, err)
	}
	s.drop = func() { closeAll(s.closeAfter); closeAll(c.pipes); c.cgroup.close() }
	f.queue = append(f.queue, s)
}

func (f *first) spawnOf(m message, c *child) (spawn, error) {
	in := m.Spec
	s := spawn{argv: in.Argv, env: slices.Clip(in.Env), dir: in.Dir, core: in.Core, oom: in.OOM, binding: in.Binding, closeAfter: m.files}
	if in.Tag != "" {
		s.env = append(s.env, proc.TagName+"="+in.Tag)
		c.cgroup = f.cgroups.next()
		s.sys.UseCgroupFD, s.sys.CgroupFD = c.cgroup.dir != "", c.cgroup.fd
	}
	// Its own process group, but our session: a signal from the terminal is not for it, a hang-up reaches us all. Who reads
	// from the terminal must be in its foreground, which is where we are; then Ctrl-C is for it too.
	_, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	s.sys.Setpgid = !in.Stdin || err != nil
	if !f.isInit {
		s.sys.Pdeathsig = syscall.SIGKILL
	}
	s.files = []int{0, 1, 2}
	if !in.Stdin {
		null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return s, fmt.Errorf("%s: %w", os.DevNull, err)
		}
		s.files[0], s.closeAfter = null, append(s.closeAfter, null)
	}
	for i := 1; i <= 2 && !in.Output; i++ {
		read, write, err := pipe()
		if err != nil {
			return s, err
		}
		c.pipes = append(c.pipes, read)
		s.files[i], s.closeAfter = write, append(s.closeAfter, write)
	}
	s.files = append(s.files, m.files...)
	return s, nil
}

// started tells the agent about its new child, and what has become of it meanwhile.
func (f *first) started(id uint64, c *child, err error) {
	if err != nil {
		closeAll(c.pipes)
		c.cgroup.close()
		text, code := err.Error(), 125
		if e, ok := err.(*proc.StartError); ok {
			code = e.Code
		}
		f.tell(message{Kind: answer, ID: id, Code: code, Text: text})
		f.claim(0)
		return
	}
	f.children[c.pid] = c
	f.legacy.busy = f.legacy.busy || c.tag != ""
	told := message{Kind: answer, ID: id, PIDs: []int{c.pid}, Carried: c.lines != nil}
	if c.lines != nil {
		f.carry(c)
	} else {
		told.files = c.pipes
	}
	f.tell(told)
	f.claim(c.pid)
	if c.tag != "" && c.lapses != f.lease.lapses {
		f.lapse([]int{c.pid})
	}
}

// claim ends the time in which a reaped stranger may be the child whose PID we did not know yet: it was pid, or an orphan.
func (f *first) claim(pid int) {
	f.forking = false
	for p, e := range f.unclaimed {
		if p == pid {
			f.ended(e)
		} else {
			f.orphans.Add(1)
		}
	}
	clear(f.unclaimed)
}

// ended takes note of a process that was reaped.
func (f *first) ended(e proc.Exit) {
	c := f.children[e.PID]
	switch {
	case e.PID == f.agent:
		f.agentEnd = &e
	case c != nil && c.alive:
		e.Lapsed = c.lapsed
		c.alive, c.end = false, &wireExit{Exit: e, Clock: clock()}
		f.tell(message{Kind: tellExit, Exit: c.end})
		f.finish(c)
	case f.forking:
		f.unclaimed[e.PID] = e
		return
	default:
		f.orphans.Add(1)
	}
	f.known.remove(e.PID)
}

// signalChild reports false when there is no such process any more: only for those that we have not reaped can we know
// whom a PID means.
func (f *first) signalChild(m message) bool {
	if len(m.PIDs) != 1 {
		return false
	}
	c := f.children[m.PIDs[0]]
	if c == nil || !c.alive || dead(c.pid) {
		return false
	}
	c.asked = append(c.asked, m.Signal)
	if m.Signal == unix.SIGTERM {
		defer unix.Kill(-c.pid, unix.SIGCONT) // one that is stopped could not obey
	}
	switch m.Scope {
	case proc.Group:
		return unix.Kill(-c.pid, m.Signal) == nil
	case proc.Tree:
		all, _ := table.All() // without a process table, the leader alone
		tree := table.Tree(all, proc.Target{PID: c.pid, Start: c.started, Tag: c.tag})
		told := unix.Kill(c.pid, m.Signal) == nil // first: it may end because another one does
		for _, p := range tree {
			if p.PID != c.pid {
				_ = unix.Kill(p.PID, m.Signal) // it may have ended
			}
		}
		return told
	}
	return unix.Kill(c.pid, m.Signal) == nil
}

// kill starts killing trees and answers when nobody of them is left, or time is up.
func (f *first) kill(m message) {
	f.killTrees(m.PIDs, m.Within, func(left string) { f.tell(message{Kind: answer, ID: m.ID, Text: left}) })
}

// killTrees kills children with all they started, and says in the end, in words, what is left of them.
func (f *first) killTrees(pids []int, within time.Duration, over func(left string)) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	trees, carriers := f.treesOf(pids), f.carriers(pids)
	for _, pid := range pids {
		if c := f.children[pid]; c != nil && c.alive {
			c.killed = true
		}
	}
	go func() {
		defer cancel()
		left := trees.kill(ctx)
		for _, k := range carriers {
			k.Close()
		}
		filled := trees.clear()
		f.spawner.done <- func() {
			f.reap() // so that the agent hears of the leaders' ends before it hears that their trees are gone
			f.filled = slices.DeleteFunc(append(f.filled, filled...), cgroup.remove)
			over(left)
		}
	}()
}

// complain speaks to a person, before there is a console. It must not be needed by anyone: nobody may be reading.
func complain(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "muster: "+format+"\n", args...)
}
