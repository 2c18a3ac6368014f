package fleet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/job"
)

// A wire is a network in which connections can be cut, and members reach the leader without TCP.
type wire struct {
	mu     sync.Mutex
	leader *Fleet
	open   []net.Conn
	down   error // why nobody gets through
}

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down != nil {
		return nil, w.down
	}
	a, b := net.Pipe()
	w.open = append(w.open, a, b)
	w.leader.Handle(b)
	return a, nil
}

// cut closes every connection; later ones fail with why, unless it is nil.
func (w *wire) cut(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.open {
		c.Close()
	}
	w.open, w.down = nil, why
}

// pair is a leader and a member over a wire.
func pair(t *testing.T, o Options) (*wire, *Fleet, *Fleet) {
	w := &wire{leader: Lead(world(2), o)}
	o.Dial = w.dial
	member, err := Follow(t.Context(), seat(world(2), 1, "leader"), o)
	if err != nil {
		t.Fatal(err)
	}
	want(t, w.leader, Joined, 1)
	want(t, member, Joined, 0)
	return w, w.leader, member
}

func closeAll(fleets ...*Fleet) {
	for _, f := range fleets {
		f.Close()
	}
}

var errRefused = errors.New("connection refused")

func TestBrokenConnectionLosesNothing(t *testing.T) {
	openAndSealed(t, testBrokenConnectionLosesNothing)
}

func testBrokenConnectionLosesNothing(t *testing.T, token string) {
	synctest.Test(t, func(t *testing.T) {
		w, leader, member := pair(t, Options{Token: token})
		defer closeAll(leader, member)
		for round := range 20 {
			for i := range 10 {
				if i == round%10 {
					w.cut(nil)
				}
				leader.Tell(fmt.Sprint("l", i), nil)
				member.Tell(fmt.Sprint("m", i), nil)
			}
			for i := range 10 {
				heard(t, leader, 1, fmt.Sprint("m", i))
				heard(t, member, 0, fmt.Sprint("l", i))
			}
		}
		quiet(t, leader)
		quiet(t, member)
	})
}

// quiet checks that nothing more happens for a while.
func quiet(t *testing.T, f *Fleet) {
	t.Helper()
	select {
	case e := <-f.Events():
		t.Fatalf("got %v from %d: %v", e.Change, e.Peer, e.Why)
	case <-time.After(time.Minute):
	}
}

func TestNoRedialIsDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, leader, member := pair(t, Options{})
		defer closeAll(leader, member)
		member.Tell("last words", nil)
		synctest.Wait()
		cut := time.Now()
		w.cut(errRefused)
		heard(t, leader, 1, "last words")
		e := want(t, leader, Lost, 1)
		if d := e.Received.Sub(cut); d < 250*time.Millisecond || d > 350*time.Millisecond {
			t.Errorf("the leader noticed after %v", d)
		}
		if got := e.Why.Error(); !strings.Contains(got, "it closed the connection, and was not back within 250ms") {
			t.Errorf("the leader says %q", got)
		}
		e = want(t, member, Lost, 0)
		if got := e.Why.Error(); !strings.Contains(got, "connection refused, and was not back within 250ms") {
			t.Errorf("the member says %q", got)
		}
		if err := member.Tell("anybody?", nil); err == nil {
			t.Error("a message to nobody was taken")
		}
	})
}

// Who was given up is told so, and not let in again.
func TestTheLostStayOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{leader: Lead(world(2), Options{Arrival: time.Second})}
		defer closeAll(w.leader)
		want(t, w.leader, Lost, 1)
		_, err := Follow(t.Context(), seat(world(2), 1, "leader"), Options{Dial: w.dial})
		if err == nil || !strings.Contains(err.Error(), "refused: host1 (node 1) was given up: it did not join within 1s") {
			t.Errorf("got %v", err)
		}
	})
}

// A net that swallows everything: nobody sees a closed connection, and a new one does not come about.
type swamp struct {
	net.Conn
	mu    sync.Mutex
	stuck bool
	freed *sync.Cond
}

func (s *swamp) sink(stuck bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck = stuck
	s.freed.Broadcast()
}

func (s *swamp) Write(b []byte) (int, error) {
	s.mu.Lock()
	for s.stuck {
		s.freed.Wait()
	}
	s.mu.Unlock()
	return s.Conn.Write(b)
}

// A bog is a network of swamps.
type bog struct {
	leader *Fleet
	mu     sync.Mutex
	last   *swamp
	closed bool // dials hang
}

func (b *bog) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	near, far := net.Pipe()
	b.last = &swamp{Conn: far}
	b.last.freed = sync.NewCond(&b.last.mu)
	b.leader.Handle(b.last)
	return near, nil
}

// sink swallows what the leader writes on the newest connection, and dials too if so wished.
func (b *bog) sink(dials bool) *swamp {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = dials
	b.last.sink(true)
	return b.last
}

