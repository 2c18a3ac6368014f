package tcpstore

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A loop serves its connections on one goroutine, with one epoll instance: it waits for those that are ready, reads
// what came, executes the complete requests, and writes the replies. A connection that is idle costs its conn and
// nothing else; a connection whose client does not read is not read from either.
type loop struct {
	s    *Server
	ep   int // epoll
	bell int // eventfd, written to when mail comes while the loop sleeps

	mu     sync.Mutex
	mail   []letter
	over   []ended // as mail, but to many at once
	asleep bool
	told   [numVerbs]tally // what was counted until the last pass

	room   []ended // for over, while what was in it is told
	conns  []*conn // by file descriptor
	doubts []*conn // whose bytes may be a whole request of 1.13, in the order of their time
	slow   []*conn // that are paused
	looked time.Time
	batch  batch
	req    request
	counts tallies
	stop   bool
	watch  lookout
	alone  bool          // Go has one processor: a loop that looks on would keep its poller of the network from it
	busy   bool          // several were ready at once when it slept last: others may be by now
	done   chan struct{} // closed when run has returned
}

// A letter is news for a loop from another goroutine.
type letter struct {
	c     *conn
	adopt bool   // the connection is new
	head  []byte // what was read of a new one
	event []byte // of a watched key
	cost  int    // of event, to the budget
	fault error  // the connection has to end
	leave bool   // the connection has to make room
	stop  bool   // end, no connection given
}

// An ended wait is news, too, of which a key brings as many at once as there are ranks.
type ended struct {
	c    *conn
	turn uint64
}

// mostRoom bounds for how many of them each of a loop's two lists is kept.
const mostRoom = 32 << 10

// letterCost is what a letter with an event weighs beside the event.
const letterCost = 128

// mostEvents bounds the bytes of changes that a client has not read.
const mostEvents = 16 << 20

// turnSize is how much one connection is sent before others have their turn.
const turnSize = 1 << 20

func newLoop(s *Server) (*loop, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	l := &loop{s: s, ep: ep, bell: bell, batch: batch{in: make([]byte, 2*readSize)}, done: make(chan struct{}), counts: tallies{born: time.Now()}, alone: runtime.GOMAXPROCS(0) == 1}
	if err := l.control(unix.EPOLL_CTL_ADD, bell, unix.EPOLLIN); err != nil {
		l.closeFiles()
		return nil, err
	}
	return l, nil
}

func (l *loop) closeFiles() {
	unix.Close(l.ep)
	unix.Close(l.bell)
}

func (l *loop) control(op, fd int, events uint32) error {
	return unix.EpollCtl(l.ep, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// post gives the loop a letter. Neither it nor end ever block, so that whoever changes a key is not held up by those who wait for it.
func (l *loop) post(m letter) {
	l.mu.Lock()
	l.mail = append(l.mail, m)
	l.wake()
}

// end tells the loop that the wait of one of its connections is over. It is called with the table locked.
func (l *loop) end(c *conn) {
	l.mu.Lock()
	l.over = append(l.over, ended{c, c.turn})
	l.wake()
}

// wake is called with mu held, which it gives back, when there is news.
func (l *loop) wake() {
	ring := l.asleep
	l.asleep = false
	l.mu.Unlock()
	if ring {
		one := [8]byte{1}
		_, _ = unix.Write(l.bell, one[:]) // cannot fail: the counter is 64 bits wide
	}
}

func (l *loop) run() {
	defer close(l.done)
	defer l.closeFiles()
	events := make([]unix.EpollEvent, 256)
	for !l.stop {
		some := events[:l.sleep(events)]
		l.counts.begin()
		for _, e := range some {
			l.ready(int(e.Fd), e.Events)
		}
		l.answer()
		l.readMail()
		l.tick()
		l.answer()
	}
	for _, c := range l.conns {
		if c != nil {
			l.drop(c, nil)
		}
	}
}

// sleep waits until something is ready and returns how much.
func (l *loop) sleep(events []unix.EpollEvent) int {
	if l.busy { // it never sleeps, but lets others run
		if n, err := poll(l.ep, events); n > 0 && err == nil {
			runtime.Gosched()
			return n
		}
	}
	if !l.alone && l.watch.worth() {
		if n := l.look(events); n > 0 {
			runtime.Gosched()
			return n
		}
	}
	for {
		fell := time.Now()
		n, err := unix.EpollWait(l.ep, events, l.patience())
		l.mu.Lock()
		l.asleep = false
		l.mu.Unlock()
		if err == nil {
			l.watch.woken(time.Since(fell))
			l.busy = n > 1
			return n
		}
		if err != unix.EINTR {
			panic(fmt.Sprintf("tcpstore: epoll_wait: %v", err)) // a bad descriptor: our own mistake
		}
	}
}

// look returns how much is ready as soon as something is; 0: nothing was for a lull, or mail came.
func (l *loop) look(events []unix.EpollEvent) int {
	for since := time.Now(); time.Since(since) < lull; {
		if n, err := poll(l.ep, events); n > 0 && err == nil {
			l.watch.seen()
			l.busy = n > 1
			return n
		}
		if l.mailed() {
			return 0
		}
	}
	l.watch.vain()
	return 0
}

func (l *loop) mailed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.news()
}

// news reports whether other goroutines asked for anything. It is called with mu held.
func (l *loop) news() bool { return len(l.mail) > 0 || len(l.over) > 0 }

// patience returns for how many milliseconds the loop may sleep; -1 is without end.
func (l *loop) patience() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.show(&l.told)
	switch {
	case l.news():
		return 0
	case len(l.doubts) > 0:
		l.asleep = true
		return int(max(0, time.Until(l.doubts[0].doubt))/time.Millisecond) + 1
	case len(l.slow) > 0:
		l.asleep = true
		return 1000
	}
	l.asleep = true
	return -1
}

