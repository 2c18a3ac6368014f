package fleet

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

// A leader answers whoever asks, and an agent that expects nobody hangs up; where nobody is, or nobody reacts, there is no answer.
func TestAnswers(t *testing.T) {
	listen := func(handle func(net.Conn)) job.Addr {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		t.Cleanup(func() { ln.Close(); <-done })
		go func() {
			defer close(done)
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				handle(c)
			}
		}()
		return job.Addr(ln.Addr().String())
	}
	_, leader := lead(t, world(3), Options{})
	member := listen(func(c net.Conn) { c.Close() })
	frozen := listen(func(c net.Conn) { t.Cleanup(func() { c.Close() }) })
	for _, c := range []struct {
		name  string
		addrs []job.Addr
		want  bool
	}{
		{"a leader", []job.Addr{leader}, true},
		{"a member", []job.Addr{member}, true},
		{"a frozen one", []job.Addr{frozen}, false},
		{"at its second address", []job.Addr{frozen, "127.0.0.1:1", leader}, true},
		{"nobody", []job.Addr{"127.0.0.1:1"}, false},
		{"no address", nil, false},
	} {
		within := 300 * time.Millisecond // for nobody
		if c.want {
			within = time.Minute
		}
		ctx, cancel := context.WithTimeout(t.Context(), within)
		if got := Answers(ctx, c.addrs, nil); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		cancel()
	}
}
