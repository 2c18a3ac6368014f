package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous/store"
)

// agent is a node without an index.
func agent(name string, nodes int) job.Spec {
	return job.Spec{ID: "job7", Terms: job.Terms{Nodes: nodes}, Self: job.Node{
		Name: name, Index: -1, Slots: 8, Incarnation: name + "-life1", Version: "v0.1.0",
	}}
}

func numberedAgent(index, nodes int) job.Spec {
	s := agent(fmt.Sprintf("host%d", index), nodes)
	s.Self.Index = index
	return s
}

// An arrival is a Join that runs.
type arrival struct {
	session *Session
	err     error
	after   time.Duration
	mu      sync.Mutex
	said    []Status
	done    chan struct{}
	cancel  context.CancelFunc
}

func join(s store.Store, spec job.Spec, o Options) *arrival {
	ctx, cancel := context.WithCancel(context.Background())
	a := &arrival{done: make(chan struct{}), cancel: cancel}
	o.Progress = func(s Status) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.said = append(a.said, s)
	}
	begun := time.Now()
	go func() {
		defer close(a.done)
		a.session, a.err = Join(ctx, s, spec, o)
		a.after = time.Since(begun)
	}()
	return a
}

// world waits for the end of the Join and returns the names of the world's members.
func (a *arrival) world(t *testing.T) []string {
	t.Helper()
	<-a.done
	if a.err != nil {
		t.Fatal(a.err)
	}
	if err := a.session.Unpack(); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, m := range a.session.World.Members {
		list = append(list, m.Name)
	}
	return list
}

func TestNodesAgree(t *testing.T) {
	for _, n := range []int{1, 2, 3, 100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShared()
				var all []*arrival
				for i := range n {
					all = append(all, join(s, agent(fmt.Sprint("host", i), n), Options{}))
				}
				var want []string
				for i := range n {
					want = append(want, fmt.Sprint("host", i))
				}
				for i, a := range all {
					if got := a.world(t); !slices.Equal(got, want) {
						t.Fatalf("node %d sees %v, want %v", i, got, want)
					}
					if a.session.Rank != i || a.session.World.Nonce != all[0].session.World.Nonce {
						t.Errorf("node %d has rank %d, world %v", i, a.session.Rank, a.session.World)
					}
					if a.after > 0 {
						t.Errorf("node %d needed %v", i, a.after)
					}
				}
				for _, a := range all {
					a.session.Close()
				}
			})
		})
	}
}

// A store that takes a connection and closes it on each change is asked with pauses, and not for ever.
func TestStoreThatRejectsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShared()
		s.torn.Store(1000)
		a := shelf{s, ""}
		begun := time.Now()
		_, err := a.add(t.Context(), "n", 1)
		if d := time.Since(begun); !errors.Is(err, store.ErrUncertain) || s.calls.Load() != maxTries || d < time.Second || d > 8*time.Second {
			t.Errorf("%d calls in %v, %v", s.calls.Load(), d, err)
		}
		_, err = a.swap(t.Context(), "k", nil, []byte("v"))
		if !errors.Is(err, store.ErrUncertain) && err != nil {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		begun = time.Now()
		_, err = a.add(ctx, "n", 1)
		if d := time.Since(begun); err == nil || d > 50*time.Millisecond {
			t.Errorf("%v after %v", err, d)
		}
	})
}
