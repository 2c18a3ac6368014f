package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-run/muster/job"
)

// An equal is something that all nodes of a job should have alike.
type equal struct {
	name   string
	result Result // where they have not
	means  string
	hint   string
	shown  func(value string) string // nil: as it is
}

const image = "use one image, and machines that were set up alike"

// FactNCCL is the name of the version of NCCL among facts: who tells it knows which one workers will load.
const FactNCCL = "nccl"

var equals = []equal{
	{FactNCCL, Fail, "NCCL ends with \"Mismatched NCCL version detected\"", "use one image on all nodes", nil},
	{"shm", Warn, "where there is less of it workers fail that run well elsewhere", "give all containers the same /dev/shm", func(v string) string {
		n, _ := strconv.ParseInt(v, 10, 64)
		return size(n)
	}},
	{"driver", Warn, "what works on one node may fail or be slower on another", image, nil},
	{"gpu", Warn, "all wait for the slowest", "use machines with the same GPUs", nil},
}

// Facts are what a node tells the others of its machine, to be held against theirs.
func Facts(h Host) (all []job.Fact) {
	if h.Space != nil {
		if s, err := h.Space("/dev/shm"); err == nil {
			all = append(all, job.Fact{Name: "shm", Value: strconv.FormatInt(s.Size, 10)})
		}
	}
	if d := h.Machine.NVIDIA.Driver; d != "" && len(nvidia(h)) > 0 {
		all = append(all, job.Fact{Name: "driver", Value: d})
	}
	if slots := h.Machine.Slots(); len(slots) > 0 && slots[0].Model != "" {
		all = append(all, job.Fact{Name: "gpu", Value: slots[0].Model})
	}
	return all
}

// Unlike says what the nodes of a world do not have alike, and which of them have it otherwise than most. A node that does not tell is left out.
func Unlike(nodes []job.Node) (all []Finding) {
	for _, e := range equals {
		values := map[string][]job.Node{}
		var order []string
		for _, n := range nodes {
			i := slices.IndexFunc(n.Facts, func(f job.Fact) bool { return f.Name == e.name })
			if i < 0 || n.Facts[i].Value == "" {
				continue
			}
			v := n.Facts[i].Value
			if values[v] == nil {
				order = append(order, v)
			}
			values[v] = append(values[v], n)
		}
		if len(order) < 2 {
			continue
		}
		slices.SortStableFunc(order, func(a, b string) int { return len(values[b]) - len(values[a]) })
		var odd []string
		var which []job.Node
		for _, v := range order[1:] {
			odd, which = append(odd, fmt.Sprintf("%s on %s", e.value(v), few(values[v]))), append(which, values[v]...)
		}
		all = append(all, Finding{Check: e.name, Result: e.result, Means: e.means, Hint: e.hint, Odd: which,
			Found: fmt.Sprintf("%s on %s, but %s", e.value(order[0]), plural(len(values[order[0]]), "node"), strings.Join(odd, ", "))})
	}
	return all
}

// A Clock is how far a node's is ahead of the leader's, give or take Within.
type Clock struct{ Ahead, Within time.Duration }

// skewed is how far apart clocks may be: those that NTP sets are within milliseconds.
const skewed = 2 * time.Second

// Apart says which nodes' clocks are not as most are, or, of two nodes, not as the leader's is; where no time is that of most, whose are ahead of whose. Clocks are those of nodes, in their order; what is
// within the time that the asking took is no difference.
func Apart(nodes []job.Node, clocks []Clock) []Finding {
	order := slices.Clone(clocks)
	slices.SortStableFunc(order, func(a, b Clock) int { return cmp.Compare(a.Ahead, b.Ahead) })
	usual, whose := order[(len(order)-1)/2], "most"
	if len(nodes) == 2 {
		usual, whose = clocks[0], nodes[0].String()
	}
	if len(nodes) > 2 && 2*len(near(clocks, usual)) <= len(nodes) {
		return []Finding{apart(spread(nodes, clocks), nodes)}
	}
	var odd []string
	var which []job.Node
	for i, n := range nodes {
		off := clocks[i].Ahead - usual.Ahead
		if off.Abs() <= skewed+clocks[i].Within+usual.Within {
			continue
		}
		where := "ahead of"
		if off < 0 {
			where = "behind"
		}
		odd, which = append(odd, fmt.Sprintf("%v is %v %s %s", n, off.Abs().Round(100*time.Millisecond), where, whose)), append(which, n)
	}
	if odd == nil {
		return nil
	}
	if more := len(odd) - fewNodes; more > 0 {
		odd = append(odd[:fewNodes], fmt.Sprintf("so are %d more", more))
	}
	return []Finding{apart("the clock of "+strings.Join(odd, ", that of "), which)}
}

func apart(what string, odd []job.Node) Finding {
	return Finding{Check: "clock", Result: Warn, Found: what, Odd: odd,
		Means: "times in logs do not fit together, stragglers are not found, and certificates may not count", Hint: "have them set by NTP (chronyc makestep)"}
}

// near are the indices of those clocks that may be the same as one.
func near(clocks []Clock, c Clock) (all []int) {
	for i, o := range clocks {
		if (o.Ahead - c.Ahead).Abs() <= skewed+o.Within+c.Within {
			all = append(all, i)
		}
	}
	return all
}

// spread says of clocks in groups whose are ahead of whose.
func spread(nodes []job.Node, clocks []Clock) string {
	order := make([]int, len(nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(clocks[a].Ahead, clocks[b].Ahead) })
	last, first := clocks[order[0]], clocks[order[len(order)-1]]
	var groups []string
	for len(order) > 0 {
		base, n := clocks[order[0]], 1
		for n < len(order) && clocks[order[n]].Ahead-base.Ahead <= skewed+clocks[order[n]].Within+base.Within {
			n++
		}
		var some []job.Node
		for _, i := range slices.Sorted(slices.Values(order[:n])) {
			some = append(some, nodes[i])
		}
		groups, order = append(groups, few(some)), order[n:]
	}
	slices.Reverse(groups)
	if len(groups) > fewNodes {
		groups = append(groups[:fewNodes-1], "others", groups[len(groups)-1])
	}
	return fmt.Sprintf("clocks differ by %v: %s", (first.Ahead - last.Ahead).Round(100*time.Millisecond), strings.Join(groups, " ahead of "))
}

func (e equal) value(v string) string {
	if e.shown != nil {
		return e.shown(v)
	}
	return v
}

const fewNodes = 8 // that are named

func few(nodes []job.Node) string {
	var names []string
	for _, n := range nodes[:min(len(nodes), fewNodes)] {
		names = append(names, n.String())
	}
	if more := len(nodes) - fewNodes; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, " and ")
}
