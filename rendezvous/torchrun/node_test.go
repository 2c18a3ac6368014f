package torchrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/rendezvous/store"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	me, a, b := Desc{"me", 1, 0}, Desc{"a", 1, 0}, Desc{"b", 1, 0}
	state := func(change func(*State), nodes ...Desc) *State {
		s := newState(Torch26)
		for i, d := range nodes {
			s.Participants[d], s.Heartbeats[d] = int32(i), now
		}
		change(s)
		return s
	}
	as := func(*State) {}
	done := func(s *State) { s.Complete = true }
	limits := Limits{Min: 2, Max: 3, LastCall: lastCall}
	for name, c := range map[string]struct {
		s    *State
		want action
	}{
		"the first":               {state(as), join},
		"the second":              {state(as, a), join},
		"alone":                   {state(as, me), wait},
		"enough, last call":       {state(func(s *State) { s.Deadline = now.Add(time.Second) }, me, a), wait},
		"enough, last call over":  {state(func(s *State) { s.Deadline = now.Add(-time.Second) }, me, a), complete},
		"too few after last call": {state(func(s *State) { s.Deadline = now.Add(-time.Second) }, me), wait},
		"complete with me":        {state(done, me, a), inRound},
		"complete without me":     {state(done, a, b), queue},
		"complete, I wait":        {state(func(s *State) { done(s); s.WaitList[me], s.Heartbeats[me] = true, now }, a, b), wait},
		"complete and full":       {state(done, a, b, Desc{"c", 1, 0}), spare},
		"full, 1.13":              {state(func(s *State) { done(s); s.Layout = Torch113; s.Heartbeats[me] = now }, a, b, Desc{"c", 1, 0}), wait},
		"spare, still full":       {state(func(s *State) { done(s); s.Redundancy[me], s.Heartbeats[me] = true, now }, a, b, Desc{"c", 1, 0}), wait},
		"spare, a place is free":  {state(func(s *State) { done(s); s.Redundancy[me] = true }, a, b), stopSparing},
		"closed":                  {state(func(s *State) { s.Closed = true }, me, a), leaveForClosed},
		"my heartbeat is old":     {state(func(s *State) { s.Heartbeats[me] = now.Add(-6 * time.Second) }, me), renew},
		"waiting, heartbeat is old": {state(func(s *State) {
			done(s)
			s.WaitList[me], s.Heartbeats[me] = true, now.Add(-6*time.Second)
		}, a, b), renew},
	} {
		if got := decide(c.s, me, limits, now); got != c.want {
			t.Errorf("%s: action %d, want %d", name, got, c.want)
		}
	}
}

func TestBury(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	old, a, b := now.Add(-16*time.Second), Desc{"a", 1, 0}, Desc{"b", 1, 0}
	limits := Limits{Min: 2, Max: 2}
	s := newState(Torch26)
	s.Participants = map[Desc]int32{a: 0, b: 1}
	s.Heartbeats = map[Desc]time.Time{a: now.Add(-14 * time.Second), b: old}
	s.Deadline = now
	s.bury(limits, now)
	if _, in := s.Participants[b]; in || len(s.Participants) != 1 || !s.Deadline.IsZero() {
		t.Errorf("after one of two died:\n%s", show(s))
	}
	s.Complete, s.Heartbeats[a] = true, old
	s.bury(limits, now)
	if s.Complete || s.Round != 1 || len(s.Participants) != 0 {
		t.Errorf("after the last died:\n%s", show(s))
	}
}

// A crowd is nodes of ours alone, on one store.
type crowd struct {
	st     *store.Memory
	layout Layout
	limits Limits
}

func (c crowd) node(i, slots int) *Node {
	return New(c.st, Config{
		RunID: "job", Desc: Desc{fmt.Sprintf("host%d", i), int32(100 + i), 0}, Limits: c.limits, Slots: slots, Layout: c.layout,
		Master: func(context.Context) (string, int, error) { return fmt.Sprintf("host%d", i), 29500 + i, nil },
	})
}

// together calls f for each at once and waits for all.
func together(nodes []*Node, f func(i int, n *Node)) {
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() { f(i, n) })
	}
	all.Wait()
}

func TestRound(t *testing.T) {
	for name, layout := range map[string]Layout{"1.13": Torch113, "2.6": Torch26} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testRound(t, layout) })
		})
	}
}

