package rendezvous

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

var (
	seeds = flag.Int("meetings", 60, "how many random meetings to play")
	first = flag.Uint64("meeting", 0, "the seed of the first")
)

// A crowd is the nodes of one job that come, die, go on and leave at random.
type crowd struct {
	*scene
	dice   *rand.Rand
	terms  job.Terms
	twins  bool // nodes have indices, and some the same
	stalls bool // some that wait stand still
	lives  int
	alive  map[*arrival]job.Spec
	lived  map[string]job.World
	left   map[string]bool  // lives that said that they do not wait any more
	kept   map[int][]string // by generation, lives of those who went on from its world while another one was given up
	log    []string
}

// Whatever happens, there is one world per generation with each node once, which goes by the rules of the one before, nobody loses the place to a node that was given up, and
// when peace comes those who are there make a world.
func TestRandomMeetings(t *testing.T) {
	for seed := *first; seed < *first+uint64(*seeds) && !t.Failed(); seed++ {
		play(t, func(s *scene) {
			dice := rand.New(rand.NewPCG(seed, 0))
			nodes := 1 + dice.IntN(4)
			c := &crowd{scene: s, dice: dice, alive: map[*arrival]job.Spec{}, lived: map[string]job.World{}, left: map[string]bool{}, kept: map[int][]string{},
				terms: job.Terms{Nodes: nodes, Least: 1 + dice.IntN(nodes), Spares: dice.IntN(3)}, twins: seed%2 > 0, stalls: seed%4 == 2}
			for range 30 {
				c.happens()
				c.check()
			}
			c.peace()
			if t.Failed() {
				t.Logf("seed %d, %+v:", seed, c.terms)
				for _, line := range c.log {
					t.Log(line)
				}
			}
		})
	}
}

// fence is how long a member may have workers that has lost the others.
const fence = 19 * time.Second

// stall is how long a node stands still, at most.
const stall = 25 * time.Second

func (c *crowd) note(format string, args ...any) { c.log = append(c.log, fmt.Sprintf(format, args...)) }

// happens lets one thing happen, and some time pass.
func (c *crowd) happens() {
	switch n := c.dice.IntN(20); {
	case n < 8 && len(c.alive) < c.terms.Nodes+c.terms.Spares+1:
		c.newcomer()
	case n < 10:
		if a := c.any(); a != nil {
			c.note("%s dies", c.alive[a].Self.Incarnation)
			c.end(a, func() { c.dies(a) })
			c.passes(time.Duration(c.dice.Int64N(int64(10 * time.Second))))
		}
	case n < 11:
		if a := c.any(); a != nil && a.in() == nil {
			life := c.alive[a].Self.Incarnation
			c.note("%s leaves", life)
			c.end(a, a.cancel)
			c.left[life] = a.session == nil && c.store.torn.Load() == 0
		}
	case n < 13:
		c.meetAgain()
	case n < 14:
		c.givesUp()
	case n < 16:
		c.store.torn.Store(c.dice.Int64N(5))
	case n < 17:
		c.store.torn.Store(0)
		c.passes(2 * time.Second) // who is just arriving at a world could not know of it, nor it of him
		c.note("the store comes back empty")
		c.store.empty()
		clear(c.kept)                                                                                  // nobody knows any more who was lost
		if c.dice.IntN(2) == 0 && c.terms.Nodes > 1 && len(c.alive) < c.terms.Nodes+c.terms.Spares+1 { // alone it would make a world of one
			c.newcomer()
		}
		c.passes(2 * time.Second)
	case n < 18:
		c.hostBack()
	case n < 20 && c.stalls:
		if a := c.any(); a != nil && a.in() == nil {
			life, d := c.alive[a].Self.Incarnation, time.Duration(c.dice.Int64N(int64(stall)))
			c.note("%s stands still for %v", life, d)
			c.ways[life].until.Store(time.Now().Add(d).UnixNano())
			for g, lives := range c.kept { // the others need not wait for it
				c.kept[g] = slices.DeleteFunc(lives, func(l string) bool { return l == life })
			}
		}
	}
	d := time.Duration(c.dice.Int64N(int64(8 * time.Second)))
	if c.dice.IntN(3) == 0 {
		d /= 1000
	}
	c.passes(d)
	c.mourn()
}

