package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const token = "0123456789abcdef"

// openAndSealed plays a test with a job's token, and without.
func openAndSealed(t *testing.T, play func(t *testing.T, token string)) {
	t.Run("open", func(t *testing.T) { play(t, "") })
	t.Run("sealed", func(t *testing.T) { play(t, token) })
}

// A tapped connection lets others see, and change, what its owner writes.
type tapped struct {
	net.Conn
	on func(b []byte) []byte
}

func (c *tapped) NetConn() net.Conn { return c.Conn }

func (c *tapped) Write(b []byte) (int, error) {
	if _, err := c.Conn.Write(c.on(bytes.Clone(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// tap is the way of a member to a leader that somebody sits beside.
func tap(addr string, on func(b []byte) []byte) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := dialTCP(10*time.Second)(ctx, "tcp", addr)
		return &tapped{c, on}, err
	}
}

// Who reads the network between two agents reads what they tell each other, unless the job has a token. The secrets are in it in neither case.
func TestWhoListens(t *testing.T) {
	openAndSealed(t, func(t *testing.T, token string) {
		var all syncBuffer
		leader, addr := lead(t, world(2), Options{Token: token})
		member := follow(t, world(2), 1, Options{Token: token, Dial: tap(string(addr), func(b []byte) []byte {
			all.Write(b)
			return b
		})}, addr)
		want(t, leader, Joined, 1)
		want(t, member, Joined, 0)
		if err := member.Tell("failed", "rank 3 was killed"); err != nil {
			t.Fatal(err)
		}
		heard(t, leader, 1, "failed")
		leader.Tell("stop", nil)
		heard(t, member, 0, "stop")
		if got := strings.Contains(all.String(), "rank 3 was killed"); got == (token != "") {
			t.Errorf("what was told could be read: %v", got)
		}
		if strings.Contains(all.String(), world(2).Nonce) || token != "" && strings.Contains(all.String(), token) {
			t.Error("a secret was sent")
		}
	})
}

// Who changes what a member says costs it the connection; on the next one all arrives.
func TestWhoChanges(t *testing.T) {
	var changes, done atomic.Bool
	leader, addr := lead(t, world(2), Options{Token: token})
	member := follow(t, world(2), 1, Options{Token: token, Dial: tap(string(addr), func(b []byte) []byte {
		if changes.Load() && done.CompareAndSwap(false, true) {
			b[len(b)-1] ^= 1
		}
		return b
	})}, addr)
	want(t, leader, Joined, 1)
	want(t, member, Joined, 0)
	changes.Store(true)
	for _, kind := range []string{"first", "second"} {
		if err := member.Tell(kind, nil); err != nil {
			t.Fatal(err)
		}
		heard(t, leader, 1, kind)
	}
	if !done.Load() {
		t.Error("nothing was changed")
	}
}

// Who stands between two agents, with a channel to each, hands on their proofs and gets into neither's.
func TestWhoStandsBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncBuffer
		leader := Lead(world(2), Options{Token: token, Arrival: time.Hour, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		defer leader.Close()
		ours, theirs := net.Pipe()
		defer ours.Close()
		there, leaders := net.Pipe()
		leader.Handle(leaders)
		go stand(theirs, there)
		f := newFleet(seat(world(2), 1), Options{Token: token})
		k, err := f.call(ours)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.commit(k, newPeer(f, 0)); err == nil || !strings.Contains(err.Error(), "refused: it does not know this world's secret") {
			t.Errorf("the member: %v", err)
		}
		synctest.Wait()
		if !strings.Contains(log.String(), "it does not know this world's secret") {
			t.Errorf("the leader: %s", log.String())
		}
		quiet(t, leader)
	})
}

// stand hands on an opening between a member and a leader, and what they say in the two channels that it makes then.
func stand(member, leader net.Conn) {
	defer member.Close()
	defer leader.Close()
	pass := func(to, from net.Conn) bool {
		b := make([]byte, maxHello)
		n, err := from.Read(b)
		_, err2 := to.Write(b[:n])
		return err == nil && err2 == nil
	}
	if !pass(leader, member) || !pass(member, leader) { // hello and welcome
		return
	}
	m, l := tls.Server(member, newTLS(true)), tls.Client(leader, newTLS(false))
	if m.Handshake() != nil || l.Handshake() != nil {
		return
	}
	if pass(l, m) { // ready
		pass(m, l)
	}
}

// A leader whose welcome is not for this channel is none, and its refusal not the last word.
func TestWelcomeOfAnotherChannel(t *testing.T) {
	testWelcome(t, welcome{Protocol: Protocol, Proof: "of another"}, "stands between")
	testWelcome(t, welcome{Protocol: Protocol, Refused: "you were given up", Final: true}, "you were given up")
}

func testWelcome(t *testing.T, says welcome, want string) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer a.Close()
		leader := Lead(world(2), Options{Token: token, Arrival: time.Hour})
		defer leader.Close()
		f := newFleet(seat(world(2), 1), Options{Token: token})
		go func() {
			in := newReader(b)
			h, err := readHello(in)
			if err != nil {
				return
			}
			w := welcome{Protocol: Protocol, Salt: "s"}
			w.Proof = f.first(w, h)
			send(b, w)
			c, err := leader.seal(b, in, tls.Server)
			if err != nil {
				return
			}
			var r ready
			readFrame(c.in, &r, maxHello)
			send(c, says)
		}()
		k, err := f.call(a)
		if err != nil {
			t.Fatal(err)
		}
		err = f.commit(k, newPeer(f, 0))
		if err == nil || !strings.Contains(err.Error(), want) || final(err) {
			t.Errorf("got %v, final: %v", err, final(err))
		}
	})
}

