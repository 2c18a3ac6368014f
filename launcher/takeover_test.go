package launcher

import (
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/launcher/pid1"
)

// An heir is the first process of an agent that takes over.
type heir struct {
	simFirst
	old *pid1.Legacy
}

func (h *heir) Legacy() *pid1.Legacy    { return h.old }
func (h *heir) Life() int               { return 1 }
func (*heir) DropOld(name string) error { return nil }

// To peers the connections of the agent that died end by a reset: this node goes on, and has workers.
func TestLetGo(t *testing.T) {
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
	held, err := old.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	old.Close() // as with its process
	Config{First: &heir{old: &pid1.Legacy{Files: map[string]*os.File{heldPeers + "1": held}}}}.letGo()
	if _, err := io.Copy(io.Discard, peer); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("to the peer it ends with %v", err)
	}
}

// An agent that takes over gives others up when the one before it would have, and leaves them a moment at least.
func TestAgain(t *testing.T) {
	for _, c := range []struct {
		ago, timeout, want time.Duration // since others were heard; 0: nobody was
	}{
		{0, 5 * time.Second, againTime}, {0, time.Minute, time.Minute}, {time.Second, time.Minute, 59 * time.Second}, {59 * time.Second, time.Minute, leastAgain},
		{time.Hour, 10 * time.Second, leastAgain}, {-time.Hour, time.Minute, time.Minute},
	} {
		blobs := map[string][]byte{}
		if c.ago != 0 {
			blobs[keptHeard] = []byte(strconv.FormatInt(clock()-int64(c.ago), 10))
		}
		got := Config{First: &heir{old: &pid1.Legacy{Blobs: blobs}}}.again(c.timeout)
		if got > c.want || got < c.want-100*time.Millisecond {
			t.Errorf("heard %v ago, with %v: %v, want %v", c.ago, c.timeout, got, c.want)
		}
	}
}
