// Package fleet keeps the agents of one world in touch: a failure is told to all at once.
//
// Group rank 0 leads: every other agent keeps one connection to it. What a member tells goes to the
// leader; what the leader tells goes to all members. The fleet does not know what the messages mean.
//
// A message is kept until the other side has it, so a connection that breaks and is dialled again within a
// quarter of a second loses nothing and is nobody's death. A peer that does not come back, or has been
// silent for the node time-out, is lost: for good, in this world.
package fleet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/muster-run/muster/crowd"
	"github.com/muster-run/muster/job"
)

// Magic is how every connection to a fleet's leader begins, so that one port can serve others too.
const Magic = "MUSTER\x00\x01"

// Protocol is the version of the frames. Agents talk when theirs differ by at most one.
const Protocol = 2

// MaxMessage bounds a message on the wire, in bytes.
const MaxMessage = 1 << 20

// A Message is what one agent tells another. Body is JSON of the teller's choice.
type Message struct {
	From int // group rank of the agent that sent it, as its connection proved
	Kind string
	Body json.RawMessage
}

// A Change is what an [Event] is about.
type Change int

// The changes. Between Joined and Lost or Left of one peer come its messages, in the order they were told.
const (
	Joined  Change = iota // the peer is connected for the first time
	Heard                 // a message came
	Suspect               // nothing was heard for Options.Suspect, connected or not; and again when it is kept beyond the node time-out by Options.Together
	Back                  // a suspect was heard again
	Lost                  // the peer is gone without a goodbye
	Left                  // the peer said goodbye
	Renewed               // another agent took the peer's over: what was told and not heard is lost, and to be told again
)

func (c Change) String() string {
	return [...]string{"joined", "heard", "suspect", "back", "lost", "left", "renewed"}[c]
}

// An Event is something that happened to one peer.
type Event struct {
	Change   Change
	Peer     int           // its group rank
	Host     string        // Joined: the address from which, or at which, it was reached
	Message  Message       // Heard
	Why      error         // Suspect, Lost: the reason
	Received time.Time     // when we noticed, by our clock; of a message: when it came in
	Took     time.Duration // Heard: how long the message took from there, with what it waited for lost packets and connections; 0: not known yet
	Clock    Clock         // Joined, to the leader: the peer's

	Beat json.RawMessage // Lost: what Options.Beat of the peer last said; nil: nothing
	// Certain: Lost, and nobody runs there any more who takes himself for the peer: its connection was closed and not opened
	// again, or it is the one which gave us up. Else it may be cut off, or stand still, and go on.
	Certain bool
	GaveUp  bool      // Lost: it lives, and said that it gave us up, or has left the world
	Last    time.Time // Suspect, Lost: when it last gave a sign of life
}

// A Clock is a peer's, as it was when it joined. The zero Clock is not known.
type Clock struct {
	Ahead  time.Duration // of ours; negative: behind it
	Within time.Duration // how far off that may be: half of the time in which it was asked
}

