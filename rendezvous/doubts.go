package rendezvous

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-run/muster/job"
)

// This file is who takes part where there are more than enough: those whose machine nobody doubts, and of those, members of the
// world before.

// doubt asks about a node's machine when it comes.
func (l *leader) doubt(t ticket) {
	if l.Doubt == nil {
		return
	}
	if why := plain(l.Doubt(t.Machine), maxReason); why != "" {
		l.doubts[t.number] = why
	}
}

// doubted is how many of those who are here stand on a doubtful machine.
func (l *leader) doubted() (n int) {
	if len(l.doubts) == 0 {
		return 0
	}
	for _, g := range l.guests {
		if g.alive && l.doubts[g.number] != "" {
			n++
		}
	}
	return n
}

// choose picks who makes the world: those on machines that nobody doubts, members of the one before, then others as they came.
func (l *leader) choose(tickets []ticket) []ticket {
	places := l.places()
	if len(tickets) > places {
		stranger := l.strangers()
		slices.SortStableFunc(tickets, func(a, b ticket) int {
			return cmp.Or(min(len(l.doubts[a.number]), 1)-min(len(l.doubts[b.number]), 1), stranger(a)-stranger(b))
		})
	}
	most := min(len(tickets), places)
	l.remarks = slices.Concat(l.remark(tickets[:most], "%v takes part, although %s"), l.remark(tickets[most:], "%v is left as a spare: %s"))
	return tickets[:most]
}

// places is how many nodes the world has at most.
func (l *leader) places() int {
	if before := l.previous(); l.rules().Closed && before != nil {
		return len(before.Members)
	}
	return l.spec.Nodes
}

// strangers returns what tells those who were no members of the world before, or that it gave up, from those who were.
func (l *leader) strangers() func(ticket) int {
	known := map[string]bool{}
	if before := l.previous(); before != nil {
		for _, m := range before.Members {
			for _, id := range identities(m.Node) {
				known[id] = true
			}
		}
	}
	return func(t ticket) int {
		if !l.lost[t.Node.Incarnation] && slices.ContainsFunc(identities(t.Node), func(id string) bool { return known[id] }) {
			return 0
		}
		return 1
	}
}

// remark names the doubtful among nodes.
func (l *leader) remark(tickets []ticket, format string) (all []string) {
	for _, t := range tickets {
		if why := l.doubts[t.number]; why != "" {
			all = append(all, fmt.Sprintf(format, t.record, why))
		}
	}
	if more := len(all) - maxDoubts; more > 0 {
		all = append(all[:maxDoubts], fmt.Sprintf("and %d more", more))
	}
	return all
}

// sayRemarks tells, in one line, who was left out of the world that stands, or was not.
func (l *leader) sayRemarks() {
	if len(l.remarks) > 0 && l.Say != nil {
		l.Say(strings.Join(l.remarks, "; "))
	}
}

// maxDoubts is how many nodes a line names.
const maxDoubts = 4

// checkMachine refuses what cannot be shown as it is.
func checkMachine(m job.Machine) error {
	for _, text := range []string{m.Name, m.ID, m.Boot} {
		if plain(text, maxName) != text {
			return fmt.Errorf("a node has characters in its machine's name or ids that cannot be shown, or more than %d: %.64q", maxName, text)
		}
	}
	return nil
}
