package tcpstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Several stores share a port where their jobs share a host. A client that wants one of them calls for it by name: it asks for a key that no store
// has, so that any other, PyTorch's or an older muster's, says no and is not disturbed. Who serves at the port answers for its own name, and hands a
// connection that calls for another one over, to that store if it is on this machine.

// callKey and a name are the key.
const callKey = Prefix + "muster-call/"

// An Owner is whose a store is, as a call is answered.
type Owner byte

// The owners, by what answers CHECK.
const (
	Mine  Owner = iota // the store of that name
	Plain              // one that knows of no names
	Other              // another's, and the store of that name is not there
	Guest              // the store of that name, at a port that is another's
)

// ErrOther is wrapped when the store at an address is another one than that which was called for.
var ErrOther = errors.New("another job meets there, and of this one nobody hosts it yet")

// An otherError is ErrOther with the name that was called for, which a person may compare with that of the job there.
type otherError struct{ name string }

func (e *otherError) Error() string {
	return fmt.Sprintf("another job meets there, and of this one (%s) nobody hosts it yet", e.name)
}

func (e *otherError) Unwrap() error { return ErrOther }

// elsewhere is the error that ends a connection here, which calls for another store.
type elsewhere struct{ name string }

func (e *elsewhere) Error() string { return "the connection is for another store" }

// called answers a call; other: it is for another store.
func (c *conn) called(r *request, o *outbox) (known bool, other error) {
	if r.verb != check || c.s.Elsewhere == nil || c.legacy() || len(r.keys) != 1 {
		return false, nil
	}
	name, ok := strings.CutPrefix(string(r.keys[0]), callKey)
	switch {
	case !ok:
		return false, nil
	case name != c.s.Name:
		return false, &elsewhere{name}
	case c.barred:
		return false, nil
	case c.guest:
		o.byte(byte(Guest))
	default:
		o.byte(byte(Mine))
	}
	return true, nil
}

// passOn gives the connection to who looks for the store that it calls for.
func (l *loop) passOn(c *conn, name string, rest []byte) {
	c.leave()
	head := append(bytes.Clone(hello), rest...)
	if other := l.letGo(c, head); other != nil {
		l.s.Elsewhere(name, other)
	}
}

// Refuse answers a call for a store that is not to be found.
func Refuse(w interface{ Write([]byte) (int, error) }) { _, _ = w.Write([]byte{byte(Other)}) }

// Adopt serves a connection that another server handed over, which has read head of it. It takes fd over. A server may serve such connections alone.
func (s *Server) Adopt(fd int, head []byte) error {
	at, _ := unix.Getpeername(fd) // one that has gone has none
	peer := addrPort(at)
	if err := errors.Join(connection(fd), unix.SetNonblock(fd, true), s.adopts()); err != nil {
		unix.Close(fd)
		return err
	}
	if s.bars(peer) {
		s.turnAway(fd, peer)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enter(&conn{s: s, fd: fd, peer: peer, guest: true}, head)
}

// adopts makes the server ready, which may have no listener.
func (s *Server) adopts() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready()
}

// connection is an error where fd is no connection of TCP's, and could be anything.
func connection(fd int) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	kind, err2 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	protocol, err3 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	listens, err4 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	inet := domain == unix.AF_INET || domain == unix.AF_INET6
	tcp := kind == unix.SOCK_STREAM && (protocol == unix.IPPROTO_TCP || protocol == unix.IPPROTO_MPTCP)
	if err := errors.Join(err, err2, err3, err4); err != nil || !inet || !tcp || listens != 0 {
		return errors.Join(errors.New("what was handed over is no connection of TCP's"), err)
	}
	return nil
}

// call asks for the store that the client wants.
func (c *Client) callFor(ctx context.Context, l *link) (Owner, error) {
	if c.opt.Name == "" || len(l.numbers) != len(numbersV) {
		return Plain, nil
	}
	r := request{verb: check, keys: [][]byte{[]byte(callKey + c.opt.Name)}}
	_, reply, err := l.exchange(ctx, c.opt.ReplyTimeout, r.encode(nil, l.numbers), make([]byte, 1))
	switch owner := Owner(reply[0]); {
	case err != nil:
		return Plain, noAnswer(ctx, err)
	case reply[0] == notLetIn[0]:
		return Plain, ErrBarred
	case owner == Other:
		return owner, &otherError{c.opt.Name}
	case owner > Guest:
		return Plain, fmt.Errorf("%w: it answers CHECK with %#x", ErrNotStore, reply)
	default:
		return owner, nil
	}
}

// Ask calls once for the store of a name at an address, and reports whose the one there is. The error is that of a connection.
func Ask(ctx context.Context, addr, name string, within time.Duration) (Owner, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	c := New(addr, Options{Name: name, ReplyTimeout: within})
	defer c.end()
	l, err := c.reach(ctx)
	if err != nil {
		return Plain, err
	}
	defer l.Close()
	owner, err := c.callFor(ctx, l)
	if errors.Is(err, ErrOther) {
		err = nil
	}
	return owner, err
}
