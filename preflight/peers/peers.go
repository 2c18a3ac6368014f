// Package peers measures the way between the nodes of a job, each with others in turns, by TCP and by all-reduces of PyTorch, and finds the node or the link that
// is slow or broken.
package peers

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/preflight"
)

// A Node is what one of them says of itself.
type Node struct {
	Rank      int               `json:"rank"`
	Name      string            `json:"name"`
	Addresses []string          `json:"addresses"` // with ports, where it listens
	Facts     map[string]string `json:"facts"`     // what should be equal on all nodes, by name
	Faults    []string          `json:"faults"`    // what it found of itself
	Torch     bool              `json:"torch"`     // it has PyTorch
	GPUs      int               `json:"gpus"`      // that PyTorch's processes may use, a whole one each
	Again     bool              `json:"again"`     // it measures again what seems slow, which older ones do not
}

func (n Node) String() string { return fmt.Sprintf("%s (node %d)", n.Name, n.Rank) }

// A Pair is what two nodes measured between them.
type Pair struct {
	A       int           `json:"a"` // the lower rank
	B       int           `json:"b"`
	Latency time.Duration `json:"latency_ns"` // half of a round trip, the median
	Forth   float64       `json:"forth_mbps"` // from A to B, in Mb/s
	Back    float64       `json:"back_mbps"`
	Skew    time.Duration `json:"skew_ns"` // of B's clock, ahead of A's, as precise as Latency
	Error   string        `json:"error,omitempty"`
	Times   int           `json:"times,omitempty"` // how often it was measured, if that was more than once: the best counts
}

// A Measured is what came of all pairs.
type Measured struct {
	Nodes     []Node
	Pairs     []Pair
	Meanwhile float64  // Mb/s that others carried, in the median, while some were measured again; 0: none were
	Doubts    []string // what was found at first, and was not so when it was measured again
}

// Rounds pairs n nodes so that none is in two pairs of a round and, with as many rounds as there can be, each meets each other:
// the circle method of tournaments. There are no more than most rounds.
func Rounds(n, most int) (rounds [][][2]int) {
	seats := n + n%2 // an odd one out pauses
	for r := range min(seats-1, most) {
		var round [][2]int
		for i := range seats / 2 {
			a, b := seat(i, r, seats), seat(seats-1-i, r, seats)
			if a, b = min(a, b), max(a, b); b < n {
				round = append(round, [2]int{a, b})
			}
		}
		rounds = append(rounds, round)
	}
	return rounds
}

// seat is who sits at a place in a round: the first stays, the others move on by one.
func seat(place, round, seats int) int {
	if place == 0 {
		return 0
	}
	return 1 + (place-1+round)%(seats-1)
}

// These are how far a node or a pair may be from what is usual.
const (
	slow    = 0.5                    // of the usual bandwidth
	late    = 5                      // times the usual latency,
	lateMin = 200 * time.Microsecond // and no less than that more
	lame    = 0.25                   // of the other direction's bandwidth, of which half may be chance
)

// What seems slow is measured so many times, in so many turns of so many rounds each, and of a node that many of its pairs, the fastest.
const (
	mostTimes   = 3
	mostTurns   = 6 // what is left of a node that is not slow may still seem to be a slow way
	roundsAgain = 4
	mostAgain   = 2
)

// again are the pairs to be measured once more, in rounds: those on which claims rest, and beside them others, which tell whether all has become slower.
func (m Measured) again() (rounds [][][2]int) {
	j := judged(m)
	var busy []map[int]bool // the nodes of each round
	seat := func(r int, p Pair) bool {
		if busy[r][p.A] || busy[r][p.B] {
			return false
		}
		busy[r][p.A], busy[r][p.B] = true, true
		rounds[r] = append(rounds[r], [2]int{p.A, p.B})
		return true
	}
	doubtful := map[[2]int]bool{}
	for _, c := range j.claims {
		for _, p := range c.on {
			if doubtful[[2]int{p.A, p.B}] {
				continue
			}
			doubtful[[2]int{p.A, p.B}] = true
			for r := range roundsAgain {
				if p.Times >= mostTimes {
					break
				}
				if r == len(rounds) {
					rounds, busy = append(rounds, nil), append(busy, map[int]bool{})
				}
				if seat(r, p) {
					break
				}
			}
		}
	}
	for r := range rounds {
		for _, p := range m.Pairs {
			if p.Error == "" && !doubtful[[2]int{p.A, p.B}] && !j.bad[p.A] && !j.bad[p.B] {
				seat(r, p)
			}
		}
	}
	return rounds
}

// better takes what is better of a second measurement. One that failed says nothing: the first one did not.
func (p *Pair) better(again Pair) {
	p.Times = max(p.Times, 1) + 1
	if again.Error != "" {
		return
	}
	p.Forth, p.Back = max(p.Forth, again.Forth), max(p.Back, again.Back)
	if again.Latency < p.Latency {
		p.Latency, p.Skew = again.Latency, again.Skew
	}
}