func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bog{leader: Lead(world(2), Options{})}
		member, err := Follow(t.Context(), seat(world(2), 1, "leader"), Options{Dial: b.dial})
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll(b.leader, member)
		want(t, member, Joined, 0)
		time.Sleep(100 * time.Second) // nothing to tell is not silence
		synctest.Wait()

		begun := time.Now()
		line := b.sink(true)
		e := want(t, member, Suspect, 0)
		if d := e.Received.Sub(begun); d < 2*time.Second || d > 3200*time.Millisecond {
			t.Errorf("suspect after %v", d)
		}
		time.Sleep(time.Second)
		line.sink(false)
		want(t, member, Back, 0)

		begun = time.Now()
		line.sink(true)
		want(t, member, Suspect, 0)
		e = want(t, member, Lost, 0)
		if d := e.Received.Sub(begun); d < 9*time.Second || d > 10200*time.Millisecond || !strings.Contains(e.Why.Error(), "silent for 10") {
			t.Errorf("lost after %v: %v", d, e.Why)
		}
		line.sink(false)
	})
}

// While all take part in the world's work nobody is given up for being silent; then as ever.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bog{leader: Lead(world(2), Options{})}
		until := time.Now().Add(time.Minute)
		member, err := Follow(t.Context(), seat(world(2), 1, "leader"), Options{Dial: b.dial, Together: func() time.Time {
			if now := time.Now(); now.Before(until) {
				return now
			}
			return until
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll(b.leader, member)
		want(t, member, Joined, 0)
		line := b.sink(true)
		defer line.sink(false)
		want(t, member, Suspect, 0)
		if e := want(t, member, Suspect, 0); !strings.Contains(e.Why.Error(), "nothing heard for 10s, but its workers still take part in collectives") {
			t.Errorf("told %q", e.Why)
		}
		time.Sleep(time.Until(until))
		e := want(t, member, Lost, 0)
		if late := e.Received.Sub(until); late < 10*time.Second || late > 10200*time.Millisecond || e.Certain || e.Received.Sub(e.Last) < time.Minute {
			t.Errorf("lost after %v, certain %v, last heard %v before", late, e.Certain, e.Received.Sub(e.Last))
		}
	})
}

// A member that hears nothing tries a new connection; where that works, nobody is lost.
func TestSuspicionDialsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bog{leader: Lead(world(2), Options{})}
		member, err := Follow(t.Context(), seat(world(2), 1, "leader"), Options{Dial: b.dial})
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll(b.leader, member)
		want(t, member, Joined, 0)
		want(t, b.leader, Joined, 1)
		synctest.Wait()
		line := b.sink(false)
		b.leader.Tell("stuck", nil)
		want(t, member, Suspect, 0)
		e := next(t, member)
		if e.Change == Back {
			e = next(t, member)
		}
		if e.Change != Heard || e.Message.Kind != "stuck" {
			t.Errorf("got %v", e)
		}
		line.sink(false)
	})
}

// One new connection is enough, also when mind, whose events nobody reads, is slow to see that it works.
func TestSuspicionDialsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bog{leader: Lead(world(2), Options{})}
		dials := 0
		o := Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials++; dials > 20 { // it would be for ever
				b.mu.Lock()
				b.closed = true
				b.mu.Unlock()
			}
			return b.dial(ctx, network, addr)
		}}
		member, err := Follow(t.Context(), seat(world(2), 1, "leader"), o)
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll(b.leader, member)
		want(t, member, Joined, 0)
		synctest.Wait()
		line := b.sink(false)
		want(t, member, Suspect, 0)
		synctest.Wait()
		time.Sleep(2 * look)
		synctest.Wait()
		if dials != 2 {
			t.Errorf("%d connections", dials)
		}
		line.sink(false)
	})
}

// A leader that proves itself and then does not go on is tried again with pauses.
func TestBrokenOffOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		dials := 0
		_, err := Follow(ctx, seat(world(2), 1, "leader"), Options{Dial: func(context.Context, string, string) (net.Conn, error) {
			if dials++; dials > 1000 {
				cancel() // it would be for ever
			}
			near, far := net.Pipe()
			go breakOff(far)
			return near, nil
		}})
		if err == nil || dials < 50 || dials > 250 {
			t.Errorf("%d connections, %v", dials, err)
		}
	})
}

// Anybody may answer at an address, and what he says ends on a terminal.
func TestRudeRefusal(t *testing.T) {
	for said, want := range map[string]string{
		"no\x1b[2J\r\n\u202e\u009bway":       "refused: no[2Jway",
		strings.Repeat("x", 199) + "äöü":     "refused: " + strings.Repeat("x", 199),
		"knöt: " + strings.Repeat("x", 1000): "refused: knöt: " + strings.Repeat("x", 193),
	} {
		var b bytes.Buffer
		b.Write(appendFrame(nil, welcome{Refused: said}))
		k := call{in: bufio.NewReader(&b)}
		if _, err := answer(k.in); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", said, err, want)
		}
	}
}

