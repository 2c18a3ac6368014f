package launcher

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/job"
)

// This file is a world of agents in fake time: the real watches, the real fleet and the real judge, over a network that loses, delays
// and stops what it is told to.

// A toyWorld is a job of several nodes, in which a training runs round after round.
type toyWorld struct {
	t      *testing.T
	seed   int
	random *rand.Rand
	nodes  []*toyNode
	slots  int
	limits heartbeat.Limits
	silent time.Duration // after which a node is lost
	habits func() habits

	world  job.World
	round  int
	lost   chan int // by the leader: a node's agent
	mu     sync.Mutex
	now    *training
	rough  time.Time // until then some agents are disturbed
	said   map[heartbeat.Stage]int
	worst  *heartbeat.Finding // of a fault
	judged time.Time          // when that was found
	alarms []string
}

// A toyNode is an agent, and what is in its way.
type toyNode struct {
	w     *toyWorld
	group int
	fleet *fleet.Fleet
	pulse *pulse
	watch *watch
	drain sync.WaitGroup

	mu    sync.Mutex
	until time.Time     // it stands still,
	lag   time.Duration // or is late by up to so much,
	gone  bool          // or nothing comes from it, nor to it
	skew  time.Duration // that its clock jumps by, next
}

func newToyWorld(t *testing.T, seed, nodes, slots int) *toyWorld {
	w := &toyWorld{t: t, seed: seed, slots: slots, silent: 10 * time.Second, random: rand.New(rand.NewPCG(uint64(seed), besides)), said: map[heartbeat.Stage]int{}}
	w.world = job.World{ID: "toy", Nonce: fmt.Sprint("nonce", seed)}
	for n := range nodes {
		node := job.Node{Name: fmt.Sprint("n", n), Index: n, Slots: slots, Incarnation: fmt.Sprint("life", n), Version: "toy"}
		w.world.Members = append(w.world.Members, job.Member{Node: node, First: n * slots})
		w.nodes = append(w.nodes, &toyNode{w: w, group: n})
	}
	return w
}

func (w *toyWorld) size() int { return len(w.nodes) * w.slots }

// live lets the world live for so long. A node that is lost ends it, and another world of as many nodes follows.
func (w *toyWorld) live(long time.Duration) {
	end := time.Now().Add(long)
	for time.Now().Before(end) && !w.over() {
		w.meet()
		for w.play(end) {
			time.Sleep(w.brief(5 * time.Second)) // until all workers have ended
		}
		w.part()
	}
}

// over reports whether a fault was found.
func (w *toyWorld) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.worst != nil
}

func (w *toyWorld) brief(most time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(most)))
}

// meet connects the agents.
func (w *toyWorld) meet() {
	w.world.Generation++
	w.lost = make(chan int, len(w.nodes))
	for _, n := range w.nodes {
		n.mu.Lock()
		n.until, n.lag, n.gone, n.skew = time.Time{}, 0, false, 0
		n.mu.Unlock()
		n.pulse = &pulse{}
		n.connect()
		n.drain.Go(n.listen)
	}
}

func (n *toyNode) connect() {
	leader := n.w.nodes[0]
	o := fleet.Options{NodeTimeout: n.w.silent, Log: slog.New(slog.DiscardHandler), Beat: func() json.RawMessage { n.awake(); return n.pulse.tell() }}
	if n == leader {
		n.fleet = fleet.Lead(n.w.world, o)
		return
	}
	o.Dial = func(context.Context, string, string) (net.Conn, error) {
		a, b := net.Pipe()
		leader.fleet.Handle(&toyWire{b, leader, n})
		return &toyWire{a, n, n}, nil
	}
	first := n.w.world.Members[0].Node
	first.Addrs = []job.Addr{"leader:1"}
	seat := job.Seat{Job: n.w.world.ID, Nonce: n.w.world.Nonce, Generation: n.w.world.Generation, Rank: n.group,
		Incarnation: n.w.world.Members[n.group].Incarnation, Leader: first}
	var err error
	if n.fleet, err = fleet.Follow(n.w.t.Context(), seat, o); err != nil {
		n.w.t.Fatal(err)
	}
}

// listen hears of nodes that the leader has lost.
func (n *toyNode) listen() {
	for e := range n.fleet.Events() {
		if n.group == 0 && e.Change == fleet.Lost {
			n.w.lost <- e.Peer
		}
	}
}

// part ends the fleet.
func (w *toyWorld) part() {
	for _, n := range w.nodes {
		n.mu.Lock()
		n.gone = false
		n.mu.Unlock()
	}
	for _, n := range w.nodes {
		n.fleet.Close()
		n.drain.Wait()
	}
}

// play is one round. It reports whether another one follows in the same world.
func (w *toyWorld) play(end time.Time) (again bool) {
	w.round++
	ctx, cancel := context.WithDeadline(w.t.Context(), end)
	defer cancel()
	t := newTraining(ctx, w.habits(), w.size(), w.seed, 1000+w.round*w.size())
	w.mu.Lock()
	w.now = t
	w.mu.Unlock()
	for _, n := range w.nodes {
		n.look(t)
		time.Sleep(w.brief(300 * time.Millisecond))
	}
	t.begin(func(r *toy) { w.nodes[r.rank/w.slots].watch.ended(r.rank%w.slots, r.pid, true) })
	over := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() { t.ended.Wait(); close(over) })
	again = w.weather(ctx, t, over)
	cancel()
	all.Wait()
	for _, n := range w.nodes {
		n.watch.close()
	}
	return again && time.Now().Before(end) && !w.over()
}

