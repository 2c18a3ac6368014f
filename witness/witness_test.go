package witness

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/test/leak"
	"github.com/muster-run/muster/test/thread"
)

// What a worker plays it does in its main thread, which is the one that is looked at; and no test gets that thread, which never ends
// before the process. This can be had only here.
func init() { runtime.LockOSThread() }

// This binary plays the workers, too.
func TestMain(m *testing.M) {
	if name := os.Getenv("WITNESS_PLAY"); name != "" {
		plays[name]()
		return
	}
	leak.Main(m)
}

// oneByte is where system calls read to that are made without the runtime.
var oneByte [1]byte

// plays is what a worker can do. It says "ready" when it is about to.
var plays = map[string]func(){
	"idle": func() {
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
	},
	"spin": func() {
		fmt.Println("ready")
		for {
			oneByte[0]++
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
	"peer": peer,
	"peer of many threads": func() { // as a worker of PyTorch's is
		for range benchThreads {
			go func() { runtime.LockOSThread(); select {} }()
		}
		peer()
	},
	"read": func() { // of the file that it is told
		in := bufio.NewReader(os.Stdin)
		path, _ := in.ReadString('\n')
		fd, err := unix.Open(strings.TrimSpace(path), unix.O_RDWR, 0) // package os would wait for a pipe in epoll
		fmt.Println("ready", err)
		syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&oneByte)), 1)
	},
	"write": func() { // to the pipe that it is told, until that is full
		in := bufio.NewReader(os.Stdin)
		path, _ := in.ReadString('\n')
		fd, err := unix.Open(strings.TrimSpace(path), unix.O_RDWR, 0)
		fmt.Println("ready", err)
		for {
			syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&oneByte)), 1)
		}
	},
	"sync": func() { // the file that it is told
		in := bufio.NewReader(os.Stdin)
		path, _ := in.ReadString('\n')
		fd, err := unix.Open(strings.TrimSpace(path), unix.O_RDWR, 0)
		fmt.Println("ready", err)
		unix.Fsync(fd)
	},
	"read of a dead file system": func() { onDead("read") }, // a data loader does, which it has started
	"sync of a dead file system": func() { onDead("sync") },
	"wait for a child": func() { // as vfork does: in state D, until the child is done
		fmt.Println("ready")
		pid, _, _ := syscall.RawSyscall6(unix.SYS_CLONE, unix.CLONE_VFORK|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if pid == 0 {
			for {
				syscall.RawSyscall(unix.SYS_READ, 0, uintptr(unsafe.Pointer(&oneByte)), 1)
			}
		}
	},
}

// peer connects to the addresses that it is told, and sends numbers of bytes to the last one; 0: it closes.
func peer() {
	var c net.Conn
	open := []net.Conn{} // else they would be collected, and closed
	defer func() { fmt.Fprintln(io.Discard, open) }()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		n, err := strconv.Atoi(in.Text())
		switch {
		case err != nil:
			c, err = net.Dial("tcp", in.Text())
			open = append(open, c)
		case n > 0:
			_, err = c.Write(make([]byte, n))
		default:
			err = c.Close()
		}
		fmt.Println("ready", err)
	}
}

// onDead mounts a file system that does not answer in the directory that it is told, and has a child do something there, whose end lets go of it.
func onDead(does string) {
	in := bufio.NewReader(os.Stdin)
	dir, _ := in.ReadString('\n')
	dir = strings.TrimSpace(dir)
	if err := deadFile(dir); err != nil {
		fmt.Println(err)
		return
	}
	child := exec.Command(os.Args[0])
	child.Env = []string{"WITNESS_PLAY=" + does}
	child.Stdin, child.Stdout = strings.NewReader(dir+"/data\n"), os.Stdout
	fmt.Println(child.Run())
}

// An actor is a process that plays a worker.
type actor struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	t   testing.TB
}

// play starts an actor, which ends with the test.
func play(t testing.TB, name string) *actor { return playIn(t, name, 0) }

