package peers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/muster-run/muster/rendezvous/store"
)

// played makes both rounds between n nodes, of which each does as part says of it and its group.
func played(t *testing.T, n int, part func(rank int, with []int) Outcome) (nodes []Node, rounds [][]Reduced) {
	t.Helper()
	s := new(store.Memory)
	var mu sync.Mutex
	with := map[string][]int{} // ranks by their group's prefix
	seen := make([]int, n)
	var all sync.WaitGroup
	for rank := range n {
		nodes = append(nodes, Node{Rank: rank, Name: fmt.Sprintf("n%d", rank)})
		all.Go(func() {
			got, err := Reduce(t.Context(), s, rank, n, func(_ context.Context, at Seat, ready func() error) Outcome {
				mu.Lock()
				with[at.Prefix] = append(with[at.Prefix], rank)
				mu.Unlock()
				if o := part(rank, []int{rank}); o.Own && strings.HasPrefix(o.Error, "PyTorch") { // it never begins
					return o
				}
				if err := ready(); err != nil {
					return Outcome{Error: err.Error()}
				}
				mu.Lock()
				defer mu.Unlock()
				return part(rank, with[at.Prefix])
			}, func([]Reduced) { seen[rank]++ })
			if err != nil {
				t.Error(err)
			}
			if rank == 0 {
				rounds = got
			}
		})
	}
	all.Wait()
	for rank, times := range seen {
		if rank == 0 && times != len(rounds) || rank > 0 && times > 0 {
			t.Errorf("rank %d saw %d of %d rounds", rank, times, len(rounds))
		}
	}
	return nodes, rounds
}

// Whoever is slow or fails in all-reduces is named, and nobody else; where nobody can know, the group is.
func TestReduce(t *testing.T) {
	slow := func(ranks ...int) func(int, []int) Outcome {
		return func(_ int, with []int) Outcome {
			for _, r := range ranks {
				if slices.Contains(with, r) {
					return Outcome{Mbps: 50}
				}
			}
			return Outcome{Mbps: 9000}
		}
	}
	broken := func(rank int, own string) func(int, []int) Outcome {
		return func(r int, with []int) Outcome {
			switch {
			case r == rank && own != "":
				return Outcome{Own: true, Error: own}
			case slices.Contains(with, rank):
				return Outcome{Error: "Connection closed by peer"}
			}
			return Outcome{Mbps: 9000}
		}
	}
	for _, c := range []struct {
		n    int
		part func(int, []int) Outcome
		want []string
	}{
		{1, slow(), nil}, {2, slow(), nil}, {3, slow(), nil}, {4, slow(), nil}, {9, slow(), nil},
		{4, slow(3), []string{"n3 (node 3) makes all-reduces slow with whomever: 50 Mb/s; others have 9 Gb/s"}},
		{8, slow(0), []string{"n0 (node 0) makes all-reduces slow"}},
		{7, slow(6), []string{"n6 (node 6) makes all-reduces slow"}},
		{8, slow(1, 6), []string{"n1 (node 1) makes", "n6 (node 6) makes"}},
		{8, slow(2, 3), []string{"n2 (node 2) makes", "n3 (node 3) makes"}},
		{4, func(rank int, with []int) Outcome { // of two that were together each is something else
			if slices.Contains(with, 2) {
				return Outcome{Error: "refused"}
			}
			return slow(3)(rank, with)
		}, []string{"n2 (node 2) fails in an all-reduce with whomever: refused", "n3 (node 3) makes all-reduces slow with whomever: 50 Mb/s; others have 9 Gb/s"}},
		{4, broken(1, ""), []string{"n1 (node 1) fails in an all-reduce with whomever: Connection closed by peer"}},
		{6, broken(5, "PyTorch does not start: no CUDA"), []string{"n5 (node 5) fails in an all-reduce with whomever: PyTorch does not start: no CUDA"}},
		{4, broken(0, "7 of 9 sums are wrong"), []string{"n0 (node 0) fails in an all-reduce with whomever: 7 of 9 sums are wrong"}},
		{2, broken(1, "PyTorch does not start"), []string{"the all-reduce of n0 (node 0) and n1 (node 1) fails: PyTorch does not start; so says n1 (node 1) of itself"}},
		{3, broken(1, ""), []string{"the all-reduce of n0 (node 0) and n1 (node 1) and n2 (node 2) fails: Connection closed by peer; which of them it is so few nodes cannot tell"}},
		{4, slow(0, 1, 2, 3), nil}, // nobody knows what is usual
		{4, func(int, []int) Outcome { return Outcome{Error: "no route"} }, []string{"the all-reduce of n0 (node 0) and n1 (node 1) fails: no route", "the all-reduce of n2 (node 2) and n3 (node 3) fails: no route"}},
		{4, func(_ int, with []int) Outcome { // a way, and none of the nodes: neighbours in the second round
			if slices.Contains(with, 1) && slices.Contains(with, 2) {
				return Outcome{Mbps: 50}
			}
			return Outcome{Mbps: 9000}
		}, []string{"the all-reduce of n1 (node 1) and n2 (node 2) has 50 Mb/s; others have 9 Gb/s"}},
	} {
		nodes, rounds := played(t, c.n, c.part)
		got, doubts := JudgeReduced(nodes, rounds)
		if len(doubts) > 0 {
			t.Errorf("%d nodes: doubts %q", c.n, doubts)
		}
		if slices.Sort(got); len(got) != len(c.want) {
			t.Errorf("%d nodes: %q, not %q; %+v", c.n, got, c.want, rounds)
			continue
		}
		for i, want := range c.want {
			if !strings.HasPrefix(got[i], want) {
				t.Errorf("%d nodes: %q, not %q", c.n, got[i], want)
			}
		}
	}
}

