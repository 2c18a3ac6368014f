// Package stage sets the stage for tests of whole jobs: machines with names, addresses and processes of their own, which are namespaces of
// this one, the wires between them, the programs that run there, and what they say. It needs root and ip.
package stage

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A Stage is a few machines, and all that was said on them.
type Stage struct {
	Dir    string                 // what all machines share; each has a directory of its own in it
	Switch *Machine               // to which all wires lead; it has a network, and nothing else of its own
	Dull   func(text string) bool // lines that need not be shown

	t        *testing.T
	wires    int
	machines []*Machine
	programs []*Program

	mu    sync.Mutex
	lines []Line
	news  chan struct{} // closed when there is something new
}

// A Line is what a program said, and when.
type Line struct {
	By   *Program
	At   time.Time
	Text string
}

// Open makes a stage without machines, for as long as the test runs. Each of them is going to be on that many wires.
func Open(t *testing.T, wires int) *Stage {
	t.Helper()
	dir, err := os.MkdirTemp("", "stage-") // not t.TempDir: sockets in it have short names
	s := &Stage{t: t, Dir: dir, Dull: func(string) bool { return false }, wires: wires, news: make(chan struct{})}
	s.must(err)
	t.Cleanup(func() { s.Close(); os.RemoveAll(dir) })
	s.publish()
	s.Switch = &Machine{Own: "switch", stage: s}
	s.Switch.boot(unix.CLONE_NEWNET, `for i in $(seq 0 $1); do ip link add br$i type bridge; ip link set br$i up; done; echo up; exec sleep infinity`, fmt.Sprint(wires-1))
	return s
}

// Close ends everything: with its first process a machine's others go, too. If the test has failed, it shows what was said.
func (s *Stage) Close() {
	if s.t.Failed() && s.Switch.Alive() {
		s.show()
	}
	for _, m := range s.machines {
		m.Die()
	}
	for _, p := range s.programs {
		<-p.done
	}
	s.Switch.Die()
}

// show has each program's last word first: a log that is cut keeps its beginning.
func (s *Stage) show() {
	var text strings.Builder
	for _, p := range s.programs {
		said := strings.TrimSpace(p.Said())
		fmt.Fprintf(&text, "%s %s: %s\n", p.On.Own, p.Ending(), said[strings.LastIndexByte(said, '\n')+1:])
	}
	for _, l := range s.Lines() {
		if !s.Dull(l.Text) {
			fmt.Fprintf(&text, "%s %s %s\n", l.At.Format("04:05.000"), l.By.On.Own, l.Text)
		}
	}
	s.t.Logf("%s", &text)
}

// publish tells all machines each other's names. A name that two have had is the last one's.
func (s *Stage) publish() {
	s.t.Helper()
	text := "127.0.0.1 localhost\n"
	for i, m := range s.machines {
		if !slices.ContainsFunc(s.machines[i+1:], func(other *Machine) bool { return other.Name == m.Name }) {
			text += m.Addr + " " + m.Name + "\n"
		}
	}
	s.must(os.WriteFile(filepath.Join(s.Dir, "hosts"), []byte(text), 0o644))
}

// Machines are all that there are, and were, in the order in which they came.
func (s *Stage) Machines() []*Machine { return slices.Clone(s.machines) }

// Programs are all that were started.
func (s *Stage) Programs() []*Program { return slices.Clone(s.programs) }

// Lines are all that was said until now.
func (s *Stage) Lines() []Line {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines[:len(s.lines):len(s.lines)]
}

// Find is the first line that is such a one.
func (s *Stage) Find(is func(Line) bool) (Line, bool) {
	all := s.Lines()
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i], true
	}
	return Line{}, false
}

// Ring has whoever waits look again.
func (s *Stage) Ring() { s.add() }

func (s *Stage) add(lines ...Line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range lines {
		if *aloud && !s.Dull(l.Text) {
			fmt.Printf("%s %s %s %s\n", l.At.Format("04:05.000"), s.t.Name(), l.By.On.Own, l.Text)
		}
	}
	s.lines = append(s.lines, lines...)
	close(s.news)
	s.news = make(chan struct{})
}

// Await waits until something is there, and reports whether it came. It looks when something was said, has ended, or when the bell rings. When
// all programs have ended not much can come.
func (s *Stage) Await(patience time.Duration, here func() bool) bool {
	late := time.After(patience)
	for over := false; ; {
		s.mu.Lock()
		news := s.news
		s.mu.Unlock()
		if here() {
			return true
		}
		if !over && s.Over() {
			over, late = true, time.After(5*time.Second)
		}
		select {
		case <-news:
		case <-late:
			return false
		}
	}
}

// Over reports whether all programs have ended.
func (s *Stage) Over() bool {
	return len(s.programs) > 0 && !slices.ContainsFunc(s.programs, (*Program).Running)
}

func (s *Stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
