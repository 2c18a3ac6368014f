package tcpstore

import (
	"context"
	"net"
	"testing"
	"time"
)

// Each command is counted once, whoever asks and however many come at once, and what was counted stays when the server has ended.
func TestTallies(t *testing.T) {
	s := &Server{Loops: 2}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(ln)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var clients []*Client
	for range 3 {
		c, err := Dial(ctx, ln.Addr().String(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	for i, c := range clients {
		for range 10 * (i + 1) {
			if _, err := c.Add(ctx, "n", 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := clients[0].Set(ctx, "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	if ok, err := clients[0].Check(ctx, "k"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if n := s.Keys(); n != 2 {
		t.Errorf("%d keys, want 2", n)
	}
	s.Close()
	all := s.Tallies()
	if s.Close(); s.Tallies()["ADD"] != all["ADD"] {
		t.Error("a second end counts again")
	}
	for name, want := range map[string]uint64{"ADD": 60, "SET": 1} {
		got := all[name]
		var within uint64
		for _, n := range got.Within {
			within += n
		}
		if got.Count != want || got.Seconds <= 0 || got.Seconds > 60 || within > want || within == 0 && got.Seconds < 1 {
			t.Errorf("%s: %+v, want %d", name, got, want)
		}
	}
	if _, some := all["WATCH_KEY"]; some {
		t.Errorf("%v", all)
	}
}
