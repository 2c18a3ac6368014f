package main

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/preflight/peers"
)

// Rows are there as soon as their round is over, the slowest first, and no more of them than people read.
func TestPeersTable(t *testing.T) {
	nodes := []peers.Node{{Name: "a"}, {Name: "bob", Rank: 1}, {Name: "c", Rank: 2}, {Name: "d", Rank: 3}}
	pair := func(a, b int, speed float64, why string) peers.Pair {
		return peers.Pair{A: a, B: b, Forth: speed, Back: speed + 1, Latency: 40 * time.Microsecond, Error: why}
	}
	var out strings.Builder
	said := func(want string) {
		t.Helper()
		if out.String() != want {
			t.Errorf("got\n%s\nwant\n%s", out.String(), want)
		}
		out.Reset()
	}
	table := peersTable{w: &out, rounds: 10}
	table.pairs(nodes, []peers.Pair{pair(0, 1, 9000, ""), pair(2, 3, 47, "")})
	said("FROM          TO            Mb/s     BACK     LATENCY\n" +
		"c (node 2)    d (node 3)    47       48       40µs\n" +
		"a (node 0)    bob (node 1)  9000     9001     40µs\n")
	table.pairs(nodes, []peers.Pair{pair(0, 1, 3, ""), pair(0, 2, 9, ""), pair(1, 2, 0, "i/o timeout"), pair(1, 3, 8, "")})
	said("bob (node 1)  c (node 2)    i/o timeout\n" +
		"a (node 0)    bob (node 1)  3        4        40µs\n" +
		"and 2 faster\n")
	table.reduced(nodes, []peers.Reduced{{Nodes: []int{0, 1}, Outcomes: []peers.Outcome{{Mbps: 800}, {}}}, {Nodes: []int{2, 3}, Outcomes: []peers.Outcome{{}, {Error: "no NCCL"}}}})
	said("\nMb/s     ALL-REDUCE 1\n-        c (node 2), d (node 3): no NCCL\n800      a (node 0), bob (node 1)\n")
	peersVerdict(&out, nodes, allReduces{Skipped: "no all-reduce was made"}, []string{"c is slow"}, nil)
	said("no all-reduce was made\nFAIL  c is slow\n")
}
