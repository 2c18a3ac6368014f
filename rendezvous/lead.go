package rendezvous

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/muster-run/muster/job"
)

const (
	chunk = 1024                  // presence keys read at once
	calm  = 50 * time.Millisecond // between two reports of who came
)

// A leader reads every record once and closes the meeting when all nodes are there.
type leader struct {
	*node
	self    record
	guests  []*guest // who wrote a record and has not left, by ticket
	here    int      // how many of them are alive,
	members int      // and of those, members of the world before that it did not give up

	struck bool            // it is known
	lost   map[string]bool // whom it did, by incarnation
	led    bool            // its leader lives, as one of them heard

	declined []ticket // who said that no worker can run there, the gone too
	refused  error    // the first contradiction among the living
	wrong    error    // that of the job's last world and ourselves
	reached  int      // tickets that were read
	doubtful int      // tickets up to this one were drawn before we led, and must show that they live

	enough  time.Time // since when the fewest have been here; zero: they are not
	invain  time.Time // since when nodes have been here for which there can be no world; zero: there may be one
	drawn   []drawn   // tickets that are known to be drawn, and were not read
	crowd   int       // tickets that were drawn, as far as we have looked
	untold  int       // of those, how many may have been drawn by nodes that were not told which
	voids   int       // and how many of those are void
	beats   int
	told    time.Time
	changed bool // since told

	veterans bool          // somebody was in a world before
	lived    *job.Rules    // of the job, as the one of the latest told them; nil: nobody did
	ofWorld  int           // in which that one was
	fence    time.Duration // the longest that one of them told

	doubts     map[int]string  // by ticket, why its machine is doubtful
	remarks    []string        // about those, when the world was made
	overtaken  int             // of the living, how many came again as another process
	has        map[string]bool // identities of the members of the world before,
	hasOf      int             // which is of this generation
	line       int             // ours on the board; 0: none yet
	neighbours map[int]*neighbour
}

// A guest is a node in the eyes of the leader.
type guest struct {
	ticket
	watch
	alive  bool
	until  time.Time // it takes no place before
	barred string    // why it takes none at all
}

// lead takes the tickets in turn until there is an outcome. It returns nothing when another node leads.
func (n *node) lead(ctx context.Context) (*outcome, error) {
	l := &leader{node: n, self: n.record(), neighbours: map[int]*neighbour{}, doubts: map[int]string{}}
	if err := l.begin(ctx); err != nil {
		return nil, err
	}
	for n.leader == n.ticket {
		end, err := l.conclusion(ctx)
		if err != nil {
			return nil, err
		}
		if end != nil {
			return l.publish(ctx, end)
		}
		if err := l.step(ctx); err != nil {
			return nil, err
		}
		if time.Now().Before(n.next) {
			continue
		}
		// Before the next world is settled: we may have been stopped, and others gone on.
		if end, err := l.tick(ctx); end != nil || err != nil {
			return end, err
		}
	}
	return nil, nil
}

// conclusion is the outcome, if it may be published now.
func (l *leader) conclusion(ctx context.Context) (*outcome, error) {
	if err := cmp.Or(l.isWrong(), l.outlived(ctx)); err != nil {
		return nil, err
	}
	if l.here >= l.spec.Fewest() { // who is expected?
		if _, err := l.before.ended(ctx); err != nil {
			return nil, err
		}
	}
	end := l.settle()
	if end == nil || end.World == nil {
		return end, nil
	}
	if free, err := l.free(ctx, len(end.World.Members)); !free || err != nil {
		return nil, err
	}
	if err := l.before.count(ctx); err != nil {
		return nil, err
	}
	if err := l.roll(ctx); err != nil { // somebody may have left since the last roll, and would never call
		return nil, err
	}
	if lost, err := l.forgotten(ctx); err != nil || lost { // we may have been stopped meanwhile, and others meet where it came back
		return &outcome{Moved: l.generation}, err
	}
	return l.settle(), nil
}

// begin counts the tickets of before. The first leader of a meeting has no reason for doubt: whoever
// drew before it has only just come. A later one leads because somebody died.
func (l *leader) begin(ctx context.Context) error {
	if err := l.before.unpack(); err != nil || l.epoch == 1 {
		return err
	}
	drawn, err := l.meeting.add(ctx, keyTickets, 0)
	l.doubtful, l.crowd = int(drawn), int(drawn)
	return err
}

