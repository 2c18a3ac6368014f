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
	n     int    // of the parts
	out   outbox // the replies to all of them
}

// A part is what one connection has brought.
type part struct {
	c        *conn
	in       []byte // what is unused of c's input
	from, to int    // its replies in the outbox
	over     bool   // c was sent a turn's worth, and may have asked for more
}

// mostParts is how many connections a batch has at most. With twice as many nothing is gained.
const mostParts = 32

// readSize is what one read may bring. A batch of more is executed, so that others have their turn.
const readSize = 64 << 10

// take takes c's input into the batch, in which each connection is once, and executes the batch when it is full. What was kept from earlier may be much,
// and nobody waits for it who came before.
func (l *loop) take(c *conn, in []byte) {
	b := &l.batch
	if len(in) > readSize {
		l.answer()
	}
	b.parts[b.n] = part{c: c, in: in}
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
	b := &l.batch
	for parts := b.parts[:b.n]; len(parts) > 0; {
		n := l.executeSome(parts)
		l.sendSome(parts[:n])
		parts = parts[n:]
	}
	b.n, b.used = 0, 0
	l.counts.answered()
}

// executeSome executes parts until there is much to send, and returns how many.
func (l *loop) executeSome(parts []part) int {
	out := &l.batch.out
	for i := range parts {
		p := &parts[i]
		if p.c.fd < 0 { // dropped meanwhile
			continue
		}
		out.from, p.from = len(out.buf), len(out.buf)
		if err := l.execute(p); err != nil {
			l.drop(p.c, err)
		}
		if p.to = len(out.buf); p.to >= copyMost {
			return i + 1
		}
	}
	return len(parts)
}

// sendSome sends the replies to parts, and keeps what is left of their input.
func (l *loop) sendSome(parts []part) {
	out := &l.batch.out
	for i := range parts {
		p := &parts[i]
		if p.c.fd >= 0 {
			err := l.send(p.c, out.buf[p.from:p.to], false)
			if err == nil {
				err = p.c.keepRest(p.in)
			}
			if err == nil && p.over {
				err = l.pause(p.c)
			}
			if err != nil {
				l.drop(p.c, err)
			}
		}
		*p = part{}
	}
	out.reset()
}

// execute executes the complete requests of a part, or as many as make a turn. Replies that need much memory are sent at once.
func (l *loop) execute(p *part) error {
	c, out, turn := p.c, &l.batch.out, turnSize
	for len(p.in) > 0 && !c.paused {
		n, err := c.next(p.in, &l.req, out)
		p.in = p.in[n:]
		if err != nil {
			return l.last(c, p.in, err)
		}
		if n == 0 { // the rest is to come
			return nil
		}
		if out.full() {
			long := out.long
			if err := l.emit(c, &turn); err != nil {
				return err
			}
			if long || turn <= 0 {
				p.over = true
				return nil
			}
		}
	}
	return nil
}

// last answers what was asked before the request that ends the connection.
func (l *loop) last(c *conn, rest []byte, err error) error {
	if errors.Is(err, errForeign) {
		l.handOver(c, slices.Clone(rest))
		return nil
	}
	turn := turnSize
	lost := l.emit(c, &turn)
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

// emit sends the replies to the part that is executed, and queues what is more than is left of c's turn.
func (l *loop) emit(c *conn, turn *int) error {
	out := &l.batch.out
	defer out.cut()
	from := out.from
	for _, r := range out.refs {
		if err := l.spend(c, out.buf[from:r.at], false, turn); err != nil {
			return err
		}
		if err := l.spend(c, r.value, true, turn); err != nil {
			return err
		}
		from = r.at
	}
	return l.spend(c, out.buf[from:], false, turn)
}

// spend sends b as a part of c's turn, or queues it when the turn is over.
func (l *loop) spend(c *conn, b []byte, lasting bool, turn *int) error {
	if *turn <= 0 && len(b) > 0 {
		return l.queue(c, b, b, lasting)
	}
	*turn -= len(b)
	return l.send(c, b, lasting)
}
