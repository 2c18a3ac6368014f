package tcpstore

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/muster-run/muster/crowd"
)

// A segment is a part of a reply that waits for its socket.
type segment struct {
	rest  []byte
	value []byte // the store's value that rest is the end of; nil: rest is the segment's own memory
}

const segmentCost = 64

// A budget bounds what unfinished requests and unread replies hold in memory, over all connections.
type budget struct {
	most int64
	used atomic.Int64

	mu   sync.Mutex
	held map[*byte]*hold        // values in replies, by where they begin, each counted once
	part map[netip.Prefix]int64 // of used, what connections from one address hold, but for such values
}

// A hold is a value that replies refer to. The store may have dropped it meanwhile; while they hold it, it stays.
type hold struct{ refs, size int }

func (b *budget) take(n int) error {
	if used := b.used.Add(int64(n)); n > 0 && used > b.most {
		b.used.Add(int64(-n))
		return fmt.Errorf("unfinished requests and unread replies of all connections need more than %d bytes", b.most)
	}
	return nil
}

// takePart is take for a connection from an address. No address may have more than half of all, so that one alone cannot use it up.
func (b *budget) takePart(from netip.Prefix, n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > 0 && b.part[from]+int64(n) > b.most/2 {
		return fmt.Errorf("unfinished requests and unread replies of its address need more than %d bytes", b.most/2)
	}
	if err := b.take(n); err != nil {
		return err
	}
	if b.part == nil {
		b.part = map[netip.Prefix]int64{}
	}
	if b.part[from] += int64(n); b.part[from] == 0 {
		delete(b.part, from)
	}
	return nil
}

func (b *budget) hold(v []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := unsafe.SliceData(v)
	if h := b.held[at]; h != nil {
		h.refs++
		return nil
	}
	if err := b.take(cap(v)); err != nil {
		return err
	}
	if b.held == nil {
		b.held = map[*byte]*hold{}
	}
	b.held[at] = &hold{refs: 1, size: cap(v)}
	return nil
}

func (b *budget) release(v []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := unsafe.SliceData(v)
	h := b.held[at]
	if h.refs--; h.refs == 0 {
		delete(b.held, at)
		_ = b.take(-h.size)
	}
}

// freeInput is how much unfinished input each connection may have outside the budget, so that a stranger who uses
// up the budget cannot make small requests fail that happen to come in two pieces.
const freeInput = 4 << 10

func inputCost(b []byte) int { return max(0, cap(b)-freeInput) }

// take is the budget's, for this connection.
func (c *conn) take(n int) error {
	if n == 0 {
		return nil
	}
	return c.s.budget.takePart(crowd.Network(c.peer.Addr()), n)
}

// keep makes b, which grew out of c.in, the unused input of c.
func (c *conn) keep(b []byte) error {
	err := c.take(inputCost(b) - inputCost(c.in))
	if err == nil {
		c.in = b
	}
	return err
}

// keepRest keeps what is left of the input: the end of c.in, or of the loop's own buffer.
func (c *conn) keepRest(rest []byte) error {
	if len(rest) == 0 {
		return c.keep(nil)
	}
	if len(rest) <= cap(c.in) && cap(c.in) <= 2*len(rest)+1024 {
		c.in = c.in[:copy(c.in[:cap(c.in)], rest)]
		return nil
	}
	return c.keep(append([]byte(nil), rest...))
}

// queue keeps b, the unsent end of whole, until the socket takes it. Where it lasts, it is not copied.
func (c *conn) queue(b, whole []byte, lasting bool) error {
	cost := segmentCost
	if !lasting {
		cost += len(b)
	}
	if err := c.take(cost); err != nil {
		return err
	}
	c.outBytes += cost
	if !lasting {
		c.out = append(c.out, segment{rest: append(make([]byte, 0, len(b)), b...)})
		return nil
	}
	if err := c.s.budget.hold(whole); err != nil {
		return err
	}
	c.out = append(c.out, segment{rest: b, value: whole})
	return nil
}

// sent takes n bytes off the first segment and reports whether that was all of it.
func (c *conn) sent(n int) bool {
	s := &c.out[0]
	if s.rest = s.rest[n:]; len(s.rest) > 0 {
		return false
	}
	c.dequeue()
	return true
}

// dequeue removes the first segment. What the queue weighs is given back when it is empty.
func (c *conn) dequeue() {
	if v := c.out[0].value; v != nil {
		c.s.budget.release(v)
	}
	c.out[0] = segment{}
	if c.out = c.out[1:]; len(c.out) == 0 {
		c.freeQueue()
	}
}

func (c *conn) freeQueue() {
	_ = c.take(-c.outBytes)
	c.out, c.outBytes = nil, 0
}

// keepNothing gives back all memory of a connection that ends.
func (c *conn) keepNothing() {
	for len(c.out) > 0 {
		c.dequeue()
	}
	c.freeQueue()
	_ = c.keep(nil)
}
