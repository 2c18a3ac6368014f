package stage

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
)

// A Machine is a set of namespaces, which lives as long as its first process.
type Machine struct {
	Name string // by which others know it
	Own  string // no two have the same, if one comes in place of another
	Addr string // on the first wire
	Dir  string // for its own files

	stage *Stage
	first *exec.Cmd
}

// whole are the namespaces of a machine, for nsenter.
const whole = "-m -u -i -n -p"

const boot = `
mount --make-rprivate /
mount -t proc proc /proc
mount --bind $1/hosts /etc/hosts
hostname $2
ip link set lo up
mkdir $1/$3
echo up
shift 3
exec "$@"`

// Add makes a machine, whose first process is init with a sleep for it to wait for. On each wire it has the same number: on the first,
// which is e0, it is 10.77.0.N.
func (s *Stage) Add(name, own string, init ...string) *Machine {
	s.t.Helper()
	m := &Machine{Name: name, Own: own, Dir: filepath.Join(s.Dir, own), stage: s}
	m.boot(unix.CLONE_NEWNET|unix.CLONE_NEWUTS|unix.CLONE_NEWIPC|unix.CLONE_NEWNS|unix.CLONE_NEWPID, boot,
		slices.Concat([]string{s.Dir, name, own}, init, []string{"sleep", "infinity"})...)
	s.machines = append(s.machines, m)
	m.Addr = fmt.Sprintf("10.77.0.%d", len(s.machines))
	for i := range s.wires {
		port := fmt.Sprintf("%s-e%d", own, i)
		s.Switch.Network("ip", fmt.Sprintf("link add %s type veth peer name e%d netns %d\nlink set %s master br%d up\n", port, i, m.first.Process.Pid, port, i))
		m.Network("ip", fmt.Sprintf("addr add 10.77.%d.%d/24 dev e%d\nlink set e%d up\n", i, len(s.machines), i, i))
	}
	s.publish()
	return m
}

// boot runs a script as a machine's first process, which says "up" when all is prepared.
func (m *Machine) boot(namespaces uintptr, script string, args ...string) {
	s := m.stage
	s.t.Helper()
	m.first = exec.Command("sh", append([]string{"-euc", script, "sh"}, args...)...)
	m.first.SysProcAttr = &unix.SysProcAttr{Cloneflags: namespaces, Pdeathsig: unix.SIGKILL}
	ready, err := m.first.StdoutPipe()
	s.must(err)
	said := new(strings.Builder)
	m.first.Stderr = said
	s.must(m.first.Start())
	if n, _ := ready.Read(make([]byte, 3)); n != 3 {
		m.Die()
		s.t.Fatalf("make namespaces: %s", said)
	}
}

// Die ends a machine and all its processes. The kernel closes their connections, if there is still a wire.
func (m *Machine) Die() {
	if m != nil && m.Alive() {
		_ = m.first.Process.Kill() // it lives until then
		_ = m.first.Wait()
	}
}

// Alive reports whether it has not died.
func (m *Machine) Alive() bool { return m != nil && m.first.ProcessState == nil }

// Port is the switch's end of a machine's first wire.
func (m *Machine) Port() string { return m.Own + "-e0" }

// Command is a command in those namespaces of a machine that options of nsenter name.
func (m *Machine) Command(options string, argv ...string) *exec.Cmd {
	args := append(strings.Fields(options), "-t", fmt.Sprint(m.first.Process.Pid), "--")
	return exec.Command("nsenter", append(args, argv...)...)
}

// PID is its first process, as we know it.
func (m *Machine) PID() int { return m.first.Process.Pid }

// Network has ip or nft carry out a script in its network.
func (m *Machine) Network(program, text string) {
	m.stage.t.Helper()
	argv := map[string][]string{"ip": {"ip", "-batch", "-"}, "nft": {"nft", "-f", "-"}}[program]
	cmd := m.Command("-n", argv...)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		m.stage.t.Fatalf("%s: %v: %s: %s", program, err, text, out)
	}
}

// Ask runs a command to its end, and returns what it said.
func (m *Machine) Ask(argv ...string) string {
	cmd := m.Command(whole, argv...)
	cmd.Env = m.env()
	out, _ := cmd.CombinedOutput() // it says what is wrong
	return string(out)
}

func (m *Machine) env() []string {
	return append(os.Environ(), "TMPDIR="+m.Dir, "SCRATCH="+m.Dir, "OMP_NUM_THREADS=1")
}

// Processes are all that run there, but for its own first and the sleep that waits with it.
func (m *Machine) Processes() (found []proc.Process) {
	m.stage.t.Helper()
	if !m.Alive() {
		return nil
	}
	all, err := proc.Root("/proc").All()
	m.stage.must(err)
	first := m.first.Process.Pid
	home, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", first))
	for _, p := range all {
		at, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p.PID))
		if at == home && at != "" && p.PID != first && !(p.Parent == first && p.Name == "sleep") && !p.Gone() {
			found = append(found, p)
		}
	}
	return found
}

// Outside is a process of a machine as we know it.
func (m *Machine) Outside(pid int) int {
	m.stage.t.Helper()
	for _, p := range m.Processes() {
		if status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID)); bytes.Contains(status, fmt.Appendf(nil, "\nNSpid:\t%d\t%d\n", p.PID, pid)) {
			return p.PID
		}
	}
	m.stage.t.Fatalf("%s has no process %d", m.Own, pid)
	return 0
}

// Agent is the process of muster's that watches over workers there; 0: there is none.
func (m *Machine) Agent() int {
	for _, p := range m.Processes() {
		if proc.Root("/proc").Getenv(p.PID, "MUSTER_PID1") != "" {
			return p.PID
		}
	}
	return 0
}

// Signal sends a signal to a process of a machine, by the number that it has there.
func (m *Machine) Signal(pid int, sig syscall.Signal) {
	m.stage.t.Helper()
	m.stage.must(syscall.Kill(m.Outside(pid), sig))
}
