package tcpstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/muster-run/muster/rendezvous/store"
)

// A Client is a connection to a c10d store, kept up: when it breaks, the next call connects anew. Keys get the '/'
// in front that PyTorch's TCPStore class puts there, so that both see the same keys; the workers' counter "init/"
// has none there and gets none here.
//
// There is one connection, used by one call at a time; a call that waits for keys holds up the others, whose contexts
// count meanwhile. When a connection breaks under a request whose repetition does no harm, the client connects anew
// and repeats it. After that, false from Delete may mean that the first request removed the key. Other requests
// return an error that wraps store.ErrUncertain.
type Client struct {
	addr string
	opt  Options
	life context.Context // ends with Close
	end  context.CancelFunc

	turn  chan struct{} // holds one token: who has it may use what follows
	link  *link         // nil: not connected
	known *dialect      // the store's, when it was reached before
	buf   []byte
	nonce uint32
	quiet func() // tells that a greeting has had no answer for a while; nil: nobody is told
}

var (
	_ store.Store = (*Client)(nil)
	_ store.Queue = (*Client)(nil)
)

// Dial connects to the store at addr, host:port, finding out its dialect. It tries until it succeeds, ctx ends, or
// the address turns out to be somebody else's (ErrNotStore).
func Dial(ctx context.Context, addr string, opt Options) (*Client, error) {
	c := New(addr, opt)
	l, err := c.connect(ctx)
	if err != nil {
		c.end()
		return nil, fmt.Errorf("tcpstore: connect to the store at %s: %w", addr, err)
	}
	c.use(l)
	if opt.FirstOnly {
		c.opt = Options{Name: opt.Name}.withDefaults()
	}
	return c, nil
}

// New returns a client that does what Dial does when it is first asked for something.
func New(addr string, opt Options) *Client {
	c := &Client{addr: addr, opt: opt.withDefaults(), turn: make(chan struct{}, 1)}
	c.life, c.end = context.WithCancel(context.Background())
	c.turn <- struct{}{}
	return c
}

func (c *Client) use(l *link) {
	c.link, c.known = l, &l.dialect
}

// hangUp ends a connection that broke or fell out of step.
func (c *Client) hangUp() {
	if c.link != nil {
		c.link.Close()
		c.link = nil
	}
}

// Close ends the client. Calls under way end with store.ErrClosed.
func (c *Client) Close() error {
	c.end()
	<-c.turn
	defer func() { c.turn <- struct{}{} }()
	c.hangUp()
	return nil
}

// An asking is a request and how to read its reply.
type asking struct {
	request
	read func(l *link) error // nil: the verb has no reply
}

// errInStep is wrapped by the error of a wait that was cancelled and left its connection as good as before.
var errInStep = errors.New("cancelled")

// rejections is how often a fresh connection must be closed on one request before the request is to blame.
const rejections = 3

// call asks the store, connecting anew as often as needed.
func (c *Client) call(ctx context.Context, a asking) error {
	err := c.try(ctx, a)
	switch {
	case err == nil:
		return nil
	case c.life.Err() != nil && !errors.Is(err, store.ErrUncertain):
		return store.ErrClosed
	case errors.Is(err, ctx.Err()) && !errors.Is(err, store.ErrUncertain):
		return err
	}
	return fmt.Errorf("tcpstore: %v at the store at %s: %w", a.verb, c.addr, err)
}

