package launcher

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-run/muster/job"
)

// This file is the judgement of who takes part: what follows when nodes are lost, or wait to join. Like that of all else it is
// pure. A world does not change: its nodes leave it, when none of its workers is left, and meet again for the next one.
//
//	leader: ── a node is lost, or others wait ──▶ stopping ── all clear, and the fence is over ──▶ meet, tell all ── they left ──▶ meeting
//	member: ── the leader says so ──▶ meeting
//	        ── the leader is lost ──▶ stopping ── clear, and the fence is over ──▶ meeting

// When late comers are let into a world that is not full.
const (
	joinNow       = "now"
	joinAtRestart = "at-restart"
	joinNever     = "never"
)

// fenceMargin is for what a node that is cut off needs beyond the time in which it stops its workers: the sides notice
// a second apart that they do not hear each other, and the kernel ends processes.
const fenceMargin = 4 * time.Second

// fence is how long workers may live on a node that lost its leader, from their last word to each other, or their last work with each other.
func (p policy) fence() time.Duration { return p.nodeTimeout() + p.StopTimeout + fenceMargin }

// nodeTimeout is the silence after which a node is given up, and for which an agent gives its word.
func (p policy) nodeTimeout() time.Duration { return cmp.Or(p.NodeTimeout, job.NodeTimeout) }

// leaveTime is for members to leave beyond what their workers may take to stop, or to be given up.
func (p policy) leaveTime() time.Duration { return max(job.NodeTimeout, p.nodeTimeout()) }

// fateTime is for a node that is suspect, after 3 s, to be heard or given up.
func (p policy) fateTime() time.Duration { return p.nodeTimeout() - 2*time.Second }

// met begins a world. What was of another one is forgotten, but for what a verdict tells.
func (s *state) met(p policy, e met) []any {
	if s.turn(e.World, e.Of); e.Waited > 0 && s.Nodes == nil {
		s.Marks.From = s.Now - e.Waited
	}
	*s = state{Marks: s.Marks, Laps: s.Laps, Older: s.Older, Turns: s.Turns, Alarms: s.Alarms, Peak: s.Peak, Charge: s.brought(), Was: s.Generation, Now: s.Now, Self: e.Self, Generation: e.Generation, Past: s.Past, CtrlC: s.CtrlC, Blame: s.Blame, Flaps: s.Flaps, Idle: s.Idle, Policy: s.Policy, Timeout: s.Timeout, Ailing: s.Ailing,
		Round: max(e.Past.Rounds, 0), Free: min(max(e.Past.Free, 0), max(e.Past.Rounds, 0))}
	if s.fresh = e.fresh; s.fresh == nil {
		s.fresh = freshNodes(e.Nodes, e.IDs)
	}
	s.Nodes = s.fresh
	s.edit(s.Self).Machine = e.Machine
	todo := s.isHere(p)
	if s.leads() {
		todo = append(todo, s.charged(p, s.Charge)...)
	}
	if !s.leads() || e.Hold {
		return todo
	}
	return append(todo, open{})
}

// freshNodes are those of a world that begins.
func freshNodes(names, ids []string) []*node {
	all, fresh := make([]node, len(names)), make([]*node, len(names))
	for i, name := range names {
		all[i] = node{Name: name, ID: name}
		if i < len(ids) {
			all[i].ID = ids[i]
		}
		fresh[i] = &all[i]
	}
	return fresh
}

// apart is the state without its nodes, and those that are not as they were at first. Where nobody knows how that was it has them all.
func (s state) apart() (state, map[int]*node) {
	if s.fresh == nil {
		return s, nil
	}
	changed := map[int]*node{}
	for i, n := range s.Nodes {
		if n != s.fresh[i] {
			changed[i] = n
		}
	}
	s.Nodes = nil
	return s, changed
}

// unmet ends a job for which there is no other world. Why it needed one is said first.
func (s *state) unmet(p policy, e unmet) []any {
	v := e.Verdict
	if v.Class == job.Lost && len(s.Past) > 0 {
		v.Sentence = s.Past[len(s.Past)-1].Message + "; " + v.Sentence
	}
	return append(s.lastCharge(e.First), s.conclude(p, v)...)
}

