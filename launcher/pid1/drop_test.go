package pid1

import (
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// To peers the connections of an agent that died end by a reset where another one goes on, and else as those of the dead do.
func TestDrop(t *testing.T) {
	for goesOn, want := range map[bool]error{true: syscall.ECONNRESET, false: nil} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		old, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		peer, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		file, err := old.(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Dup(int(file.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		l := legacy{files: map[string]held{"peer/1": {fds: []int{fd}}}}
		l.drop("peer/", 0, goesOn)
		file.Close() // the next agent's
		old.Close()  // as with its process
		if _, err := io.Copy(io.Discard, peer); !errors.Is(err, want) {
			t.Errorf("another goes on: %v; to the peer it ends with %v", goesOn, err)
		}
		if len(l.files) > 0 {
			t.Errorf("it holds %v", l.files)
		}
	}
}

// However many connections there are, listeners are handed on.
func TestListenersFirst(t *testing.T) {
	names := []string{"store", "peer/2", "claim", "peer/1", "door"}
	slices.SortFunc(names, inherits)
	if !slices.Equal(names, []string{"claim", "door", "store", "peer/1", "peer/2"}) {
		t.Errorf("%q", names)
	}
}
