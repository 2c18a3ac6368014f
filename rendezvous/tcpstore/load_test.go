package tcpstore

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// serveEnv makes the test binary a server process. Its standard output is the address; the end of its standard
// input is its end.
const serveEnv = "TCPSTORE_TEST_SERVE"

// raiseFiles allows as many open files as the system does.
func raiseFiles() {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil {
		r.Cur = r.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &r)
	}
}

func serveProcess() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(ln.Addr())
	s := &Server{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	go s.Serve(ln)
	_, _ = os.Stdin.Read(make([]byte, 1))
	s.Close()
}

// A process is a server in a process of its own, which is where its CPU time and memory can be told from the load's.
type process struct {
	cmd  *exec.Cmd
	addr string
}

// startServer runs a server process on CPU cpu, or anywhere when that is negative.
func startServer(t testing.TB, cpu int, command ...string) *process {
	t.Helper()
	if len(command) == 0 {
		command = []string{os.Args[0], "-test.run=^$"}
	}
	if cpu >= 0 {
		command = append([]string{"taskset", "-c", strconv.Itoa(cpu)}, command...)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), serveEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return &process{cmd, strings.TrimSpace(line)}
}

// cpuTime returns the CPU time of the process in nanoseconds, all threads.
func (p *process) cpuTime(t testing.TB) int64 {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil || len(files) == 0 {
		t.Fatal("no schedstat of the server", err)
	}
	var sum int64
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has gone
		}
		ns, _ := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
		sum += ns
	}
	return sum
}

// resident returns the resident memory of the process in bytes.
func (p *process) resident(t testing.TB) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := bytes.Cut(b, []byte("VmRSS:"))
	kb, err := strconv.ParseInt(strings.Fields(string(after))[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// A load is many clients on one goroutine and one epoll instance, each with one request under way.
type load struct {
	ep      int
	clients []*loadClient
	byFD    map[int32]*loadClient
}

type loadClient struct {
	fd    int
	ask   []byte
	reply int // bytes
	got   int
}

// newLoad connects n clients to addr. ask gives each its request.
func newLoad(t testing.TB, addr string, n int, ask func(i int) (request []byte, reply int)) *load {
	t.Helper()
	ep, err := unix.EpollCreate1(0)
	if err != nil {
		t.Fatal(err)
	}
	l := &load{ep: ep, byFD: map[int32]*loadClient{}}
	t.Cleanup(l.close)
	to := sockaddr(t, addr)
	for i := range n {
		c := &loadClient{fd: connect(t, to)}
		c.ask, c.reply = ask(i)
		l.clients = append(l.clients, c)
		l.byFD[int32(c.fd)] = c
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, c.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.fd)}); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func sockaddr(t testing.TB, addr string) unix.Sockaddr {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	sa := &unix.SockaddrInet4{Port: a.Port}
	copy(sa.Addr[:], a.IP.To4())
	return sa
}

// connect opens a connection and says hello, as clients of 2.2 and later do.
func connect(t testing.TB, to unix.Sockaddr) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(fd, to)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err == nil {
		_, err = unix.Write(fd, hello)
	}
	if err != nil {
		t.Fatal("connect: ", err)
	}
	return fd
}

func (l *load) close() {
	for _, c := range l.clients {
		unix.Close(c.fd)
	}
	unix.Close(l.ep)
}

// run has n requests answered.
func (l *load) run(t testing.TB, n int) {
	t.Helper()
	toAsk, toHear := n, n
	for _, c := range l.clients {
		if toAsk > 0 {
			l.say(t, c)
			toAsk--
		}
	}
	l.each(t, &toHear, func(c *loadClient) {
		if toAsk > 0 {
			l.say(t, c)
			toAsk--
		}
	})
}

// hearAll waits for n replies.
func (l *load) hearAll(t testing.TB, n int) {
	t.Helper()
	l.each(t, &n, func(*loadClient) {})
}

// each calls f for each complete reply and counts down, to nothing.
func (l *load) each(t testing.TB, toHear *int, f func(c *loadClient)) {
	t.Helper()
	events := make([]unix.EpollEvent, 512)
	buf := make([]byte, 64<<10)
	for *toHear > 0 {
		k, err := unix.EpollWait(l.ep, events, 20_000)
		if err == unix.EINTR {
			continue
		}
		if err != nil || k == 0 {
			t.Fatalf("no reply for 20 s, %d to come: %v", *toHear, err)
		}
		for _, e := range events[:k] {
			c := l.byFD[e.Fd]
			if l.hear(t, c, buf) {
				*toHear--
				f(c)
			}
		}
	}
}

func (l *load) say(t testing.TB, c *loadClient) {
	if n, err := send(c.fd, c.ask); n < len(c.ask) || err != nil {
		t.Fatal("send: ", n, err)
	}
}

// hear reads what is there and reports whether the reply is complete.
func (l *load) hear(t testing.TB, c *loadClient, buf []byte) bool {
	n, err := receive(c.fd, buf)
	if err != nil || n == 0 {
		t.Fatalf("receive: %d bytes, %v", n, err)
	}
	c.got += n
	if c.got < c.reply {
		return false
	}
	c.got = 0
	return true
}
