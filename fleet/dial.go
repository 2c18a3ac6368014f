package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
)

const (
	stagger = 50 * time.Millisecond  // between the starts of two dials
	pause   = 5 * time.Millisecond   // between two tries of an address, at first,
	brief   = 20 * time.Millisecond  // and at most after a connection broke,
	patient = 200 * time.Millisecond // and at most before there was one
	knock   = 3 * time.Second        // for one dial, without the opening
)

// dialTCP dials so that a dead peer is noticed by the kernel too.
func dialTCP(timeout time.Duration) func(context.Context, string, string) (net.Conn, error) {
	d := net.Dialer{Timeout: knock}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, addr)
		if err == nil {
			tune(c, timeout)
		}
		return c, err
	}
}

// tune makes the kernel give up on a TCP connection no later than we do: by keep-alive when nothing is under
// way, by TCP_USER_TIMEOUT (tcp(7), milliseconds) when something is. Other connections stay as they are.
func tune(c net.Conn, timeout time.Duration) {
	t := tcp(c)
	if t == nil {
		return
	}
	_ = t.SetNoDelay(true)
	_ = t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: timeout / 2, Interval: time.Second, Count: 5})
	if raw, err := t.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(timeout.Milliseconds()))
		})
	}
}

// tcp is the TCP connection in c; nil: it is of another kind.
func tcp(c net.Conn) *net.TCPConn {
	t, _ := bottom(c).(*net.TCPConn)
	return t
}

// bottom is what lies below all that is wrapped around it.
func bottom(c net.Conn) net.Conn {
	for {
		w, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = w.NetConn()
	}
}

// A dialer keeps a member connected to its leader.
type dialer struct {
	fleet *Fleet
	peer  *peer
	addrs []string
}

func newDialer(f *Fleet, p *peer, addrs []job.Addr) *dialer {
	list := make([]string, len(addrs))
	for i, a := range addrs {
		list[i] = string(a)
	}
	return &dialer{fleet: f, peer: p, addrs: nearest(list, subnets())}
}

// first connects for the first time. Until ctx ends every failure may pass: the leader may not be up yet.
func (d *dialer) first(ctx context.Context) error {
	if len(d.addrs) == 0 {
		return errors.New("it has given no address")
	}
	for {
		k, err := d.connect(ctx, patient)
		if err == nil {
			d.fleet.host = host(k)
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		if final(err) {
			return err
		}
		d.fleet.sleep(pause)
	}
}

// keep connects again whenever the connection broke or the leader has fallen silent: a new connection
// gets through sooner than TCP's retries on the old one.
func (d *dialer) keep() {
	for {
		select {
		case <-d.peer.ctx.Done():
			return
		case <-d.peer.needs:
		}
		for d.wanted() {
			if _, err := d.connect(d.peer.ctx, brief); err == nil {
				d.fleet.Log.Info("fleet: connected to the leader again", "leader", d.peer.String())
			}
			d.fleet.sleep(pause)
		}
	}
}

// wanted reports whether a new connection would serve. It goes by what was heard, not by suspected, which mind
// takes back a little later: until then each new connection would be given up for the next.
func (d *dialer) wanted() bool {
	p := d.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ctx.Err() == nil && !p.left && (p.line == nil || p.quiet(time.Now()) >= p.fleet.Suspect)
}

// blame notes why there is no connection. The leader's own word that it gave us up is final.
func (d *dialer) blame(err error) {
	p := d.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	if final(err) {
		p.certain, p.gaveUp = true, true
		p.lose(err)
	}
	if p.line == nil && p.ctx.Err() == nil {
		p.cause = err
	}
}

func final(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.final
}

// connect makes the first address that proves itself the connection to the leader.
func (d *dialer) connect(ctx context.Context, most time.Duration) (*call, error) {
	k, err := d.race(ctx, most)
	if err != nil {
		return nil, err
	}
	d.peer.knock(+1)
	defer d.peer.knock(-1)
	if err := d.fleet.commit(k, d.peer); err != nil {
		k.Close()
		d.blame(err)
		return nil, err
	}
	return k, nil
}

// race dials the addresses again and again, each a little after the one before, until one answers as the leader
// must, or ctx ends. The other connections are closed before it returns.
func (d *dialer) race(ctx context.Context, most time.Duration) (*call, error) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result)
	for i, addr := range d.addrs {
		go func() { results <- d.insist(inner, addr, time.Duration(i)*stagger, most) }()
	}
	var winner *call
	var errs []string
	for range d.addrs {
		r := <-results
		cancel() // the first result decides
		switch {
		case r.err != nil:
			errs = append(errs, r.err.Error())
		case winner == nil && ctx.Err() == nil:
			winner = r.call
		default:
			r.call.Close()
		}
	}
	if winner == nil {
		return nil, errors.New(strings.Join(errs, "; "))
	}
	return winner, nil
}

