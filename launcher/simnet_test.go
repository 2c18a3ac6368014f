package launcher

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/muster-run/muster/rendezvous/store"
)

// This file is the network of a simulation, and the store that its nodes meet in: late, by how much the seed says, and cut where the fate of a node
// wants it to be.

// A simLink is a node's link to all others. Nothing passes while it is cut; what was sent meanwhile comes later, as TCP has it.
type simLink struct {
	mu      sync.Mutex
	cut     bool
	dead    bool // the machine has no power: nobody hears its end
	killed  bool // its kernel is left, and tells of that
	changed chan struct{}
	conns   map[*simHalf]bool
}

func newSimLink() *simLink {
	return &simLink{changed: make(chan struct{}), conns: map[*simHalf]bool{}}
}

// set changes the link, and wakes who waits for that.
func (l *simLink) set(change func()) {
	l.mu.Lock()
	change()
	close(l.changed)
	l.changed = make(chan struct{})
	var all []*simHalf
	for h := range l.conns {
		all = append(all, h)
	}
	l.mu.Unlock()
	for _, h := range all {
		h.wake()
	}
}

// open reports whether anything passes, and what is closed at the next change.
func (l *simLink) open() (bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.cut && !l.dead, l.changed
}

func (l *simLink) passes() bool { ok, _ := l.open(); return ok }

func (l *simLink) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// breaks ends all connections, in both directions.
func (l *simLink) breaks() { l.each(func(h *simHalf) { h.broken = true }) }

func (l *simLink) each(change func(h *simHalf)) {
	l.mu.Lock()
	var all []*simHalf
	for h := range l.conns {
		all = append(all, h)
	}
	l.mu.Unlock()
	for _, h := range all {
		h.mu.Lock()
		change(h)
		h.come.Broadcast()
		h.mu.Unlock()
	}
}

// kills is the end of all processes of a node: its kernel closes their connections, and accepts none.
func (l *simLink) kills() {
	l.set(func() { l.dead, l.killed = true, true })
	l.each(func(h *simHalf) { h.closed = h.from == l })
}

func (l *simLink) isKilled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.killed
}

// sever is the end of a machine's power.
func (l *simLink) sever() { l.set(func() { l.dead = true }) }

