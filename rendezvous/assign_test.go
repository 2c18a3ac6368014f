package rendezvous

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
)

func order(members []job.Member) string {
	var list []string
	for _, m := range members {
		list = append(list, m.Name)
	}
	return strings.Join(list, " ")
}

// nodes reads "name[:index[!]][@block/rack/domain/switch]", each with one slot; ! is that of a node that was numbered for good.
func nodes(text string) []job.Node {
	var list []job.Node
	for _, word := range strings.Fields(text) {
		word, place, _ := strings.Cut(word, "@")
		name, index, numbered := strings.Cut(word, ":")
		n := job.Node{Name: name, Index: -1, Slots: 1, Incarnation: name + " life"}
		if numbered {
			index, n.Fixed = strings.CutSuffix(index, "!")
			fmt.Sscan(index, &n.Index)
		}
		p := append(strings.Split(place, "/"), "", "", "")
		n.Place = job.Place{Block: p[0], Rack: p[1], Domain: p[2], Switch: p[3]}
		list = append(list, n)
	}
	return list
}

func TestAssign(t *testing.T) {
	for _, c := range []struct{ before, nodes, want string }{
		{"", "node10 node2 node1", "node1 node2 node10"},
		{"", "b10x2 b2x10 b2x9 b2", "b2 b2x9 b2x10 b10x2"},
		{"", "z:0 y:1 x:2", "z y x"},
		{"", "d:5 c:7 b:9", "d c b"},                         // gaps
		{"", "a z:0 y:2", "z a y"},                           // given indices are honoured, others fill
		{"", "a b c:1", "a c b"},                             //
		{"", "a:9 b c", "a b c"},                             // no such seat
		{"", "a:0@2 b:1@1 c:2@2 d:3@1", "a c b d"},           // near ones together, and node 0 first
		{"", "a:0@x b:1@x c:2@y d:3@y", "a b c d"},           // as they were numbered
		{"", "a:3@x b:2@y c:1@y d:0@z", "d c b a"},           // nothing is won by another order
		{"", "a:0 b:1@y c:2 d:3@y", "a c b d"},               // of two nobody knows
		{"", "a:0!@2 b:1@1 c:2@2 d:3@1", "a b c d"},          // one was numbered for good
		{"", "a@x/2 b@x/10 c@x d@w/1 e", "d a b c e"},        // the unknown comes last
		{"", "a@b/r/d2/s1 b@b/r/d1/s2 c@b/r/d1/s1", "c b a"}, //
		{"a b c", "c b a", "a b c"},                          //
		{"a b c", "c a x", "a x c"},                          // a spare takes the lost place
		{"c a b", "a b c d", "c a b d"},                      // a newcomer sits behind
		{"a b c d", "d b", "b d"},                            // fewer
		{"c@2 b@1 a@2", "a@2 b@1 c@2", "c b a"},              // survivors do not move, near or not
		{"a:0 b:1 c:2", "a:0 y:2 x:1", "a x y"},              // by index
		{"a b c d", "z y b a", "a b y z"},                    // in order
		{"a0 a1 a2", "a1 a0 a2", "a0 a1 a2"},                 //
	} {
		var previous *job.World
		if c.before != "" {
			previous = &job.World{}
			for _, n := range nodes(c.before) {
				previous.Members = append(previous.Members, job.Member{Node: n})
			}
		}
		if got := order(assign(nodes(c.nodes), previous)); got != c.want {
			t.Errorf("%q after %q: got %q, want %q", c.nodes, c.before, got, c.want)
		}
	}
}

// A node that comes back as another process gets its own place again, by its name too.
func TestAssignAfterRestart(t *testing.T) {
	previous := &job.World{Members: assign(nodes("c b a"), nil)}
	again := nodes("x a c")
	again[2].Incarnation = "second"
	previous.Members[0], previous.Members[2] = previous.Members[2], previous.Members[0] // c b a
	if got := order(assign(again, previous)); got != "c x a" {
		t.Errorf("got %q", got)
	}
}

func someNodes(r *rand.Rand) []job.Node {
	list := make([]job.Node, 1+r.IntN(40))
	indices := r.Perm(len(list))
	indexed, placed := r.IntN(3), r.IntN(3)
	for i := range list {
		list[i] = job.Node{Name: fmt.Sprint("n", r.IntN(20)), Index: -1, Slots: r.IntN(9), Incarnation: fmt.Sprint(r.Uint64())}
		if indexed == 2 || indexed == 1 && r.IntN(2) == 0 {
			list[i].Index = indices[i]
		}
		if placed == 2 || placed == 1 && r.IntN(2) == 0 {
			list[i].Place = job.Place{Block: fmt.Sprint(r.IntN(3)), Rack: fmt.Sprint(r.IntN(3))}
		}
	}
	return list
}

