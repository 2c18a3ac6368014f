package launcher

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/nccl"
	"github.com/muster-run/muster/preflight"
)

// What --preflight may say: look and tell, do not look, or take no part with a machine that lacks what the job needs.
const (
	preflightOff    = "off"
	preflightStrict = "strict"
)

// planPreflight looks at a machine with accelerators before the job, as muster check does but for what takes time: nvidia-smi and name
// servers are not asked. What is found is kept for the verdict; what lacks is told, or keeps this node out.
func planPreflight(c Config, _ discovery.Finding, p *Plan) error {
	if c.Preflight == preflightOff || len(p.machine.Slots()) == 0 {
		return nil
	}
	h := preflight.Measure(c.Root, p.machine)
	h.Resolve = nil
	if p.Spec.Nodes+p.Spec.Spares > 1 {
		p.Spec.Self.Facts = preflight.Facts(h)
		if v := p.given(c).Container.Version; v != (nccl.Version{}) {
			p.Spec.Self.Facts = append(p.Spec.Self.Facts, job.Fact{Name: preflight.FactNCCL, Value: v.String()})
		}
	}
	need := preflight.Need{Workers: p.Spec.Self.Slots, Nodes: p.Spec.Nodes}
	if c.LogDir != "" {
		need.Dirs = append(need.Dirs, c.LogDir)
	}
	var doubts []string
	for _, f := range preflight.Check(h, need) {
		if f.Result < preflight.Warn {
			break // the worst come first
		}
		p.Preflight = append(p.Preflight, fmt.Sprintf("%v %v", f.Result, f))
		switch {
		case f.Result == preflight.Warn && slices.Contains(doubts, f.Check): // once for all GPUs
		case f.Result == preflight.Warn:
			doubts = append(doubts, f.Check)
		case c.Preflight == preflightStrict:
			if err := p.bars(fail(job.ExitRefused, f.Hint, "%s: %s: %s", f.Check, f.Found, f.Means)); err != nil {
				return err
			}
		default:
			p.Notes = append(p.Notes, "preflight: "+f.String())
		}
	}
	if doubts != nil {
		p.Notes = append(p.Notes, fmt.Sprintf("preflight: to look at: %s (muster check)", strings.Join(doubts, ", ")))
	}
	return nil
}

// alike is the leader's: it says of a world what its nodes should have alike and have not, before anything runs on them; with --preflight
// strict nothing does where that ends a job.
func (r *round) alike() error {
	if r.c.Preflight == preflightOff || r.compared == r.session.World.Generation {
		return nil
	}
	r.compared = r.session.World.Generation
	found := preflight.Unlike(nodesOf(r.session.World))
	for _, f := range found {
		if f.Result == preflight.Fail && r.c.Preflight == preflightStrict {
			return fail(job.ExitRefused, f.Hint, "the nodes are not alike: %s: %s: %s", f.Check, f.Found, f.Means)
		}
	}
	r.unalike(r.odd.fresh(found))
	return nil
}

// unalike tells all nodes of what they have not alike.
func (r *round) unalike(found []preflight.Finding) {
	var what []job.Evidence
	for _, f := range found {
		what = append(what, job.Evidence{Kind: f.Check, Text: f.String()})
	}
	if what != nil {
		r.post(ailing{What: what, Of: allNodes})
	}
}

// named are the nodes that were said not to be as the others, each with what it is that they have otherwise.
type named map[[2]string]bool

// fresh are those findings about a world that name a node which those about the world before it did not: an elastic job has many worlds of the same nodes.
func (n *named) fresh(found []preflight.Finding) (all []preflight.Finding) {
	now := named{}
	for _, f := range found {
		isNew := false
		for _, o := range f.Odd {
			key := [2]string{f.Check, o.Incarnation}
			now[key] = true
			isNew = isNew || !(*n)[key]
		}
		if isNew {
			all = append(all, f)
		}
	}
	*n = now
	return all
}

// clocks are those of a world's nodes, as the leader heard of them when they joined.
type clocks struct {
	joined map[int]bool            // by group rank
	of     map[int]preflight.Clock // by group rank; nil: nobody has joined yet
}

// join takes down the clock of one more of a world's nodes. When all have joined it returns how those that are known differ, and true: an
// agent of an older version does not tell its own.
func (k *clocks) join(nodes []job.Node, e fleet.Event) ([]preflight.Finding, bool) {
	if k.of == nil {
		k.joined, k.of = map[int]bool{}, map[int]preflight.Clock{0: {}} // the leader's own is what they are held against
	}
	if k.joined[e.Peer] {
		return nil, false
	}
	k.joined[e.Peer] = true
	if e.Clock != (fleet.Clock{}) {
		k.of[e.Peer] = preflight.Clock(e.Clock)
	}
	if len(k.joined) != len(nodes)-1 {
		return nil, false
	}
	var who []job.Node
	var known []preflight.Clock
	for rank, n := range nodes {
		if c, ok := k.of[rank]; ok {
			who, known = append(who, n), append(known, c)
		}
	}
	return preflight.Apart(who, known), true
}

// clock is the leader's: a node has joined. When all have, those are named whose clocks are not the others'; what an agent said that this one took
// over from is not said again.
func (r *round) clock(e fleet.Event) {
	if r.c.Preflight == preflightOff || r.c.goesOn() && !r.meeting.anew {
		return
	}
	if found, all := r.clocks.join(nodesOf(r.session.World), e); all {
		r.unalike(r.skewed.fresh(found))
	}
}
