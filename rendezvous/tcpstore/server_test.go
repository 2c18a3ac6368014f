package tcpstore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/rendezvous/store"
	"github.com/muster-run/muster/test/leak"
)

// serve runs a server on a loopback port for the length of the test, quietly.
func serve(t testing.TB, s *Server) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, s, ln)
	return ln.Addr().String()
}

func serveOn(t testing.TB, s *Server, ln net.Listener) {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; !errors.Is(err, ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func dial(t testing.TB, addr string) *Client {
	t.Helper()
	c, err := Dial(within(t, 4*time.Minute), addr, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// raw opens a connection that says hello, and ends what it does after ten minutes.
func raw(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Minute))
	mustWrite(t, c, hello)
	return c
}

func mustWrite(t testing.TB, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

func mustExpect(t testing.TB, c net.Conn, want []byte) {
	t.Helper()
	if err := expect(c, want); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until f holds; what f looks at has no event to wait for.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx := within(t, 4*time.Minute); !f(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("it never came that %s", what)
		}
	}
}

func TestServeEndsWithShutdown(t *testing.T) {
	s := &Server{}
	addr := serve(t, s)
	c := dial(t, addr)
	if err := c.Set(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(within(t, 4*time.Minute)) }()
	eventually(t, "new connections are refused", func() bool {
		n, err := net.Dial("tcp", addr)
		if err == nil {
			n.Close()
		}
		return err != nil
	})
	if err := c.Set(t.Context(), "k", []byte("still served")); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := <-done; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(ln); !errors.Is(err, ErrServerClosed) {
		t.Errorf("Serve after Shutdown: %v", err)
	}
}

func TestShutdownClosesClientsThatStay(t *testing.T) {
	s := &Server{}
	c := raw(t, serve(t, s))
	if err := inStep(c, "v"); err != nil {
		t.Fatal(err)
	}
	if peers := s.Peers(); len(peers) != 1 || peers[netip.MustParseAddr("127.0.0.1")] != 1 {
		t.Errorf("connections by address: %v", peers)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	if err := expectEOF(c); err != nil {
		t.Error(err)
	}
	if n, peers := s.Clients(), s.Peers(); n != 0 || len(peers) != 0 {
		t.Errorf("%d clients are left: %v", n, peers)
	}
}

func TestCloseBeforeServe(t *testing.T) {
	var s Server
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestInheritedListener serves a listener that came by descriptor, as the worker store's does.
func TestInheritedListener(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	inherited, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	serveOn(t, &Server{}, inherited)
	if err := dial(t, inherited.Addr().String()).Set(t.Context(), "k", nil); err != nil {
		t.Error(err)
	}
}

func TestListenerWithoutDescriptor(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := (&Server{}).Serve(struct{ net.Listener }{ln}); err == nil || !strings.Contains(err.Error(), "no file descriptor") {
		t.Errorf("Serve: %v", err)
	}
}

// TestDualStack reaches one listener by IPv4 and by IPv6.
func TestDualStack(t *testing.T) {
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, &Server{}, ln)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	for _, host := range []string{"127.0.0.1", "::1", "localhost"} {
		if err := dial(t, net.JoinHostPort(host, port)).Set(t.Context(), "k", nil); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestUnixListener(t *testing.T) {
	ln, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, &Server{}, ln)
	c, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mustWrite(t, c, hello)
	if err := inStep(c, "v"); err != nil {
		t.Error(err)
	}
}

// TestForeign cuts the magic at every place.
func TestForeign(t *testing.T) {
	const magic = "MUSTER\x00\x01"
	got := make(chan net.Conn, 1)
	addr := serve(t, &Server{Magic: magic, Foreign: func(c net.Conn) { got <- c }})
	v := raw(t, addr)
	text := magic + "hello"
	for cut := 1; cut <= len(text); cut++ {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		mustWrite(t, c, []byte(text[:cut]))
		if err := inStep(v, "v"); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, c, []byte(text[cut:]))
		theirs := <-got
		mustExpect(t, theirs, []byte(text))
		mustWrite(t, theirs, []byte("back"))
		mustExpect(t, c, []byte("back"))
		theirs.Close()
		c.Close()
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mustWrite(t, c, []byte("MUSTERED"))
	if err := expectEOF(c); err != nil {
		t.Error("another magic: ", err)
	}
}

// TestOptions looks at what an accepted connection inherits from its listener.
func TestOptions(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f, err := descriptor(ln)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sc, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	tune(sc)
	c := raw(t, ln.Addr().String())
	fd, peer, err := accept(sc)
	if err != nil || peer.String() != c.LocalAddr().String() {
		t.Fatalf("accept: %v, %v", peer, err)
	}
	defer unix.Close(fd)
	for name, option := range map[string][3]int{
		"TCP_NODELAY":  {unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		"SO_KEEPALIVE": {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		"TCP_KEEPIDLE": {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 60},
	} {
		if got, err := unix.GetsockoptInt(fd, option[0], option[1]); got != option[2] || err != nil {
			t.Errorf("%s = %d, %v; want %d", name, got, err, option[2])
		}
	}
}

func TestForeignMagicThatIsAVerb(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Magic: "\x12M", Foreign: func(net.Conn) {}}
	if err := s.Serve(ln); err == nil || errors.Is(err, ErrServerClosed) {
		t.Errorf("Serve: %v", err)
	}
}

// TestBarrierOf1000 has a thousand clients meet at a barrier, the counted one and the one made of ADD and WAIT.
func TestBarrierOf1000(t *testing.T) {
	const n = 1000
	addr := serve(t, &Server{})
	ctx := within(t, 4*time.Minute)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if err := meet(ctx, addr, n); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func meet(ctx context.Context, addr string, n int64) error {
	c, err := Dial(ctx, addr, Options{ReplyTimeout: time.Minute})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Add(ctx, "init/", 1); err != nil {
		return err
	}
	if err := c.Barrier(ctx, "barrier", n); err != nil {
		return err
	}
	count, err := c.Add(ctx, "counter", 1)
	if err != nil {
		return err
	}
	if count == n {
		err = c.Set(ctx, "last", []byte("here"))
	}
	if err != nil {
		return err
	}
	v, err := c.Get(ctx, "last")
	if err == nil && string(v) != "here" {
		err = fmt.Errorf("Get = %q", v)
	}
	return err
}

// TestTenThousand has ten thousand connections wait for one key, in a server process of its own: two ends of each in
// one process would be more files than one may have here.
func TestTenThousand(t *testing.T) {
	const n = 10_000
	p := startServer(t, -1)
	r := many(wait, "/go")
	l := newLoad(t, p.addr, n, func(int) ([]byte, int) { return r.encode(nil, numbersV), 1 })
	for _, c := range l.clients {
		l.say(t, c)
	}
	v := raw(t, p.addr)
	mustWrite(t, v, []byte{7})
	mustExpect(t, v, appendInt(nil, 0))
	go func() {
		put := req(set, "/go", "")
		_, _ = v.Write(put.encode(nil, numbersV))
	}()
	l.hearAll(t, n)
}

// TestVanishedWaiters checks that clients that go while they wait leave nothing in the table.
func TestVanishedWaiters(t *testing.T) {
	m := new(store.Memory)
	s := &Server{Store: m}
	addr := serve(t, s)
	for i := range 50 {
		c := raw(t, addr)
		r := many(wait, "/k", "/l", fmt.Sprintf("/%d", i))
		mustWrite(t, c, r.encode(nil, numbersV))
		if err := inStep(c, "v"); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 { // half of them by a reset
			_ = c.(*net.TCPConn).SetLinger(0)
		}
		c.Close()
	}
	eventually(t, "all have gone", func() bool { return s.Clients() == 0 })
	m.Do(func(tab *store.Table) {
		if n := tab.Bytes(); n != 0 {
			t.Errorf("the table still weighs %d bytes", n)
		}
	})
}

// TestSlowReader has a client ask for much and read nothing. Others are served, its memory is bounded by the values
// themselves, and when it reads after all, every byte is there.
func TestSlowReader(t *testing.T) {
	const size, asked = 1 << 20, 64
	s := &Server{Loops: 1}
	addr := serve(t, s)
	big := bytes.Repeat([]byte("x"), size)
	v := raw(t, addr)
	put, ask := req(set, "/big", string(big)), many(multiGet, strings.Split(strings.Repeat("/big,", asked)[:5*asked-1], ",")...)
	mustWrite(t, v, put.encode(nil, numbersV))
	if err := inStep(v, "v"); err != nil {
		t.Fatal(err)
	}
	slow := raw(t, addr)
	mustWrite(t, slow, append(ask.encode(nil, numbersV), 7))
	eventually(t, "the reply waits for its reader", func() bool { return s.budget.used.Load() > 0 })
	for range 100 {
		if err := inStep(v, "v"); err != nil {
			t.Fatal(err)
		}
	}
	if used := s.budget.used.Load(); used > 2*size {
		t.Errorf("%d bytes are held for a reply of %d times the same %d", used, asked, size)
	}
	for range asked {
		mustExpect(t, slow, appendBytes(nil, big))
	}
	mustExpect(t, slow, appendInt(nil, 1))
	if err := inStep(slow, "v"); err != nil {
		t.Error(err)
	}
	eventually(t, "all memory is given back", func() bool { return s.budget.used.Load() == 0 })
}

// stall makes a client that does not read a large reply.
func stall(t *testing.T, s *Server, addr string) net.Conn {
	t.Helper()
	c := raw(t, addr)
	put, ask := req(set, "/big", strings.Repeat("x", 4<<20)), many(multiGet, "/big", "/big", "/big", "/big")
	mustWrite(t, c, ask.encode(put.encode(nil, numbersV), numbersV))
	eventually(t, "the reply waits for its reader", func() bool { return s.budget.used.Load() > 0 })
	return c
}

func TestStallTimeout(t *testing.T) {
	s := &Server{StallTimeout: time.Nanosecond, Log: slog.New(slog.DiscardHandler)}
	addr := serve(t, s)
	c := raw(t, addr)
	put, ask := req(set, "/big", strings.Repeat("x", 4<<20)), many(multiGet, "/big", "/big", "/big", "/big")
	mustWrite(t, c, ask.encode(put.encode(nil, numbersV), numbersV))
	eventually(t, "the stalled client is gone", func() bool { return s.Clients() == 0 })
}

// TestStalledClientGoes drops a client that goes while its reply waits.
func TestStalledClientGoes(t *testing.T) {
	s := &Server{}
	c := stall(t, s, serve(t, s))
	c.Close()
	eventually(t, "it is gone", func() bool { return s.Clients() == 0 })
	if used := s.budget.used.Load(); used != 0 {
		t.Errorf("%d bytes are still held", used)
	}
}

// TestBuffersAreBounded has strangers send most of large requests, and never the end.
func TestBuffersAreBounded(t *testing.T) {
	var log syncBuffer
	s := &Server{MaxBuffered: 8 << 20, Log: slog.New(slog.NewTextHandler(&log, nil))}
	addr := serve(t, s)
	part := append(append([]byte{1}, appendBytes(nil, []byte("/k"))...), appendInt(nil, 4<<20)...)
	part = append(part, make([]byte, 3<<20)...)
	for range 8 {
		_, _ = raw(t, addr).Write(part)
	}
	eventually(t, "someone is closed", func() bool { return strings.Contains(log.String(), "closed a connection") })
	if used := s.budget.used.Load(); used > s.MaxBuffered {
		t.Errorf("%d bytes are buffered, of %d", used, s.MaxBuffered)
	}
	v := raw(t, addr)
	mustWrite(t, v, []byte{5, 1})
	if err := inStep(raw(t, addr), "v"); err != nil {
		t.Error(err)
	}
	mustWrite(t, v, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	mustExpect(t, v, []byte{1})
}

// TestAbsurdLengths allocates nothing for lengths that are only announced.
func TestAbsurdLengths(t *testing.T) {
	addr := serve(t, &Server{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, text := range []string{
		"01 0000000000000080", "01 0000000000010000", "05 ffffffffffffffff", "0b ffffffffffffff7f",
		`01 s("k") ffffffffffffff7f`, `09 s("k") 0000008000000000`, `02 s("k") s("") ffffffffffffffff`,
	} {
		b, err := parseBytes(text)
		if err != nil {
			t.Fatal(err)
		}
		c := raw(t, addr)
		mustWrite(t, c, b)
		if err := expectEOF(c); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	c := raw(t, addr)
	mustWrite(t, c, append(append([]byte{1}, appendBytes(nil, []byte("k"))...), appendInt(nil, 8<<20)...))
	if err := inStep(raw(t, addr), "v"); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
}

// TestStoreIsFull closes whoever would make the table too large, and serves on.
func TestStoreIsFull(t *testing.T) {
	var log syncBuffer
	m := new(store.Memory)
	m.Do(func(tab *store.Table) { tab.MaxBytes = 1 << 20 })
	addr := serve(t, &Server{Store: m, Log: slog.New(slog.NewTextHandler(&log, nil))})
	c := raw(t, addr)
	for i := range 3 {
		put := req(set, fmt.Sprintf("/%d", i), strings.Repeat("x", 400<<10))
		mustWrite(t, c, put.encode(nil, numbersV))
	}
	if err := expectEOF(c); err != nil {
		t.Error(err)
	}
	w := raw(t, addr)
	names := make([]string, MaxCount)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	r := many(wait, names...)
	_, _ = w.Write(r.encode(nil, numbersV))
	if err := expectEOF(w); err != nil {
		t.Error("a WAIT for more keys than there is room for: ", err)
	}
	v := raw(t, addr)
	mustWrite(t, v, []byte{7})
	mustExpect(t, v, appendInt(nil, 2))
	if !strings.Contains(log.String(), "the store is full") || !strings.Contains(log.String(), "peer=127.0.0.1:") {
		t.Errorf("log: %s", log.String())
	}
}

// TestOneLineNamesThePeer, and a flood of bad frames is cut down.
func TestOneLineNamesThePeer(t *testing.T) {
	var log syncBuffer
	addr := serve(t, &Server{Log: slog.New(slog.NewTextHandler(&log, nil))})
	c := raw(t, addr)
	mustWrite(t, c, []byte{0x40})
	if err := expectEOF(c); err != nil {
		t.Error(err)
	}
	eventually(t, "it is logged", func() bool { return log.String() != "" })
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "peer="+c.LocalAddr().String()) || !strings.Contains(got, "0x40") {
		t.Errorf("log: %s", got)
	}
	for range 200 {
		c := raw(t, addr)
		mustWrite(t, c, []byte{0x40})
		if err := expectEOF(c); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "\n"); n > 10 {
		t.Errorf("%d lines about a flood", n)
	}
}

// TestGripes floods from one address, which hides neither another's line nor, in the end, its own, and from so many that
// they share theirs.
func TestGripes(t *testing.T) {
	var g gripes
	now := time.Now()
	flood := func(from netip.Addr, times int) (said int) {
		for range times {
			if _, ok := g.allow(from, now); ok {
				said++
			}
		}
		return said
	}
	one, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	if said := flood(one, 100); said != gripeBurst {
		t.Errorf("%d lines at once", said)
	}
	if unsaid, ok := g.allow(other, now); unsaid != 0 || !ok {
		t.Errorf("another address: %d unsaid, %v", unsaid, ok)
	}
	if unsaid, ok := g.allow(one, now.Add(gripePause)); !ok || unsaid != 95 {
		t.Errorf("later: %d unsaid, %v", unsaid, ok)
	}
	said, all := 0, one
	for range 1000 {
		all = all.Next()
		said += flood(all, 1)
	}
	if said > maxGripes+gripeBurst || len(g.from) > maxGripes+1 {
		t.Errorf("%d lines about a thousand addresses, %d of them kept", said, len(g.from))
	}
	now = now.Add(time.Hour)
	if said := flood(other.Next(), 1); said != 1 || len(g.from) > 4 {
		t.Errorf("an hour later %d addresses are kept", len(g.from))
	}
}

// TestSlowWatcher closes a client that does not read the changes that it watches.
func TestSlowWatcher(t *testing.T) {
	s := &Server{Legacy: LegacyA}
	addr := serve(t, s)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	watch := req(watchKey, "/w", "")
	mustWrite(t, c, watch.encode(nil, numbersA))
	mustExpect(t, c, []byte{3})
	v := raw(t, addr)
	put := req(set, "/w", strings.Repeat("x", 1<<20))
	for range 64 {
		mustWrite(t, v, put.encode(nil, numbersV))
	}
	eventually(t, "it is closed", func() bool { return s.Clients() == 1 })
	if err := inStep(v, "v"); err != nil {
		t.Error(err)
	}
}

// TestWatchedBeforeReleased tells a client what became of a key before it releases it from its wait for that key.
func TestWatchedBeforeReleased(t *testing.T) {
	addr := serve(t, &Server{Legacy: LegacyA, Loops: 1})
	v := raw(t, addr)
	if err := inStep(v, "v"); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	watches, waits, put := req(watchKey, "/k", ""), many(wait, "/k"), req(set, "/k", "1")
	mustWrite(t, c, watches.encode(nil, numbersA))
	mustExpect(t, c, []byte{3})
	mustWrite(t, c, waits.encode(nil, numbersA)) // which is read before what the other says later
	mustWrite(t, v, put.encode(nil, numbersV))
	event := appendBytes(appendBytes(appendBytes([]byte{byte(store.Created)}, []byte("/k")), nil), []byte("1"))
	mustExpect(t, c, append(event, 0))
}

// A syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

var _ io.Writer = (*syncBuffer)(nil)

func TestMain(m *testing.M) {
	raiseFiles()
	if os.Getenv(serveEnv) != "" {
		serveProcess()
		return
	}
	leak.Main(m)
}

// TestReleaseCrossesCancel has a client wait and cancel while another, on another loop, makes the key come and go.
// Whatever happens first, the waiter reads 01, or 00 and then 01, and never a byte more.
func TestReleaseCrossesCancel(t *testing.T) {
	addr := serve(t, &Server{Loops: 2})
	v, w := raw(t, addr), raw(t, addr) // in turn: one on each loop
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		put, del := req(set, "/k", ""), req(deleteKey, "/k", "")
		const pairs = 200
		burst := bytes.Repeat(del.encode(put.encode(nil, numbersV), numbersV), pairs)
		replies := bytes.Repeat(appendInt(nil, 1), pairs)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = w.Write(burst)
				_ = expect(w, replies)
			}
		}
	}()
	const rounds, pairs = 500, 200
	ask := many(wait, "/k")
	waitAndCancel := bytes.Repeat(append(ask.encode(nil, numbersV), 0x0c), pairs)
	released := 0
	replies := bufio.NewReader(v)
	for range rounds {
		mustWrite(t, v, waitAndCancel)
		for range pairs {
			b, err := replies.ReadByte()
			if err == nil && b == 0 {
				released++
				b, err = replies.ReadByte()
			}
			if b != 1 || err != nil {
				t.Fatalf("after %d releases: %d, %v", released, b, err)
			}
		}
	}
	close(stop)
	<-stopped
	if err := inStep(v, "v"); err != nil {
		t.Error(err)
	}
	t.Logf("%d of %d waits were released", released, rounds*pairs)
}

// TestStaleRelease drops the news of a wait that is over: a byte to a connection without a file would fail.
func TestStaleRelease(t *testing.T) {
	for _, c := range []*conn{{fd: -1, waiting: true, turn: 1}, {fd: noFile, waiting: true, turn: 2}, {fd: noFile, turn: 1}} {
		if err := new(loop).release(ended{c, 1}); err != nil {
			t.Error(err)
		}
	}
	if err := new(loop).release(ended{&conn{fd: noFile, waiting: true, turn: 1}, 1}); err == nil {
		t.Error("the release of a pending wait sent nothing")
	}
}

const noFile = 1 << 30

// A client of 1.13 whose wait timed out deletes a key. The wait's release, which comes while that may be another's APPEND, is not sent.
func TestWaitEndsWithDoubt(t *testing.T) {
	addr := serve(t, &Server{Loops: 1})
	other := raw(t, addr)
	k, w, gone := req(set, "/k", "1"), req(set, "/w", "1"), req(deleteKey, "/k", "")
	mustWrite(t, other, k.encode(nil, numbersV))
	old, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	begins := req(add, "/b", "") // by 0
	mustWrite(t, old, begins.encode(nil, numbersA))
	mustExpect(t, old, appendInt(nil, 0)) // from here on what it says is read before what the other says later
	waits := many(wait, "/w")
	mustWrite(t, old, gone.encode(waits.encode(nil, numbersA), numbersA))
	if err := inStep(other, "v"); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, other, w.encode(nil, numbersV))
	mustExpect(t, old, appendInt(nil, 1))
}