// Options tune a fleet. The zero value is ready for use.
type Options struct {
	NodeTimeout time.Duration // silence after which a peer is lost; 0: 10 s
	Suspect     time.Duration // silence after which it is suspect; 0: 3 s, or the node time-out if that is less
	Redial      time.Duration // how long a closed connection may stay closed; 0: 250 ms
	Arrival     time.Duration // how long a member may take to join, for the leader, and for itself when it comes back; 0: 30 s
	Log         *slog.Logger  // strangers, redials; nil: none
	// Token is the job's, which only its nodes have: to know the world's nonce, as all do who can read the store, is then not
	// enough, and what agents tell each other is encrypted.
	Token string
	// Life is how many agents of this node there were before this one, which takes over from the last.
	Life int
	// Hold keeps a connection open beyond this process's death, until free; nil: the peer sees that it breaks.
	Hold func(net.Conn) (free func())
	// Beat says, about once a second, how this agent stands, in at most 64 KiB, and less of a leader, which tells all: its peers
	// have what it said last by Beats, and when it is lost. nil: nothing.
	Beat func() json.RawMessage
	// Together is the last moment of which it is known that all nodes took part in the world's work, zero: of none; nil: it is never known.
	// Of a peer that is silent or cannot be reached it is a sign of life, as what it does needs not go by the way that we take to it.
	Together func() time.Time
	// Now is this machine's clock on the wall; nil: time.Now.
	Now func() time.Time
	// Dial connects to the leader; nil: TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.NodeTimeout, 10*time.Second)
	def(&o.Suspect, min(3*time.Second, o.NodeTimeout))
	def(&o.Redial, 250*time.Millisecond)
	def(&o.Arrival, 30*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Dial == nil {
		o.Dial = dialTCP(o.NodeTimeout)
	}
	return o
}

// A Fleet is one agent's line to the others of its world: to all members on the leader, to the leader on a member.
type Fleet struct {
	Options
	me      job.Seat
	members []job.Member  // of the world, on the leader
	peers   map[int]*peer // never changed after construction
	started time.Time
	host    string      // where Follow reached the leader
	tls     *tls.Config // of its channels; nil: the job has no token

	inbox   *inbox
	events  chan Event
	gripes  gripes
	nudge   chan struct{}   // wakes mind before its time
	closing chan struct{}   // closed when nobody listens to events any more
	ctx     context.Context // ends when all goroutines are to end
	stop    context.CancelFunc
	close   sync.Once
	owned   sync.WaitGroup // every goroutine

	mu       sync.Mutex
	stopping bool
	guests   crowd.Crowd[net.Conn] // connections that have not proved who they are

	// Of mind alone.
	woke   time.Time     // when this agent went on after it had stood still,
	away   time.Duration // for so long
	remind time.Time     // when to name the members that have not called
}

func newFleet(seat job.Seat, o Options) *Fleet {
	ctx, stop := context.WithCancel(context.Background())
	now := time.Now()
	f := &Fleet{
		Options: o.withDefaults(), me: seat, peers: map[int]*peer{}, started: now, remind: now.Add(firstRemind),
		inbox: newInbox(), events: make(chan Event, maxReady), nudge: make(chan struct{}, 1),
		closing: make(chan struct{}), ctx: ctx, stop: stop,
	}
	if f.Token != "" {
		f.tls = newTLS(seat.Rank == 0)
	}
	return f
}

// Lead opens the fleet of w on the agent of group rank 0. Connections come by [Fleet.Handle].
// A member that has not joined after Options.Arrival is lost.
func Lead(w job.World, o Options) *Fleet {
	f := newFleet(job.Seat{Job: w.ID, Nonce: w.Nonce, Generation: w.Generation, Leader: w.Members[0].Node}, o)
	f.members = w.Members
	for rank := 1; rank < len(w.Members); rank++ {
		f.peers[rank] = newPeer(f, rank)
	}
	f.owned.Go(f.mind)
	f.owned.Go(f.deliver)
	return f
}

// Follow connects the agent that has a seat to the leader of its world, at whichever address answers first and proves
// that it belongs to this world. It tries until ctx ends; afterwards ctx means nothing to the fleet.
func Follow(ctx context.Context, seat job.Seat, o Options) (*Fleet, error) {
	f, d, err := follower(seat, o)
	if err != nil {
		return nil, err
	}
	if err := d.first(ctx); err != nil {
		f.inbox.close()
		f.stop()
		f.owned.Wait()
		return nil, fmt.Errorf("fleet: reach the leader, %v: %w", seat.Leader, err)
	}
	f.follow(d)
	return f, nil
}

// Rejoin is Follow for an agent that takes over from one which was connected: it waits for nothing. What is told goes out as
// soon as there is a connection; a leader that is not reached within Options.Arrival is lost.
func Rejoin(seat job.Seat, o Options) (*Fleet, error) {
	f, d, err := follower(seat, o)
	if err != nil {
		return nil, err
	}
	poke(d.peer.needs)
	f.follow(d)
	return f, nil
}

func follower(seat job.Seat, o Options) (*Fleet, *dialer, error) {
	if seat.Rank < 1 {
		return nil, nil, fmt.Errorf("fleet: group rank %d cannot follow", seat.Rank)
	}
	f := newFleet(seat, o)
	leader := newPeer(f, 0)
	f.peers[0] = leader
	return f, newDialer(f, leader, seat.Leader.Addrs), nil
}

// follow watches over the leader and the connection to it.
func (f *Fleet) follow(d *dialer) {
	f.owned.Go(f.mind)
	f.owned.Go(f.deliver)
	f.owned.Go(d.keep)
}

// Heard is when the peer was heard that has been silent for longest, of those that have joined and are not lost; zero: nobody was. One that is waited
// for, as its workers take part in collectives, counts as heard now.
func (f *Fleet) Heard() time.Time {
	var first time.Time
	for _, p := range f.peers {
		p.mu.Lock()
		heard := p.heard
		if p.kept {
			heard = time.Now()
		}
		if p.joined && p.lost == nil && !p.left && (first.IsZero() || heard.Before(first)) {
			first = heard
		}
		p.mu.Unlock()
	}
	return first
}

// Beats passes what Options.Beat of each peer last said, and when that came, by our clock. A peer that said nothing since it
// joined has none. The beat is not valid after each has returned, and each does not call the fleet.
func (f *Fleet) Beats(each func(rank int, beat json.RawMessage, at time.Time)) {
	for rank, p := range f.peers {
		p.beats(rank, each)
	}
}

func (p *peer) beats(rank int, each func(rank int, beat json.RawMessage, at time.Time)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.beat != nil {
		each(rank, p.beat, p.beatAt)
	}
}

// LeaderHost returns the address, without port, at which Follow reached the leader; else "".
func (f *Fleet) LeaderHost() string { return f.host }

// Events tells what happens. A reader may be slow: what it has not read is kept, and messages beyond a bound are left
// with their tellers; neither looks like silence, on this side or on the other. The channel is closed by [Fleet.Close].
func (f *Fleet) Events() <-chan Event { return f.events }

// Tell sends a message to the leader, or from the leader to all members: now, or as soon as they are connected.
// It does not wait. A peer that lets too much pile up is lost. The error is about the message itself, or, on a
// member, that there is no leader any more.
func (f *Fleet) Tell(kind string, body any) error {
	m, err := encodeMessage(kind, body)
	if err != nil {
		return err
	}
	for rank, p := range f.peers {
		if err = p.tell(m); err != nil && rank == 0 {
			return err
		}
	}
	return nil
}

// TellOne sends a message to one peer only.
func (f *Fleet) TellOne(rank int, kind string, body any) error {
	p, ok := f.peers[rank]
	if !ok {
		return fmt.Errorf("fleet: no line to group rank %d", rank)
	}
	m, err := encodeMessage(kind, body)
	if err != nil {
		return err
	}
	return p.tell(m)
}

// clock is this agent's own: nanoseconds since the fleet began, at least one.
func (f *Fleet) clock() int64 { return max(1, int64(time.Since(f.started))) }

// sleep waits, or until the fleet stops.
func (f *Fleet) sleep(d time.Duration) {
	select {
	case <-f.ctx.Done():
	case <-time.After(d):
	}
}

// Close says goodbye to all peers, gives them up to a second to take what is still unsaid, and ends every
// goroutine of the fleet. Events that nobody has read are dropped.
func (f *Fleet) Close() error {
	f.close.Do(func() {
		close(f.closing)
		f.inbox.close()
		f.farewell(time.Second)
		f.hangUp()
		f.stop()
		f.owned.Wait()
		f.sumUp()
		close(f.events)
	})
	return nil
}

// farewell sends everybody the goodbye and waits until they have it.
func (f *Fleet) farewell(patience time.Duration) {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for _, p := range f.peers {
		_ = p.tell(message{Bye: true})
	}
	for _, p := range f.peers {
		select {
		case <-p.silenced():
		case <-limit.C:
			return
		}
	}
}

func (f *Fleet) hangUp() {
	f.mu.Lock()
	f.stopping = true
	for c := range f.guests.All {
		c.Close()
	}
	f.mu.Unlock()
	for _, p := range f.peers {
		p.hangUp()
	}
}

var errStopped = errors.New("the fleet is closed")