// ready serves one file descriptor.
func (l *loop) ready(fd int, events uint32) {
	if fd == l.bell {
		var b [8]byte
		_, _ = unix.Read(fd, b[:])
		return
	}
	c := l.conns[fd]
	if c == nil { // dropped earlier in this round
		return
	}
	var err error
	switch {
	case events&unix.EPOLLOUT != 0:
		err = l.resume(c)
	case !c.paused:
		err = l.read(c)
	case events&(unix.EPOLLHUP|unix.EPOLLERR) != 0:
		err = errGone
	}
	if err != nil {
		l.drop(c, err)
	}
}

// errGone ends a connection that the client has left.
var errGone = errors.New("the client has gone")

// send writes b to c, or as much as the socket takes in a turn, and queues the rest. lasting says that b will not change.
func (l *loop) send(c *conn, b []byte, lasting bool) error {
	rest := b
	if len(c.out) == 0 && len(b) > 0 {
		n, err := write(c.fd, b[:min(len(b), turnSize)])
		if err != nil {
			return err
		}
		rest = b[n:]
	}
	if len(rest) == 0 {
		return nil
	}
	return l.queue(c, rest, b, lasting)
}

// queue keeps b, the unsent end of whole, until the socket takes it. Until then nothing is read from c.
func (l *loop) queue(c *conn, b, whole []byte, lasting bool) error {
	if err := l.pause(c); err != nil {
		return err
	}
	return c.queue(b, whole, lasting)
}

// pause leaves c alone until the next round at least, and until its socket takes bytes: then c is resumed.
func (l *loop) pause(c *conn) error {
	if c.paused {
		return nil
	}
	if err := l.control(unix.EPOLL_CTL_MOD, c.fd, unix.EPOLLOUT); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	c.paused, c.stalled = true, time.Now()
	l.slow = append(l.slow, c)
	return nil
}

// write is a write that takes what the socket takes now.
func write(fd int, b []byte) (int, error) {
	sent := 0
	for sent < len(b) {
		n, err := send(fd, b[sent:])
		switch err {
		case nil:
			sent += n
		case unix.EINTR:
		case unix.EAGAIN:
			return sent, nil
		default:
			return sent, errGone
		}
	}
	return sent, nil
}

// resume goes on with a connection whose socket takes bytes again: first what is queued, then what had come.
func (l *loop) resume(c *conn) error {
	for turn := turnSize; len(c.out) > 0; {
		some := c.out[0].rest
		n, err := write(c.fd, some[:min(len(some), turn)])
		if err != nil {
			return err
		}
		if n > 0 {
			c.stalled = time.Now()
		}
		if turn -= n; !c.sent(n) || turn == 0 {
			return nil
		}
	}
	l.slow = slices.DeleteFunc(l.slow, func(x *conn) bool { return x == c })
	if err := l.control(unix.EPOLL_CTL_MOD, c.fd, unix.EPOLLIN); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	c.paused = false
	l.take(c, c.in)
	return nil
}