func testRound(t *testing.T, layout Layout) {
	c := crowd{new(store.Memory), layout, Limits{Min: 3, Max: 3}}
	nodes := []*Node{c.node(2, 2), c.node(0, 4), c.node(1, 1)}
	ranks := []int{2, 0, 1}
	for number := range int32(2) {
		together(nodes, func(i int, n *Node) {
			r, err := n.Join(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			first := []int{0, 4, 5}[ranks[i]]
			want := Round{number, ranks[i], 3, first, 7, first, 7, "host0", 29500}
			if *r != want {
				t.Errorf("round %+v, want %+v", *r, want)
			}
			if waiting, err := n.Beat(t.Context()); waiting != 0 || err != nil {
				t.Errorf("beat: %d waiting, %v", waiting, err)
			}
			if err := n.Finish(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
		together(nodes, func(_ int, n *Node) {
			if err := n.Leave(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	if err := nodes[0].Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := nodes[1].Join(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("join after the end: %v", err)
	}
	c.st.Close()
}

// TestElastic: a round of fewer than it could be waits for the last call; a late node waits, is seen, and is in the next
// round; a node more than fits stands by; a node that dies gives its place up.
func TestElastic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowd{new(store.Memory), Torch26, Limits{Min: 2, Max: 3}}
		nodes := []*Node{c.node(0, 1), c.node(1, 1)}
		begin := time.Now()
		together(nodes, func(_ int, n *Node) {
			if r, err := n.Join(t.Context()); err != nil || r.Nodes != 2 {
				t.Errorf("%+v, %v", r, err)
			}
		})
		if took := time.Since(begin); took < lastCall || took > lastCall+2*time.Second {
			t.Errorf("the last call took %v", took)
		}
		var late sync.WaitGroup
		late.Go(func() {
			if r, err := c.node(2, 1).Join(t.Context()); err != nil || r.Nodes != 3 || r.Number != 1 || r.Rank != 2 {
				t.Errorf("the late node: %+v, %v", r, err)
			}
		})
		synctest.Wait()
		if waiting, err := nodes[0].Beat(t.Context()); waiting != 1 || err != nil {
			t.Errorf("%d wait, %v", waiting, err)
		}
		for _, n := range nodes {
			if err := n.Leave(t.Context()); err != nil {
				t.Error(err)
			}
		}
		together(nodes, func(_ int, n *Node) {
			if r, err := n.Join(t.Context()); err != nil || r.Nodes != 3 {
				t.Errorf("%+v, %v", r, err)
			}
		})
		late.Wait()
		standBy(t, c, nodes)
		c.st.Close()
	})
}

// standBy: all places are taken, the last by a node that is silent from now on.
func standBy(t *testing.T, c crowd, nodes []*Node) {
	extra := c.node(3, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := extra.Join(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a node too many: %v", err)
	}
	if s := extra.state; len(s.Redundancy) != 0 || len(s.Participants) != 3 {
		t.Errorf("after it gave up:\n%s", show(s))
	}
	time.Sleep(beat) // of the bubble
	if _, err := nodes[0].Beat(t.Context()); err != nil {
		t.Error(err)
	}
	time.Sleep(dead - beat - 2*time.Second)
	if _, err := nodes[0].Beat(t.Context()); err != nil {
		t.Error(err)
	}
	if got := sorted(nodes[0].state.Participants); !slices.Equal(got, []Desc{nodes[0].c.Desc}) {
		t.Errorf("participants are %v", got)
	}
	if _, err := nodes[1].Beat(t.Context()); !errors.Is(err, ErrDropped) {
		t.Errorf("a node that was too late: %v", err)
	}
}

// TestStranger: what is not a state, or not an offer, under the keys of a rendezvous is an error that says so.
func TestStranger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowd{new(store.Memory), Torch26, Limits{Min: 1, Max: 1}}
		if err := c.st.Set(t.Context(), "torch.rendezvous.job", []byte("gASVLg==")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.node(0, 1).Join(t.Context()); err == nil {
			t.Error("a state that is none was joined")
		}
		c.st.Close()
		c.st = new(store.Memory)
		bad := New(c.st, Config{RunID: "job", Desc: Desc{"a", 1, 0}, Limits: c.limits, Slots: -1, Layout: Torch26,
			Master: func(context.Context) (string, int, error) { return "a", 1, nil }})
		if _, err := bad.Join(t.Context()); err == nil {
			t.Error("an offer of -1 workers was taken")
		}
		c.st.Close()
	})
}
