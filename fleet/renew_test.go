package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/job"
)

// An agent that takes over a member's line: the leader hears of it, and both begin anew.
func TestMemberIsRenewed(t *testing.T) {
	w := world(2)
	leader, addr := lead(t, w, Options{})
	old := follow(t, w, 1, Options{}, addr)
	want(t, leader, Joined, 1)
	want(t, old, Joined, 0)
	for range 3 {
		if err := errors.Join(old.Tell("old", nil), leader.Tell("old", nil)); err != nil {
			t.Fatal(err)
		}
		heard(t, leader, 1, "old")
		heard(t, old, 0, "old")
	}
	fresh := follow(t, w, 1, Options{Life: 1}, addr)
	want(t, leader, Renewed, 1)
	want(t, fresh, Joined, 0)
	if err := errors.Join(fresh.Tell("new", nil), leader.Tell("new", nil)); err != nil {
		t.Fatal(err)
	}
	heard(t, leader, 1, "new")
	heard(t, fresh, 0, "new")
	if e := want(t, old, Lost, 0); e.Why.Error() != "refused: "+errOld.Error() {
		t.Errorf("the old one was told %v", e.Why)
	}
}

// A member whose agents died before one of them joined hears what was told meanwhile.
func TestLateLifeHearsAll(t *testing.T) {
	leader, addr := lead(t, world(2), Options{})
	if err := leader.Tell("start", nil); err != nil {
		t.Fatal(err)
	}
	member := follow(t, world(2), 1, Options{Life: 2}, addr)
	want(t, leader, Joined, 1)
	want(t, member, Joined, 0)
	heard(t, member, 0, "start")
}

// An agent that takes over the leader's line, at the same address.
func TestLeaderIsRenewed(t *testing.T) {
	w := world(2)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var current atomic.Pointer[Fleet]
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			current.Load().Handle(c)
		}
	}()
	var held atomic.Int64 // connections that are held and not freed
	hold := func(net.Conn) func() { held.Add(1); return func() { held.Add(-1) } }
	old := Lead(w, Options{Hold: hold})
	current.Store(old)
	member := follow(t, w, 1, Options{}, job.Addr(ln.Addr().String()))
	want(t, old, Joined, 1)
	want(t, member, Joined, 0)
	for range 3 {
		if err := errors.Join(old.Tell("old", nil), member.Tell("old", nil)); err != nil {
			t.Fatal(err)
		}
		heard(t, old, 1, "old")
		heard(t, member, 0, "old")
	}
	fresh := Lead(w, Options{Life: 2, Hold: hold})
	current.Store(fresh)
	old.hangUp() // as its death does
	want(t, member, Renewed, 0)
	want(t, fresh, Joined, 1)
	if err := errors.Join(fresh.Tell("new", nil), member.Tell("new", nil)); err != nil {
		t.Fatal(err)
	}
	heard(t, fresh, 1, "new")
	heard(t, member, 0, "new")
	closeAll(fresh, old, member)
	ln.Close()
	<-served
	if n := held.Load(); n != 0 {
		t.Errorf("%d connections are held for ever", n)
	}
}

// As long as somebody holds the leader's port it is not absent, however often he hangs up: agents are being replaced. That nothing is heard is said.
func TestHeldPortIsNoAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{leader: Lead(world(2), Options{})}
		var silent atomic.Int64 // connections that nobody answers, to come
		member, err := Follow(t.Context(), seat(world(2), 1, "leader"), Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if silent.Add(-1) < 0 {
				return w.dial(ctx, network, addr)
			}
			near, far := net.Pipe()
			go func() { _, _ = readHello(bufio.NewReader(far)); time.Sleep(time.Second); far.Close() }()
			return near, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		old, fresh := w.leader, Lead(world(2), Options{Life: 1})
		defer closeAll(old, fresh, member)
		want(t, old, Joined, 1)
		want(t, member, Joined, 0)
		silent.Store(5)
		w.succeed(fresh)
		if e := want(t, member, Suspect, 0); time.Since(e.Last) < member.Suspect || e.Why == nil {
			t.Errorf("it is suspect: %+v", e)
		}
		want(t, member, Renewed, 0)
		want(t, member, Back, 0)
	})
}

// succeed makes f the leader, and ends the connections of the one before.
func (w *wire) succeed(f *Fleet) {
	w.mu.Lock()
	w.leader = f
	w.mu.Unlock()
	w.cut(nil)
}

// Who said goodbye to an agent that died says it to the next one.
func TestGoodbyeIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, old, member := pair(t, Options{})
		fresh := Lead(world(2), Options{Life: 1})
		defer closeAll(old, fresh)
		w.cut(errRefused)
		closed := make(chan struct{})
		go func() { defer close(closed); member.Close() }()
		synctest.Wait()
		w.succeed(fresh)
		want(t, fresh, Joined, 1)
		want(t, fresh, Left, 1)
		<-closed
	})
}

// A member that comes back waits for nobody: what it tells before the leader answers arrives, and a leader that never does, or
// that gave it up, is lost.
func TestRejoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, leader, old := pair(t, Options{})
		defer closeAll(leader, old)
		again := func(o Options) *Fleet {
			o.Life, o.Dial = 1, w.dial
			member, err := Rejoin(seat(world(2), 1, "leader"), o)
			if err != nil {
				t.Fatal(err)
			}
			return member
		}
		w.block(errRefused)
		begun := time.Now()
		far := again(Options{Arrival: 10 * time.Second})
		e := want(t, far, Lost, 0)
		if got := e.Why.Error(); time.Since(begun) < 10*time.Second || got != "it was not reached within 10s: leader: connection refused" {
			t.Errorf("after %v: %q", time.Since(begun), got)
		}
		far.Close()
		fresh := again(Options{})
		defer fresh.Close()
		if err := fresh.Tell("early", nil); err != nil {
			t.Fatal(err)
		}
		w.block(nil)
		want(t, leader, Renewed, 1)
		heard(t, leader, 1, "early")
		want(t, fresh, Joined, 0)
		w.cut(errRefused)
		want(t, leader, Lost, 1)
		w.block(nil)
		late := again(Options{})
		defer late.Close()
		if e := want(t, late, Lost, 0); !strings.Contains(e.Why.Error(), "was given up") {
			t.Errorf("%v", e.Why)
		}
	})
}

// block lets nobody get through any more, unless why is nil.
func (w *wire) block(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = why
}

// What a peer said of itself is known when it is lost.
func TestLastBeat(t *testing.T) {
	w := world(2)
	fast := Options{NodeTimeout: time.Second, Suspect: 300 * time.Millisecond}
	leader, addr := lead(t, w, fast)
	said := make(chan bool, 100)
	fast.Beat = func() json.RawMessage {
		select {
		case said <- true:
		default:
		}
		return json.RawMessage(`{"memory":7}`)
	}
	member := follow(t, w, 1, fast, addr)
	want(t, leader, Joined, 1)
	<-said // before the first of these was sent
	<-said
	for got := ""; got != `{"memory":7}`; { // it comes soon
		leader.Beats(func(rank int, beat json.RawMessage, at time.Time) {
			if rank != 1 || at.IsZero() {
				t.Errorf("a beat of rank %d at %v", rank, at)
			}
			got = string(beat)
		})
	}
	member.peers[0].hangUp()
	member.stop()
	e := next(t, leader)
	for e.Change != Lost { // it may be suspect before
		e = next(t, leader)
	}
	if string(e.Beat) != `{"memory":7}` {
		t.Errorf("its last beat is %q", e.Beat)
	}
}