// Who was slow for once is not blamed, be it that all were slow meanwhile; who is slow in all four rounds is.
func TestReducedAgain(t *testing.T) {
	speeds := func(all ...float64) (rounds [][]Reduced) { // of two groups in each round
		groups := [][2][]int{{{0, 1}, {2, 3}}, {{0, 2}, {1, 3}}}
		for i := 0; i < len(all); i += 2 {
			var round []Reduced
			for k, g := range groups[i/2%2] {
				round = append(round, Reduced{Nodes: g, Outcomes: []Outcome{{Mbps: all[i+k]}, {Mbps: all[i+k]}}})
			}
			rounds = append(rounds, round)
		}
		return rounds
	}
	for _, c := range []struct {
		rounds         [][]Reduced
		faults, doubts int
	}{
		{speeds(907, 1819, 355, 241), 2, 0},
		{speeds(907, 1819, 355, 241, 1500, 1400, 1200, 800), 0, 2}, // as once measured on a busy machine
		{speeds(907, 1819, 355, 241, 800, 900, 1200, 500), 0, 2},   // all got slower
		{speeds(50, 9000, 9000, 50, 50, 9000, 9000, 50), 1, 0},
		{speeds(50, 9000, 9000, 50, 50, 9000, 9000, 8000), 0, 1},
		{speeds(50, 9000, 9000, 50, 9000, 9000, 9000, 50), 1, 1}, // a way
	} {
		var nodes []Node
		for rank := range 4 {
			nodes = append(nodes, Node{Rank: rank, Name: "n"})
		}
		if faults, doubts := JudgeReduced(nodes, c.rounds); len(faults) != c.faults || len(doubts) != c.doubts {
			t.Errorf("%+v: faults %q, doubts %q", c.rounds, faults, doubts)
		}
	}
}

// In both rounds each node is in one group, with a bad one at most one other that was bad.
func TestRegrouped(t *testing.T) {
	for n := 4; n < 40; n++ {
		for worst := range n / 2 {
			var round []Reduced
			for i, g := range neighbours(n) {
				r := Reduced{Nodes: g}
				for range g {
					o := Outcome{Mbps: 100}
					if i == worst {
						o = Outcome{Error: "x"}
					}
					r.Outcomes = append(r.Outcomes, o)
				}
				round = append(round, r)
			}
			seen := map[int]bool{}
			for _, g := range regrouped(round) {
				suspects := 0
				for _, rank := range g {
					if seen[rank] {
						t.Fatalf("%d nodes: %d twice", n, rank)
					}
					if seen[rank] = true; slices.Contains(round[worst].Nodes, rank) {
						suspects++
					}
				}
				if suspects > 1 && n != 5 { // whose three were all suspect, with two others
					t.Errorf("%d nodes: %v with %v bad", n, g, round[worst].Nodes)
				}
			}
			if len(seen) != n {
				t.Fatalf("%d nodes: %d in groups", n, len(seen))
			}
		}
	}
}

// Of a node's processes the one counts that failed by itself, then one that failed, then the slowest.
func TestWorse(t *testing.T) {
	for _, c := range [][3]Outcome{
		{{}, {Mbps: 5}, {Mbps: 5}}, {{Mbps: 5}, {}, {Mbps: 5}}, {{Mbps: 5}, {Mbps: 4}, {Mbps: 4}}, {{Mbps: 4}, {Mbps: 5}, {Mbps: 4}},
		{{Mbps: 5}, {Error: "x"}, {Error: "x"}}, {{Error: "x"}, {Mbps: 5}, {Error: "x"}}, {{Error: "x"}, {Error: "y", Own: true}, {Error: "y", Own: true}},
		{{Error: "y", Own: true}, {Error: "x"}, {Error: "y", Own: true}},
	} {
		if got := c[0].worse(c[1]); got != c[2] {
			t.Errorf("%+v and %+v: %+v", c[0], c[1], got)
		}
	}
}

// What is no PyTorch says so, in whichever way.
func TestNoTorch(t *testing.T) {
	for python, want := range map[string]string{"/no/such": "no such file", "false": "ended (exit status 1)", "echo": "says "} {
		o := Torch{Python: python}.Reduce(t.Context(), Seat{Size: 1}, func() error { return errors.New("nobody is to wait for it") })
		if !o.Own || !strings.Contains(o.Error, want) {
			t.Errorf("%s: %+v", python, o)
		}
	}
}

func TestUntold(t *testing.T) {
	for _, c := range []struct {
		nodes  int
		rounds [][]Reduced
		told   bool
	}{{1, nil, true}, {2, nil, false}, {3, nil, true}, {3, [][]Reduced{{}}, false}, {4, [][]Reduced{{}, {}}, true}} {
		if got := Untold(c.nodes, c.rounds); (got == "") != c.told {
			t.Errorf("%d nodes: %q", c.nodes, got)
		}
	}
}
