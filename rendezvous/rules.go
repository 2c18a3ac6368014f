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
	switch {
	case r == nil:
	case len(r.Policy) > maxRules:
		return fmt.Errorf("a job's rules have %d bytes, more than %d", len(r.Policy), maxRules)
	case r.Timeout != 0 && (r.Timeout < job.MinNodeTimeout || r.Timeout > job.MaxNodeTimeout):
		return fmt.Errorf("a job's node time-out is %v, and not %v to %v", r.Timeout, job.MinNodeTimeout, job.MaxNodeTimeout)
	}
	return nil
}

// own are the rules that this node brings.
func (o Options) own() *job.Rules {
	return &job.Rules{LastCall: o.LastCall, Fence: o.Fence, Timeout: cmp.Or(o.NodeTimeout, job.NodeTimeout), Closed: o.Closed, Policy: o.Policy}
}

// After are the options of a node that was to be in a world, and meets the others again. What counted there counts for it, whatever it brought.
func (o Options) After(w *job.World) Options {
	o.Seen, o.Led, o.Previous = w.Generation, false, w
	if w.Past.Rounds > o.Past.Rounds {
		o.Past = w.Past
	}
	if r := w.Rules; r != nil {
		o.LastCall, o.Fence, o.NodeTimeout, o.Closed, o.Policy = r.LastCall, r.Fence, r.NodeTimeout(), r.Closed, r.Policy
	}
	return o
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
// may have been given others. nil: that node does not tell. Where a node is of a release that knows of no other, all keep to its time-out.
func (l *leader) handsOn(tickets []ticket, first string) *job.Rules {
	rules := l.inherited()
	if !l.veterans || rules == nil {
		at := slices.IndexFunc(tickets, func(t ticket) bool { return t.Node.Incarnation == first })
		rules = tickets[at].Rules
	}
	if rules == nil || rules.Timeout == 0 || !slices.ContainsFunc(tickets, func(t ticket) bool { return t.Rules == nil || t.Rules.Timeout == 0 }) {
		return rules
	}
	as := *rules
	as.Timeout = 0
	return &as
}