// step reads the next ticket, or waits for it until the beat is due.
func (l *leader) step(ctx context.Context) error {
	key := numbered(keyTicket, l.reached+1)
	b, found, err := l.meeting.peek(ctx, key)
	if found {
		l.take(b)
		return l.readAhead(ctx)
	}
	if err == nil && l.overdue() && time.Now().Before(l.next) { // else we may have been stopped, and others gone on
		return l.fill(ctx)
	}
	if err == nil {
		l.report()
		b, found, err = l.meeting.await(ctx, key, l.due())
	}
	if found {
		l.take(b)
	}
	return err
}

// due is when there is something to do although nobody comes.
func (l *leader) due() time.Time {
	due := l.next
	if calmed := l.told.Add(calm); l.changed && calmed.Before(due) {
		due = calmed
	}
	if since, hole := l.hole(); hole && since.Add(l.grace()).Before(due) {
		due = since.Add(l.grace())
	}
	return due
}

// take receives what stands under the next ticket. Who is in doubt counts only when its presence moves.
func (l *leader) take(b []byte) {
	l.reached++
	if string(b) == void {
		l.voids++
		return
	}
	r, err := decode[record](b, maxRecord)
	if err == nil {
		err = cmp.Or(check(r.Node), checkMachine(r.Machine), checkRules(r.Rules))
	}
	if err != nil {
		l.refuse(fmt.Errorf("ticket %d holds nothing that muster can read: %w", l.reached, err))
		return
	}
	r.Unfit = plain(r.Unfit, maxReason)
	g := &guest{ticket: ticket{l.reached, r}, until: time.Now().Add(r.Rest)}
	l.guests = append(l.guests, g)
	if r.Unfit != "" {
		l.declined, l.changed = append(l.declined, g.ticket), true
	}
	l.doubt(g.ticket)
	l.learn(r)
	if r.Rest <= 0 && (l.reached > l.doubtful || l.reached == l.node.ticket) {
		l.welcome(g)
	}
}

// welcome counts a guest as here.
func (l *leader) welcome(g *guest) {
	if l.judge(g) {
		l.count(g, true)
	}
}

// count notes that a guest is alive, or is not any more.
func (l *leader) count(g *guest, alive bool) {
	g.alive, l.changed = alive, true
	by := 1
	if !alive {
		by = -1
	}
	l.here += by
	if l.expected(g.ticket) {
		l.members += by
	}
	l.led = l.led || g.Led && l.veteran(g.ticket)
}

// expected reports whether a guest is a member of the world before, and not one that this gave up: who comes back after that is a
// late comer, and takes nobody's place.
func (l *leader) expected(t ticket) bool { return l.veteran(t) && !l.lost[t.Node.Incarnation] }

// veteran reports whether a ticket is that of a member of the world before.
func (l *leader) veteran(t ticket) bool {
	if l.before.world == nil {
		return t.Seen > 0 && t.Seen == l.generation-1
	}
	return l.before.had(t.record)
}

// strike counts the members anew once it is known whom the world before gave up. A member that was cut off takes the leader for
// lost: it is not, when others have heard from it since.
func (l *leader) strike() {
	if l.before.over == nil || l.struck && !(l.led && l.lost[l.before.leader()]) {
		return
	}
	l.struck, l.lost, l.members = true, l.before.lost(), 0
	if l.led {
		delete(l.lost, l.before.leader())
	}
	for _, g := range l.guests {
		if g.alive && l.expected(g.ticket) {
			l.members++
		}
	}
}

func (l *leader) refuse(why error) {
	if l.refused == nil {
		l.refused = why
	}
}

// settle returns the outcome when there is one: a world, or a reason why there can be none.
func (l *leader) settle() *outcome {
	if l.refused != nil {
		return &outcome{Refused: l.refused.Error()}
	}
	if v := l.before.last(l.self); v != nil && !(l.Stays && v.OK() && l.before.alive == 0) { // else agents that stay told of it, and nobody stood by
		return &outcome{Ended: v}
	}
	if end := l.vain(); end != nil {
		return end
	}
	if !l.complete(l.here) {
		return nil
	}
	kept, _ := l.contest()
	if !l.complete(len(kept)) {
		return nil
	}
	return l.close(l.choose(kept))
}

// complete reports whether so many nodes make a world now: all who are expected, or enough of them when they have waited long
// enough for the others.
func (l *leader) complete(count int) bool {
	if count < l.spec.Fewest() || l.beside() && count < l.spec.Nodes {
		l.enough = time.Time{}
		return false
	}
	if l.enough.IsZero() {
		l.enough = time.Now()
	}
	return l.allHere(count) || l.waited() >= l.patience(count)
}

