package peers

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"testing"
)

// Whatever a stranger, or a node, sends to the port of measurements ends when it hangs up.
func FuzzAnswer(f *testing.F) {
	secret := bytes.Repeat([]byte("s"), secretSize)
	for _, ask := range []byte{askPing, askSend, askTake, 'x'} {
		f.Add(append(append(secret[:secretSize:secretSize], ask), 0, 0, 0, 0, 0, 0, 0, 9, 'p', 'p'))
	}
	f.Add(secret[:3])
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { ln.Close() })
	f.Fuzz(func(t *testing.T, sent []byte) {
		here, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		there, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		s := &server{secret: secret}
		s.calls.Go(func() {
			defer there.Close()
			_ = s.answer(there)
		})
		_, _ = here.Write(sent) // it may have hung up already
		here.Close()
		s.calls.Wait()
	})
}

// Whatever two nodes leave in the store of themselves, of what they measured and of the reduction is judged, or refused.
func FuzzWords(f *testing.F) {
	f.Add([]byte(`{"name":"a","facts":{"driver":"570"}}`), []byte(`{"latency_ns":50000,"forth_mbps":9000,"back_mbps":9000,"skew_ns":-3}`), []byte(`{"seconds":1}`))
	f.Add([]byte(`{}`), []byte(`{"a":99,"b":-1,"forth_mbps":-1e308,"error":"x","times":-2}`), []byte(`{"error":"x","own":true}`))
	f.Fuzz(func(t *testing.T, node, pair, outcome []byte) {
		ctx, s := context.Background(), &memory{values: map[string][]byte{}, changed: make(chan struct{})}
		round := [][2]int{{0, 1}}
		for rank := range 2 {
			_ = s.Set(ctx, key("node", rank), node)
			_ = s.Set(ctx, key(fmt.Sprint("reduced", 0), rank), outcome)
		}
		_ = s.Set(ctx, key(fmt.Sprint("pair", 0), 0), pair)
		m := Measured{}
		for rank := range 2 {
			n, err := get[Node](ctx, s, "node", rank)
			if err != nil {
				return
			}
			n.Rank = rank
			m.Nodes = append(m.Nodes, n)
		}
		var err error
		if m.Pairs, err = measuredIn(ctx, s, 0, round); err == nil {
			Judge(m)
		}
		if r, err := collected(ctx, s, 0, [][]int{{0, 1}}); err == nil {
			JudgeReduced(m.Nodes, [][]Reduced{r})
		}
	})
}
