package tcpstore

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"time"
)

// Errors that tell what is wrong with an address. Others come from package net: refused is syscall.ECONNREFUSED,
// unresolvable is a *net.DNSError. Cause names them all.
var (
	// ErrNotStore is wrapped when someone listens at the address who does not speak c10d.
	ErrNotStore = errors.New("not a c10d store")
	// ErrNoAnswer is wrapped when the store accepts connections and does not answer in time.
	ErrNoAnswer = errors.New("no answer")
	// ErrRejected is wrapped when the store closes the connection on a request each time that it is sent.
	ErrRejected = errors.New("the store closed the connection on it")
	// ErrBarred is returned when the store lets in others, but not the address from which this client comes.
	ErrBarred = errors.New("this node's address is not among those that are let in there (--store-allow)")
	// ErrUnsupported is wrapped when the store's dialect lacks a verb.
	ErrUnsupported = errors.New("the store's version of c10d does not have it")
)

// Options are how a client connects. The zero value is good.
type Options struct {
	// Progress is called after each failed attempt to connect, once in each that is connected and has had no answer for a while, and when half of
	// ReplyTimeout has gone by for a request, from inside the call.
	Progress func(Attempt)
	// ReplyTimeout bounds the wait for any reply save those that wait for keys. 0: 10 s.
	ReplyTimeout time.Duration
	// Patience bounds how long one call tries to connect, within its ctx. 0: as long as ctx lasts.
	Patience time.Duration
	// Name is that of the store that is wanted, where several share an address: another one is as none. "": any will do.
	Name string
	// FirstOnly says that the rest is meant for Dial. Once connected, the client goes on as with no other Options than Name.
	FirstOnly bool
}

// withDefaults puts values in place of those zeros that stand for one.
func (o Options) withDefaults() Options {
	o.ReplyTimeout = orElse(o.ReplyTimeout, 10*time.Second)
	return o
}

// An Attempt is one failed attempt to connect.
type Attempt struct {
	Addr    string
	N       int           // from 1
	Err     error         // why it failed
	Elapsed time.Duration // since the first attempt began
	Next    time.Duration // pause before the next one; 0: this one goes on
}

// Cause says in a few words why a connection failed, for a live line: "connection refused", "name not known".
func Cause(err error) string {
	var dns *net.DNSError
	var other *otherError
	var number syscall.Errno
	switch {
	case errors.Is(err, ErrNotStore):
		return ErrNotStore.Error()
	case errors.Is(err, ErrBarred):
		return ErrBarred.Error()
	case errors.As(err, &other):
		return other.Error()
	case errors.As(err, &dns) && dns.IsNotFound:
		return "name not known"
	case errors.As(err, &dns):
		return "name look-up failed"
	case errors.As(err, &number):
		return number.Error()
	case errors.Is(err, ErrNoAnswer):
		return "connected, but no answer"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return ErrNoAnswer.Error()
	case errors.Is(err, io.EOF):
		return "connection closed"
	}
	return err.Error()
}

const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
	// dialTimeout bounds one attempt to connect: long enough for two lost SYNs.
	dialTimeout = 5 * time.Second
	// strangerTries is how often an address may turn out to be no c10d store before that is believed. A store that
	// is being restarted can look so once.
	strangerTries = 3
	// silence is how long a store of the other dialect may be silent on a greeting that it does not know.
	silence = time.Second
	// quiet is how long a store may take to answer a greeting before that is told. It may only be busy with thousands of them.
	quiet = 2 * time.Second
)

// A backoff is the pause between attempts: growing, with jitter so that ten thousand clients do not come as one.
type backoff struct{ pause time.Duration }

func (b *backoff) next() time.Duration {
	b.pause = min(max(2*b.pause, firstPause), lastPause)
	return b.pause/2 + rand.N(b.pause)
}

// connect tries to connect until it succeeds, ctx ends, or the address is known to be no store's. The name is
// resolved each time.
func (c *Client) connect(ctx context.Context) (*link, error) {
	if c.opt.Patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opt.Patience)
		defer cancel()
	}
	begin := time.Now()
	var wait backoff
	var before error // of the attempt before
	strangers := 0
	for n := 1; ; n++ {
		c.quiet = func() { c.tell(ctx, Attempt{Addr: c.addr, N: n, Err: ErrNoAnswer, Elapsed: time.Since(begin)}) }
		l, err := c.attempt(ctx)
		if err == nil {
			return l, nil
		}
		if before != nil && over(ctx) { // cut short: the one before tells more
			n, err = n-1, before
		}
		before = err
		if errors.Is(err, ErrNotStore) {
			strangers++
		}
		if strangers == strangerTries {
			return nil, err
		}
		a := Attempt{Addr: c.addr, N: n, Err: err, Elapsed: time.Since(begin), Next: wait.next()}
		c.tell(ctx, a)
		if !sleep(ctx, a.Next) {
			return nil, c.gaveUp(ctx, a)
		}
	}
}

