package tcpstore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/rendezvous/store"
)

// fake listens on a loopback port and gives the nth connection, from 0, to f, each on a goroutine of its own.
func fake(t *testing.T, f func(n int, c net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go f(n, c)
		}
	}()
	t.Cleanup(func() { ln.Close(); <-ended })
	return ln.Addr().String()
}

// An oldServer answers as a store with these numbers does: no hello before 2.2, no PING before 2.5. It knows no waits
// for what is missing.
type oldServer struct {
	dialect
	m     *store.Memory
	hello bool
}

func (o oldServer) serve(_ int, nc net.Conn) {
	defer nc.Close()
	s := &Server{Store: o.m, lim: limits{DefaultMaxValue, 64 << 20}}
	c := &conn{s: s, loop: &loop{}, opened: true, numbers: o.numbers}
	in := bufio.NewReader(nc)
	if o.hello {
		b := make([]byte, len(hello))
		if _, err := io.ReadFull(in, b); err != nil || !bytes.Equal(b, hello) {
			return
		}
	}
	var pending []byte
	var r request
	var out outbox
	for buf := make([]byte, 4096); ; {
		n, err := in.Read(buf)
		if err != nil {
			return
		}
		pending = append(pending, buf[:n]...)
		for len(pending) > 0 {
			if v := o.numbers; int(pending[0]) < len(v) && v[pending[0]] == ping && !o.pings {
				return
			}
			used, err := c.next(pending, &r, &out)
			if err != nil {
				return
			}
			if used == 0 {
				break
			}
			pending = pending[used:]
		}
		if _, err := nc.Write(out.buf); err != nil {
			return
		}
		out.reset()
	}
}

// TestDetect finds each dialect, and uses every verb that it has.
func TestDetect(t *testing.T) {
	for want, o := range map[string]oldServer{
		"1.13": {dialect: dialectA},
		"2.1":  {dialect: dialectB},
		"2.2":  {dialect: dialectMute, hello: true},
		"2.5+": {dialect: dialectV, hello: true},
	} {
		t.Run(want, func(t *testing.T) {
			o.m = new(store.Memory)
			c := dial(t, fake(t, o.serve))
			if got := c.Dialect(); got != want {
				t.Errorf("Dialect = %q", got)
			}
			useAll(t, c, want)
		})
	}
}

func useAll(t *testing.T, c *Client, dialect string) {
	ctx := within(t, 4*time.Minute)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	ok(c.Set(ctx, "k", []byte("v")))
	v, err := c.Get(ctx, "k")
	ok(err)
	n, err := c.Add(ctx, "n", 4)
	ok(err)
	x, err := c.CompareSet(ctx, "c", nil, []byte("x"))
	ok(err)
	ok(c.MultiSet(ctx, []string{"a", "b"}, [][]byte{[]byte("1"), {}}))
	ab, err := c.MultiGet(ctx, "b", "a")
	ok(err)
	was, err := c.Delete(ctx, "a")
	ok(err)
	keys, err := c.NumKeys(ctx)
	ok(err)
	if string(v) != "v" || n != 4 || string(x) != "x" || string(ab[1]) != "1" || !was || keys != 4 {
		t.Errorf("got %q %d %q %q %v %d", v, n, x, ab, was, keys)
	}
	if err := c.Append(ctx, "k", []byte("w")); (err != nil) != (dialect == "1.13") || err != nil && !errors.Is(err, ErrUnsupported) {
		t.Errorf("Append: %v", err)
	}
	if _, err := c.ListKeys(ctx); (err == nil) != strings.HasPrefix(dialect, "2.2") && (err == nil) != (dialect == "2.5+") {
		t.Errorf("ListKeys: %v", err)
	}
}

