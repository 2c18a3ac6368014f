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
