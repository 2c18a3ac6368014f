package rendezvous

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous/store"
)

// errAgain starts over: this meeting is not the one to wait in.
var errAgain = errors.New("the meeting goes on elsewhere")

// A node is one agent while it joins.
type node struct {
	Options
	store  store.Store
	spec   job.Spec
	seen   int // highest generation that is behind us
	status Status

	timer      *time.Timer // ends the wait; nil: nothing does,
	until      time.Time   // and when
	meeting    shelf       // the keys of the current meeting
	before     past
	generation int
	ticket     int
	epoch      int   // of the lead, as far as we know
	leader     int   // ticket of who leads
	signs      int64 // our presence, as the store counted it
	next       time.Time
	pace       time.Duration // between two signs of life; 0: not told yet
	lingered   time.Duration // after the wait was over
	declines   bool          // it only says that it is Unfit
	well       shelf         // of the world with which the job ended well; the zero value: of none is known
	sign       string        // of its agents that stay, as it was read last,
	heard      time.Time     // and when it had moved then
	apart      bool          // the worlds here are another job's
	outlasted  string        // nonce of the last one of those, of which nobody is left
}

// join goes from meeting to meeting until one ends with a world.
func (n *node) join(ctx context.Context) (*Session, error) {
	for {
		session, err := n.meet(ctx)
		if !errors.Is(err, errAgain) {
			return session, err
		}
	}
}

// meet takes part in the current meeting, to its end.
func (n *node) meet(ctx context.Context) (*Session, error) {
	past, err := n.arrive(ctx)
	if err != nil {
		return nil, err
	}
	if past.has(n.spec.Self) { // an agent before this one entered, and died
		return n.conclude(ctx, past)
	}
	if past != nil && past.Ended != nil && n.Seen > 0 { // the job ended with our world, or one after it
		return n.conclude(ctx, past)
	}
	if past != nil {
		n.seen = max(n.seen, n.generation, past.Moved-1)
		n.status.Before = past.Refused
		return nil, errAgain
	}
	if apart, err := n.isApart(ctx); err != nil {
		return nil, err
	} else if apart {
		return nil, n.outlast(ctx)
	}
	if n.before.running() > 0 {
		if err := n.standBy(ctx); err != nil {
			return nil, err
		}
	}
	if err := n.enter(ctx); err != nil {
		return nil, err
	}
	end, err := n.attend(ctx)
	if err != nil {
		if end = n.withdraw(ctx); end == nil {
			return nil, err
		}
	}
	return n.conclude(ctx, end)
}

// arrive learns which meeting is the current one. It returns its outcome if it has one already.
func (n *node) arrive(ctx context.Context) (*outcome, error) {
	root, err := n.root(ctx)
	if err != nil {
		return nil, err
	}
	if n.generation, err = n.current(ctx, root); err != nil {
		return nil, err
	}
	n.meeting = root.meeting(n.generation)
	if end, err := n.outcome(ctx, n.meeting); end != nil || err != nil {
		return end, cmp.Or(err, n.missed(ctx, end))
	}
	return n.lookBack(ctx)
}

// root is the part of the store that belongs to this job, in this life of the store.
func (n *node) root(ctx context.Context) (shelf, error) {
	root := shelf{n.store, jobPath(n.spec.ID)}
	incarnation, err := root.once(ctx, keyIncarnation, []byte(random()))
	return root.life(incarnation), err
}

// outcome is how a meeting ended; nil: it has not.
func (n *node) outcome(ctx context.Context, meeting shelf) (*outcome, error) {
	b, found, err := meeting.peek(ctx, keyOutcome)
	if err != nil || !found {
		return nil, err
	}
	return n.read(b)
}

// current returns the current generation after moving it beyond what this agent has seen.
func (n *node) current(ctx context.Context, root shelf) (int, error) {
	b, err := root.once(ctx, keyGeneration, []byte(strconv.Itoa(n.seen+1)))
	for {
		if err != nil {
			return 0, err
		}
		g, err2 := number(keyGeneration, b)
		if err2 != nil || g > n.seen {
			return g, err2
		}
		if err := n.move(ctx, root, g); err != nil {
			return 0, err
		}
		old := b
		if b, err = root.swap(ctx, keyGeneration, old, []byte(strconv.Itoa(n.seen+1))); err == nil && bytes.Equal(b, old) {
			b, err = root.once(ctx, keyGeneration, []byte(strconv.Itoa(n.seen+1))) // the store was emptied meanwhile, and swaps nothing for nothing
		}
	}
}

