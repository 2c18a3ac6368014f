package hang

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A node is a machine: its own addresses, name and processes.
type node struct {
	name  string
	init  *exec.Cmd
	agent *exec.Cmd
	read  sync.WaitGroup
}

const boot = `
mount --make-rprivate /
mount -t proc proc /proc
mount --bind $1/hosts /etc/hosts
hostname $2
ip link set lo up
mkdir $1/$2
echo up
exec $3 init -- sleep infinity`

// A stage is two nodes, and what their agents and workers said.
type stage struct {
	t     *testing.T
	dir   string
	nodes [2]*node

	mu    sync.Mutex
	lines []line
	news  chan struct{} // closed with the next line
	over  int           // agents that have ended
}

// A line is what was said on a node, and when.
type line struct {
	node int
	at   time.Time
	text string
}

func (l line) verdict() bool { return strings.HasPrefix(l.text, "muster: hang: ") }

func (l line) step() bool { return strings.Contains(l.text, "] step ") }

// openStage makes two nodes, which reach each other by h0 and h1 over e0, and have another wire, e1, for the data.
func openStage(t *testing.T, muster string) *stage {
	dir, err := os.MkdirTemp("", "hang-") // not t.TempDir: sockets in it have short names
	s := &stage{t: t, dir: dir, news: make(chan struct{})}
	s.must(err)
	t.Cleanup(s.close)
	s.must(os.WriteFile(filepath.Join(dir, "hosts"), []byte("127.0.0.1 localhost\n10.79.0.1 h0\n10.79.0.2 h1\n"), 0o644))
	for i := range s.nodes {
		s.nodes[i] = s.boot(fmt.Sprint("h", i), muster)
	}
	for wire := range 2 {
		s.in(0, "ip", fmt.Sprintf("link add e%[1]d type veth peer name e%[1]d netns %[2]d\n", wire, s.nodes[1].init.Process.Pid))
		for i := range s.nodes {
			s.in(i, "ip", fmt.Sprintf("addr add 10.79.%d.%d/24 dev e%[1]d\nlink set e%[1]d up\n", wire, i+1))
		}
	}
	return s
}

func (s *stage) boot(name, muster string) *node {
	s.t.Helper()
	cmd := exec.Command("sh", "-euc", boot, "sh", s.dir, name, muster)
	all := uintptr(unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNS | unix.CLONE_NEWPID)
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: all, Pdeathsig: unix.SIGKILL}
	ready, err := cmd.StdoutPipe()
	s.must(err)
	said := new(strings.Builder)
	cmd.Stderr = said
	s.must(cmd.Start())
	n := &node{name: name, init: cmd}
	if n, _ := ready.Read(make([]byte, 3)); n != 3 {
		_ = cmd.Process.Kill() // it may be gone
		_ = cmd.Wait()
		s.t.Fatalf("make namespaces: %s", said)
	}
	return n
}

// in has ip or nft carry out a script in a node's network.
func (s *stage) in(i int, program, text string) {
	s.t.Helper()
	argv := map[string][]string{"ip": {"ip", "-batch", "-"}, "nft": {"nft", "-f", "-"}}[program]
	cmd := exec.Command("nsenter", append([]string{"-n", "-t", fmt.Sprint(s.nodes[i].init.Process.Pid), "--"}, argv...)...)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v: %s: %s", program, err, text, out)
	}
}

// cut lets nothing through the wire for data, as a switch does that has died.
func (s *stage) cut() {
	for i := range s.nodes {
		s.in(i, "nft", "add table t; add chain t c { type filter hook input priority 0; }; add rule t c iifname e1 drop")
	}
	s.must(os.WriteFile(filepath.Join(s.dir, s.nodes[0].name, "cut"), nil, 0o644)) // for the rank that waits for it
}

func (s *stage) heal() {
	for i := range s.nodes {
		s.in(i, "nft", "delete table t")
	}
}

// run starts an agent on a node, with more in its environment.
func (s *stage) run(i int, env []string, argv ...string) {
	s.t.Helper()
	n := s.nodes[i]
	n.agent = exec.Command("nsenter", append([]string{"-m", "-u", "-i", "-n", "-p", "-t", fmt.Sprint(n.init.Process.Pid), "--"}, argv...)...)
	own := filepath.Join(s.dir, n.name)
	n.agent.Env = slices.Concat(os.Environ(), []string{"TMPDIR=" + own, "SCRATCH=" + own, "OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=e1", "MUSTER_EVIDENCE=" + filepath.Join(own, kept)}, env)
	out, in := io.Pipe()
	n.agent.Stdout, n.agent.Stderr = in, in
	s.must(n.agent.Start())
	n.read.Go(func() { s.listen(i, out) })
	n.read.Go(func() {
		_ = n.agent.Wait() // its state says more
		in.Close()
	})
}

// wake lets a process of a node go on that is stopped.
func (s *stage) wake(i int, pid string) {
	s.t.Helper()
	out, err := exec.Command("nsenter", "-p", "-m", "-t", fmt.Sprint(s.nodes[i].init.Process.Pid), "--", "sh", "-c", "kill -CONT "+pid).CombinedOutput()
	if err != nil {
		s.t.Fatalf("wake process %s: %v: %s", pid, err, out)
	}
}

func (s *stage) listen(i int, out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		s.add(line{i, time.Now(), lines.Text()}, 0)
	}
	s.add(line{i, time.Now(), "(the agent has ended)"}, 1)
}

func (s *stage) add(l line, ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, l)
	if *aloud && !l.step() {
		fmt.Printf("%s %s h%d %s\n", l.at.Format("04:05.000"), s.t.Name(), l.node, l.text)
	}
	s.over += ended
	close(s.news)
	s.news = make(chan struct{})
}

// find is the first line that is such a one.
func (s *stage) find(is func(line) bool) (line, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lines {
		if is(l) {
			return l, true
		}
	}
	return line{}, false
}

// until waits for such a line.
func (s *stage) until(what string, is func(line) bool) line {
	s.t.Helper()
	late := time.After(patience)
	for {
		s.mu.Lock()
		news, over := s.news, s.over == len(s.nodes)
		s.mu.Unlock()
		if l, ok := s.find(is); ok {
			return l
		}
		if over {
			s.t.Fatalf("the agents ended without %s", what)
		}
		select {
		case <-news:
		case <-late:
			s.t.Fatalf("in vain waited for %s", what)
		}
	}
}

// end waits for the agents to end, and returns their exit codes.
func (s *stage) end() (codes [2]int) {
	s.t.Helper()
	s.until("", func(line) bool {
		return s.over == len(s.nodes) // find has the lock
	})
	for i, n := range s.nodes {
		n.read.Wait()
		codes[i] = n.agent.ProcessState.ExitCode()
	}
	return codes
}

// close ends everything: with the first process of a node all others go.
func (s *stage) close() {
	if s.t.Failed() {
		s.show()
	}
	for _, n := range s.nodes {
		if n != nil {
			_ = n.init.Process.Signal(syscall.SIGKILL) // it lives until then
			_ = n.init.Wait()
			n.read.Wait()
		}
	}
	os.RemoveAll(s.dir)
}

// show tells what was said, but for the steps.
func (s *stage) show() {
	var text strings.Builder
	for _, l := range s.lines {
		if !l.step() {
			fmt.Fprintf(&text, "%s h%d %s\n", l.at.Format("05.000"), l.node, l.text)
		}
	}
	s.t.Logf("it was said:\n%s", &text)
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
