package heartbeat

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"

	"github.com/muster-run/muster/job"
)

// A view is a world that stands still, as it looks at one moment. Its class is 0 when that need not be a hang.
type view struct {
	Finding

	busy bool // who is blamed is at work, or may be
	late bool // it looks the same at the end of a job, or while an accelerator works
	over bool // the scripts of all who are blamed have ended: what a process does at its end takes as long as it takes
	gone bool // all who are blamed have ended themselves, and what the others wait in needs them: nobody will come, however long one waits
}

// key tells views apart that people are to be told of. Why a standstill cannot be judged changes all the time: one reason will do.
func (v view) key() string {
	s := v.Class
	for _, c := range v.Culprits {
		s += fmt.Sprintf(" %d", c.Rank)
	}
	return s
}

// A wait is one rank inside one collective, or call.
type wait struct {
	rank int
	lane *job.Lane
}

// number is that of the oldest collective in which the rank waits.
func (w wait) number() uint64 { return w.lane.Completed + 1 }

// joins reports whether the rank makes a group with all others. It asks for them again and again meanwhile.
func (w wait) joins() bool {
	return w.lane.Group == 0 && (w.lane.Op == "init_process_group" || w.lane.Op == "new_group")
}

// A crowd is the ranks of a world, told apart by what they wait for.
type crowd struct {
	waits      []wait            // but for those beside which a rank goes on, if there are others
	free, mute []int             // who waits for nobody, and who tells nothing
	last       map[uint64]wait   // by group, the highest number that is waited for,
	least      map[uint64]uint64 // and how many collectives every member has entered
	absent     map[uint64]int    // by group, members that have never used it
	computes   bool              // somebody inside a call may do something there
	nexts      map[point]wait    // what next has found
}

// crowd tells who waits in a collective, who does not, and who tells nothing. beside: also those count beside which ranks went on, in another thread.
func (j *Judge) crowd(beside bool) crowd {
	c := crowd{waits: make([]wait, 0, len(j.ranks)), last: map[uint64]wait{}, least: map[uint64]uint64{}, absent: map[uint64]int{}, nexts: map[point]wait{}}
	front, mixed := j.front(), j.mixed()
	var ready []int
	for _, rank := range j.sorted() {
		b := j.ranks[rank].beat
		n := len(c.waits)
		for i := range b.Lanes {
			lane := &b.Lanes[i]
			if mixed[lane.Group] && !lane.Mixed {
				copied := *lane
				lane, copied.Mixed = &copied, true
			}
			if j.stale(rank) && lane.Completed+1 < front[lane.Group] {
				copied := *lane
				lane, copied.Completed = &copied, copied.Entered
			}
			c.note(wait{rank, lane}, !beside && j.ranks[rank].beside(lane))
			c.computes = c.computes || lane.Group == 0 && lane.Waits() && j.runs(rank)
		}
		switch {
		case b.Sources == 0 && !b.Over: // at its end it has no groups any more
			c.mute = append(c.mute, rank)
		case len(c.waits) > n:
		case b.Sources == job.Ready && !b.Over:
			ready = append(ready, rank)
		default:
			c.free = append(c.free, rank)
		}
	}
	c.sort(ready)
	return c
}

// sort tells of ranks that were in nothing so far whether that is what others wait for, or nobody knows what they do.
func (c *crowd) sort(ready []int) {
	into := &c.mute
	if slices.ContainsFunc(c.waits, func(w wait) bool { return c.absent[w.lane.Group] > 0 || w.joins() }) {
		into = &c.free
	}
	*into = append(*into, ready...)
	slices.Sort(*into)
}

// front is the highest number that is waited for in each group.
func (j *Judge) front() map[uint64]uint64 {
	front := map[uint64]uint64{}
	for _, t := range j.ranks {
		for _, lane := range t.beat.Lanes {
			if lane.Waits() {
				front[lane.Group] = max(front[lane.Group], lane.Completed+1)
			}
		}
	}
	return front
}

// mixed are the groups through which any member sends and receives.
func (j *Judge) mixed() map[uint64]bool {
	mixed := map[uint64]bool{}
	for _, t := range j.ranks {
		for _, lane := range t.beat.Lanes {
			if lane.Mixed {
				mixed[lane.Group] = true
			}
		}
	}
	return mixed
}

