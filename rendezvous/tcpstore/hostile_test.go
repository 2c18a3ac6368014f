package tcpstore

import (
	"bytes"
	"fmt"
	"net"
	"testing"
	"time"
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
