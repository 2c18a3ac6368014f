package rendezvous

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/muster-run/muster/job"
)

// The meeting for the next world is always open. Nodes that come while a world lives meet under its successor's
// generation, and stand by there; the meeting ends when the world before is over, and its members have joined.

// A past is the world before a meeting; the zero value is none, or one that was over when we came.
type past struct {
	meeting  shelf
	world    *world
	protocol int             // of the outcome that made it
	lives    map[string]bool // incarnations of its members, once somebody asked
	watch    watch           // of its sign of life
	sign     time.Time       // when that last moved, whether we could look or not
	alive    time.Duration   // how long it has been, about
	over     *Over
	heard    time.Time // when we heard that it is over
	history  bool      // there is none to wait for: the job began anew
	told     bool      // that the job has ended with it was said
	rounds   int       // of the job that are over with it, as far as the store knows
}

// An Over is how a world ended, for whoever waits for the next one.
type Over struct {
	Generation int          `json:"generation"`
	Expect     int          `json:"expect,omitempty"`  // how many of its members come to the next meeting; 0: nobody knows
	Lost       []int        `json:"lost,omitempty"`    // group ranks of the others: nobody waits for those, if they come all the same
	Verdict    *job.Verdict `json:"verdict,omitempty"` // how the job ended; nil: it goes on in another world
}

// maxOver bounds the word on a world's end, and maxLost those whom it names. Where there are more, their number must do.
const (
	maxOver = 16 << 10
	maxLost = 1024
)

// lookBack learns which world is before this meeting. One that has us in it is returned: an agent before this one entered,
// and died.
func (n *node) lookBack(ctx context.Context) (*outcome, error) {
	was := n.before
	n.before = past{history: n.Stays && n.well.Store != nil} // no world began without this node since
	last, err := n.predecessor(ctx, n.meeting, n.generation)
	if last < 1 || err != nil {
		return nil, err
	}
	at := n.meeting.beside(last)
	end, err := n.outcome(ctx, at)
	if err == nil && (end == nil || end.World == nil) && was.is(last) { // the store came back empty
		end = &outcome{Protocol: was.protocol, World: was.world}
		if err = end.retell(ctx, at); err == nil && was.over != nil {
			err = was.over.tell(ctx, at)
		}
	} else {
		was.over = nil
	}
	switch {
	case err != nil || end == nil || end.World == nil:
		return nil, err
	case n.outlasted != "" && end.World.Nonce == n.outlasted:
		n.before, n.apart = past{history: true}, false
		return nil, nil
	case last > n.Seen && end.has(n.spec.Self):
		n.meeting = at
		return end, nil
	}
	n.before = past{meeting: at, world: end.World, protocol: end.Protocol, over: was.over, heard: was.heard}
	over, err := n.before.ended(ctx)
	switch {
	case err != nil:
		return nil, err
	case !over:
		n.stand(end.World, "")
		return nil, nil
	case n.before.over.Verdict == nil:
		return nil, nil
	case n.Seen > 0: // we were in it, or in one before, and it ended without a word to us
		return &outcome{Ended: brief(n.before.over.Verdict)}, nil
	}
	told, err := n.wasTold(ctx, at)
	if err != nil {
		return nil, err
	}
	if err := n.stood(ctx, last, n.before.over.Verdict); err != nil && !told && !n.runsAnother(end.World) {
		return nil, err
	}
	if n.before.told = was.history || was.told && was.is(last); !n.before.told {
		n.sayEnded()
	}
	if n.before.over.well() {
		n.well = at
	}
	n.before, n.apart = past{history: true}, false
	return nil, n.hearStays(ctx)
}

// sayEnded says, once, that the job has ended with the world before, and this node does not: it may be of the next run.
func (n *node) sayEnded() {
	p := &n.before
	if p.world == nil || p.over == nil || p.over.Verdict == nil || p.told || n.Say == nil {
		return
	}
	p.told = true
	how := plain(p.over.Verdict.Sentence, maxReason)
	said := fmt.Sprintf("this job has ended here, in generation %d: %s; nodes that come now begin it anew", p.world.Generation, how)
	if n.runsAnother(p.world) {
		said = fmt.Sprintf("a job that ran another command has ended here, in generation %d: %s; this one begins when its nodes have met", p.world.Generation, how)
	}
	n.Say(said)
}