// stale reports whether a rank's counters are of the past: it runs, and its helper thread does not get to read them. What the others have
// completed it is not in any more.
func (j *Judge) stale(rank int) bool {
	t := j.ranks[rank]
	return t.beat.Sight != nil && t.beat.Sight.Held && t.halted() == ""
}

func (c *crowd) note(w wait, aside bool) {
	g := w.lane.Group
	if _, known := c.absent[g]; !known {
		c.absent[g] = w.lane.Members
	}
	c.absent[g]--
	if least, known := c.least[g]; !known || w.lane.Entered < least {
		c.least[g] = w.lane.Entered
	}
	if !w.lane.Waits() || aside {
		return
	}
	c.waits = append(c.waits, w)
	if last, known := c.last[g]; !known || last.number() < w.number() {
		c.last[g] = w
	}
}

// someGone reports whether a group that is waited in has more members than there are ranks which run, or have ended.
func (c *crowd) someGone(run int, ended []int) bool {
	for _, w := range c.last {
		if w.lane.Members > run+len(ended) {
			return true
		}
	}
	return false
}

// incomplete reports whether somebody has not entered what this rank waits in. Calls cannot be matched, nor numbers that mean something else
// to each member.
func (c *crowd) incomplete(w wait) bool {
	g := w.lane.Group
	return g != 0 && !w.lane.Mixed && (c.least[g] < w.number() || c.absent[g] > 0)
}

// left reports whether all who run have entered what this rank waits in, and somebody has ended who was in its group before.
func (c *crowd) left(w wait, run int, ended []int) bool {
	g := w.lane.Group
	known := w.lane.Completed > 0 || run+len(ended) == w.lane.Members
	return known && g != 0 && c.least[g] >= w.number() && 0 < c.absent[g] && c.absent[g] <= len(ended)
}

// calls are those that ranks are inside.
func (c *crowd) calls() (names []string) {
	for _, w := range c.waits {
		if w.lane.Group == 0 && w.lane.Op != "" && !slices.Contains(names, w.lane.Op) {
			names = append(names, w.lane.Op)
		}
	}
	return names
}

// view classifies a standstill.
func (j *Judge) view(l Look) view {
	c := j.crowd(false)
	if len(c.waits) == 0 {
		c = j.crowd(true)
	}
	switch {
	case len(c.waits) == 0 && len(c.free) == 0:
		return unclear("no rank has heartbeats" + j.whyMute(c.mute))
	case len(c.waits) == 0:
		return j.nobodyWaits(l)
	}
	if v, ok := j.unlike(c); ok {
		return v
	}
	if v, ok := j.uneven(c); ok {
		return v
	}
	if v, ok := j.absent(c, l.Ended); ok {
		return v
	}
	if len(c.mute) > 0 {
		return unclear(fmt.Sprintf("rank %d, which has no heartbeats, may be the one that is waited for%s", c.mute[0], j.whyMute(c.mute)))
	}
	if c.someGone(len(j.ranks), l.Ended) {
		return unclear("ranks that the others wait for do not run")
	}
	if v, ok := j.outside(c); ok {
		return v
	}
	if v, ok := j.circle(c); ok {
		return v
	}
	if v, ok := j.calling(c); ok {
		return v
	}
	return j.together(c)
}

func unclear(why string) view { return view{Finding: Finding{Why: why}} }

func (j *Judge) whyMute(mute []int) string {
	for _, r := range mute {
		if why := j.ranks[r].beat.Mute; why != "" {
			return ": " + why
		}
	}
	return ""
}

