package page

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// SocketName is the variable that names a worker's socket for beats.
const SocketName = "MUSTER_BEAT_SOCKET"

// SocketFile is where the worker with the page at path may send its beats, a line of text in a datagram, in place of writing the page.
func SocketFile(path string) string { return path + ".beat" }

// A Listener writes to a worker's page what it says by its socket.
type Listener struct {
	conn *net.UnixConn
	page *Writer
	done chan struct{} // closed when take has returned
}

// maxDatagram bounds what a datagram may say, in bytes.
const maxDatagram = 256

// Listen opens the socket of the worker with the page at path, in place of one that an agent before this one had. wrong is told of the
// first datagram that says nothing known.
func Listen(path string, wrong func(error)) (*Listener, error) {
	w, err := Open(path)
	if err != nil {
		return nil, err
	}
	file := SocketFile(path)
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("listen for beats: %w", err), w.Close())
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: file, Net: "unixgram"})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for beats: %w", err), w.Close())
	}
	l := &Listener{conn, w, make(chan struct{})}
	go l.take(wrong)
	return l, nil
}

// Close ends it. Nothing is written to the page when it has returned.
func (l *Listener) Close() error {
	err := l.conn.Close()
	<-l.done
	return errors.Join(err, l.page.Close())
}

// take writes beats until the end.
func (l *Listener) take(wrong func(error)) {
	defer close(l.done)
	var buf [maxDatagram + 1]byte
	for told := false; ; {
		n, _, err := l.conn.ReadFromUnix(buf[:])
		if err != nil {
			return
		}
		if err := l.beat(buf[:n]); err != nil && !told {
			told = true
			wrong(err)
		}
	}
}

// beat does what a datagram says.
func (l *Listener) beat(text []byte) error {
	words := strings.Fields(string(text))
	switch {
	case len(text) > maxDatagram:
		return fmt.Errorf("a beat of more than %d bytes: %.40q", maxDatagram, text)
	case len(words) == 1 && words[0] == "beat":
		return l.page.Beat()
	case len(words) == 1 && words[0] == "phase-end":
		return l.page.Phase("", 0)
	case len(words) == 2 && words[0] == "step":
		if n, err := strconv.ParseUint(words[1], 10, 62); err == nil {
			return l.page.Step(n)
		}
		if _, err := strconv.ParseFloat(words[1], 64); err == nil { // a step below zero, or half of one, is one all the same
			return l.page.Beat()
		}
	case (len(words) == 2 || len(words) == 3) && words[0] == "phase":
		if long, ok := length(words[2:]); ok {
			return l.page.Phase(words[1], long)
		}
	}
	return fmt.Errorf("%.80q is no beat: send step N, phase NAME [SECONDS], phase-end or beat", text)
}

// length is how long a phase takes at most; 0 if nothing says so.
func length(words []string) (long time.Duration, ok bool) {
	if len(words) == 0 {
		return 0, true
	}
	if n, err := strconv.ParseFloat(words[0], 64); err == nil {
		return time.Duration(n * float64(time.Second)), n >= 0 && n < 1e9
	}
	long, err := time.ParseDuration(words[0])
	return long, err == nil && long >= 0
}
