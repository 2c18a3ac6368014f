package tcpstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/crowd"
	"github.com/muster-run/muster/rendezvous/store"
)

// Defaults of a Server.
const (
	DefaultMaxBuffered  = 512 << 20
	DefaultStallTimeout = 5 * time.Minute
	maxLoops            = 4 // under the table's one lock; a request holds it for a twentieth of its time
)

// A Server serves a store to clients of every PyTorch from 1.13 on, and to Client. Its zero value serves an empty
// store. The fields are read when Serve is first called and must not be changed afterwards.
type Server struct {
	// Store is what is served; nil: an empty one.
	Store *store.Memory
	// Legacy says how connections without the magic of PyTorch 2.2 are taken.
	Legacy Legacy
	// MaxValue bounds a value, in bytes, where it is sent; APPEND may make it longer. 0: DefaultMaxValue.
	MaxValue int
	// MaxRequest bounds a whole request, in bytes. 0: 64 MiB, or what two values need if that is more.
	MaxRequest int
	// MaxBuffered bounds what unfinished requests and unread replies of all connections hold together, in bytes,
	// beside the store. The connection that would exceed it is closed. 0: DefaultMaxBuffered.
	MaxBuffered int64
	// MaxClients bounds the connections. Where there is no room the address with the most gives one up. 0: half of the files that this process
	// may have open, where connections are handed on, or nearly all.
	MaxClients int
	// StallTimeout is how long a client may read nothing of a reply. 0: DefaultStallTimeout.
	StallTimeout time.Duration
	// Loops is the number of goroutines that serve connections. A busy loop leaves its processor to nobody, so
	// 0 is half of GOMAXPROCS, at least 1 and at most 4; a process that does nothing else can afford more.
	Loops int
	// Log is told about connections that the server closes; nil: slog.Default().
	Log *slog.Logger
	// Foreign is given each connection that opens with Magic, with these bytes still to be read. It must return at
	// once: the connection is its own to serve, elsewhere, and to close. nil: there are none.
	Foreign func(net.Conn)
	// Name is what clients call this store by, where several share its port; "": they do not.
	Name string
	// Elsewhere is given each connection that calls for another name, with its opening still to be read. As with Foreign, it must return at once. nil:
	// such connections stay here, as with a store that knows of no names.
	Elsewhere func(name string, c net.Conn)
	// Admits reports whether those who come from an address are let in; nil: all are. A connection of others is closed before anything of it is read.
	Admits func(netip.Addr) bool
	// Shared reports whether other stores have a part in the port now. Then who is not let in may still call for another one, where other rules may
	// hold, and is closed when he wants anything else. nil: they have none. It is called by Serve alone.
	Shared func() bool
	// Magic is what foreign connections open with. No c10d verb may begin like it: its first byte must be above 18.
	Magic string

	lim    limits
	budget budget
	magic  []byte
	gripes gripes

	stopping  sync.Mutex
	mu        sync.Mutex
	clients   crowd.Crowd[*conn]
	leaving   int        // connections that had to make room, and whose loops have not closed them yet
	less      *sync.Cond // leaving is
	crowded   int        // connections for which there was no room
	loops     []*loop
	turn      int // of the loops to get the next connection
	listeners map[*os.File]bool
	past      map[string]Tally // of loops that have ended
	closing   bool
	closed    chan struct{} // closed when closing begins
	empty     chan struct{} // closed when closing and without clients
}

// Serve accepts connections on ln until Shutdown or Close, when it returns ErrServerClosed, or until accepting
// fails. It takes ln over and closes it. The listener must have a file descriptor, as those of net.Listen and
// net.FileListener have. One Server may serve several listeners.
func (s *Server) Serve(ln net.Listener) error {
	defer ln.Close()
	f, err := descriptor(ln)
	if err != nil {
		return fmt.Errorf("tcpstore: serve %v: %w", ln.Addr(), err)
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("tcpstore: serve %v: %w", ln.Addr(), err)
	}
	if err := s.begin(f); err != nil {
		return err
	}
	defer s.end(f)
	tune(raw)
	return s.accept(ln.Addr(), raw)
}