// An agent that would speak openly in a job with a token is told so, on either side.
func TestTooOldToSeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := Lead(world(2), Options{Token: token, Arrival: time.Hour})
		defer leader.Close()
		a, b := net.Pipe()
		leader.Handle(b)
		h := hello{Protocol: sealedProtocol - 1, Job: "job7", Generation: 3, Rank: 1, Incarnation: "life1", Salt: "s"}
		a.Write(appendFrame([]byte(Magic), h))
		if _, err := answer(newReader(a)); err == nil || !strings.Contains(err.Error(), "does not encrypt") {
			t.Errorf("the member is told %v", err)
		}
		a.Close()

		a, b = net.Pipe()
		defer a.Close()
		f := newFleet(seat(world(2), 1), Options{Token: token})
		go func() {
			h, _ := readHello(newReader(b))
			send(b, welcome{Protocol: sealedProtocol - 1, Salt: "s", Proof: proof(f.secret(), "leader", h.Salt, h)}) // as it makes it
			io.Copy(io.Discard, b)
		}()
		if _, err := f.call(a); !errors.Is(err, errOpen) {
			t.Errorf("the member says %v", err)
		}
	})
}

// What the welcome says of the leader cannot be changed on its way.
func TestWelcomeThatWasChanged(t *testing.T) {
	for _, change := range []func(*welcome){func(w *welcome) { w.Life = 1000 }, func(w *welcome) { w.Salt = "mine" }} {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			defer a.Close()
			f := newFleet(seat(world(2), 1), Options{Token: token})
			go func() {
				h, _ := readHello(newReader(b))
				w := welcome{Protocol: Protocol, Salt: "s"}
				w.Proof = f.first(w, h)
				change(&w)
				send(b, w)
				io.Copy(io.Discard, b)
			}()
			if _, err := f.call(a); err == nil || !strings.Contains(err.Error(), "does not know this world's secret") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A stranger with a member's words gets no room for a long opening of TLS, and is told of.
func TestLongOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncBuffer
		leader := Lead(world(2), Options{Token: token, Arrival: time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil))})
		defer leader.Close()
		a, b := net.Pipe()
		leader.Handle(b)
		a.Write(appendFrame([]byte(Magic), hello{Protocol: Protocol, Job: "job7", Generation: 3, Rank: 1, Incarnation: "life1", Salt: "s"}))
		if _, err := answer(newReader(a)); err != nil {
			t.Fatal(err)
		}
		record := append([]byte{22, 3, 1, 0x40, 0}, make([]byte, 0x4000)...) // TLS 1.0 to 1.3: the first part of a message of the handshake
		record[5], record[6] = 1, 1                                          // a ClientHello of 64 KiB and more
		n, err := a.Write(bytes.Repeat(record, 4))
		if err == nil || n > maxHandshake {
			t.Errorf("%d bytes were read, %v", n, err)
		}
		synctest.Wait()
		if !strings.Contains(log.String(), "bytes to open a channel") {
			t.Errorf("the log says %s", log.String())
		}
	})
}

// Who speaks before it is his turn has no channel: it would not be known what of it is whose.
func TestOutOfTurn(t *testing.T) {
	f := newFleet(seat(world(2), 1), Options{Token: token})
	a, b := net.Pipe()
	defer a.Close()
	go a.Write([]byte("early"))
	in := newReader(b)
	if _, err := in.Peek(1); err != nil {
		t.Fatal(err)
	}
	if _, err := f.seal(b, in, tls.Server); err == nil || !strings.Contains(err.Error(), "5 bytes before its turn") {
		t.Errorf("got %v", err)
	}
}
