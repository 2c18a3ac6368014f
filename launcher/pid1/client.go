package pid1

import (
	"context"
	"errors"
	"fmt"
	"os"
	ossignal "os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/output"
	"github.com/muster-run/muster/proc"
)

// ErrNone says that no first process started this one: it may become it, with Main.
var ErrNone = errors.New("there is no first process")

// ErrLost says that the first process is gone. As PID 1 it takes everything with it; elsewhere its workers are killed.
var ErrLost = errors.New("the first process is gone")

// A Client is the agent's side: through it the first process starts, signals and kills.
// All methods may be called at once from many goroutines.
type Client struct {
	link    *link
	signals chan os.Signal
	direct  chan os.Signal // came to this process itself
	lost    chan struct{}  // closed when the first process is gone
	closing chan struct{}  // closed by Close
	warm    chan struct{}  // closed when this process has all threads that it may need

	legacy   *Legacy
	life     int                  // agents before this one
	boottime func() time.Duration // CLOCK_BOOTTIME

	running sync.WaitGroup
	sending sync.Mutex // around link.send

	mu       sync.Mutex
	closed   bool
	next     uint64
	waiting  map[uint64]chan message  // who waits for the answer
	children map[int]chan<- proc.Exit // who waits for the end of a child
	tails    map[int]chan<- []string  // and for its last lines
	tags     map[int]string           // of children that may have left something behind
	lapses   int                      // of leases, as far as we were told
}

// Connect finds the first process that started this one, catches the signals that it forwards, and tells it so.
// Without one the error is ErrNone. It must be called before other descriptors are opened, once.
func Connect() (*Client, error) {
	fd, ours, before, older, ok := marked()
	os.Unsetenv(marker) // not for the workers
	if !ok {
		return nil, ErrNone
	}
	if ours == 1 {
		os.Unsetenv(processors)
	}
	unix.CloseOnExec(fd)
	// The kernel named us "exe", by /proc/self/exe; people look for us under the name that they called.
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0)
	l, err := newLink(fd)
	if err != nil {
		return nil, fmt.Errorf("first process: descriptor %d: %w", fd, err)
	}
	l.settle(older)
	c := newClient(l)
	ossignal.Notify(c.direct, control...)
	ossignal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // a closed standard output is an error, not an end
	// We write to the terminal from the background (see startAgent), also where "stty tostop" is set.
	// We have no children who could inherit this.
	ossignal.Ignore(unix.SIGTTOU)
	c.next = uint64(before) << 32 // an answer to an agent before us is not ours
	if err := c.begin(before); err != nil {
		c.Close(job.ExitSystem)
		return nil, err
	}
	return c, nil
}

// Agent reports whether a first process started this one, which has not called Connect yet.
func Agent() bool {
	_, _, _, _, ok := marked()
	return ok
}

// marked is what the marker says, unless it is somebody else's, by inheritance. A first process of an older release says one thing less.
func marked() (fd, ours, before int, older, ok bool) {
	var parent, fields int
	n, _ := fmt.Sscanf(os.Getenv(marker), "%d:%d:%d:%d:%d", &fd, &parent, &ours, &before, &fields)
	return fd, ours, before, n == 4, n >= 4 && fd >= 3 && parent == os.Getppid()
}

// begin says hello, and takes what an agent before this one left.
func (c *Client) begin(before int) error {
	c.life = before
	if err := c.send(message{Kind: tellHello, Leases: true}); err != nil || before == 0 {
		return err
	}
	m, err := c.ask(context.Background(), message{Kind: askLegacy})
	if err == nil {
		c.legacy = m.inherited
	}
	return err
}