// nobodyWaits judges a world in which nobody is in a collective. If anybody works it trains by other means than those that are
// counted, such as replayed graphs, or it evaluates; nobody can tell from outside.
func (j *Judge) nobodyWaits(l Look) view {
	over, stores := !j.any(func(b *job.Beat) bool { return !b.Over }), false
	unclear := func(why string) view { return view{Finding: Finding{Why: why}, over: over} }
	for _, rank := range j.sorted() {
		t := j.ranks[rank]
		what := t.work()
		switch {
		case t.stores() && (t.halted() != "" || t.idle()):
			stores = true
		case t.halted() != "": // it does nothing for sure
		case what == nil:
			return unclear(fmt.Sprintf("no rank is in a collective, and what rank %d does cannot be seen", rank))
		case *what != "":
			return unclear(fmt.Sprintf("no rank is in a collective, and rank %d is %s", rank, *what))
		}
	}
	v := view{Finding: Finding{Hang: job.Hang{Class: Starved, Done: len(l.Ended)}}, busy: stores, late: len(l.Ended) > 0 || j.limits.GPUs, over: true}
	for _, rank := range j.sorted() {
		v.blame(j.culprit(rank))
		v.late = v.late || j.ranks[rank].ending()
	}
	slices.SortStableFunc(v.Culprits, func(a, b job.Culprit) int { // who cannot run at all says most, and who is at its end least
		return cmp.Compare(j.running(a.Rank), j.running(b.Rank))
	})
	return v.uncounted()
}

// uncounted looks at where the ranks are that are in no collective by their counters: some do communicate, by means that are not counted,
// such as receiving from a pipeline's stage before. Then it is not input that is waited for, but those who do not.
func (v view) uncounted() view {
	var others []job.Culprit
	inside := 0
	for _, c := range v.Culprits {
		switch {
		case slices.ContainsFunc(c.Stack, func(line string) bool { return strings.HasPrefix(line, "torch/distributed/distributed_c10d.py:") }):
			inside++
		case len(c.Stack) > 0 || c.Halted:
			others = append(others, c)
		}
	}
	switch {
	case inside > 0 && len(others) > 0:
		v.Class, v.Culprits, v.Waiting, v.over = Absent, others, inside, false
	case inside > 0 && inside == len(v.Culprits):
		v.Class, v.Culprits, v.Waiting, v.over = Network, nil, inside, false
	}
	return v
}

func (j *Judge) running(rank int) int {
	switch t := j.ranks[rank]; {
	case t != nil && t.halted() != "":
		return 0
	case t != nil && t.ending():
		return 2
	}
	return 1
}

// ending reports whether a rank's process is on its way to its end, and may come there.
func (t *track) ending() bool { return t.beat.Over && t.halted() == "" }

// blame adds a culprit.
func (v *view) blame(c job.Culprit) {
	v.over = v.over && c.Over != "" && !c.Halted
	v.Culprits = append(v.Culprits, c)
}

// absent blames those who have not entered what others wait in, and wait for nobody themselves: they hold all the others up. If
// all wait for those who have ended, it is them.
func (j *Judge) absent(c crowd, ended []int) (view, bool) {
	v := view{Finding: Finding{Hang: job.Hang{Class: Absent, Waiting: count(c.waits)}}, over: true}
	for _, rank := range c.free {
		w, missed := j.missed(rank, c)
		if !missed {
			continue
		}
		v.in(w)
		if len(v.Culprits) == 0 && len(c.in(w.point())) < v.Waiting {
			v.Ops = c.places()
		}
		v.busy = v.busy || j.runs(rank) || j.ranks[rank].ending()
		v.blame(j.culprit(rank))
	}
	if w, left := c.forsaken(len(j.ranks), ended); left && len(v.Culprits)+len(c.free)+len(c.mute) == 0 {
		v.in(w)
		for _, rank := range ended {
			v.blame(j.culprit(rank))
		}
		v.gone = !slices.ContainsFunc(v.Culprits, func(c job.Culprit) bool { return !c.Ended }) && c.needs(w, len(j.ranks), ended)
	}
	return v, len(v.Culprits) > 0
}

// forsaken finds what is waited in for those who have ended.
func (c *crowd) forsaken(run int, ended []int) (wait, bool) {
	i := slices.IndexFunc(c.waits, func(w wait) bool { return c.left(w, run, ended) })
	if i < 0 {
		return c.waits[0], len(ended) > 0 && !slices.ContainsFunc(c.waits, c.incomplete)
	}
	return c.waits[i], true
}

// needs reports whether what a rank waits in does not come to an end without those who have ended. Of other calls than those which make a group
// with all nobody knows: who is inside one may compile there, and need nobody.
func (c *crowd) needs(w wait, run int, ended []int) bool { return w.joins() || c.left(w, run, ended) }

