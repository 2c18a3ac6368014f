package pid1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/output"
	"github.com/muster-run/muster/proc"
)

// heirMain is an agent that can be followed by another: it starts two workers, or takes them over, and tells how they end.
func heirMain(c *Client) int {
	screen, err := c.OpenConsole(1, os.Stdout, os.Stderr, output.Style{})
	if err != nil {
		panic(err)
	}
	say := func(format string, args ...any) { fmt.Fprintf(screen.Stdout(), format+"\n", args...) }
	old := c.Legacy()
	if old == nil {
		old = bear(c)
	} else {
		text, _ := bufio.NewReader(old.Files["pipe"]).ReadString('\n')
		say("inherited %s, %s%s, and %q from the pipe", old.Blobs["life"], old.Blobs["pipe"], old.Blobs["pip"], strings.TrimSpace(text))
	}
	n := len(old.Blobs["life"]) + 1
	if err := c.Keep("life", []byte(strings.Repeat("i", n))); err != nil {
		panic(err)
	}
	say("agent %d, first process %d, of life %d", os.Getpid(), os.Getppid(), n)
	for _, child := range old.Children {
		say("%s %v %v: %v, tail %q", child.Tag, child.Asked, child.Killed, <-child.Exit, <-child.Tail)
	}
	if err := screen.Close(context.Background()); err != nil {
		panic(err)
	}
	c.Close(7)
	return 7
}

// bear starts the workers and leaves a pipe that holds a line.
func bear(c *Client) *Legacy {
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(w, "the line")
	for _, name := range []string{"pipe", "pip"} {
		if err := errors.Join(c.Hold(name, r), c.Keep(name, []byte(name))); err != nil {
			panic(err)
		}
	}
	if err := c.Drop("pip"); err != nil { // which is not "pipe"
		panic(err)
	}
	r.Close()
	w.Close()
	l := &Legacy{}
	for rank, script := range []string{
		`echo up 0; exit 3`,
		`trap 'echo got it' USR1; echo up 1; i=0; while [ ! -e ` + os.Args[1] + ` ]; do i=$((i+1)); echo "line $i"; sleep 0.01; done; echo "last $i"`,
	} {
		child, err := c.Start(context.Background(), proc.Spec{
			Argv: []string{"sh", "-c", script}, Env: os.Environ(), Tag: fmt.Sprintf("t/%d/0/x", rank),
			Lines: &proc.Lines{Console: 1, Rank: rank, Shown: [2]bool{true, true}},
		})
		if err != nil {
			panic(err)
		}
		if rank == 0 { // its end is known, and told again to the next agent
			<-child.Exit
			<-child.Tail
			continue
		}
		for lines, _ := c.Tail(child.PID); len(lines) == 0; lines, _ = c.Tail(child.PID) { // until its trap stands
		}
		if err := c.Signal(child.PID, syscall.SIGUSR1, proc.Leader); err != nil {
			panic(err)
		}
		l.Children = append(l.Children, Inherited{Child: child, Tag: fmt.Sprint(rank)})
	}
	return l
}

// An agent that is killed is followed by another one, which finds children, exits, last lines and what was left for it; no
// line of the workers is lost or comes twice.
func TestAgentIsFollowed(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		end := filepath.Join(t.TempDir(), "end")
		l := w.start(t, []string{"MUSTER_TEST_AGENT=heir"}, end)
		agent := agentOf(t, l)
		if !strings.Contains(strings.Join(l.seen, "\n"), "got it") { // the worker may be quicker than the agent's word
			l.await("got it")
		}
		if err := unix.Kill(agent, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		l.await("of life 2")
		if err := os.WriteFile(end, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		code, all := l.end()
		for _, want := range []string{
			"muster: the agent died (signal 9); another one takes over, the workers go on",
			`inherited i, pipe, and "the line" from the pipe`,
			`t/0/0/x [] false: exited with 3, tail ["up 0"]`,
			`t/1/0/x [user defined signal 1] false: exited with 0, tail [`,
		} {
			if !strings.Contains(all, want) {
				t.Errorf("no %q in\n%s", want, all)
			}
		}
		var said, last int
		for line := range strings.Lines(all) {
			var i int
			if n, _ := fmt.Sscanf(line, "[rank 1] line %d", &i); n == 1 {
				if said++; i != said {
					t.Fatalf("line %d comes as number %d", i, said)
				}
			}
			fmt.Sscanf(line, "[rank 1] last %d", &last)
		}
		if said == 0 || said != last || code != 7 {
			t.Errorf("%d of %d lines, exit %d", said, last, code)
		}
	})
}

// Agents that die one after the other are not followed for ever.
func TestAgentsDieEarly(t *testing.T) {
	l := worlds[0].start(t, []string{"MUSTER_TEST_AGENT=doomed"})
	code, out := l.end()
	if n := strings.Count(out, "another one takes over"); n != mostVain || code != 138 || !strings.HasSuffix(out, "muster: the agent died (exit code 6), as did the 5 before it") {
		t.Errorf("exit %d\n%s", code, out)
	}
}

// An agent that has workers may die as often as it likes, if it lives for a while; one that has none, only if it lives for long.
func TestAgentsInVain(t *testing.T) {
	for _, c := range []struct {
		lived time.Duration
		busy  bool
		vain  int // after three of them
	}{
		{soon - 1, true, 3}, {soon, true, 1}, {soon, false, 3}, {idle - 1, false, 3}, {idle, false, 1},
	} {
		l := legacy{busy: c.busy}
		for range 3 {
			l.note(c.lived)
		}
		if l.vain != c.vain {
			t.Errorf("%v, with workers: %v: %d came to nothing, not %d", c.lived, c.busy, l.vain, c.vain)
		}
	}
}

// doomedMain is an agent that always dies.
func doomedMain(c *Client) int {
	if err := c.Keep("life", nil); err != nil {
		panic(err)
	}
	_, _ = c.Tail(0) // the first process has read so far
	return 6
}

// An agent that is killed before it began anything is followed by another; one that is killed after its goodbye is not, for it
// has said how it all ends.
func TestAgentIsKilledAtItsEnds(t *testing.T) {
	l := worlds[0].start(t, []string{"MUSTER_TEST_AGENT=brief"})
	code, out := l.end()
	if want := "muster: the agent died (signal 9); another one takes over, no worker was running"; code != 7 || out != want {
		t.Errorf("exit %d\n%s", code, out)
	}
}

// briefMain is an agent that is killed at once, and when another one follows, as soon as that has said goodbye.
func briefMain(c *Client) int {
	if c.Life() > 0 {
		c.Close(7)
	}
	unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

// A program that asks to be followed by another one is; when that does not begin, by itself.
func TestSuccessor(t *testing.T) {
	for _, path := range []string{self(), "/bin/false"} {
		l := worlds[0].start(t, []string{"MUSTER_TEST_AGENT=retire"}, path)
		code, out := l.end()
		if code != 9 || strings.Count(out, "life") != 2 || strings.Contains(out, "died") != (path == "/bin/false") {
			t.Errorf("%s: exit %d\n%s", path, code, out)
		}
	}
}

// retireMain is an agent that makes way for another.
func retireMain(c *Client) int {
	_, _ = io.WriteString(os.Stdout, "life\n")
	if c.Legacy() != nil {
		c.Close(9)
		return 9
	}
	program, err := os.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	if err := c.Keep("life", nil); err != nil {
		panic(err)
	}
	if err := c.Succeed(program); err != nil {
		panic(err)
	}
	return 0
}
