package tcpstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/rendezvous/store"
)

// only admits one address.
func only(a string) func(netip.Addr) bool {
	return func(b netip.Addr) bool { return b == netip.MustParseAddr(a) }
}

// hear reads a connection to its end.
func hear(t *testing.T, c net.Conn) string {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	b, err := io.ReadAll(c)
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		t.Fatal("it is still open")
	}
	return string(b)
}

// refused dials a store by a name, and returns why that did not do.
func refused(t *testing.T, addr, name string) error {
	t.Helper()
	ctx, cancel := context.WithCancelCause(within(t, time.Minute))
	c, err := Dial(ctx, addr, Options{Name: name, Progress: func(a Attempt) { cancel(a.Err) }})
	if err == nil {
		c.Close()
		return nil
	}
	return context.Cause(ctx)
}

// An address that is not let in is closed before it has said anything, and told of; others are served. The listener is one of IPv6, which takes
// IPv4 as well.
func TestAdmits(t *testing.T) {
	for name, word := range map[string]string{"": "", "a": string(notLetIn)} {
		var log syncBuffer
		s := &Server{Store: &store.Memory{}, Name: name, Elsewhere: func(string, net.Conn) { t.Error("nobody calls for another store") }, Admits: only("127.0.0.2"),
			Log: slog.New(slog.NewTextHandler(&log, nil))}
		ln, err := net.Listen("tcp", "[::]:0")
		if err != nil {
			t.Fatal(err)
		}
		go s.Serve(ln)
		t.Cleanup(func() { s.Close() })
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		addr := net.JoinHostPort("127.0.0.1", port)
		friend := callFrom(t, "127.0.0.2", addr)
		mustWrite(t, friend, hello)
		if err := inStep(friend, "v"); err != nil {
			t.Fatal(err)
		}
		for range 3 * gripeBurst {
			if said := hear(t, callFrom(t, "127.0.0.3", addr)); said != word {
				t.Errorf("who is not let in hears %q", said)
			}
		}
		eager := callFrom(t, "127.0.0.3", addr)
		_, _ = eager.Write(bytesOf(req(set, "/k", "v"))) // it may be closed already
		hear(t, eager)
		if err := refused(t, addr, "a"); (name != "") != errors.Is(err, ErrBarred) || err == nil {
			t.Errorf("a client ends with %v", err)
		}
		if err := inStep(friend, "w"); err != nil {
			t.Error(err)
		}
		if n, _ := s.Store.Check(t.Context(), "/k"); n {
			t.Error("it could set a key")
		}
		told := log.String()
		if n := strings.Count(told, "peer=127.0.0.3:"); n < 1 || n > gripeBurst+1 || !strings.Contains(told, errBarred.Error()) {
			t.Errorf("it is told %d times: %s", n, told)
		}
	}
}

// pair are two stores that share a port: a listens, and hands over what calls for b.
func pair(t *testing.T, a, b func(netip.Addr) bool, shared bool) (addr string, owner, guest *Server) {
	quiet := slog.New(slog.DiscardHandler)
	guest = &Server{Store: &store.Memory{}, Log: quiet, Name: "b", Elsewhere: func(_ string, c net.Conn) { c.Close() }, Admits: b}
	owner = &Server{Store: &store.Memory{}, Log: quiet, Name: "a", Admits: a, Shared: func() bool { return shared }, Magic: "MUSTER", Foreign: func(c net.Conn) {
		t.Error("the agents' line is reached")
		c.Close()
	}, Elsewhere: func(_ string, c net.Conn) {
		r := c.(*replayed)
		if err := guest.Adopt(taken(t, r.Conn.(*net.TCPConn)), bytes.Clone(r.head)); err != nil {
			t.Error(err)
		}
		c.Close()
	}}
	t.Cleanup(func() { guest.Close() })
	return serve(t, owner), owner, guest
}

// Where stores share a port each one's rule holds for those who call for it, whoever listens; and who is let in by neither reaches nothing.
func TestAdmitsWhereShared(t *testing.T) {
	me, other := only("127.0.0.1"), only("127.0.0.9")
	for _, c := range []struct {
		name   string
		a, b   func(netip.Addr) bool
		shared bool
		toA    error
		toB    error
	}{
		{"neither has a rule", nil, nil, true, nil, nil},
		{"the owner bars", other, nil, true, ErrBarred, nil},
		{"the owner bars, the guest lets in", other, me, true, ErrBarred, nil},
		{"the guest bars", me, other, true, nil, ErrBarred},
		{"both bar", other, other, true, ErrBarred, ErrBarred},
		{"nobody shares the port", other, me, false, ErrBarred, ErrBarred},
	} {
		addr, owner, guest := pair(t, c.a, c.b, c.shared)
		for name, want := range map[string]error{"a": c.toA, "b": c.toB} {
			if err := refused(t, addr, name); !errors.Is(err, want) || want == nil && err != nil {
				t.Errorf("%s: %s is reached with %v", c.name, name, err)
			}
		}
		if c.toA == nil {
			continue
		}
		long := strings.Repeat("k", mostCall)
		for what, say := range map[string][]byte{
			"a key": bytesOf(req(set, "/k", "v")), "1.13's": {0, 1, 0, 0, 0, 0, 0, 0, 0, 'k', 1, 0, 0, 0, 0, 0, 0, 0, 'v'}, "the agents' line": []byte("MUSTER and more"),
			"another question": bytesOf(many(check, "/k")), "half of a long one": bytesOf(many(check, "/"+long))[:mostCall+10], "a large value": bytesOf(req(set, "/k", long))[:100],
			"a call for the owner": bytesOf(many(check, callKey+"a")),
		} {
			stranger := callFrom(t, "127.0.0.3", addr)
			_, _ = stranger.Write(say)
			if said := hear(t, stranger); said != string(notLetIn) && said != "" {
				t.Errorf("%s: %s is answered %q", c.name, what, said)
			}
		}
		for _, s := range []*Server{owner, guest} {
			eventually(t, "all have gone", func() bool { return s.Clients() == 0 })
		}
		if there, _ := owner.Store.Check(t.Context(), "/k"); there {
			t.Errorf("%s: a key was set", c.name)
		}
	}
}
