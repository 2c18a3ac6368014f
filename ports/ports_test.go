package ports

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRange(t *testing.T) {
	low, high := Range()
	if low < 1024 || high > 65536 || high-low < 1000 {
		t.Errorf("%d to %d", low, high)
	}
}

// A held port is for one that binds it as PyTorch does, and for nobody else.
func TestHold(t *testing.T) {
	fd, port, err := Take(0, Hold)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if low, high := Range(); port < low || port >= high {
		t.Errorf("port %d is not in %d to %d", port, low, high)
	}
	ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)) // Go sets SO_REUSEADDR, as PyTorch does
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if who := Holder(port); !strings.Contains(who, fmt.Sprintf("pid %d,", os.Getpid())) {
		t.Errorf("port %d is held by%q", port, who)
	}
	if _, _, err := Take(port, Hold); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port on which somebody listens: %v", err)
	}
}

// Who holds a port is told in the words that people know it by, and no flag of it.
func TestNamed(t *testing.T) {
	for line, want := range map[string]string{
		"":                                      "",
		"/usr/sbin/nginx\x00":                   "nginx",
		"nginx: master process\x00\x00\x00":     "nginx: master process",
		"python3\x00-m\x00http.server\x0029400": "python3 -m http.server 29400",
		"/opt/redis/redis-server\x00*:29400\x00--requirepass\x00secret\x00": "redis-server *:29400",
		"sh\x00-c\x00curl -H 'Token: secret'":                               "sh",
		"\x1b[2J\x07evil":                                                   "[2Jevil",
		strings.Repeat("é", 100):                                            strings.Repeat("é", 80),
	} {
		if got := named(line); got != want {
			t.Errorf("%q is %q, want %q", line, got, want)
		}
	}
}

// A held port is for NCCL's watch, which all processes of a job bind side by side (ras/client_support.cc: SO_REUSEADDR and SO_REUSEPORT).
// They may come and go; to another job it is never free.
func TestHoldForMany(t *testing.T) {
	fd, port, err := Take(0, Hold)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	many := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) {
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
		}), err)
	}}
	for range 2 {
		var all []net.Listener
		for range 8 {
			ln, err := many.Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, ln)
		}
		if _, _, err := Take(port, Hold); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("while they listen: %v", err)
		}
		for _, ln := range all {
			ln.Close()
		}
		if _, err := Hold(port, false); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("when nobody listens: %v", err)
		}
	}
}
