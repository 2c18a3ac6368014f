package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// What may wait for one peer until it is given up.
const (
	maxQueue = 1024     // messages
	maxBytes = 16 << 20 // of messages
	maxBatch = 64 << 10 // bytes for one write, about
)

// A peer is the other end of a line, across all its connections.
type peer struct {
	fleet *Fleet
	rank  int
	ctx   context.Context // ends when the peer is lost, or the fleet stops
	stop  context.CancelFunc

	mu        sync.Mutex
	line      *line // the current connection; nil: none
	joined    bool
	life      int   // of its agent: how many there were before
	renewed   bool  // it has a new one since the last connection
	clock     Clock // of its machine
	spoke     bool  // since it joined
	left      bool  // it said goodbye
	lost      error // why it is lost
	told      bool  // that it is lost
	certain   bool  // that nobody goes on there
	gaveUp    bool  // it has said so of us
	suspected bool
	kept      bool          // beyond the node time-out
	busy      bool          // our reader waits for the launcher: its silence is ours
	heard     time.Time     // last sign of life
	broken    time.Time     // since when there is no connection
	knocking  int           // connections that are open and not answered yet,
	knocked   time.Time     // since when,
	hoped     time.Duration // and for how long there were such before, since there is no connection
	cause     error         // why the last connection broke, or could not be made
	closed    bool          // the last connection broke because the other side closed it, as its kernel does when it dies

	queue  []parcel // told and not acknowledged, by number
	bytes  int
	last   uint64          // number of the newest message in queue
	got    uint64          // number of the newest message from the peer
	ended  chan struct{}   // closed when the reader of the newest connection has returned; nil: none yet
	empty  chan struct{}   // closed when nothing is left to say; nil: nobody waits for it
	needs  chan struct{}   // a member's dialer: connect again
	trips  []time.Duration // the last round trips
	trip   time.Time       // when the last of them ended
	ways   []time.Duration // by how much our clock was ahead of the peer's when its last pings came: that, and their way here
	beat   json.RawMessage // what came last,
	beatAt time.Time       // and when
}

// A parcel is a message with its number, and when it was told, by our own clock.
type parcel struct {
	seq  uint64
	told int64
	message
}

// A line is one connection of a peer.
type line struct {
	net.Conn
	in      *bufio.Reader
	done    chan struct{} // closed when the connection is given up
	hung    sync.Once
	readEnd chan struct{} // closed when its reader has returned
	before  chan struct{} // closed when the reader before has returned; messages stay in order
	life    int           // the peer's, when it began

	// Guarded by the peer's mu.
	writing bool            // there is a writer
	written uint64          // number of the last message that was written here
	ack     bool            // owed
	ping    bool            // owed
	beat    json.RawMessage // owed, when not nil
	pong    int64           // owed, when not 0
}

func newPeer(f *Fleet, rank int) *peer {
	now := time.Now()
	ctx, stop := context.WithCancel(f.ctx)
	return &peer{fleet: f, rank: rank, ctx: ctx, stop: stop, heard: now, broken: now, needs: make(chan struct{}, 1)}
}

func (p *peer) String() string {
	if p.rank == 0 {
		return p.fleet.me.Leader.String()
	}
	return p.fleet.members[p.rank].String()
}

// tell puts a message behind those that the peer has not got yet.
func (p *peer) tell(m message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != nil || p.left && !m.Bye {
		return fmt.Errorf("fleet: %v is gone", p)
	}
	if len(p.queue) >= maxQueue || p.bytes+m.size() > maxBytes {
		p.lose(fmt.Errorf("%d messages wait for it and it does not take them", len(p.queue)))
		return fmt.Errorf("fleet: %v is gone: %w", p, p.lost)
	}
	p.post(m)
	p.speak()
	return nil
}

// post puts a message behind the others. It is called with mu held.
func (p *peer) post(m message) {
	p.last++
	p.queue = append(p.queue, parcel{p.last, p.fleet.clock(), m})
	p.bytes += m.size()
}

// silenced returns a channel that is closed when the peer has everything, or never will.
func (p *peer) silenced() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.empty = make(chan struct{})
	p.checkEmpty()
	return p.empty
}

// checkEmpty is called with mu held. Who left and closed its connection does not want to hear more.
func (p *peer) checkEmpty() {
	if p.empty == nil || len(p.queue) > 0 && p.lost == nil && !(p.left && p.line == nil) && p.joined {
		return
	}
	select {
	case <-p.empty:
	default:
		close(p.empty)
	}
}

// lose gives the peer up, for good. It is called with mu held.
func (p *peer) lose(why error) {
	if p.lost != nil {
		return
	}
	p.lost = why
	p.stop()
	p.queue, p.bytes = nil, 0
	p.line.reset()
	p.checkEmpty()
	poke(p.fleet.nudge)
}