// descriptor returns a file of ln's socket. Unlike ln it lets us accept outside of Go's poller: a loop will watch the
// connection instead.
func descriptor(ln net.Listener) (*os.File, error) {
	filer, ok := ln.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, errors.New("the listener has no file descriptor")
	}
	return filer.File()
}

// begin starts the loops, when they are not running, and notes the listener.
func (s *Server) begin(ln *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(); err != nil {
		return err
	}
	s.listeners[ln] = true
	return nil
}

// ready starts the loops, when they are not running. It is called with mu held.
func (s *Server) ready() error {
	s.prepare()
	if s.closing {
		return ErrServerClosed
	}
	if s.loops == nil {
		if err := s.start(); err != nil {
			return fmt.Errorf("tcpstore: %w", err)
		}
	}
	return nil
}

// prepare makes what the zero value lacks.
func (s *Server) prepare() {
	if s.closed == nil {
		s.closed, s.empty = make(chan struct{}), make(chan struct{})
		s.listeners, s.less = map[*os.File]bool{}, sync.NewCond(&s.mu)
	}
}

// start fills in the defaults and runs the loops. Close waits for them.
func (s *Server) start() error {
	if s.Store == nil {
		s.Store = new(store.Memory)
	}
	if s.Log == nil {
		s.Log = slog.Default()
	}
	s.StallTimeout = orElse(s.StallTimeout, DefaultStallTimeout)
	s.lim.value = orElse(s.MaxValue, DefaultMaxValue)
	s.lim.request = orElse(s.MaxRequest, max(64<<20, 2*s.lim.value+MaxKey+64))
	s.budget.most = orElse(s.MaxBuffered, DefaultMaxBuffered)
	s.MaxClients = orElse(s.MaxClients, s.room())
	s.magic = []byte(s.Magic)
	if s.Foreign != nil && (len(s.magic) == 0 || s.magic[0] < byte(len(numbersV))) {
		return fmt.Errorf("magic %q could be a c10d verb", s.Magic)
	}
	for range orElse(s.Loops, min(max(1, runtime.GOMAXPROCS(0)/2), maxLoops)) {
		l, err := newLoop(s)
		if err != nil {
			stopAll(s.loops)
			s.loops = nil
			return err
		}
		s.loops = append(s.loops, l)
		go l.run()
	}
	return nil
}

// room is for how many connections there is, by the number of files that this process may have open.
func (s *Server) room() int {
	var r unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &r) // cannot fail for oneself
	files := int(min(r.Cur, math.MaxInt32))
	if s.Foreign != nil || s.Elsewhere != nil {
		return files / 2
	}
	return max(files-2*maxLeaving, files/2)
}

func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// stopAll ends loops and waits for them.
func stopAll(loops []*loop) {
	for _, l := range loops {
		l.post(letter{stop: true})
	}
	for _, l := range loops {
		<-l.done
	}
}

func (s *Server) end(ln *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, ln)
}

// tune sets what accepted connections inherit: no delay of small replies, and an end to clients whose machine has
// vanished, which would otherwise wait here for ever.
func tune(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) { // fails on a unix socket, which needs none of it
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 60)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 4)
	})
}

// accept gives the loops their connections in turn. An error such as too many open files passes: it waits, longer
// each time, up to a second.
func (s *Server) accept(at net.Addr, raw syscall.RawConn) error {
	var pause time.Duration
	for {
		fd, peer, err := accept(raw)
		switch {
		case err == nil:
			pause = 0
			s.welcome(fd, peer)
		case s.isClosing():
			return ErrServerClosed
		case passing(err):
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.complain(netip.Addr{}, "accept failed; trying again", "listener", at, "err", err, "pause", pause)
			if !s.rest(pause) {
				return ErrServerClosed
			}
		default:
			return fmt.Errorf("tcpstore: accept on %v: %w", at, err)
		}
	}
}