// missed is what others wait in and a rank that is in no collective has not entered. Calls cannot be matched: who is in none
// is missing, if those who are in one do nothing but wait.
func (j *Judge) missed(rank int, c crowd) (wait, bool) {
	for _, lane := range j.ranks[rank].beat.Lanes {
		w, waited := c.last[lane.Group]
		if waited && lane.Group != 0 && !w.lane.Mixed && lane.Entered < w.number() {
			return c.next(lane), true
		}
	}
	for g, w := range c.last {
		if g != 0 && c.absent[g] > 0 && !j.ranks[rank].in(g) {
			return w, true
		}
	}
	w, waited := c.last[0]
	return w, waited && (!c.computes || w.joins())
}

// next is what others wait in that who is as far as a lane has to enter first, if it is waited for. Many are as far as one another.
func (c *crowd) next(lane job.Lane) wait {
	from := point{lane.Group, lane.Entered}
	if next, known := c.nexts[from]; known {
		return next
	}
	var next wait
	for _, w := range c.waits {
		if w.lane.Group == lane.Group && lane.Entered < w.number() && (next.lane == nil || w.number() < next.number()) {
			next = w
		}
	}
	c.nexts[from] = next
	return next
}

// in reports whether a rank has ever used a group.
func (t *track) in(group uint64) bool {
	return slices.ContainsFunc(t.beat.Lanes, func(l job.Lane) bool { return l.Group == group })
}

// runs reports whether a rank may be at work.
func (j *Judge) runs(rank int) bool {
	t := j.ranks[rank]
	return t.stores() || t.halted() == "" && !t.idle()
}

// in notes what is waited in, which is the first that is found.
func (v *view) in(w wait) {
	if v.Op == "" && v.Number == 0 {
		if v.Op = w.lane.Op; !ofAll(*w.lane) {
			v.Group = w.lane.Name
		}
		if w.lane.Group != 0 && !w.lane.Mixed {
			v.Number = w.number()
		}
	}
}

// thing names what is waited in.
func thing(w wait) string {
	var v view
	v.in(w)
	return v.it()
}

// outside blames those who are in nothing, and have entered as much as the others in their group who wait. Some backends number sends and
// receives among the collectives, so that numbers say nothing of what is waited in; but these are in none.
func (j *Judge) outside(c crowd) (view, bool) {
	v := view{Finding: Finding{Hang: job.Hang{Class: Absent, Waiting: count(c.waits)}}, over: true}
	for _, rank := range c.free {
		if j.shares(rank, c) && !j.past(rank, c) {
			v.busy = v.busy || j.runs(rank) || j.ranks[rank].ending()
			v.blame(j.culprit(rank))
		}
	}
	if len(v.Culprits) > 0 && c.computes {
		return unclear(fmt.Sprintf("rank %d is in no collective, and others compute in theirs", v.Culprits[0].Rank)), true
	}
	return v, len(v.Culprits) > 0
}

// past reports whether a rank has just been through all that is waited for in its groups. Who has counted far more may have counted something else.
func (j *Judge) past(rank int, c crowd) bool {
	t := j.ranks[rank]
	return !t.beat.Over && t.halted() == "" && !slices.ContainsFunc(t.beat.Lanes, func(l job.Lane) bool {
		w, waited := c.last[l.Group]
		return waited && (l.Mixed || w.lane.Mixed || l.Completed != w.number())
	})
}

// shares reports whether a rank is of a group in which others wait.
func (j *Judge) shares(rank int, c crowd) bool {
	return slices.ContainsFunc(j.ranks[rank].beat.Lanes, func(l job.Lane) bool {
		_, waited := c.last[l.Group]
		return waited && l.Group != 0 && (l.Entered > 0 || l.Mixed)
	})
}

// unlike finds ranks that wait under the same number of the same group for different things.
func (j *Judge) unlike(c crowd) (view, bool) {
	kinds, torn := map[point]kind{}, map[point]bool{}
	for _, w := range c.waits {
		if k := w.kind(); k != (kind{}) {
			first, known := kinds[w.point()]
			if !known {
				kinds[w.point()] = k
			} else if k != first {
				torn[w.point()] = true
			}
		}
	}
	for _, w := range c.waits {
		if torn[w.point()] {
			return j.torn(w, c.at(w.point())), true
		}
	}
	return view{}, false
}