func newClient(l *link) *Client {
	c := &Client{
		link: l, boottime: boottime, signals: make(chan os.Signal, 64), direct: make(chan os.Signal, 64),
		lost: make(chan struct{}), closing: make(chan struct{}), warm: make(chan struct{}),
		waiting: map[uint64]chan message{}, children: map[int]chan<- proc.Exit{}, tails: map[int]chan<- []string{}, tags: map[int]string{},
	}
	c.running.Go(c.receive)
	c.running.Go(c.listen)
	c.running.Go(func() { // Start waits for it; nobody needs it before there are workers
		warm(runtime.GOMAXPROCS(0))
		close(c.warm)
	})
	return c
}

// Signals delivers what was meant for the job, each signal once: TERM, INT, HUP, QUIT, USR1, USR2, WINCH.
// None is lost between Connect and the first read.
func (c *Client) Signals() <-chan os.Signal { return c.signals }

// listen takes the signals that come to this process itself, and not by way of the first process. One of them says
// something else: the kernel sends TERM, too, when the first process is killed (PR_SET_PDEATHSIG), as soon as the first of
// its threads has ended, while its connections last until the last has.
func (c *Client) listen() {
	for {
		select {
		case s := <-c.direct:
			if s != unix.SIGTERM || !c.ends() {
				c.deliver(s)
			}
		case <-c.closing:
			return
		}
	}
}

// lossTime is how long the end of the first process may take to reach us, once its death was told.
const lossTime = time.Second

// ends waits for the end of the first process, and reports whether it came.
func (c *Client) ends() bool {
	select {
	case <-c.lost:
		return true
	case <-time.After(lossTime):
		return false
	case <-c.closing:
		return false
	}
}

func (c *Client) deliver(s os.Signal) {
	select {
	case c.signals <- s:
	default: // as os/signal does when nobody listens
	}
}

// Lost is closed when the first process is gone.
func (c *Client) Lost() <-chan struct{} { return c.lost }

// Close says goodbye: the agent ends because it wants to, and this exit code is the job's, even if it does not come to that.
// An agent that ends without it counts as dead, and its workers are stopped.
func (c *Client) Close(code int) error {
	c.mu.Lock()
	again := c.closed
	c.closed = true
	c.mu.Unlock()
	if again {
		return nil
	}
	err := c.send(message{Kind: tellGoodbye, Code: code})
	c.link.conn.Close()
	close(c.closing)
	c.running.Wait()
	return err
}

// Start starts a process. The error is a *proc.StartError if it is the command's fault, ErrLost, or ctx's;
// in the last case the process, if it comes to be, is killed.
func (c *Client) Start(ctx context.Context, s proc.Spec) (*proc.Child, error) {
	<-c.warm
	files, err := descriptors(s.Files)
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	dir := s.Dir
	if dir == "" {
		if dir, err = os.Getwd(); err != nil {
			dir = "" // ours was removed; the first process stands in the same
		}
	}
	m, err := c.ask(ctx, message{Kind: askStart, files: files, Lapses: c.known(), Spec: &spawnSpec{
		Argv: s.Argv, Env: s.Env, Dir: dir, Stdin: s.Stdin, Output: s.Output, Lines: s.Lines,
		Tag: s.Tag, Core: s.Core, OOM: s.OOM, Binding: s.Binding,
	}})
	if errors.Is(err, ErrLost) && s.Tag != "" { // it may have been started all the same
		err = errors.Join(err, killAlone(ctx, defaultKillTime, s.Tag))
	}
	if err != nil {
		return nil, err
	}
	if m.Lapses > 0 {
		return nil, ErrLapsed
	}
	if m.Text != "" {
		return nil, &proc.StartError{Code: m.Code, Text: m.Text}
	}
	child := &proc.Child{PID: m.PIDs[0], Exit: m.exit, Tail: m.tail}
	c.mu.Lock()
	c.tags[child.PID] = s.Tag
	c.mu.Unlock()
	if len(m.files) == 2 {
		child.Stdout = os.NewFile(uintptr(m.files[0]), "stdout")
		child.Stderr = os.NewFile(uintptr(m.files[1]), "stderr")
	}
	return child, nil
}