// playIn is play in new namespaces.
func playIn(t testing.TB, name string, namespaces uintptr) *actor {
	t.Helper()
	a := &actor{Cmd: exec.Command(os.Args[0]), t: t}
	a.Env = []string{"WITNESS_PLAY=" + name, "GOMAXPROCS=1"}
	a.Stderr = os.Stderr
	a.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Unshareflags: namespaces}
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
	deadline := time.Now().Add(2 * time.Minute)
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
	until(t, w, waits, func(s job.Sight) bool { return s.State == 'D' && s.Waits != "" }) // "" until it has left its processor
}

// TestLoops shows that what threads take to wait for the network is not taken for work, and what others do is.
func TestLoops(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, "proc", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stat := func(dir string, pid, ticks int) {
		write(dir+"/stat", fmt.Sprintf("%d (python3) S 1 7 7 0 -1 0 1 0 0 0 %d 0 9 9 20 0 3 0 12345 1000 256 0", pid, ticks))
	}
	const perTick = 10 * time.Millisecond
	threads := []struct {
		name, wchan string
		each        int // ticks from look to look
		counts      bool
	}{
		{"python3", "ep_poll", 1, true}, // the main one
		{"python3", "ep_poll", 2, false},
		{"gloo_tcp_loop", "0", 1, false},
		{"python3", "futex_wait_queue", 1, true},
		{"asyncio_0", "ep_poll", 30, true},
	}
	w, before := New(root), time.Duration(0)
	for look := range 4 {
		total, counted := 0, 0
		for i, thread := range threads {
			dir := fmt.Sprintf("7/task/%d", 7+i)
			stat(dir, 7+i, look*thread.each)
			write(dir+"/comm", thread.name+"\n")
			write(dir+"/wchan", thread.wchan)
			total += look * thread.each
			if thread.counts {
				counted += thread.each
			}
		}
		stat("7", 7, total)
		sights, err := w.Look([]int{7})
		if err != nil {
			t.Fatal(err)
		}
		if d := sights[0].CPU - before; look > 0 && d != time.Duration(counted)*perTick {
			t.Errorf("look %d: %v, want %v", look, d, time.Duration(counted)*perTick)
		}
		before = sights[0].CPU
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

// A worker waits for its data loader, and that for a file system whose server has died: what is read is told, though the worker
// itself reads nothing.
func TestDeadFileSystem(t *testing.T) {
	w := New("/")
	dir := t.TempDir()
	a := playIn(t, "read of a dead file system", unix.CLONE_NEWNS)
	a.tell(dir)
	a.ready()
	s := until(t, w, a, func(s job.Sight) bool { return s.File != "" })
	if s.File != dir+"/data" {
		t.Errorf("%+v", s)
	}
}

// A worker that waits until a file system has what was written is seen to do that; one that reads, or writes to somebody who does not read, is not.
func TestStores(t *testing.T) {
	w := New("/")
	dir := t.TempDir()
	a := playIn(t, "sync of a dead file system", unix.CLONE_NEWNS)
	a.tell(dir)
	a.ready()
	until(t, w, a, func(s job.Sight) bool { return s.Stores })

	reads := playIn(t, "read of a dead file system", unix.CLONE_NEWNS)
	reads.tell(t.TempDir())
	reads.ready()
	if s := until(t, w, reads, func(s job.Sight) bool { return s.File != "" }); s.Stores {
		t.Errorf("reading: %+v", s)
	}

	path := t.TempDir() + "/fifo"
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	writes := play(t, "write")
	writes.tell(path)
	writes.ready()
	until(t, w, writes, func(s job.Sight) bool {
		if s.Stores {
			t.Errorf("writing to a pipe: %+v", s)
		}
		return s.File == path && s.Waits != ""
	})
}

// TestStoresInAThread shows which calls of a worker's threads are taken for such, by where in the kernel they wait.
func TestStoresInAThread(t *testing.T) {
	for name, c := range map[string]struct {
		call  int
		wchan string
		want  bool
	}{
		"closes":           {unix.SYS_CLOSE, "request_wait_answer", true},
		"syncs":            {unix.SYS_FDATASYNC, "folio_wait_writeback", true},
		"writes":           {unix.SYS_PWRITE64, "balance_dirty_pages", true},
		"runs":             {unix.SYS_WRITE, "0", false},
		"reads":            {unix.SYS_READ, "request_wait_answer", false},
		"writes to a peer": {unix.SYS_WRITE, "wait_woken", false},
		"writes to a pipe": {unix.SYS_WRITE, "pipe_write", false},
		"is stopped":       {unix.SYS_WRITEV, "do_signal_stop", false},
	} {
		root := t.TempDir()
		for thread, call := range map[string]string{"7": "202 0x7f 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f", "8": fmt.Sprintf("%d 0x3 0x0 0x0 0x0 0x0 0x0 0x7f 0x7f", c.call)} {
			dir := filepath.Join(root, "proc/7/task", thread)
			if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(dir+"/syscall", []byte(call), 0o600), os.WriteFile(dir+"/wchan", []byte(c.wchan), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if got := New(root).stores(&tree{record: &record{threads: map[int]time.Duration{7: 0, 8: 0}}, main: proc.Process{PID: 7}}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
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

// command runs a program in the namespaces of this thread.
func command(t *testing.T, stdin string, argv ...string) {
	t.Helper()
	c := exec.Command(argv[0], argv[1:]...)
	c.Stdin = strings.NewReader(stdin)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%q: %v\n%s", argv, err, out)
	}
}

// A peer that a packet filter has cut off does not acknowledge, and is named; one to which nobody ever got through is, too.
func TestCutOff(t *testing.T) {
	thread.Own(func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error("a network of its own:", err)
			return
		}
		command(t, "", "ip", "link", "set", "lo", "up")
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Error(err)
			return
		}
		defer l.Close()
		w, connected, tries := New("/"), play(t, "peer"), play(t, "peer")
		connected.tell(l.Addr())
		connected.ready()
		command(t, "table ip cut {\nchain in {\ntype filter hook input priority 0\ntcp dport >= 1024 drop\n}\n}\n", "nft", "-f", "-")
		connected.tell(1000)
		tries.tell(l.Addr())
		until(t, w, connected, func(s job.Sight) bool {
			return len(s.Stuck) == 1 && s.Stuck[0] == l.Addr().String()+", 3 retransmissions"
		})
		until(t, w, tries, func(s job.Sight) bool {
			return len(s.Stuck) == 1 && strings.HasPrefix(s.Stuck[0], l.Addr().String()+", not connected after")
		})
	})
}

// Where netlink is forbidden the bytes are not told, the reason is, and only once; all else goes on.
func TestWithoutNetlink(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a := play(t, "peer")
	a.tell(l.Addr())
	a.ready()
	thread.Own(func() {
		forbidNetlink(t)
		w := New("/")
		sights, err := w.Look([]int{a.Process.Pid})
		if err == nil || err.Error() != "bytes of TCP connections: netlink: operation not permitted" {
			t.Errorf("the reason is %v", err)
		}
		if sights[0].Memory == 0 || sights[0].Wire != 0 {
			t.Errorf("%+v", sights[0])
		}
		if _, err = w.Look([]int{a.Process.Pid}); err != nil {
			t.Errorf("told again: %v", err)
		}
	})
}

// forbidNetlink denies this thread netlink sockets, as profiles of container runtimes do.
func forbidNetlink(t *testing.T) {
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip}
	}
	end := func(code uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: code} }
	program := []unix.SockFilter{ // struct seccomp_data: the call's number at 0, its first argument at 16
		load(0), unless(unix.SYS_SOCKET, 3), load(16), unless(unix.AF_NETLINK, 1),
		end(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)), end(unix.SECCOMP_RET_ALLOW),
	}
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Error(err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&f)), 0, 0); err != nil {
		t.Error(err)
	}
}

