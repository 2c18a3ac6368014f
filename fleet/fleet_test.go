package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/job"
)

func world(n int) job.World {
	w := job.World{ID: "job7", Nonce: "0123456789abcdef", Generation: 3}
	for i := range n {
		w.Members = append(w.Members, job.Member{First: 8 * i, Node: job.Node{
			Name: fmt.Sprint("host", i), Index: i, Slots: 8, Incarnation: fmt.Sprint("life", i),
		}})
	}
	return w
}

// seat is the place of a node in a world whose leader is at these addresses.
func seat(w job.World, rank int, leader ...job.Addr) job.Seat {
	first := w.Members[0].Node
	first.Addrs = leader
	return job.Seat{Job: w.ID, Nonce: w.Nonce, Generation: w.Generation, Rank: rank, Incarnation: w.Members[rank].Incarnation, Leader: first}
}

// lead opens a fleet on a loopback port.
func lead(t testing.TB, w job.World, o Options) (*Fleet, job.Addr) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := Lead(w, o)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			f.Handle(c)
		}
	}()
	t.Cleanup(func() {
		f.Close()
		ln.Close()
		<-served
	})
	return f, job.Addr(ln.Addr().String())
}

func follow(t testing.TB, w job.World, self int, o Options, addrs ...job.Addr) *Fleet {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	f, err := Follow(ctx, seat(w, self, addrs...), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// next returns the next event, which must come soon.
func next(t testing.TB, f *Fleet) Event {
	t.Helper()
	select {
	case e := <-f.Events():
		return e
	case <-time.After(2 * time.Minute):
		t.Fatal("no event")
		panic("unreachable")
	}
}

func want(t testing.TB, f *Fleet, c Change, peer int) Event {
	t.Helper()
	e := next(t, f)
	if e.Change != c || e.Peer != peer {
		t.Fatalf("got %v from %d (%v), want %v from %d", e.Change, e.Peer, e.Why, c, peer)
	}
	return e
}

func heard(t testing.TB, f *Fleet, peer int, kind string) Event {
	t.Helper()
	e := want(t, f, Heard, peer)
	if e.Message.Kind != kind || e.Message.From != peer {
		t.Fatalf("got %q from %d, want %q from %d", e.Message.Kind, e.Message.From, kind, peer)
	}
	return e
}

func TestTellBothWays(t *testing.T) {
	w := world(3)
	leader, addr := lead(t, w, Options{})
	a := follow(t, w, 1, Options{}, addr)
	if e := want(t, leader, Joined, 1); e.Host != "127.0.0.1" {
		t.Errorf("joined from %q", e.Host)
	}
	b := follow(t, w, 2, Options{}, addr)
	want(t, leader, Joined, 2)
	want(t, a, Joined, 0)
	want(t, b, Joined, 0)
	if a.LeaderHost() != "127.0.0.1" {
		t.Errorf("leader at %q", a.LeaderHost())
	}

	if err := a.Tell("failed", job.Failure{Rank: 9}); err != nil {
		t.Fatal(err)
	}
	var failure job.Failure
	if err := json.Unmarshal(heard(t, leader, 1, "failed").Message.Body, &failure); err != nil || failure.Rank != 9 {
		t.Errorf("%+v, %v", failure, err)
	}
	if err := leader.Tell("stop", failure); err != nil {
		t.Fatal(err)
	}
	heard(t, a, 0, "stop")
	heard(t, b, 0, "stop")
	if err := leader.TellOne(2, "only you", nil); err != nil {
		t.Fatal(err)
	}
	heard(t, b, 0, "only you")

	a.Close()
	want(t, leader, Left, 1)
	leader.Close()
	want(t, b, Left, 0)
}

// The leader learns how far each member's clock is from its own, and how well it knows that.
func TestClocks(t *testing.T) {
	w := world(3)
	leader, addr := lead(t, w, Options{})
	fast := func() time.Time { return time.Now().Add(time.Hour) }
	for rank, o := range map[int]Options{1: {}, 2: {Now: fast}} {
		follow(t, w, rank, o, addr)
		ahead := time.Duration(rank-1) * time.Hour
		if c := want(t, leader, Joined, rank).Clock; c.Within <= 0 || (c.Ahead-ahead).Abs() > c.Within+time.Millisecond {
			t.Errorf("the clock of member %d is %v ahead, give or take %v", rank, c.Ahead, c.Within)
		}
	}
}

// Who reads events one by one can see whether there are more.
func TestEventsLieReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(seat(world(2), 1), Options{})
		var delivering sync.WaitGroup
		delivering.Go(f.deliver)
		for peer := range 3 {
			f.inbox.note(Event{Peer: peer, Change: Left})
		}
		synctest.Wait()
		if n := len(f.Events()); n != 3 {
			t.Errorf("%d events lie ready, want 3", n)
		}
		close(f.closing)
		f.inbox.close()
		delivering.Wait()
	})
}