// hostBack kills a member of the newest world that hosts the store, and starts it again at once. The others' workers run on for a while: no world begins
// as long as they do.
func (c *crowd) hostBack() {
	c.store.torn.Store(0)
	c.passes(2 * time.Second) // who is just arriving at a world could not know of it, nor it of him
	members := c.latest()
	if len(members) < 2 || c.twins { // a second agent of an index asks the member whether it lives
		return
	}
	known := map[string]bool{}
	for _, a := range c.living() {
		if a.in() != nil {
			known[a.session.World.Nonce] = true
		}
	}
	host := members[c.dice.IntN(len(members))]
	c.note("%s dies with the store, and comes back", c.alive[host].Self.Incarnation)
	c.end(host, func() { c.dies(host) })
	c.store.empty()
	clear(c.kept)
	c.newcomer()
	c.passes(time.Duration(c.dice.Int64N(int64(15 * time.Second))))
	for _, a := range c.living() {
		if a.in() != nil && !known[a.session.World.Nonce] {
			c.Errorf("generation %d begins while members of another world have workers", a.session.World.Generation)
		}
	}
	c.mourn()
}

func (c *crowd) newcomer() {
	c.lives++
	spec := agent(fmt.Sprint("n", c.lives), c.terms.Nodes)
	spec.Terms = c.terms
	if c.twins {
		spec.Self.Index = c.dice.IntN(c.terms.Nodes + c.terms.Spares)
	}
	c.note("%s (%d) comes", spec.Self.Incarnation, spec.Self.Index)
	dies := c.dice.Int64N(100)
	if dies > 16 {
		dies = 0
	}
	o := lastCall
	o.LastCall, o.Fence, o.Forgets = time.Duration(1+29*c.dice.IntN(2))*time.Second, fence, true
	o.Policy = named(spec.Self.Incarnation)
	a := c.comesFor(dies, spec, o)
	c.alive[a] = spec
	if dies > 0 {
		c.note("%s dies, before it makes %d changes", spec.Self.Incarnation, dies)
		c.end(a, func() { c.dies(a) })
	}
}

// in is the session of a node that is in a world.
func (a *arrival) in() *Session {
	select {
	case <-a.done:
		return a.session
	default:
		return nil
	}
}

// living are all who live, in the same order for each seed.
func (c *crowd) living() []*arrival {
	return slices.SortedFunc(maps.Keys(c.alive), func(a, b *arrival) int {
		return natural(c.alive[a].Self.Name, c.alive[b].Self.Name)
	})
}

// any is one of the living.
func (c *crowd) any() *arrival {
	list := c.living()
	if len(list) == 0 {
		return nil
	}
	return list[c.dice.IntN(len(list))]
}

func (c *crowd) end(a *arrival, how func()) {
	how()
	a.cancel()
	<-a.done
	if a.session != nil {
		a.session.Close()
	}
	delete(c.alive, a)
}

// mourn tells the members of worlds in which somebody died, as their connections to it do; they meet again. Who stood still until the others had gone on finds
// that out, too.
func (c *crowd) mourn() {
	lives := map[string]bool{}
	for a, spec := range c.alive {
		lives[spec.Self.Incarnation] = true
		if a.in() != nil {
			c.lived[spec.Self.Incarnation] = a.session.World
		}
	}
	broken := map[string][]*arrival{}
	for _, a := range c.living() {
		dead := func(m job.Member) bool { return !lives[m.Incarnation] }
		wentOn := func(m job.Member) bool {
			return c.lived[m.Incarnation].Generation > a.session.World.Generation || c.waits(m.Incarnation) && c.lived[m.Incarnation].Nonce == a.session.World.Nonce
		}
		if a.in() != nil && slices.ContainsFunc(a.session.World.Members, wentOn) {
			c.returns(a, false)
			continue
		}
		if a.in() != nil && slices.ContainsFunc(a.session.World.Members, dead) {
			broken[a.session.World.Nonce] = append(broken[a.session.World.Nonce], a)
		}
	}
	for _, nonce := range slices.Sorted(maps.Keys(broken)) {
		c.goOn(broken[nonce])
	}
}

