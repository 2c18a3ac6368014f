package peers

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Each node meets each other once, and none is in two pairs of a round.
func TestRounds(t *testing.T) {
	for n := 1; n < 40; n++ {
		met := map[[2]int]int{}
		for r, round := range Rounds(n, 100) {
			in := map[int]bool{}
			for _, p := range round {
				if in[p[0]] || in[p[1]] || p[0] >= p[1] || p[1] >= n {
					t.Fatalf("%d nodes, round %d: %v", n, r, round)
				}
				in[p[0]], in[p[1]] = true, true
				met[p]++
			}
			if len(round) != n/2 {
				t.Fatalf("%d nodes, round %d: %d pairs", n, r, len(round))
			}
		}
		for p, times := range met {
			if times != 1 {
				t.Fatalf("%d nodes: %v met %d times", n, p, times)
			}
		}
		if len(met) != n*(n-1)/2 {
			t.Fatalf("%d nodes: %d pairs", n, len(met))
		}
	}
	if got := len(Rounds(1000, 15)); got != 15 {
		t.Errorf("%d rounds, not 15", got)
	}
}

// world is n nodes and all pairs of them, as they should be but for what edit does.
func world(n int, edit func(nodes []Node, p *Pair)) (nodes []Node, pairs []Pair) {
	for i := range n {
		nodes = append(nodes, Node{Rank: i, Name: fmt.Sprintf("n%d", i), Facts: map[string]string{"driver": "570"}, Again: true})
	}
	for _, round := range Rounds(n, n) {
		for _, p := range round {
			pair := Pair{A: p[0], B: p[1], Latency: 50 * time.Microsecond, Forth: 9000 + float64(p[0]), Back: 9100}
			edit(nodes, &pair)
			pairs = append(pairs, pair)
		}
	}
	return nodes, pairs
}