// over reports whether a time has come to its end. A dial knows that before the context does.
func over(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(end)
}

// tell passes an attempt on, unless nobody waits any more.
func (c *Client) tell(ctx context.Context, a Attempt) {
	if ctx.Err() == nil && c.opt.Progress != nil {
		c.opt.Progress(a)
	}
}

// gaveUp is the error of a connect whose time is over: both that, and what was wrong.
func (c *Client) gaveUp(ctx context.Context, a Attempt) error {
	if a.N == 1 && (errors.Is(a.Err, context.Canceled) || errors.Is(a.Err, context.DeadlineExceeded)) {
		return a.Err
	}
	return fmt.Errorf("%w after %d attempts in %v: %w", ctx.Err(), a.N, a.Elapsed.Round(time.Millisecond), a.Err)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}

// attempt connects once, to the store that is wanted.
func (c *Client) attempt(ctx context.Context) (*link, error) {
	l, err := c.reach(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.callFor(ctx, l); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// reach connects once. A client that knows the store's dialect goes by it; when that fails it asks anew next time.
func (c *Client) reach(ctx context.Context) (*link, error) {
	if c.known == nil {
		return c.detect(ctx)
	}
	l, err := c.greet(ctx, *c.known)
	if err != nil {
		c.known = nil
	}
	return l, err
}

// A dialect is how to talk to a store: its numbers, and whether it answers PING.
type dialect struct {
	numbers numbering
	pings   bool
}

// The dialects, with the greeting that each answers. The bytes of the first are written at once, and its nonce is all
// ones: a store older than 2.2 reads them as a SET whose key has an impossible length, and drops the connection at
// once. VALIDATE alone would make it wait for the rest, and stall all its clients.
var (
	dialectV      = dialect{numbersV, true}  // 2.5 and later
	dialectMute   = dialect{numbersV, false} // 2.2 to 2.4
	dialectA      = dialect{numbersA, false}
	dialectB      = dialect{numbersB, false}
	greetV        = greeting{append(bytes.Clone(hello), 0x0d, 0xff, 0xff, 0xff, 0xff), []byte{0xff, 0xff, 0xff, 0xff}}
	greetMute     = greeting{append(bytes.Clone(hello), 5, 0, 0, 0, 0, 0, 0, 0, 0), []byte{0}}
	greetLegacy   = greeting{[]byte{4, 0, 0, 0, 0, 0, 0, 0, 0}, []byte{0}} // CHECK of no keys
	greetLegacyB  = greeting{[]byte{11}, []byte{1}}                        // CANCEL_WAIT, which A does not have
	errOtherReply = errors.New("it answers something else")
)

// A greeting is bytes that open a connection, and the reply.
type greeting struct{ say, hear []byte }

// detect connects and finds out which dialect the store speaks.
func (c *Client) detect(ctx context.Context) (*link, error) {
	l, err := c.open(ctx, dialectV, c.opt.ReplyTimeout, greetV)
	if l != nil || !dropped(err) {
		return l, err
	}
	l, err = c.open(ctx, dialectA, silence, greetLegacy)
	if l != nil {
		return c.legacy(ctx, l)
	}
	if !dropped(err) && !errors.Is(err, ErrNoAnswer) {
		return nil, err
	}
	l, err = c.open(ctx, dialectMute, c.opt.ReplyTimeout, greetMute)
	if dropped(err) {
		err = fmt.Errorf("%w: it closes the connection on every greeting", ErrNotStore)
	}
	return l, err
}

// legacy tells A from B on a connection that answered as either.
func (c *Client) legacy(ctx context.Context, l *link) (*link, error) {
	err := l.greet(ctx, silence, greetLegacyB, c.quiet)
	if err == nil {
		l.dialect = dialectB
		return l, nil
	}
	l.Close()
	return c.open(ctx, dialectA, c.opt.ReplyTimeout, greetLegacy)
}

// greet connects to a store whose dialect is known.
func (c *Client) greet(ctx context.Context, d dialect) (*link, error) {
	g := greetLegacy
	switch {
	case d.pings:
		g = greetV
	case len(d.numbers) == len(numbersV):
		g = greetMute
	}
	return c.open(ctx, d, c.opt.ReplyTimeout, g)
}

// dropped reports whether the other side closed the connection.
func dropped(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// open connects and exchanges one greeting.
func (c *Client) open(ctx context.Context, d dialect, patience time.Duration, g greeting) (*link, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}).DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return nil, err
	}
	_ = conn.(*net.TCPConn).SetReadBuffer(receiveBuffer)
	l := &link{Conn: conn, dialect: d, in: bufio.NewReaderSize(conn, 4096)}
	if err := l.greet(ctx, patience, g, c.quiet); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// receiveBuffer is room for a value that thousands of clients get at one moment, as the world of a meeting is: what does not fit into
// it while they are slow to read, a newer kernel drops (seen with Linux 6.18), and it comes again after 200 ms or more. The kernel takes as much
// of it as it allows (net.core.rmem_max).
const receiveBuffer = 1 << 20

// keepAlive finds out within half a minute that the store's machine is gone, also during a long wait.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// A link is one connection to the store.
type link struct {
	net.Conn
	dialect
	in   *bufio.Reader
	used bool // a call was answered on it
}

// under makes reads and writes end with ctx, and after limit if that is not 0. The returned function ends that.
func (l *link) under(ctx context.Context, limit time.Duration) (release func()) {
	deadline := time.Time{}
	if limit > 0 {
		deadline = time.Now().Add(limit)
	}
	_ = l.SetDeadline(deadline)
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = l.SetDeadline(time.Unix(1, 0))
		close(fired)
	})
	return func() {
		if !stop() {
			<-fired
		}
	}
}