// A leader that refuses a member, and is gone before the member gives up, is not forgotten to have said why.
func TestRefusedAndGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := Follow(ctx, seat(world(2), 1, "leader"), Options{Dial: func(context.Context, string, string) (net.Conn, error) {
			if calls.Add(1) > 1 {
				return nil, errRefused
			}
			a, b := net.Pipe()
			go func() {
				_, _ = readHello(newReader(b))
				Refuse(b, "it is not let in")
			}()
			return a, nil
		}})
		if err == nil || !strings.Contains(err.Error(), "leader: connection refused (before: refused: it is not let in)") {
			t.Errorf("got %v", err)
		}
	})
}

// breakOff opens a connection as the leader does, as far as its proof.
func breakOff(c net.Conn) {
	defer c.Close()
	h, err := readHello(bufio.NewReader(c))
	if err != nil {
		return
	}
	_ = send(c, welcome{Protocol: Protocol, Salt: salt(), Proof: proof(world(2).Nonce, "leader", h.Salt, h)})
}

// A peer that takes nothing is given up; the others do not notice.
func TestSlowPeer(t *testing.T) {
	w := world(3)
	leader, addr := lead(t, w, Options{})
	good := follow(t, w, 1, Options{}, addr)
	want(t, leader, Joined, 1)
	bad := stuck(t, w, 2, addr)
	defer bad.Close()
	want(t, leader, Joined, 2)
	want(t, good, Joined, 0)
	stop := make(chan struct{})
	defer close(stop)
	go func() { // it does everything but read
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				bad.Write(appendFrame(nil, frame{Ping: int64(i)}))
			}
		}
	}()
	body := strings.Repeat("x", MaxMessage/2)
	lost := false
	for i := 0; !lost; i++ {
		begun := time.Now()
		if err := leader.Tell(fmt.Sprint(i), body); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begun); d > 8*time.Second { // it would have to wait for NodeTimeout
			t.Errorf("Tell took %v", d)
		}
		heard(t, good, 0, fmt.Sprint(i))
		select {
		case e := <-leader.Events():
			if e.Change == Lost && e.Peer == 2 {
				lost = true
			} else if e.Peer != 2 {
				t.Fatalf("%v of %d: %v", e.Change, e.Peer, e.Why)
			}
		default:
		}
	}
}

// A peer that only talks is given up after the node time-out, though nothing waits for it but pings.
func TestPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{leader: Lead(world(2), Options{})}
		defer closeAll(w.leader)
		c, _ := w.dial(t.Context(), "", "")
		deaf(t, world(2), 1, c)
		want(t, w.leader, Joined, 1)
		begun := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 1; ; i++ {
				if _, err := c.Write(appendFrame(nil, frame{Ping: int64(i)})); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		e := want(t, w.leader, Lost, 1)
		if d := e.Received.Sub(begun); d < 10*time.Second || d > 11*time.Second || !strings.Contains(e.Why.Error(), "it has read nothing for 10s") {
			t.Errorf("lost after %v: %v", d, e.Why)
		}
		<-done
	})
}

// A short node time-out does not make the healthy suspect.
func TestShortNodeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, leader, member := pair(t, Options{NodeTimeout: time.Second})
		defer closeAll(leader, member)
		quiet(t, leader)
		quiet(t, member)
	})
}

// stuck opens a connection as member self does, and reads no further.
func stuck(t *testing.T, w job.World, self int, addr job.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", string(addr))
	if err != nil {
		t.Fatal(err)
	}
	deaf(t, w, self, c)
	return c
}

func deaf(t *testing.T, w job.World, self int, c net.Conn) {
	t.Helper()
	f := newFleet(seat(w, self), Options{})
	k, err := f.call(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := send(k, ready{Proof: proof(w.Nonce, "member", k.salt, k.me)}); err != nil {
		t.Fatal(err)
	}
	if _, err := answer(k.in); err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Time{})
}

func TestFullQueue(t *testing.T) {
	f := Lead(world(2), Options{})
	defer f.Close()
	var err error
	for i := 0; err == nil && i <= maxQueue; i++ {
		err = f.TellOne(1, "x", i)
	}
	if err == nil || !strings.Contains(err.Error(), "1024 messages wait for it and it does not take them") {
		t.Errorf("got %v", err)
	}
	want(t, f, Lost, 1)
}

func TestMessageTooLarge(t *testing.T) {
	f := Lead(world(2), Options{})
	defer f.Close()
	if err := f.Tell("big", strings.Repeat("x", MaxMessage)); err == nil {
		t.Error("it was taken")
	}
	if err := f.Tell(strings.Repeat("k", maxKind+1), 1); err == nil {
		t.Error("its kind was taken")
	}
	if err := f.Tell("no json", func() {}); err == nil {
		t.Error("a function was taken")
	}
	if err := f.TellOne(7, "x", 1); err == nil {
		t.Error("a message to nobody was taken")
	}
}

// A message of the largest size arrives, whatever is in it.
func TestLargestMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, leader, member := pair(t, Options{})
		defer closeAll(leader, member)
		body := strings.Repeat("<", (MaxMessage-maxKind-2)/6)
		kind := strings.Repeat("\x01", maxKind)
		if err := member.Tell(kind, body); err != nil {
			t.Fatal(err)
		}
		heard(t, leader, 1, kind)
	})
}