func TestTraced(t *testing.T) {
	a, w := play(t, "idle"), New("/")
	a.ready()
	thread.Own(func() { // a tracer is a thread
		if err := unix.PtraceSeize(a.Process.Pid); err != nil {
			t.Error(err)
			return
		}
		if err := unix.PtraceInterrupt(a.Process.Pid); err != nil {
			t.Error(err)
		}
		until(t, w, a, func(s job.Sight) bool { return s.Traced && s.State == 't' })
		if err := unix.PtraceDetach(a.Process.Pid); err != nil {
			t.Error(err)
		}
	})
	until(t, w, a, func(s job.Sight) bool { return !s.Traced && s.State == 'S' })
}

// A frozen cgroup of the kernel in use, version 2.
func TestFrozen(t *testing.T) {
	a, w := play(t, "idle"), New("/")
	a.ready()
	thread.Own(func() {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			t.Error("mounts of its own:", err)
			return
		}
		command(t, "", "mount", "--make-rprivate", "/")
		command(t, "", "mount", "-t", "cgroup2", "none", "/sys/fs/cgroup")
		dir, err := os.MkdirTemp("/sys/fs/cgroup", "test-")
		if err != nil {
			t.Error(err)
			return
		}
		write := func(dir, name, text string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0); err != nil {
				t.Error(err)
			}
		}
		write(dir, "cgroup.procs", strconv.Itoa(a.Process.Pid))
		write(dir, "cgroup.freeze", "1")
		until(t, w, a, func(s job.Sight) bool { return s.Frozen })
		write(dir, "cgroup.freeze", "0")
		until(t, w, a, func(s job.Sight) bool { return !s.Frozen })
		write("/sys/fs/cgroup", "cgroup.procs", strconv.Itoa(a.Process.Pid))
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
}

