package rendezvous

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous/store"
)

// A Session is this node's part in a world, from the agreement to the end.
//
// The store carried the meeting only. While the world lives, the leader, group rank 0, counts up one key so
// that newcomers see that the job runs; losing the store then ends nothing.
type Session struct {
	World job.World // its Members are the first 32 until [Session.Unpack], but all for group rank 0
	Rank  int       // group rank of this node

	self      string // incarnation
	rest      packed
	protocol  int // the lowest of those who met
	meeting   shelf
	newcomers chan int
	waits     atomic.Int64  // how many wait for the world's end, as was last heard
	rounds    atomic.Int64  // of the job that are over if the world ends now; 0: nobody counts
	counted   chan struct{} // has one when that changed
	began     time.Time
	heard     atomic.Int64 // when the store took word that the world lives, last: nanoseconds since then; 0: it has not
	stop      context.CancelFunc
	vouches   bool          // this is not group rank 0, and counts the world's key up
	stopped   chan struct{} // closed when the key is not counted up any more
}

func begin(s *Session) *Session {
	ctx, stop := context.WithCancel(context.Background())
	s.newcomers, s.stop, s.stopped, s.counted = make(chan int, 1), stop, make(chan struct{}), make(chan struct{}, 1)
	s.began = time.Now()
	if s.Rank != 0 {
		close(s.stopped)
		return s
	}
	go s.live(ctx)
	return s
}

// Resume is the session of a node whose agent took the place of one that died. Where the store came back empty, group rank 0
// makes the world known in it again.
func Resume(s store.Store, w job.World, rank int) *Session {
	return begin(&Session{World: w, Rank: rank, self: w.Members[rank].Incarnation, meeting: shelf{Store: s}})
}

// Seat is this node's place, for which it need not know all members.
func (s *Session) Seat() job.Seat {
	w := s.World
	return job.Seat{Job: w.ID, Nonce: w.Nonce, Generation: w.Generation, Rank: s.Rank, Incarnation: s.self, Leader: w.Members[0].Node}
}

// Unpack completes the World with all its members, whose lines most nodes need not read to begin.
func (s *Session) Unpack() error {
	if len(bytes.TrimSpace(s.rest.lives)) == 0 { // as on group rank 0, where others look at the World already
		return nil
	}
	w := world{s.World, s.rest}
	if err := w.unpack(); err != nil {
		return fmt.Errorf("rendezvous: %w", err)
	}
	s.World, s.rest = w.World, w.rest
	return nil
}

// Newcomers delivers how many nodes wait for the next world, each time that this changes, on group rank 0. Who does not
// listen finds the latest number.
func (s *Session) Newcomers() <-chan int { return s.newcomers }

// Awaited is how many nodes wait for the end of this world, as group rank 0 heard last: those too who would not be in the next one, as another agent has
// their place.
func (s *Session) Awaited() int { return int(s.waits.Load()) }

// Unheard is for how long the store has not taken word that this world lives, on group rank 0, and whether it ever has since this agent is in it.
// Others who come to the store may believe by then that it does not.
func (s *Session) Unheard() (quiet time.Duration, heard bool) {
	last := time.Duration(s.heard.Load())
	return time.Since(s.began) - last, last > 0
}

// Count says how many rounds count as over if this world is lost with all its members. Those who come after that have heard it from nobody, and would
// number theirs as others were. It is told on group rank 0, and by who vouches for the world.
func (s *Session) Count(rounds int) {
	if s.rounds.Swap(int64(rounds)) != int64(rounds) {
		s.recount()
	}
}

// recount has it told.
func (s *Session) recount() {
	select {
	case s.counted <- struct{}{}:
	default: // it is due
	}
}

// record leaves it in the store, unless more are known there.
func (s *Session) record(ctx context.Context) error {
	rounds := int(s.rounds.Load())
	there, err := readRounds(ctx, s.meeting)
	if err != nil || there >= rounds {
		return err
	}
	return s.meeting.put(ctx, keyRounds, []byte(strconv.Itoa(rounds)))
}

// live counts up the world's key each beat. A store that does not answer is asked again at the next beat.
func (s *Session) live(ctx context.Context) {
	defer close(s.stopped)
	ticks := time.NewTicker(beat)
	defer ticks.Stop()
	var next queue
	var last []byte
	for {
		known := s.known(ctx)
		here := known || s.publish(ctx) == nil
		switch {
		case here && s.Rank == 0:
			if _, err := s.meeting.add(ctx, keyAlive, 1); err == nil { // else at the next beat
				s.heard.Store(max(1, int64(time.Since(s.began))))
			}
			s.announce(&next, next.look(ctx, s.next(ctx)))
		case here:
			last = s.vouch(ctx, last)
		}
		if !known {
			s.recount()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		case <-s.counted:
			if !here || s.record(ctx) != nil {
				s.recount() // at the next beat
			}
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
		}
	}
}

// Vouch makes this node say that the world lives, until Close, as group rank 0 does: that one is lost, and workers are left here. A store that came back
// empty, as it does with a host that led, hears of the world from nobody else.
func (s *Session) Vouch() {
	if s.Rank == 0 || s.vouches || s.meeting.Store == nil {
		return
	}
	s.stop()
	ctx, stop := context.WithCancel(context.Background())
	s.vouches, s.stop, s.stopped = true, stop, make(chan struct{})
	go s.live(ctx)
}

