package tcpstore

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/muster-run/muster/rendezvous/store"
)

// A conn is one client's connection. All of it belongs to its loop, save that turn is read under the table's lock, which guards missed.
type conn struct {
	s    *Server
	loop *loop
	fd   int
	peer netip.AddrPort

	guest   bool      // it came to another server, which handed it over
	barred  bool      // it may call for another store, and nothing else
	opened  bool      // the first bytes told the dialect
	numbers numbering // of the dialect; nil on a legacy connection that has not yet told A from B
	begun   bool      // verb is the one of the request that scan is in
	verb    verb
	scan    scan
	in      []byte    // bytes that came and are not used up
	doubt   time.Time // when bytes that may be A's DELETE_KEY are taken for it; zero: they are not in

	waiter  store.Waiter
	waiting bool   // a WAIT or BARRIER was not answered yet
	turn    uint64 // counts waits, so that a release that is under way can be told to be stale
	watcher *store.Watcher
	missed  bool // a change of a watched key, for which there was no room: the connection is about to end

	out      []segment // replies that the socket did not take
	outBytes int       // memory that they hold beside the store's values
	paused   bool      // replies wait for the socket, or c was sent a turn's worth: it is not read from
	stalled  time.Time // when that began, or the socket last took something of out
}

// Errors that end a connection without being the client's fault.
var (
	errForeign = errors.New("the connection is not c10d's but the agents'")
	errMissing = errors.New("no such key")
)

// next executes the request at the start of b. It returns its size, or 0 when it is not complete.
func (c *conn) next(b []byte, r *request, o *outbox) (int, error) {
	if !c.opened {
		n, err := c.open(b)
		if c.opened {
			c.s.spoke(c)
		}
		if n > 0 || err != nil || !c.opened {
			return n, err
		}
	}
	if !c.begun {
		if c.waiting && c.mute() && b[0] != cancelInB {
			c.s.Store.Do(c.forget)
		}
		v, ok, err := c.verbOf(b)
		if !ok {
			return 0, err
		}
		c.verb, c.begun = v, true
	}
	if c.barred && (c.verb != ping && c.verb != check || len(b) > mostCall) {
		return 0, errBarred
	}
	if c.scan.need > len(b) {
		return 0, nil
	}
	done, err := measure(b, &forms[c.verb], c.s.lim, &c.scan)
	if !done {
		return 0, err
	}
	n := c.scan.pos
	r.cut(b[:n], c.verb)
	c.begun, c.scan = false, scan{}
	switch known, other := c.called(r, o); {
	case other != nil:
		return 0, other
	case c.barred && r.verb != ping:
		return n, errBarred
	case known:
		return n, nil
	}
	return n, c.act(r, o)
}

// open tells the dialect by the first bytes. A connection of 2.2 and later begins with the 5 bytes of hello, which it
// uses up. As the start of a legacy SET they would announce a key of a gigabyte, so there is no doubt. Only the
// numbers of verbs can begin a legacy connection, so the agents' magic, which begins with no such number, is free.
func (c *conn) open(b []byte) (int, error) {
	switch {
	case bytes.HasPrefix(b, hello):
		c.opened, c.numbers = true, numbersV
		return len(hello), nil
	case bytes.HasPrefix(hello, b):
		return 0, nil
	case c.s.Foreign != nil && bytes.HasPrefix(b, c.s.magic) && c.barred:
		return 0, errBarred
	case c.s.Foreign != nil && bytes.HasPrefix(b, c.s.magic):
		return 0, errForeign
	case c.s.Foreign != nil && bytes.HasPrefix(c.s.magic, b):
		return 0, nil
	}
	c.opened = true
	switch c.s.Legacy {
	case LegacyA:
		c.numbers = numbersA
	case LegacyB:
		c.numbers = numbersB
	case LegacyNone:
		return 0, fmt.Errorf("%w: it begins with %#x, not with VALIDATE", errFrame, b[0])
	}
	return 0, nil
}

// verbOf finds the verb of the request at the start of b; it is not ok when more bytes are needed to know.
func (c *conn) verbOf(b []byte) (v verb, ok bool, err error) {
	code := int(b[0])
	if c.numbers == nil {
		switch {
		case code < 7: // the same in both
			return numbersB[code], true, nil
		case code == 8:
			if ok, err := c.guess(b); !ok {
				return 0, false, err
			}
		default:
			c.numbers = numbersB
		}
	}
	if code >= len(c.numbers) {
		return 0, false, fmt.Errorf("%w: unknown command %#x", errFrame, code)
	}
	if v = c.numbers[code]; v == validate {
		return 0, false, fmt.Errorf("%w: VALIDATE a second time", errFrame)
	}
	return v, true, nil
}

// guessAfter is how long a client of 2.1 may take between APPEND's key and its value, which it sends in one call.
const guessAfter = 50 * time.Millisecond

// guess tells 1.13's DELETE_KEY, which ends after the key, from 2.1's APPEND, where a value follows.
func (c *conn) guess(b []byte) (bool, error) {
	s := c.scan
	done, err := measure(b, &forms[deleteKey], c.s.lim, &s)
	if !done {
		return false, err
	}
	now := time.Now()
	switch {
	case len(b) > s.pos:
		c.numbers = numbersB
	case c.doubt.IsZero():
		c.doubt = now.Add(guessAfter)
		c.loop.remind(c)
		return false, nil
	case now.Before(c.doubt):
		return false, nil
	default:
		c.numbers = numbersA
	}
	c.doubt = time.Time{}
	return true, nil
}

// act executes r while nobody else touches the table.
func (c *conn) act(r *request, o *outbox) error {
	c.loop.counts.ran(r.verb)
	var err error
	c.s.Store.Do(func(t *store.Table) {
		err = actions[r.verb](c, t, r, o)
	})
	if err != nil {
		return fmt.Errorf("%v: %w", r.verb, err)
	}
	return nil
}

// mute reports whether the dialect cannot cancel a wait. A client of 1.13 whose wait timed out just goes on, and a
// release that came later would be taken for the reply to something else: so the first byte that it sends cancels the wait.
func (c *conn) mute() bool { return c.numbers == nil || c.numbers[7] == watchKey }

// forget ends the pending wait without a byte.
func (c *conn) forget(t *store.Table) {
	t.Cancel(&c.waiter)
	c.waiting = false
	c.turn++
}

// settle ends the pending wait. When it was released and the news is still under way, the byte goes out now, before
// the reply to what the client asks next.
func (c *conn) settle(t *store.Table, o *outbox) {
	if c.waiting && !c.waiter.Waiting() {
		o.byte(0)
	}
	c.forget(t)
}

// begin makes the connection wait, or answers that there is nothing to wait for.
func (c *conn) begin(done bool, o *outbox) {
	if done {
		o.byte(0)
		return
	}
	c.waiting = true
}

// wake is called, with the table locked, when the wait's last key has come.
func (c *conn) wake() { c.loop.end(c) }

// leave takes the connection out of the table.
func (c *conn) leave() {
	c.s.Store.Do(func(t *store.Table) {
		t.Cancel(&c.waiter)
		if c.watcher != nil {
			t.Unwatch(c.watcher)
		}
	})
}
