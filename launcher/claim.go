package launcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/ports"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/tcpstore"
)

// Several jobs share a host's network, and platforms give all of them one port, or none. Each meets there: the agent that was first listens, and hands
// over connections that call for another job to the agent that has the port claimed for it. When the first ends, one of the others listens. Who hosts
// a job at a port of a machine is who has the claim, so there is never a second one, and where its nodes meet never changes.

// A stand is where a node hosts the store.
type stand struct {
	ln    net.Listener // nil: another job's agent listens at the port
	claim net.Listener // nil: the machine has none
}

func (s stand) close() {
	for _, ln := range []net.Listener{s.ln, s.claim} {
		if ln != nil {
			ln.Close()
		}
	}
}

// nobody is a name that no store is called by: that of a job is at most 256 bytes long.
var nobody = strings.Repeat("-", 257)

// reaching are the options of a client that wants this job's store.
func (m *meeting) reaching(progress func(tcpstore.Attempt)) tcpstore.Options {
	return tcpstore.Options{Name: m.spec.ID, Progress: progress}
}

// take takes the endpoint's port, or a part in it where another job's agent listens. The error is EADDRINUSE while it is neither free nor shared.
func (m *meeting) take(ctx context.Context) (stand, error) {
	claim, err := m.claims()
	if err != nil {
		return stand{}, err
	}
	ln, err := net.Listen("tcp", m.storeAddr())
	if err == nil {
		return stand{ln, claim}, nil
	}
	stand{claim: claim}.close() // an answer may take a while, and other agents of this job may ask, too
	if !errors.Is(err, syscall.EADDRINUSE) || claim == nil {
		return stand{}, err
	}
	switch owner, wrong := m.whose(ctx); {
	case wrong == nil && owner == tcpstore.Other:
		claim, err = m.claims()
		return stand{claim: claim}, err
	case m.mute(wrong):
		return stand{}, errMute
	}
	return stand{}, err
}

// claims claims the port for this job. The error is EADDRINUSE while another agent has that claim; nil without a listener: the machine has none.
func (m *meeting) claims() (net.Listener, error) {
	claim, err := ports.Claim(number(portOf(m.port)), m.spec.ID)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, errClaimed
	case err != nil:
		m.c.Log.Debug(fmt.Sprintf("other jobs cannot share port %s: %v", portOf(m.port), err))
		return nil, nil
	}
	return claim, nil
}

// errClaimed is an EADDRINUSE of this job's own: an agent on this machine hosts its meeting, however long it takes to answer.
var errClaimed = fmt.Errorf("another agent of this job has the port: %w", syscall.EADDRINUSE)

// errMute is an EADDRINUSE of an agent that does not say whether it shares the port.
var errMute = fmt.Errorf("another job's agent has the port, and does not answer: %w", syscall.EADDRINUSE)

const (
	askTime    = 3 * time.Second  // for the word of a store about whose it is
	longTime   = 12 * time.Second // for that of an agent, whose machine may be busy
	handedTime = 30 * time.Second // for the first connection that another job hands over
)

// whose asks who listens at the port. One who listens on loopback alone is no help to a job whose nodes are on other machines.
func (m *meeting) whose(ctx context.Context) (tcpstore.Owner, error) {
	at, within := m.hereabouts(), askTime
	if mine := slices.DeleteFunc(interfaceIPs(), func(ip net.IP) bool { return !ip.IsGlobalUnicast() }); len(mine) > 0 && !isLoopback(hostOf(m.port)) {
		at = net.JoinHostPort(mine[0].String(), portOf(m.port))
	}
	if m.shared() {
		within = longTime
	}
	return tcpstore.Ask(ctx, at, nobody, within)
}

// shared reports whether other jobs have a claim on the port.
func (m *meeting) shared() bool { return ports.Shared(number(portOf(m.port)), m.spec.ID) }

// mute reports whether an error of whose is the silence of another job's agent. What other programs there may be have no claim.
func (m *meeting) mute(err error) bool {
	return (errors.Is(err, tcpstore.ErrNoAnswer) || errors.Is(err, context.DeadlineExceeded)) && m.shared()
}

// incumbents are the processes that host this job's store on this machine, as far as /proc shows them to us: who has its claim, where another job's
// agent may listen at the port.
func (m *meeting) incumbents() []int {
	port := number(portOf(m.port))
	if all := ports.Claimants(port, m.spec.ID); len(all) > 0 {
		return all
	}
	return ports.Holders(port)
}

