package tcpstore

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/muster-run/muster/rendezvous/store"
)

// serve runs a server on a loopback port for the length of the test, quietly.
func serve(t testing.TB, s *Server) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if s.Log == nil {
		s.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; !errors.Is(err, ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	return ln.Addr().String()
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func dial(t testing.TB, addr string) *Client {
	t.Helper()
	c, err := Dial(within(t, 10*time.Second), addr, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestSmoke(t *testing.T) {
	m := new(store.Memory)
	addr := serve(t, &Server{Store: m})
	ctx := within(t, 10*time.Second)
	a, b := dial(t, addr), dial(t, addr)
	go a.Set(ctx, "k", []byte("v"))
	if v, err := b.Get(ctx, "k"); string(v) != "v" || err != nil {
		t.Fatalf("Get = %q, %v", v, err)
	}
	if n, err := b.Add(ctx, "n", 7); n != 7 || err != nil {
		t.Fatal(n, err)
	}
	if v, err := m.Get(ctx, "/n"); string(v) != "7" || err != nil {
		t.Fatal(v, err)
	}
}