// allHere reports whether nobody else is expected. When the world before said how many of its members come, they are waited for,
// and whoever else is there comes in with them.
func (l *leader) allHere(count int) bool {
	enough := count-l.doubted() >= l.spec.Nodes || count >= l.spec.Nodes+l.spec.Spares
	return !l.absent() && (enough || l.before.expects() > 0)
}

// absent reports whether members of the world before are not here, and may live: as many as it said, or any.
func (l *leader) absent() bool {
	l.strike()
	before := l.previous()
	switch come := l.before.expects(); {
	case come > 0 && len(l.before.over.Lost) > 0:
		return l.members < len(l.before.world.Members)-len(l.lost)
	case come > 0:
		return l.members < come
	case before == nil:
		return false
	}
	here := map[string]bool{}
	for _, g := range l.guests {
		if g.alive {
			for _, id := range identities(g.Node) {
				here[id] = true
			}
		}
	}
	return slices.ContainsFunc(before.Members, func(m job.Member) bool {
		return !slices.ContainsFunc(identities(m.Node), func(id string) bool { return here[id] })
	})
}

// previous is the latest world that is known, whose order of ranks is kept: our own, or one that went on without us; nil: there is none.
func (l *leader) previous() *job.World {
	own, last := l.Previous, l.before.members()
	if own == nil || last != nil && last.Generation > own.Generation {
		return last
	}
	return own
}

// waited is how long the fewest have been here and free to begin.
func (l *leader) waited() time.Duration {
	if l.before.heard.After(l.enough) {
		return time.Since(l.before.heard)
	}
	return time.Since(l.enough)
}

// patience is how long so many nodes wait for more: at least until those who are absent have no workers any more. Where a world is
// full, it is for members of the one before, who have the first claim, or for spares in place of doubtful machines.
func (l *leader) patience(count int) time.Duration {
	rules := l.rules()
	wait := rules.LastCall
	if count >= l.spec.Nodes {
		wait = min(silent, wait)
	}
	if l.absent() {
		wait = max(wait, rules.Fence)
	}
	return max(wait, l.hold(count))
}

// hold is how long so many nodes wait at least where the store may have lost what it knew of the job, with whoever hosted it: members of a world have
// workers then, until they notice. It leaves as much of the time for the meeting as it takes.
func (l *leader) hold(count int) time.Duration {
	if !l.Forgets || l.before.world != nil || l.before.history || count >= l.spec.Nodes {
		return 0
	}
	rules := l.rules()
	wait := rules.Hold()
	if l.Timeout > 0 {
		wait = min(wait, l.Timeout/2)
	}
	return wait
}

// close makes the world of exactly these nodes.
func (l *leader) close(tickets []ticket) *outcome {
	if why := cmp.Or(wide(tickets), idle(tickets), l.unlike(tickets)); why != nil {
		return &outcome{Refused: why.Error()}
	}
	nodes := make([]job.Node, len(tickets))
	for i, t := range tickets {
		nodes[i] = t.Node
	}
	members := assign(nodes, l.previous())
	return &outcome{Protocol: l.oldest(), World: &world{World: job.World{
		ID: l.spec.ID, Nonce: random(), Generation: l.generation, Terms: l.terms(tickets),
		Members: members, Past: l.most(tickets), Rules: l.handsOn(tickets, members[0].Incarnation),
	}}}
}

// oldest is the lowest protocol of those who will read the outcome: members, and those who find no place.
func (l *leader) oldest() int {
	return slices.MinFunc(l.guests, func(a, b *guest) int { return a.Protocol - b.Protocol }).Protocol
}

// most is the tally of whoever knows of the most rounds. Those of which only the store knows did not fail, as far as anybody can say: where all are lost at
// once, restarts are counted anew, and the numbers of rounds go on.
func (l *leader) most(tickets []ticket) job.Tally {
	most := slices.MaxFunc(tickets, func(a, b ticket) int { return a.Past.Rounds - b.Past.Rounds }).Past
	if unknown := l.before.rounds - most.Rounds; unknown > 0 {
		most.Rounds, most.Free = most.Rounds+unknown, most.Free+unknown
	}
	return most
}

func (l *leader) living() []ticket {
	list := make([]ticket, 0, l.here)
	for _, g := range l.guests {
		if g.alive {
			list = append(list, g.ticket)
		}
	}
	return list
}

