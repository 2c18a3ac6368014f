package launcher

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/job"
)

// A door at which the next world is waited for turns away at once who comes back to the last one, and keeps who is too early.
func TestDoorBetweenWorlds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		last := job.World{ID: "job7", Nonce: "last", Generation: 1, Members: []job.Member{{Node: job.Node{Name: "a", Incarnation: "1"}}, {Node: job.Node{Name: "b", Incarnation: "2"}}}}
		next := last
		next.Nonce, next.Generation = "next", 2
		var d door
		defer d.shut()
		d.reset(&fleet.Over{World: last})
		o := fleet.Options{Dial: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			d.handle(there)
			return here, nil
		}}
		seat := job.Seat{Job: "job7", Nonce: "last", Generation: 1, Rank: 1, Incarnation: "2", Leader: job.Node{Name: "a", Addrs: []job.Addr{"a:1"}}}
		began := time.Now()
		late, err := fleet.Rejoin(seat, o)
		if err != nil {
			t.Fatal(err)
		}
		defer late.Close()
		if e := <-late.Events(); e.Change != fleet.Lost || !e.Certain || time.Since(began) > 4*time.Second { // a hello is answered within 5 s, or not at all
			t.Errorf("%v %v after %v", e.Change, e.Why, time.Since(began))
		}
		silent, other := net.Pipe() // and somebody says nothing
		d.handle(other)
		defer silent.Close()
		seat.Nonce, seat.Generation = "next", 2
		early := make(chan error, 1)
		go func() {
			member, err := fleet.Follow(ctx, seat, o)
			if err == nil {
				defer member.Close()
			}
			early <- err
		}()
		leader := fleet.Lead(next, fleet.Options{})
		defer leader.Close()
		d.open(leader)
		if e := <-leader.Events(); e.Change != fleet.Joined {
			t.Errorf("%v %v", e.Change, e.Why)
		}
		if err := <-early; err != nil {
			t.Error(err)
		}
		d.shut()
		if _, err := silent.Read(make([]byte, 1)); err == nil {
			t.Error("who says nothing is kept")
		}
	})
}

// An agent that was started in the place of the leader, at its address, turns those away at once who call that one.
func TestDoorOfAnotherProcess(t *testing.T) {
	d := door{self: "started anew"}
	defer d.shut()
	late, err := fleet.Rejoin(job.Seat{Job: "job7", Nonce: "last", Generation: 1, Rank: 1, Incarnation: "2", Leader: job.Node{Name: "a", Incarnation: "1", Addrs: []job.Addr{"a:1"}}},
		fleet.Options{Arrival: time.Second, Dial: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			d.handle(there)
			return here, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if e := <-late.Events(); e.Change != fleet.Lost || !strings.Contains(e.Why.Error(), "another process than that leader has its address now") {
		t.Errorf("%v %v", e.Change, e.Why)
	}
}

// More strangers come to a door than there is room for, and stay. An agent that was there before them, and one that comes after, join when it opens.
func TestCrowdedDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := job.World{ID: "job7", Nonce: "next", Generation: 1}
		for i := range 3 {
			w.Members = append(w.Members, job.Member{Node: job.Node{Name: string(rune('a' + i)), Incarnation: string(rune('0' + i))}})
		}
		d := door{most: 20}
		defer d.shut()
		come := func(from byte) net.Conn {
			here, there := net.Pipe()
			d.handle(&called{there, net.IPv4(10, 0, 0, from)})
			return here
		}
		joined, over := make(chan error), make(chan bool)
		defer close(over)
		follow := func(rank int) {
			seat := job.Seat{Job: w.ID, Nonce: w.Nonce, Generation: 1, Rank: rank, Incarnation: w.Members[rank].Incarnation, Leader: job.Node{Name: "a", Addrs: []job.Addr{"a:1"}}}
			member, err := fleet.Follow(t.Context(), seat, fleet.Options{Dial: func(context.Context, string, string) (net.Conn, error) { return come(byte(rank)), nil }})
			joined <- err
			if err == nil {
				<-over
				member.Close()
			}
		}
		go follow(1)
		synctest.Wait()
		for range 100 {
			defer come(99).Close()
		}
		go follow(2)
		synctest.Wait()
		if n := d.there.Len(); n > d.most {
			t.Errorf("%d are at the door", n)
		}
		leader := fleet.Lead(w, fleet.Options{})
		defer leader.Close()
		d.open(leader)
		for range 2 {
			if err := <-joined; err != nil {
				t.Error(err)
			}
			if e := <-leader.Events(); e.Change != fleet.Joined {
				t.Errorf("%v %v", e.Change, e.Why)
			}
		}
	})
}

// called is a connection from an address.
type called struct {
	net.Conn
	from net.IP
}

func (c *called) RemoteAddr() net.Addr { return &net.TCPAddr{IP: c.from, Port: 1} }