// hearEnd is sayEnded, where a world ended beside which those waited whom this node leads.
func (l *leader) hearEnd(context.Context) error {
	if l.before.last(l.self) == nil {
		l.sayEnded()
	}
	return nil
}

// missed is the end of a job that others who waited have read for all, where this node waited, too; nil: it did not.
func (n *node) missed(ctx context.Context, end *outcome) error {
	if end == nil || end.Ended == nil || n.Seen > 0 {
		return nil
	}
	last, err := n.predecessor(ctx, n.meeting, n.generation)
	if err != nil {
		return err
	}
	return n.stood(ctx, last, end.Ended)
}

// predecessor is the generation of the world before a meeting, if there is one.
func (n *node) predecessor(ctx context.Context, meeting shelf, generation int) (int, error) {
	if generation == 1 { // as nearly all are, and a thousand nodes need not ask
		return 0, nil
	}
	b, found, err := meeting.peek(ctx, keyAfter)
	if err != nil || !found {
		return generation - 1, err
	}
	return number(keyAfter, b)
}

// retell makes a world known, as the outcome of a meeting of its generation, in a store that does not know of it. A world that stands there already is
// another one: in its other life the store brought nodes together who knew of none. It stays. What else stands there, as that a meeting went on elsewhere, a
// world takes the place of: no two of them can.
func (o *outcome) retell(ctx context.Context, meeting shelf) error {
	told := *o
	told.Moved = o.World.Generation + 1
	b, err := encodeOutcome(&told)
	if err != nil {
		return err
	}
	stands := []byte(nil)
	for range retellings {
		got, err := meeting.swap(ctx, keyOutcome, stands, b)
		switch {
		case err != nil, bytes.Equal(got, b):
			return err
		case !isWorld(got): // it moved on; or the store was emptied meanwhile, and swaps nothing for nothing
			if bytes.Equal(got, stands) {
				got = nil
			}
			stands = got
			continue
		}
		there, err := decodeOutcome(got)
		if err == nil && there.World.Nonce != o.World.Nonce {
			err = fmt.Errorf("another world of generation %d stands there", o.World.Generation)
		}
		return name(err, "set", keyOutcome)
	}
	return fmt.Errorf("set %s: it was another one each of %d times", keyOutcome, retellings)
}

// retellings bounds the tries to replace an outcome that is no world. It may be set meanwhile, and the store come back empty; each is to happen once.
const retellings = 16

// standBy says that a world must end first, unless this node could not be part of the next one either.
func (n *node) standBy(ctx context.Context) error {
	if err := n.fits(); err != nil {
		return err
	}
	if err := n.meetTwin(ctx); err != nil {
		return err
	}
	err := n.before.look(ctx)
	n.tell(Status{Here: []string{n.spec.Self.String()}, Count: 1, Expected: n.spec.Nodes, Fewest: n.spec.Fewest(),
		Running: n.before.running(), Alive: n.before.alive, Quiet: n.before.quiet()})
	return err
}

// fits refuses a node that could be part of no world of this job: it need not wait for the next one.
func (n *node) fits() error {
	own := n.record()
	if why := n.contradicts(own); why != nil {
		return &Refusal{Reason: why.Error()}
	}
	if why := contradiction(own, own); why != nil {
		return &Refusal{Reason: why.Error()}
	}
	return nil
}

// contradicts says why this node could be in no world like the one before; nil: it could, or there is none.
func (n *node) contradicts(own record) error {
	w := n.before.world
	if w == nil || len(w.Members) == 0 {
		return nil
	}
	return contradiction(record{Protocol: own.Protocol, Terms: w.Terms, Node: w.Members[0].Node}, own)
}