// present is how many nodes of this world have not left it, and come to the next.
func (s *state) present() int {
	n := 0
	for _, node := range s.Nodes {
		if node.comes() {
			n++
		}
	}
	return n
}

// comes reports whether a node has not left this world, and takes part in the next.
func (n node) comes() bool { return !n.Gone && !n.Quits && n.Out == "" }

// expect settles who comes to the next world, as this node has to say: those who have not left this one. A node that was given up may
// come back meanwhile, and is not waited for in the place of another.
func (s *state) expect() {
	s.Expect, s.Lost = 0, nil
	for n, node := range s.Nodes {
		if node.comes() {
			s.Expect++
		} else {
			s.Lost = append(s.Lost, n)
		}
	}
}

// bereft is the loss of a node that others can do without. It may only be cut off, and stop its workers because it hears
// nobody: until then, others do not go on.
func (s *state) bereft(p policy, e lost) []any {
	if s.Flaps++; s.Started && s.Now-s.Began >= longRound {
		s.Flaps = 0
	}
	if !e.Certain {
		s.Fence = max(s.Fence, s.Now+e.Owed+p.StopTimeout+fenceMargin)
	}
	switch {
	case !s.leads():
		return s.orphaned(p, e)
	case s.Order == orderPause && !e.Certain: // whom it cannot hear may meet without it, and know of no pause
		return s.endPause(lostVerdict(s.Nodes[e.Node].Name, e.Node, e.Why).Sentence)
	case s.Again, s.Order != "": // another round follows anyway
		return []any{say{lostVerdict(s.Nodes[e.Node].Name, e.Node, e.Why).Sentence}}
	}
	return s.heard(p, cause{At: s.since(e), Node: e.Node, Why: e.Why})
}

// deserted is the leader's whom nodes that have done their work do not hear any more, nor the store: it may be the one that is cut off, and they
// meet without it, when they believe that none of its workers is left, if with those who wait they are enough for a world. A leader that goes on
// without them is one of which the store hears.
func (s *state) deserted(p policy) []any {
	n, others := -1, s.Queue
	for i, node := range s.Nodes {
		if node.Done && node.Gone && node.Cut {
			n, others = i, others+1
		}
	}
	if n < 0 || others < p.Fewest || !s.Away || !p.Regroups || !s.leads() || s.Verdict != nil || s.Next != nil || s.Again {
		return nil
	}
	return s.bereft(p, lost{Node: n, Why: "it had done its work, but is not heard, nor is the store, where it may meet others"})
}

// emptied is the end of this node's workers. Until then a node that was lost, and may only be cut off, may have seen them work, and
// goes on for as long as if it had heard of this one.
func (s *state) emptied(p policy, e emptied) {
	s.Empty, s.Peak = true, max(s.Peak, e.Step)
	if s.Fence > 0 && e.Worked > 0 {
		s.Fence = max(s.Fence, s.Now-e.Worked+p.fence())
	}
}

// hurry leaves workers that are stopping no more time than those reckon with who may have lost this node, or lost the same leader, and
// go on without it.
func (s *state) hurry(p policy, e lost) []any {
	if !p.Regroups || e.Certain && s.leads() || !s.Stopping || !s.Started || s.Empty {
		return nil
	}
	if s.Held > 0 {
		return s.release(p)
	}
	s.Until = min(s.Until, s.Now+p.StopTimeout)
	return []any{stop{Within: p.StopTimeout}}
}

// lapsed is the end of this node's workers when its agent had stood still. The others may have gone on without it; else they hear
// of it now.
func (s *state) lapsed(p policy) []any {
	switch {
	case s.Stopping && s.Held == 0:
		return nil
	case s.leads():
		return s.stoodStill(p, s.Self)
	}
	return []any{tell{0, news{Kind: newsLapsed}}}
}

// stoodStill is the leader's: the round cannot go on, for a node has no workers any more.
func (s *state) stoodStill(p policy, n int) []any {
	return s.heard(p, cause{At: s.Now, Node: n, Why: "its agent stood still, and its workers were killed, for others might go on without it"})
}