type result struct {
	call *call
	err  error
}

// insist tries one address until it works, less and less often. What was said there counts as long as nobody answers any more.
func (d *dialer) insist(ctx context.Context, addr string, delay, most time.Duration) result {
	err := fmt.Errorf("%s: not tried", addr)
	var said *refusal
	for next := pause; ; next = min(2*next, most) {
		select {
		case <-ctx.Done():
			if said != nil && !errors.Is(err, said) {
				err = fmt.Errorf("%w (before: %v)", err, said)
			}
			return result{err: err}
		case <-time.After(delay):
		}
		r := d.try(ctx, addr)
		if r.err == nil {
			return r
		}
		if ctx.Err() == nil {
			err = r.err
			_ = errors.As(err, &said)
			d.blame(err)
		}
		delay = next
	}
}

func (d *dialer) try(ctx context.Context, addr string) result {
	c, err := d.fleet.Dial(ctx, "tcp", addr)
	if err != nil {
		return result{err: fmt.Errorf("%s: %w", addr, unwrapOp(err))}
	}
	c = d.fleet.hold(c)
	d.peer.knock(+1)
	defer d.peer.knock(-1)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	k, err := d.fleet.call(c)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return result{err: fmt.Errorf("%s: %w", addr, err)}
	}
	return result{call: k}
}

// A heldConn is a connection that outlives this process.
type heldConn struct {
	net.Conn
	free func()
}

func (f *Fleet) hold(c net.Conn) net.Conn {
	if f.Hold == nil {
		return c
	}
	return &heldConn{c, sync.OnceFunc(f.Hold(bottom(c)))}
}

func (c *heldConn) NetConn() net.Conn { return c.Conn }

// Close lets the peer see the end, too.
func (c *heldConn) Close() error {
	err := c.Conn.Close()
	c.free()
	return err
}

// knock notes that a connection is open, or is not any more, of which nobody has proved yet whose it is. As long as there is
// one somebody holds the peer's port for it, or the peer itself has called: that time does not count as its absence.
func (p *peer) knock(by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.knocking == 0 {
		p.knocked = now
	}
	if p.knocking += by; p.knocking == 0 {
		p.hoped += now.Sub(p.knocked)
	}
}

// unwrapOp leaves out the address that the net package repeats.
func unwrapOp(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// nearest puts the addresses of our own subnets first; otherwise the order stays.
func nearest(addrs []string, own []netip.Prefix) []string {
	far := func(addr string) int {
		ap, err := netip.ParseAddrPort(addr)
		if err == nil && slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Contains(ap.Addr().Unmap()) }) {
			return 0
		}
		return 1
	}
	return slices.SortedStableFunc(slices.Values(addrs), func(a, b string) int { return far(a) - far(b) })
}

// subnets lists the networks of our interfaces, without loopback: an address there is another machine's own.
func subnets() []netip.Prefix {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var list []netip.Prefix
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && !p.Addr().IsLoopback() {
			list = append(list, p.Masked())
		}
	}
	return list
}