func (c *Client) try(ctx context.Context, a asking) error {
	if err := a.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	select {
	case <-c.turn:
		defer func() { c.turn <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for rejected := 0; ; {
		again, err := c.once(ctx, a, &rejected)
		if !again {
			return err
		}
	}
}

// check refuses what every store would refuse by closing the connection.
func (r *request) check() error {
	if len(r.keys) > MaxCount {
		return fmt.Errorf("%d keys; %d is the most", len(r.keys), MaxCount)
	}
	for _, k := range append(r.keys, r.key) {
		if len(k) > MaxKey {
			return fmt.Errorf("a key of %d bytes; %d is the most, the leading '/' included", len(k), MaxKey)
		}
	}
	return nil
}

// once asks once, and reports whether to ask again.
func (c *Client) once(ctx context.Context, a asking, rejected *int) (again bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if c.link != nil && c.link.stale() {
		c.hangUp()
	}
	if c.link == nil {
		l, err := c.connect(ctx)
		if err != nil {
			return false, err
		}
		c.use(l)
	}
	if _, ok := c.link.numbers.number(a.verb); !ok {
		return false, ErrUnsupported
	}
	fresh, begun := !c.link.used, time.Now()
	err = c.exchange(ctx, a)
	if err == nil {
		c.link.used = true
		return false, nil
	}
	fresh = fresh && time.Since(begun) < time.Second // a wait that broke later had been accepted
	if errors.Is(err, errInStep) {
		return false, ctx.Err()
	}
	c.hangUp()
	return c.blame(ctx, a, err, fresh, rejected)
}

// blame decides what a broken exchange means: to ask again, or an error.
func (c *Client) blame(ctx context.Context, a asking, err error, fresh bool, rejected *int) (again bool, _ error) {
	if ended := ctx.Err(); ended != nil {
		err = ended
	}
	switch {
	case onceOnly[a.verb]:
		return false, fmt.Errorf("%w: %w", store.ErrUncertain, err)
	case ctx.Err() != nil || errors.Is(err, ErrNotStore):
		return false, err
	}
	if fresh && dropped(err) {
		*rejected++
	}
	if *rejected == rejections {
		return false, fmt.Errorf("%w: %w", ErrRejected, err)
	}
	return true, nil
}

// onceOnly are the verbs that must not be repeated when their fate is unknown.
var onceOnly = [numVerbs]bool{add: true, compareSet: true, appendKey: true, queuePush: true, queuePop: true, barrier: true}

// exchange sends the request in one write and reads the reply.
func (c *Client) exchange(ctx context.Context, a asking) error {
	if a.verb == wait || a.verb == barrier {
		return c.await(ctx, a)
	}
	err := c.link.during(ctx, c.opt.ReplyTimeout, func() error { return c.say(a) })
	if err == nil {
		err = c.answered(ctx)
	}
	if err == nil {
		err = c.link.during(ctx, c.opt.ReplyTimeout, func() error { return c.hear(a) })
	}
	return noAnswer(ctx, err)
}

// await is exchange for what is answered when others have done something, however late.
func (c *Client) await(ctx context.Context, a asking) error {
	err := c.link.during(ctx, 0, func() error {
		if err := c.say(a); err != nil {
			return err
		}
		return c.hear(a)
	})
	if err != nil && ctx.Err() != nil && c.life.Err() == nil {
		return c.cancelWait()
	}
	return noAnswer(ctx, err)
}

// answered waits for the beginning of a reply. That half of its time has gone by is told, for people wait, too.
func (c *Client) answered(ctx context.Context) error {
	half := c.opt.ReplyTimeout / 2
	begun := func() error { _, err := c.link.in.Peek(1); return err }
	err := c.link.during(ctx, half, begun)
	if ctx.Err() != nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if c.life.Err() == nil && c.opt.Progress != nil {
		c.opt.Progress(Attempt{Addr: c.addr, N: 1, Err: ErrNoAnswer, Elapsed: half})
	}
	return c.link.during(ctx, half, begun)
}

// say sends a request. A verb without reply is followed by one that has one: so the call returns when the store has it.
func (c *Client) say(a asking) error {
	c.buf = a.encode(c.buf[:0], c.link.numbers)
	if a.read == nil {
		c.nonce++
		q := request{verb: check}
		if c.link.pings {
			q = request{verb: ping, nonce: c.nonce}
		}
		c.buf = q.encode(c.buf, c.link.numbers)
	}
	_, err := c.link.Write(c.buf)
	if cap(c.buf) > readSize {
		c.buf = nil
	}
	return err
}

// hear reads its reply.
func (c *Client) hear(a asking) error {
	if a.read == nil {
		return c.link.confirmed(c.nonce)
	}
	return a.read(c.link)
}

func (l *link) confirmed(nonce uint32) error {
	if !l.pings {
		return l.expect(0)
	}
	var b [4]byte
	if _, err := io.ReadFull(l.in, b[:]); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(b[:]) != nonce {
		return fmt.Errorf("%w: it answers PING with %x", ErrNotStore, b)
	}
	return nil
}

func (l *link) expect(want byte) error {
	b, err := l.readByte()
	if err == nil && b != want {
		err = fmt.Errorf("%w: a reply of %#x", ErrNotStore, b)
	}
	return err
}

// cancelWait takes back a wait, whose context has ended. The release may cross the cancellation; then both bytes are there. A dialect without
// cancellation would later find the release in its stream, so its connection is given up.
func (c *Client) cancelWait() error {
	code, ok := c.link.numbers.number(cancelWait)
	if !ok {
		return errors.New("the wait cannot be cancelled")
	}
	_ = c.link.SetDeadline(time.Now().Add(c.opt.ReplyTimeout))
	if _, err := c.link.Write([]byte{code}); err != nil {
		return err
	}
	if err := c.answered(c.life); err != nil {
		return err
	}
	return c.link.during(c.life, c.opt.ReplyTimeout, c.link.cancelled)
}

// cancelled reads what a store answers to the end of a wait.
func (l *link) cancelled() error {
	b, err := l.readByte()
	if err == nil && b == 0 {
		b, err = l.readByte()
	}
	switch {
	case err != nil:
		return err
	case b != 1:
		return fmt.Errorf("%w: a reply of %#x", ErrNotStore, b)
	}
	return errInStep
}

// Prefix is what a client puts before a key, as PyTorch's do, and so what its name in the server's table begins with.
const Prefix = "/"

// initKey is the workers' counter, which PyTorch's clients write without the prefix.
const initKey = "init/"

func wireKey(key string) []byte {
	if key == initKey {
		return []byte(key)
	}
	return append([]byte(Prefix), key...)
}

func wireKeys(keys []string) [][]byte {
	w := make([][]byte, len(keys))
	for i, k := range keys {
		w[i] = wireKey(k)
	}
	return w
}

// Dialect names what the store speaks: "2.5+", "2.2", "2.1" or "1.13", after the PyTorch that introduced it.
func (c *Client) Dialect() string {
	<-c.turn
	defer func() { c.turn <- struct{}{} }()
	switch {
	case c.known == nil:
		return "unknown"
	case c.known.pings:
		return "2.5+"
	case len(c.known.numbers) == len(numbersV):
		return "2.2"
	case len(c.known.numbers) == len(numbersB):
		return "2.1"
	}
	return "1.13"
}

// Addr returns the address that the client was given.
func (c *Client) Addr() string { return c.addr }

// Set stores value under key.
func (c *Client) Set(ctx context.Context, key string, value []byte) error {
	return c.call(ctx, asking{request: request{verb: set, key: wireKey(key), value: value}})
}

// Get waits until key is present and returns its value.
func (c *Client) Get(ctx context.Context, key string) ([]byte, error) {
	for {
		if err := c.Wait(ctx, key); err != nil {
			return nil, err
		}
		value, err := c.getNow(ctx, key)
		if err != nil || len(value) > 0 {
			return value, err
		}
		// Empty, or deleted since the wait: the reply is the same.
		if present, err := c.Check(ctx, key); present || err != nil {
			return value, err
		}
	}
}

func (c *Client) getNow(ctx context.Context, key string) (value []byte, err error) {
	err = c.call(ctx, asking{request{verb: get, key: wireKey(key)}, func(l *link) (err error) {
		value, err = l.readBytes()
		return err
	}})
	return value, err
}

// CompareSet stores desired if key holds expected. See store.Store.
func (c *Client) CompareSet(ctx context.Context, key string, expected, desired []byte) (now []byte, err error) {
	r := request{verb: compareSet, key: wireKey(key), value: expected, other: desired}
	err = c.call(ctx, asking{r, func(l *link) (err error) {
		now, err = l.readBytes()
		return err
	}})
	return now, err
}

// Add adds delta to the decimal number under key and returns the sum.
func (c *Client) Add(ctx context.Context, key string, delta int64) (int64, error) {
	return c.number(ctx, request{verb: add, key: wireKey(key), n: delta})
}

// number asks for what is answered by a number.
func (c *Client) number(ctx context.Context, r request) (n int64, err error) {
	err = c.call(ctx, asking{r, func(l *link) (err error) {
		n, err = l.readInt()
		return err
	}})
	return n, err
}

// Append extends the value of key, creating it when missing. Stores of PyTorch 1.13 cannot.
func (c *Client) Append(ctx context.Context, key string, value []byte) error {
	return c.call(ctx, asking{request: request{verb: appendKey, key: wireKey(key), value: value}})
}

// Check reports whether all keys are present.
func (c *Client) Check(ctx context.Context, keys ...string) (all bool, err error) {
	err = c.call(ctx, asking{request{verb: check, keys: wireKeys(keys)}, func(l *link) error {
		b, err := l.readByte()
		if b > 1 {
			return fmt.Errorf("%w: it answers CHECK with %#x", ErrNotStore, b)
		}
		all = b == 0
		return err
	}})
	return all, err
}

// Wait returns when each of keys has been present.
func (c *Client) Wait(ctx context.Context, keys ...string) error {
	return c.call(ctx, asking{request{verb: wait, keys: wireKeys(keys)}, func(l *link) error { return l.expect(0) }})
}

// MultiGet waits until all keys are present and returns their values in order.
func (c *Client) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	for {
		if err := c.Wait(ctx, keys...); err != nil {
			return nil, err
		}
		values, err := c.multiGetNow(ctx, keys)
		if err != nil {
			return nil, err
		}
		var empty []string
		for i, v := range values {
			if len(v) == 0 {
				empty = append(empty, keys[i])
			}
		}
		if len(empty) == 0 {
			return values, nil
		}
		if present, err := c.Check(ctx, empty...); present || err != nil {
			return values, err
		}
	}
}

func (c *Client) multiGetNow(ctx context.Context, keys []string) (values [][]byte, err error) {
	if len(keys) == 0 { // for which a store has no byte of reply
		return [][]byte{}, nil
	}
	err = c.call(ctx, asking{request{verb: multiGet, keys: wireKeys(keys)}, func(l *link) error {
		values = make([][]byte, len(keys))
		for i := range values {
			if values[i], err = l.readBytes(); err != nil {
				return err
			}
		}
		return nil
	}})
	if errors.Is(err, ErrUnsupported) {
		values = values[:0]
		for _, k := range keys {
			v, err := c.getNow(ctx, k)
			if err != nil {
				return nil, err
			}
			values = append(values, v)
		}
		return values, nil
	}
	return values, err
}

// MultiSet stores values[i] under keys[i]; one after the other where the store is PyTorch 1.13's.
func (c *Client) MultiSet(ctx context.Context, keys []string, values [][]byte) error {
	if err := store.Pairs(keys, values); err != nil {
		return err
	}
	err := c.call(ctx, asking{request: request{verb: multiSet, keys: wireKeys(keys), values: values}})
	if !errors.Is(err, ErrUnsupported) {
		return err
	}
	for i, k := range keys {
		if err := c.Set(ctx, k, values[i]); err != nil {
			return err
		}
	}
	return nil
}

// Delete removes key and reports whether it was present.
func (c *Client) Delete(ctx context.Context, key string) (bool, error) {
	n, err := c.number(ctx, request{verb: deleteKey, key: wireKey(key)})
	return n > 0, err
}

// NumKeys returns the number of keys, the workers' counter "init/" and those of other programs included.
func (c *Client) NumKeys(ctx context.Context) (int64, error) {
	return c.number(ctx, request{verb: numKeys})
}

// ListKeys returns the names of all keys that have the TCPStore class's '/' in front, without it. It needs a store
// of PyTorch 2.10 or later, or ours.
func (c *Client) ListKeys(ctx context.Context) (list []string, err error) {
	err = c.call(ctx, asking{request{verb: listKeys}, func(l *link) error {
		n, err := l.readInt()
		if err != nil {
			return err
		}
		if n < 0 || n > maxNames {
			return fmt.Errorf("%w: a list of %d keys", ErrNotStore, n)
		}
		list = nil
		for range n {
			name, err := l.readBytes()
			if err != nil {
				return err
			}
			if name, ours := strings.CutPrefix(string(name), "/"); ours {
				list = append(list, name)
			}
		}
		return nil
	}})
	return list, err
}

// Push puts value at the end of queue key. Queues need a store of PyTorch 2.8 or later with libuv, or ours.
func (c *Client) Push(ctx context.Context, key string, value []byte) error {
	return c.call(ctx, asking{request: request{verb: queuePush, key: wireKey(key), value: value}})
}

// Pop waits until queue key is not empty and removes its head.
func (c *Client) Pop(ctx context.Context, key string) ([]byte, error) {
	var pause backoff
	for {
		if err := c.Wait(ctx, key); err != nil {
			return nil, err
		}
		if value, ok, err := c.TryPop(ctx, key); ok || err != nil {
			return value, err
		}
		// Another was faster. Or a plain key of that name ends every wait at once: then this is polling.
		if !sleep(ctx, pause.next()) {
			return nil, ctx.Err()
		}
	}
}

// TryPop removes the head of queue key, if there is one.
func (c *Client) TryPop(ctx context.Context, key string) (value []byte, ok bool, err error) {
	err = c.call(ctx, asking{request{verb: queuePop, key: wireKey(key)}, func(l *link) error {
		n, err := l.readInt()
		if err != nil || n == 0 {
			return err
		}
		ok = true
		value, err = l.readBytes()
		return err
	}})
	return value, ok, err
}

// QueueLen returns the number of values in queue key.
func (c *Client) QueueLen(ctx context.Context, key string) (int64, error) {
	return c.number(ctx, request{verb: queueLen, key: wireKey(key)})
}

// Barrier counts the caller in under key and returns when world callers were counted. It needs a store of PyTorch
// 2.12 or later, or ours.
func (c *Client) Barrier(ctx context.Context, key string, world int64) error {
	return c.call(ctx, asking{request{verb: barrier, key: wireKey(key), n: world}, func(l *link) error { return l.expect(0) }})
}