// look begins the looks of a node at its workers.
func (n *toyNode) look(t *training) {
	m := n.w.world.Members[n.group]
	slots := make([]int, m.Slots)
	for i := range slots {
		slots[i] = t.ranks[m.First+i].pid
	}
	w := &watch{
		c: Config{Log: slog.New(slog.DiscardHandler), Version: "toy"}, workers: func() []int { return append([]int(nil), slots...) },
		world: n.w.world, group: n.group, round: n.w.round, pulse: n.pulse, does: &together{}, fleet: n.fleet, began: time.Now(), moved: time.Now(), found: make(chan any),
		asking: make(chan struct{}, 1), clashed: map[string]bool{}, over: make([]exited, m.Slots), stacks: make([][]string, m.Slots), counts: make([]uint64, m.Slots),
	}
	w.senses = senses{page: func(local int) page.Snapshot { n.awake(); n.jump(w); return t.ranks[m.First+local].page(n.late()) }, clock: sinceEpoch,
		sight: func(pids []int) (all []job.Sight, err error) {
			for _, pid := range pids {
				all = append(all, t.ranks[pid-t.ranks[0].pid].sight())
			}
			return all, nil
		}}
	w.ctx, w.stop = context.WithCancel(context.Background())
	if n.group == 0 {
		w.judge, w.roll = heartbeat.New(n.w.limits), heartbeat.NewRoll(w.world, w.round, w.c.Version)
	}
	n.drain.Go(func() { n.w.hear(w, t) })
	w.owned.Go(func() { w.run(w.ctx) })
	n.watch = w
}

// hear takes what a watch finds.
func (w *toyWorld) hear(from *watch, t *training) {
	for {
		select {
		case e := <-from.found:
			if s, ok := e.(stalled); ok {
				w.note(t, s)
			}
		case <-from.ctx.Done():
			return
		}
	}
}

// note counts what was found. A hang, while nothing is wrong, is false; and nothing is found while a counter moves.
func (w *toyWorld) note(t *training, s stalled) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	f, late, struck := s.Finding, 4*time.Second, t.struck // a beat, a look, a hook's turn
	if time.Since(w.rough) < 0 {
		late += 10 * time.Second
	}
	quiet := time.Since(t.movedBefore(time.Now().Add(-late))) // as far as the judge can know
	w.said[f.Stage]++
	switch {
	case f.Stage != heartbeat.Resumed && f.Quiet > quiet+late:
		w.alarms = append(w.alarms, fmt.Sprintf("%v, %v after a counter moved: %s", f.Stage, quiet, s.Text))
	case f.Stage == heartbeat.Hung && !struck:
		w.alarms = append(w.alarms, fmt.Sprintf("a false verdict: %s", s.Text))
	case f.Stage == heartbeat.Hung && w.worst == nil:
		w.worst, w.judged = &f, time.Now()
	}
}

// weather disturbs the agents now and then until the round is over. It reports whether another round may follow in this world.
func (w *toyWorld) weather(ctx context.Context, t *training, over <-chan struct{}) bool {
	for {
		select {
		case <-over:
			return true
		case n := <-w.lost:
			w.t.Logf("%s was lost", w.world.Members[n].Name)
			return false
		case <-time.After(time.Second):
			if w.over() {
				return false
			}
			if t.stands() {
				continue
			}
			switch n := w.nodes[w.random.IntN(len(w.nodes))]; w.random.IntN(3000) {
			case 0, 1, 2, 3, 4:
				n.disturb(w.brief(w.silent*7/10), 0, 0)
			case 5, 6, 7:
				n.starve(w.brief(2 * time.Minute))
			case 8, 9:
				w.nodes[0].disturb(0, 0, w.brief(2*time.Hour)-time.Hour)
			case 10:
				return true // another round
			case 11:
				if n.group != 0 {
					n.mu.Lock()
					n.gone = true
					n.mu.Unlock()
				}
			}
		case <-ctx.Done():
			return false
		}
	}
}

func (t *training) stands() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.struck
}

// disturb lets an agent stand still for a while, be late, or have its clock jump.
func (n *toyNode) disturb(still, lag, skew time.Duration) {
	n.mu.Lock()
	n.until, n.lag, n.skew = time.Now().Add(still), lag, skew
	n.mu.Unlock()
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.rough = time.Now().Add(still)
}

// starve is a machine on which everything comes late, in bunches.
func (n *toyNode) starve(long time.Duration) {
	n.disturb(0, 3*time.Second, 0)
	n.w.mu.Lock()
	n.w.rough = time.Now().Add(long)
	n.w.mu.Unlock()
	n.drain.Go(func() {
		select {
		case <-time.After(long):
		case <-n.watch.ctx.Done():
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.lag = 0
	})
}

// awake waits while the agent stands still.
func (n *toyNode) awake() {
	n.mu.Lock()
	still := time.Until(n.until)
	n.mu.Unlock()
	time.Sleep(still)
}

// late is by how much, this time.
func (n *toyNode) late() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lag == 0 {
		return 0
	}
	return time.Duration(rand.Int64N(int64(n.lag)))
}

// jump moves the clock by which the judge is told the time.
func (n *toyNode) jump(w *watch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w.began, n.skew = w.began.Add(n.skew), 0
}

// A toyWire is one end of a connection, at an agent.
type toyWire struct {
	net.Conn
	at     *toyNode
	member *toyNode
}

func (c *toyWire) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.pass()
	return n, err
}

func (c *toyWire) Write(b []byte) (int, error) {
	c.pass()
	c.member.mu.Lock()
	gone := c.member.gone
	c.member.mu.Unlock()
	if gone { // it goes nowhere
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *toyWire) pass() {
	c.at.awake()
	time.Sleep(c.member.late())
}