// TestStrangePing is case 74: a store whose answer to PING is not the nonce is not used, and is tried again.
func TestStrangePing(t *testing.T) {
	o := oldServer{dialect: dialectV, m: new(store.Memory), hello: true}
	addr := fake(t, func(n int, c net.Conn) {
		if n > 0 {
			o.serve(n, c)
			return
		}
		_ = expect(c, greetV.say)
		_, _ = c.Write([]byte{1, 2, 3, 4})
	})
	var seen []Attempt
	c, err := Dial(within(t, 4*time.Minute), addr, Options{Progress: func(a Attempt) { seen = append(seen, a) }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(seen) != 1 || !errors.Is(seen[0].Err, ErrNotStore) {
		t.Errorf("attempts: %+v", seen)
	}
	if err := c.Set(t.Context(), "k", nil); err != nil {
		t.Error(err)
	}
}

// TestStranger names a port that speaks something else.
func TestStranger(t *testing.T) {
	for name, f := range map[string]func(int, net.Conn){
		"ssh":        func(_ int, c net.Conn) { _, _ = c.Write([]byte("SSH-2.0-OpenSSH_9.2\r\n")) },
		"http":       func(_ int, c net.Conn) { _ = expect(c, greetV.say); _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request")) },
		"closes all": func(_ int, c net.Conn) { c.Close() },
	} {
		_, err := Dial(within(t, 4*time.Minute), fake(t, f), Options{})
		if !errors.Is(err, ErrNotStore) || Cause(err) != "not a c10d store" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSilence is case 75: a server that accepts and never answers.
func TestSilence(t *testing.T) {
	addr := fake(t, func(int, net.Conn) {})
	var attempts atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	_, err := Dial(ctx, addr, Options{ReplyTimeout: 20 * time.Millisecond, Progress: func(a Attempt) {
		if Cause(a.Err) != "connected, but no answer" {
			t.Errorf("attempt %d: %v", a.N, a.Err)
		}
		if attempts.Add(1) == 2 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrNoAnswer) {
		t.Errorf("Dial: %v", err)
	}
}

// A store that accepts a connection and takes its time is told of, and waited for.
func TestSlowGreeting(t *testing.T) {
	told := make(chan Attempt, 10)
	addr := fake(t, func(_ int, c net.Conn) {
		_ = expect(c, greetV.say)
		if a := <-told; a.N != 1 || a.Next != 0 || !errors.Is(a.Err, ErrNoAnswer) || Cause(a.Err) != "connected, but no answer" {
			t.Errorf("told of %+v", a)
		}
		_, _ = c.Write(greetV.hear)
	})
	c, err := Dial(within(t, 4*time.Minute), addr, Options{Progress: func(a Attempt) { told <- a }, ReplyTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(told) > 0 {
		t.Errorf("told of %+v, too", <-told)
	}
}

// A store that stops answering after the greeting is told of before it is given up, whatever it was asked.
func TestSilentReply(t *testing.T) {
	addr := fake(t, func(_ int, c net.Conn) {
		_ = expect(c, greetV.say)
		_, _ = c.Write(greetV.hear)
	})
	var told []Attempt
	silent := func() *Client {
		told = nil
		c, err := Dial(t.Context(), addr, Options{ReplyTimeout: 200 * time.Millisecond, Progress: func(a Attempt) { told = append(told, a) }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	if _, err := silent().Add(t.Context(), "n", 1); !errors.Is(err, ErrNoAnswer) || !errors.Is(err, store.ErrUncertain) {
		t.Errorf("Add: %v", err)
	}
	if len(told) != 1 || told[0].Next != 0 || Cause(told[0].Err) != "connected, but no answer" {
		t.Errorf("of Add was told %+v", told)
	}
	c := silent()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.exchange(ctx, asking{request{verb: wait, keys: wireKeys([]string{"k"})}, func(l *link) error { return l.expect(0) }}); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Wait: %v", err)
	}
	if len(told) != 1 {
		t.Errorf("of Wait was told %+v", told)
	}
}

// TestCrossing is case 76: the release of a wait crosses its cancellation, and the connection stays in step.
func TestCrossing(t *testing.T) {
	waiting := request{verb: wait, keys: [][]byte{[]byte("/k")}}
	adding := request{verb: add, key: []byte("/n"), n: 7}
	failed := make(chan error, 1)
	waits := make(chan struct{})
	addr := fake(t, func(_ int, c net.Conn) {
		err := expect(c, greetV.say)
		_, _ = c.Write(greetV.hear)
		err = errors.Join(err, expect(c, waiting.encode(nil, numbersV)))
		close(waits)
		err = errors.Join(err, expect(c, []byte{0x0c}))
		_, _ = c.Write([]byte{0, 1})
		err = errors.Join(err, expect(c, adding.encode(nil, numbersV)))
		_, _ = c.Write(appendInt(nil, 7))
		failed <- err
	})
	c := dial(t, addr)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-waits; cancel() }()
	if err := c.Wait(ctx, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v", err)
	}
	if n, err := c.Add(within(t, 4*time.Minute), "n", 7); n != 7 || err != nil {
		t.Errorf("Add: %d, %v", n, err)
	}
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

// TestRefused tells each attempt, and why.
func TestRefused(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	s := &Server{Log: slog.New(slog.DiscardHandler)}
	var attempts []Attempt
	c, err := Dial(within(t, 4*time.Minute), addr, Options{Progress: func(a Attempt) {
		if attempts = append(attempts, a); a.N == 3 {
			ln, err := net.Listen("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			serveOn(t, s, ln)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	for i, a := range attempts {
		if a.N != i+1 || !errors.Is(a.Err, syscall.ECONNREFUSED) || Cause(a.Err) != "connection refused" || a.Addr != addr {
			t.Errorf("attempt: %+v", a)
		}
	}
	if first := attempts[0]; first.Next > 15*time.Millisecond || first.Elapsed > 10*time.Second {
		t.Errorf("the first pause is %v after %v", first.Next, first.Elapsed)
	}
}

func TestUnresolvable(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Dial(ctx, "no-such-host.invalid:29400", Options{Progress: func(Attempt) { cancel() }})
	var dns *net.DNSError
	if !errors.As(err, &dns) || !strings.HasPrefix(Cause(err), "name ") {
		t.Errorf("Dial: %v, cause %q", err, Cause(err))
	}
}

func TestPatience(t *testing.T) {
	_, err := Dial(t.Context(), "127.0.0.1:1", Options{Patience: 30 * time.Millisecond})
	if !errors.Is(err, syscall.ECONNREFUSED) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial: %v", err)
	}
}

// TestFirstOnly breaks the first connection and refuses the next ones: what Dial was told does not count any more.
func TestFirstOnly(t *testing.T) {
	t.Parallel()
	const bound = 4 * time.Second
	for _, first := range []bool{false, true} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{Log: slog.New(slog.DiscardHandler)}
		serveOn(t, s, ln)
		var said atomic.Int64
		c, err := Dial(within(t, 4*time.Minute), ln.Addr().String(), Options{
			FirstOnly: first, Patience: time.Second, Progress: func(Attempt) { said.Add(1) },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s.Close()
		begun := time.Now()
		_, err = c.Add(within(t, bound), "n", 1)
		if errors.Is(err, store.ErrUncertain) { // the end of the connection had not come yet
			begun = time.Now()
			_, err = c.Add(within(t, bound), "n", 1)
		}
		patient := time.Since(begun) >= bound
		if err == nil || patient != first || (said.Load() == 0) != first {
			t.Errorf("first only %v: %d attempts were told in %v, %v", first, said.Load(), time.Since(begun), err)
		}
	}
}

// A client that nobody has asked for anything needs no server; when it is asked it finds one that came meanwhile.
func TestNew(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	c := New(addr, Options{})
	defer c.Close()
	if _, err := c.Add(within(t, 50*time.Millisecond), "n", 1); err == nil {
		t.Error("it asked nobody, and was answered")
	}
	if ln, err = net.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	serveOn(t, &Server{}, ln)
	if sum, err := c.Add(within(t, 4*time.Minute), "n", 1); err != nil || sum != 1 {
		t.Errorf("%d, %v", sum, err)
	}
	if err := New(addr, Options{}).Close(); err != nil {
		t.Error(err)
	}
}

// A relay stands between client and server, and breaks connections when told.
type relay struct {
	to    string
	conns chan net.Conn
	// cut is asked before each piece that the server sends: true drops it and breaks the connection.
	cut atomic.Bool
}

func (r *relay) serve(_ int, c net.Conn) {
	up, err := net.Dial("tcp", r.to)
	if err != nil {
		c.Close()
		return
	}
	r.conns <- c
	go func() { _, _ = io.Copy(up, c); up.Close() }()
	buf := make([]byte, 1<<16)
	for {
		n, err := up.Read(buf)
		if err != nil || r.cut.Load() {
			break
		}
		_, _ = c.Write(buf[:n])
	}
	r.cut.Store(false)
	c.Close()
	up.Close()
}

func viaRelay(t *testing.T) (*relay, *store.Memory, *Client) {
	m := new(store.Memory)
	r := &relay{to: serve(t, &Server{Store: m}), conns: make(chan net.Conn, 100)}
	return r, m, dial(t, fake(t, r.serve))
}

// TestReconnect breaks the connection while it is idle: then no call notices.
func TestReconnect(t *testing.T) {
	r, _, c := viaRelay(t)
	ctx := within(t, 4*time.Minute)
	for _, call := range []func() error{
		func() error { return c.Set(ctx, "k", []byte("v")) },
		func() error { _, err := c.Add(ctx, "n", 1); return err },
		func() error { _, err := c.Get(ctx, "k"); return err },
		func() error { return c.Append(ctx, "k", []byte("w")) },
	} {
		conn := <-r.conns
		conn.Close()
		eventually(t, "the client's end is closed", func() bool { return c.link.stale() })
		if err := call(); err != nil {
			t.Error(err)
		}
	}
}

// TestBrokenReply loses the reply: calls that may be repeated are, others say that they do not know.
func TestBrokenReply(t *testing.T) {
	r, m, c := viaRelay(t)
	ctx := within(t, 4*time.Minute)
	r.cut.Store(true)
	if err := c.Set(ctx, "k", []byte("v")); err != nil {
		t.Error("Set: ", err)
	}
	r.cut.Store(true)
	if v, err := c.Get(ctx, "k"); string(v) != "v" || err != nil {
		t.Error("Get: ", v, err)
	}
	for name, call := range map[string]func() error{
		"Add":        func() error { _, err := c.Add(ctx, "n", 1); return err },
		"CompareSet": func() error { _, err := c.CompareSet(ctx, "c", nil, []byte("x")); return err },
		"Append":     func() error { return c.Append(ctx, "a", []byte("x")) },
		"Push":       func() error { return c.Push(ctx, "q", []byte("x")) },
	} {
		if err := c.Set(ctx, "again", nil); err != nil { // connects
			t.Fatal(err)
		}
		r.cut.Store(true)
		if err := call(); !errors.Is(err, store.ErrUncertain) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if v, err := m.Get(ctx, "/n"); string(v) != "1" || err != nil {
		t.Errorf("the lost Add was applied as %q, %v", v, err)
	}
	if err := c.Set(ctx, "k", nil); err != nil {
		t.Error(err)
	}
}

// TestWaitSurvives breaks the connection under a wait.
func TestWaitSurvives(t *testing.T) {
	r, m, c := viaRelay(t)
	done := make(chan error, 1)
	go func() { done <- c.Wait(within(t, 4*time.Minute), "k") }()
	for range rejections - 1 {
		conn := <-r.conns
		eventually(t, "the wait has come through", func() bool {
			var waiting bool
			m.Do(func(tab *store.Table) { waiting = tab.Bytes() > 0 })
			return waiting
		})
		conn.Close()
		eventually(t, "the server has noticed", func() bool { return len(r.conns) > 0 })
	}
	_ = m.Set(t.Context(), "/k", nil)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestRejected gives up on a request that the store closes the connection on, and stays usable.
func TestRejected(t *testing.T) {
	c := dial(t, serve(t, &Server{MaxValue: 10}))
	ctx := within(t, 4*time.Minute)
	if err := c.Set(ctx, "k", make([]byte, 11)); !errors.Is(err, ErrRejected) {
		t.Errorf("Set: %v", err)
	}
	if err := c.Set(ctx, strings.Repeat("k", MaxKey), nil); err == nil || errors.Is(err, ErrRejected) {
		t.Errorf("Set of a key that is too long: %v", err)
	}
	if err := c.Set(ctx, "k", nil); err != nil {
		t.Error(err)
	}
}

// TestQueuedCall ends with its context while another call holds the connection.
func TestQueuedCall(t *testing.T) {
	m := new(store.Memory)
	c := dial(t, serve(t, &Server{Store: m}))
	done := make(chan error, 1)
	go func() { done <- c.Wait(within(t, 4*time.Minute), "k") }()
	eventually(t, "the wait holds the connection", func() bool { return len(c.turn) == 0 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Set(ctx, "x", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Set: %v", err)
	}
	_ = m.Set(t.Context(), "/k", nil)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestInitKey sees the workers' counter where PyTorch's clients put it.
func TestInitKey(t *testing.T) {
	m := new(store.Memory)
	c := dial(t, serve(t, &Server{Store: m}))
	ctx := within(t, 4*time.Minute)
	if _, err := c.Add(ctx, "init/", 1); err != nil {
		t.Fatal(err)
	}
	if ok, err := m.Check(ctx, "init/"); !ok || err != nil {
		t.Error(ok, err)
	}
	if list, err := c.ListKeys(ctx); len(list) != 0 || err != nil {
		t.Errorf("ListKeys = %q, %v; init/ is nobody's key", list, err)
	}
}

// TestOneRoundTrip counts what Dial sends to a new store: one segment, one reply.
func TestOneRoundTrip(t *testing.T) {
	said := make(chan int, 1)
	addr := fake(t, func(_ int, c net.Conn) {
		b := make([]byte, 100)
		n, _ := c.Read(b)
		said <- n
		_, _ = c.Write(greetV.hear)
	})
	dial(t, addr)
	if n := <-said; n != len(greetV.say) {
		t.Errorf("the first segment has %d bytes", n)
	}
}
