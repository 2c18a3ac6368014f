package output

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	queueSize  = 8 << 20               // of one stream, in bytes
	bufferSize = readSize + readSize/4 // what was read, and prefixes

	flushTime = 2 * time.Second  // at the end, for a sink that does not move
	flushMax  = 10 * time.Second // and for one that does
)

// A pace says how slow a sink may be. A stream whose queue is full waits for a sink that keeps up, so that a worker
// which is faster than its reader is slowed down and nothing is lost; one that does not keep up is not waited for.
//
// It is an account: each write adds what it would have taken at the slowest rate, and takes away what it took, up to
// still. When nothing is left the sink has fallen behind, until it has saved the whole sum again. So a sink that
// comes to a standstill is waited for once; and not at all by those whose queues are not full by then, which takes
// a worker of less than queueSize / still.
type pace struct {
	still time.Duration // how long a sink may stand still and be waited for
	rate  int           // bytes per second
}

var (
	consolePace = pace{still: time.Second, rate: 6400 << 10}
	filePace    = pace{still: 5 * time.Second, rate: 1} // as long as the disk writes at all
)

// A sink is one file and the streams that wait for it.
type sink struct {
	to   io.Writer
	name string // of what did not keep up
	pace pace
	died func(error) // is told once that the reader went away

	mu      sync.Mutex
	turns   []*queue       // those with something to write, in the order of their turns
	free    [][]byte       // buffers to be used again
	credit  time.Duration  // the pace's account
	behind  bool           // it does not keep up
	began   time.Time      // of the write under way; zero: there is none
	moved   time.Time      // end of the last write
	dead    error          // the reader went away
	lost    int            // lines
	losses  *atomic.Uint64 // the same, of all sinks of this kind
	closing bool

	work chan struct{} // something is there to do
	done chan struct{} // closed when run has returned
}

// A queue is one stream at a sink: chunks of whole lines, bounded.
type queue struct {
	sink *sink
	note func(out []byte, text string) []byte // appends a line of our own
	// hasty: whoever puts does not wait, however well the sink keeps up.
	hasty bool

	// of sink.mu:
	chunks  [][]byte
	size    int
	queued  bool // in sink.turns
	writing bool
	dropped int           // lines since the last that was written
	moved   chan struct{} // one of ours has been written
}

func newSink(to io.Writer, name string, p pace, losses *atomic.Uint64) *sink {
	s := &sink{to: to, name: name, pace: p, losses: losses, credit: p.still, work: make(chan struct{}, 1), done: make(chan struct{})}
	s.died = func(error) {}
	go s.run()
	return s
}

func (s *sink) newQueue(note func([]byte, string) []byte) *queue {
	return &queue{sink: s, note: note, moved: make(chan struct{}, 1)}
}

// put takes b, which is whole lines, and returns a buffer for the next.
func (q *queue) put(b []byte) []byte {
	s := q.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	q.wait(len(b))
	if s.dead != nil || s.closing {
		s.lose(bytes.Count(b, newline))
		return b[:0]
	}
	q.drop(len(b))
	q.line()
	q.size += len(b)
	if n := len(q.chunks); n > 0 && len(q.chunks[n-1])+len(b) <= readSize {
		q.chunks[n-1] = append(q.chunks[n-1], b...) // many small ones make one write
		return b[:0]
	}
	q.chunks = append(q.chunks, b)
	return s.buffer()
}

// lose counts lines that nobody will see.
func (s *sink) lose(lines int) {
	s.lost += lines
	s.losses.Add(uint64(lines))
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

// wait gives the sink time to make room for n bytes, as long as it keeps up. The lock is let go meanwhile.
func (q *queue) wait(n int) {
	s := q.sink
	for !q.hasty && q.size > 0 && q.size+n > queueSize && s.dead == nil && !s.closing {
		left := s.patience()
		if left <= 0 {
			return
		}
		timer := time.NewTimer(left)
		s.mu.Unlock()
		select {
		case <-q.moved:
		case <-timer.C:
		}
		s.mu.Lock()
		timer.Stop()
	}
}

// patience returns how long the sink may still be waited for.
func (s *sink) patience() time.Duration {
	left := s.credit
	if !s.began.IsZero() {
		left -= time.Since(s.began)
	}
	if left <= 0 {
		s.behind = true
	}
	if s.behind {
		return 0
	}
	return left
}

// account takes note of a write of n bytes.
func (s *sink) account(n int) {
	s.moved = time.Now()
	s.credit += time.Duration(n)*time.Second/time.Duration(s.pace.rate) - s.moved.Sub(s.began)
	s.credit = min(max(s.credit, 0), s.pace.still)
	s.behind = s.credit == 0 || s.behind && s.credit < s.pace.still
	s.began = time.Time{}
}

// drop makes room for n bytes by forgetting the oldest lines.
func (q *queue) drop(n int) {
	for len(q.chunks) > 0 && q.size+n > queueSize {
		b := q.chunks[0]
		lines := bytes.Count(b, newline)
		q.chunks = q.chunks[1:]
		q.size -= len(b)
		q.dropped += lines
		q.sink.lose(lines)
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
		if s.wrote(q, chunk, err) {
			s.died(err)
		}
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
	s.began = time.Now()
	if q.dropped > 0 {
		chunk = q.note(s.buffer(), fmt.Sprintf("%d lines dropped here, the %s did not keep up", q.dropped, s.name))
		q.dropped = 0
		return q, chunk, false
	}
	chunk, q.chunks = q.chunks[0], q.chunks[1:]
	q.size -= len(chunk)
	return q, chunk, false
}

// wrote takes note of a write and lets q wait for its next turn. It reports whether the reader went away just now.
func (s *sink) wrote(q *queue, chunk []byte, err error) (died bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.account(len(chunk))
	q.writing = false
	if err != nil {
		s.lose(bytes.Count(chunk, newline)) // about: part of it may have got through
		died = s.dead == nil
		s.dead = err
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
	return died
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
		q.sink.lose(bytes.Count(b, newline))
	}
	q.chunks, q.size = nil, 0
}

// flush returns when everything put has been written, or the sink stands still.
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

// close delivers what waits and ends. A sink that stands still, or ctx, ends it earlier; the error says how many lines were
// lost in all.
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
		return fmt.Errorf("%s: %d lines were lost", s.name, s.lost)
	}
	return nil
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
