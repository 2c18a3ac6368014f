package rendezvous

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
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
	stalls bool // some stand still
	deaf   bool // the store does not hear the world for a while
	lives  int
	alive  map[*arrival]job.Spec
	lived  map[string]job.World
	left   map[string]bool  // lives that said that they do not wait any more
	were   map[string]int   // lived, by generation, when all were looked at last
	out    map[string]bool  // lives that a world gave up, or of which the store has forgotten that they were in one
	answer sync.Map         // lives that answer who asks them
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
			c := &crowd{scene: s, dice: dice, alive: map[*arrival]job.Spec{}, lived: map[string]job.World{}, left: map[string]bool{}, out: map[string]bool{}, were: map[string]int{}, kept: map[int][]string{},
				terms: job.Terms{Nodes: nodes, Least: 1 + dice.IntN(nodes), Spares: dice.IntN(3)}, twins: seed%2 > 0, stalls: seed%4 == 2, deaf: seed%4 == 0}
			for range 30 {
				c.happens()
				c.check()
			}
			c.peace()
			c.finale()
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
			c.left[life] = a.session == nil && c.store.torn.Load() == 0 && !c.stalls // who stands still may not hear it
		}
	case n < 13:
		c.meetAgain()
	case n < 14:
		c.givesUp()
	case n < 16:
		c.store.torn.Store(c.dice.Int64N(5))
	case n < 17 && !c.stuck():
		c.store.torn.Store(0)
		c.passes(2 * time.Second) // who is just arriving at a world could not know of it, nor it of him
		c.note("the store comes back empty")
		c.store.empty()
		c.forgets()
		if c.dice.IntN(2) == 0 && c.terms.Nodes > 1 && len(c.alive) < c.terms.Nodes+c.terms.Spares+1 { // alone it would make a world of one
			c.newcomer()
		}
		c.passes(2 * time.Second)
	case n == 17 && !c.stuck():
		c.hostBack()
	case n >= 18 && c.deaf:
		c.unheard()
	case n >= 18 && c.stalls:
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

// forgets takes note that nobody knows any more who was lost, and that only members of a world can tell of it.
func (c *crowd) forgets() {
	clear(c.kept)
	for life := range c.lived {
		c.out[life] = true
	}
}

// unheard keeps the store from hearing for a while that a world lives. Its members do, and say so if they are asked.
func (c *crowd) unheard() {
	c.note("the world is not heard")
	c.store.away.Store(true)
	c.passes(time.Duration(c.dice.Int64N(int64(90 * time.Second))))
	c.check()
	c.store.away.Store(false)
	c.passes(2 * beat)
}

// stuck reports whether a node stands still amid something, and lets no other do so from now on: what is to come finds them free.
func (c *crowd) stuck() (any bool) {
	for _, way := range c.ways {
		if way.snag != nil {
			free := way.snag.sprung.CompareAndSwap(false, true)
			any = any || !free && time.Now().UnixNano() < way.until.Load()
		}
	}
	return any
}

// stalled reports whether any node has stood still amid something so far: nobody needs to have waited for it.
func (c *crowd) stalled() bool {
	for _, way := range c.ways {
		if way.snag != nil && way.snag.sprung.Load() {
			return true
		}
	}
	return false
}

