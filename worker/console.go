package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	ossignal "os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	queueSize  = 2 << 20               // of one stream, in bytes
	bufferSize = readSize + readSize/4 // what was read, and prefixes

	// A stream whose queue is full waits for the console, so that a worker that is faster than its reader is slowed down and
	// nothing is lost. What it may wait is a credit: it grows with what the console takes, as if that had come at the slowest
	// rate that we still call keeping up, 6.4 MB/s. A console that stands still is waited for once, for the whole credit; one
	// that hiccups loses nothing.
	credit    = 500 * time.Millisecond
	perSecond = 6400 << 10 // bytes

	flushTime = 2 * time.Second  // at the end, for a console that does not move
	flushMax  = 10 * time.Second // and for one that does

	barOnTerminal = time.Second     // how often a progress bar is shown to somebody who looks at it
	barInLog      = 5 * time.Second // and to somebody who reads it later
)

// A Console is our standard output and error with many writers, of whom none ever waits long: who reads slowly, or not at
// all, loses lines, the oldest first, and is told how many. It lives as long as the agent.
type Console struct {
	out, err *sink
}

// NewConsole starts carrying to stdout and stderr, which may be the same file. Nothing else should write to them.
func NewConsole(stdout, stderr *os.File) *Console {
	// A write to a closed pipe at descriptor 1 or 2 is Go's one deadly error, unless somebody wants the signal.
	ossignal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	c := &Console{out: newSink(stdout, barEvery(stdout))}
	c.err = c.out
	if !same(stdout, stderr) { // lines of two writers to one pipe would mix
		c.err = newSink(stderr, barEvery(stderr))
	}
	return c
}

// Stdout returns a writer for lines of our own among the workers'. Each Write should be whole lines.
func (c *Console) Stdout() io.Writer { return lines{c.out.newQueue("")} }

// Stderr is Stdout for standard error.
func (c *Console) Stderr() io.Writer { return lines{c.err.newQueue("")} }

// Close delivers what waits and ends. A console that stands still, or ctx, ends it earlier; the error says how many lines
// were lost in all. Nothing may be written any more.
func (c *Console) Close(ctx context.Context) error {
	err := c.out.close(ctx)
	if c.err != c.out {
		err = errors.Join(err, c.err.close(ctx))
	}
	return err
}

type lines struct{ q *queue }

func (l lines) Write(b []byte) (int, error) {
	l.q.put(bytes.Clone(b))
	return len(b), nil
}

func same(a, b *os.File) bool {
	x, errX := a.Stat()
	y, errY := b.Stat()
	return errX == nil && errY == nil && os.SameFile(x, y)
}

func barEvery(f *os.File) time.Duration {
	tty := false
	if raw, err := f.SyscallConn(); err == nil { // Fd would make the descriptor blocking
		_ = raw.Control(func(fd uintptr) {
			_, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
			tty = err == nil
		})
	}
	if tty {
		return barOnTerminal
	}
	return barInLog
}

// A sink is one file and the streams that wait for it.
type sink struct {
	to       io.Writer
	barEvery time.Duration

	mu      sync.Mutex
	turns   []*queue  // those with something to write, in the order of their turns
	free    [][]byte  // buffers to be used again
	moved   time.Time // end of the last write
	dead    error     // the reader went away
	lost    int       // lines
	closing bool

	work chan struct{} // something is there to do
	done chan struct{} // closed when run has returned
}

// A queue is one stream at a sink: chunks of whole lines, bounded.
type queue struct {
	sink   *sink
	prefix string

	// of sink.mu:
	chunks  [][]byte
	size    int
	queued  bool // in sink.turns
	writing bool
	credit  time.Duration // how long its worker may still be held up
	dropped int           // lines since the last that was written
	moved   chan struct{} // one of ours has been written
}

