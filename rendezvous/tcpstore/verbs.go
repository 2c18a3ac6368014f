package tcpstore

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/muster-run/muster/rendezvous/store"
)

// An action executes a request whole and appends the reply. An error ends the connection: c10d has no other.
type action func(c *conn, t *store.Table, r *request, o *outbox) error

// actions has one action for each verb save VALIDATE, which is only an opening.
var actions = [numVerbs]action{
	set:        doSet,
	compareSet: doCompareSet,
	get:        doGet,
	add:        doAdd,
	check:      doCheck,
	wait:       doWait,
	numKeys:    doNumKeys,
	deleteKey:  doDelete,
	appendKey:  doAppend,
	multiGet:   doMultiGet,
	multiSet:   doMultiSet,
	cancelWait: doCancelWait,
	ping:       doPing,
	queuePush:  doPush,
	queuePop:   doPop,
	queueLen:   doQueueLen,
	listKeys:   doListKeys,
	barrier:    doBarrier,
	watchKey:   doWatch,
}

func doSet(_ *conn, t *store.Table, r *request, _ *outbox) error { return t.Set(r.key, r.value) }

func doCompareSet(_ *conn, t *store.Table, r *request, o *outbox) error {
	now, err := t.CompareSet(r.key, r.value, r.other)
	if err == nil {
		o.bytes(now)
	}
	return err
}

// doGet answers a missing key with an empty value, as libuv does. Legacy servers have only closed the connection.
func doGet(c *conn, t *store.Table, r *request, o *outbox) error {
	v, present := t.Get(r.key)
	if !present && c.legacy() {
		return errMissing
	}
	o.bytes(v)
	return nil
}

// legacy reports whether the connection opened without the magic.
func (c *conn) legacy() bool { return len(c.numbers) != len(numbersV) }

func doAdd(_ *conn, t *store.Table, r *request, o *outbox) error {
	sum, err := t.Add(r.key, r.n)
	if err == nil {
		o.int(sum)
	}
	return err
}

func doCheck(_ *conn, t *store.Table, r *request, o *outbox) error {
	if t.HasAll(r.keys) {
		o.byte(0)
	} else {
		o.byte(1)
	}
	return nil
}

func doWait(c *conn, t *store.Table, r *request, o *outbox) error {
	c.settle(t, o)
	if c.waiter.Wake == nil {
		c.waiter.Wake = c.wake
	}
	done, err := t.Wait(&c.waiter, r.keys)
	if err == nil {
		c.begin(done, o)
	}
	return err
}

func doNumKeys(_ *conn, t *store.Table, _ *request, o *outbox) error {
	o.int(int64(t.Len()))
	return nil
}

func doDelete(_ *conn, t *store.Table, r *request, o *outbox) error {
	if t.Delete(r.key) {
		o.int(1)
	} else {
		o.int(0)
	}
	return nil
}

func doAppend(_ *conn, t *store.Table, r *request, _ *outbox) error { return t.Append(r.key, r.value) }

func doMultiGet(c *conn, t *store.Table, r *request, o *outbox) error {
	for _, k := range r.keys {
		v, present := t.Get(k)
		if !present && c.legacy() {
			return errMissing
		}
		o.bytes(v)
	}
	return nil
}

func doMultiSet(_ *conn, t *store.Table, r *request, _ *outbox) error {
	return t.MultiSet(r.keys, r.values)
}

// doCancelWait always answers 1, also when nothing is pending: the client counts on it to get back in step.
func doCancelWait(c *conn, t *store.Table, _ *request, o *outbox) error {
	c.settle(t, o)
	o.byte(1)
	return nil
}

func doPing(_ *conn, _ *store.Table, r *request, o *outbox) error {
	o.buf = binary.LittleEndian.AppendUint32(o.buf, r.nonce)
	return nil
}

func doPush(_ *conn, t *store.Table, r *request, _ *outbox) error { return t.Push(r.key, r.value) }

func doPop(_ *conn, t *store.Table, r *request, o *outbox) error {
	v, n := t.Pop(r.key)
	o.int(int64(n))
	if n > 0 {
		o.bytes(v)
	}
	return nil
}