// waits reports whether a life is in no world now.
func (c *crowd) waits(life string) bool {
	for a, spec := range c.alive {
		if spec.Self.Incarnation == life {
			return a.in() == nil
		}
	}
	return false
}

// latest are the living members of the newest world.
func (c *crowd) latest() (members []*arrival) {
	newest := 0
	for _, a := range c.living() {
		if a.in() != nil {
			newest = max(newest, a.session.World.Generation)
		}
	}
	for _, a := range c.living() {
		if a.in() != nil && a.session.World.Generation == newest {
			members = append(members, a)
		}
	}
	return members
}

// meetAgain ends the newest world for all of its members that live, and has them meet again.
func (c *crowd) meetAgain() {
	members := c.latest()
	c.note("%d of the newest world meet again", len(members))
	c.goOn(members)
}

// givesUp has the newest world go on without a member that lives, which finds out and meets the others sooner or later. It may take
// them for lost, and speak first.
func (c *crowd) givesUp() {
	members := c.latest()
	if len(members) < 2 {
		return
	}
	at := c.dice.IntN(len(members))
	out := members[at]
	members = slices.Delete(members, at, at+1)
	c.dice.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	c.note("%s is given up", c.alive[out].Self.Incarnation)
	leads := slices.ContainsFunc(members, func(a *arrival) bool { return a.session.Rank == 0 })
	first := leads && c.dice.IntN(2) == 0
	if first {
		out.session.End(c.Context(), Over{Expect: len(members), Lost: []int{0}})
	}
	for _, a := range members {
		a.session.End(c.Context(), Over{Expect: len(members), Lost: c.lost(members)})
	}
	g := out.session.World.Generation
	alone := first && len(members) == 1 // against word
	if len(members) == len(out.session.World.Members)-1 && len(members) >= c.terms.Fewest() && !alone {
		c.kept[g] = nil
		for _, a := range members {
			c.kept[g] = append(c.kept[g], c.alive[a].Self.Incarnation)
		}
	}
	comes := c.dice.IntN(len(members) + 1)
	for i, a := range append(members, nil) {
		if i == comes {
			c.returns(out, false)
		}
		if a != nil {
			c.returns(a, leads)
		}
	}
}

// goOn makes members of one world meet again.
func (c *crowd) goOn(members []*arrival) {
	for _, a := range members {
		a.session.End(c.Context(), Over{Expect: len(members), Lost: c.lost(members)})
	}
	for _, a := range members {
		c.returns(a, false)
	}
}