// Signal sends sig to a child of the first process. proc.ErrEnded: it has ended, nobody was signalled.
func (c *Client) Signal(pid int, sig syscall.Signal, scope proc.Scope) error {
	m, err := c.ask(context.Background(), message{Kind: askSignal, PIDs: []int{pid}, Signal: sig, Scope: scope})
	if err == nil && m.Gone {
		return proc.ErrEnded
	}
	return err
}

// defaultKillTime is for a ctx without deadline: big address spaces with pinned memory die slowly.
const defaultKillTime = time.Minute

// KillTree kills children of the first process, alive or ended, with all they started, and returns when nobody of them is
// left. When ctx ends first, the error names who does not die and in which state it is.
func (c *Client) KillTree(ctx context.Context, pids ...int) error {
	within := defaultKillTime
	if t, ok := ctx.Deadline(); ok {
		within = time.Until(t)
	}
	m, err := c.ask(context.WithoutCancel(ctx), message{Kind: askKill, PIDs: pids, Within: within})
	if errors.Is(err, ErrLost) {
		return killAlone(ctx, within, c.tagsOf(pids)...)
	}
	if err == nil && m.Text != "" {
		err = errors.New(m.Text)
	}
	if err == nil {
		c.mu.Lock()
		for _, pid := range pids {
			delete(c.tags, pid)
		}
		c.mu.Unlock()
	}
	return err
}

// tagsOf returns the tags of children that may have left something behind.
func (c *Client) tagsOf(pids []int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var tags []string
	for _, pid := range pids {
		tags = append(tags, c.tags[pid])
	}
	return tags
}

// killAlone kills by tag, the only thing that is certain when the parent of the processes is gone.
func killAlone(ctx context.Context, within time.Duration, tags ...string) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var targets []proc.Target
	for _, tag := range tags {
		targets = append(targets, proc.Target{Tag: tag})
	}
	h := proc.Hunt{Find: func(all []proc.Process) []proc.Process { return table.Tree(all, targets...) }}
	if left := describe(table.Kill(ctx, h)); left != "" {
		return errors.New(left)
	}
	return nil
}

// Tail returns the last lines so far of a child whose output the first process reads.
func (c *Client) Tail(pid int) ([]string, error) {
	m, err := c.ask(context.Background(), message{Kind: askTail, PIDs: []int{pid}})
	return m.Lines, err
}

// Rhythms returns what the output of children tells so far, in their order; looks says whether lines of each are to be looked at for
// progress from now on. A first process of an older version does not answer.
func (c *Client) Rhythms(ctx context.Context, pids []int, looks []bool) ([]output.Rhythm, error) {
	m, err := c.ask(ctx, message{Kind: askRhythms, PIDs: pids, Looks: looks})
	if err == nil && len(m.Rhythms) != len(pids) {
		err = fmt.Errorf("the first process knows the output of %d of %d processes", len(m.Rhythms), len(pids))
	}
	return m.Rhythms, err
}

// Counts returns what became of the workers' output so far. A first process of an older version does not answer.
func (c *Client) Counts(ctx context.Context) (output.Counts, error) {
	m, err := c.ask(ctx, message{Kind: askCounts})
	if err == nil && m.Counts == nil {
		err = errors.New("the first process does not know what became of the output")
	}
	if err != nil {
		return output.Counts{}, err
	}
	return *m.Counts, nil
}

// Forget says that these children have ended, and that nobody will ask about them any more.
func (c *Client) Forget(pids ...int) {
	_ = c.send(message{Kind: tellForget, PIDs: pids}) // a first process that is gone has forgotten all
}

// LastWords leaves text, of at most 1 KiB, as the termination log's content, until the next text or a worse end.
func (c *Client) LastWords(text string) error {
	return c.send(message{Kind: tellWords, Text: clip(text, maxWords)})
}

// Orphans returns how many processes were adopted and reaped so far.
func (c *Client) Orphans(ctx context.Context) (int, error) {
	m, err := c.ask(ctx, message{Kind: askOrphans})
	return m.Count, err
}

