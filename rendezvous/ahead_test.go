package rendezvous

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous/store"
)

// A counted store counts the calls by which a leader reads.
type counted struct {
	store.Store
	calls int
}

func (c *counted) CompareSet(ctx context.Context, key string, old, value []byte) ([]byte, error) {
	c.calls++
	return c.Store.CompareSet(ctx, key, old, value)
}

func (c *counted) Add(ctx context.Context, key string, delta int64) (int64, error) {
	c.calls++
	return c.Store.Add(ctx, key, delta)
}

func (c *counted) Check(ctx context.Context, keys ...string) (bool, error) {
	c.calls++
	return c.Store.Check(ctx, keys...)
}

func (c *counted) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	c.calls++
	return c.Store.MultiGet(ctx, keys...)
}

// Of nodes that came together the leader reads many at once, in the order of their tickets, and no further than to one who
// has drawn and said nothing yet.
func TestReadAhead(t *testing.T) {
	for _, c := range []struct{ drawn, hole, calls int }{
		{1, 0, 4}, {2, 0, 5}, {1000, 0, 40}, {1000, 1, 3}, {1000, 2, 12}, {1000, 700, 60},
	} {
		s := &counted{Store: &store.Memory{}}
		spec := job.Spec{ID: "x", Terms: job.Terms{Nodes: 1000}, Self: job.Node{Index: -1, Slots: 8, Incarnation: "me"}}
		l := &leader{node: &node{store: s, spec: spec, meeting: shelf{s, "m/"}}}
		l.self = l.record()
		want := c.drawn
		for i := 1; i <= c.drawn; i++ {
			r := l.record()
			r.Node.Name = fmt.Sprint("host", i)
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if i == c.hole {
				want = i - 1
				continue
			}
			if err := s.Set(t.Context(), l.meeting.prefix+numbered(keyTicket, i), b); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Store.Add(t.Context(), l.meeting.prefix+keyTickets, int64(c.drawn)); err != nil {
			t.Fatal(err)
		}
		for before := -1; l.reached != before; {
			before = l.reached
			if err := l.step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if l.reached != want || len(l.guests) != want || s.calls > c.calls {
			t.Errorf("%d drawn, nothing from %d: read %d in %d calls, want %d in at most %d", c.drawn, c.hole, l.reached, s.calls, want, c.calls)
		}
		for i, g := range l.guests {
			if g.number != i+1 || g.Node.Name != fmt.Sprint("host", i+1) {
				t.Fatalf("guest %d is %v", i, g.ticket)
			}
		}
	}
}
