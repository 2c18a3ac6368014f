package page

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A worker says on its socket what it could write to its page; of what is no beat the first is told.
func TestListen(t *testing.T) {
	p, path := newPage(t)
	wrong := make(chan error, 9)
	l, err := Listen(path, func(err error) { wrong <- err })
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unixgram", SocketFile(path))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	beats := uint64(0)
	for _, c := range []struct {
		text  string
		step  uint64
		phase string
		until time.Duration // from now, about
		bad   bool
	}{
		{"step 5\n", 5, "", 0, false},
		{"beat", 5, "", 0, false},
		{"phase checkpoint 600", 5, "checkpoint", 10 * time.Minute, false},
		{" step  6 ", 6, "checkpoint", 10 * time.Minute, false},
		{"phase-end\n", 6, "", 0, false},
		{"phase éval 1.5m", 6, "éval", 90 * time.Second, false},
		{"phase x", 6, "x", 0, false},
		{"", 6, "x", 0, true},
		{"step -1", 6, "x", 0, false},
		{"step 99999999999999999999", 6, "x", 0, false},
		{"phase y -1", 6, "x", 0, true},
		{"phase y NaN", 6, "x", 0, true},
		{"phase y 1 2", 6, "x", 0, true},
		{"step 7" + strings.Repeat(" ", 300), 6, "x", 0, true},
		{"\x00\xff", 6, "x", 0, true},
		{"step 8\nstep 9", 6, "x", 0, true},
		{"step 10", 10, "x", 0, false},
	} {
		if !c.bad {
			beats++
		}
		if _, err := conn.Write([]byte(c.text)); err != nil {
			t.Fatal(err)
		}
		if c.bad { // what comes after it is taken
			continue
		}
		var s Snapshot
		if !soon(func() bool { s, err = p.Read(); return err == nil && s.Beats == beats }) {
			t.Fatalf("%q: %+v, %v; want %d beats", c.text, s, err, beats)
		}
		now, _ := monotonic()
		if left := s.Until - now; s.Steps != c.step || s.Phase != c.phase || (s.Until == 0) != (c.until == 0) || s.Until > 0 && (left > c.until || left < c.until-time.Minute) {
			t.Errorf("%q: %+v", c.text, s)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if len(wrong) != 1 || (<-wrong).Error() != `"" is no beat: send step N, phase NAME [SECONDS], phase-end or beat` {
		t.Errorf("told of %d", len(wrong))
	}
	if _, err := conn.Write([]byte("step 11")); err == nil {
		t.Error("somebody still listens")
	}
}

// Another agent listens in place of the one before, and the socket goes with the page.
func TestListenAgain(t *testing.T) {
	p, path := newPage(t)
	for range 2 {
		l, err := Listen(path, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	const script = `
import os, socket, sys
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"step 12", socket.MSG_DONTWAIT, sys.argv[1])
`
	if out, err := exec.Command(python(t, "debian"), "-c", script, SocketFile(path)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !soon(func() bool { s, err := p.Read(); return err == nil && s.Steps == 12 }) {
		t.Error("the step did not come")
	}
	p.Remove()
	if _, err := os.Stat(SocketFile(path)); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	if _, err := Listen(path, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a socket without a page: %v", err)
	}
}