func doQueueLen(_ *conn, t *store.Table, r *request, o *outbox) error {
	o.int(int64(t.QueueLen(r.key)))
	return nil
}

// maxListed bounds the reply to LIST_KEYS, in bytes, which costs memory that no budget knows of.
const maxListed = 64 << 20

func doListKeys(_ *conn, t *store.Table, _ *request, o *outbox) error {
	size := 8*t.Len() + t.NameBytes()
	if size > maxListed {
		return fmt.Errorf("the names of all %d keys need %d bytes, and no reply may list more than %d", t.Len(), size, maxListed)
	}
	o.buf = slices.Grow(o.buf, 8+size)
	o.int(int64(t.Len()))
	t.Keys(func(name string) { o.buf = append(appendInt(o.buf, int64(len(name))), name...) })
	o.long = true
	return nil
}

func doBarrier(c *conn, t *store.Table, r *request, o *outbox) error {
	c.settle(t, o)
	if c.waiter.Wake == nil {
		c.waiter.Wake = c.wake
	}
	done, err := t.Barrier(&c.waiter, r.key, r.n)
	if err == nil {
		c.begin(done, o)
	}
	return err
}

// doWatch answers 3; from then on the connection is told each change: its kind, the key, the old and the new value.
func doWatch(c *conn, t *store.Table, r *request, o *outbox) error {
	if c.watcher == nil {
		c.watcher = &store.Watcher{Tell: c.tell}
	}
	o.byte(3)
	return t.Watch(c.watcher, r.key)
}

// tell sends the loop a change of a watched key. Changes that it has not come to are as much in memory as those that a client has not read.
func (c *conn) tell(change store.Change, key string, old, now []byte) {
	if c.missed {
		return
	}
	size := 1 + 3*8 + len(key) + len(old) + len(now)
	if err := c.take(size + letterCost); err != nil {
		c.missed = true
		c.loop.post(letter{c: c, fault: fmt.Errorf("a change of a watched key: %w", err)})
		return
	}
	event := append(make([]byte, 0, size), byte(change))
	event = appendBytes(appendBytes(appendBytes(event, []byte(key)), old), now)
	c.loop.post(letter{c: c, event: event, cost: size + letterCost})
}

// An outbox collects replies, those to one connection behind those to another. Small values are copied. Large ones, and most once much was copied, go
// out from where the store keeps them, so that no reply needs much more memory than the store already uses.
type outbox struct {
	buf  []byte
	from int   // where the replies to the connection begin whose requests are executed
	long bool  // one of them took so long, for what was asked, that its turn is over
	refs []ref // of that connection
}

// A ref is a value that belongs into the bytes of an outbox at an offset.
type ref struct {
	at    int
	value []byte
}

const (
	copyBelow = 16 << 10 // values below this are copied: cheaper than a write of their own
	copyMost  = 64 << 10 // until this much was copied
	copySmall = 64       // values below this are copied always: a ref weighs as much
)

func (o *outbox) byte(b byte) { o.buf = append(o.buf, b) }

func (o *outbox) int(n int64) { o.buf = appendInt(o.buf, n) }

func (o *outbox) bytes(v []byte) {
	if len(v) < copySmall || len(v) < copyBelow && len(o.buf)-o.from < copyMost {
		o.buf = appendBytes(o.buf, v)
		return
	}
	o.int(int64(len(v)))
	o.refs = append(o.refs, ref{len(o.buf), v})
}

// full reports whether it is time to send the replies to the connection whose requests are executed.
func (o *outbox) full() bool { return o.long || len(o.buf)-o.from >= copyMost || len(o.refs) > 0 }

// cut takes them out.
func (o *outbox) cut() { o.buf, o.refs, o.long = o.buf[:o.from], nil, false }

// reset empties the outbox, and gives back memory that one large reply needed.
func (o *outbox) reset() {
	o.from = 0
	o.cut()
	if cap(o.buf) > 4*copyMost {
		o.buf = nil
	}
}
