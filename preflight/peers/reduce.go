package peers

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// An all-reduce of all nodes is as slow as its slowest, and fails with its first. So it is made by pairs, twice: in the first round by neighbours; in the
// second, whoever was slow or failed is with somebody who was neither. Who is so with both is the one. Where somebody is slow both rounds are made again, for on a busy
// machine that may be chance.

// A Seat is a node's place in a group's all-reduce.
type Seat struct {
	Prefix     string // of the group's keys in the store
	Rank, Size int    // among the group's nodes
}

// A Reducer makes this node's part of an all-reduce. It calls ready when it could begin, and begins when that returns.
type Reducer func(ctx context.Context, at Seat, ready func() error) Outcome

// An Outcome is what came of a node's part.
type Outcome struct {
	Mbps  float64 `json:"mbps,omitempty"` // for each of the node's devices: what each has to send, by the time that it took
	Error string  `json:"error,omitempty"`
	Own   bool    `json:"own,omitempty"` // the error is this node's, whoever else took part
}

// A Reduced is what came of a group's all-reduce.
type Reduced struct {
	Nodes    []int     `json:"nodes"`
	Outcomes []Outcome `json:"outcomes"` // of these
}

// Failed is the first error of a group's; one that is a node's own before those of who waited for it.
func (r Reduced) Failed() string {
	var first string
	for _, o := range r.Outcomes {
		if o.Own {
			return o.Error
		}
		if first == "" {
			first = o.Error
		}
	}
	return first
}

// Speed is the group's; 0: it failed.
func (r Reduced) Speed() float64 {
	if r.Failed() != "" {
		return 0
	}
	return r.Outcomes[0].Mbps
}

// Reduce takes one node's part in all rounds: every node of the job calls it at once. Rank 0 learns what came of them, and of each when it is over.
func Reduce(ctx context.Context, s Store, rank, size int, run Reducer, seen func(round []Reduced)) (rounds [][]Reduced, err error) {
	groups := neighbours(size)
	for n := 0; len(groups) > 0; n++ {
		var at Seat
		for i, g := range groups {
			if j := slices.Index(g, rank); j >= 0 {
				at = Seat{fmt.Sprintf("muster/peers/reduce/%d/%d/", n, i), j, len(g)}
			}
		}
		waited := false
		ready := func() error {
			waited = true
			return together(ctx, s, -2-2*n, size)
		}
		var out Outcome
		if at.Size > 0 {
			out = run(ctx, at, ready)
		}
		if !waited { // it never began, and others wait
			if err := ready(); err != nil {
				return nil, err
			}
		}
		if err := put(ctx, s, fmt.Sprint("reduced", n), rank, out); err != nil {
			return nil, err
		}
		if rank == 0 {
			round, err := collected(ctx, s, n, groups)
			if err != nil {
				return nil, err
			}
			rounds = append(rounds, round)
			seen(round)
			next := [][]int{}
			switch {
			case n == 0:
				next = regrouped(round)
			case n == 1 && len(slowReduced(rounds)) > 0, n == 2:
				for _, r := range rounds[n-1] {
					if r.Failed() == "" { // which takes its time, and is no chance
						next = append(next, r.Nodes)
					}
				}
			}
			if err := put(ctx, s, "groups", n, next); err != nil {
				return nil, err
			}
		}
		if groups, err = get[[][]int](ctx, s, "groups", n); err != nil {
			return nil, err
		}
	}
	return rounds, together(ctx, s, -3, size)
}

func collected(ctx context.Context, s Store, n int, groups [][]int) (round []Reduced, err error) {
	for _, g := range groups {
		r := Reduced{Nodes: g}
		for _, rank := range g {
			o, err := get[Outcome](ctx, s, fmt.Sprint("reduced", n), rank)
			if err != nil {
				return nil, err
			}
			r.Outcomes = append(r.Outcomes, o)
		}
		round = append(round, r)
	}
	return round, nil
}

// neighbours are the groups of the first round: pairs; an odd node makes its neighbours three. Two and three nodes are one group.
func neighbours(n int) (groups [][]int) {
	for i := 0; i+1 < n; i += 2 {
		groups = append(groups, []int{i, i + 1})
	}
	if last := len(groups) - 1; n%2 == 1 && last >= 0 {
		groups[last] = append(groups[last], n-1)
	}
	return groups
}

// bad reports whether a group failed, or was slow beside the others. Of two groups the faster one is the usual.
func bad(r Reduced, round []Reduced) bool {
	var speeds []float64
	for _, o := range round {
		if v := o.Speed(); v > 0 {
			speeds = append(speeds, v)
		}
	}
	slices.Sort(speeds)
	return r.Speed() == 0 || r.Speed() < slow*speeds[len(speeds)/2]
}

// suspected are the nodes of the bad groups of a round, and the others.
func suspected(round []Reduced) (suspects, others []int) {
	for _, r := range round {
		if bad(r, round) {
			suspects = append(suspects, r.Nodes...)
		} else {
			others = append(others, r.Nodes...)
		}
	}
	return suspects, others
}

