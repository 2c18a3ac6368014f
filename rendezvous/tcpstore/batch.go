package tcpstore

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// A batch is what some connections have brought. It is read from all of them, then executed, then answered: served one after the other, each would find
// the processor's caches full of the kernel, which has just sent the reply to the one before (docs/performance.md, the store).
type batch struct {
	in    []byte // 2 × readSize for what reads bring
	used  int    // bytes of the parts, which are in it or were kept from earlier
	parts [mostParts]part
	n     int // of the parts
}

// A part is what one connection has brought, and what it is answered.
type part struct {
	c   *conn
	in  []byte // all that is unused of c's input
	out outbox
}

// mostParts is how many connections a batch has at most. With twice as many nothing is gained.
const mostParts = 32

// readSize is what one read may bring. A batch of more is executed, so that others have their turn.
const readSize = 64 << 10

// take takes c's input into the batch, in which each connection is once, and executes the batch when it is full.
func (l *loop) take(c *conn, in []byte) {
	b := &l.batch
	p := &b.parts[b.n]
	p.c, p.in = c, in
	b.n++
	b.used += len(in)
	if b.n == mostParts || b.used > readSize {
		l.answer()
	}
}

// read takes what has come on c.
func (l *loop) read(c *conn) error {
	b := l.batch.in[l.batch.used:][:readSize]
	n, err := receive(c.fd, b)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return nil
	case err != nil || n == 0:
		return errGone
	}
	if b = b[:n]; len(c.in) > 0 {
		if err := c.keep(append(c.in, b...)); err != nil {
			return err
		}
		b = c.in
	}
	l.take(c, b)
	return nil
}

// answer executes the batch and sends the replies.
func (l *loop) answer() {
	parts := l.batch.parts[:l.batch.n]
	for i := range parts {
		p := &parts[i]
		if p.c.fd < 0 { // dropped meanwhile
			continue
		}
		if err := l.execute(p); err != nil {
			l.drop(p.c, err)
		}
	}
	for i := range parts {
		p := &parts[i]
		if p.c.fd >= 0 {
			if err := l.emit(p.c, &p.out); err != nil {
				l.drop(p.c, err)
			}
		}
		p.out.reset()
		p.c, p.in = nil, nil
	}
	l.batch.n, l.batch.used = 0, 0
	l.counts.answered()
}

// execute executes the complete requests of a part and keeps the rest. What the replies need too much memory for is sent.
func (l *loop) execute(p *part) error {
	c, b := p.c, p.in
	for len(b) > 0 && len(c.out) == 0 {
		n, err := c.next(b, &l.req, &p.out)
		b = b[n:]
		if err != nil {
			return l.last(p, b, err)
		}
		if n == 0 { // the rest is to come
			break
		}
		if p.out.full() {
			if err := l.emit(c, &p.out); err != nil {
				return err
			}
		}
	}
	return c.keepRest(b)
}

// last answers what was asked before the request that ends the connection.
func (l *loop) last(p *part, rest []byte, err error) error {
	c := p.c
	if errors.Is(err, errForeign) {
		l.handOver(c, slices.Clone(rest))
		return nil
	}
	lost := l.emit(c, &p.out)
	var other *elsewhere
	if errors.As(err, &other) && lost == nil && len(c.out) == 0 {
		l.passOn(c, other.name, rest)
		return nil
	}
	if errors.Is(err, errBarred) {
		c.s.sayBarred(c.fd)
	}
	return err
}