// A point is where all members of a group must do the same.
type point struct{ group, number uint64 }

func (w wait) point() point { return point{w.lane.Group, w.number()} }

// A kind is what must be alike. The sizes of what is gathered or exchanged may differ from rank to rank.
type kind struct {
	op    string
	bytes uint64
}

// kind is that of what the rank waits in; empty where it is not known.
func (w wait) kind() kind {
	l := w.lane
	if l.Group == 0 || l.Op == "" || l.Mixed {
		return kind{}
	}
	if strings.Contains(l.Op, "all_reduce") || strings.Contains(l.Op, "allreduce") {
		return kind{l.Op, l.Bytes}
	}
	return kind{op: l.Op}
}

// mark is a number for a kind, as the hook has it: who waits tells with it of which kind the one before was.
func (k kind) mark() uint16 {
	return max(uint16(crc32.ChecksumIEEE(fmt.Appendf(nil, "%s %d", k.op, k.bytes))), 1)
}

func (k kind) String() string {
	if k.bytes > 0 {
		return fmt.Sprintf("%s of %d bytes", k.op, k.bytes)
	}
	return k.op
}

// uneven finds a collective in which some wait that was of another kind to some who have left it: whoever moves less in all_reduce may come to its end.
func (j *Judge) uneven(c crowd) (view, bool) {
	type leaving struct {
		rank int
		mark uint16
	}
	through := map[point][]leaving{}
	for _, rank := range j.sorted() {
		for _, l := range j.ranks[rank].beat.Lanes {
			if p := (point{l.Group, l.Completed}); l.Mark != 0 && !l.Mixed {
				through[p] = append(through[p], leaving{rank, l.Mark})
			}
		}
	}
	for _, w := range c.waits {
		k := w.kind()
		if k == (kind{}) || len(through[w.point()]) == 0 || c.incomplete(w) {
			continue
		}
		var left []int
		for _, l := range through[w.point()] {
			if l.mark != k.mark() {
				left = append(left, l.rank)
			}
		}
		if delete(through, w.point()); len(left) > 0 {
			found := c.at(w.point())
			found[fmt.Sprintf("through with #%d, of another kind or size there", w.number())] = left
			return j.torn(w, found), true
		}
	}
	return view{}, false
}

// through are the members that have just come through what a rank waits in.
func (j *Judge) through(w wait) (left []int) {
	for _, rank := range j.sorted() {
		if slices.ContainsFunc(j.ranks[rank].beat.Lanes, func(l job.Lane) bool {
			return l.Group == w.lane.Group && !l.Mixed && !w.lane.Mixed && l.Completed == w.number()
		}) {
			left = append(left, rank)
		}
	}
	return left
}

// at is who waits in what at one point.
func (c *crowd) at(p point) map[string][]int {
	found := map[string][]int{}
	for _, w := range c.waits {
		if k := w.kind(); k != (kind{}) && w.point() == p {
			name := fmt.Sprintf("in %v #%d", k, p.number)
			found[name] = append(found[name], w.rank)
		}
	}
	return found
}

// in are those who wait at one point.
func (c *crowd) in(p point) (all []int) {
	for _, w := range c.waits {
		if w.point() == p {
			all = append(all, w.rank)
		}
	}
	return all
}

// torn is the view of ranks that are in different things; if few of them are unlike the rest, they are to blame.
func (j *Judge) torn(w wait, found map[string][]int) view {
	v := view{Finding: Finding{Hang: job.Hang{Class: Desync, Waiting: len(j.ranks)}}}
	v.in(w)
	kinds := slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		return cmp.Or(len(found[a])-len(found[b]), found[a][0]-found[b][0])
	})
	for _, kind := range kinds[:min(len(kinds), 2*maxNamed)] {
		v.Ops = append(v.Ops, ranks(found[kind])+" "+kind)
	}
	if len(kinds) == 1 || len(found[kinds[0]]) == len(found[kinds[1]]) {
		return v
	}
	for _, rank := range found[kinds[0]] {
		v.Culprits = append(v.Culprits, j.culprit(rank))
	}
	return v
}