// orphaned is a member's that has lost the leader: it meets the others again, wherever that is. What it meant to tell counts, unless it
// followed from that loss. When the
// leader lives, and has given this node up, it is the one to say who comes.
func (s *state) orphaned(p policy, e lost) []any {
	v := s.foremost(p, e)
	s.forgive(p)
	switch {
	case s.asks():
		return s.conclude(p, *s.Own)
	case v.First != nil && !s.mayGoOn(p, v):
		return s.conclude(p, v)
	case s.Wanted != nil:
		return s.conclude(p, *s.Wanted)
	}
	s.laid(v)
	next := job.Tally{Rounds: s.last() + 1, Free: s.Free}
	if v.First == nil {
		next.Free++
	}
	s.Next, s.Led = &next, e.GaveUp
	if !s.Nodes[s.Self].Done && !e.GaveUp { // a leader that lives goes on without a node that has done its work
		s.expect()
	}
	why := v.Sentence
	if s.Order == orderPause {
		why += pauseIsOver
	}
	s.past(job.Round{Number: s.last(), Message: why, First: v.First})
	todo := []any{say{why + "; the nodes that are left meet again"}, expire{0}}
	return append(todo, s.stop(stop{Within: p.StopTimeout})...)
}

// quit ends this node with a verdict that is its own: the node is wanted, and the job can go on without it. All workers have time
// for a checkpoint, to which they may need each other.
func (s *state) quit(p policy, v job.Verdict) []any {
	told := s.toldMeanwhile(v)
	switch {
	case !s.leads():
		s.edit(s.Self).Quits = true
		return slices.Concat([]any{tell{0, news{Kind: newsQuit, Why: v.Sentence}}}, told, s.conclude(p, v))
	case s.present()+s.Queue <= 1:
		return append(told, s.ending(p, v)...)
	}
	s.Quit, s.edit(s.Self).Quits = &v, true
	if s.Order == orderPause {
		return append(told, s.endPause(v.Sentence)...)
	}
	if s.Stopping {
		return told
	}
	return s.callOff(p, orderRestart, v.Sentence, v.Class)
}

// toldMeanwhile is for a node that is told to stop while its workers are being stopped already, as where others were told a moment before: it says for how
// long they still have, which does not change.
func (s *state) toldMeanwhile(v job.Verdict) []any {
	if !s.Stopping || s.Held > 0 || s.Empty || s.Until <= s.Now {
		return nil
	}
	left := s.Until - s.Now
	return []any{stop{Within: left, Preempt: true, Said: withTime(v.Sentence, left)}}
}

// leavesOthers reports whether this node ends alone, and others may meet again: not where all were told to stop.
func (s *state) leavesOthers() bool {
	stays := func(n *node) bool { return !n.Quits }
	return s.Quit != nil && (s.Queue > 0 || slices.ContainsFunc(s.Nodes, stays))
}

// left is the leader's: a member quits.
func (s *state) left(p policy, from int, why string) []any {
	s.edit(from).Quits = true
	if s.Verdict != nil || s.Next != nil || s.Stopping || s.Nodes[from].Done {
		return nil
	}
	return s.callOff(p, orderRestart, why, job.Preempted)
}

// forsakes reports whether an end that a node asks for is its own alone: it is broken, and others can do without it, or run on to their end.
// For that they need their leader.
func (p policy) forsakes(v job.Verdict) bool {
	return (p.Regroups || p.leaves()) && v.Class == job.Lost
}

// forsake ends this node, which cannot go on: it says so, and waits for nobody.
func (s *state) forsake(p policy, v job.Verdict) []any {
	to := 0
	if s.leads() {
		to = everyone
		s.edit(s.Self).Quits = true
		s.expect() // what it leaves in the store is what counts there
	}
	s.Verdict, s.Quit, s.Ended = &v, &v, true
	return []any{tell{to, news{Kind: newsEnding, Verdict: &v}}}
}

// fenced waits until no worker can be left on a node that was lost, and a pause is over; nil: that is so.
func (s *state) fenced() []any {
	wait := max(s.Fence, s.Rest) - s.Now
	if wait <= 0 {
		return nil
	}
	todo := []any{expire{0}}
	if s.Fence > s.Now && s.Fence != s.Fenced {
		s.Fenced = s.Fence
		todo = append(todo, say{fmt.Sprintf("in %v no worker can live any more on a node that was lost; this node begins no round before that", (s.Fence - s.Now).Round(time.Second))})
	}
	return todo
}