// vouch counts the world's key up, unless another member has since it was last read. It returns how the key stands.
func (s *Session) vouch(ctx context.Context, last []byte) []byte {
	b, _, err := s.meeting.peek(ctx, keyAlive)
	if err != nil || !bytes.Equal(b, last) {
		return b
	}
	n, _ := s.meeting.add(ctx, keyAlive, 1) // else at the next beat
	return strconv.AppendInt(nil, n, 10)
}

// next is the meeting for the next world. It has a higher number than that after ours where somebody waits who was in such a world, of an earlier life
// of the store.
func (s *Session) next(ctx context.Context) shelf {
	lives, _ := s.meeting.above()
	next := lives.meeting(s.World.Generation + 1)
	b, found, err := lives.peek(ctx, keyGeneration)
	if g, wrong := number(keyGeneration, b); found && cmp.Or(err, wrong) == nil && g > s.World.Generation+1 {
		if after, _, _ := lives.meeting(g).peek(ctx, keyAfter); string(after) == strconv.Itoa(s.World.Generation) {
			return lives.meeting(g)
		}
	}
	return next
}

// known reports whether the store knows of this world, as far as it says: it may have come back empty.
func (s *Session) known(ctx context.Context) bool {
	if s.meeting.prefix == "" {
		return false
	}
	known, err := s.meeting.Check(ctx, s.meeting.prefix+keyOutcome)
	return known || err != nil
}

// A queue is the meeting for the next world, as the present one sees it.
type queue struct {
	watch
	told  int
	waits int
}

// look counts those who wait. What is not known changes nothing.
func (q *queue) look(ctx context.Context, meeting shelf) int {
	b, found, err := meeting.peek(ctx, keySummary)
	if err != nil {
		return q.told
	}
	var s summary
	if found {
		if s, err = decode[summary](b, maxSummary); err != nil {
			return q.told
		}
	}
	if q.waits = 0; s.Resigned || q.silent(fmt.Sprint(s.Epoch, s.Beat)) {
		return 0
	}
	q.waits = max(s.Count, s.Waits, 0)
	return max(s.Count, 0)
}

func (s *Session) announce(q *queue, waiting int) {
	s.waits.Store(int64(q.waits))
	if waiting == q.told {
		return
	}
	q.told = waiting
	select {
	case <-s.newcomers: // nobody has seen it
	default:
	}
	s.newcomers <- waiting
}

// publish makes the world known again, for those who come late.
func (s *Session) publish(ctx context.Context) error {
	n := s.node(s.World.Generation - 1)
	root, err := n.root(ctx)
	if err != nil {
		return err
	}
	meeting := root.meeting(s.World.Generation)
	if err := s.describe(ctx, meeting); err != nil { // before others find its generation, and move on from it
		return err
	}
	if _, err := n.current(ctx, root); err != nil {
		return err
	}
	s.meeting = meeting
	return nil
}

// bury makes the world known again, of which it is to be said that it is over. Whoever meets under its generation, and knows of none, goes on
// in the next one first.
func (s *Session) bury(ctx context.Context) error {
	n := s.node(s.World.Generation)
	root, err := n.root(ctx)
	if err != nil {
		return err
	}
	if _, err := n.current(ctx, root); err != nil {
		return err
	}
	meeting := root.meeting(s.World.Generation)
	if err := s.describe(ctx, meeting); err != nil {
		return err
	}
	s.meeting = meeting
	return nil
}

// node is this one, when all generations up to one are behind it.
func (s *Session) node(seen int) *node {
	return &node{store: s.meeting.Store, spec: job.Spec{ID: s.World.ID}, seen: seen, before: past{world: &world{s.World, s.rest}, protocol: s.protocol}}
}

// describe says in a meeting that this world came of it, unless somebody has.
func (s *Session) describe(ctx context.Context, meeting shelf) error {
	o := outcome{Protocol: s.protocol, World: &world{s.World, s.rest}}
	return o.retell(ctx, meeting)
}

// Kept is this world as a store begins with it that this node hosts in the place of one that is gone: see [Host]. It is for who has all
// members.
func (s *Session) Kept() ([]byte, error) {
	b, err := encodeOutcome(&outcome{Protocol: s.protocol, World: &world{s.World, s.rest}})
	if err != nil {
		return nil, err
	}
	return json.Marshal(decision{Incarnation: []byte(random()), Generation: s.World.Generation, Outcome: b})
}

// Close ends this node's part without a word: newcomers find out by its silence.
func (s *Session) Close() error {
	s.stop()
	<-s.stopped
	return nil
}

// End says how the world ended, so that whoever waits for the next one need not find out by silence. Where the store came back
// empty, or another agent had this node's place, it is said where others look for it now.
// Any member may say it; the first word stands. The error is the store's, and no reason to do anything. Who has no store has nowhere to say it.
func (s *Session) End(ctx context.Context, how Over) error {
	_ = s.Close()
	if s.meeting.Store == nil {
		return nil
	}
	how.Generation = s.World.Generation
	if err := s.sayOver(ctx, how); err != nil {
		return fmt.Errorf("rendezvous: end generation %d: %w", s.World.Generation, err)
	}
	return nil
}

func (s *Session) sayOver(ctx context.Context, how Over) error {
	if !s.known(ctx) {
		if err := s.bury(ctx); err != nil {
			return err
		}
	}
	return how.tell(ctx, s.meeting)
}
