package ports

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// claimant claims a port, and connects to that.
func claimant(t *testing.T) (there *net.UnixConn, here net.Conn) {
	t.Helper()
	const port = 1 // nobody's
	ln, err := Claim(port, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	at := claimed(port, t.Name())
	c, err := net.Dial(at.Net, at.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if here, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	return c.(*net.UnixConn), here
}

// A message that is not of one connection leaves no descriptor open.
func TestClaimReceives(t *testing.T) {
	for _, c := range []struct {
		name, message string
		fds           int
		ok            bool
	}{
		{"a connection", "job\x00head", 1, true},
		{"two", "job\x00head", 2, false},
		{"none", "job\x00head", 0, false},
		{"no name", "job", 1, false},
		{"too much", "job\x00" + string(make([]byte, maxName+maxHead)), 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			there, here := claimant(t)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var rights []int
			for range c.fds {
				rights = append(rights, int(w.Fd()))
			}
			if _, _, err := there.WriteMsgUnix([]byte(c.message), unix.UnixRights(rights...), nil); err != nil {
				t.Fatal(err)
			}
			h, err := Receive(t.Context(), here)
			if (err == nil) != c.ok {
				t.Errorf("%+v, %v", h, err)
			}
			if err == nil {
				if h.From != "job" || string(h.Head) != "head" {
					t.Errorf("%+v", h)
				}
				unix.Close(h.FD)
			}
			w.Close()
			if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil { // waits while a descriptor of it is open
				t.Error(n, err)
			}
		})
	}
}

// One that says nothing is waited for no longer than ctx.
func TestClaimSilent(t *testing.T) {
	_, here := claimant(t)
	if !Trusted(here) {
		t.Error("this process does not trust itself")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Receive(ctx, here); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// Who has a claim is found by it, and others by theirs; what is connected to a claim is none.
func TestClaimants(t *testing.T) {
	const port = 2 // nobody's
	mine := func(name string, shared bool, want ...int) {
		t.Helper()
		if got := Claimants(port, name); !slices.Equal(got, want) || Shared(port, name) != shared {
			t.Errorf("%s: %v, not %v; shared: %v", name, got, want, !shared)
		}
	}
	mine("a", false)
	a, err := Claim(port, "a")
	if err != nil {
		t.Fatal(err)
	}
	mine("a", false, os.Getpid())
	mine("b", true)
	c, err := net.Dial(a.Addr().Network(), a.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a.Close()
	mine("b", false)
}