// regrouped are the groups of the second round: a suspect with one who is none each, as far as there are; where nobody is suspect, each with another
// neighbour. None: there is nothing more to learn of two or three nodes, or where all are suspect.
func regrouped(round []Reduced) [][]int {
	suspects, others := suspected(round)
	if len(round) < 2 || len(others) == 0 {
		return [][]int{}
	}
	order := slices.Concat(others[1:], others[:1])
	if len(suspects) > 0 {
		order = nil
		for i := range max(len(suspects), len(others)) {
			if i < len(suspects) {
				order = append(order, suspects[i])
			}
			if i < len(others) {
				order = append(order, others[i])
			}
		}
	}
	groups := neighbours(len(order))
	for _, g := range groups {
		for i := range g {
			g[i] = order[g[i]]
		}
	}
	return groups
}

// Untold is what the figures of so few nodes cannot tell; "": they can.
func Untold(nodes int, rounds [][]Reduced) string {
	switch {
	case nodes == 2:
		return "of two nodes nobody knows which one is slow, or what is usual: hold the figures against what the network should carry"
	case nodes == 3 && len(rounds) > 0:
		return "three nodes make one all-reduce, which does not tell which of them is slow in it: hold its figure against what the network should carry"
	}
	return ""
}

// JudgeReduced names the nodes that are slow or fail in all-reduces with whomever, a sentence each, and groups of which nobody knows who it is. Doubts are what
// was so at first, and was not so again.
func JudgeReduced(nodes []Node, rounds [][]Reduced) (faults, doubts []string) {
	j := judgedReduced(nodes, settled(rounds))
	if len(rounds) > 2 {
		doubts = withdrawn(judgedReduced(nodes, rounds[:2]).claims, j.claims)
	}
	return j.faults, doubts
}

// slowReduced are the claims that rest on the speed of the first two rounds.
func slowReduced(rounds [][]Reduced) []claim {
	most := 0
	for _, r := range rounds[0] {
		most = max(most, slices.Max(r.Nodes))
	}
	return judgedReduced(make([]Node, most+1), rounds).claims
}

// settled are two rounds of four: who seemed slow has the better of both speeds, and others the worse, for perhaps all had become slower meanwhile.
func settled(rounds [][]Reduced) [][]Reduced {
	if len(rounds) < 4 {
		return rounds
	}
	all := slices.Concat(rounds[:2]...)
	both := [][]Reduced{slices.Clone(rounds[0]), slices.Clone(rounds[1])}
	for n, among := range [][]Reduced{rounds[0], all} {
		for i, r := range both[n] {
			k := slices.IndexFunc(rounds[2+n], func(o Reduced) bool { return slices.Equal(o.Nodes, r.Nodes) })
			if k < 0 { // it failed
				continue
			}
			again := rounds[2+n][k]
			switch faster := again.Speed() > r.Speed(); {
			case again.Failed() != "" || faster == bad(r, among):
				both[n][i] = again
			}
		}
	}
	return both
}

func judgedReduced(nodes []Node, rounds [][]Reduced) *judgement {
	j := &judgement{nodes: nodes}
	if len(rounds) == 0 {
		return j
	}
	suspects, others := suspected(rounds[0])
	if len(rounds) == 1 {
		for _, r := range rounds[0] {
			if bad(r, rounds[0]) {
				j.say("%s", j.reduced(r, rounds[0])+j.alone(rounds[0]))
			}
		}
		return j
	}
	all := slices.Concat(rounds...) // the second one alone may have none that is well
	for _, r := range rounds[1] {
		if !bad(r, all) {
			continue
		}
		guilty := slices.DeleteFunc(slices.Clone(r.Nodes), func(n int) bool { return !slices.Contains(suspects, n) })
		innocent := slices.ContainsFunc(r.Nodes, func(n int) bool { return slices.Contains(others, n) })
		switch {
		case len(guilty) == 1 && innocent && r.Failed() != "":
			j.say("%s fails in an all-reduce with whomever: %s", j.name(guilty[0]), r.Failed())
		case len(guilty) == 1 && innocent:
			j.claim(fmt.Sprint("slow", guilty), nil, "%s makes all-reduces slow with whomever: %s; others have %s", j.name(guilty[0]), bits(r.Speed()), bits(usual(all)))
		case r.Failed() != "":
			j.say("%s", j.reduced(r, all))
		default:
			j.claim(fmt.Sprint("slow", r.Nodes), nil, "%s", j.reduced(r, all))
		}
	}
	return j
}

// alone is who it is where all nodes are one group, or that nobody knows; "": they are several groups.
func (j *judgement) alone(round []Reduced) string {
	if len(round) > 1 {
		return ""
	}
	var own []int
	for i, o := range round[0].Outcomes {
		if o.Own {
			own = append(own, round[0].Nodes[i])
		}
	}
	if len(own) == 1 {
		return fmt.Sprintf("; so says %s of itself", j.name(own[0]))
	}
	return "; which of them it is so few nodes cannot tell"
}

// reduced says what became of a group of which nobody knows who is to blame.
func (j *judgement) reduced(r Reduced, round []Reduced) string {
	var names []string
	for _, n := range r.Nodes {
		names = append(names, j.name(n))
	}
	who := strings.Join(names, " and ")
	if why := r.Failed(); why != "" {
		return fmt.Sprintf("the all-reduce of %s fails: %s", who, why)
	}
	return fmt.Sprintf("the all-reduce of %s has %s; others have %s", who, bits(r.Speed()), bits(usual(round)))
}

// usual is the speed of a round's groups that were not bad.
func usual(round []Reduced) float64 {
	var speeds []float64
	for _, r := range round {
		if !bad(r, round) {
			speeds = append(speeds, r.Speed())
		}
	}
	return median(speeds)
}