// circle finds ranks that all wait, each for one that has not entered what it waits in.
func (j *Judge) circle(c crowd) (view, bool) {
	found, behind := map[string][]int{}, map[int]bool{}
	for _, w := range c.waits {
		if c.incomplete(w) && !behind[w.rank] {
			behind[w.rank] = true
			found["in "+thing(w)] = append(found["in "+thing(w)], w.rank)
		}
	}
	if len(behind) < len(j.ranks) || len(found) < 2 {
		return view{}, false
	}
	v := j.torn(c.waits[0], found)
	v.busy = slices.ContainsFunc(c.waits, func(w wait) bool { return w.lane.Host && j.runs(w.rank) }) // another thread of it may be what the others wait for
	return v, true
}

// calling blames the few who send or receive, and have not entered the one collective in which all others wait. Where more do, as in a pipeline, or the
// network holds data back, nobody knows who was first.
func (j *Judge) calling(c crowd) (view, bool) {
	in := c.transferring()
	w, one := c.only(in)
	v := view{Finding: Finding{Hang: job.Hang{Class: Absent, Waiting: count(c.waits) - len(in)}}, over: true}
	if !one || len(in) == 0 || v.Waiting <= len(in) || v.Waiting+len(in) < len(j.ranks) {
		return view{}, false
	}
	for _, t := range j.ranks {
		if t.halted() != "" || t.moves() || t.beat.Sight != nil && len(t.beat.Sight.Stuck) > 0 {
			return view{}, false
		}
	}
	v.in(w)
	for _, rank := range in {
		behind := func(l job.Lane) bool { return l.Group == w.lane.Group && l.Entered < w.number() }
		if !slices.ContainsFunc(j.ranks[rank].beat.Lanes, behind) {
			return view{}, false
		}
		v.busy = v.busy || j.runs(rank)
		v.blame(j.culprit(rank))
	}
	return v, true
}

// transferring are those who send or receive, and wait in nothing else.
func (c *crowd) transferring() (in []int) {
	elsewhere := map[int]bool{}
	for _, w := range c.waits {
		if w.lane.Group != 0 || !(Finding{Hang: job.Hang{Op: w.lane.Op}}).transfers() {
			elsewhere[w.rank] = true
		}
	}
	for _, w := range c.waits {
		if !elsewhere[w.rank] && !slices.Contains(in, w.rank) {
			in = append(in, w.rank)
		}
	}
	return in
}

// only is what all but these ranks wait in, if that is one collective which somebody has not entered.
func (c *crowd) only(but []int) (only wait, one bool) {
	for _, w := range c.waits {
		switch {
		case slices.Contains(but, w.rank):
		case !c.incomplete(w), one && w.point() != only.point():
			return wait{}, false
		default:
			only, one = w, true
		}
	}
	return only, one
}

// places are who waits in what, where that is more than one thing.
func (c *crowd) places() (all []string) {
	var names []string
	inside := map[string][]int{}
	for _, w := range c.waits {
		name := thing(w)
		if inside[name] == nil {
			names = append(names, name)
		}
		inside[name] = append(inside[name], w.rank)
	}
	for _, name := range names[:min(len(names), 2*maxNamed)] {
		all = append(all, ranks(inside[name])+" in "+name)
	}
	if len(names) < 2 {
		return nil
	}
	return all
}

