package rendezvous

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-run/muster/job"
)

// This file is by which rules a job goes on. They are those of the worlds before, whoever leads the meeting: a newcomer that was told otherwise
// would begin a round while workers of the last one may live, or leave those out that the world ended for.

// maxRules bounds what launchers say to each other in them.
const maxRules = 4 << 10

func checkRules(r *job.Rules) error {
	if r != nil && len(r.Policy) > maxRules {
		return fmt.Errorf("a job's rules have %d bytes, more than %d", len(r.Policy), maxRules)
	}
	return nil
}

// own are the rules that this node brings.
func (o Options) own() *job.Rules {
	return &job.Rules{LastCall: o.LastCall, Fence: o.Fence, Closed: o.Closed, Policy: o.Policy}
}

// learn takes note of what a guest knows that was in a world.
func (l *leader) learn(r record) {
	if r.Seen <= 0 {
		return
	}
	l.veterans = true
	if r.Rules == nil {
		return
	}
	l.fence = max(l.fence, r.Rules.Fence)
	if r.Seen > l.ofWorld {
		l.lived, l.ofWorld = r.Rules, r.Seen
	}
}

// inherited are the rules of the latest world of which they are known; nil: of none.
func (l *leader) inherited() *job.Rules {
	if last := l.before.members(); last != nil && last.Rules != nil && last.Generation > l.ofWorld {
		return last.Rules
	}
	return l.lived
}

// rules are those of this meeting. Of several fences the longest is safe.
func (l *leader) rules() job.Rules {
	rules := *cmp.Or(l.inherited(), l.own())
	rules.Fence = max(rules.Fence, l.fence)
	if last := l.before.members(); last != nil && last.Rules != nil {
		rules.Fence = max(rules.Fence, last.Rules.Fence)
	}
	return rules
}

// handsOn are the rules of the world that is made: those of the worlds before, or its first node's where nobody is left of them, for then the job
// may have been given others. nil: that node does not tell.
func (l *leader) handsOn(tickets []ticket, first string) *job.Rules {
	if rules := l.inherited(); l.veterans && rules != nil {
		return rules
	}
	at := slices.IndexFunc(tickets, func(t ticket) bool { return t.Node.Incarnation == first })
	return tickets[at].Rules
}