// publish sets the outcome, and returns the one that stands: another leader may have been first.
func (l *leader) publish(ctx context.Context, end *outcome) (*outcome, error) {
	b, err := encodeOutcome(end)
	if err != nil {
		return nil, err
	}
	stands, err := l.meeting.once(ctx, keyOutcome, b)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(stands, b) {
		l.sayRemarks()
		return end, nil
	}
	return l.read(stands)
}

// tick does what is due each second. It returns an outcome that others have set.
func (l *leader) tick(ctx context.Context) (*outcome, error) {
	l.next = time.Now().Add(beat)
	if err := l.show(ctx); err != nil {
		return nil, err
	}
	b, found, err := l.meeting.peek(ctx, keyOutcome)
	if err != nil {
		return nil, err
	}
	if found {
		return l.read(b)
	}
	if lost, err := l.forgotten(ctx); err != nil {
		return nil, err
	} else if lost {
		return l.publish(ctx, &outcome{Moved: l.generation})
	}
	for _, duty := range []func(context.Context) error{l.before.look, l.hearStays, l.outlived, l.yield, l.roll, l.holes, l.board, l.summarise, l.hearEnd} {
		if err := duty(ctx); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// forgotten reports whether the store came back empty while we met: those who come now meet under another incarnation of it.
func (n *node) forgotten(ctx context.Context) (bool, error) {
	root, life := n.lives().above()
	b, _, err := root.peek(ctx, keyIncarnation)
	return err == nil && string(b) != life, err
}

// yield makes way for a node that took over because it had not heard from us.
func (l *leader) yield(ctx context.Context) error {
	b, found, err := l.meeting.peek(ctx, numbered(keyLeader, l.epoch+1))
	if err != nil || !found {
		return err
	}
	l.epoch++
	l.leader, err = number(keyLeader, b)
	return err
}

// pacing is the first protocol whose nodes keep the leader's pace.
const pacing = 2

// tempo is the pace of a meeting of so many.
func (l *leader) tempo() time.Duration {
	return min(max(beat*time.Duration(l.crowd)/crowded, beat), slowest)
}

// roll calls the roll: whose presence moves, whose stands still, who has left.
func (l *leader) roll(ctx context.Context) error {
	var left []*guest
	for part := range slices.Chunk(l.guests, chunk) {
		values, err := l.presence(ctx, part)
		if err != nil {
			return err
		}
		for i, value := range values {
			if string(value) == gone {
				left = append(left, part[i])
			}
			l.hear(part[i], string(value))
		}
	}
	l.guests = slices.DeleteFunc(l.guests, func(g *guest) bool { return slices.Contains(left, g) })
	return nil
}

// presence reads the keys of some guests.
func (l *leader) presence(ctx context.Context, guests []*guest) ([][]byte, error) {
	keys := make([]string, len(guests))
	for i, g := range guests {
		keys[i] = l.meeting.prefix + numbered(keyPresence, g.number)
	}
	return l.soon(ctx, keyPresence, keys)
}

// hear judges a guest by its latest sign.
func (l *leader) hear(g *guest, sign string) {
	if g.Protocol >= pacing {
		g.pace = l.tempo()
	}
	moved := !g.moved.IsZero() && sign != g.last
	quiet := g.silent(sign) || sign == gone
	switch {
	case g.alive && quiet:
		l.count(g, false)
	case !g.alive && moved && !quiet && !time.Now().Before(g.until):
		l.welcome(g)
	}
}

// drawn is how many tickets were drawn at a time.
type drawn struct {
	most int
	at   time.Time
}

// knows notes how many are: each that has no record has its own time for it, or of many holes each would wait for the one before.
func (l *leader) knows(most int) {
	l.crowd = max(l.crowd, most)
	if n := len(l.drawn); most > l.reached && (n == 0 || most > l.drawn[n-1].most) {
		l.drawn = append(l.drawn, drawn{most, time.Now()})
	}
}

// hole reports whether the next ticket was drawn, and since when it is known to be.
func (l *leader) hole() (since time.Time, is bool) {
	for len(l.drawn) > 0 && l.drawn[0].most <= l.reached {
		l.drawn = l.drawn[1:]
	}
	if len(l.drawn) == 0 {
		return time.Time{}, false
	}
	return l.drawn[0].at, true
}

// grace is how long the record of a ticket that was drawn may take to come. Where a node drew without being told which, it is only as long as those need
// that are on their way; if one of them is taken for it all the same it draws another one.
func (l *leader) grace() time.Duration {
	if l.voids < l.untold {
		return beat
	}
	return silent
}

// overdue reports whether the record of the next ticket did not come: its node died, or never learned of its draw.
func (l *leader) overdue() bool {
	since, hole := l.hole()
	return hole && time.Since(since) >= l.grace()
}

// fill declares the next ticket void, unless its record comes just now.
func (l *leader) fill(ctx context.Context) error {
	since, _ := l.hole()
	long := time.Since(since) >= silent
	b, err := l.meeting.once(ctx, numbered(keyTicket, l.reached+1), []byte(void))
	if err != nil {
		return err
	}
	l.take(b)
	if long && string(b) == void { // rather that of a node which died than of one that says so
		l.voids--
	}
	return nil
}

// holes looks for tickets whose records did not come.
func (l *leader) holes(ctx context.Context) error {
	n, err := l.meeting.add(ctx, keyTickets, 0)
	if err != nil {
		return err
	}
	l.knows(int(n))
	if _, hole := l.hole(); !hole {
		return nil
	}
	untold, err := l.meeting.add(ctx, keyUntold, 0)
	l.untold = max(l.untold, int(untold))
	return err
}

// summarise tells the others, in one bounded key, and ourselves. A node that was replaced learns by whom.
func (l *leader) summarise(ctx context.Context) error {
	if l.leader != l.node.ticket {
		return nil
	}
	kept, byWhom := l.contest()
	if by, ok := byWhom[l.node.ticket]; ok {
		return &Excluded{Reason: taken(l.spec.Self, by.String()), Replaced: true}
	}
	l.beats++
	s := l.tally(kept)
	b, err := json.Marshal(summary{
		Epoch: l.epoch, Beat: l.beats, Here: s.Here, Count: s.Count, Waits: l.here, Missing: s.Missing, Replaced: some(byWhom), Barred: l.barred(),
		Closes: s.Closes, New: s.New, Running: s.Running, Alive: s.Alive, Quiet: s.Quiet,
		Unsaid: s.Unsaid, UnsaidFor: s.UnsaidFor, Others: s.Others, Pace: l.tempo(), Unfit: s.Unfit,
	})
	if err != nil {
		return err
	}
	l.announce(s)
	return l.meeting.put(ctx, keySummary, b)
}

// some bounds the list of replaced nodes; who is left out learns it from the next summary, or from the world.
func some(byWhom map[int]ticket) map[int]string {
	list := map[int]string{}
	for _, number := range slices.Backward(slices.Sorted(maps.Keys(byWhom))) {
		if len(list) < shown {
			list[number] = byWhom[number].String()
		}
	}
	return list
}

// report tells ourselves between the beats, when somebody came. A node whose place was taken is not kept waiting.
func (l *leader) report() {
	if !l.changed || time.Since(l.told) < calm {
		return
	}
	kept, byWhom := l.contest()
	l.announce(l.tally(kept))
	if len(byWhom) > l.overtaken {
		l.next = time.Now()
	}
	l.overtaken = len(byWhom)
}

func (l *leader) announce(s Status) {
	l.told, l.changed = time.Now(), false
	l.tell(s)
}

// tally says who is here, who is missing as far as indices tell, and what may be the reason.
func (l *leader) tally(kept []ticket) Status {
	kept = slices.DeleteFunc(kept, l.second)
	s := Status{Count: len(kept), Expected: l.spec.Nodes, Fewest: l.spec.Fewest(), Others: l.others(),
		Running: l.before.running(), Alive: l.before.alive, Quiet: l.before.quiet()}
	if !l.enough.IsZero() && s.Running == 0 {
		patience := l.patience(s.Count)
		s.Closes = max(patience-l.waited(), 0).Round(time.Second)
		s.New = s.Closes > 0 && patience > l.rules().LastCall && patience == l.hold(s.Count)
	}
	if since, hole := l.hole(); hole && time.Since(since) >= 2*beat {
		s.Unsaid, s.UnsaidFor = l.reached+1, time.Since(since).Truncate(time.Second)
	}
	unfit, _ := l.unfit()
	s.Unfit = reasons(unfit)
	have := make(map[int]bool, len(kept))
	for _, t := range kept {
		if len(s.Here) < shown {
			s.Here = append(s.Here, t.Node.String())
		}
		have[t.Node.Index] = true
	}
	for i := 0; i < l.spec.Nodes && len(s.Missing) < shown && !have[-1]; i++ {
		if !have[i] {
			s.Missing = append(s.Missing, i)
		}
	}
	return s
}