// lost are the group ranks of those who do not go on.
func (c *crowd) lost(members []*arrival) (ranks []int) {
	for rank, m := range members[0].session.World.Members {
		if !slices.ContainsFunc(members, func(a *arrival) bool { return c.alive[a].Self.Incarnation == m.Incarnation }) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// returns makes a member meet again.
func (c *crowd) returns(a *arrival, led bool) {
	spec := c.alive[a]
	c.note("%s goes on from generation %d: %v", spec.Self.Name, a.session.World.Generation, here(&world{World: a.session.World}))
	delete(c.alive, a)
	c.lived[spec.Self.Incarnation] = a.session.World
	c.alive[c.back(a, led)] = spec
	if c.dice.IntN(2) == 0 {
		c.passes(time.Duration(c.dice.Int64N(int64(time.Second))))
	}
}

// check looks at all worlds that anybody is in.
func (c *crowd) check() {
	c.bury()
	nonces := map[int]string{}
	for _, a := range c.living() {
		if a.in() != nil {
			c.checkWorld(a.session, nonces)
		}
	}
	if len(nonces) > 1 { // all members of each live, and none has ended
		c.Errorf("worlds live beside each other: %v", nonces)
	}
}

// bury forgets those for whom the meeting is over without a world.
func (c *crowd) bury() {
	for _, a := range c.living() {
		life := c.alive[a].Self.Incarnation
		select {
		case <-a.done:
		default:
			continue
		}
		if a.err == nil {
			continue
		}
		c.note("%s: %v", life, a.err)
		if !decided(a.err) {
			c.Errorf("%s ended with %v", life, a.err)
		}
		delete(c.alive, a)
	}
}

func (c *crowd) checkWorld(s *Session, nonces map[int]string) {
	w := s.World
	if known, ok := nonces[w.Generation]; ok && known != w.Nonce {
		c.Errorf("two worlds of generation %d", w.Generation)
	}
	nonces[w.Generation] = w.Nonce
	if n := len(w.Members); n < c.terms.Fewest() || n > c.terms.Nodes {
		c.Errorf("a world of %d nodes", n)
	}
	seen, next := map[string]bool{}, 0
	for i, m := range w.Members {
		if m.Index >= 0 && slices.ContainsFunc(w.Members[:i], func(other job.Member) bool { return other.Index == m.Index }) {
			c.Errorf("two members have index %d", m.Index)
		}
		if seen[m.Incarnation] || m.First != next {
			c.Errorf("member %v twice, or at rank %d, want %d", m.Node, m.First, next)
		}
		if c.left[m.Incarnation] {
			c.Errorf("generation %d has %v in it, which had left before", w.Generation, m.Node)
		}
		seen[m.Incarnation], next = true, next+m.Slots
	}
	c.checkKept(w, seen)
	for life := range seen {
		before, veteran := c.lived[life]
		if is, was := string(w.Rules.Policy), before.Rules; veteran && before.Generation == w.Generation-1 && is != string(was.Policy) {
			c.Errorf("generation %d goes by the policy of %s, and %s was in one that went by that of %s", w.Generation, is, life, was.Policy)
		}
	}
}

// checkKept asserts that those who went on are in the next world, if they live.
func (c *crowd) checkKept(w job.World, members map[string]bool) {
	lives := map[string]bool{}
	for _, spec := range c.alive {
		lives[spec.Self.Incarnation] = true
	}
	kept := c.kept[w.Generation-1]
	if slices.ContainsFunc(kept, func(life string) bool { return !lives[life] }) {
		return
	}
	for _, life := range kept {
		if !members[life] {
			c.Errorf("%s went on to generation %d, and has no place in it: %v", life, w.Generation, here(&world{World: w}))
		}
	}
}

// peace lets the living come to rest: those in a world that has lost somebody meet again until none has.
func (c *crowd) peace() {
	c.store.torn.Store(0)
	c.note("peace")
	c.passes(stall) // who stands still goes on
	c.settles(2 * time.Minute)
	c.check()
	c.mourn()
	c.settles(2 * time.Minute)
	c.meetAgain()
	c.settles(3 * time.Minute)
	c.check()
	inWorld := len(c.latest())
	if all := c.places(); all >= c.terms.Fewest() && inWorld != min(all, c.terms.Nodes) {
		c.Errorf("%d nodes live, %d of them are in a world", all, inWorld)
		for _, a := range c.living() {
			c.note("%s: %+v, last told %v", c.alive[a].Self.Name, a.in(), a.last())
		}
	}
	for a := range c.alive {
		if a.in() != nil {
			a.session.Close()
		}
	}
}

// places is how many of the living may be in one world.
func (c *crowd) places() int {
	if !c.twins {
		return len(c.alive)
	}
	indices := map[int]bool{}
	for _, spec := range c.alive {
		indices[spec.Self.Index] = true
	}
	return len(indices)
}

// settles lets time pass until nothing happens any more, and at most so much.
func (c *crowd) settles(most time.Duration) {
	for end := time.Now().Add(most); time.Now().Before(end); {
		atRest := c.atRest()
		c.passes(silent + 2*beat)
		if atRest && c.atRest() {
			return
		}
	}
}

// atRest reports whether all members of the newest world live, and all others know that they wait for its end.
func (c *crowd) atRest() bool {
	members := c.latest()
	if len(members) == 0 || len(members) < len(members[0].session.World.Members) {
		return false
	}
	return !slices.ContainsFunc(c.living(), func(a *arrival) bool {
		return !slices.Contains(members, a) && (a.in() != nil || a.last().Running != members[0].session.World.Generation)
	})
}
