package pid1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/output"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/test/halt"
)

// testClock is what a first process under test reads in place of CLOCK_BOOTTIME, if a file is named for it.
func testClock() func() time.Duration {
	path := os.Getenv("MUSTER_TEST_CLOCK")
	if path == "" {
		return nil
	}
	return func() time.Duration {
		b, err := os.ReadFile(path)
		if err != nil {
			panic(err)
		}
		d, err := time.ParseDuration(string(b))
		if err != nil {
			panic(err)
		}
		return d
	}
}

// lesseeMain is an agent that does what it reads, line by line, and tells how workers end, also those of an agent before it.
func lesseeMain(c *Client) int {
	if clock := testClock(); clock != nil {
		c.boottime = clock
	}
	if _, err := c.OpenConsole(1, os.Stdout, os.Stderr, output.Style{}); err != nil {
		panic(err)
	}
	if err := c.Keep("life", nil); err != nil { // it can be followed
		panic(err)
	}
	fmt.Printf("agent %d, first process %d\n", os.Getpid(), os.Getppid())
	if old := c.Legacy(); old != nil {
		for _, child := range old.Children {
			go tellEnd(child.Tag, child.Child)
		}
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		verb, word, _ := strings.Cut(in.Text(), " ")
		switch verb {
		case "lease", "murmur": // which nobody may hear yet
			within, err := time.ParseDuration(word)
			if err = errors.Join(err, c.Lease(within)); err != nil {
				panic(err)
			}
		case "talk":
			go func() {
				for c.send(message{Kind: tellWords, Text: "x"}) == nil {
				}
			}()
		case "start":
			go lesseeStart(c, word)
		case "post": // to a first process that stands still: what it is asked is there when it goes on
			go lesseeStart(c, word)
			for unread(c) == 0 {
			}
		}
		if verb == "lease" || verb == "ask" { // for what the first process answers once it has done all before
			if _, err := c.Orphans(context.Background()); err != nil {
				panic(err)
			}
		}
		fmt.Printf("%s: done\n", in.Text())
	}
	c.Close(5)
	return 5
}

// unread is how many bytes the first process has not read yet, and what they take in the kernel's memory.
func unread(c *Client) (n int) {
	raw, err := c.link.conn.SyscallConn()
	if err == nil {
		err = errors.Join(err, raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }))
	}
	if err != nil {
		panic(err)
	}
	return n
}

func lesseeStart(c *Client, script string) {
	child, err := c.Start(context.Background(), proc.Spec{
		Argv: []string{"sh", "-c", script}, Env: os.Environ(), Tag: "lessee/" + script,
		Lines: &proc.Lines{Console: 1, Bare: true, Shown: [2]bool{true, true}},
	})
	if err != nil {
		fmt.Printf("not started: %v (%v)\n", err, errors.Is(err, ErrLapsed))
		return
	}
	tellEnd("lessee/"+script, child)
}

func tellEnd(tag string, child *proc.Child) {
	e := <-child.Exit
	fmt.Printf("%s %v, lapsed %v\n", tag, e, e.Lapsed)
}

// A lessee is a first process with such an agent, and with a clock that moves by the test's hand.
type lessee struct {
	*life
	clock string
	agent int
}

func startLessee(t *testing.T, w world) *lessee {
	l := &lessee{clock: filepath.Join(t.TempDir(), "clock")}
	l.set(t, "0s")
	l.life = w.start(t, []string{"MUSTER_TEST_AGENT=lessee", "MUSTER_TEST_CLOCK=" + l.clock})
	l.agent = agentOf(t, l.life)
	return l
}

// set puts the clock at a time, in one stroke.
func (l *lessee) set(t *testing.T, at string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(l.clock+".new", []byte(at), 0o600), os.Rename(l.clock+".new", l.clock)); err != nil {
		t.Fatal(err)
	}
}

// do makes the agent do these things, and waits until they are done.
func (l *lessee) do(lines ...string) {
	l.t.Helper()
	for _, line := range lines {
		fmt.Fprintln(l.in, line)
		l.await(line + ": done")
	}
}

// worker starts one that lives until it is killed, with a child elsewhere, and waits until both are there.
func (l *lessee) worker(t *testing.T) (number string) {
	t.Helper()
	number = fmt.Sprintf("3600.%d%d", os.Getpid(), time.Now().Nanosecond())
	fmt.Fprintf(l.in, "start setsid sleep %s & echo $((6 * 7)) are up; exec sleep %s\n", number, number)
	l.await("42 are up")
	for end := time.Now().Add(patience); len(asleep(t, number)) < 2; { // one that is just becoming sleep has no arguments for a moment
		if time.Now().After(end) {
			t.Fatalf("not both processes of a worker are there\n%s", strings.Join(l.seen, "\n"))
		}
	}
	return number
}

