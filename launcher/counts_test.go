package launcher

import (
	"io"
	"net"
	"testing"

	"github.com/muster-run/muster/rendezvous/tcpstore"
	"github.com/muster-run/muster/report"
)

// Whom the stores of this node had no room for is counted on, also when they have ended.
func TestCountsOfACrowd(t *testing.T) {
	d := &desk{c: Config{tellers: newTellers(Config{})}}
	for want := 1; want <= 2; want++ {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := &tcpstore.Server{MaxClients: 1}
		d.hosts(s)
		served, closed := make(chan error, 1), make(chan error, 2)
		go func() { served <- s.Serve(ln) }()
		for range 2 {
			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			go func() {
				_, err := io.Copy(io.Discard, c)
				closed <- err
			}()
		}
		<-closed
		for _, when := range []string{"while it serves", "when it has ended"} {
			var c report.Counts
			if kept := d.c.tellers.sum(&c); c.Store == nil || c.Store.Crowded != want || kept.Crowded != want {
				t.Errorf("store %d, %s: %+v, want %d that it had no room for", want, when, c.Store, want)
			}
			s.Close()
			d.hosted(s)
		}
		<-served
		<-closed
	}
}