// mustMeet reports whether the next round needs another world.
func (s *state) mustMeet(p policy) bool {
	return s.present() < len(s.Nodes) || s.hasRoom(p) && p.Join != joinNever
}

// hasRoom reports whether nodes wait for which there is a place.
func (s *state) hasRoom(p policy) bool { return s.Queue > 0 && s.present() < p.Nodes }

// disband is the leader's: no node has a worker left, and all meet again.
func (s *state) disband(p policy) []any {
	s.Next = &job.Tally{Rounds: s.last() + 1, Free: s.Free}
	s.expect()
	return append(s.farewell(p, everyone), expire{p.leaveTime()})
}

// farewell tells members that this world is over.
func (s *state) farewell(p policy, to int) (todo []any) {
	over := news{Kind: newsMeet, Past: s.Next, Why: s.Past[len(s.Past)-1].Message, Leaves: !s.Nodes[s.Self].comes()}
	for n := range s.Nodes {
		if n != s.Self && s.Nodes[n].Out != "" && (to == everyone || to == n) {
			apart := over
			apart.Out, apart.Rest = s.Nodes[n].Out, p.Rest
			todo = append(todo, tell{n, apart})
		}
	}
	return append(todo, tell{to, over})
}

// sent is a member's: the leader has ended this world.
func (s *state) sent(n news) []any {
	if s.Next != nil || s.Verdict != nil {
		return nil
	}
	s.laid(job.Verdict{Sentence: n.Why})
	s.Next, s.Led, s.edit(s.Self).Out = n.Past, !n.Leaves, n.Out
	s.past(job.Round{Number: s.last(), Message: n.Why})
	if n.Out != "" {
		return []any{say{leftOut(n.Out, n.Rest)}, expire{0}}
	}
	return []any{say{n.Why + "; all nodes meet again"}, expire{0}}
}

// disperse leaves a world that is over, for the meeting.
func (s *state) disperse(p policy) []any {
	if s.Next == nil || s.Meeting || s.Verdict != nil || s.Started && !s.Empty {
		return nil
	}
	if wait := s.fenced(); wait != nil {
		return wait
	}
	if !s.mayLeave() {
		return nil
	}
	if s.Quit != nil {
		s.Verdict = s.Quit
		return nil
	}
	s.Meeting, s.Start, s.Started = true, nil, false
	return []any{expire{0}, s.meet(p)}
}

func (s *state) meet(p policy) meet {
	m := meet{Past: *s.Next, Expect: s.Expect, Out: s.Nodes[s.Self].Out}
	if m.Out != "" {
		m.Rest = p.Rest
	}
	return m
}

// admit is the leader's: it calls a round off in which nobody failed, when others wait for whom there is room.
func (s *state) admit(p policy) []any {
	if !s.hasRoom(p) || p.Join != "" && p.Join != joinNow || !s.steady() {
		s.Admit = 0
		return nil
	}
	if wait := s.bide(p); s.Admit == 0 && wait > 0 {
		s.Admit = s.Now + wait
		return nil
	} else if wait > 0 && s.Now < s.Admit {
		return nil
	}
	s.Admit = 0
	return s.callOff(p, orderRestart, fmt.Sprintf("%s to join", queueing(s.Queue)), job.Grown)
}

// bide is how long those who wait are left waiting: for more of them, unless the world is full with these; and longer where nodes were
// lost again as soon as they were in, as one that dies when it starts would be, each time.
func (s *state) bide(p policy) time.Duration {
	switch {
	case s.Flaps > 0:
		return p.LastCall << min(s.Flaps-1, maxFlaps)
	case s.present()+s.Queue >= p.Nodes:
		return 0
	}
	return p.LastCall
}

const maxFlaps = 5

// steady reports whether this is the leader of a world in the middle of a round in which nothing failed, and no worker's work is done.
func (s *state) steady() bool {
	return s.leads() && s.Started && !s.Stopping && len(s.Causes) == 0 && !s.Asked && s.Verdict == nil && s.Next == nil && s.Order == "" &&
		!slices.ContainsFunc(s.Nodes, func(n *node) bool { return n.Ends || n.Done })
}

func queueing(n int) string {
	if n == 1 {
		return "1 node waits"
	}
	return fmt.Sprintf("%d nodes wait", n)
}
