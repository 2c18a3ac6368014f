package matrix

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a case waits for anything that is to happen; the machine may be busy with much else.
const patience = 90 * time.Second

// A stage is a network with hosts on it, and the job that they have in common.
type stage struct {
	t      *testing.T
	kit    *kit
	torch  string // the Python that has it
	dir    string // what all hosts share: the book, the locks, their names
	wire   *box   // the switch
	hosts  []*host
	aside  *host // the machine of an etcd in which the job meets; nil: it does not
	runs   []*program
	book   *book
	bell   bell
	last   deed
	worlds []world // that came of deeds
}

// openStage makes a network without hosts.
func openStage(t *testing.T, k *kit, torch string) *stage {
	s := &stage{t: t, kit: k, torch: torch}
	t.Cleanup(s.close)
	var err error
	s.dir, err = os.MkdirTemp("", "matrix-") // not t.TempDir: sockets in it have short names
	s.must(err)
	s.must(os.Mkdir(filepath.Join(s.dir, "alive"), 0o755))
	s.must(os.WriteFile(filepath.Join(s.dir, "hosts"), nil, 0o644))
	s.book, err = openBook(s.dir, s.bell.ring)
	s.must(err)
	s.wire = s.openBox(unix.CLONE_NEWNET, "ip link add br0 type bridge; ip link set br0 up; echo up; exec sleep infinity")
	return s
}

// close ends everything: with a box its processes go, with the last worker the book ends.
func (s *stage) close() {
	s.show()
	for _, h := range s.machines() {
		h.box.close()
	}
	for _, p := range s.runs {
		<-p.done
	}
	s.wire.close()
	s.book.close()
	os.RemoveAll(s.dir)
}

// machines are all that there are.
func (s *stage) machines() []*host {
	if s.aside == nil {
		return s.hosts
	}
	return append(slices.Clone(s.hosts), s.aside)
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// show tells what everybody said, of a case that failed.
func (s *stage) show() {
	if !s.t.Failed() {
		return
	}
	for _, p := range s.runs {
		s.t.Logf("%s %s, and said:\n%s", p.host.machine, p.ending(), p.out.String())
	}
	s.t.Logf("the workers' last words:\n%s", s.book.last(40))
}

// A bell rings when something has changed.
type bell struct {
	mu sync.Mutex
	c  chan struct{}
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}

func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

// gaveUp ends the play of a launcher of which nothing is demanded.
type gaveUp struct{}

// until waits for something that the workers' book or a program shows. When all programs have ended, not much can come.
func (s *stage) until(what string, here func() bool) {
	s.t.Helper()
	late := time.After(patience)
	for over := false; ; {
		next := s.bell.next()
		if here() {
			return
		}
		if !over && s.over() {
			over, late = true, time.After(5*time.Second)
		}
		select {
		case <-next:
		case <-late:
			if !s.kit.ends {
				panic(gaveUp{})
			}
			s.t.Fatalf("in vain waited for %s", what)
		}
	}
}

// over reports whether no program runs any more.
func (s *stage) over() bool {
	for _, p := range s.runs {
		if p.running() {
			return false
		}
	}
	return len(s.runs) > 0
}

// now is the time of the clock that the workers read, too.
func now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // there is no Linux without it
	}
	return time.Duration(t.Nano())
}

// A box is a set of namespaces, which lives as long as its first process.
type box struct{ cmd *exec.Cmd }

// openBox makes namespaces and runs a script as their first process, which says "up" when all is prepared.
func (s *stage) openBox(namespaces uintptr, script string, args ...string) *box {
	s.t.Helper()
	cmd := exec.Command("sh", append([]string{"-euc", script, "sh"}, args...)...)
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: namespaces, Pdeathsig: unix.SIGKILL}
	ready, err := cmd.StdoutPipe()
	s.must(err)
	said := new(strings.Builder)
	cmd.Stderr = said
	s.must(cmd.Start())
	b := &box{cmd}
	if n, _ := ready.Read(make([]byte, 3)); n != 3 {
		b.close()
		s.t.Fatalf("make namespaces: %s", said)
	}
	return b
}

func (b *box) close() {
	if b == nil {
		return
	}
	_ = b.cmd.Process.Kill() // it may be gone
	_ = b.cmd.Wait()
}

// enter is a command in those namespaces of a box that options of nsenter name.
func (b *box) enter(options string, argv ...string) *exec.Cmd {
	args := append(strings.Fields(options), "-t", fmt.Sprint(b.cmd.Process.Pid), "--")
	return exec.Command("nsenter", append(args, argv...)...)
}

// script has a program carry out what is written to it, in a network.
func (s *stage) script(b *box, program, text string) {
	s.t.Helper()
	argv := map[string][]string{"ip": {"ip", "-batch", "-"}, "nft": {"nft", "-f", "-"}}[program]
	cmd := b.enter("-n", argv...)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v: %s: %s", program, err, text, out)
	}
}
