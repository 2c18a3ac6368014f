package pid1

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/output"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/test/leak"
)

// client is the first process of the tests themselves.
var client *Client

// TestMain runs the tests as an agent: the test binary becomes a first process, which starts it again.
// It is also the binary under test: MUSTER_TEST_AGENT names what it shall do as another agent behind a first process of its
// own, MUSTER_TEST_INIT makes it "muster init".
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-test.fuzzworker") { // which has descriptors 3 and 4 from its parent
		os.Exit(m.Run())
	}
	if os.Getenv("MUSTER_TEST_INIT") != "" {
		os.Exit(initMain(os.Args[1:]))
	}
	role := os.Getenv("MUSTER_TEST_AGENT")
	if role == "deaf" && os.Getenv(marker) != "" {
		os.Stdout.WriteString("deaf\n")
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	c, err := Connect()
	if errors.Is(err, ErrNone) {
		os.Exit(Main(Config{TerminationLog: os.Getenv("MUSTER_TERMINATION_LOG"), Grace: time.Second, boottime: testClock()}))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(70)
	}
	if role != "" {
		os.Exit(agentMain(c, role))
	}
	client = c
	code := leak.Run(m)
	c.Close(code)
	os.Exit(code)
}

// agentMain starts each argument as a worker, a shell script or, behind "!", a command, carries its output, and tells of signals.
func agentMain(c *Client, role string) (code int) {
	if special := map[string]func(*Client) int{"storm": stormMain, "heir": heirMain, "doomed": doomedMain, "retire": retireMain, "brief": briefMain, "lessee": lesseeMain}[role]; special != nil {
		return special(c)
	}
	screen, err := c.OpenConsole(1, os.Stdout, os.Stderr, output.Style{})
	if err != nil {
		panic(err)
	}
	a := agent{c: c, code: -1, screen: screen}
	fmt.Printf("agent %d, first process %d\n", os.Getpid(), os.Getppid())
	for i, script := range os.Args[1:] {
		a.start(i, script)
	}
	defer func() { c.Close(code) }()
	switch role {
	case "run":
		return a.run()
	case "panic":
		go func() { panic("on purpose") }()
		select {}
	case "leave":
		a.up.Wait()
		return 5
	case "vanish":
		a.up.Wait()
		os.Exit(6)
	case "wordy":
		for i := range 1 << 30 {
			if err := c.LastWords([]string{"short", strings.Repeat("long", 200)}[i%2]); err != nil {
				return 1
			}
			if i == 2 {
				fmt.Println("writing")
			}
		}
	case "words":
		for _, text := range []string{"a long sentence, to be replaced", "short", "agent's last words"} {
			if err := c.LastWords(text); err != nil {
				panic(err)
			}
		}
	}
	return 0
}

// agent is a launcher in miniature.
type agent struct {
	c      *Client
	screen *Console
	all    sync.WaitGroup
	up     sync.WaitGroup // every worker has said "up"
	mu     sync.Mutex
	pids   []int
	code   int // of the first worker that ended
}

func (a *agent) start(rank int, script string) {
	label := fmt.Sprintf("[rank %d] ", rank)
	argv := []string{"sh", "-c", script}
	if command, ok := strings.CutPrefix(script, "!"); ok {
		argv = strings.Fields(command)
	}
	child, err := a.c.Start(context.Background(), proc.Spec{
		Argv: argv, Env: os.Environ(), Lines: &proc.Lines{Console: 1, Rank: rank, Shown: [2]bool{true, true}}, Tag: fmt.Sprintf("test/%d/1/x", rank),
		Stdin: os.Getenv("MUSTER_TEST_STDIN") != "",
	})
	if err != nil {
		panic(err)
	}
	a.pids = append(a.pids, child.PID)
	a.up.Add(1)
	a.all.Go(func() {
		e := a.await(child)
		<-child.Tail
		fmt.Fprintf(a.screen.Stdout(), "%s%v\n", label, e)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.code < 0 {
			a.code = e.Status()
		}
	})
}

// await returns how a worker ended, and notes before when it says "up".
func (a *agent) await(child *proc.Child) proc.Exit {
	var once sync.Once
	defer once.Do(a.up.Done)
	for {
		select {
		case e := <-child.Exit:
			return e
		case <-time.After(time.Millisecond):
		}
		if lines, _ := a.c.Tail(child.PID); slices.Contains(lines, "up") {
			once.Do(a.up.Done)
		}
	}
}

func (a *agent) run() int {
	done := make(chan struct{})
	go func() { a.all.Wait(); close(done) }()
	for {
		select {
		case <-done:
			_ = a.c.KillTree(context.Background(), a.pids...)
			return a.code
		case s := <-a.c.Signals():
			fmt.Printf("agent got %v\n", s)
			if s == unix.SIGTERM || s == unix.SIGINT {
				for _, pid := range a.pids {
					_ = a.c.Signal(pid, unix.SIGTERM, proc.Leader)
				}
			}
		}
	}
}

