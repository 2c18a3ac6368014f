package interop

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a training may take; the machine may be busy with much else.
const patience = 8 * time.Minute

// A stage is a few nodes: each has its own network, name and processes, and reaches the others as h0, h1, ….
type stage struct {
	t      *testing.T
	ctx    context.Context
	dir    string
	nodes  []*exec.Cmd // their first processes
	agents []*exec.Cmd
	said   []*bytes.Buffer
}

const boot = `
mount --make-rprivate /
mount -t proc proc /proc
mount --bind $1/hosts /etc/hosts
hostname $2
ip link set lo up
mkdir $1/$2
echo up
exec sleep infinity`

// openStage makes the nodes. The first one has the switch.
func openStage(t *testing.T, nodes int) *stage {
	t.Helper()
	dir, err := os.MkdirTemp("", "interop-") // not t.TempDir: sockets in it have short names
	s := &stage{t: t, dir: dir}
	s.must(err)
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithTimeout(context.Background(), patience)
	t.Cleanup(func() { s.close(); cancel() })
	hosts := "127.0.0.1 localhost\n"
	for i := range nodes {
		hosts += fmt.Sprintf("10.78.0.%d h%d\n", i+1, i)
	}
	s.must(os.WriteFile(filepath.Join(dir, "hosts"), []byte(hosts), 0o644))
	for i := range nodes {
		s.boot(i)
	}
	s.ip(0, "link add br0 type bridge\naddr add 10.78.0.1/24 dev br0\nlink set br0 up\n")
	for i := 1; i < nodes; i++ {
		s.ip(0, fmt.Sprintf("link add p%[1]d type veth peer name e0 netns %[2]d\nlink set p%[1]d master br0 up\n", i, s.nodes[i].Process.Pid))
		s.ip(i, fmt.Sprintf("addr add 10.78.0.%d/24 dev e0\nlink set e0 up\n", i+1))
	}
	return s
}

func (s *stage) boot(i int) {
	s.t.Helper()
	cmd := exec.Command("sh", "-euc", boot, "sh", s.dir, s.name(i))
	all := uintptr(unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNS | unix.CLONE_NEWPID)
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: all, Pdeathsig: unix.SIGKILL}
	ready, err := cmd.StdoutPipe()
	s.must(err)
	said := new(strings.Builder)
	cmd.Stderr = said
	s.must(cmd.Start())
	s.nodes = append(s.nodes, cmd)
	if n, _ := ready.Read(make([]byte, 3)); n != 3 {
		_ = cmd.Process.Kill() // it may be gone
		_ = cmd.Wait()
		s.t.Fatalf("make namespaces: %s", said)
	}
}

func (s *stage) name(i int) string { return fmt.Sprint("h", i) }

// enter is a command in those namespaces of a node that options of nsenter name.
func (s *stage) enter(i int, options string, argv ...string) *exec.Cmd {
	args := append(strings.Fields(options), "-t", fmt.Sprint(s.nodes[i].Process.Pid), "--")
	return exec.CommandContext(s.ctx, "nsenter", append(args, argv...)...)
}

// ip has ip carry out a script in a node's network.
func (s *stage) ip(i int, text string) {
	s.t.Helper()
	cmd := s.enter(i, "-n", "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("ip: %v: %s: %s", err, text, out)
	}
}

// start starts an agent on a node.
func (s *stage) start(i int, argv []string) {
	s.t.Helper()
	cmd := s.enter(i, "-m -u -i -n -p", argv...)
	own := filepath.Join(s.dir, s.name(i))
	cmd.Env = append(os.Environ(), "TMPDIR="+own, "SCRATCH="+own, "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES=")
	said := new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = said, said
	s.must(cmd.Start())
	s.agents, s.said = append(s.agents, cmd), append(s.said, said)
}

// end waits for the agents, and returns what all said and their exit codes.
func (s *stage) end() (text, codes string) {
	for i, agent := range s.agents {
		_ = agent.Wait() // its state says more
		text += s.said[i].String()
		codes += fmt.Sprint(agent.ProcessState.ExitCode(), " ")
	}
	return text, codes
}

// close ends everything: with the first process of a node all others go.
func (s *stage) close() {
	for _, n := range s.nodes {
		_ = n.Process.Signal(syscall.SIGKILL) // it lives until then
		_ = n.Wait()
	}
	os.RemoveAll(s.dir)
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