// asleep are the processes of a worker that have become what they are to be.
func asleep(t *testing.T, number string) []proc.Process {
	t.Helper()
	return slices.DeleteFunc(having(t, "sleep "+number), func(p proc.Process) bool { return p.Name != "sleep" })
}

// gone waits until nobody of a worker's tree is left.
func gone(t *testing.T, number string) {
	t.Helper()
	for end := time.Now().Add(patience); len(having(t, "sleep "+number)) > 0; {
		if time.Now().After(end) {
			t.Fatalf("%d processes of a worker live on", len(having(t, "sleep "+number)))
		}
	}
}

func (l *lessee) kill(t *testing.T, pid int, sig unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// follow waits for the next agent.
func (l *lessee) follow(t *testing.T) {
	t.Helper()
	l.await("another one takes over")
	l.agent = agentOf(t, l.life)
}

const (
	lapseSaid = "muster: the agent did not answer for 21s: killed 1 workers, for other nodes may go on without this one"
	lapseTold = "was killed by signal 9 (killed), lapsed true"
)

// Workers live while the lease is renewed, and when it was taken back; they die with all they started when it runs out, and their end
// says so. Then the agent may begin anew.
func TestLease(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		l := startLessee(t, w)
		number := l.worker(t)
		l.set(t, "1h") // without a lease time means nothing
		l.do("lease 20s")
		l.set(t, "1h19s")
		l.do("lease 20s")
		l.set(t, "1h38s")
		l.do("lease 20s", "lease 0s")
		l.set(t, "2h")
		l.do("lease 20s")
		if n := len(having(t, "sleep "+number)); n < 2 {
			t.Fatalf("%d of two processes live\n%s", n, strings.Join(l.seen, "\n"))
		}
		l.set(t, "2h21s")
		l.await(lapseSaid)
		l.await(lapseTold)
		gone(t, number)
		l.do("lease 20s")
		number = l.worker(t)
		l.set(t, "3h")
		l.await("killed 1 workers")
		gone(t, number)
		l.in.Close()
		if code, out := l.end(); code != 5 {
			t.Errorf("exit %d\n%s", code, out)
		}
	})
}

// By the real clock, an agent that is stopped loses its workers in time, and hears of it when it goes on.
func TestLeaseOfAStoppedAgent(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		l := &lessee{life: w.start(t, []string{"MUSTER_TEST_AGENT=lessee"})}
		agent := agentOf(t, l.life)
		number := l.worker(t)
		l.do("lease 300ms")
		halt.Stop(t, agent)
		l.await("killed 1 workers, for other nodes may go on without this one")
		gone(t, number)
		l.kill(t, agent, unix.SIGCONT)
		l.await(lapseTold)
	})
}

// When the first process itself stood still, what has run out is done before what the agent said meanwhile: it renews nothing, and
// starts nobody.
func TestLeaseOfAStoppedFirstProcess(t *testing.T) {
	l := startLessee(t, worlds[0])
	number := l.worker(t)
	l.do("lease 20s")
	halt.Stop(t, l.PID)
	l.do("post echo up after all", "murmur 20s")
	l.set(t, "21s")
	l.kill(t, l.PID, unix.SIGCONT)
	l.await(lapseSaid)
	gone(t, number)
	l.await(lapseTold) // before that the agent asks as one whose lease goes on, and is refused
	number = l.worker(t)
	l.set(t, "1h") // there is no lease that could run out
	l.do("ask")
	if n := len(having(t, "sleep "+number)); n < 2 {
		t.Errorf("%d of two processes live", n)
	}
	out := strings.Join(l.seen, "\n")
	if !strings.Contains(out, "not started: the lease ran out before the worker was started (true)") || strings.Contains(out, "\nup after all") || strings.Count(out, "killed 1 workers") != 1 {
		t.Errorf("%s", out)
	}
}

// What the agent said in time counts, however late the first process reads it, which alone stood still: the others have heard that agent all
// the while. All else keeps its turn. What it said when the lease was over counts nothing, for then the agent had stood still, too.
func TestLeaseIsReadLate(t *testing.T) {
	for _, c := range []struct {
		name   string
		given  []string // when
		now    string
		killed bool
	}{
		{"in time", []string{"19s", "38s", "57s"}, "76s", false},
		{"with a gap", []string{"19s", "40s", "57s"}, "59s", true},
		{"not of late", []string{"19s"}, "40s", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := startLessee(t, worlds[0])
			number := l.worker(t)
			l.set(t, "1ms")
			l.do("lease 20s")
			halt.Stop(t, l.PID)
			l.do("post echo up after all")
			for _, at := range c.given {
				l.set(t, at)
				l.do("murmur 20s")
			}
			l.set(t, c.now)
			l.kill(t, l.PID, unix.SIGCONT)
			if c.killed {
				l.await(lapseTold)
				gone(t, number)
				l.in.Close()
				if code, out := l.end(); code != 5 || !strings.Contains(out, "killed 1 workers") || strings.Contains(out, "\nup after all") {
					t.Errorf("exit %d\n%s", code, out)
				}
				return
			}
			l.await("up after all")
			l.do("ask")
			if n := len(having(t, "sleep "+number)); n < 2 || strings.Contains(strings.Join(l.seen, "\n"), "killed") {
				t.Errorf("%d of two processes live\n%s", n, strings.Join(l.seen, "\n"))
			}
			l.set(t, "78s") // the last lease ends as any
			l.await("the agent did not answer for 21s: killed 1 workers")
			gone(t, number)
		})
	}
}

