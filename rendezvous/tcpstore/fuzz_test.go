package tcpstore

import (
	"bytes"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/muster-run/muster/rendezvous/store"
)

// FuzzDecode reads any bytes as a request of each verb, whole and byte by byte. What is a request encodes to the
// bytes that it was decoded from; what is none allocates nothing.
func FuzzDecode(f *testing.F) {
	for v := range numVerbs {
		r := request{verb: v, key: []byte("/k"), value: []byte("v"), other: []byte("w"), n: -1, nonce: 5,
			keys: [][]byte{[]byte("/a"), {}}, values: [][]byte{{}, []byte("b")}}
		f.Add(byte(v), r.encode(nil, allVerbs))
	}
	f.Add(byte(set), []byte{1, 255, 255, 255, 255, 255, 255, 255, 255})
	f.Add(byte(wait), []byte{6, 0, 0, 2, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, code byte, b []byte) {
		v := verb(code % byte(numVerbs))
		lim := limits{value: 1 << 10, request: 1 << 12}
		whole, size, err := decodeWhole(b, v, lim)
		pieces, size2, err2 := decodePieces(b, v, lim)
		if (err == nil) != (err2 == nil) || size != size2 {
			t.Fatalf("whole: %d, %v; in pieces: %d, %v", size, err, size2, err2)
		}
		if size == 0 {
			return
		}
		want := append([]byte{byte(v)}, b[1:size]...)
		for _, r := range []request{whole, pieces} {
			if got := r.encode(nil, allVerbs); !bytes.Equal(got, want) {
				t.Fatalf("%v: encode(decode(%x)) = %x", v, want, got)
			}
		}
		if size > lim.request+8 {
			t.Fatalf("a request of %d bytes", size)
		}
	})
}

// allVerbs numbers each verb by itself.
var allVerbs = func() (n numbering) {
	for v := range numVerbs {
		n = append(n, v)
	}
	return n
}()

func decodeWhole(b []byte, v verb, lim limits) (r request, size int, err error) {
	var s scan
	if len(b) == 0 {
		return r, 0, nil
	}
	done, err := measure(b, &forms[v], lim, &s)
	if !done {
		return r, 0, err
	}
	r.cut(b[:s.pos], v)
	return r, s.pos, nil
}

func decodePieces(b []byte, v verb, lim limits) (r request, size int, err error) {
	var s scan
	for n := 1; n <= len(b); n++ {
		if s.need > n {
			continue
		}
		done, err := measure(b[:n], &forms[v], lim, &s)
		if err != nil {
			return r, 0, err
		}
		if done {
			r.cut(b[:s.pos], v)
			return r, s.pos, nil
		}
	}
	return r, 0, nil
}

// FuzzServer sends any bytes to a live server, in two segments, on a connection of each kind. The server must answer
// another client afterwards, and forget the connection.
func FuzzServer(f *testing.F) {
	for _, s := range []string{
		"\x00\xce\xf7\x85\x3c\x0d1234", "\x07\x07\x0c\x0b", "\x00\x01\x02", "MUSTER\x00\x01",
		"\x06\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0c",
		"\x08\x01\x00\x00\x00\x00\x00\x00\x00k", "\x12\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00",
	} {
		f.Add(byte(0), uint16(3), []byte(s))
		f.Add(byte(1), uint16(9), []byte(s))
	}
	m := new(store.Memory)
	m.Do(func(t *store.Table) { t.MaxBytes = 1 << 20 })
	s := &Server{Store: m, MaxValue: 1 << 12, MaxRequest: 1 << 14, MaxBuffered: 1 << 20, Log: slog.New(slog.DiscardHandler),
		Magic: "MUSTER\x00\x01", Foreign: func(c net.Conn) { c.Close() }}
	addr := serve(f, s)
	witness := raw(f, addr)
	f.Fuzz(func(t *testing.T, kind byte, cut uint16, b []byte) {
		_ = witness.SetDeadline(time.Now().Add(2 * time.Minute))
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if kind%2 == 1 {
			_, _ = c.Write(hello)
		}
		at := min(int(cut), len(b))
		_, _ = c.Write(b[:at])
		_, _ = c.Write(b[at:])
		if err := inStep(witness, "v"); err != nil {
			t.Fatal("the server does not answer: ", err)
		}
		c.Close()
		eventually(t, "the connection is forgotten", func() bool { return s.Clients() == 1 })
		if used := s.budget.used.Load(); used != 0 {
			t.Fatalf("%d bytes are still held", used)
		}
	})
}