// await returns when something passes.
func (l *simLink) await(ctx context.Context) error {
	for {
		ok, changed := l.open()
		if ok {
			return ctx.Err()
		}
		if l.isKilled() {
			return syscall.ECONNREFUSED
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A simHalf is one direction of a connection.
type simHalf struct {
	from, to *simLink
	dice     *rand.Rand
	mu       sync.Mutex
	come     *sync.Cond
	parcels  []simParcel
	last     time.Time // when the last of them arrives
	ended    bool      // nobody reads any more
	broken   bool      // somebody on the way has forgotten the connection
	closed   bool      // the kernel of who sends has closed it
	deadline time.Time
}

type simParcel struct {
	at   time.Time
	data []byte
	end  bool
	rst  bool // is how it ends
}

func newSimHalf(from, to *simLink, dice *rand.Rand) *simHalf {
	h := &simHalf{from: from, to: to, dice: dice}
	h.come = sync.NewCond(&h.mu)
	for _, l := range []*simLink{from, to} {
		l.mu.Lock()
		l.conns[h] = true
		l.mu.Unlock()
	}
	return h
}

func (h *simHalf) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.come.Broadcast()
}

func (h *simHalf) forget() {
	for _, l := range []*simLink{h.from, h.to} {
		l.mu.Lock()
		delete(l.conns, h)
		l.mu.Unlock()
	}
}

// send has data arrive after a while; end: that is the last, and a reset or not.
func (h *simHalf) send(data []byte, end, reset bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := time.Now().Add(simLatency(h.dice))
	if at.Before(h.last) {
		at = h.last
	}
	h.last = at
	h.parcels = append(h.parcels, simParcel{at, append([]byte(nil), data...), end, reset})
	time.AfterFunc(time.Until(at), h.wake)
}

// simLatency is mostly a part of a millisecond, and now and then a packet that was lost and sent again.
func simLatency(dice *rand.Rand) time.Duration {
	d := 50*time.Microsecond + time.Duration(dice.Int64N(int64(400*time.Microsecond)))
	if dice.IntN(200) == 0 {
		d += 200 * time.Millisecond
	}
	return d
}

func (h *simHalf) read(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		now := time.Now()
		switch {
		case h.ended:
			return 0, net.ErrClosed
		case !h.deadline.IsZero() && !now.Before(h.deadline):
			return 0, os.ErrDeadlineExceeded
		case h.broken:
			return 0, syscall.ECONNRESET
		case h.closed && h.to.passes():
			return 0, io.EOF
		case len(h.parcels) > 0 && !now.Before(h.parcels[0].at) && h.from.passes() && h.to.passes():
			p := &h.parcels[0]
			if p.end && p.rst {
				return 0, syscall.ECONNRESET
			}
			if p.end {
				return 0, io.EOF
			}
			n := copy(b, p.data)
			if p.data = p.data[n:]; len(p.data) == 0 {
				h.parcels = h.parcels[1:]
			}
			return n, nil
		}
		h.come.Wait()
	}
}

// A simConn is one end of a connection.
type simConn struct {
	in, out  *simHalf
	at       *simAgent // whose agent may stand still
	peer     string
	once     sync.Once
	mu       sync.Mutex
	deadline time.Time // of writes
	closed   bool
	resets   bool // to the peer its end is no end of who had it
}

func (c *simConn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	c.at.awake()
	return n, err
}

func (c *simConn) Write(b []byte) (int, error) {
	c.at.awake()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case !c.deadline.IsZero() && !time.Now().Before(c.deadline):
		return 0, os.ErrDeadlineExceeded
	}
	c.out.mu.Lock()
	gone := c.out.ended || c.out.broken
	c.out.mu.Unlock()
	if gone && c.out.from.passes() && c.out.to.passes() {
		return 0, syscall.EPIPE
	}
	c.out.send(b, false, false)
	return len(b), nil
}

func (c *simConn) Close() error {
	c.once.Do(func() {
		c.mu.Lock()
		c.closed = true
		resets := c.resets
		c.mu.Unlock()
		c.out.send(nil, true, resets)
		c.in.mu.Lock()
		c.in.ended, c.in.parcels = true, nil
		c.in.come.Broadcast()
		c.in.mu.Unlock()
		c.in.forget()
	})
	return nil
}

// SetLinger is as a TCP connection has it: none makes its end a reset.
func (c *simConn) SetLinger(seconds int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resets = seconds == 0
	return nil
}

func (c *simConn) SetDeadline(t time.Time) error {
	_ = c.SetWriteDeadline(t)
	return c.SetReadDeadline(t)
}

func (c *simConn) SetReadDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	if c.in.deadline = t; !t.IsZero() {
		time.AfterFunc(max(time.Until(t), 0), c.in.wake)
	}
	return nil
}

func (c *simConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return nil
}

func (c *simConn) LocalAddr() net.Addr  { return simAddr("") }
func (c *simConn) RemoteAddr() net.Addr { return simAddr(c.peer) }

type simAddr string

func (simAddr) Network() string  { return "sim" }
func (a simAddr) String() string { return string(a) }

// dial is how an agent connects to another one.
func (a *simAgent) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	a.awake()
	s := a.sim
	to := s.at(addr)
	time.Sleep(s.latency(a, "dial"))
	if to == nil {
		return nil, syscall.EHOSTUNREACH
	}
	for _, l := range []*simLink{a.link, to.link} {
		if err := l.await(ctx); err != nil {
			return nil, err
		}
	}
	if to.gone() {
		return nil, syscall.ECONNREFUSED
	}
	there, back := newSimHalf(a.link, to.link, s.diceOf(a, "out")), newSimHalf(to.link, a.link, s.diceOf(a, "in"))
	to.meeting.door.handle(&simConn{in: there, out: back, at: to, peer: a.addr})
	return &simConn{in: back, out: there, at: a, peer: addr}, nil
}