// Strangers are refused, on both sides with a reason, and the world does not mind them.
func TestStrangers(t *testing.T) {
	other := func(change func(w *job.World)) job.World { w := world(3); change(&w); return w }
	for _, c := range []struct {
		name       string
		token      string
		world      job.World
		self       int
		told, said string // by the member, and in the leader's log
	}{
		{"job", "ours", other(func(w *job.World) { w.ID = "job8" }), 1, "refused: this is job \\\"job7\\\", it wants job \\\"job8\\\"", "it wants job"},
		{"generation", "ours", other(func(w *job.World) { w.Generation = 2 }), 1, "refused: this is generation 3 of the job, it wants 2", "it wants 2"},
		{"nonce", "ours", other(func(w *job.World) { w.Nonce = "guess" }), 1, "who answers there does not know this world's secret", "node 1: it did not go on"},
		{"token", "guess", world(3), 1, "who answers there does not know this world's secret", "node 1: it did not go on"},
		{"no token", "", world(3), 1, "who answers there does not know this world's secret", "node 1: it did not go on"},
		{"process", "ours", other(func(w *job.World) { w.Members[1].Incarnation = "old" }), 1, "refused: it is another process than the member host1 (node 1)", "another process"},
		{"rank", "ours", world(5), 4, "refused: it says it is node 4, and this world expects no such node to call", "no such node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log syncBuffer
				all := &slog.HandlerOptions{Level: slog.LevelDebug}
				w := &wire{leader: Lead(world(3), Options{Token: "ours", Arrival: time.Hour, Log: slog.New(slog.NewTextHandler(&log, all))})}
				defer closeAll(w.leader)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := Follow(ctx, seat(c.world, c.self, "leader"), Options{Token: c.token, Dial: w.dial})
				if err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(c.told, `\"`, `"`)) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the stranger was told %v", err)
				}
				if !strings.Contains(log.String(), c.said) || !strings.Contains(log.String(), "from=pipe") {
					t.Errorf("the log says %s", log.String())
				}
				quiet(t, w.leader)
			})
		})
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A stranger that knows the public half of everything but not the nonce is refused at the last step.
func TestImpostor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{leader: Lead(world(2), Options{Arrival: time.Hour})}
		defer closeAll(w.leader)
		c, _ := w.dial(t.Context(), "", "")
		in := bufio.NewReader(c)
		m := world(2).Members[1]
		h := hello{Protocol: Protocol, Job: "job7", Generation: 3, Rank: 1, Incarnation: m.Incarnation, Salt: "s"}
		c.Write(appendFrame([]byte(Magic), h))
		var a welcome
		if err := readFrame(in, &a, maxHello); err != nil || a.Proof == "" {
			t.Fatalf("%+v, %v", a, err)
		}
		send(c, ready{Proof: a.Proof}) // the leader's own proof will not do
		if err := readFrame(in, &a, maxHello); err != nil || a.Refused != "it does not know this world's secret" {
			t.Errorf("%+v, %v", a, err)
		}
		c.Close()
	})
}

// Garbage, floods and silence at the door cost the guest its connection, and nothing else.
func TestGarbage(t *testing.T) {
	big := binary.BigEndian.AppendUint32([]byte(Magic), maxHello+1)
	for name, c := range map[string]struct {
		bytes []byte
		said  string
	}{
		"http":   {[]byte("GET / HTTP/1.1\r\n\r\n"), "it opened with"},
		"large":  {big, "a frame of 4097 bytes is more than the 4096"},
		"huge":   {append([]byte(Magic), 0xff, 0xff, 0xff, 0xff), "a frame of 4294967295 bytes"},
		"nojson": {append([]byte(Magic), 0, 0, 0, 2, '{', 'x'), "a frame is not understood"},
		"rank":   {appendFrame([]byte(Magic), map[string]any{"protocol": 1, "job": "job7", "generation": 3, "rank": -1}), "no such node"},
		"silent": {nil, "i/o timeout"},
		"half":   {[]byte(Magic[:4]), "i/o timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log syncBuffer
				w := &wire{leader: Lead(world(2), Options{Arrival: time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil))})}
				defer closeAll(w.leader)
				guest, _ := w.dial(t.Context(), "", "")
				guest.Write(c.bytes)
				begun := time.Now()
				io.Copy(io.Discard, guest) // until the leader hangs up
				if d := time.Since(begun); d > helloTime {
					t.Errorf("it took %v", d)
				}
				synctest.Wait()
				if !strings.Contains(log.String(), c.said) {
					t.Errorf("the log says %s", log.String())
				}
				guest.Close()
				quiet(t, w.leader)
			})
		})
	}
}