// accept waits for a connection.
func accept(raw syscall.RawConn) (fd int, peer netip.AddrPort, err error) {
	waitErr := raw.Read(func(lfd uintptr) bool {
		var sa unix.Sockaddr
		fd, sa, err = unix.Accept4(int(lfd), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		peer = addrPort(sa)
		return err != unix.EAGAIN
	})
	return fd, peer, errors.Join(waitErr, err)
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// passing reports whether a failure of accept is of the moment: a connection that went away, or want of something.
func passing(err error) bool {
	for _, e := range []error{unix.ECONNABORTED, unix.EINTR, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EPROTO, unix.EPERM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// rest waits, and reports whether the server still serves.
func (s *Server) rest(pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.closed:
		return false
	}
}

// welcome hands a new connection to a loop.
func (s *Server) welcome(fd int, peer netip.AddrPort) {
	barred := s.bars(peer)
	if barred && (s.Elsewhere == nil || s.Shared == nil || !s.Shared()) {
		s.turnAway(fd, peer)
		return
	}
	s.mu.Lock()
	err := s.enter(&conn{s: s, fd: fd, peer: peer, barred: barred}, nil)
	s.mu.Unlock()
	if err != nil {
		s.complain(peer.Addr(), "closed a connection", "peer", peer, "err", err)
	}
}

// enter is welcome for a connection of which head was read. It is called with mu held.
func (s *Server) enter(c *conn, head []byte) error {
	for s.leaving == maxLeaving {
		s.less.Wait()
	}
	if s.closing {
		unix.Close(c.fd)
		return nil
	}
	if err := s.seat(c); err != nil {
		unix.Close(c.fd)
		return err
	}
	c.loop = s.loops[s.turn%len(s.loops)]
	s.turn++
	c.loop.post(letter{c: c, adopt: true, head: head})
	return nil
}

// maxLeaving bounds how far a flood can be ahead of the loops, which close the connections that have to make room. Who comes then waits in the
// kernel's queue.
const maxLeaving = 64

// errCrowded ends a connection that has to make room.
var errCrowded = errors.New("there is no room for more connections, and most are from its address")

// seat finds room for c, if need be that of another. It is called with mu held.
func (s *Server) seat(c *conn) error {
	out, full := s.clients.Enter(c, c.peer.Addr(), s.MaxClients)
	if !full {
		return nil
	}
	s.crowded++
	if out == c {
		return errCrowded
	}
	s.leaving++
	out.loop.post(letter{c: out, leave: true})
	return nil
}

// gone notes the end of a connection, with one line when it is worth one.
func (s *Server) gone(c *conn, err error) {
	if err != nil && !errors.Is(err, errGone) && !errors.Is(err, errMissing) {
		s.complain(c.peer.Addr(), "closed a connection", "peer", c.peer, "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.clients.Leave(c) {
		s.leaving--
		s.less.Signal()
	}
	if s.connections() == 0 && s.closing {
		s.noteEmpty()
	}
}

// spoke notes that a client has opened its connection.
func (s *Server) spoke(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients.Heard(c)
}

// connections is how many there are. It is called with mu held.
func (s *Server) connections() int { return s.clients.Len() + s.leaving }

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

func (s *Server) noteEmpty() {
	select {
	case <-s.empty:
	default:
		close(s.empty)
	}
}

// Clients returns the number of connections. A client of PyTorch 1.13 has two.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections()
}

// Crowded returns how many connections were closed, in all, to make room for others, or for want of it.
func (s *Server) Crowded() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.crowded
}

// Peers returns how many connections there are from each address.
func (s *Server) Peers() map[netip.Addr]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	peers := map[netip.Addr]int{}
	for c := range s.clients.All {
		peers[c.peer.Addr()]++
	}
	return peers
}

// Shutdown stops accepting, waits until the clients have gone of themselves, and ends the server. When ctx ends
// first, it closes the connections that are left and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.closeListeners()
	var err error
	select {
	case <-s.empty:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.stopping.Lock() // so that whoever comes second returns when all is gone, too
	defer s.stopping.Unlock()
	s.mu.Lock()
	loops := s.loops
	s.mu.Unlock()
	stopAll(loops)
	past := s.Tallies()
	s.mu.Lock()
	s.past, s.loops = past, nil
	s.mu.Unlock()
	return err
}

// Close closes the listeners and all connections and returns when they are gone. The store stays as it is.
func (s *Server) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Shutdown(ctx)
	return nil
}