// ended reports whether the world is over. A store is asked once a beat, and when somebody came.
func (p *past) ended(ctx context.Context) (bool, error) {
	if p.world == nil || p.over != nil {
		return true, nil
	}
	b, found, err := p.meeting.peek(ctx, keyOver)
	if err != nil || !found {
		return false, err
	}
	over, err := decode[Over](b, maxOver)
	if err == nil {
		p.over, p.heard = &over, time.Now()
	}
	return err == nil, name(err, "read", keyOver)
}

// look hears whether the world before still lives.
func (p *past) look(ctx context.Context) error {
	if over, err := p.ended(ctx); over || err != nil {
		return err
	}
	b, _, err := p.meeting.peek(ctx, keyAlive)
	if err != nil {
		return err
	}
	last, read := p.watch.last, p.watch.read
	p.watch.silent(string(b))
	if beats, err := number(keyAlive, b); err == nil && string(b) != last {
		p.alive, p.sign = time.Duration(beats)*beat, time.Now()
		if !read.IsZero() && time.Since(read) >= quietTime { // it may have moved just after that
			p.sign = read
		}
	}
	return nil
}

// is reports whether this is the world of a generation.
func (p *past) is(generation int) bool { return p.world != nil && p.world.Generation == generation }

// has reports whether a member of another world is one of this.
func (p *past) has(m job.Member) bool {
	if p.world == nil {
		return false
	}
	_, found := p.world.rank(m.Incarnation)
	return found
}

// quiet is for how long nothing was heard of the world, the time included in which the store was away; 0: of one that lives. Where nothing was ever heard of
// it, it is since we looked.
func (p *past) quiet() time.Duration {
	quiet := time.Since(p.sign)
	if p.sign.IsZero() {
		quiet = p.watch.still()
	}
	if p.running() > 0 && quiet >= quietTime {
		return quiet.Truncate(time.Second)
	}
	return 0
}

// quietTime is how long nothing may be heard of a world of which it is said that it runs.
const quietTime = 3 * beat

// running is the generation that must end first; 0: none.
func (p *past) running() int {
	if p.world == nil || p.over != nil {
		return 0
	}
	return p.world.Generation
}

// unpack reads all members of the world before.
func (p *past) unpack() error {
	if p.world == nil {
		return nil
	}
	return p.world.unpack()
}

// members are those of the world before, once it is unpacked, unless the job began anew.
func (p *past) members() *job.World {
	if p.world == nil || p.over != nil && p.over.Verdict != nil {
		return nil
	}
	return &p.world.World
}

// had reports whether a node was a member. One of the same generation may be a member of another world, which an earlier life of the store brought about.
// All of a thousand members ask, so the world must be unpacked.
func (p *past) had(r record) bool {
	if r.Seen != p.world.Generation {
		return false
	}
	if p.lives == nil {
		p.lives = make(map[string]bool, len(p.world.Members))
		for _, m := range p.world.Members {
			p.lives[m.Incarnation] = true
		}
	}
	return p.lives[r.Node.Incarnation]
}

// count reads how many rounds are over with this world. Its members know that, too, if any comes.
func (p *past) count(ctx context.Context) error {
	p.rounds = 0
	if p.members() == nil {
		return nil
	}
	rounds, err := readRounds(ctx, p.meeting)
	p.rounds = max(rounds, p.world.Past.Rounds)
	return err
}

// readRounds is what a world left of that; 0 where it did not, or nobody can read it.
func readRounds(ctx context.Context, meeting shelf) (int, error) {
	b, found, err := meeting.peek(ctx, keyRounds)
	if err != nil || !found {
		return 0, err
	}
	rounds, err := strconv.ParseInt(string(b), 10, 32)
	if err != nil || rounds < 0 {
		return 0, nil
	}
	return int(rounds), nil
}

// expects is how many members are known to come; 0: nobody knows.
func (p *past) expects() int {
	if p.over == nil {
		return 0
	}
	return p.over.Expect
}

// fence is how long members may live there without hearing its leader, as far as it tells: a newcomer may have been told otherwise.
func (p *past) fence() time.Duration {
	if p.world == nil || p.world.Rules == nil {
		return 0
	}
	return min(p.world.Rules.Fence, mostFence)
}

// mostFence bounds for how long a word in the store keeps a node waiting beyond its own time: the longest node time-out and, for workers to stop, most of an hour.
const mostFence = time.Hour