// move tells those who still meet under an old generation to go on with ours. Where a world of that one is known, it stands there: who is first in a
// store that came back empty begins with the first generation, and is not to begin a world beside that one. A world that stands there already is the one
// before our meeting, for it may live: those who made it knew of no other.
func (n *node) move(ctx context.Context, root shelf, old int) error {
	end := n.recalls(old)
	end.Moved = n.seen + 1
	b, err := encodeOutcome(end)
	if err != nil {
		return err
	}
	stands, err := root.meeting(old).once(ctx, keyOutcome, b)
	if err != nil {
		return err
	}
	last := old
	if !isWorld(stands) {
		if last, err = n.predecessor(ctx, root.meeting(old), old); err != nil {
			return err
		}
	}
	if last == n.seen || last < 1 {
		return nil
	}
	_, err = root.meeting(n.seen+1).once(ctx, keyAfter, []byte(strconv.Itoa(last)))
	return err
}

// recalls is what this node knows of how the meeting of a generation ended, if that made the latest world of which it knows: an older one is over.
func (n *node) recalls(generation int) *outcome {
	last := &outcome{Protocol: n.before.protocol, World: n.before.world}
	if own := n.Previous; own != nil && (last.World == nil || own.Generation > last.World.Generation) {
		last = &outcome{World: &world{World: *own}}
	}
	if last.World == nil || last.World.Generation != generation {
		return &outcome{}
	}
	return last
}

// read decodes an outcome.
func (n *node) read(b []byte) (*outcome, error) {
	end, err := decodeOutcome(b)
	if err != nil {
		return nil, name(err, "read", keyOutcome)
	}
	if end.Refused != "" {
		end.Refused = cmp.Or(plain(end.Refused, maxReason), "no reason was given")
	}
	end.Ended = brief(end.Ended)
	if end.World != nil {
		err = cmp.Or(checkAll(end.World.Members), checkRules(end.World.Rules))
	}
	return end, name(err, "read", keyOutcome)
}

// enter draws a ticket and writes this node's record under it.
func (n *node) enter(ctx context.Context) error {
	r := n.record()
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(b) > maxRecord {
		return fmt.Errorf("the record of %v has %d bytes, more than %d", r, len(b), maxRecord)
	}
	for first, written := true, false; !written; first = false {
		if written, err = n.draw(ctx, b, first); err != nil {
			return err
		}
	}
	n.epoch, n.pace = 0, 0
	return n.claim(ctx)
}

// record is what we say of ourselves.
func (n *node) record() record {
	r := record{Protocol: Protocol, Terms: n.spec.Terms, Seen: n.Seen, Led: n.Led, Past: n.Past, Node: n.spec.Self, Machine: n.spec.Machine}
	if !n.NotBefore.IsZero() {
		r.Rest = max(time.Until(n.NotBefore), 0)
	}
	if n.Unfit != "" {
		r.Unfit, r.Stays, r.Rest = plain(n.Unfit, maxReason), !n.declines, forever
	} else {
		r.Rules = n.own()
	}
	return r
}

// draw reports false when the ticket was declared void before the record came.
// Presence comes first: whoever sees the record can count on the key.
func (n *node) draw(ctx context.Context, record []byte, first bool) (bool, error) {
	t, untold, err := n.meeting.addTo(ctx, keyTickets, 1)
	if err != nil {
		return false, err
	}
	n.ticket, n.signs = int(t), 0
	if err := n.show(ctx); err != nil {
		return false, err
	}
	n.next = time.Now().Add(beat)
	stands, err := n.meeting.once(ctx, numbered(keyTicket, n.ticket), record)
	if err == nil && untold > 0 && first { // the leader need not wait for who has those; else each time that it takes us for one of them there would be more
		_, err = n.meeting.add(ctx, keyUntold, int64(untold))
	}
	return string(stands) == string(record), err
}