// The node or the link that is at fault is named, and nobody else.
func TestJudge(t *testing.T) {
	sends := func(rank int, speed float64) func([]Node, *Pair) {
		return func(_ []Node, p *Pair) {
			if p.A == rank {
				p.Forth = speed
			}
			if p.B == rank {
				p.Back = speed
			}
		}
	}
	between := func(a, b int, edit func(*Pair)) func([]Node, *Pair) {
		return func(_ []Node, p *Pair) {
			if p.A == a && p.B == b {
				edit(p)
			}
		}
	}
	skewed := func(by time.Duration, ranks ...int) func([]Node, *Pair) {
		return func(_ []Node, p *Pair) {
			if slices.Contains(ranks, p.A) {
				p.Skew -= by
			}
			if slices.Contains(ranks, p.B) {
				p.Skew += by
			}
		}
	}
	for _, c := range []struct {
		name string
		n    int
		edit func([]Node, *Pair)
		want []string
	}{
		{"all is well", 5, func([]Node, *Pair) {}, nil},
		{"one alone", 1, func([]Node, *Pair) {}, nil},
		{"two", 2, func([]Node, *Pair) {}, nil},
		{"a slow sender", 4, sends(2, 95), []string{"n2 (node 2) sends at 95 Mb/s, to or from whomever; others at 9."}},
		{"a slow sender of three", 3, sends(1, 95), []string{"n1 (node 1) sends at 95 Mb/s"}},
		{"a slow link", 4, between(1, 3, func(p *Pair) { p.Back = 100 }), []string{"between n1 (node 1) and n3 (node 3) go 9 Gb/s and back 100 Mb/s; 9"}},
		{"a broken link", 4, between(0, 3, func(p *Pair) { p.Error = "i/o timeout" }), []string{"n0 (node 0) and n3 (node 3) do not reach each other: i/o timeout"}},
		{"a long way", 4, between(0, 3, func(p *Pair) { p.Latency = time.Millisecond }), []string{"from n0 (node 0) to n3 (node 3) it takes 1ms; 50µs are usual"}},
		{"a slow sender with a queue", 4, func(nodes []Node, p *Pair) {
			if sends(3, 95)(nodes, p); p.A == 0 && p.B == 3 {
				p.Latency = time.Millisecond
			}
		}, []string{"n3 (node 3) sends at 95 Mb/s"}},
		{"a slow link with a queue", 4, between(1, 3, func(p *Pair) { p.Back, p.Latency = 100, time.Millisecond }), []string{"between n1 (node 1) and n3 (node 3) go"}},
		{"a broken node", 4, func(_ []Node, p *Pair) {
			if p.A == 2 || p.B == 2 {
				p.Error = "connection refused"
			}
		}, []string{"n2 (node 2) reaches none of the 3 nodes it was to: connection refused"}},
		{"two that do not meet", 2, func(_ []Node, p *Pair) { p.Error = "no route to host" }, []string{"n0 (node 0) and n1 (node 1) do not reach each other: no route to host"}},
		{"a clock", 4, skewed(time.Minute, 1), []string{"the clock of n1 (node 1) is 1m0s ahead of most"}},
		{"half of the clocks", 4, skewed(time.Minute, 2, 3), []string{"clocks differ by 1m0s: n2 (node 2) and n3 (node 3) ahead of n0 (node 0) and n1 (node 1)"}},
		{"clocks of two", 2, skewed(-time.Minute, 1), []string{"the clock of n1 (node 1) is 1m0s behind n0 (node 0)"}},
		{"the clock of one that few reach", 5, func(nodes []Node, p *Pair) {
			if skewed(time.Minute, 4)(nodes, p); p.A == 0 || p.B == 4 && p.A != 1 {
				p.Error = "i/o timeout"
			}
		}, []string{
			"n0 (node 0) reaches none of the 4 nodes it was to", "n3 (node 3) and n4 (node 4) do not reach", "n2 (node 2) and n4 (node 4) do not reach",
			"the clock of n4 (node 4) is 1m0s ahead of most",
		}},
		{"two, one of which is slow in one direction", 2, between(0, 1, func(p *Pair) { p.Back = 100 }), []string{"from n1 (node 1) to n0 (node 0) go 100 Mb/s, the other way 9 Gb/s"}},
		{"two that are nearly alike", 2, between(0, 1, func(p *Pair) { p.Forth = 4000 }), nil},
		{"another driver", 4, func(nodes []Node, _ *Pair) { nodes[3].Facts = map[string]string{"driver": "535"} }, []string{"n3 (node 3): driver is 535, on 3 nodes 570"}},
		{"no driver", 4, func(nodes []Node, _ *Pair) { nodes[3].Facts = nil }, []string{"n3 (node 3): driver is not there, on 3 nodes 570"}},
		{"its own fault", 4, func(nodes []Node, _ *Pair) { nodes[3].Faults = []string{"shm: too small"} }, []string{"n3 (node 3): shm: too small"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes, pairs := world(c.n, c.edit)
			faults, differences := Judge(Measured{Nodes: nodes, Pairs: pairs})
			got := slices.Concat(faults, differences)
			if len(got) != len(c.want) {
				t.Fatalf("%q, want %q", got, c.want)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("%q, want %q", got[i], want)
				}
			}
		})
	}
}

// A memory is a Store of this process.
type memory struct {
	mu      sync.Mutex
	values  map[string][]byte
	numbers map[string]int64
	changed chan struct{}
}