// leader is group rank 0 of the world, once it is unpacked; "": there is none.
func (p *past) leader() string {
	if p.world == nil || len(p.world.Members) == 0 {
		return ""
	}
	return p.world.Members[0].Incarnation
}

// lost are the members that the world gave up, by incarnation.
func (p *past) lost() map[string]bool {
	all := map[string]bool{}
	for _, rank := range p.over.Lost {
		if rank >= 0 && rank < len(p.world.Members) {
			all[p.world.Members[rank].Incarnation] = true
		}
	}
	return all
}

// last is the verdict with which those end who stood by, or were members and have not heard it; nil: another world may follow.
func (p *past) last(r record) *job.Verdict {
	if p.over == nil || !r.Standby() && r.Seen == 0 {
		return nil
	}
	return p.over.Verdict
}

// free reports whether so many nodes may make the next world. A world that has not ended may go on although nothing is heard of
// it, by a store that is away. That others came in full number says that it does not; of fewer a longer silence is asked.
func (l *leader) free(ctx context.Context, count int) (bool, error) {
	if l.before.world == nil { // it may have been made known again in a store that came back empty
		_, err := l.lookBack(ctx)
		if err := cmp.Or(err, l.before.unpack()); err != nil {
			return false, err
		}
	}
	over, err := l.before.ended(ctx)
	if over || err != nil {
		return over && !l.unsure(), err
	}
	rules, need := l.rules(), silent
	if count < l.spec.Nodes {
		need += rules.LastCall
	}
	need = max(need, rules.Fence) // all of them may be suspended, with workers that go on when they are not
	if l.before.watch.still() < need {
		return false, nil
	}
	if l.lives(ctx) {
		l.before.answered()
		return false, nil
	}
	return true, nil
}

// answered takes a member's answer for a sign of life of its world.
func (p *past) answered() {
	p.alive += p.watch.still().Round(time.Second)
	p.watch.moved, p.sign = time.Now(), time.Now()
}

// Who is asked whether the world before lives, and how long the answer may take.
const (
	asked   = 8
	askTime = 2 * time.Second
)

// lives asks members of the world before that are not here, the leader first.
func (l *leader) lives(ctx context.Context) bool {
	here := map[string]bool{}
	for _, g := range l.guests {
		here[g.Node.Incarnation] = true
	}
	return l.answers(ctx, here)
}

// answers asks members of the world before, but for some, the leader first.
func (n *node) answers(ctx context.Context, but map[string]bool) bool {
	if n.Lives == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answers := make(chan bool, asked)
	count := 0
	for _, m := range n.before.world.Members {
		if !but[m.Incarnation] && count < asked {
			count++
			go func() { answers <- n.Lives(ctx, m.Node) }()
		}
	}
	alive := false
	for range count {
		alive = <-answers || alive
	}
	return alive
}

// unsure reports whether a world may live of which a store that came back empty does not know yet. Its leader makes it known
// again within a beat.
func (l *leader) unsure() bool {
	if l.generation == 1 || l.before.world != nil || l.before.history {
		return false
	}
	member := func(g *guest) bool { return g.Seen == l.generation-1 }
	return !slices.ContainsFunc(l.guests, member) && time.Since(l.enough) < 3*beat
}

// brief is a verdict as it travels: without what fills pages.
func brief(v *job.Verdict) *job.Verdict {
	if v == nil {
		return nil
	}
	return &job.Verdict{Code: v.Code, Origin: v.Origin, Class: v.Class,
		Sentence: plain(v.Sentence, maxReason), Hint: plain(v.Hint, maxReason)}
}

// tell makes the end known in the store, unless somebody has.
func (o Over) tell(ctx context.Context, meeting shelf) error {
	b, err := o.encode()
	if err == nil {
		_, err = meeting.once(ctx, keyOver, b)
	}
	return err
}

func (o Over) encode() ([]byte, error) {
	o.Verdict = brief(o.Verdict)
	if len(o.Lost) > maxLost {
		o.Lost = nil
	}
	return json.Marshal(o)
}
