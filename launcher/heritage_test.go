package launcher

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/store"
)

// An agent that took over from a member's tells in the store at which the nodes met that its leader was lost.
func TestHeirTellsOfTheEnd(t *testing.T) {
	at := freeEndpoint(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	c, p := joiner(at, 2, 0, "a")
	host := &meeting{c: c, plan: p, spec: p.Spec, port: at, hosts: p.Spec.Self.Addrs, end: time.Now().Add(4 * time.Minute), decided: make(chan struct{}, 1)}
	if err := host.serve(ctx, true); err != nil {
		t.Fatal(err)
	}
	defer host.close()
	c, p = joiner(at, 2, 1, "b")
	world := job.World{ID: "job7", Nonce: "n", Generation: 1, Members: []job.Member{{Node: job.Node{Name: "a", Incarnation: "a", Slots: 1}}, {Node: p.Spec.Self}}}
	c.past = &heritage{Plan: p, World: &world, Rank: 1}
	heir := &meeting{c: c, plan: p, spec: p.Spec, port: at, hosts: p.Spec.Self.Addrs}
	if err := heir.resume(); err != nil {
		t.Fatal(err)
	}
	heir.resumeSession()
	if err := heir.session.End(ctx, rendezvous.Over{Expect: 1}); err != nil {
		t.Errorf("the end is not told: %v", err)
	}
	heir.close()
	if err := heir.session.End(ctx, rendezvous.Over{Expect: 1}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("the way to the store outlives the meeting: %v", err)
	}
}

// The store that an agent left is this round's, or none: that of the round before may have been ended already, and one that
// was started may not have been noted.
func TestInheritStore(t *testing.T) {
	here := &start{Port: 4711, AgentStore: true}
	for _, c := range []struct {
		name  string
		start *start
		noted int
		lives []int
		want  int // PID; -1: none
		ended bool
	}{
		{"rank 0 hosts it", &start{Port: 4711}, 0, nil, -1, false},
		{"it serves", here, 7, []int{6, 7}, 7, false},
		{"it ended, and nobody saw it", here, 7, nil, 0, true},
		{"it was started, and not noted", nil, 0, []int{7}, -1, false},
		{"the last round's was to be ended", nil, 7, []int{7}, -1, false},
		{"the last round's was ended", nil, 7, nil, -1, false},
	} {
		old := &pid1.Legacy{}
		for _, pid := range c.lives {
			old.Children = append(old.Children, pid1.Inherited{Child: &proc.Child{PID: pid}})
		}
		w := inheritStore(moment{State: state{Start: c.start}, Store: c.noted}, old)
		if (w == nil) != (c.want < 0) || w != nil && (w.child.PID != c.want || (len(w.child.Exit) > 0) != c.ended) {
			t.Errorf("%s: %+v", c.name, w)
		}
	}
}