func (p *peer) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line.hangUp()
}

// attach makes c the connection to the peer, in place of an older one, and resumes behind message got,
// the last that the peer has. It refuses a peer that was lost.
func (p *peer) attach(c net.Conn, in *bufio.Reader, got uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != nil {
		return p.lost
	}
	if got > p.last {
		return fmt.Errorf("it acknowledges message %d of %d", got, p.last)
	}
	l := &line{
		Conn: c, in: in, done: make(chan struct{}), readEnd: make(chan struct{}),
		before: p.ended, written: got, ping: true, life: p.life,
	}
	if !p.fleet.adopt(c) {
		return errStopped
	}
	p.acknowledged(got)
	p.line.hangUp()
	p.line, p.ended, p.heard = l, l.readEnd, time.Now()
	change, news, its := Joined, !p.joined || p.renewed, p.clock
	if p.joined {
		change = Renewed
	}
	p.joined, p.renewed = true, false
	first := Event{Change: change, Peer: p.rank, Host: host(l), Clock: its}
	p.fleet.owned.Go(func() { p.read(l, news, first) })
	p.speak()
	return nil
}

// renew takes note of the life of the peer's agent, and reports false for an older one. It is called with mu held.
func (p *peer) renew(life int) bool {
	if life > p.life && p.joined {
		p.anew()
	}
	p.life = max(life, p.life)
	return life == p.life
}

// anew begins everything anew with another agent: what was told and not heard dies with the old one, but for a goodbye.
func (p *peer) anew() {
	leaving := len(p.queue) > 0 && p.queue[len(p.queue)-1].Bye
	p.queue, p.bytes, p.last, p.got, p.renewed = nil, 0, 0, 0, true
	p.trips, p.ways = nil, nil
	if leaving {
		p.post(message{Bye: true})
	}
}

