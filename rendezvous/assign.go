package rendezvous

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// assign gives every node its group rank, the position in the result, and its first global rank.
//
// Nodes that stand near each other in the network get neighbouring ranks, unless somebody numbered them for good; where nobody knows places, an
// index that was given is the group rank. Nodes of the previous world keep their order, and new nodes take the places that were lost. The order
// of nodes does not matter.
func assign(nodes []job.Node, previous *job.World) []job.Member {
	sorted := slices.SortedFunc(slices.Values(nodes), inOrder)
	if placed(nodes) {
		sorted = near(sorted, 0)
	} else {
		sorted = seat(sorted)
	}
	if previous != nil {
		sorted = keep(sorted, previous.Members)
	}
	members := make([]job.Member, len(sorted))
	first := 0
	for i, n := range sorted {
		members[i] = job.Member{Node: n, First: first}
		first += n.Slots
	}
	return members
}

// Order says in which order the nodes of a world have their ranks, as far as its members are known; "": there is one.
func Order(w job.World) string {
	nodes := make([]job.Node, len(w.Members))
	for i, m := range w.Members {
		nodes[i] = m.Node
	}
	kept := slices.ContainsFunc(assign(nodes, nil), func(m job.Member) bool { r, _ := w.GroupRank(m.Incarnation); return m.First != w.Members[r].First })
	switch {
	case len(nodes) < 2:
		return ""
	case kept:
		return "nodes of the world before kept their ranks"
	case placed(nodes):
		return "nodes that stand near each other follow each other"
	case !slices.ContainsFunc(nodes, func(n job.Node) bool { return n.Index < 0 }):
		return "by the numbers that nodes were given"
	}
	return "by the nodes' names, for not all were given numbers"
}

// placed reports whether ranks follow the places of nodes: somebody knows one, and none was numbered for good.
func placed(nodes []job.Node) bool {
	return slices.ContainsFunc(nodes, func(n job.Node) bool { return n.Place != job.Place{} }) &&
		!slices.ContainsFunc(nodes, func(n job.Node) bool { return n.Fixed })
}

// near puts sorted nodes together that are alike in a part of their places and in all wider ones. The first of each group leads it, so that
// node 0 stays first, and numbers that follow the network already are left as they are. Groups without numbers are in the order of their names.
func near(sorted []job.Node, part int) []job.Node {
	if part == len(job.PlaceParts) || len(sorted) < 2 {
		return sorted
	}
	groups := map[string][]job.Node{}
	for _, n := range sorted {
		name := n.Place.Path()[part]
		groups[name] = append(groups[name], n)
	}
	names := slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
		return cmp.Or(byNumber(groups[a][0], groups[b][0]), known(a, b))
	})
	all := make([]job.Node, 0, len(sorted))
	for _, name := range names {
		all = append(all, near(groups[name], part+1)...)
	}
	return all
}

// inOrder is a total order of nodes: by index, then name.
func inOrder(a, b job.Node) int {
	return cmp.Or(byNumber(a, b), natural(a.Name, b.Name), strings.Compare(a.Incarnation, b.Incarnation))
}

// byNumber compares indices: as an unsigned number, that of a node without one is the highest.
func byNumber(a, b job.Node) int { return cmp.Compare(uint(a.Index), uint(b.Index)) }

// known compares names of parts; what is not known comes last.
func known(a, b string) int {
	if (a == "") != (b == "") {
		return strings.Compare(b, a)
	}
	return natural(a, b)
}

// seat puts nodes with an index on the seat of that number and fills the others' seats in order.
// When all have an index they already stand in order, gaps or not.
func seat(sorted []job.Node) []job.Node {
	if !slices.ContainsFunc(sorted, func(n job.Node) bool { return n.Index < 0 }) {
		return sorted
	}
	seats := make([]job.Node, len(sorted))
	taken := make([]bool, len(sorted))
	var standing []job.Node
	for _, n := range sorted {
		if n.Index < 0 || n.Index >= len(seats) || taken[n.Index] {
			standing = append(standing, n)
			continue
		}
		seats[n.Index], taken[n.Index] = n, true
	}
	return fill(seats, taken, standing)
}

// keep seats the nodes of the previous world in their old order, and newcomers where somebody was lost.
// A node that comes back as another process, with its index or its name, gets its own seat again.
func keep(sorted []job.Node, previous []job.Member) []job.Node {
	seats := make([]job.Node, len(previous))
	taken := make([]bool, len(previous))
	for _, mark := range []func(job.Node) string{byLife, byIndex, byName} {
		free := vacant(previous, taken, mark)
		sorted = slices.DeleteFunc(sorted, func(n job.Node) bool {
			own := free[mark(n)]
			if len(own) == 0 {
				return false
			}
			seats[own[0]], taken[own[0]] = n, true
			free[mark(n)] = own[1:]
			return true
		})
	}
	return fill(seats, taken, sorted)
}

// By these marks a node is found to be one of before; "": not by this one.
func byLife(n job.Node) string { return n.Incarnation }

func byIndex(n job.Node) string {
	if n.Index < 0 {
		return ""
	}
	return strconv.Itoa(n.Index)
}

func byName(n job.Node) string {
	if n.Index >= 0 {
		return ""
	}
	return n.Name
}

// vacant is the seats that are free, in order, by the mark of who had them.
func vacant(previous []job.Member, taken []bool, mark func(job.Node) string) map[string][]int {
	free := map[string][]int{}
	for i, p := range previous {
		if m := mark(p.Node); m != "" && !taken[i] {
			free[m] = append(free[m], i)
		}
	}
	return free
}

// fill gives the free seats to those who stand, in order; who finds none sits behind, and empty seats are removed.
func fill(seats []job.Node, taken []bool, standing []job.Node) []job.Node {
	all := make([]job.Node, 0, len(seats)+len(standing))
	for i, n := range seats {
		if !taken[i] && len(standing) > 0 {
			n, standing = standing[0], standing[1:]
			all = append(all, n)
		} else if taken[i] {
			all = append(all, n)
		}
	}
	return append(all, standing...)
}

// natural compares names as people count: node2 before node10.
func natural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		p, q := run(x), run(y)
		if c := compareRuns(p, q); c != 0 {
			return c
		}
		x, y = x[len(p):], y[len(q):]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

// run returns the longest beginning of s that is all digits, or has none.
func run(s string) string {
	digits := isDigit(s[0])
	for i := range len(s) {
		if isDigit(s[i]) != digits {
			return s[:i]
		}
	}
	return s
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func compareRuns(p, q string) int {
	if isDigit(p[0]) && isDigit(q[0]) {
		p, q = strings.TrimLeft(p, "0"), strings.TrimLeft(q, "0")
		return cmp.Or(cmp.Compare(len(p), len(q)), strings.Compare(p, q))
	}
	return strings.Compare(p, q)
}