// stormMain runs a maker of 1,000 orphans, and 400 workers beside it, eight at a time, each of which leaves two more. As many processes the
// agent starts by itself, from threads that end before them, as a library might.
func stormMain(c *Client) int {
	maker, err := c.Start(context.Background(), proc.Spec{Argv: []string{"python3", "-c", os.Args[1]}, Env: os.Environ(), Output: true})
	if err != nil {
		panic(err)
	}
	var right, foreign atomic.Int64
	var all sync.WaitGroup
	for lane := range 8 {
		all.Go(func() {
			for i := range 50 {
				code := (lane*50 + i) % 256
				child, err := c.Start(context.Background(), proc.Spec{
					Argv: []string{"sh", "-c", fmt.Sprintf("(sleep 0.001 &); (sleep 0.01 &); exit %d", code)},
					Env:  os.Environ(), Output: true, Tag: fmt.Sprintf("storm/%d/%d/x", lane, i),
				})
				if err != nil {
					panic(err)
				}
				if e := <-child.Exit; e.Code == code && e.Signal == 0 && e.PID == child.PID {
					right.Add(1)
				}
				if err := fromAThreadThatEnds(exec.Command("sh", "-c", fmt.Sprintf("exit %d", code))); err != nil && err.Error() == fmt.Sprintf("exit status %d", code) || err == nil && code == 0 {
					foreign.Add(1)
				}
			}
		})
	}
	all.Wait()
	<-maker.Exit
	// Only the agent is left below the first process when the last orphan has been reaped.
	var pids []int
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if pids, err = table.Children(os.Getppid()); err != nil {
			panic(err)
		}
		if len(pids) == 1 {
			break
		}
	}
	n, _ := c.Orphans(context.Background())
	fmt.Printf("%d of 400 exits, %d of 400 others, %d zombies, %d orphans\n", right.Load(), foreign.Load(), len(pids)-1, n)
	c.Close(0)
	return 0
}

// fromAThreadThatEnds runs cmd. The thread that forks it ends at once, for a goroutine that returns while locked to it ends it.
func fromAThreadThatEnds(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- cmd.Start()
	}()
	if err := <-started; err != nil {
		return err
	}
	return cmd.Wait()
}

// patience bounds each wait for another process.
const patience = 4 * time.Minute

// A life is a first process under test, from outside.
type life struct {
	t     *testing.T
	PID   int // as the test sees it
	in    io.WriteCloser
	lines chan string
	seen  []string
	code  chan int
}

// world starts the binary under test somewhere.
type world struct {
	name  string
	start func(t *testing.T, env []string, argv ...string) *life
}

var worlds = []world{
	{"subreaper", func(t *testing.T, env []string, argv ...string) *life {
		return launch(t, 0, env, append([]string{"/proc/self/exe"}, argv...))
	}},
	// The shell is PID 1 of a new namespace, mounts its /proc, and becomes the binary under test.
	{"init", func(t *testing.T, env []string, argv ...string) *life {
		return launch(t, unix.CLONE_NEWPID, env, append([]string{"/bin/sh", "-c", `mount -t proc proc /proc && exec "$@"`, "sh", self()}, argv...))
	}},
}

func everywhere(t *testing.T, f func(t *testing.T, w world)) {
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) { f(t, w) })
	}
}

// next returns the next line of output.
func (l *life) next() string {
	l.t.Helper()
	select {
	case line, ok := <-l.lines:
		if !ok {
			l.t.Fatalf("it ended after %q", l.seen)
		}
		l.seen = append(l.seen, line)
		return line
	case <-time.After(patience):
		l.t.Fatalf("nothing more after %q", l.seen)
	}
	return ""
}

// await returns the next line that contains text, though there may be others without end.
func (l *life) await(text string) string {
	l.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if line := l.next(); strings.Contains(line, text) {
			return line
		}
	}
	l.t.Fatalf("no %q in %d lines", text, len(l.seen))
	return ""
}

// end waits for the end and returns the exit code and all the output.
func (l *life) end() (int, string) {
	l.t.Helper()
	for {
		select {
		case line, ok := <-l.lines:
			if ok {
				l.seen = append(l.seen, line)
				continue
			}
			return <-l.code, strings.Join(l.seen, "\n")
		case <-time.After(patience):
			l.t.Fatalf("it does not end after %q", l.seen)
		}
	}
}

func (l *life) signal(s unix.Signal) {
	l.t.Helper()
	if err := unix.Kill(l.PID, s); err != nil {
		l.t.Fatal(err)
	}
}