// readMail does what other goroutines asked for.
func (l *loop) readMail() {
	l.mu.Lock()
	mail, over := l.mail, l.over
	l.mail, l.over = nil, l.room[:0]
	l.counts.show(&l.told)
	l.mu.Unlock()
	for _, m := range mail {
		_ = m.c.take(-m.cost)
		switch {
		case m.stop:
			l.stop = true
		case m.adopt:
			l.adopt(m.c, m.head)
		case m.c.fd < 0: // dropped meanwhile
		case m.leave:
			l.drop(m.c, errCrowded)
		case m.fault != nil:
			l.drop(m.c, m.fault)
		case m.c.outBytes > mostEvents:
			l.drop(m.c, errors.New("its client reads the changes of watched keys too slowly"))
		default:
			if err := l.send(m.c, m.event, false); err != nil {
				l.drop(m.c, err)
			}
		}
	}
	l.releaseAll(over) // who watches a key hears of it before who waits for it
}

// releaseAll tells clients that their waits are over, and keeps the list's memory.
func (l *loop) releaseAll(over []ended) {
	for _, e := range over {
		if err := l.release(e); err != nil {
			l.drop(e.c, err)
		}
	}
	clear(over)
	if l.room = over; cap(over) > mostRoom {
		l.room = nil
	}
}

var released = []byte{0}

// release tells a client that its wait is over, unless the client or the wait has gone meanwhile.
func (l *loop) release(e ended) error {
	if e.c.fd < 0 || !e.c.waiting || e.c.turn != e.turn {
		return nil
	}
	e.c.waiting = false
	return l.send(e.c, released, false)
}

func (l *loop) adopt(c *conn, head []byte) {
	for len(l.conns) <= c.fd {
		l.conns = append(l.conns, nil)
	}
	l.conns[c.fd] = c
	err := l.control(unix.EPOLL_CTL_ADD, c.fd, unix.EPOLLIN)
	if err != nil {
		err = fmt.Errorf("epoll: %w", err)
	} else {
		err = c.keep(head)
	}
	if err != nil {
		l.drop(c, err)
		return
	}
	l.take(c, c.in)
}

// remind makes the loop look at c again when its doubt is over.
func (l *loop) remind(c *conn) { l.doubts = append(l.doubts, c) }

// tick looks at those whose time has come: doubts, and clients that do not read.
func (l *loop) tick() {
	if len(l.doubts) == 0 && len(l.slow) == 0 {
		return
	}
	now := time.Now()
	for len(l.doubts) > 0 && !now.Before(l.doubts[0].doubt) {
		c := l.doubts[0]
		l.doubts = l.doubts[1:]
		if c.fd < 0 || c.doubt.IsZero() || c.paused {
			continue
		}
		l.take(c, c.in)
	}
	if now.Sub(l.looked) < time.Second {
		return
	}
	l.looked = now
	for _, c := range slices.Clone(l.slow) {
		if now.Sub(c.stalled) > l.s.StallTimeout {
			l.drop(c, fmt.Errorf("its client read nothing for %v", l.s.StallTimeout))
		}
	}
}

// drop closes a connection and forgets it. err is why; nil when the server ends.
func (l *loop) drop(c *conn, err error) {
	c.leave()
	l.forget(c)
	_ = l.control(unix.EPOLL_CTL_DEL, c.fd, 0) // which close does not do for a connection that another process has, too
	unix.Close(c.fd)
	l.s.gone(c, err)
	c.fd = -1
}

// forget removes a connection from the loop's books.
func (l *loop) forget(c *conn) {
	l.conns[c.fd] = nil
	l.doubts = slices.DeleteFunc(l.doubts, func(x *conn) bool { return x == c })
	l.slow = slices.DeleteFunc(l.slow, func(x *conn) bool { return x == c })
	c.keepNothing()
}

// handOver gives the connection to those whose magic it opened with.
func (l *loop) handOver(c *conn, head []byte) {
	if other := l.letGo(c, head); other != nil {
		l.s.Foreign(other)
	}
}

// letGo ends the loop's part in a connection, of which head was read; nil: and the connection with it.
func (l *loop) letGo(c *conn, head []byte) net.Conn {
	_ = l.control(unix.EPOLL_CTL_DEL, c.fd, 0)
	l.forget(c)
	conn, err := netConn(c.fd, head)
	l.s.gone(c, err)
	c.fd = -1
	if err != nil {
		return nil
	}
	return conn
}