// Judge names the nodes and pairs that are slow or broken, a sentence each, and what differs between nodes, which may be meant.
func Judge(m Measured) (faults, differences []string) {
	own := judgement{}
	for _, n := range m.Nodes {
		for _, f := range n.Faults {
			own.say("%v: %s", n, f)
		}
	}
	j := judged(m)
	j.clocks()
	faults, j.faults = append(own.faults, j.faults...), nil
	j.differ()
	return faults, j.faults
}

// judged is what the pairs tell of nodes and ways.
func judged(m Measured) *judgement {
	j := &judgement{nodes: m.Nodes, pairs: m.Pairs, meanwhile: m.Meanwhile, bad: map[int]bool{}}
	j.unreached()
	j.slowNodes("sends", func(p Pair, rank int) float64 { return pick(p.A == rank, p.Forth, p.Back) })
	j.slowNodes("receives", func(p Pair, rank int) float64 { return pick(p.A == rank, p.Back, p.Forth) })
	j.slowPairs()
	j.latePairs()
	return j
}

type judgement struct {
	nodes     []Node
	pairs     []Pair
	meanwhile float64
	bad       map[int]bool // nodes that were named: what their pairs measure says nothing of others
	faults    []string
	claims    []claim // of these, those that rest on how fast something was once
}

// A claim is a fault that chance may have made.
type claim struct {
	who  string // and what of it
	says string
	on   []Pair // what it rests on
}

// claim says what may be chance.
func (j *judgement) claim(who string, on []Pair, format string, args ...any) {
	j.say(format, args...)
	j.claims = append(j.claims, claim{who, j.faults[len(j.faults)-1], on})
}

// withdrawn are what was claimed and is claimed no more, as doubts.
func withdrawn(before, after []claim) (doubts []string) {
	for _, c := range before {
		if !slices.ContainsFunc(after, func(a claim) bool { return a.who == c.who }) {
			doubts = append(doubts, "nobody is sure: at first "+c.says+"; and when it was measured again that was not so, as on busy machines")
		}
	}
	return doubts
}

// likely is what is usual: no more than what others carried while those who seem slow were measured again.
func (j *judgement) likely(usual float64) float64 {
	if j.meanwhile > 0 {
		return min(usual, j.meanwhile)
	}
	return usual
}

func pick(first bool, a, b float64) float64 {
	if first {
		return a
	}
	return b
}

func (j *judgement) say(format string, args ...any) {
	j.faults = append(j.faults, fmt.Sprintf(format, args...))
}

func (j *judgement) name(rank int) string { return j.nodes[rank].String() }