// show adds to our presence. A count that fell means that the store came back empty.
func (n *node) show(ctx context.Context) error {
	signs, err := n.meeting.add(ctx, numbered(keyPresence, n.ticket), 1)
	if err == nil && signs <= n.signs {
		n.seen = max(n.seen, n.generation-1)
		return errAgain
	}
	n.signs = signs
	return err
}

// claim tries to become the leader of the next epoch. Whoever comes first is.
func (n *node) claim(ctx context.Context) error {
	n.epoch++
	b, err := n.meeting.once(ctx, numbered(keyLeader, n.epoch), []byte(strconv.Itoa(n.ticket)))
	if err != nil {
		return err
	}
	n.leader, err = number(keyLeader, b)
	return err
}

// attend leads or follows until the meeting has an outcome.
func (n *node) attend(ctx context.Context) (*outcome, error) {
	for {
		part := n.follow
		if n.leader == n.ticket {
			part = n.lead
		}
		if end, err := part(ctx); end != nil || err != nil {
			return end, err
		}
	}
}

// conclude turns the outcome of our meeting into a session, or says why there is none.
func (n *node) conclude(ctx context.Context, end *outcome) (*Session, error) {
	switch {
	case end.World != nil && (end.Moved == 0 || end.has(n.spec.Self)):
		return n.enrol(ctx, end)
	case end.Refused != "":
		return nil, &Refusal{Reason: end.Refused, Told: max(end.Told, 0)}
	case end.Ended != nil:
		return nil, &Ended{Verdict: *end.Ended}
	}
	if end.World != nil { // it was told of a store that did not know it
		n.stand(end.World, "")
	}
	n.seen = max(n.seen, end.Moved-1)
	return nil, errAgain
}

// enrol finds our rank in the world. Nodes without one came too many, or were taken for dead. Who leads needs to know of all.
func (n *node) enrol(ctx context.Context, end *outcome) (*Session, error) {
	w := end.World
	rank, member := w.rank(n.spec.Self.Incarnation)
	if !member {
		return nil, n.leftOut(w)
	}
	if w.Terms.OnExit != n.spec.OnExit { // who led the meeting is of a release that does not know of it
		return nil, &Refusal{Reason: fmt.Sprintf("the world was made with --on-worker-exit %s, and %v was given %s; use the same image on all nodes",
			onExit(w.Terms), n.spec.Self, onExit(n.spec.Terms))}
	}
	if w.Terms.Rails != n.spec.Rails {
		return nil, &Refusal{Reason: fmt.Sprintf("the world was made with --nccl-rails %s, and %v was given %s; use the same image on all nodes",
			rails(w.Terms), n.spec.Self, rails(n.spec.Terms))}
	}
	if rank == 0 {
		if err := w.unpack(); err != nil {
			return nil, err
		}
	}
	n.tell(Status{Here: here(w), Count: w.size(), Expected: w.size(), Fewest: n.spec.Fewest()})
	if rank == 0 {
		if err := w.unpack(); err != nil {
			return nil, err
		}
	}
	s := &Session{World: w.World, Rank: rank, self: n.spec.Self.Incarnation, rest: w.rest, protocol: end.Protocol, meeting: n.meeting}
	if w.size() == 1 && n.spec.Standby() && n.succeeded(ctx, s) {
		n.seen = max(n.seen, n.generation)
		return nil, errAgain
	}
	return begin(s), nil
}

// succeeded reports whether another world has followed ours already, as when we stood still so long that who stood by took us for lost. Where a world
// has more nodes they tell each other.
func (n *node) succeeded(ctx context.Context, s *Session) bool {
	end, err := n.outcome(ctx, s.next(ctx))
	return err == nil && end != nil && end.World != nil // who cannot ask may as well be the one that lives
}

// leftOut says why a world is not ours, or that we wait for the next one.
func (n *node) leftOut(w *world) error {
	if err := w.unpack(); err != nil {
		return err
	}
	if n.runsAnother(w) {
		n.apart, n.seen = true, max(n.seen, n.generation)
		return errAgain
	}
	for _, m := range w.Members {
		if n.Unfit != "" || !same(m.Node, n.spec.Self) {
			continue
		}
		if n.before.has(m) {
			n.stand(w, m.Node.String())
			n.seen = max(n.seen, n.generation)
			return errAgain
		}
		return &Excluded{Reason: taken(n.spec.Self, fmt.Sprintf("%v, incarnation %.8s", m.Node, m.Incarnation)), Replaced: true, Met: true}
	}
	if n.spec.Standby() {
		n.stand(w, "")
		n.seen = max(n.seen, n.generation)
		return errAgain
	}
	return &Excluded{Reason: fmt.Sprintf("this job has %d nodes and they are here without %v: %s; give all nodes a higher --nnodes, or start fewer",
		w.size(), n.spec.Self, names(here(w), w.size())), Met: true}
}

