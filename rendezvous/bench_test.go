package rendezvous_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/store"
	"github.com/muster-run/muster/rendezvous/tcpstore"
)

// serve opens a c10d store on a loopback port.
func serve(b testing.TB) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := &tcpstore.Server{Store: new(store.Memory)}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	b.Cleanup(func() {
		s.Close()
		<-done
	})
	return ln.Addr().String()
}

func dial(b testing.TB, addr string, n int) []store.Store {
	all := make([]store.Store, n)
	for i := range all {
		c, err := tcpstore.Dial(b.Context(), addr, tcpstore.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		all[i] = c
	}
	return all
}

// meet lets one node per store join, and returns when all have the world. It returns after which time the first one had it.
func meet(b testing.TB, id string, stores []store.Store) (first time.Duration) {
	var all sync.WaitGroup
	var once sync.Once
	began := time.Now()
	for i, s := range stores {
		spec := job.Spec{ID: id, Terms: job.Terms{Nodes: len(stores)}, Self: job.Node{
			Name: fmt.Sprint("host", i), Index: -1, Slots: 8, Incarnation: fmt.Sprintf("%032x", i), Version: "v0.1.0",
			Addrs: []job.Addr{job.Addr(fmt.Sprintf("10.1.%d.%d:29400", i/256, i%256)), job.Addr(fmt.Sprintf("[fd00::%x]:29400", i))},
		}}
		all.Go(func() {
			session, err := rendezvous.Join(context.Background(), s, spec, rendezvous.Options{})
			if err != nil {
				b.Error(err)
				return
			}
			once.Do(func() { first = time.Since(began) })
			session.Close()
		})
	}
	all.Wait()
	return first
}

func TestJoinOverTCP(t *testing.T) { meet(t, "job7", dial(t, serve(t), 5)) }

// BenchmarkJoin is a whole meeting: n agents with a connection each, in one process with the store.
func BenchmarkJoin(b *testing.B) {
	for _, n := range []int{2, 32, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			stores := dial(b, serve(b), n)
			for i := 0; b.Loop(); i++ {
				meet(b, fmt.Sprint("job", i), stores)
			}
		})
	}
}

// BenchmarkJoinMemory is the meeting alone: n nodes in one process, with a store that is no more than memory. From s/first on, each node
// reads the world for itself, which n machines do at the same time.
func BenchmarkJoinMemory(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			m := &store.Memory{}
			stores := slices.Repeat([]store.Store{m}, n)
			var first time.Duration
			for i := 0; b.Loop(); i++ {
				first += meet(b, fmt.Sprint("job", i), stores)
			}
			b.ReportMetric(first.Seconds()/float64(b.N), "s/first")
		})
	}
}