// Of too many guests the one that has been silent longest has to go, at once.
func TestTooManyGuests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncBuffer
		w := &wire{leader: Lead(world(2), Options{Arrival: time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil))})}
		defer closeAll(w.leader)
		first, _ := w.dial(t.Context(), "", "")
		for range 66 {
			w.dial(t.Context(), "", "")
		}
		begun := time.Now()
		if _, err := first.Read(make([]byte, 1)); err == nil || time.Since(begun) > 0 {
			t.Errorf("one guest too many is there: %v", err)
		}
		synctest.Wait()
		if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "too many have not said who they are") {
			t.Errorf("the log says %s", said)
		}
	})
}

// Strangers, of more addresses than one, hold as many connections as they can and prove nothing. A member whose connection breaks comes back,
// and others join.
func TestCrowdAtTheDoor(t *testing.T) {
	w := world(3)
	leader, addr := lead(t, w, Options{Arrival: time.Hour, Redial: 5 * time.Minute, NodeTimeout: time.Hour})
	dial, conns := dialTCP(time.Hour), make(chan net.Conn, 100)
	member := follow(t, w, 1, Options{NodeTimeout: time.Hour, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		conns <- c
		return c, err
	}}, addr)
	want(t, leader, Joined, 1)
	stranger := func(from string) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := d.Dial("tcp", string(addr))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_, _ = c.Write([]byte(Magic[:4])) // it may be closed meanwhile
	}
	flood := func() {
		for range 100 {
			stranger("127.0.0.2")
			stranger("127.0.0.3")
		}
	}
	flood()
	(<-conns).Close()
	follow(t, w, 2, Options{}, addr)
	want(t, leader, Joined, 2)
	flood()
	if err := member.Tell("here", nil); err != nil {
		t.Fatal(err)
	}
	heard(t, leader, 1, "here")
	leader.mu.Lock()
	defer leader.mu.Unlock()
	if n := leader.guests.Len(); n > 64+2*2 {
		t.Errorf("there are %d guests", n)
	}
}

// What a member sends after it was let in is bounded too.
func TestUnrulyMember(t *testing.T) {
	for name, b := range map[string][]byte{
		"frame of 2 GiB":                   {0x7f, 0xff, 0xff, 0xff},
		"no json":                          {0, 0, 0, 1, '}'},
		"gap":                              appendFrame(nil, frame{Seq: 2, Message: &message{Kind: "x"}}),
		"acknowledges what was never sent": appendFrame(nil, frame{Ack: 1}),
	} {
		t.Run(name, func(t *testing.T) {
			w := world(2)
			leader, addr := lead(t, w, Options{Arrival: time.Second})
			c := stuck(t, w, 1, addr)
			defer c.Close()
			want(t, leader, Joined, 1)
			c.Write(b)
			if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) { // the leader lives, and its hanging up must not look like its end
				t.Errorf("to the member the connection ends with %v", err)
			}
			want(t, leader, Lost, 1)
		})
	}
}

func TestMemberDies(t *testing.T) {
	w := world(3)
	leader, addr := lead(t, w, Options{NodeTimeout: time.Hour})
	follow(t, w, 1, Options{}, addr)
	want(t, leader, Joined, 1)
	c := stuck(t, w, 2, addr)
	want(t, leader, Joined, 2)
	c.Write(appendFrame(nil, frame{Ping: 1}))
	c.Close()
	want(t, leader, Lost, 2)
}

// A member that took too long over the opening hangs up when the leader has just let it in: it calls again, and is not lost.
func TestMemberHangsUpAtOnce(t *testing.T) {
	w := world(2)
	leader, addr := lead(t, w, Options{Arrival: time.Hour})
	stuck(t, w, 1, addr).Close()
	want(t, leader, Joined, 1)
	p := leader.peers[1]
	<-p.ended // its reader has seen the end
	p.mind(time.Now().Add(time.Minute))
	member := follow(t, w, 1, Options{}, addr)
	if err := member.Tell("here", nil); err != nil {
		t.Fatal(err)
	}
	heard(t, leader, 1, "here")
}

// The leader's process ends: every member knows long before the node time-out.
func TestLeaderDies(t *testing.T) {
	openAndSealed(t, func(t *testing.T, token string) {
		w := world(5)
		leader, addr := lead(t, w, Options{Token: token})
		var members []*Fleet
		for i := 1; i < 5; i++ {
			m := follow(t, w, i, Options{Token: token, NodeTimeout: time.Hour}, addr)
			want(t, m, Joined, 0)
			members = append(members, m)
		}
		leader.hangUp() // as the kernel does for a process that is gone
		for _, m := range members {
			want(t, m, Lost, 0)
		}
	})
}

// A connection that the network resets is dialled again, over real TCP.
func TestResetTCP(t *testing.T) {
	openAndSealed(t, testResetTCP)
}

