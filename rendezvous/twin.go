package rendezvous

import (
	"context"
	"slices"

	"github.com/muster-run/muster/job"
)

// This file is about an agent that comes under the index of a node that a running world has already. Where that node's agent lives, which it is
// asked, nothing is left for the newcomer: it waits, for the node may be lost, and the end of the job is its own. Where it does not, the newcomer
// is who takes part in what comes next: a platform put it in the place of one that died, or a script begins its next job while the last one ends.

// meetTwin asks the member that has this node's index, if there is one, whether it lives. Once it did, it counts to the end of its world.
func (n *node) meetTwin(ctx context.Context) error {
	if n.twin != nil && n.twinOf == n.before.running() || n.Lives == nil || n.spec.Self.Index < 0 || n.spec.Standby() || n.Unfit != "" {
		return nil
	}
	n.twin = nil
	if err := n.before.unpack(); err != nil {
		return err
	}
	members := n.before.world.Members
	i := slices.IndexFunc(members, func(m job.Member) bool { return same(m.Node, n.spec.Self) })
	if i < 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if n.Lives(ctx, besides(members[i].Node, n.spec.Self)) {
		n.twin, n.twinOf = &members[i].Node, n.before.running()
	}
	return nil
}

// besides is a node without the addresses that it has in common with another one, which listens there now.
func besides(n, other job.Node) job.Node {
	n.Addrs = slices.DeleteFunc(slices.Clone(n.Addrs), func(a job.Addr) bool { return slices.Contains(other.Addrs, a) })
	return n
}

// outlived is the end of a job in which another agent was this node; nil: it goes on, or there was none.
func (n *node) outlived(ctx context.Context) error {
	if n.twin == nil || n.before.world == nil || n.before.world.Generation != n.twinOf {
		return nil
	}
	if over, err := n.before.ended(ctx); !over || err != nil || n.before.over.Verdict == nil {
		return err
	}
	return &Ended{Verdict: *brief(n.before.over.Verdict), Twin: n.twin.String()}
}

// twinName is the place in the world before that another agent has, as people read it; "": none has this node's.
func (n *node) twinName() string {
	if n.twin == nil || n.twinOf != n.before.running() {
		return ""
	}
	return n.twin.String()
}