// Frozen cgroups as both versions show them, on the machine and in a container.
func TestFrozenFiles(t *testing.T) {
	for _, c := range []struct {
		cgroup, file, text string
		want               bool
	}{
		{"0::/pod/x", "pod/x/cgroup.events", "populated 1\nfrozen 1\n", true},
		{"0::/pod/x", "pod/x/cgroup.events", "populated 1\nfrozen 0\n", false},
		{"0::/", "cgroup.events", "populated 1\nfrozen 1\n", true},
		{"0::/pod/x", "unified/pod/x/cgroup.events", "populated 1\nfrozen 1\n", true},
		{"6:freezer:/pod\n0::/", "freezer/pod/freezer.state", "FROZEN\n", true},
		{"6:cpu,freezer:/pod", "freezer/freezer.state", "FREEZING\n", true}, // the machine's path, a container's mount
		{"6:freezer:/pod", "freezer/pod/freezer.state", "THAWED\n", false},
		{"nonsense", "cgroup.events", "frozen 1\n", false},
	} {
		root := t.TempDir()
		for name, text := range map[string]string{"proc/7/cgroup": c.cgroup + "\n", "sys/fs/cgroup/" + c.file: c.text} {
			path := filepath.Join(root, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if got := New(root).frozen(7); got != c.want {
			t.Errorf("%q and %q in %s: %v", c.cgroup, c.text, c.file, got)
		}
	}
}

const benchThreads = 128 // beside those that Go has

// BenchmarkLook looks at 8 workers with 40 connections each, of few threads and of many.
func BenchmarkLook(b *testing.B) {
	for name, plays := range map[string]string{"few": "peer", "many": "peer of many threads"} {
		b.Run("threads="+name, func(b *testing.B) { lookAt(b, plays) })
	}
}

func lookAt(b *testing.B, plays string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	var pids []int
	for range 8 {
		a := play(b, plays)
		pids = append(pids, a.Process.Pid)
		for range 40 {
			a.tell(l.Addr())
			a.ready()
		}
	}
	w, looks := New("/"), 0
	before := used(b)
	for b.Loop() {
		if _, err := w.Look(pids); err != nil {
			b.Fatal(err)
		}
		looks++
	}
	b.ReportMetric(float64((used(b)-before).Microseconds())/float64(looks), "µs-cpu/op")
}

// used is the CPU time that this process has used.
func used(t testing.TB) time.Duration {
	t.Helper()
	u, err := proc.Root("/proc").Usage(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return u.CPU
}