func newSink(to io.Writer, barEvery time.Duration) *sink {
	s := &sink{to: to, barEvery: barEvery, work: make(chan struct{}, 1), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *sink) newQueue(prefix string) *queue {
	return &queue{sink: s, prefix: prefix, moved: make(chan struct{}, 1), credit: credit}
}

// put takes b, which is whole lines, and returns a buffer for the next.
func (q *queue) put(b []byte) []byte {
	s := q.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	q.wait(len(b))
	if s.dead != nil || s.closing {
		s.lost += bytes.Count(b, newline)
		return b
	}
	q.drop(len(b))
	q.line()
	q.size += len(b)
	if n := len(q.chunks); n > 0 && len(q.chunks[n-1])+len(b) <= readSize {
		q.chunks[n-1] = append(q.chunks[n-1], b...) // many small ones make one write
		return b
	}
	q.chunks = append(q.chunks, b)
	return s.buffer()
}

var newline = []byte{'\n'}

// line lets q stand in line for its turn, if it does not yet.
func (q *queue) line() {
	if !q.queued && !q.writing {
		q.queued = true
		q.sink.turns = append(q.sink.turns, q)
		poke(q.sink.work)
	}
}

// wait gives the console time to make room for n bytes, as far as q's credit goes. The lock is let go meanwhile.
func (q *queue) wait(n int) {
	s := q.sink
	for q.size > 0 && q.size+n > queueSize && q.credit > 0 && s.dead == nil {
		timer := time.NewTimer(q.credit)
		began := time.Now()
		s.mu.Unlock()
		select {
		case <-q.moved:
		case <-timer.C:
		}
		s.mu.Lock()
		timer.Stop()
		q.credit -= time.Since(began)
	}
}

// drop makes room for n bytes by forgetting the oldest lines.
func (q *queue) drop(n int) {
	for len(q.chunks) > 0 && q.size+n > queueSize {
		b := q.chunks[0]
		lines := bytes.Count(b, newline)
		q.chunks = q.chunks[1:]
		q.size -= len(b)
		q.dropped += lines
		q.sink.lost += lines
		q.sink.recycle(b)
	}
}

// buffer and recycle keep some buffers from the garbage collector.
func (s *sink) buffer() []byte {
	if n := len(s.free); n > 0 {
		b := s.free[n-1]
		s.free = s.free[:n-1]
		return b
	}
	return make([]byte, 0, bufferSize)
}

func (s *sink) recycle(b []byte) {
	if len(s.free) < 16 && cap(b) >= bufferSize && cap(b) <= 2*bufferSize {
		s.free = append(s.free, b[:0])
	}
}

// run writes, one chunk of one queue after the other, until the sink is closed and empty.
func (s *sink) run() {
	defer close(s.done)
	for {
		q, chunk, over := s.next()
		if over {
			return
		}
		if q == nil {
			<-s.work
			continue
		}
		_, err := s.to.Write(chunk)
		s.wrote(q, chunk, err)
	}
}

// next takes the oldest chunk of the queue whose turn it is, after word of what was dropped before it.
func (s *sink) next() (q *queue, chunk []byte, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.turns) == 0 {
		return nil, nil, s.closing
	}
	q, s.turns = s.turns[0], s.turns[1:]
	q.queued, q.writing = false, true
	if q.dropped > 0 {
		note := fmt.Appendf(s.buffer(), "%s[muster: %d lines dropped here, the console did not keep up]\n", q.prefix, q.dropped)
		q.dropped = 0
		return q, note, false
	}
	chunk, q.chunks = q.chunks[0], q.chunks[1:]
	q.size -= len(chunk)
	return q, chunk, false
}

// wrote takes note of a write and lets q wait for its next turn.
func (s *sink) wrote(q *queue, chunk []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = time.Now()
	q.writing = false
	q.credit = min(credit, q.credit+time.Duration(len(chunk))*time.Second/perSecond)
	if err != nil {
		s.lost += bytes.Count(chunk, newline) // about: part of it may have got through
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EAGAIN) {
			s.dead = err
		}
	}
	if s.dead != nil {
		s.discard()
		q.empty()
	}
	s.recycle(chunk)
	if len(q.chunks) > 0 {
		q.line()
	}
	poke(q.moved)
}

// discard gives up everything that waits.
func (s *sink) discard() {
	for _, q := range s.turns {
		q.empty()
		q.queued = false
		poke(q.moved)
	}
	s.turns = nil
}

func (q *queue) empty() {
	for _, b := range q.chunks {
		q.sink.lost += bytes.Count(b, newline)
	}
	q.chunks, q.size = nil, 0
}

// flush returns when everything put has been written, or the console stands still.
func (q *queue) flush() {
	s := q.sink
	end := time.Now().Add(flushMax)
	s.mu.Lock()
	defer s.mu.Unlock()
	from := time.Now()
	for len(q.chunks) > 0 || q.writing {
		if s.moved.After(from) {
			from = s.moved
		}
		left := min(time.Until(from.Add(flushTime)), time.Until(end))
		if left <= 0 {
			return
		}
		s.mu.Unlock()
		select {
		case <-q.moved:
		case <-time.After(left):
		}
		s.mu.Lock()
	}
}

func (s *sink) close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	poke(s.work)
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	select {
	case <-s.done:
	case <-ctx.Done(): // run hangs in a write that nobody can end
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost > 0 {
		return fmt.Errorf("console: %d lines were lost", s.lost)
	}
	return nil
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