// together judges a world whose ranks all are in what they wait for.
func (j *Judge) together(c crowd) view {
	w := slices.MinFunc(c.waits, c.behind)
	v := view{Finding: Finding{Hang: job.Hang{Class: Network, Waiting: c.inside(w.lane.Group)}}}
	v.in(w)
	if w.lane.Group == 0 {
		v.Op, v.Ops = strings.Join(c.calls(), " or "), c.places()
	} else if left := j.through(w); len(left) > 0 {
		in := c.in(w.point())
		v.Waiting, v.Ops = len(in), []string{fmt.Sprintf("%s in it, %s through with it", ranks(in), ranks(left))}
	}
	v.busy = slices.ContainsFunc(c.free, j.runs) // who has come through it may be what the others wait for
	for _, rank := range j.sorted() {
		t := j.ranks[rank]
		if t.halted() != "" && !t.stores() {
			v.Culprits = append(v.Culprits, j.culprit(rank))
		}
		if s := t.beat.Sight; s != nil {
			for _, peer := range s.Stuck {
				v.Stuck = append(v.Stuck, fmt.Sprintf("rank %d to %s", rank, peer))
			}
		}
		if w.lane.Group == 0 && j.runs(rank) {
			in := fmt.Sprintf("%d ranks are in %s", v.Waiting, cmp.Or(v.Op, "a call"))
			if len(v.Ops) > 0 {
				in = strings.Join(v.Ops, "; ")
			}
			return unclear(fmt.Sprintf("%s, and rank %d is at work", in, rank))
		}
		if t.moves() {
			return unclear(fmt.Sprintf("%d ranks are in %s, and rank %d still sends or receives", v.Waiting, v.it(), rank))
		}
	}
	if n := len(v.Culprits); n > 0 && n < len(j.ranks) {
		v.Class = Odd
		return v
	}
	v.Culprits = nil
	begun, queued := c.onAccelerators(w)
	if begun > 0 && len(queued) > 0 {
		for _, rank := range queued {
			v.Culprits = append(v.Culprits, j.culprit(rank))
			v.Culprits[len(v.Culprits)-1].Queued = true
		}
		v.Class, v.busy = Odd, true
		return v
	}
	v.late = j.limits.GPUs // what was queued behind a long kernel looks the same
	v.Kernels = v.late && w.lane.Group != 0 && !w.lane.Mixed && begun < v.Waiting
	return v
}

// onAccelerators is how many of those who wait in the same as w have begun it on their accelerators, and who has it queued there, behind no
// collective.
func (c *crowd) onAccelerators(w wait) (begun int, queued []int) {
	inAnother := map[int]bool{}
	for _, other := range c.waits {
		inAnother[other.rank] = inAnother[other.rank] || other.lane.Begun && other.point() != w.point()
	}
	for _, other := range c.waits {
		switch {
		case other.point() != w.point() || other.lane.Mixed:
		case other.lane.Begun:
			begun++
		case other.lane.Queued && !inAnother[other.rank]:
			queued = append(queued, other.rank)
		}
	}
	return begun, queued
}

// behind compares what two ranks wait in by which of it holds the others up: collectives that all members have entered, then calls, such as
// receiving from somebody, and then those that who is in something else has not entered; the least number of each.
func (c *crowd) behind(a, b wait) int {
	kind := func(w wait) int {
		switch {
		case w.lane.Group == 0:
			return 1
		case w.lane.Mixed || c.incomplete(w):
			return 2
		}
		return 0
	}
	return cmp.Or(cmp.Compare(kind(a), kind(b)), cmp.Compare(a.number(), b.number()))
}

// inside is how many ranks wait in a group.
func (c *crowd) inside(group uint64) int {
	return count(slices.DeleteFunc(slices.Clone(c.waits), func(w wait) bool { return w.lane.Group != group }))
}

// culprit describes a rank.
func (j *Judge) culprit(rank int) job.Culprit {
	t := j.ranks[rank]
	if t == nil {
		return job.Culprit{Rank: rank, Ended: true, Well: !j.limits.Foreign}
	}
	c := job.Culprit{Rank: rank, PID: t.beat.PID, Halted: t.halted() != "", Looks: t.appearance(), Stack: t.beat.Stack}
	switch {
	case t.beat.Over:
		c.Over = t.beat.Mute
	case t.beat.Mute == job.Parted && c.Looks != "":
		c.Looks += "; " + job.Parted
	case t.beat.Mute == job.Parted:
		c.Looks = job.Parted
	}
	if t.beat.Sight != nil {
		c.File, c.Kernel = t.beat.Sight.File, c.Halted && t.beat.Sight.State == 'D'
	}
	return c
}

// count is how many ranks wait.
func count(waits []wait) int {
	n, last := 0, -1
	for _, w := range waits {
		if w.rank != last {
			n, last = n+1, w.rank
		}
	}
	return n
}

// ranks names some.
func ranks(rs []int) string {
	if len(rs) == 1 {
		return fmt.Sprintf("rank %d", rs[0])
	}
	shown := fmt.Sprint(rs[:min(len(rs), 2*maxNamed)])
	s := "ranks " + strings.ReplaceAll(strings.Trim(shown, "[]"), " ", ", ")
	if more := len(rs) - 2*maxNamed; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}