func testResetTCP(t *testing.T, token string) {
	w := world(2)
	leader, addr := lead(t, w, Options{Token: token})
	var conns []net.Conn
	dial := dialTCP(10 * time.Second)
	member := follow(t, w, 1, Options{Token: token, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		conns = append(conns, c)
		return c, err
	}}, addr)
	want(t, leader, Joined, 1)
	want(t, member, Joined, 0)
	for i := range 50 {
		member.Tell(fmt.Sprint(i), nil)
		leader.Tell(fmt.Sprint(i), nil)
		if i%10 == 5 {
			t := conns[len(conns)-1].(*net.TCPConn)
			t.SetLinger(0) // a reset instead of a goodbye
			t.Close()
		}
		heard(t, leader, 1, fmt.Sprint(i))
		heard(t, member, 0, fmt.Sprint(i))
	}
	if len(conns) < 5 {
		t.Errorf("%d connections", len(conns))
	}
}

// An earless connection is one of which nothing arrives any more, while what is sent still does.
type earless struct {
	net.Conn
	on *atomic.Bool
}

func (d earless) NetConn() net.Conn { return d.Conn }

func (d earless) Read(b []byte) (int, error) {
	for {
		if n, err := d.Conn.Read(b); err != nil || !d.on.Load() {
			return n, err
		}
	}
}

// A member that does not hear the leader gives it up and goes on. Other than the end of its process that is no sign for the leader that
// nobody goes on there.
func TestCertain(t *testing.T) {
	openAndSealed(t, testCertain)
}

func testCertain(t *testing.T, token string) {
	for _, certain := range []bool{true, false} {
		w := world(2)
		leader, addr := lead(t, w, Options{Token: token})
		var cut atomic.Bool
		var last net.Conn
		dial := dialTCP(10 * time.Second)
		member := follow(t, w, 1, Options{Token: token, NodeTimeout: 2 * time.Second, Hold: func(net.Conn) func() { return func() {} },
			Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if cut.Load() {
					return nil, errors.New("no route")
				}
				c, err := dial(ctx, network, addr)
				last = c
				return earless{c, &cut}, err
			}}, addr)
		want(t, leader, Joined, 1)
		want(t, member, Joined, 0)
		member.Tell("it is here", nil) // who hangs up without a word only calls again
		heard(t, leader, 1, "it is here")
		cut.Store(true)
		if certain { // to close it would reset it, were there anything unread
			_ = last.(*net.TCPConn).CloseWrite()
		}
		e := want(t, leader, Lost, 1)
		if e.Certain != certain || e.GaveUp {
			t.Errorf("certain: %v, want %v; %v", e.Certain, certain, e.Why)
		}
	}
}

// An address where somebody else answers, or nobody, does not keep a member from its leader.
func TestCandidateAddresses(t *testing.T) {
	w := world(2)
	other := world(2)
	other.ID = "job8"
	_, wrong := lead(t, other, Options{Arrival: time.Hour})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	leader, right := lead(t, w, Options{})
	member := follow(t, w, 1, Options{}, wrong, job.Addr(closed.Addr().String()), "no.such.host.invalid:1", right)
	want(t, leader, Joined, 1)
	want(t, member, Joined, 0)
	leader.Tell("hello", nil)
	heard(t, member, 0, "hello")
}

// The leader may come up after its members.
func TestLeaderComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{leader: Lead(world(2), Options{}), down: errRefused}
		go func() {
			time.Sleep(5 * time.Second)
			w.cut(nil)
		}()
		begun := time.Now()
		member, err := Follow(t.Context(), seat(world(2), 1, "leader"), Options{Dial: w.dial})
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll(w.leader, member)
		if d := time.Since(begun); d > 5300*time.Millisecond {
			t.Errorf("it took %v", d)
		}
	})
}

// A launcher that is busy elsewhere makes nobody suspect.
func TestSlowReaderOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, leader, member := pair(t, Options{})
		defer closeAll(leader, member)
		for i := range 1000 {
			member.Tell(fmt.Sprint(i), nil)
		}
		time.Sleep(time.Minute)
		for i := range 1000 {
			heard(t, leader, 1, fmt.Sprint(i))
		}
		quiet(t, leader)
		quiet(t, member)
	})
}

// A leader whose launcher reads nothing for a while is as lively as any, however much there is to tell it.
func TestNobodyReadsTheEventsOfMany(t *testing.T) {
	const n = 300
	synctest.Test(t, func(t *testing.T) {
		w := &wire{leader: Lead(world(n+1), Options{})}
		defer closeAll(w.leader)
		var members []*Fleet
		for rank := 1; rank <= n; rank++ {
			m, err := Follow(t.Context(), seat(world(n+1), rank, "leader"), Options{Dial: w.dial})
			if err != nil {
				t.Fatal(err)
			}
			want(t, m, Joined, 0)
			members = append(members, m)
		}
		defer closeAll(members...)
		synctest.Wait()
		members[0].Close()
		w.mu.Lock()
		w.open[3].Close() // of the second
		w.mu.Unlock()
		synctest.Wait()
		time.Sleep(15 * time.Second)
		for _, m := range members[1:] {
			select {
			case e := <-m.Events():
				t.Fatalf("member %d: %v of the leader: %v", m.me.Rank, e.Change, e.Why)
			default:
			}
		}
		for range n {
			if e := next(t, w.leader); e.Change != Joined {
				t.Fatalf("%v of %d: %v", e.Change, e.Peer, e.Why)
			}
		}
		want(t, w.leader, Left, 1)
	})
}

