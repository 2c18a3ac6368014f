package output

import (
	"bytes"
	"errors"
	"os"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

const (
	quiet = 500 * time.Millisecond // without a byte from a pipe whose worker ended: what holds it open does not write

	readSize = 128 << 10 // half of it costs a quarter of the throughput in wake-ups
	maxLine  = 1 << 20

	// A worker that writes line by line would wake us for each. After a short read that followed closely upon another we
	// sleep for a moment and let the pipe gather some.
	shortRead = 16 << 10
	nap       = time.Millisecond
)

// A stream carries stdout or stderr of one worker: whole lines to the console, each with its prefix, and every byte to a file.
//
// A carriage return without newline is a progress bar that draws over itself. On a console of many ranks each of its states is
// a line of its own: the newest one every barEvery, and the last one in any case. (A bar that were held until its newline would
// look like a hang, and all of its states would drown everything else.)
type stream struct {
	in       source
	out      outlet // to the console
	form     view   // of the lines there
	barEvery time.Duration
	raw      bool
	file     *logFile // nil: none
	tail     *tail
	seen     scanner
	bytes    *atomic.Uint64 // of this stream of all workers
	lines    *atomic.Uint64

	partial []byte // of a line whose newline has not come
	batch   []byte // lines for the console, built up and handed over
	bar     bool   // partial is a progress bar
	shown   []byte // state of the bar on the console
	showAt  time.Time
	wake    time.Time // the read deadline

	last atomic.Int64  // when the last bytes came, Unix nanoseconds
	done chan struct{} // closed when carry has returned
}

// begin carries until the end of the stream, or close.
func (s *stream) begin() {
	s.done = make(chan struct{})
	s.last.Store(time.Now().UnixNano())
	go s.carry()
}

// settle returns at the end of the stream, or when nothing has come for a while: a grandchild may hold it open for ever.
func (s *stream) settle() {
	for {
		left := quiet - time.Since(time.Unix(0, s.last.Load()))
		if left <= 0 {
			return
		}
		select {
		case <-s.done:
			return
		case <-time.After(left):
		}
	}
}

// close ends the stream, whoever still holds the other end.
func (s *stream) close() {
	s.in.Close()
	<-s.done
	if s.file != nil {
		s.file.close()
	}
}

// carry reads until the end.
func (s *stream) carry() {
	defer close(s.done)
	buf := make([]byte, readSize)
	for {
		n, err := s.in.Read(buf)
		if n > 0 {
			before := s.last.Swap(time.Now().UnixNano())
			s.feed(buf[:n])
			if n < shortRead && s.last.Load()-before < 2*int64(nap) {
				time.Sleep(nap)
			}
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			s.showBar()
		case err != nil:
			s.finish()
			return
		}
		s.wakeForBar()
	}
}

// feed takes the next bytes.
func (s *stream) feed(b []byte) {
	s.bytes.Add(uint64(len(b)))
	s.lines.Add(uint64(bytes.Count(b, newline)))
	if s.file != nil {
		s.file.put(b)
	}
	switch {
	case s.raw:
		s.tail.add(b)
		s.batch = append(s.batch, b...)
	case s.bar || bytes.IndexByte(b, '\r') >= 0:
		s.slow(b)
	default:
		s.fast(b)
	}
	s.flush()
	s.seen.see(b)
}

// fast handles bytes without carriage return, a block of lines at a time.
func (s *stream) fast(b []byte) {
	if len(s.partial) > 0 {
		b = s.complete(b)
	}
	end := bytes.LastIndexByte(b, '\n') + 1
	s.tail.add(b[:end])
	s.batch = s.form.lines(s.batch, b[:end])
	s.hold(b[end:])
}

// complete ends the partial line with the first line of b, if it is there, and returns the rest.
func (s *stream) complete(b []byte) []byte {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return b
	}
	s.hold(b[:i])
	s.line(s.partial, whole)
	s.partial = s.partial[:0]
	return b[i+1:]
}

// slow handles bytes line by line, with progress bars among them.
func (s *stream) slow(b []byte) {
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			s.hold(b)
			break
		}
		s.hold(b[:i])
		s.endLine(whole)
		b = b[i+1:]
	}
	if s.bar = bytes.IndexByte(s.partial, '\r') >= 0; s.bar {
		// What was drawn over is not needed any more.
		s.partial = append(s.partial[:0], s.partial[max(0, stateStart(s.partial)-1):]...)
		if !time.Now().Before(s.showAt) {
			s.showBar()
		}
	}
}

// endLine takes the partial line as complete. Of a bar the last state is kept, unless it is on the console already, or it was
// wiped out with blanks.
func (s *stream) endLine(how ending) {
	text := lastState(s.partial)
	switch bar := stateStart(s.partial) > 0; {
	case !bar:
		s.line(text, how)
	case !blank(text) && !bytes.Equal(text, s.shown):
		s.line(text, whole)
	}
	s.partial, s.shown = s.partial[:0], s.shown[:0]
}

// showBar puts the state of the bar on the console.
func (s *stream) showBar() {
	text := lastState(s.partial)
	if blank(text) || bytes.Equal(text, s.shown) {
		return
	}
	s.line(text, whole)
	s.shown = append(s.shown[:0], text...)
	s.showAt = time.Now().Add(s.barEvery)
	s.flush()
}

// wakeForBar lets the next read end in time to show a bar that stands still.
func (s *stream) wakeForBar() {
	var at time.Time
	if text := lastState(s.partial); s.bar && !blank(text) && !bytes.Equal(text, s.shown) {
		at = s.showAt
	}
	if !at.Equal(s.wake) {
		s.wake = at
		_ = s.in.SetReadDeadline(at) // not a pipe: then the bar waits for its next byte
	}
}

// lastState returns what a terminal would show of a line: the text behind the last carriage return that is followed by any.
func lastState(line []byte) []byte {
	return bytes.TrimRight(line[stateStart(line):], "\r")
}

func stateStart(line []byte) int {
	return bytes.LastIndexByte(bytes.TrimRight(line, "\r"), '\r') + 1
}

func blank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

// hold appends to the partial line, and cuts it where it gets too long.
func (s *stream) hold(b []byte) {
	s.partial = append(s.partial, b...)
	for len(s.partial) > maxLine {
		n := maxLine
		for n > maxLine-utf8.UTFMax && !utf8.RuneStart(s.partial[n]) {
			n--
		}
		s.line(s.partial[:n], cut)
		s.partial = append(s.partial[:0], s.partial[n:]...)
	}
}

// line puts one line, without its newline, on its way.
func (s *stream) line(text []byte, how ending) {
	s.tail.add(text, newline)
	s.batch = s.form.line(s.batch, text, how)
}

func (s *stream) flush() {
	if len(s.batch) > 0 {
		s.batch = s.out.put(s.batch)[:0]
	}
}

// finish ends a last line that has no newline of its own.
func (s *stream) finish() {
	if len(s.partial) > 0 {
		s.endLine(open)
	}
	s.flush()
}
