package tcpstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Who accepts and says nothing is asked in vain, for as long as that may take.
func TestAskSilent(t *testing.T) {
	t.Parallel()
	addr := fake(t, func(int, net.Conn) {})
	if owner, err := Ask(t.Context(), addr, "a", quiet+time.Second); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrNoAnswer) {
		t.Error(owner, err)
	}
}

// taken is a descriptor of its own of a connection's.
func taken(t *testing.T, c syscall.Conn) (fd int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(from uintptr) { fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// What else could be handed over is closed, and not served.
func TestAdoptNoConnection(t *testing.T) {
	s := &Server{}
	defer s.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for what, fd := range map[string]int{"one of a pair": pair[0], "a listener": taken(t, ln.(syscall.Conn)), "a file": taken(t, null)} {
		if err := s.Adopt(fd, nil); err == nil || !strings.Contains(err.Error(), "no connection of TCP's") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != unix.EBADF {
			t.Errorf("%s is still open: %v", what, err)
		}
	}
}

// A connection that the server closed, and that another process has still open, wakes nobody any more.
func TestDroppedIsForgotten(t *testing.T) {
	s := &Server{Loops: 1}
	defer s.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	kept, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if err := s.Adopt(taken(t, kept.(syscall.Conn)), []byte("garbage")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server closes it", func() bool { return s.Clients() == 0 })
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", s.loops[0].ep))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(info), "tfd:"); n != 1 { // the bell
		t.Errorf("%d descriptors are waited for:\n%s", n, info)
	}
}
