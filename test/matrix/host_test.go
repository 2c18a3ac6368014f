package matrix

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
)

// A host is a machine: its own addresses, name and processes.
type host struct {
	s       *stage
	name    string // by which others know it
	machine string // no two have the same, if one comes in place of another
	addr    string
	box     *box
	deaf    bool // its workers ignore TERM
}

const boot = `
mount --make-rprivate /
mount -t proc proc /proc
mount --bind $1/hosts /etc/hosts
hostname $2
ip link set lo up
mkdir $1/$3
echo up
exec $4 init -- sleep infinity`

// add makes hosts h0, h1 and so on, which can reach each other.
func (s *stage) add(n int) {
	s.t.Helper()
	for range n {
		s.connect(fmt.Sprint("h", len(s.hosts)))
	}
}

// connect makes a host of a name, which from then on means this one.
func (s *stage) connect(name string) *host {
	s.t.Helper()
	n := len(s.hosts)
	h := s.machine(name, fmt.Sprint("m", n), fmt.Sprintf("10.77.0.%d", n+1))
	s.hosts = append(s.hosts, h)
	s.publish()
	return h
}

// machine makes a host that nobody knows by name yet.
func (s *stage) machine(name, machine, addr string) *host {
	s.t.Helper()
	h := &host{s: s, name: name, machine: machine, addr: addr}
	all := uintptr(unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNS | unix.CLONE_NEWPID)
	h.box = s.openBox(all, boot, s.dir, name, h.machine, s.kit.muster)
	s.script(s.wire, "ip", fmt.Sprintf("link add %[1]s type veth peer name eth0 netns %[2]d\nlink set %[1]s master br0 up\n", h.machine, h.box.cmd.Process.Pid))
	s.script(h.box, "ip", fmt.Sprintf("addr add %s/24 dev eth0\nlink set eth0 up\n", h.addr))
	return h
}

// publish tells all hosts each other's names. A name that two have had is the last one's.
func (s *stage) publish() {
	s.t.Helper()
	lines := []string{"127.0.0.1 localhost\n"}
	all := s.machines()
	for i, h := range all {
		if !slices.ContainsFunc(all[i+1:], func(other *host) bool { return other.name == h.name }) {
			lines = append(lines, h.addr+" "+h.name+"\n")
		}
	}
	s.must(os.WriteFile(filepath.Join(s.dir, "hosts"), []byte(strings.Join(lines, "")), 0o644))
}

// A program is an agent, or whatever else was started on a host.
type program struct {
	host *host
	cmd  *exec.Cmd
	out  output
	done chan struct{} // closed when it has ended
}

// output is what a program says.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	ring func()
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.ring()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// run starts a program on a host.
func (h *host) run(argv ...string) *program {
	h.s.t.Helper()
	p := &program{host: h, cmd: h.box.enter("-m -u -i -n -p", argv...), done: make(chan struct{})}
	p.out.ring = h.s.bell.ring
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.Env = append(os.Environ(), "STAGE="+h.s.dir, "MACHINE="+h.machine, "TMPDIR="+filepath.Join(h.s.dir, h.machine), "OMP_NUM_THREADS=1")
	if h.deaf {
		p.cmd.Env = append(p.cmd.Env, "DEAF=1")
	}
	h.s.must(p.cmd.Start())
	h.s.runs = append(h.s.runs, p)
	go func() {
		_ = p.cmd.Wait() // its state says more
		close(p.done)
		h.s.bell.ring()
	}()
	return p
}

func (p *program) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// ending says how it stands with a program.
func (p *program) ending() string {
	if p.running() {
		return "still runs"
	}
	return "ended with " + p.cmd.ProcessState.String()
}

// end kills a program that would serve for ever.
func (p *program) end() {
	p.host.s.t.Helper()
	p.host.s.signal(p.host.first(), syscall.SIGKILL)
	<-p.done
}

// program is what runs on a host, or was the last to run there.
func (h *host) program() *program {
	for _, p := range slices.Backward(h.s.runs) {
		if p.host == h {
			return p
		}
	}
	h.s.t.Fatalf("nothing was started on %s", h.machine)
	return nil
}

// first is the first process of the program on a host.
func (h *host) first() int {
	h.s.t.Helper()
	children, err := proc.Root("/proc").Children(h.program().cmd.Process.Pid)
	if err != nil || len(children) != 1 {
		h.s.t.Fatalf("the program on %s has %d processes, %v", h.machine, len(children), err)
	}
	return children[0]
}

// agent is the agent of muster on a host.
func (h *host) agent() int {
	h.s.t.Helper()
	children, _ := proc.Root("/proc").Children(h.first())
	for _, pid := range children {
		if env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); bytes.Contains(env, []byte("MUSTER_PID1=")) {
			return pid
		}
	}
	h.s.t.Fatalf("%s has no agent", h.machine)
	return 0
}

// worker is the process of a rank in the last world.
func (s *stage) worker(rank int) (*host, int) {
	s.t.Helper()
	ups := s.book.find(func(r record) bool { return r.what == "up" && r.rank == rank })
	if len(ups) == 0 {
		s.t.Fatalf("there is no rank %d", rank)
	}
	last := ups[len(ups)-1]
	for _, h := range s.hosts {
		if h.machine == last.machine {
			return h, h.outside(last.pid)
		}
	}
	panic(last.machine)
}

// outside is a process of a host as we know it.
func (h *host) outside(pid int) int {
	h.s.t.Helper()
	for _, p := range h.processes() {
		if status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID)); bytes.Contains(status, fmt.Appendf(nil, "\nNSpid:\t%d\t%d\n", p.PID, pid)) {
			return p.PID
		}
	}
	h.s.t.Fatalf("%s has no process %d", h.machine, pid)
	return 0
}

// processes are all that run on a host, but for its own first and the sleep that waits with it.
func (h *host) processes() (found []proc.Process) {
	h.s.t.Helper()
	if !h.alive() {
		return nil
	}
	all, err := proc.Root("/proc").All()
	h.s.must(err)
	init := h.box.cmd.Process.Pid
	home, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", init))
	for _, p := range all {
		at, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p.PID))
		if at == home && at != "" && p.PID != init && !(p.Parent == init && p.Name == "sleep") && !p.Gone() {
			found = append(found, p)
		}
	}
	return found
}

// alive reports whether this machine has not died.
func (h *host) alive() bool { return h.box.cmd.ProcessState == nil }
