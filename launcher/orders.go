package launcher

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-run/muster/job"
)

// This file is the judgement of what people order by `muster ctl`, on whichever node. Like that of all else it is pure. The leader
// carries out what is for all nodes; a member passes it on.
//
//	running ── restart, pause ──▶ stopping ── no node has a worker left ──▶ next round, or paused ── resume ──▶ next round

// The orders.
const (
	orderStop    = "stop"
	orderRestart = "restart"
	orderPause   = "pause"
	orderResume  = "resume"
)

var orderNames = []string{orderStop, orderRestart, orderPause, orderResume}

// byOrder is how sentences name who ordered it.
const byOrder = "muster ctl"

// ordered obeys an order from this node. Whoever gave it is answered.
func (s *state) ordered(p policy, what string) []any {
	if why := s.refuses(p, what); why != "" {
		return []any{reply{why, true}}
	}
	switch {
	case what == orderStop:
		return append(s.askedToStop(p, byOrder, job.ExitTERM), reply{Text: "the job ends; workers have time for a checkpoint"})
	case !s.leads():
		s.Wishes, s.Wish = s.Wishes+1, what
		return []any{s.wish()}
	}
	return append(s.obey(p, s.Self, what), reply{Text: orderTexts[what]})
}

// orderTexts is what follows from each order of the leader's.
var orderTexts = map[string]string{
	orderRestart: "all nodes stop their workers, which have time for a checkpoint; the next round follows",
	orderPause:   "all nodes stop their workers, which have time for a checkpoint; muster ctl resume starts the next round",
	orderResume:  "the next round follows",
}

// wish passes an order on. Whoever gave it waits until the leader has answered; and a leader whose agent was replaced
// hears it again.
func (s *state) wish() tell { return tell{0, news{Kind: newsOrder, Order: s.Wish, Number: s.Wishes}} }

// passedOn obeys an order that a member passed on, once, and answers it as often as it comes.
func (s *state) passedOn(p policy, from int, n news) []any {
	var todo []any
	if n.Number > s.Nodes[from].Wishes {
		s.edit(from).Wishes = n.Number
		deeds, answer := s.judged(p, from, n.Order)
		todo, s.edit(from).Answer = deeds, answer
	}
	me := s.Nodes[from]
	return append(todo, tell{from, news{Kind: newsAnswer, Number: me.Wishes, Answer: me.Answer}})
}

// judged is what to do at a member's order, and what to answer.
func (s *state) judged(p policy, from int, what string) ([]any, *reply) {
	if !slices.Contains(orderNames[1:], what) { // of a newer version
		return nil, &reply{fmt.Sprintf("%s does not know this order", nodeName(s.Nodes, 0)), true}
	}
	if why := s.refuses(p, what); why != "" {
		return []any{say{fmt.Sprintf("%s: refused: %s", s.who(from, what), why)}}, &reply{why, true}
	}
	return s.obey(p, from, what), &reply{Text: orderTexts[what]}
}

// answered is a member's: the leader has judged what it passed on.
func (s *state) answered(n news) []any {
	if n.Number != s.Wishes || s.Wish == "" || n.Answer == nil {
		return nil
	}
	s.Wish = ""
	return []any{*n.Answer}
}

// refuses says why an order cannot be obeyed, as far as this node knows; "": it can.
func (s *state) refuses(p policy, what string) string {
	paused := s.Order == orderPause
	switch {
	case s.Verdict != nil || s.Asked:
		return "the job is ending already"
	case what == orderStop:
		return ""
	case what == orderResume && !paused:
		return "the job is not paused"
	case what == orderResume:
		return ""
	case paused:
		return "the job is paused; muster ctl resume starts the next round"
	case s.Order != "", s.leads() && s.Start == nil:
		return "the next round is about to begin already"
	case s.Next != nil:
		return "the nodes meet again, for the next world"
	case s.Again && s.Rest > s.Now:
		return fmt.Sprintf("after several failures in a row the next round begins in %v; give the order then", (s.Rest - s.Now).Round(time.Second))
	case s.Stopping && s.leads(), s.Again: // a member does not know for how long: its leader says it
		return "workers failed, and the round is being stopped"
	case s.present() < len(s.Nodes) && !p.Regroups:
		return "a node has left the job, and without it there is no next round"
	}
	return ""
}

func (s *state) who(n int, what string) string {
	return fmt.Sprintf("%s was told to %s by %s", nodeName(s.Nodes, n), what, byOrder)
}

// nodeName is a node in a sentence: with its number where there are several.
func nodeName(nodes []*node, n int) string {
	if len(nodes) > 1 {
		return fmt.Sprintf("node %d (%s)", n, nodes[n].Name)
	}
	return nodes[n].Name
}

// obey is the leader's. What fails from here on in this round fails because the others stop.
func (s *state) obey(p policy, from int, what string) []any {
	why := s.who(from, what)
	if what == orderResume {
		s.Order, s.Paused = orderResume, false // cleared goes on
		return []any{say{why}}
	}
	return s.callOff(p, what, why, job.Ordered)
}

// callOff is the leader's: it ends the round on all nodes, although nobody failed.
func (s *state) callOff(p policy, what, why, class string) []any {
	s.laid(job.Verdict{Class: class, Sentence: why})
	s.past(job.Round{Number: s.last(), Message: why})
	return append([]any{tell{everyone, news{Kind: newsStop, Order: what, Why: why, Class: class}}}, s.halt(p, what, why)...)
}

// halt ends the round on this node, by order.
func (s *state) halt(p policy, what, why string) []any {
	s.forgive(p)
	s.Order, s.Causes, s.Own, s.Wanted, s.Down = what, nil, nil, nil, nil
	how := stop{Within: p.grace(s.Now), Preempt: true}
	patience := how.Within + p.leaveTime()
	switch {
	case s.leads():
	case what == orderPause:
		patience = 0 // a member hears of the end of a pause, or loses its leader
	default:
		patience += p.leaveTime()
	}
	stops := s.stop(how)
	if s.Nodes[s.Self].Quits && len(stops) > 0 {
		why = withTime(why, how.Within)
	}
	return append([]any{say{why}, expire{patience}}, stops...)
}

// pauseIsOver is what follows where the world of a pause is no more: it does not outlive its world.
const pauseIsOver = ", and a pause ends with its world"

// endPause is the leader's, when others meet without it or it has to leave: the pause is a restart from now on.
func (s *state) endPause(why string) []any {
	s.Order, s.Paused = orderRestart, false
	s.Past = slices.Clone(s.Past)
	s.Past[len(s.Past)-1].Message += "; " + why + pauseIsOver
	return []any{say{why + pauseIsOver}}
}

// carryOut is the leader's, when an order holds and no node has a worker left.
func (s *state) carryOut(p policy) []any {
	switch {
	case s.Paused:
		return nil
	case s.Order == orderPause:
		s.Paused = true
		return []any{expire{0}, say{"paused on all nodes; muster ctl resume starts the next round"}}
	}
	if wait := s.fenced(); wait != nil {
		return wait
	}
	s.Free++
	return s.goOn(p)
}

// unheeded is the end of a job in which an order could not be carried out.
func (s *state) unheeded() job.Verdict {
	return job.Verdict{Code: job.ExitRetry, Origin: "agent", Class: job.Lost,
		Sentence: fmt.Sprintf("%s, but workers are left on %s", s.Past[len(s.Past)-1].Message, s.unclear())}
}

// past adds a round to those that are over, of which the last few are kept.
func (s *state) past(r job.Round) {
	s.Past = append(slices.Clone(s.Past), r)
	s.Past = s.Past[max(0, len(s.Past)-maxPast):]
}
