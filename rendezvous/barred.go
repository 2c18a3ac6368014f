package rendezvous

import (
	"fmt"
	"slices"
	"time"
)

// This file is about nodes that contradict a job which has had a world. That one stands for what the job is: whoever comes with other words is
// refused alone, and the others wait on. Before there was a world nobody knows which of two nodes is wrong, and all are refused.

// judge refuses whoever contradicts the others, and reports whether this guest may take part.
func (l *leader) judge(g *guest) bool {
	why := contradiction(l.self, g.record)
	switch {
	case why == nil:
		return true
	case l.self.Seen == 0 && g.Seen > 0:
		l.wrong = why
	case g.Seen == 0 && l.stands():
		l.bar(g, why)
		return false
	default:
		l.refuse(why)
	}
	return true
}

// stands reports whether our words are those of a world that the job has had.
func (l *leader) stands() bool {
	veteran := func(g *guest) bool { return g.alive && g.Seen > 0 }
	return slices.ContainsFunc(l.guests, veteran) || l.before.world != nil && l.fits() == nil
}

// bar refuses one guest, once, which hears it from the next summary.
func (l *leader) bar(g *guest, why error) {
	if g.barred != "" {
		return
	}
	g.barred, l.next = why.Error(), time.Now()
	if l.Say != nil {
		l.Say(fmt.Sprintf("%v is refused, and the others wait on: %s", g.record, g.barred))
	}
}

// barred are those who were refused and have not left, by ticket. Of many the others hear it once these have left.
func (l *leader) barred() map[int]string {
	list := map[int]string{}
	for _, g := range slices.Backward(l.guests) {
		if g.barred != "" && len(list) < shown {
			list[g.number] = plain(g.barred, maxReason)
		}
	}
	return list
}

// turnedAway is the refusal of this node alone; nil: there is none.
func (s summary) turnedAway(ticket int) error {
	if why, ok := s.Barred[ticket]; ok {
		return &Refusal{Reason: plain(why, maxReason)}
	}
	return nil
}

// isWrong is the refusal of a leader that members of the job's last world contradict: those go on without it.
func (l *leader) isWrong() error {
	if l.wrong == nil {
		return nil
	}
	return &Refusal{Reason: l.wrong.Error()}
}