func mixed(r *rand.Rand, list []job.Node) []job.Node {
	list = slices.Clone(list)
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

func lives(members []job.Member) []string {
	var list []string
	for _, m := range members {
		list = append(list, m.Incarnation)
	}
	return list
}

func TestAssignProperties(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		all := someNodes(r)
		first := assign(all, nil)
		if again := assign(mixed(r, all), nil); !slices.Equal(lives(again), lives(first)) {
			t.Fatalf("seed %d: the order of arrival changes the ranks", seed)
		}
		everyRankOnce(t, seed, all, first)

		left := mixed(r, all)[:1+r.IntN(len(all))]
		now := append(slices.Clone(left), someNodes(r)...)
		for i := range now[len(left):] {
			now[len(left)+i].Index = -1 // else they are the lost nodes' next lives
			now[len(left)+i].Name += "new"
		}
		second := assign(now, &job.World{Members: first})
		everyRankOnce(t, seed, now, second)
		if again := assign(mixed(r, now), &job.World{Members: first}); !slices.Equal(lives(again), lives(second)) {
			t.Fatalf("seed %d: the order of arrival changes the ranks of the second world", seed)
		}
		was, is := survivors(first, left), survivors(second, left)
		if !slices.Equal(was, is) {
			t.Fatalf("seed %d: survivors changed their order: %v, %v", seed, was, is)
		}
		third := assign(mixed(r, now), &job.World{Members: second})
		if !slices.Equal(lives(third), lives(second)) {
			t.Fatalf("seed %d: the same nodes got other ranks", seed)
		}
	}
}

func survivors(members []job.Member, left []job.Node) []string {
	return slices.DeleteFunc(lives(members), func(life string) bool {
		return !slices.ContainsFunc(left, func(n job.Node) bool { return n.Incarnation == life })
	})
}

func everyRankOnce(t *testing.T, seed uint64, nodes []job.Node, members []job.Member) {
	t.Helper()
	rank, slots := 0, 0
	for _, n := range nodes {
		slots += n.Slots
	}
	for _, m := range members {
		if m.First != rank {
			t.Fatalf("seed %d: %v begins at rank %d, want %d", seed, m.Node, m.First, rank)
		}
		rank += m.Slots
	}
	if len(members) != len(nodes) || rank != slots {
		t.Fatalf("seed %d: %d ranks on %d nodes, want %d on %d", seed, rank, len(members), slots, len(nodes))
	}
}

// In a first world, nodes of one rack, switch and so on stand together whatever their numbers, and the smallest number is first. A node that was
// numbered for good keeps all where they are.
func TestNearProperties(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		all := someNodes(r)
		if !slices.ContainsFunc(all, func(n job.Node) bool { return n.Place != job.Place{} }) {
			continue
		}
		members := assign(all, nil)
		together(t, seed, members)
		if least := slices.MinFunc(all, inOrder); least.Index >= 0 && members[0].Incarnation != least.Incarnation {
			t.Fatalf("seed %d: node %d is first, not %d", seed, members[0].Index, least.Index)
		}
		for i := range members { // numbers that follow the network
			members[i].Index = i
		}
		again := assign(mixed(r, nodesOf(members)), nil)
		if !slices.Equal(lives(again), lives(members)) {
			t.Fatalf("seed %d: nodes that were numbered near each other were moved", seed)
		}
		for i, n := range r.Perm(len(members)) {
			members[i].Index = n
		}
		members[0].Fixed = true
		for i, m := range assign(nodesOf(members), nil) {
			if m.Index != i {
				t.Fatalf("seed %d: node %d, numbered for good, has group rank %d", seed, m.Index, i)
			}
		}
	}
}

// together checks that nodes alike in the first parts of their places are neighbours.
func together(t *testing.T, seed uint64, members []job.Member) {
	t.Helper()
	for parts := 1; parts <= len(job.PlaceParts); parts++ {
		seen, last := map[string]bool{}, ""
		for _, m := range members {
			here := fmt.Sprintf("%q", m.Place.Path()[:parts])
			if here != last && seen[here] {
				t.Fatalf("seed %d: nodes of %s are not neighbours: %v", seed, here, members)
			}
			seen[here], last = true, here
		}
	}
}

func nodesOf(members []job.Member) (all []job.Node) {
	for _, m := range members {
		all = append(all, m.Node)
	}
	return all
}

func TestOrder(t *testing.T) {
	for _, c := range []struct{ nodes, want string }{
		{"a", ""}, {"b:1 a:0", "by the numbers that nodes were given"}, {"b a", "by the nodes' names, for not all were given numbers"},
		{"a:0@x b:1@y c:2@x", "nodes that stand near each other follow each other"},
		{"a:0!@x b:1!@y c:2!@x", "by the numbers that nodes were given"},
	} {
		if got := Order(job.World{Members: assign(nodes(c.nodes), nil)}); got != c.want {
			t.Errorf("%q: %q, want %q", c.nodes, got, c.want)
		}
	}
	before := &job.World{Members: assign(nodes("c@2 b@1 a@2"), nil)}
	after := nodes("c@2 b@3 a@1")
	if got := Order(job.World{Members: assign(after, before)}); got != "nodes of the world before kept their ranks" {
		t.Errorf("after another world: %q", got)
	}
}