func (s *Server) closeListeners() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prepare()
	if !s.closing {
		s.closing = true
		close(s.closed)
	}
	for ln := range s.listeners {
		_ = ln.Close()
	}
	if s.connections() == 0 {
		s.noteEmpty()
	}
}

// complain writes a line about a client. A flood of them is cut down to what a person can read, for each address by
// itself: one that floods does not hide what others do.
func (s *Server) complain(of netip.Addr, msg string, args ...any) {
	if unsaid, ok := s.gripes.allow(of, time.Now()); ok {
		if unsaid > 0 {
			args = append(args, "unsaid", unsaid)
		}
		s.Log.Warn("tcpstore: "+msg, args...)
	}
}

const (
	gripeBurst = 5                // lines about one address at once
	gripePause = 10 * time.Second // from one to the next in the long run
	maxGripes  = 64               // addresses that have lines of their own; the others share theirs
)

// gripes are the lines about each address. The zero value is ready.
type gripes struct {
	mu   sync.Mutex
	from map[netip.Addr]*gripe
}

// A gripe bounds the lines about one address.
type gripe struct {
	full   time.Time // when all of the burst will be there again
	unsaid int
}

// allow reports whether a line may be written, and how many about this address were not since the last.
func (g *gripes) allow(of netip.Addr, now time.Time) (unsaid int, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.about(of, now).allow(now)
}

// about finds what is known of an address, and makes room for a new one.
func (g *gripes) about(of netip.Addr, now time.Time) *gripe {
	if known := g.from[of]; known != nil {
		return known
	}
	if len(g.from) >= maxGripes {
		maps.DeleteFunc(g.from, func(_ netip.Addr, old *gripe) bool { return old.unsaid == 0 && old.full.Before(now) })
	}
	if len(g.from) >= maxGripes && of.IsValid() {
		return g.about(netip.Addr{}, now)
	}
	if g.from == nil {
		g.from = map[netip.Addr]*gripe{}
	}
	g.from[of] = &gripe{}
	return g.from[of]
}

func (g *gripe) allow(now time.Time) (unsaid int, ok bool) {
	if g.full.Before(now) {
		g.full = now
	}
	if g.full.Sub(now) >= gripeBurst*gripePause {
		g.unsaid++
		return 0, false
	}
	g.full = g.full.Add(gripePause)
	unsaid, g.unsaid = g.unsaid, 0
	return unsaid, true
}

// A replayed connection gives the bytes that were read of it before once more.
type replayed struct {
	net.Conn
	head []byte
}

func (r *replayed) Read(b []byte) (int, error) {
	if len(r.head) == 0 {
		return r.Conn.Read(b)
	}
	n := copy(b, r.head)
	r.head = r.head[n:]
	return n, nil
}

// NetConn is the connection below.
func (r *replayed) NetConn() net.Conn { return r.Conn }

// netConn makes fd, which it takes over, a connection of package net.
func netConn(fd int, head []byte) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "foreign")
	defer f.Close() // net.FileConn works on a duplicate
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("hand over a connection: %w", err)
	}
	return &replayed{Conn: c, head: head}, nil
}
