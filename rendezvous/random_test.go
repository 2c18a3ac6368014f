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
	"strings"
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
	stalls bool // some that wait stand still
	midway bool // some stand still between two of their words; the store is not lost meanwhile
	asks   bool // members of a silent world are asked whether they live, and answer
	lives  int
	alive  map[*arrival]job.Spec
	lived  map[string]job.World
	left   map[string]bool  // lives that said that they do not wait any more
	kept   map[int][]string // by generation, lives of those who went on from its world while another one was given up
	stood  sync.Map         // by life, the Standing beside which it waits or did
	there  sync.Map         // by life, the arrival that lives
	gone   []Standing       // of agents that stood by and died, or left
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
				terms: job.Terms{Nodes: nodes, Least: 1 + dice.IntN(nodes), Spares: dice.IntN(3)}, twins: seed%2 > 0, stalls: seed%4 == 2, midway: seed%8 == 4, asks: seed%8 > 3}
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
	switch n := c.dice.IntN(24); {
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
			c.left[life] = a.session == nil && c.store.torn.Load() == 0 && !c.midway // else a leader may say what it had settled before
			if len(c.alive) < c.terms.Nodes+c.terms.Spares+1 && c.dice.IntN(3) > 0 { // in its place
				c.newcomer()
			}
		}
	case n < 12:
		c.meetAgain()
	case n < 14:
		if c.dice.IntN(3) > 0 && !c.twins {
			c.apart()
		} else {
			c.givesUp()
		}
	case n < 16:
		c.store.torn.Store(c.dice.Int64N(5))
	case n < 19 && c.midway:
	case n < 17:
		c.store.torn.Store(0)
		c.passes(2 * time.Second) // who is just arriving at a world could not know of it, nor it of him
		c.empties()
		if c.dice.IntN(2) == 0 && c.terms.Nodes > 1 && len(c.alive) < c.terms.Nodes+c.terms.Spares+1 { // alone it would make a world of one
			c.newcomer()
		}
		c.passes(2 * time.Second)
		c.checkMet()
	case n < 19:
		c.hostBack()
	case n < 20 && c.asks:
		c.storeless()
	case n < 20:
		c.storeStands()
	case n < 21:
		c.jobEnds()
	case n < 24 && c.stalls:
		if a := c.any(); a != nil && a.in() == nil {
			life, d := c.alive[a].Self.Incarnation, time.Duration(c.dice.Int64N(int64(stall)))
			c.note("%s stands still for %v", life, d)
			c.ways[life].stops(d)
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

// empties has the store come back empty, and with it may die one that waits: it was its host.
func (c *crowd) empties() {
	if a := c.any(); c.dice.IntN(2) == 0 && a != nil && a.in() == nil {
		c.note("%s dies with the store", c.alive[a].Self.Incarnation)
		c.end(a, func() { c.dies(a) })
	}
	c.note("the store comes back empty")
	c.forgets()
}

// sleeps reports whether somebody stands still, or did just now, and may not know of the newest world: with as many as make a whole one it would begin.
func (c *crowd) sleeps() bool {
	for _, way := range c.ways {
		if time.Since(time.Unix(0, way.until.Load())) < 2*time.Second {
			return true
		}
	}
	return false
}

// forgets empties the store. Nobody knows any more who was lost, nor who stood by.
func (c *crowd) forgets() {
	c.store.empty()
	clear(c.kept)
	c.stood.Clear()
	c.gone = nil
}

// checkMet asserts that all who wait have come to the meeting in a store that came back empty two seconds ago.
func (c *crowd) checkMet() {
	c.bury()
	said := map[string]bool{}
	keys, _ := c.store.ListKeys(c.Context())
	for _, key := range keys {
		if strings.Contains(key, "/"+keyTicket) {
			b, _ := c.store.Get(c.Context(), key)
			r, _ := decode[record](b, maxRecord)
			said[r.Node.Incarnation] = true
		}
	}
	for _, a := range c.living() {
		life := c.alive[a].Self.Incarnation
		way := c.ways[life]
		if a.in() == nil && !said[life] && time.Since(time.Unix(0, way.until.Load())) > 2*time.Second {
			c.Errorf("%s waits in a store that is no more", life)
		}
	}
}

// storeless keeps the leader of the newest world from the store for a while, in which others come. The world lives: no other one begins.
func (c *crowd) storeless() {
	at := slices.IndexFunc(c.latest(), func(a *arrival) bool { return a.session.Rank == 0 })
	if at < 0 || !c.asks {
		return
	}
	way := c.ways[c.alive[c.latest()[at]].Self.Incarnation]
	c.note("%s does not reach the store", c.alive[c.latest()[at]].Self.Incarnation)
	way.away.Store(true)
	for range 2 {
		if len(c.alive) < c.terms.Nodes+c.terms.Spares+1 {
			c.newcomer()
		}
	}
	c.passes(time.Duration(c.dice.Int64N(int64(45 * time.Second))))
	way.away.Store(false)
}

// storeStands lets nobody reach the store for a while, or hear from it. Nobody takes that for another's silence.
func (c *crowd) storeStands() {
	d := time.Duration(c.dice.Int64N(int64(15 * time.Second)))
	c.note("the store stands still for %v", d)
	for _, a := range c.living() {
		c.ways[c.alive[a].Self.Incarnation].stops(d)
	}
	c.passes(d + silent - 2*beat)
}

// apart has the newest world end for all of its members but one, which hears nothing of it and has workers for a while. The others do not know what has
// become of it, and begin nothing meanwhile.
func (c *crowd) apart() {
	members := c.latest()
	if len(members) < 2 || len(members) < len(members[0].session.World.Members) {
		return
	}
	c.wake()
	g := members[0].session.World.Generation
	at := c.dice.IntN(len(members))
	out := members[at]
	members = slices.Delete(members, at, at+1)
	c.note("%s hears nothing of the others", c.alive[out].Self.Incarnation)
	for _, a := range members {
		a.session.End(c.Context(), Over{})
	}
	for _, a := range members {
		c.returns(a, false)
	}
	c.passes(time.Duration(c.dice.Int64N(int64(fence - 3*time.Second))))
	for _, a := range c.living() {
		if a.in() != nil && a.session.World.Generation > g {
			c.Errorf("generation %d begins while %s has workers of another", a.session.World.Generation, c.alive[out].Self.Incarnation)
		}
	}
	c.returns(out, false)
}

// jobEnds ends the job with the newest world. An agent in the place of one that stood by beside that, or one before it, and died, ends with it.
func (c *crowd) jobEnds() {
	c.store.torn.Store(0)
	members := c.latest()
	if len(members) == 0 || len(members) < len(members[0].session.World.Members) || !c.terms.Standby() {
		return
	}
	c.wake()
	last := members[0].session.World.Generation
	c.note("the job ends with generation %d", last)
	for _, a := range members {
		a.session.End(c.Context(), Over{Verdict: &job.Verdict{Sentence: "done"}})
	}
	lives, _ := members[0].session.meeting.above()
	_, life := lives.above()
	for _, a := range members {
		c.end(a, func() {})
	}
	clear(c.kept)
	c.passes(stall)
	c.bury()
	for _, s := range c.gone {
		if s.Life == life && s.Generation <= last {
			c.follows(s)
		}
	}
	c.gone = nil
}

// follows has an agent come in the place of one that stood by beside a world of a job that has ended.
func (c *crowd) follows(s Standing) {
	if len(c.alive) > 0 { // of those that are left some begin the job anew
		return
	}
	c.lives++
	spec := agent(fmt.Sprint("n", c.lives), c.terms.Nodes)
	spec.Terms = c.terms
	c.note("%s comes in the place of one that stood by beside generation %d", spec.Self.Incarnation, s.Generation)
	a := c.comes(spec, Options{Stood: s})
	c.passes(2 * time.Second)
	a.cancel()
	<-a.done
	if !errors.As(a.err, new(*Ended)) {
		c.Errorf("%s, whose agent before it stood by beside generation %d, begins the job anew: %v", spec.Self.Incarnation, s.Generation, a.err)
	}
	if a.session != nil {
		a.session.Close()
	}
}

// answers reports whether a member lives that another node asks.
func (c *crowd) answers(_ context.Context, n job.Node) bool {
	a, found := c.there.Load(n.Incarnation)
	return found && a.(*arrival).in() != nil
}

// halting makes some of those who come stand still before they set one of their keys: before others know of them, or when they are to say what the meeting
// comes to.
func (c *crowd) halting() *halt {
	if !c.midway || c.dice.IntN(2) > 0 {
		return nil
	}
	kinds := []string{keyGeneration, keyTicket, keyPresence, keyOutcome, keyOutcome, keyOutcome}
	return &halt{key: kinds[c.dice.IntN(len(kinds))], long: time.Duration(c.dice.Int64N(int64(stall)))}
}

// wake lets nobody stand still before a key any more.
func (c *crowd) wake() {
	for _, way := range c.ways {
		way.halt.Store(nil)
	}
}

// hostBack kills a member of the newest world that hosts the store, and starts it again at once. The others' workers run on for a while: no world begins
// as long as they do.
func (c *crowd) hostBack() {
	c.store.torn.Store(0)
	c.passes(2 * time.Second) // who is just arriving at a world could not know of it, nor it of him
	members := c.latest()
	if len(members) < 2 || c.twins || c.sleeps() { // a second agent of an index asks the member whether it lives
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
	if c.asks {
		o.Lives = c.answers
	}
	o.Stands = func(s Standing) { c.stood.Store(spec.Self.Incarnation, s) }
	if c.halts = c.halting(); c.halts != nil {
		c.note("%s stands still for %v before it sets %s", spec.Self.Incarnation, c.halts.long, c.halts.key)
	}
	a := c.comesFor(dies, spec, o)
	c.alive[a] = spec
	c.there.Store(spec.Self.Incarnation, a)
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
	life := c.alive[a].Self.Incarnation
	if a.session != nil {
		a.session.Close()
	} else if s, stood := c.stood.Load(life); stood {
		c.gone = append(c.gone, s.(Standing))
	}
	c.there.Delete(life)
	delete(c.alive, a)
}

// mourn tells the members of worlds in which somebody died, as their connections to it do; they meet again. Who stood still until the others had gone on finds
// that out, too.
func (c *crowd) mourn() {
	dead, wentOn := c.ends()
	broken := map[string][]*arrival{}
	for _, a := range c.living() {
		if a.in() != nil && slices.ContainsFunc(a.session.World.Members, wentOn(a.session.World)) {
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

// ends returns by which members a world is over: those that died, or went on from it.
func (c *crowd) ends() (dead func(job.Member) bool, wentOn func(job.World) func(job.Member) bool) {
	lives := map[string]bool{}
	for a, spec := range c.alive {
		lives[spec.Self.Incarnation] = true
		if a.in() != nil {
			c.lived[spec.Self.Incarnation] = a.session.World
		}
	}
	dead = func(m job.Member) bool { return !lives[m.Incarnation] }
	return dead, func(w job.World) func(job.Member) bool {
		return func(m job.Member) bool {
			last := c.lived[m.Incarnation]
			return last.Generation > w.Generation || c.waits(m.Incarnation) && last.Nonce == w.Nonce
		}
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
	c.wake()
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
	c.wake()
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
	c.wake()
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
	c.there.Delete(spec.Self.Incarnation)
	a.session.Close()
	o := again(a)
	o.Led = led
	if c.asks {
		o.Lives = c.answers
	}
	b := c.comes(job.Spec{ID: spec.ID, Terms: a.session.World.Terms, Self: spec.Self}, o)
	c.alive[b] = spec
	c.there.Store(spec.Self.Incarnation, b)
	if c.dice.IntN(2) == 0 {
		c.passes(time.Duration(c.dice.Int64N(int64(time.Second))))
	}
}

// check looks at all worlds that anybody is in.
func (c *crowd) check() {
	c.bury()
	nonces, whole := map[int]string{}, map[int]string{}
	for _, a := range c.living() {
		if a.in() != nil {
			c.checkWorld(a.session, nonces)
		}
	}
	dead, wentOn := c.ends()
	for _, a := range c.living() {
		if a.in() == nil {
			continue
		}
		w := a.session.World
		if !slices.ContainsFunc(w.Members, dead) && !slices.ContainsFunc(w.Members, wentOn(w)) {
			whole[w.Generation] = w.Nonce
		}
	}
	if len(whole) > 1 { // all members of each live, and none has ended
		c.Errorf("worlds live beside each other: %v", whole)
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
		c.checkReplaced(a)
		delete(c.alive, a)
	}
}

// by finds in a reason who took a node's place.
var by = regexp.MustCompile(`, incarnation (n\d+)`)

// checkReplaced asserts that who stood by beside a world waits on beside its members when these meet again.
func (c *crowd) checkReplaced(a *arrival) {
	life := c.alive[a].Self.Incarnation
	var out *Excluded
	s, stood := c.stood.Load(life)
	if _, veteran := c.lived[life]; !stood || veteran || !errors.As(a.err, &out) {
		return
	}
	if name := by.FindStringSubmatch(out.Reason); name != nil && c.lived[name[1]+"-life1"].Nonce == s.(Standing).Nonce {
		c.Errorf("%s stood by, and is turned away for a member that lives: %v", life, a.err)
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
	c.wake()
	c.passes(stall) // who stands still goes on
	c.settles(2 * time.Minute)
	c.checkCounted()
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

// checkCounted asserts that who waits is among those who are here, as it is told.
func (c *crowd) checkCounted() {
	if c.twins || !c.terms.Standby() || !c.atRest() {
		return
	}
	for _, a := range c.living() {
		if self := c.alive[a].Self; a.in() == nil && !slices.Contains(a.last().Here, self.String()) {
			c.Errorf("%s waits, and is not counted: %v", self.Incarnation, a.last())
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