// hereabouts is the endpoint as this machine reaches it.
func (m *meeting) hereabouts() string {
	host, port, _ := net.SplitHostPort(m.storeAddr())
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// inheritedStand is where an agent before this one hosted the store; the zero value: nowhere.
func (m *meeting) inheritedStand() (s stand, err error) {
	if s.ln, err = m.inherited(heldStore); err == nil {
		s.claim, err = m.inherited(heldClaim)
	}
	if err != nil {
		s.close()
	}
	return s, err
}

// serveStore serves the store at a stand, and takes the port when it is free, until the meeting leaves the store. broke is called should that fail.
func (m *meeting) serveStore(s stand, kept []byte, broke func()) {
	server := &tcpstore.Server{Log: m.c.Log, Magic: fleet.Magic, Foreign: m.door.handle, Store: rendezvous.Host(tcpstore.Prefix, m.spec.ID, kept, m.remember),
		Name: m.spec.ID, Elsewhere: m.elsewhere, Admits: m.c.admits(), Shared: m.sharing()}
	m.server = server
	m.desk.hosts(server)
	ctx, cancel := context.WithCancel(context.Background())
	if s.claim != nil {
		free := m.hold(heldClaim, s.claim)
		m.run(func() { m.adopt(s.claim, server) }, func() { free(); s.claim.Close() })
	}
	free := func() {}
	if s.ln != nil {
		free = m.hold(heldStore, s.ln)
	}
	m.run(func() {
		ln := s.ln
		if ln == nil {
			if ln = m.awaitPort(ctx); ln == nil {
				return
			}
			defer m.hold(heldStore, ln)()
		}
		if err := server.Serve(ln); !errors.Is(err, tcpstore.ErrServerClosed) {
			m.c.Log.Error(fmt.Sprintf("the meeting point that this node hosts broke down: %v", err))
			broke()
		}
	}, func() { free(); cancel(); m.shut(server) })
}

// How many connections may be under way to a claim at once: those of this agent's user and of root, which wait for each other, and those of others, which
// are turned away where there are more of them, and come again. A container may well run as another user than the next one, and what it hands over could
// as well have come to the port; but one that says nothing shall be in nobody's way.
const (
	mostTrusted = 32
	mostOthers  = 8
)

// adopt serves what comes by a claim until that is closed.
func (m *meeting) adopt(claim net.Listener, server *tcpstore.Server) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var loud sparing
	trusted, others := make(chan bool, mostTrusted), make(chan bool, mostOthers)
	receive := func(c net.Conn, room <-chan bool) {
		defer func() { <-room }()
		h, err := ports.Receive(ctx, c)
		if err == nil {
			m.beside.Store(&h.From)
			err = server.Adopt(h.FD, h.Head)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, tcpstore.ErrServerClosed) {
			m.c.Log.Log(ctx, loud.level(), fmt.Sprintf("a connection that another job handed over was lost: %v", err))
		}
	}
	accept(claim, m.c.Log, func(c net.Conn) {
		room := others
		if ports.Trusted(c) {
			room = trusted
			room <- true
		} else {
			select {
			case room <- true:
			default:
				c.Close()
				return
			}
		}
		all.Go(func() { receive(c, room) })
	})
	cancel()
	all.Wait()
}

// sparingTime is between two warnings of one kind.
const sparingTime = time.Minute

// A sparing warns once in a while. The zero value has not.
type sparing struct{ last atomic.Pointer[time.Time] }

// level is that at which a line is written now.
func (s *sparing) level() slog.Level {
	now, last := time.Now(), s.last.Load()
	if last != nil && now.Sub(*last) < sparingTime || !s.last.CompareAndSwap(last, &now) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// portTime is between two looks whether the port is free.
const portTime = 200 * time.Millisecond

// muteEach is between two questions to who listens at the port, whether it still hands over.
const muteEach = 10 * time.Second

// awaitPort waits until the job that listens at the port has ended; nil: this one ended before.
func (m *meeting) awaitPort(ctx context.Context) net.Listener {
	m.c.Log.Info(fmt.Sprintf("port %s is %s, which hands over what calls for this one", portOf(m.port), m.whoseAgent()))
	mute, asks := false, time.NewTicker(muteEach)
	defer asks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-asks.C:
			if _, err := m.whose(ctx); m.mute(err) != mute {
				mute = !mute
				m.sayMute(mute)
			}
		case <-time.After(portTime):
		}
		if ln, err := net.Listen("tcp", m.storeAddr()); err == nil {
			m.c.Log.Debug("the other job has ended: this one has the port now")
			return ln
		}
	}
}

// sayMute says that nobody new comes in, or that it is over.
func (m *meeting) sayMute(mute bool) {
	if !mute {
		m.c.Log.Info(fmt.Sprintf("port %s: the other job's agent answers again", portOf(m.port)))
		return
	}
	who, cure := m.listener()
	m.c.Log.Warn(fmt.Sprintf("port %s is %s, whose agent%s does not answer, and nobody new reaches this job; %s", portOf(m.port), m.whoseAgent(), who, cure))
}

// elsewhere hands a connection over that calls for another job.
func (m *meeting) elsewhere(name string, c net.Conn) {
	if name != nobody {
		m.beside.Store(&name)
	}
	go func() {
		defer c.Close()
		if err := ports.HandOver(context.Background(), number(portOf(m.port)), m.spec.ID, name, c); err != nil {
			tcpstore.Refuse(c) // it comes again
		}
	}()
}

// lives reports whether the agent of a node answers. At a port that another job has now, it does not.
func (m *meeting) lives(ctx context.Context, n job.Node) bool {
	var addrs []job.Addr
	for _, a := range n.Addrs {
		if portOf(a) == portOf(m.port) {
			owner, err := tcpstore.Ask(ctx, string(a), m.spec.ID, askTime)
			if errors.Is(err, tcpstore.ErrBarred) { // it would not let us in, were it not there
				return true
			}
			if err == nil && (owner == tcpstore.Other || owner == tcpstore.Guest) {
				continue
			}
		}
		addrs = append(addrs, a)
	}
	return fleet.Answers(ctx, addrs, m.c.sim.dial)
}

// portOf is the port of an endpoint.
func portOf(a job.Addr) string {
	_, port, _ := net.SplitHostPort(string(a))
	return port
}