func (m *memory) Set(_ context.Context, key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[key] = slices.Clone(value)
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

func (m *memory) Get(ctx context.Context, key string) ([]byte, error) {
	for {
		m.mu.Lock()
		v, ok := m.values[key]
		changed := m.changed
		m.mu.Unlock()
		if ok {
			return v, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (m *memory) Add(_ context.Context, key string, delta int64) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.numbers[key] += delta
	return m.numbers[key], nil
}

// Nodes measure each other over real connections; one that cannot be reached is named by all who try.
func TestMeasure(t *testing.T) {
	const size = 4
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	s := &memory{values: map[string][]byte{}, numbers: map[string]int64{}, changed: make(chan struct{})}
	var all sync.WaitGroup
	var nodes []Node
	var pairs []Pair
	var rounds [][]Pair
	for rank := range size {
		all.Go(func() {
			self := Node{Rank: rank, Name: fmt.Sprintf("n%d", rank), Addresses: []string{"127.0.0.1"}}
			if rank == 2 {
				self.Addresses = []string{"127.0.0.1:1"} // which becomes one that nobody can dial
			}
			plan := Plan{Rounds: 10, Each: 20 * time.Millisecond}
			if rank == 0 {
				plan.Seen = func(_ []Node, round []Pair) { rounds = append(rounds, round) }
			}
			m, err := Measure(ctx, s, self, size, plan)
			if err != nil {
				t.Error(rank, err)
			}
			if rank == 0 {
				nodes, pairs = m.Nodes, m.Pairs
			}
		})
	}
	all.Wait()
	if len(nodes) != size || len(pairs) != size*(size-1)/2 {
		t.Fatalf("%d nodes, %d pairs", len(nodes), len(pairs))
	}
	for r, round := range rounds { // of so short a time some may have to be measured again
		if r < size-1 && len(round) != size/2 || slices.ContainsFunc(round, func(p Pair) bool { return (p.Times > 1) != (r >= size-1) }) {
			t.Errorf("seen as they came: %+v", rounds)
		}
	}
	for _, p := range pairs {
		if p.B == 2 {
			if p.Error == "" {
				t.Errorf("nothing is wrong with %+v", p)
			}
			continue
		}
		if p.Error == "" && (p.Forth <= 0 || p.Back <= 0 || p.Latency <= 0 || p.Skew > time.Second || p.Skew < -time.Second) {
			t.Errorf("%+v", p)
		}
	}
}

// Who seems slow is measured again, beside others, and is not blamed if that was chance.
func TestAgain(t *testing.T) {
	const size = 6
	slow := func(at func(p Pair, time int) bool) func(p Pair, time int) Pair {
		return func(p Pair, n int) Pair {
			p.Latency, p.Forth, p.Back = 50*time.Microsecond, 9000, 9100
			if at(p, n) {
				p.Forth, p.Back = 900, 910
			}
			return p
		}
	}
	for _, c := range []struct {
		name           string
		measure        func(p Pair, time int) Pair // for that time
		faults, doubts []string
	}{
		{"nobody is slow", slow(func(Pair, int) bool { return false }), nil, nil},
		{"a slow node", slow(func(p Pair, _ int) bool { return p.B == 3 || p.A == 3 }), []string{"n3 (node 3) sends at 910 Mb/s", "n3 (node 3) receives at 910 Mb/s"}, nil},
		{"a slow way", slow(func(p Pair, _ int) bool { return p.A == 1 && p.B == 4 }), []string{"between n1 (node 1) and n4 (node 4) go 900 Mb/s"}, nil},
		{"a way that was slow once", slow(func(p Pair, time int) bool { return p.A == 1 && p.B == 4 && time == 0 }), nil, []string{"nobody is sure: at first between n1 (node 1) and n4 (node 4) go 900 Mb/s"}},
		{"a node that was slow twice", slow(func(p Pair, time int) bool { return p.B == 5 && time < 2 }), nil,
			[]string{"nobody is sure: at first n5 (node 5) sends at 910 Mb/s", "nobody is sure: at first n5 (node 5) receives at 900 Mb/s"}},
		{"machines that got busy", slow(func(p Pair, time int) bool { return p.A == 1 && p.B == 4 || time > 0 }), nil, []string{"nobody is sure: at first between n1 (node 1) and n4 (node 4)"}},
		{"what fails the second time", func(p Pair, time int) Pair {
			if p = slow(func(p Pair, _ int) bool { return p.A == 1 && p.B == 4 })(p, time); time > 0 {
				p = Pair{A: p.A, B: p.B, Error: "i/o timeout"}
			}
			return p
		}, []string{"between n1 (node 1) and n4 (node 4) go 900 Mb/s"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes, pairs := world(size, func(_ []Node, p *Pair) { *p = c.measure(Pair{A: p.A, B: p.B}, 0) })
			s := &memory{values: map[string][]byte{}, numbers: map[string]int64{}, changed: make(chan struct{})}
			var m Measured
			var all sync.WaitGroup
			for rank := range size {
				all.Go(func() {
					mine := Measured{Nodes: nodes}
					if rank == 0 {
						mine.Pairs = pairs
					}
					times := map[[2]int]int{}
					p := part{store: s, self: rank, nodes: nodes, measure: func(p Pair) Pair {
						times[[2]int{p.A, p.B}]++
						return c.measure(p, times[[2]int{p.A, p.B}])
					}}
					if err := p.again(t.Context(), &mine); err != nil {
						t.Error(err)
					}
					if rank == 0 {
						m = mine
					}
				})
			}
			all.Wait()
			faults, _ := Judge(m)
			for what, two := range map[string][2][]string{"faults": {faults, c.faults}, "doubts": {m.Doubts, c.doubts}} {
				if !slices.EqualFunc(two[0], two[1], strings.HasPrefix) {
					t.Errorf("%s %q, want %q", what, two[0], two[1])
				}
			}
		})
	}
}

// With a node of an older release nobody waits for what it does not do.
func TestNotAgain(t *testing.T) {
	nodes, pairs := world(4, func(nodes []Node, p *Pair) {
		nodes[2].Again = false
		if p.B == 3 {
			p.Forth = 10
		}
	})
	s := &memory{values: map[string][]byte{}, numbers: map[string]int64{}, changed: make(chan struct{})}
	m := Measured{Nodes: nodes, Pairs: pairs}
	p := part{store: s, nodes: nodes, measure: func(p Pair) Pair { t.Errorf("%+v is measured again", p); return p }}
	if err := p.again(t.Context(), &m); err != nil || len(s.values) > 0 {
		t.Errorf("%v; it left %q", err, s.values)
	}
	if faults, _ := Judge(m); len(faults) != 1 {
		t.Error(faults)
	}
}

// In no round of those that are measured again a node is in two pairs, and of many slow nodes there are few.
func TestRoundsAgain(t *testing.T) {
	nodes, pairs := world(64, func(_ []Node, p *Pair) {
		if p.A%2 == 0 && p.B%2 == 0 {
			p.Forth, p.Back = 10, 10
		}
	})
	rounds := Measured{Nodes: nodes, Pairs: pairs}.again()
	for _, round := range rounds {
		in := map[int]bool{}
		for _, p := range round {
			if in[p[0]] || in[p[1]] {
				t.Errorf("%v", round)
			}
			in[p[0]], in[p[1]] = true, true
		}
	}
	if len(rounds) == 0 || len(rounds) > roundsAgain {
		t.Errorf("%d rounds", len(rounds))
	}
}

// serving is a server of this machine, and how to reach it.
func serving(t *testing.T, secret []byte) Node {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{secret: secret}
	var running sync.WaitGroup
	running.Go(func() { s.serve(ln) })
	t.Cleanup(func() { ln.Close(); s.close(); running.Wait() })
	return Node{Addresses: []string{ln.Addr().String()}}
}

// Who does not know the job's secret is told nothing.
func TestStranger(t *testing.T) {
	to := serving(t, []byte(strings.Repeat("k", secretSize)))
	if _, err := send(t.Context(), []byte(strings.Repeat("x", secretSize)), to, time.Millisecond); err == nil {
		t.Error("a stranger was measured")
	}
}

// However many strangers call and say nothing, the nodes of the job are measured.
func TestManyStrangers(t *testing.T) {
	secret := []byte(strings.Repeat("k", secretSize))
	to := serving(t, secret)
	for range 10 * maxStrangers {
		c, err := net.Dial("tcp", to.Addresses[0])
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if p := measure(t.Context(), secret, to, Pair{B: 1}, time.Millisecond); p.Error != "" {
		t.Error(p.Error)
	}
}