// of are the pairs with a node in them that measured something.
func (j *judgement) of(rank int) (pairs []Pair) {
	for _, p := range j.pairs {
		if (p.A == rank || p.B == rank) && p.Error == "" {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// unreached names nodes that nobody reaches, then pairs of which the nodes reach others.
func (j *judgement) unreached() {
	for _, n := range j.nodes {
		failed := slices.DeleteFunc(slices.Clone(j.pairs), func(p Pair) bool { return p.A != n.Rank && p.B != n.Rank || p.Error == "" })
		if len(failed) > 0 && len(j.of(n.Rank)) == 0 && len(j.nodes) > 2 {
			j.bad[n.Rank] = true
			j.say("%v reaches none of the %s it was to: %s", n, count(len(failed), "node"), failed[0].Error)
		}
	}
	for _, p := range j.pairs {
		if p.Error != "" && !j.bad[p.A] && !j.bad[p.B] {
			j.say("%s and %s do not reach each other: %s", j.name(p.A), j.name(p.B), p.Error)
		}
	}
}

// slowNodes names nodes that are slow with all others: at their best they have less than half of what is usual.
func (j *judgement) slowNodes(does string, speed func(p Pair, rank int) float64) {
	best := make([]float64, len(j.nodes))
	for _, n := range j.nodes {
		for _, p := range j.of(n.Rank) {
			best[n.Rank] = max(best[n.Rank], speed(p, n.Rank))
		}
	}
	usual := j.likely(median(slices.DeleteFunc(slices.Clone(best), func(b float64) bool { return b == 0 })))
	for rank, b := range best {
		if b > 0 && b < slow*usual && len(j.nodes) > 2 {
			j.bad[rank] = true
			on := j.of(rank)
			slices.SortStableFunc(on, func(p, q Pair) int { return cmp.Compare(speed(q, rank), speed(p, rank)) })
			j.claim(fmt.Sprint(does, rank), on[:min(len(on), mostAgain)], "%s %s at %s, to or from whomever; others at %s", j.name(rank), does, bits(b), bits(usual))
		}
	}
}

// slowPairs names pairs that are slow though each of them is not with others. Of two nodes nobody knows what is usual, but for that it is the same in both directions.
func (j *judgement) slowPairs() {
	if len(j.nodes) < 3 {
		j.lamePairs()
		return
	}
	var all []float64
	for _, p := range j.pairs {
		if p.Error == "" {
			all = append(all, p.Forth, p.Back)
		}
	}
	usual := j.likely(median(all))
	for _, p := range j.pairs {
		if p.Error == "" && !j.bad[p.A] && !j.bad[p.B] && min(p.Forth, p.Back) < slow*usual {
			j.claim(fmt.Sprint("slow", p.A, p.B), []Pair{p}, "between %s and %s go %s and back %s; %s are usual", j.name(p.A), j.name(p.B), bits(p.Forth), bits(p.Back), bits(usual))
		}
	}
}

// lamePairs names pairs that are slow in one direction.
func (j *judgement) lamePairs() {
	for _, p := range j.pairs {
		from, to, speed, other := p.A, p.B, p.Forth, p.Back
		if p.Back < p.Forth {
			from, to, speed, other = p.B, p.A, p.Back, p.Forth
		}
		if p.Error == "" && speed < lame*other {
			j.claim(fmt.Sprint("lame", p.A, p.B), []Pair{p}, "from %s to %s go %s, the other way %s", j.name(from), j.name(to), bits(speed), bits(other))
		}
	}
}

// latePairs names pairs with a way that is much longer than the usual one, and that nothing was said of yet.
func (j *judgement) latePairs() {
	var all, speeds []float64
	for _, p := range j.pairs {
		if p.Error == "" {
			all, speeds = append(all, float64(p.Latency)), append(speeds, p.Forth, p.Back)
		}
	}
	carried := j.likely(median(speeds))
	usual := time.Duration(median(all))
	for _, p := range j.pairs {
		queued := j.bad[p.A] || j.bad[p.B] || len(j.nodes) > 2 && min(p.Forth, p.Back) < slow*carried // which takes time, too
		if p.Error == "" && !queued && p.Latency > late*usual && p.Latency > usual+lateMin {
			j.claim(fmt.Sprint("late", p.A, p.B), []Pair{p}, "from %s to %s it takes %v; %v are usual", j.name(p.A), j.name(p.B), p.Latency.Round(time.Microsecond), usual.Round(time.Microsecond))
		}
	}
}

// clocks names nodes whose clock is not as most are, or, where no time is that of most, whose are ahead of whose: of the most nodes between which there is a way.
func (j *judgement) clocks() {
	var most map[int]preflight.Clock
	seen := map[int]bool{}
	for _, n := range j.nodes {
		if !seen[n.Rank] {
			some := j.ahead(n.Rank)
			for rank := range some {
				seen[rank] = true
			}
			if len(some) > len(most) {
				most = some
			}
		}
	}
	var nodes []job.Node
	var clocks []preflight.Clock
	for _, n := range j.nodes {
		if c, ok := most[n.Rank]; ok {
			nodes, clocks = append(nodes, job.Node{Name: n.Name, Index: n.Rank}), append(clocks, c)
		}
	}
	for _, f := range preflight.Apart(nodes, clocks) {
		j.say("%s", f.Found)
	}
}

// ahead are the clocks of all whom pairs connect with a node, as they are to its own.
func (j *judgement) ahead(rank int) map[int]preflight.Clock {
	all := map[int]preflight.Clock{rank: {}}
	for todo := []int{rank}; len(todo) > 0; todo = todo[1:] {
		of := all[todo[0]]
		for _, p := range j.of(todo[0]) {
			other, skew := p.B, p.Skew
			if p.B == todo[0] {
				other, skew = p.A, -p.Skew
			}
			if _, ok := all[other]; !ok {
				all[other] = preflight.Clock{Ahead: of.Ahead + skew, Within: of.Within + p.Latency}
				todo = append(todo, other)
			}
		}
	}
	return all
}

// differ names what is not as on most nodes.
func (j *judgement) differ() {
	names := map[string]bool{}
	for _, n := range j.nodes {
		for name := range n.Facts {
			names[name] = true
		}
	}
	for _, name := range sorted(names) {
		counts := map[string]int{}
		for _, n := range j.nodes {
			counts[n.Facts[name]]++
		}
		usual := slices.MaxFunc(sorted(counts), func(a, b string) int { return cmp.Compare(counts[a], counts[b]) })
		for _, n := range j.nodes {
			if v := n.Facts[name]; v != usual {
				j.say("%v: %s is %s, on %s %s", n, name, or(v), count(counts[usual], "node"), or(usual))
			}
		}
	}
}

func or(text string) string {
	if text == "" {
		return "not there"
	}
	return text
}

func sorted[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// bits is a speed for people.
func bits(mbps float64) string {
	if mbps >= 1000 {
		return fmt.Sprintf("%.3g Gb/s", mbps/1000)
	}
	return fmt.Sprintf("%.3g Mb/s", mbps)
}