// ask sends a request and waits for its answer.
func (c *Client) ask(ctx context.Context, m message) (message, error) {
	back := make(chan message, 1)
	c.mu.Lock()
	c.next++
	m.ID = c.next
	c.waiting[m.ID] = back
	c.mu.Unlock()
	if err := c.send(m); err != nil {
		c.drop(m.ID)
		return message{}, err
	}
	select {
	case m, ok := <-back:
		if !ok {
			return message{}, ErrLost
		}
		return m, nil
	case <-ctx.Done():
		if !c.drop(m.ID) { // the answer came at the same time
			c.discard(<-back)
		}
		return message{}, ctx.Err()
	}
}

// drop makes nobody wait for an answer any more. It reports whether anybody did.
func (c *Client) drop(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, waited := c.waiting[id]
	delete(c.waiting, id)
	return waited
}

func (c *Client) send(m message) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	if err := c.link.send(m); err != nil {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return nil
}

// receive carries answers and exits to those who wait for them, until the link ends.
func (c *Client) receive() {
	for {
		m, err := c.link.receive()
		if err != nil {
			c.lose()
			return
		}
		switch m.Kind {
		case answer:
			c.answered(m)
		case tellExit:
			c.exited(m)
		case tellTail:
			c.read(m)
		case tellLapse:
			c.lapsed(m)
		case tellSignal:
			c.deliver(m.Signal)
		}
	}
}

func (c *Client) answered(m message) {
	c.mu.Lock()
	back := c.waiting[m.ID]
	delete(c.waiting, m.ID)
	if m.Legacy != nil {
		m.inherited = c.inherit(m)
	}
	if len(m.PIDs) == 1 && back != nil {
		exit := make(chan proc.Exit, 1)
		c.children[m.PIDs[0]] = exit
		m.exit = exit
		if m.Carried {
			tail := make(chan []string, 1)
			c.tails[m.PIDs[0]] = tail
			m.tail = tail
		}
	}
	c.mu.Unlock()
	if back == nil {
		c.discard(m)
		return
	}
	back <- m
}

// discard undoes a start for which nobody waits any more.
func (c *Client) discard(m message) {
	closeAll(m.files)
	if len(m.PIDs) == 1 {
		_ = c.send(message{Kind: askKill, PIDs: m.PIDs, Within: defaultKillTime})
	}
}

func (c *Client) exited(m message) {
	e := m.Exit.local()
	c.mu.Lock()
	defer c.mu.Unlock()
	if exit := c.children[e.PID]; exit != nil {
		exit <- e
		delete(c.children, e.PID)
	}
}

// read takes the last lines of a child that has ended.
func (c *Client) read(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if tail := c.tails[m.PIDs[0]]; tail != nil {
		tail <- m.Lines
		delete(c.tails, m.PIDs[0])
	}
}

// lose tells everybody who waits that there is nothing to wait for.
func (c *Client) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, back := range c.waiting {
		close(back)
		delete(c.waiting, id)
	}
	for pid, exit := range c.children {
		exit <- proc.Exit{PID: pid, At: time.Now(), Lost: ErrLost.Error()}
		delete(c.children, pid)
	}
	for pid, tail := range c.tails {
		tail <- nil
		delete(c.tails, pid)
	}
	if !c.closed {
		close(c.lost)
	}
}

// descriptors duplicates files for the way; they stay their owner's.
func descriptors(files []*os.File) ([]int, error) {
	if len(files) > maxFiles {
		return nil, fmt.Errorf("%d extra files, at most %d are possible", len(files), maxFiles)
	}
	var fds []int
	for _, f := range files {
		raw, err := f.SyscallConn()
		if err != nil {
			return fds, err
		}
		err = raw.Control(func(fd uintptr) { fds = append(fds, duplicates([]int{int(fd)})...) })
		if err != nil {
			return fds, err
		}
	}
	if len(fds) != len(files) {
		closeAll(fds)
		return nil, errors.New("too many open files")
	}
	return fds, nil
}