// Who talks without end, and not of the lease, is not waited for.
func TestLeaseOfATalker(t *testing.T) {
	l := startLessee(t, worlds[0])
	number := l.worker(t)
	l.set(t, "1ms")
	l.do("lease 20s", "talk")
	l.set(t, "1h")
	gone(t, number)
}

// A lease goes on while another agent takes over, which renews it; workers that were killed while nobody listened are told to the next
// agent as such.
func TestLeaseOfAnAgentThatIsFollowed(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		l := startLessee(t, w)
		number := l.worker(t)
		l.do("lease 20s")
		l.kill(t, l.agent, unix.SIGKILL)
		l.follow(t)
		l.set(t, "19s")
		l.do("lease 20s")
		l.set(t, "38s")
		l.do("ask")
		if n := len(having(t, "sleep "+number)); n < 2 {
			t.Fatalf("%d of two processes live\n%s", n, strings.Join(l.seen, "\n"))
		}
		halt.Stop(t, l.agent)
		l.set(t, "40s")
		l.await(lapseSaid)
		gone(t, number)
		l.kill(t, l.agent, unix.SIGKILL)
		l.follow(t)
		l.await(lapseTold)
		l.do("lease 20s") // it knows of the lease that ran out: this one counts
		l.worker(t)
		l.set(t, "61s")
		l.await("killed 1 workers")
	})
}

// Agent and first process may be of different versions. Who does not know leases is not to lose its workers over the lease of an
// agent before it, and messages that nobody knows do no harm.
func TestLeaseAmongVersions(t *testing.T) {
	now := time.Duration(0)
	f := &first{cfg: Config{boottime: func() time.Duration { return now }}, children: map[int]*child{}}
	defer func() { f.lease.alarm.close() }()
	f.serve(message{Kind: tellLease, Within: time.Second})
	f.serve(message{Kind: tellHello, Leases: true})
	if f.lease.until != time.Second {
		t.Errorf("an agent that renews leases found %v", f.lease.until)
	}
	f.serve(message{Kind: tellHello})
	if f.lease.until != 0 {
		t.Errorf("an agent that knows no leases found one until %v", f.lease.until)
	}
	if err := client.send(message{Kind: 1 << 20, Leases: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Orphans(t.Context()); err != nil {
		t.Errorf("after an unknown message: %v", err)
	}
	if err := client.Lease(-time.Second); err == nil {
		t.Error("a lease of -1s was taken")
	}
}

// A renewal that comes late renews nothing.
func TestLeaseOutOfDate(t *testing.T) {
	now := time.Duration(0)
	f := &first{cfg: Config{boottime: func() time.Duration { return now }}, children: map[int]*child{}, spawner: spawner{done: make(chan func(), 10)}}
	defer func() { f.lease.alarm.close() }()
	renew := func(within time.Duration, lapses int) {
		f.serve(message{Kind: tellLease, Within: within, Lapses: lapses})
	}
	for _, c := range []struct {
		at            time.Duration
		within        time.Duration
		lapses        int // that the agent knows of
		until, lapsed time.Duration
	}{
		{at: 0, within: 10, until: 10},
		{at: 9, within: 10, until: 19},
		{at: 19, within: 10, until: 0, lapsed: 1},
		{at: 20, within: 10, until: 0, lapsed: 1},
		{at: 21, within: 10, lapses: 1, until: 31, lapsed: 1},
		{at: 22, within: 0, lapses: 0, until: 31, lapsed: 1},
		{at: 23, within: 0, lapses: 1, until: 0, lapsed: 1},
		{at: 99, within: 10, lapses: 1, until: 109, lapsed: 1},
		{at: 200, within: 10, lapses: 1, until: 0, lapsed: 2},
	} {
		now = c.at
		if renew(c.within, c.lapses); f.lease.until != c.until || f.lease.lapses != int(c.lapsed) {
			t.Errorf("at %d a lease for %d, knowing of %d: until %d, %d lapses; want %d, %d",
				c.at, c.within, c.lapses, f.lease.until, f.lease.lapses, c.until, c.lapsed)
		}
	}
}
