package launcher

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"runtime/debug"
	"time"

	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/job"
)

// A line is this agent's line to the others of its world, and the addresses that it made known. A world of one
// node has no fleet: whatever is told, nobody hears.
type line struct {
	fleet *fleet.Fleet
	host  string // rank 0's node, as this node reaches it
	pulse *pulse
	does  *together // what its workers get done with the others
	log   func(string)
}

// connect opens the line: group rank 0 leads, the others call it. An agent that goes on with a round waits for nobody.
func (m *meeting) connect(ctx context.Context) (*line, error) {
	w, rank, seat := m.session.World, m.session.Rank, m.session.Seat()
	goesOn := m.c.goesOn() && !m.anew
	l := &line{pulse: newPulse(), does: &together{clock: m.c.sim.clock}, log: func(s string) { m.c.Log.Warn(s) }}
	if m.c.sim.plays() { // its memory is nobody's
		l.pulse = &pulse{}
	}
	if len(w.Members) == 1 {
		m.door.shut()
		l.host = "127.0.0.1"
		return l, nil
	}
	options := m.c.fleetOptions(m.token, l)
	if m.c.sim.plays() { // who stands still does not judge others either
		options.Beat = func() json.RawMessage { m.c.sim.awake(); return l.pulse.tell() }
	}
	options.NodeTimeout = w.Rules.NodeTimeout()
	if goesOn { // they have all been there
		options.Arrival = m.c.again(options.NodeTimeout, rank == 0)
	}
	if rank != 0 {
		m.door.shut() // nobody has business here: another node leads. Who asks whether anybody is here hears that somebody hangs up
	}
	if rank == 0 {
		if !m.c.sim.plays() { // where many agents share a process
			thrifty(len(w.Members))
		}
		l.fleet = fleet.Lead(w, options)
		m.door.open(l.fleet)
		m.c.letGo()
		l.host = hostOf(w.Members[0].Addrs[0])
		return l, nil
	}
	var err error
	if goesOn {
		l.fleet, err = fleet.Rejoin(seat, options)
		return l, err
	}
	within := fleetTime
	if m.c.takesOver() && !m.anew { // the leader has been there
		within = max(againTime, options.NodeTimeout)
	}
	ctx, cancel := outlast(ctx, within)
	defer cancel()
	if l.fleet, err = fleet.Follow(ctx, seat, options); err != nil {
		return nil, fail(job.ExitRetry, "its agent may have died; nodes must reach each other on these addresses",
			"node 0 (%s) cannot be reached at %v: %w", seat.Leader.Name, seat.Leader.Addrs, err)
	}
	m.c.letGo()
	l.host = l.fleet.LeaderHost()
	return l, nil
}

// lastCall is how long a member that was told to stop still tries to reach the leader, to tell it so.
const lastCall = 2 * time.Second

// outlast bounds a call to the leader. The others count on this node since they agreed on the world, so being told to
// stop does not end the call: else they would wait for it in vain.
func outlast(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	calling, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-calling.Done():
		case <-time.After(lastCall):
			cancel()
		}
	})
	return calling, func() { stop(); cancel() }
}

func hostOf(a job.Addr) string {
	host, _, _ := net.SplitHostPort(string(a))
	return host
}

// events is what the fleet has to say; a world of one node has nothing.
func (l *line) events() <-chan fleet.Event {
	if l.fleet == nil {
		return nil
	}
	return l.fleet.Events()
}

// tell sends news to the leader, or from the leader to one member or to all.
func (l *line) tell(to int, n news) {
	if l.fleet == nil {
		return
	}
	err := error(nil)
	if to == everyone {
		err = l.fleet.Tell(n.Kind, n)
	} else {
		err = l.fleet.TellOne(to, n.Kind, n)
	}
	if err != nil {
		l.log(fmt.Sprintf("news %q could not be sent: %v", n.Kind, err))
	}
}

func (l *line) close() {
	if l != nil && l.fleet != nil {
		l.fleet.Close()
	}
}

// heard is when the peer that has been silent for longest was heard; zero: nobody was.
func (l *line) heard() time.Time {
	if l.fleet == nil {
		return time.Time{}
	}
	return l.fleet.Heard()
}

// owed is how much longer a peer that gave its last sign of life then may take before it gives us up.
func (l *line) owed(last time.Time) time.Duration {
	if did := l.does.perhaps(); did.After(last) {
		last = did
	}
	return max(0, time.Until(last.Add(l.fleet.NodeTimeout)))
}

// worked is how long ago this node's workers, which have ended, may have got something done with those of all nodes; 0: they never did.
func (l *line) worked() time.Duration {
	if l.does == nil {
		return 0
	}
	l.does.begin(0)
	did := l.does.perhaps()
	if did.IsZero() {
		return 0
	}
	return max(1, time.Since(did))
}

// translate turns what the fleet noticed into an event for the judgement; nil: nothing that matters to it.
func (l *line) translate(e fleet.Event) any {
	switch e.Change {
	case fleet.Heard:
		var n news
		if err := json.Unmarshal(e.Message.Body, &n); err != nil {
			return nil // a newer version's news
		}
		if n.Failure != nil {
			n.Failure.Ago += e.Took
		}
		return told{e.Peer, n}
	case fleet.Suspect:
		return noticed{e.Peer, e.Why.Error(), max(1, time.Since(e.Last))}
	case fleet.Back:
		return noticed{Node: e.Peer, What: "heard again"}
	case fleet.Lost:
		quiet := time.Duration(0)
		if !e.Certain || e.GaveUp { // else its connection was there until now
			quiet = time.Since(e.Last)
		}
		return lost{e.Peer, e.Why.Error() + suspicion(e.Beat), e.Certain, l.owed(e.Last), e.GaveUp, quiet}
	case fleet.Renewed:
		return renewed{e.Peer}
	case fleet.Left:
		return departed{e.Peer}
	}
	return nil
}

// many nodes tell their leader so much each second that its memory would be more garbage than anything else.
const many = 1000

// thrifty has a leader of so many nodes collect garbage sooner, which takes it some more of its time: see docs/performance.md.
func thrifty(nodes int) {
	if nodes > many {
		debug.SetGCPercent(15)
	}
}