// diceOf are random numbers for what an agent does for the nth time: the same for the same seed, in whichever order agents take their turns.
func (s *simulation) diceOf(a *simAgent, what string) *rand.Rand {
	a.mu.Lock()
	a.counts[what]++
	n := a.counts[what]
	a.mu.Unlock()
	return rand.New(rand.NewPCG(s.seed, hashOf(a.life, what, n)))
}

func (s *simulation) latency(a *simAgent, what string) time.Duration {
	return simLatency(s.diceOf(a, what))
}

func hashOf(life, what string, n int) uint64 {
	h := uint64(14695981039346656037)
	for _, text := range []string{life, what} {
		for i := range len(text) {
			h = (h ^ uint64(text[i])) * 1099511628211
		}
	}
	return (h ^ uint64(n)) * 1099511628211
}

// A simStore is the store as one node reaches it.
type simStore struct {
	store.Store
	a *simAgent
}

// way is the way there and back. Where it is cut the call waits, and where it breaks after a change nobody knows whether that was made.
func (s simStore) way(ctx context.Context) error {
	s.a.awake()
	time.Sleep(s.a.sim.latency(s.a, "store"))
	return s.a.link.await(ctx)
}

func (s simStore) torn() bool {
	return s.a.sim.tears > 0 && s.a.sim.diceOf(s.a, "torn").IntN(s.a.sim.tears) == 0
}

func (s simStore) Close() error { return nil }

func (s simStore) Set(ctx context.Context, key string, value []byte) error {
	if err := s.way(ctx); err != nil {
		return err
	}
	return s.Store.Set(ctx, key, value)
}

func (s simStore) Get(ctx context.Context, key string) ([]byte, error) {
	if err := s.way(ctx); err != nil {
		return nil, err
	}
	b, err := s.Store.Get(ctx, key)
	return b, errors.Join(err, s.back(ctx, err))
}

// back is the way of an answer that may have taken long to come.
func (s simStore) back(ctx context.Context, err error) error {
	if err != nil {
		return nil
	}
	return s.way(ctx)
}

func (s simStore) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	if err := s.way(ctx); err != nil {
		return nil, err
	}
	got, err := s.Store.CompareSet(ctx, key, expected, desired)
	if err == nil && s.torn() {
		return nil, store.ErrUncertain
	}
	return got, err
}

func (s simStore) Add(ctx context.Context, key string, delta int64) (int64, error) {
	if err := s.way(ctx); err != nil {
		return 0, err
	}
	n, err := s.Store.Add(ctx, key, delta)
	if err == nil && s.torn() {
		return 0, store.ErrUncertain
	}
	return n, err
}

func (s simStore) Append(ctx context.Context, key string, value []byte) error {
	if err := s.way(ctx); err != nil {
		return err
	}
	return s.Store.Append(ctx, key, value)
}

func (s simStore) Check(ctx context.Context, keys ...string) (bool, error) {
	if err := s.way(ctx); err != nil {
		return false, err
	}
	return s.Store.Check(ctx, keys...)
}

func (s simStore) Wait(ctx context.Context, keys ...string) error {
	if err := s.way(ctx); err != nil {
		return err
	}
	return s.Store.Wait(ctx, keys...)
}

func (s simStore) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	if err := s.way(ctx); err != nil {
		return nil, err
	}
	return s.Store.MultiGet(ctx, keys...)
}

func (s simStore) MultiSet(ctx context.Context, keys []string, values [][]byte) error {
	if err := s.way(ctx); err != nil {
		return err
	}
	return s.Store.MultiSet(ctx, keys, values)
}

func (s simStore) Delete(ctx context.Context, key string) (bool, error) {
	if err := s.way(ctx); err != nil {
		return false, err
	}
	return s.Store.Delete(ctx, key)
}