// A suspicion that came and went while nobody read is not told; what is left stands in its order.
func TestInbox(t *testing.T) {
	b := newInbox()
	for _, c := range []Change{Joined, Suspect, Back, Suspect, Back, Suspect, Lost} {
		b.note(Event{Change: c, Peer: 1})
		b.note(Event{Change: c, Peer: 2})
	}
	var got []string
	for range b.events {
		e, _ := b.take()
		got = append(got, fmt.Sprint(e.Change, e.Peer))
	}
	if s := strings.Join(got, " "); s != "joined 1 joined 2 suspect 1 suspect 2 lost 1 lost 2" {
		t.Error(s)
	}
}

// The time for which this agent stood still is nobody else's silence, but two seconds are enough to read what came meanwhile.
func TestStoodStill(t *testing.T) {
	f := newFleet(seat(world(3), 0), Options{})
	absent, here := newPeer(f, 1), newPeer(f, 2)
	f.peers[1], f.peers[2] = absent, here
	near, far := net.Pipe()
	defer far.Close()
	here.joined, here.line = true, &line{Conn: near, done: make(chan struct{})}
	later := time.Now().Add(40 * time.Second)
	f.forgive(later, 35*time.Second)
	for _, p := range f.peers {
		if e, _ := p.judge(later); e.Change == Lost {
			t.Errorf("peer %d is lost: %v", p.rank, e.Why)
		}
	}
	later = later.Add(26 * time.Second)
	for p, want := range map[*peer]string{absent: "it did not join within 30s", here: "silent for 34s (stopped, or cut off?)"} {
		if e, _ := p.judge(later); e.Change != Lost || e.Why.Error() != want {
			t.Errorf("peer %d is %v: %v", p.rank, e.Change, e.Why)
		}
	}
	f.forgive(later, 12*time.Second)
	if e, _ := absent.judge(later); e.Why.Error() != "it did not join within 30s; but this agent itself stood still for 12s before that: look at this node first" {
		t.Error(e.Why)
	}
}

// Whoever has not called yet is named, more and more rarely.
func TestAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncBuffer
		w := &wire{leader: Lead(world(12), Options{Arrival: time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil))})}
		defer closeAll(w.leader)
		member, err := Follow(t.Context(), seat(world(12), 1, "leader"), Options{Dial: w.dial})
		if err != nil {
			t.Fatal(err)
		}
		defer member.Close()
		time.Sleep(31 * time.Second)
		synctest.Wait()
		said := log.String()
		if !strings.Contains(said, "waiting for members to call, 2 s: host2 (node 2), host3 (node 3), host4 (node 4)") || !strings.Contains(said, "host9 (node 9) and 2 more") {
			t.Errorf("it says %s", said)
		}
		if n := strings.Count(said, "waiting for members"); n < 4 || n > 6 {
			t.Errorf("%d lines in half a minute:\n%s", n, said)
		}
	})
}

// A flood of strangers is two lines, not thousands.
func TestFloodOfStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncBuffer
		w := &wire{leader: Lead(world(2), Options{Arrival: time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil))})}
		for range 1000 {
			c, _ := w.dial(t.Context(), "", "")
			c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
			c.Close()
		}
		time.Sleep(2 * time.Second)
		if n := strings.Count(log.String(), "connection refused"); n != 1 {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
		time.Sleep(gripePause)
		synctest.Wait()
		if said := log.String(); !strings.Contains(said, "more connections refused") || !strings.Contains(said, "count=999") {
			t.Errorf("it says %s", said)
		}
		time.Sleep(2 * gripePause)
		synctest.Wait()
		c, _ := w.dial(t.Context(), "", "")
		c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		c.Close()
		synctest.Wait()
		w.leader.Close()
		if n := strings.Count(log.String(), "connection"); n != 3 {
			t.Errorf("%d lines in the end:\n%s", n, log.String())
		}
	})
}

// A message's way is known, whatever held it up: nothing, a connection that had to be opened again, or a packet that was lost.
func TestTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const usual, half = 10 * time.Millisecond, 5 * time.Millisecond // the member's packets take 10 ms, the leader's none: nobody can know
		w, held := &wire{leader: Lead(world(2), Options{})}, new(atomic.Int64)
		held.Store(int64(usual))
		member, err := Follow(t.Context(), seat(world(2), 1, "leader"), Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := w.dial(ctx, network, addr)
			return lateConn{c, held}, err
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll(w.leader, member)
		want(t, w.leader, Joined, 1)
		took := func(what string, before, after func(), least time.Duration) {
			t.Helper()
			time.Sleep(20 * time.Second) // between two pings
			before()
			told := time.Now()
			member.Tell(what, nil)
			time.Sleep(time.Millisecond)
			after()
			e := heard(t, w.leader, 1, what)
			if took := e.Received.Sub(told) - half; e.Took != took || took < least {
				t.Errorf("%s: it took %v, and says %v", what, took, e.Took)
			}
		}
		nothing := func() {}
		took("soon", nothing, nothing, half)
		took("lost", func() { held.Store(int64(400 * time.Millisecond)) }, func() { held.Store(int64(usual)) }, 395*time.Millisecond)
		took("soon again", nothing, nothing, half)
		took("connected again", func() { w.cut(errRefused) }, func() { time.Sleep(100 * time.Millisecond); w.cut(nil) }, 100*time.Millisecond)
	})
}