// detach notes that a connection broke.
func (p *peer) detach(l *line, why error) {
	closed := errors.Is(why, io.EOF) || errors.Is(why, io.ErrUnexpectedEOF) // a reset may come from somebody else
	if closed {
		l.hangUp()
	} else {
		l.reset()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line != l {
		return
	}
	p.line, p.cause, p.closed = nil, why, closed
	p.broken, p.hoped = time.Now(), 0
	p.knocked = p.broken
	p.checkEmpty()
	poke(p.needs)
}

func (l *line) hangUp() {
	if l != nil {
		l.hung.Do(func() {
			close(l.done)
			l.Close()
		})
	}
}

// reset is hangUp by one who goes on: to the peer it is no sign that nobody does.
func (l *line) reset() {
	if l == nil {
		return
	}
	if t, ok := bottom(l.Conn).(interface{ SetLinger(seconds int) error }); ok {
		_ = t.SetLinger(0)
	}
	l.hangUp()
}

// ended reports whether it is given up.
func (l *line) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// read takes in what the peer sends, until the connection ends. The first event is told if it is news.
func (p *peer) read(l *line, news bool, first Event) {
	defer close(l.readEnd)
	if l.before != nil {
		<-l.before
	}
	if news {
		first.Received = time.Now()
		p.fleet.inbox.put(first)
	}
	for {
		f, err := nextFrame(l.in)
		if err != nil {
			p.detach(l, err)
			return
		}
		if err := p.receive(l, f); err != nil {
			p.detach(l, err)
			return
		}
	}
}

// receive handles a frame. A message that came before, on an earlier connection, is dropped; one that
// is missing in between means that the peer is broken.
func (p *peer) receive(l *line, f frame) error {
	now := time.Now()
	fresh, took, err := p.note(l, f, now)
	if err != nil || !fresh {
		return err
	}
	e := Event{Change: Heard, Peer: p.rank, Received: now, Took: took}
	if f.Message.Bye {
		e.Change = Left
	} else {
		e.Message = Message{From: p.rank, Kind: f.Message.Kind, Body: f.Message.Body}
	}
	p.fleet.inbox.put(e)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy, p.heard = false, time.Now()
	l.ack = true
	p.speak()
	return nil
}

func (p *peer) note(l *line, f frame, now time.Time) (fresh bool, took time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.life != p.life {
		return false, 0, errOld
	}
	p.heard, p.spoke = now, true
	if f.Ack > p.last {
		return false, 0, fmt.Errorf("it acknowledges message %d of %d", f.Ack, p.last)
	}
	p.acknowledged(f.Ack)
	if len(f.Beat) > 0 && len(f.Beat) <= maxBeat {
		p.beat, p.beatAt = over(p.beat, f.Beat), now
	}
	if f.Pong != 0 {
		p.returned(now, now.Sub(p.fleet.started)-time.Duration(f.Pong))
	}
	if f.Ping != 0 {
		l.pong = f.Ping
		p.ways = among(p.ways, now.Sub(p.fleet.started)-time.Duration(f.Ping))
		p.speak()
	}
	if f.Message == nil {
		return false, 0, nil
	}
	fresh, err = p.number(l, f)
	return fresh, p.took(f.Told, now), err
}

// over writes a beat over the one before. Beats of a member are of much the same length, and a leader keeps one of each of ten thousand:
// no room is made for what a longer one might need.
func over(before, beat json.RawMessage) json.RawMessage {
	if cap(before) < len(beat) {
		before = make(json.RawMessage, 0, len(beat))
	}
	return append(before[:0], beat...)
}

// number checks that a message is the next one, and marks the reader as busy until it is handed on.
func (p *peer) number(l *line, f frame) (fresh bool, err error) {
	switch {
	case f.Seq <= p.got:
		l.ack = true
		p.speak()
		return false, nil
	case f.Seq > p.got+1:
		return false, fmt.Errorf("message %d came after message %d", f.Seq, p.got)
	}
	p.got = f.Seq
	p.left = p.left || f.Message.Bye
	p.busy = true
	return true, nil
}

// acknowledged forgets the messages that the peer has.
func (p *peer) acknowledged(seq uint64) {
	n := 0
	for n < len(p.queue) && p.queue[n].seq <= seq {
		p.bytes -= p.queue[n].size()
		n++
	}
	p.queue = slices.Delete(p.queue, 0, n)
	p.checkEmpty()
}

// returned notes a round trip. A negative one is the peer's invention.
func (p *peer) returned(now time.Time, d time.Duration) {
	if d < 0 {
		return
	}
	p.trips, p.trip = among(p.trips, d), now
}

// among puts d behind the last few.
func among(last []time.Duration, d time.Duration) []time.Duration {
	last = append(last, d)
	return slices.Delete(last, 0, max(0, len(last)-8))
}

// took is how long a message was on its way that was told at that time of the peer's own clock; 0: it does not say. The ping that came
// fastest of late tells what that clock shows now, but for the time that it took itself: half a round trip.
func (p *peer) took(told int64, now time.Time) time.Duration {
	least := p.rtt() / 2
	if told == 0 || len(p.ways) == 0 {
		return least
	}
	since := now.Sub(p.fleet.started)
	waited := since - time.Duration(told) - slices.Min(p.ways)
	return least + min(max(0, waited), since)
}

func (p *peer) rtt() time.Duration {
	if len(p.trips) == 0 {
		return 0
	}
	return slices.Min(p.trips)
}

// speak has what is owed and told written. It is called with mu held. A writer lives as long as it has something to say: ten thousand
// that wait would be dear.
func (p *peer) speak() {
	l := p.line
	if l == nil || l.writing || l.ended() {
		return
	}
	l.writing = true
	p.fleet.owned.Go(func() { p.write(l) })
}

// write sends what is owed and told. A peer that does not read for the node time-out is lost, however lively its pings are, unless it
// takes part in the world's work.
func (p *peer) write(l *line) {
	for b := p.outgoing(l); len(b) > 0; b = p.outgoing(l) {
		_ = l.SetWriteDeadline(time.Now().Add(p.fleet.NodeTimeout))
		if _, err := l.Write(b); err != nil {
			p.unsent(l, err)
			return
		}
	}
}

func (p *peer) unsent(l *line, err error) {
	if errors.Is(err, net.ErrClosed) { // by this side, and its reader knows why: because the peer did, perhaps
		return
	}
	var late net.Error
	if errors.As(err, &late) && late.Timeout() && !p.fleet.together(time.Now()) {
		p.mu.Lock()
		p.lose(fmt.Errorf("it has read nothing for %v", p.fleet.NodeTimeout))
		p.mu.Unlock()
	}
	p.detach(l, err)
}

// outgoing encodes the next frames for a connection. None ends its writer.
func (p *peer) outgoing(l *line) (b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	talk := frame{Pong: l.pong, Beat: l.beat}
	if l.ping {
		talk.Ping = p.fleet.clock()
	}
	if l.ack || l.ping {
		talk.Ack = p.got
	}
	if l.ack || l.ping || l.beat != nil || l.pong != 0 {
		b = appendTalk(b, talk)
	}
	l.ack, l.ping, l.beat, l.pong = false, false, nil, 0
	for _, m := range p.queue {
		if m.seq > l.written && len(b) < maxBatch {
			b = appendFrame(b, frame{Seq: m.seq, Told: m.told, Message: &m.message})
			l.written = m.seq
		}
	}
	l.writing = len(b) > 0
	return b
}

// host returns the remote address without the port.
func host(c net.Conn) string {
	addr := c.RemoteAddr().String()
	if h, _, err := net.SplitHostPort(addr); err == nil {
		return h
	}
	return addr
}

// ended names what a reader's end means to a person.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("it closed the connection")
	}
	return err
}