// snags has the next that comes stand still amid something, perhaps.
func (c *crowd) snags() {
	kinds := []string{keyTickets, keyTicket, keyPresence, keyLeader, keySummary, keyGeneration, keyOutcome, keyOutcome, keyOutcome, keyOutcome}
	if c.stalls && c.dice.IntN(2) == 0 {
		c.scene.snag = &snag{kind: kinds[c.dice.IntN(len(kinds))], after: c.dice.IntN(2) == 0, lasts: time.Duration(c.dice.Int64N(int64(stall)))}
		c.note("and stands still for %v at its %s (made: %v)", c.scene.snag.lasts, c.scene.snag.kind, c.scene.snag.after)
	}
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
	if unaware := func(a *arrival) bool { return a.in() == nil && a.last().Running == 0 }; c.stalls && slices.ContainsFunc(c.living(), unaware) {
		return // it stood still, and has not heard of the world: nodes enough that know of none begin one
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
	c.forgets()
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
	c.asks(&o)
	c.snags()
	c.answer.Store(spec.Self.Incarnation, true)
	a := c.comesFor(dies, spec, o)
	c.alive[a] = spec
	if dies > 0 {
		c.note("%s dies, before it makes %d changes", spec.Self.Incarnation, dies)
		c.end(a, func() { c.dies(a) })
	}
}

// asks lets a node ask others whether they are there. A second agent of an index would, too.
func (c *crowd) asks(o *Options) {
	if !c.twins {
		o.Lives = c.answers
	}
}

// answers reports whether the agent of a node is there.
func (c *crowd) answers(_ context.Context, n job.Node) bool {
	_, there := c.answer.Load(n.Incarnation)
	return there
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
	c.answer.Delete(c.alive[a].Self.Incarnation)
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
	c.out[c.alive[out].Self.Incarnation] = true
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
	c.snags()
	o := again(a)
	o.Led = led
	c.asks(&o)
	c.alive[c.backWith(a, o)] = spec
	if c.dice.IntN(2) == 0 {
		c.passes(time.Duration(c.dice.Int64N(int64(time.Second))))
	}
}

// check looks at all worlds that anybody is in.
func (c *crowd) check() {
	c.bury()
	nonces := c.worlds()
	for range len(c.alive) { // who stood still as the others went on comes into their world now, and finds it over
		if len(nonces) > 1 {
			c.mourn()
			nonces = c.worlds()
		}
	}
	if len(nonces) > 1 { // all members of each live, and none has ended
		c.Errorf("worlds live beside each other: %v", nonces)
	}
	for life, w := range c.lived {
		c.were[life] = w.Generation
	}
}

// worlds are those that anybody is in, by generation.
func (c *crowd) worlds() map[int]string {
	nonces := map[int]string{}
	for _, a := range c.living() {
		if a.in() != nil {
			c.checkWorld(a.session, nonces)
		}
	}
	return nonces
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
		if by := c.replacedBy(a.err); by != "" && c.owed(by) {
			c.Errorf("%s had to go for %s, a member of the world before: it may wait for its end", life, by)
		}
		delete(c.alive, a)
	}
}

// replacing is the life by which another one was replaced.
var replacing = regexp.MustCompile(`incarnation (n\d+)-life`)

// replacedBy is the life for which a node had to go as the nodes met; "": for none.
func (c *crowd) replacedBy(err error) string {
	var x *Excluded
	if by := replacing.FindStringSubmatch(fmt.Sprint(err)); errors.As(err, &x) && x.Replaced && !x.Met && by != nil {
		return by[1] + "-life1"
	}
	return ""
}

// owed reports whether a life was in the newest world when all were looked at last, and that has not given it up.
func (c *crowd) owed(life string) bool {
	newest := slices.Max(append(slices.Collect(maps.Values(c.were)), 0))
	g, was := c.were[life]
	return was && g == newest && !c.out[life]
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
	if c.stalled() || slices.ContainsFunc(kept, func(life string) bool { return !lives[life] }) {
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
	c.stuck()
	c.stalls = false
	c.passes(stall) // who stands still goes on
	c.mourn()
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
}

// finale ends the job. Who stood by hears of it, also who stood still while the job went on in other worlds, and those ended.
func (c *crowd) finale() {
	waiting := slices.DeleteFunc(c.living(), func(a *arrival) bool { return a.in() != nil || a.last().Running == 0 })
	if len(waiting) > 0 && c.dice.IntN(2) == 0 {
		life := c.alive[waiting[0]].Self.Incarnation
		c.note("%s stands still for %v", life, stall)
		c.ways[life].until.Store(time.Now().Add(stall).UnixNano())
		for range 1 + c.dice.IntN(2) {
			c.meetAgain()
			c.passes(stall/2 - 2*time.Second)
		}
	}
	members := c.latest()
	c.note("%d of the newest world end the job", len(members))
	for _, a := range members {
		a.session.End(c.Context(), Over{Verdict: &job.Verdict{Sentence: "it is done"}})
	}
	c.passes(time.Minute)
	for _, a := range waiting {
		if len(members) > 0 && !c.over(a) && (a.in() == nil || a.session.World.Generation > members[0].session.World.Generation) { // it may come late into that world, or an older one
			c.Errorf("%s stood by until the job ended, and goes on: %+v, %+v", c.alive[a].Self.Name, a.in(), a.last())
		}
	}
	for a := range c.alive {
		if a.in() != nil {
			a.session.Close()
		}
	}
}

// over reports whether the meeting is over for a node, without a world.
func (c *crowd) over(a *arrival) bool {
	select {
	case <-a.done:
		return a.err != nil && decided(a.err)
	default:
		return false
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