// What a peer cannot mean is not believed: what it says of a message's age is never less than none, nor more than the fleet's. Before its first ping, and of
// an agent that tells no time, nothing is known.
func TestTookIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(Lead(world(2), Options{}), 1)
		defer p.fleet.Close()
		time.Sleep(time.Minute)
		now := time.Now()
		if d := p.took(1, now); d != 0 {
			t.Errorf("before a ping: %v", d)
		}
		p.ways = []time.Duration{time.Hour, 20 * time.Second}
		for told, want := range map[int64]time.Duration{
			0: 0, int64(40 * time.Second): 0, int64(30 * time.Second): 10 * time.Second, math.MaxInt64: 0, -int64(time.Hour): time.Minute,
		} {
			if d := p.took(told, now); d != want {
				t.Errorf("told at %v: %v, want %v", time.Duration(told), d, want)
			}
		}
	})
}

// A lateConn writes late.
type lateConn struct {
	net.Conn
	by *atomic.Int64 // nanoseconds
}

func (c lateConn) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(c.by.Load()))
	return c.Conn.Write(b)
}

// Everything that was told before Close arrives, and then the goodbye.
func TestCloseFlushes(t *testing.T) {
	w := world(2)
	leader, addr := lead(t, w, Options{})
	member := follow(t, w, 1, Options{}, addr)
	want(t, leader, Joined, 1)
	for i := range 500 {
		if err := member.Tell(fmt.Sprint(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- member.Close() }()
	for i := range 500 {
		heard(t, leader, 1, fmt.Sprint(i))
	}
	want(t, leader, Left, 1)
	<-done
	for range member.Events() { // closed
	}
	if err := member.Close(); err != nil {
		t.Error(err)
	}
}

// Closing does not wait long for who does not listen.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, leader, member := pair(t, Options{})
		for i := range maxQueue { // and the member's launcher takes none
			leader.Tell(fmt.Sprint(i), nil)
		}
		begun := time.Now()
		leader.Close()
		if d := time.Since(begun); d > time.Second {
			t.Errorf("it took %v", d)
		}
		member.Close()
	})
}

// relay tells all members what one told, as a launcher does, until the fleet is closed.
func relay(f *Fleet) {
	for e := range f.Events() {
		if e.Change == Heard {
			f.Tell(e.Message.Kind, e.Message.Body)
		}
	}
}

func crew(t testing.TB, n int) (members []*Fleet) {
	w := world(n + 1)
	leader, addr := lead(t, w, Options{NodeTimeout: time.Hour, Suspect: time.Hour})
	var relayed sync.WaitGroup
	relayed.Go(func() { relay(leader) })
	t.Cleanup(func() { leader.Close(); relayed.Wait() })
	for i := range n {
		m := follow(t, w, i+1, Options{NodeTimeout: time.Hour, Suspect: time.Hour}, addr)
		want(t, m, Joined, 0)
		members = append(members, m)
	}
	return members
}

func TestBroadcast(t *testing.T) {
	members := crew(t, 64)
	for i, m := range members {
		if err := m.Tell("news", i); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range members {
		for range members {
			heard(t, m, 0, "news")
		}
	}
}

// BenchmarkTell is one member's message on its way to all the others.
func BenchmarkTell(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			members := crew(b, n)
			for b.Loop() {
				members[0].Tell("failed", job.Failure{Node: "host7", Rank: 7})
				for _, m := range members {
					heard(b, m, 0, "failed")
				}
			}
		})
	}
}

// A message whose acknowledgement was lost comes again, and is heard once.
func TestSentTwice(t *testing.T) {
	w := world(2)
	leader, addr := lead(t, w, Options{})
	c := stuck(t, w, 1, addr)
	defer c.Close()
	want(t, leader, Joined, 1)
	var b []byte
	for _, seq := range []uint64{1, 2, 1, 2, 3} {
		b = appendFrame(b, frame{Seq: seq, Message: &message{Kind: fmt.Sprint(seq)}})
	}
	c.Write(b)
	for i := range 3 {
		heard(t, leader, 1, fmt.Sprint(i+1))
	}
}

// Who calls when the fleet is closed, or just then, is no stranger that somebody ought to hear of.
func TestClosedComplainsOfNobody(t *testing.T) {
	var said bytes.Buffer
	leader := Lead(world(2), Options{Log: slog.New(slog.NewTextHandler(&said, nil))})
	for range 2 {
		a, b := net.Pipe()
		defer a.Close()
		leader.Handle(b)
		leader.Close()
		if _, err := a.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is open")
		}
	}
	if said.Len() > 0 {
		t.Error(said.String())
	}
}
