package tcpstore

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// A store may let in some addresses alone. Whoever comes from another is closed at once; of stores that are called by name he hears why, so that a
// node which was left out of a list can say so.

// notLetIn is what a client hears that is not let in. No greeting, and no call, is answered so.
var notLetIn = []byte("muster: your address is not let in\n")

// errBarred ends a connection that is not let in.
var errBarred = errors.New("its address is not among those that are let in")

// mostCall is as much as who is not let in may send to call for another store.
const mostCall = 4 << 10

// bars reports whether a connection from there is not let in.
func (s *Server) bars(peer netip.AddrPort) bool { return s.Admits != nil && !s.Admits(peer.Addr()) }

// turnAway closes a connection, which it takes over, without reading it.
func (s *Server) turnAway(fd int, peer netip.AddrPort) {
	s.sayBarred(fd)
	unix.Close(fd)
	s.complain(peer.Addr(), "closed a connection", "peer", peer, "err", errBarred)
}

// sayBarred says why a connection is closed. To PyTorch's clients, which call no store by name, that would be an answer, and a wrong one.
func (s *Server) sayBarred(fd int) {
	if s.Name != "" {
		_, _ = send(fd, notLetIn) // to who may have gone
	}
}
