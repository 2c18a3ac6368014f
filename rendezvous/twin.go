package rendezvous

import (
	"context"
	"maps"
	"slices"

	"github.com/muster-run/muster/job"
)

// This file is about two agents of one index. Of two that meet, the newest has the place, and the older one leaves. A running world is another matter:
// its leader hears its members, and as long as it does, whoever else comes under the index of one of them is not let in, and costs the world no round.
// It waits, for that member may be lost, and then it has its place; else the end of the job is its own. Where the world is of a fixed size, whether
// that member lives is asked, too: a platform may have put the newcomer in the place of one that died, or a script begins its next job while the last
// one ends.

// meetTwin asks the member that has this node's index, if there is one, whether it lives. Once it did, it counts to the end of its world.
func (n *node) meetTwin(ctx context.Context) error {
	if n.Stood.Twin != "" || n.spec.Self.Index < 0 || n.Unfit != "" {
		return nil
	}
	m, lives, err := n.incumbent(ctx)
	if lives {
		n.stand(n.before.world, m.String())
	}
	return err
}

// incumbent is the member that has this node's place in the world before; nil: none has, or nobody can be asked whether it lives.
func (n *node) incumbent(ctx context.Context) (m *job.Member, lives bool, err error) {
	if n.Lives == nil {
		return nil, false, nil
	}
	if err := n.before.unpack(); err != nil {
		return nil, false, err
	}
	members := n.before.world.Members
	i := slices.IndexFunc(members, func(m job.Member) bool { return same(m.Node, n.spec.Self) })
	if i < 0 {
		return nil, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return &members[i], n.Lives(ctx, besides(members[i].Node, n.spec.Self)), nil
}

// besides is a node without the addresses that it has in common with another one, which listens there now.
func besides(n, other job.Node) job.Node {
	n.Addrs = slices.DeleteFunc(slices.Clone(n.Addrs), func(a job.Addr) bool { return slices.Contains(other.Addrs, a) })
	return n
}

// outlived is the end of a job in which another agent was this node; nil: it goes on, or there was none.
func (n *node) outlived(ctx context.Context) error {
	if n.Stood.Twin == "" || !n.before.is(n.Stood.Generation) {
		return nil
	}
	if over, err := n.before.ended(ctx); !over || err != nil || n.before.over.Verdict == nil {
		return err
	}
	return &Ended{Verdict: *brief(n.before.over.Verdict), Twin: n.Stood.Twin}
}

// twin is the place in the world that runs which another agent has, as people read it; "": none has this node's.
func (n *node) twin() string {
	if n.Stood.Generation != n.before.running() {
		return ""
	}
	return n.Stood.Twin
}

// second reports whether a node waits under the index of another agent, which the world that runs has.
func (l *leader) second(t ticket) bool {
	running := l.before.running()
	if running == 0 || l.before.had(t.record) {
		return false
	}
	if l.hasOf != running {
		l.has, l.hasOf = map[string]bool{}, running
		for _, m := range l.before.world.Members {
			for _, id := range identities(m.Node) {
				l.has[id] = true
			}
		}
	}
	return slices.ContainsFunc(identities(t.Node), func(id string) bool { return l.has[id] })
}

// contest is who of the living has a place by its index or name, as they came, and by whom others are replaced. The newest is who came last, but who was given
// up, or was away while the world before lived, takes nobody's place. Who had to give way to a member of that world waits on beside it.
func (l *leader) contest() (kept []ticket, replaced map[int]ticket) {
	l.strike()
	var late, rivals []ticket
	for _, t := range l.living() {
		if t.Seen > 0 && l.before.world != nil && !l.expected(t) {
			late = append(late, t)
		} else {
			rivals = append(rivals, t)
		}
	}
	kept, replaced = distinct(slices.Concat(late, rivals))
	if len(late) > 0 {
		slices.SortFunc(kept, func(a, b ticket) int { return a.number - b.number })
	}
	maps.DeleteFunc(replaced, func(_ int, by ticket) bool { return l.expected(by) })
	return kept, replaced
}
