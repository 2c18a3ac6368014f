package tcpstore

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/rendezvous/store"
)

// callFrom opens a connection from an address of this machine.
func callFrom(t *testing.T, host, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	c, err := d.DialContext(within(t, 5*time.Minute), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// bytesOf is a connection's opening, and a request.
func bytesOf(r request) []byte { return r.encode(bytes.Clone(hello), numbersV) }

// after is what follows the opening.
func after(r request, numbers numbering) []byte { return r.encode(nil, numbers) }

// openings are what a stranger may do with a connection that costs him nothing, and the store a descriptor.
var openings = map[string][]byte{
	"nothing":            nil,
	"half of an opening": hello[:3],
	"an opening":         hello,
	"half of a request":  append(bytes.Clone(hello), 1, 200, 0, 0, 0, 0, 0, 0, 0, 'k'),
	"a wait":             bytesOf(many(wait, "/never")),
	"1.13's":             {3, 1, 0},
}

// TestCrowd has more connections come than there is room for, from one address. The store closes as many as come, of that address; who was
// there stays, and others come in.
func TestCrowd(t *testing.T) {
	const room, strangers = 32, 500
	for name, opening := range openings {
		t.Run(name, func(t *testing.T) {
			s := &Server{MaxClients: room}
			addr := serve(t, s)
			early := callFrom(t, "127.0.0.2", addr)
			mustWrite(t, early, hello)
			if err := inStep(early, "early"); err != nil {
				t.Fatal(err)
			}
			for i := range strangers {
				_, _ = callFrom(t, "127.0.0.3", addr).Write(opening) // it may be closed meanwhile
				if n := s.Clients(); n > room+maxLeaving {
					t.Fatalf("there are %d connections after %d strangers", n, i+1)
				}
			}
			late := callFrom(t, "127.0.0.4", addr)
			mustWrite(t, late, hello)
			for _, c := range []net.Conn{early, late} {
				if err := inStep(c, "v"); err != nil {
					t.Error(err)
				}
			}
			eventually(t, "the last stranger had his turn", func() bool { return s.Crowded() == strangers+2-room && s.Clients() == room })
		})
	}
}

// TestCrowdBehindOneAddress is as TestCrowd where all have the same address, as behind a gateway. There who says nothing goes first.
func TestCrowdBehindOneAddress(t *testing.T) {
	const room, strangers = 32, 500
	s := &Server{MaxClients: room}
	addr := serve(t, s)
	early := raw(t, addr)
	if err := inStep(early, "early"); err != nil {
		t.Fatal(err)
	}
	for range strangers {
		callFrom(t, "127.0.0.1", addr)
	}
	for i := range room / 2 {
		if err := inStep(raw(t, addr), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := inStep(early, "v"); err != nil {
		t.Error(err)
	}
	eventually(t, "there is room", func() bool { return s.Clients() == room })
}

// TestBudgetIsShared has a stranger send most of large requests, and never the end, until the store takes no more of his. Another's large
// request, which comes in pieces too, finds room.
func TestBudgetIsShared(t *testing.T) {
	s := &Server{MaxBuffered: 16 << 20}
	addr := serve(t, s)
	whole := bytesOf(req(set, "/k", string(make([]byte, 3<<20))))
	most := len(whole) - 10
	for range 8 {
		_, _ = callFrom(t, "127.0.0.3", addr).Write(whole[:most]) // it may be closed meanwhile
	}
	eventually(t, "a stranger is closed", func() bool { return s.Clients() < 8 })
	c := callFrom(t, "127.0.0.2", addr)
	mustWrite(t, c, whole[:most])
	mustWrite(t, c, whole[most:])
	if err := inStep(c, "v"); err != nil {
		t.Error(err)
	}
}

// What was executed is answered, though what came behind it is more than there is room for.
func TestAnswerBeforeWantOfRoom(t *testing.T) {
	const room = 1 << 20
	s := &Server{MaxBuffered: room}
	addr := serve(t, s)
	large := req(set, "/k", string(make([]byte, 3<<20)))
	for used := int64(0); used < room/2-40<<10; used = s.budget.used.Load() {
		mustWrite(t, callFrom(t, "127.0.0.1", addr), bytesOf(large)[:32<<10])
		eventually(t, "the beginning of a request is kept", func() bool { return s.budget.used.Load() > used })
	}
	c := callFrom(t, "127.0.0.1", addr)
	mustWrite(t, c, append(bytesOf(request{verb: add, key: []byte("/n"), n: 7}), large.encode(nil, numbersV)[:60<<10]...))
	mustExpect(t, c, appendInt(nil, 7))
	if err := inStep(c, "v"); err == nil {
		t.Error("there was room for more than there is")
	}
}

// TestListing closes a client whose list of keys would need more memory than a reply may.
func TestListing(t *testing.T) {
	s := &Server{Store: new(store.Memory)}
	addr := serve(t, s)
	name := make([]byte, 1<<20) // longer than a client may send, to have few
	s.Store.Do(func(tab *store.Table) {
		for i := range maxListed / len(name) {
			name[0] = byte(i)
			if err := tab.Set(name, nil); err != nil {
				t.Fatal(err)
			}
		}
	})
	c := raw(t, addr)
	mustWrite(t, c, after(req(listKeys, "", ""), numbersV))
	if err := expectEOF(c); err != nil {
		t.Error(err)
	}
	if err := inStep(raw(t, addr), "v"); err != nil {
		t.Error(err)
	}
}

// byHand is a loop of a server that runs when the test says so, and a connection of it whose socket takes all at once.
func byHand(t *testing.T, s *Server) (l *loop, c *conn, client *os.File) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	client = os.NewFile(uintptr(pair[1]), "client")
	t.Cleanup(func() { client.Close() })
	if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 64<<20); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it serves", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.loops != nil })
	if l, err = newLoop(s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.closeFiles)
	c = &conn{s: s, loop: l, fd: pair[0]}
	s.mu.Lock()
	err = s.seat(c)
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.drop(c, nil) })
	return l, c, client
}

