package fleet

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/job"
)

// An agent that comes back to a world which its leader has left learns it at once, for certain only from who led it.
func TestBackInAWorldThatIsOver(t *testing.T) {
	other := func(change func(w *job.World)) job.World { w := world(2); change(&w); return w }
	for name, c := range map[string]struct {
		world   job.World
		self    string
		within  time.Duration
		certain bool
	}{
		"its leader":      {world(2), "", 50 * time.Millisecond, true},
		"two worlds on":   {other(func(w *job.World) { w.Generation++ }), "", 400 * time.Millisecond, false},
		"a stranger":      {other(func(w *job.World) { w.Nonce = "guess" }), "", 400 * time.Millisecond, false},
		"of another job":  {other(func(w *job.World) { w.ID = "job8" }), "", 11 * time.Second, false},
		"the world after": {other(func(w *job.World) { w.Generation-- }), "", 11 * time.Second, false},
		"another process": {job.World{}, "started anew", 400 * time.Millisecond, false},
		"the leader":      {job.World{}, world(2).Members[0].Incarnation, 11 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{leader: Lead(world(2), Options{})}
				var gone atomic.Bool
				over := Over{World: c.world, Self: c.self}
				member, err := Follow(t.Context(), seat(world(2), 1, "leader"), Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
					if !gone.Load() {
						return w.dial(ctx, network, addr)
					}
					a, b := net.Pipe()
					go func() { over.Meet(b) }()
					return a, nil
				}})
				if err != nil {
					t.Fatal(err)
				}
				defer closeAll(w.leader, member)
				want(t, member, Joined, 0)
				gone.Store(true)
				synctest.Wait() // the member reads: it is its own end that it sees closed, and nobody's word that he goes
				w.cut(nil)
				began := time.Now()
				if c.within > member.Suspect {
					want(t, member, Suspect, 0)
				}
				e := want(t, member, Lost, 0)
				if d := time.Since(began); d > c.within || e.Certain != c.certain || e.GaveUp != c.certain {
					t.Errorf("after %v it is certain: %t, it gave us up: %t (%v)", d, e.Certain, e.GaveUp, e.Why)
				}
				says := "generation 3 of the job is over"
				if c.self != "" {
					says = "another process than that leader has its address now"
				}
				if c.within < time.Second && !strings.Contains(e.Why.Error(), says) {
					t.Error(e.Why)
				}
			})
		})
	}
}

// Who calls for the next world is let in, as if nobody had looked at what it says.
func TestCallForTheNextWorld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := world(2)
		next.Generation++
		leader := Lead(next, Options{})
		member, err := Follow(t.Context(), seat(next, 1, "leader"), Options{Dial: func(context.Context, string, string) (net.Conn, error) {
			a, b := net.Pipe()
			go func() { leader.Handle(Over{World: world(2)}.Meet(b)) }()
			return a, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll(leader, member)
		want(t, leader, Joined, 1)
		_ = member.Tell("hello", nil)
		heard(t, leader, 1, "hello")
	})
}

// Whoever hangs up, or says nothing that makes sense, is handed on as well; what it said is still there.
func TestNobodyCalls(t *testing.T) {
	a, b := net.Pipe()
	go func() { a.Write([]byte("GET / HTTP/1.1\r\n")); a.Close() }()
	c := Over{World: world(2)}.Meet(b)
	text := make([]byte, 100)
	n, err := c.Read(text)
	if err != nil || !strings.HasPrefix("GET / HTTP/1.1\r\n", string(text[:n])) || n == 0 {
		t.Errorf("%q, %v", text[:n], err)
	}
	for err == nil {
		_, err = c.Read(text)
	}
}
