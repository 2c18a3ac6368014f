package rendezvous

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// assign gives every node its group rank, the position in the result, and its first global rank.
//
// Nodes that stand near each other in the network get neighbouring ranks: by place, then the platform's index,
// then name. Where nobody knows places, an index that was given is the group rank. Nodes of the previous
// world keep their order, and new nodes take the places that were lost. The order of nodes does not matter.
func assign(nodes []job.Node, previous *job.World) []job.Member {
	sorted := slices.SortedFunc(slices.Values(nodes), near)
	if !slices.ContainsFunc(nodes, hasPlace) {
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

func hasPlace(n job.Node) bool { return n.Place != job.Place{} }

// near is a total order of nodes; what is not known comes last.
func near(a, b job.Node) int {
	for i, part := range a.Place.Path() {
		if c := known(part, b.Place.Path()[i]); c != 0 {
			return c
		}
	}
	// As an unsigned number, the index -1 of a node without one is the highest.
	if c := cmp.Compare(uint(a.Index), uint(b.Index)); c != 0 {
		return c
	}
	return cmp.Or(natural(a.Name, b.Name), strings.Compare(a.Incarnation, b.Incarnation))
}

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