// TestListingsEndTurns has a client ask for many lists at once: each ends its turn, however short it is.
func TestListingsEndTurns(t *testing.T) {
	const lists = 5
	s := &Server{}
	serve(t, s)
	l, c, client := byHand(t, s)
	l.adopt(c, append(bytes.Clone(hello), bytes.Repeat(after(req(listKeys, "", ""), numbersV), lists)...))
	for i := range lists {
		l.answer()
		if left := lists - 1 - i; len(c.in) != left {
			t.Fatalf("after turn %d %d lists are asked for, not %d", i+1, len(c.in), left)
		}
		if err := l.resume(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := expect(client, make([]byte, 8*lists)); err != nil {
		t.Error(err)
	}
}

// TestTurn has one client ask for more than a turn's worth at once, of a socket that takes it all. Each request is executed once, and in three turns;
// another client, whose socket takes what it takes, is resumed for each.
func TestTurn(t *testing.T) {
	const turns, size = 3, 64 << 10
	s := &Server{Store: new(store.Memory)}
	addr := serve(t, s)
	l, c, client := byHand(t, s)
	s.Store.Do(func(tab *store.Table) {
		if err := tab.Set([]byte("/v"), make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	})
	asked, want := bytes.Clone(hello), []byte(nil)
	for i := range turns * turnSize / size {
		asked = append(asked, after(request{verb: add, key: []byte("/n"), n: 1}, numbersV)...)
		asked = append(asked, after(req(get, "/v", ""), numbersV)...)
		want = appendBytes(appendInt(want, int64(i+1)), make([]byte, size))
	}
	l.adopt(c, bytes.Clone(asked))
	for i := range turns {
		l.answer()
		var n []byte
		s.Store.Do(func(tab *store.Table) { n, _ = tab.Get([]byte("/n")) })
		if n, want := string(n), fmt.Sprint((i+1)*turnSize/size); n != want {
			t.Fatalf("after turn %d %s requests are executed, not %s", i+1, n, want)
		}
		if err := l.resume(c); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the replies are not those to what was asked: %v", err)
	}

	s.Store.Do(func(tab *store.Table) { tab.Delete([]byte("/n")) })
	over := callFrom(t, "127.0.0.1", addr)
	mustWrite(t, over, asked)
	mustExpect(t, over, want)
}

// TestWatchedWithoutRoom has a watched key change by more than there is room for. Its client is closed, and nothing of it is left in the budget.
func TestWatchedWithoutRoom(t *testing.T) {
	s := &Server{Legacy: LegacyA, MaxBuffered: 64 << 10}
	addr := serve(t, s)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 { // the key is watched once
		mustWrite(t, c, after(req(watchKey, "/w", ""), numbersA))
		mustExpect(t, c, []byte{3})
	}
	v := raw(t, addr)
	mustWrite(t, v, after(req(set, "/w", "1"), numbersV))
	mustExpect(t, c, appendBytes(appendBytes(appendBytes([]byte{byte(store.Created)}, []byte("/w")), nil), []byte("1")))
	mustWrite(t, v, after(req(set, "/w", string(make([]byte, 40<<10))), numbersV))
	if err := expectEOF(c); err != nil {
		t.Error(err)
	}
	if err := inStep(v, "v"); err != nil {
		t.Error(err)
	}
	eventually(t, "the budget is whole", func() bool { return s.budget.used.Load() == 0 })
}