// taken is the reason of a node whose place another process has.
func taken(self job.Node, by string) string {
	return fmt.Sprintf("another process took my place as %v: %s; if both are meant to run, give each node its own --node-rank", self, by)
}

func here(w *world) []string {
	list := make([]string, 0, min(shown, len(w.Members)))
	for _, m := range w.Members[:min(shown, len(w.Members))] {
		list = append(list, m.Node.String())
	}
	return list
}

// withdraw lets the others know at once that we do not wait any longer, when there is still a store to tell. A leader
// that read our presence just before may publish a world with us just after: then we are a member, whose end the
// others must hear of, and the outcome is returned.
func (n *node) withdraw(ctx context.Context) *outcome {
	calledOff, begun := ctx.Err() != nil, time.Now()
	defer func() { n.lingered = time.Since(begun) }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beat)
	defer cancel()
	if err := n.meeting.put(ctx, numbered(keyPresence, n.ticket), []byte(gone)); err != nil {
		return nil
	}
	if n.leader == n.ticket {
		b, _ := json.Marshal(summary{Epoch: n.epoch, Resigned: true})
		_ = n.meeting.put(ctx, keySummary, b)
	}
	if !calledOff {
		return nil
	}
	b, found, err := n.meeting.await(ctx, keyOutcome, time.Now().Add(linger))
	if err != nil || !found {
		return nil
	}
	end, err := n.read(b)
	if err != nil || !end.has(n.spec.Self) {
		return nil
	}
	return end
}

// tell passes the status on. Who stands by waits as long as there is a world, and so does a member that it lost.
func (n *node) tell(s Status) {
	if s.Running > 0 {
		s.World, s.Size = here(n.before.world), n.before.world.size()
		s.Twin = n.twin()
		if s.Alive != n.status.Alive && (n.spec.Standby() || s.Running == n.Seen || s.Twin != "" || s.Another) {
			n.wait()
		}
		if s.Quiet > 0 && s.Count >= s.Fewest { // they are enough, and begin when nobody can have workers any more in a world that is silent
			n.bear(max(n.Fence, n.before.fence()) - s.Quiet + beat)
		}
	}
	n.bear(s.Closes)
	s.Before, s.Beside = n.status.Before, n.beside()
	s.Here = slices.Clone(s.Here)
	n.status = s
	if n.Progress != nil {
		n.Progress(s)
	}
}

// wait begins the time anew in which this node waits.
func (n *node) wait() {
	if n.timer != nil {
		n.until = time.Now().Add(n.Timeout)
		n.timer.Reset(n.Timeout)
	}
}

// bear has this node wait longer for nodes that are enough, and begin in so much time: where they wait for those who may live of the world before to end
// they would give up for nothing.
func (n *node) bear(closes time.Duration) {
	end := time.Now().Add(closes + 2*silent)
	if most := n.until.Add(max(n.Fence, n.before.fence()) + 2*silent); end.After(most) {
		end = most
	}
	if closes > 0 && n.timer != nil && end.After(n.until) {
		n.timer.Reset(time.Until(end))
	}
}

// A watch notices when what another node counts up stands still, by our own clock.
type watch struct {
	last  string
	moved time.Time
	read  time.Time
	pace  time.Duration // between two movements; 0: a beat
}

// silent takes the latest reading and reports whether nothing has moved for long. Time in which we did not
// look does not count: we were stopped, or the store was away, and then the others could not be heard either.
func (w *watch) silent(sign string) bool {
	now, pace := time.Now(), max(w.pace, beat)
	if sign != w.last || now.Sub(w.read) > 2*pace+pace/2 {
		w.last, w.moved = sign, now
	}
	w.read = now
	return w.still() >= missed*pace
}

// still is how long nothing had moved when it was read.
func (w *watch) still() time.Duration { return w.read.Sub(w.moved) }
