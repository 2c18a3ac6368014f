package witness

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
)

// This binary plays the workers, too.
func TestMain(m *testing.M) {
	if name := os.Getenv("WITNESS_PLAY"); name != "" {
		plays[name]()
		return
	}
	os.Exit(m.Run())
}

// plays is what a worker can do. It says "ready" when it is about to.
var plays = map[string]func(){
	"idle": func() {
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
	},
	"spin": func() {
		fmt.Println("ready")
		for {
		}
	},
	"parent of spin": func() {
		child := exec.Command(os.Args[0])
		child.Env = []string{"WITNESS_PLAY=spin"}
		child.Stdout = os.Stdout
		child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
		fmt.Println(child.Run())
		io.Copy(io.Discard, os.Stdin)
	},
	"peer": func() { // sends what it is told to: "address", then numbers of bytes; 0: it closes
		in := bufio.NewReader(os.Stdin)
		address, _ := in.ReadString('\n')
		c, err := net.Dial("tcp", strings.TrimSpace(address))
		fmt.Println("ready", err)
		for {
			var n int
			if _, err := fmt.Fscanln(in, &n); err != nil {
				return
			}
			if n > 0 {
				_, err = c.Write(make([]byte, n))
			} else {
				err = c.Close()
			}
			fmt.Println("ready", err)
		}
	},
	"read": func() { // of the file that it is told
		in := bufio.NewReader(os.Stdin)
		path, _ := in.ReadString('\n')
		fd, err := unix.Open(strings.TrimSpace(path), unix.O_RDWR, 0) // package os would wait for a pipe in epoll
		fmt.Println("ready", err)
		syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafePointer()), 1)
	},
	"wait for a child": func() { // as vfork does: in state D, until the child is done
		fmt.Println("ready")
		pid, _, _ := syscall.RawSyscall6(unix.SYS_CLONE, unix.CLONE_VFORK|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if pid == 0 {
			for {
				syscall.RawSyscall(unix.SYS_READ, 0, uintptr(unsafePointer()), 1)
			}
		}
	},
}

// An actor is a process that plays a worker.
type actor struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	t   *testing.T
}

// play starts an actor, which ends with the test.
func play(t *testing.T, name string) *actor {
	t.Helper()
	a := &actor{Cmd: exec.Command(os.Args[0]), t: t}
	a.Env = []string{"WITNESS_PLAY=" + name, "GOMAXPROCS=1"}
	a.Stderr = os.Stderr
	a.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, errIn := a.StdinPipe()
	out, errOut := a.StdoutPipe()
	if err := a.Start(); err != nil || errIn != nil || errOut != nil {
		t.Fatal(err, errIn, errOut)
	}
	a.in, a.out = in, bufio.NewReader(out)
	t.Cleanup(func() {
		unix.Kill(-a.Process.Pid, unix.SIGKILL)
		a.Wait()
	})
	return a
}

func (a *actor) tell(line any) {
	a.t.Helper()
	if _, err := fmt.Fprintln(a.in, line); err != nil {
		a.t.Fatal(err)
	}
}

// ready waits until the actor is about to do what it plays.
func (a *actor) ready() {
	a.t.Helper()
	for {
		line, err := a.out.ReadString('\n')
		if err != nil {
			a.t.Fatal(err)
		}
		if strings.HasPrefix(line, "ready") {
			return
		}
	}
}

// until looks again and again until it sees what is wanted.
func until(t *testing.T, w *Witness, a *actor, want func(job.Sight) bool) job.Sight {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		s := look(t, w, a)
		if want(s) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("last seen: %+v", s)
		}
	}
}

func look(t *testing.T, w *Witness, a *actor) job.Sight {
	t.Helper()
	sights, err := w.Look([]int{a.Process.Pid})
	if err != nil {
		t.Fatal(err)
	}
	return sights[0]
}

func TestStates(t *testing.T) {
	w := New("/")
	idle := play(t, "idle")
	idle.ready()
	s := until(t, w, idle, func(s job.Sight) bool { return s.State == 'S' && s.Waits != "" })
	if s.Memory < 1<<20 || s.Traced || s.Frozen || s.File != "" {
		t.Errorf("asleep: %+v", s)
	}

	unix.Kill(idle.Process.Pid, unix.SIGSTOP)
	until(t, w, idle, func(s job.Sight) bool { return s.State == 'T' })

	spin := play(t, "spin")
	spin.ready()
	began := look(t, w, spin).CPU
	until(t, w, spin, func(s job.Sight) bool { return s.CPU >= began+50*time.Millisecond })

	waits := play(t, "wait for a child")
	waits.ready()
	s = until(t, w, waits, func(s job.Sight) bool { return s.State == 'D' })
	if s.Waits == "" {
		t.Error("state D, and nobody knows where")
	}
}

// A worker that waits for a busy child is busy; and what the child has used is not forgotten when it ends.
func TestTree(t *testing.T) {
	w := New("/")
	a := play(t, "parent of spin")
	a.ready()
	s := until(t, w, a, func(s job.Sight) bool { return s.CPU >= 100*time.Millisecond })
	all, err := w.proc().Children(a.Process.Pid)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	unix.Kill(all[0], unix.SIGKILL)
	after := until(t, w, a, func(job.Sight) bool {
		left, err := w.proc().Children(a.Process.Pid)
		return len(left) == 0 && err == nil
	})
	if after.CPU < s.CPU {
		t.Errorf("%v, before the child ended %v", after.CPU, s.CPU)
	}
}

// The file that is read by a worker which never gets an answer.
func TestFile(t *testing.T) {
	w := New("/")
	path := t.TempDir() + "/fifo"
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	a := play(t, "read")
	a.tell(path)
	a.ready()
	until(t, w, a, func(s job.Sight) bool { return s.File == path })
}

// Bytes to a process, and back from it, are those that its socket has moved; a connection that is closed takes none of them away.
func TestWire(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		w := New("/")
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		a := play(t, "peer")
		a.tell(l.Addr())
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		a.ready()
		before := look(t, w, a)
		a.tell(100_000)
		go io.CopyN(io.Discard, c, 100_000)
		s := until(t, w, a, func(s job.Sight) bool { return s.Wire-before.Wire >= 100_000 })
		if s.Wire-before.Wire != 100_000 || len(s.Stuck) > 0 {
			t.Errorf("%s: %d bytes and %q", address, s.Wire-before.Wire, s.Stuck)
		}
		c.Write(make([]byte, 50_000))
		s = until(t, w, a, func(s job.Sight) bool { return s.Wire-before.Wire >= 150_000 })
		apart := New("/")
		apart.Apart = []uint16{uint16(l.Addr().(*net.TCPAddr).Port)}
		if s := look(t, apart, a); s.Wire != 0 {
			t.Errorf("%s: %d bytes to a port that is left out", address, s.Wire)
		}
		a.tell(0) // closes
		a.ready()
		if after := look(t, w, a); after.Wire < s.Wire {
			t.Errorf("%s: %d bytes after %d", address, after.Wire, s.Wire)
		}
	}
}