// during is f, whose reads and writes end with ctx and after limit.
func (l *link) during(ctx context.Context, limit time.Duration, f func() error) error {
	defer l.under(ctx, limit)()
	return f()
}

// greet says g and hears the reply. That it takes a while is told, where late is not nil.
func (l *link) greet(ctx context.Context, patience time.Duration, g greeting, late func()) error {
	first := min(patience, quiet)
	n, reply, err := l.exchange(ctx, first, g.say, make([]byte, len(g.hear)))
	if n == 0 && patience > first && errors.Is(noAnswer(ctx, err), ErrNoAnswer) {
		if late != nil {
			late()
		}
		n, reply, err = l.exchange(ctx, patience-first, nil, reply)
	}
	switch {
	case n == len(reply) && bytes.HasPrefix(notLetIn, reply):
		return ErrBarred
	case n > 0 && !bytes.HasPrefix(g.hear, reply[:n]):
		return fmt.Errorf("%w: %w: %q", ErrNotStore, errOtherReply, reply[:n])
	case err != nil:
		return noAnswer(ctx, err)
	}
	return nil
}

// exchange says something, and reads so much as an answer. Who closes a connection without reading it may have said something before.
func (l *link) exchange(ctx context.Context, within time.Duration, say, hear []byte) (int, []byte, error) {
	defer l.under(ctx, within)()
	_, unsaid := l.Write(say)
	n, err := io.ReadFull(l.in, hear)
	if err != nil {
		err = cmp.Or(unsaid, err)
	}
	return n, hear, err
}

// noAnswer names the error of a deadline: ctx's, or our own.
func noAnswer(ctx context.Context, err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return ErrNoAnswer
}

// stale reports whether the other side closed the connection, or sent what nobody asked for, since the last reply.
// A request that may not be sent twice is better not sent on such a connection.
func (l *link) stale() bool {
	if l.in.Buffered() > 0 {
		return true
	}
	raw, err := l.Conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return false
	}
	var b [1]byte
	stale := true
	err = raw.Read(func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		stale = !errors.Is(err, syscall.EAGAIN)
		return true
	})
	return stale || err != nil
}

// maxReply bounds a value that a store may send, and maxNames the names that it may list.
const (
	maxReply = 1 << 30
	maxNames = 64 << 20
)

func (l *link) readByte() (byte, error) { return l.in.ReadByte() }

func (l *link) readInt() (int64, error) {
	var b [8]byte
	_, err := io.ReadFull(l.in, b[:])
	return int64(binary.LittleEndian.Uint64(b[:])), err
}

// readBytes reads a value. Memory grows with what comes, not with what is announced.
func (l *link) readBytes() ([]byte, error) {
	n, err := l.readInt()
	if err != nil {
		return nil, err
	}
	if n < 0 || n > maxReply {
		return nil, fmt.Errorf("%w: a reply of %d bytes", ErrNotStore, n)
	}
	const step = 1 << 20
	value := make([]byte, min(n, step))
	for at := int64(0); at < n; {
		got, err := io.ReadFull(l.in, value[at:])
		if err != nil {
			return nil, err
		}
		if at += int64(got); at < n {
			value = append(value, make([]byte, min(n-at, max(step, at)))...)
		}
	}
	return value, nil
}
