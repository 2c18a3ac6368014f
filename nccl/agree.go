package nccl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/topology"
)

// What is done where nodes do not have the same rails, as --nccl-rails says it.
const (
	RailsTell   = "tell"   // NCCL chooses, and the node that lacks one is named
	RailsCommon = "common" // all nodes use the rails that all of them have
	RailsRefuse = "refuse" // no worker is started
)

// Rails are what a node tells the others of its ports for training, those that cannot be used too, in the order of the PCI buses: NCCL pairs
// ports of two nodes by their places in that order. EFA's are left to its plugin. A node that has none says that; nil says nothing.
func Rails(m topology.Machine) (all []job.Rail) {
	compute := topology.Names(m.Compute())
	rails := slices.DeleteFunc(m.Rails(), func(r topology.Rail) bool { return r.HCA.EFA() })
	sortRails(rails)
	switch m.Transport() {
	case "efa":
		return nil
	case "none":
		return without(m, rails)
	}
	for _, r := range rails {
		switch {
		case slices.Contains(compute, r.Name()):
			all = append(all, job.Rail{Name: r.Name(), At: at(r)})
		case !r.Port.Usable && m.ForTraining(r): // those of other containers' GPUs are not missed
			all = append(all, job.Rail{Name: r.Name(), At: at(r), Why: r.Port.Why})
		}
	}
	return all
}

// maxLost is how many ports a node names that has none to use.
const maxLost = 16

// without is what a node tells that has no port to use: those that its GPUs miss, else all, else that there are none.
func without(m topology.Machine, rails []topology.Rail) (all []job.Rail) {
	if missed := slices.DeleteFunc(slices.Clone(rails), func(r topology.Rail) bool { return !m.ForTraining(r) }); len(missed) > 0 {
		rails = missed
	}
	for _, r := range rails[:min(len(rails), maxLost)] {
		all = append(all, job.Rail{Name: r.Name(), At: at(r), Why: r.Port.Why})
	}
	if len(all) == 0 {
		return []job.Rail{{Name: "RDMA", Why: "no adapter"}}
	}
	return all
}

func sortRails(rails []topology.Rail) {
	slices.SortStableFunc(rails, func(a, b topology.Rail) int { return a.HCA.PCI.Address.Compare(b.HCA.PCI.Address) })
}

// at is the place of a rail, which nodes of one kind have alike; its name may differ from node to node.
func at(r topology.Rail) string { return fmt.Sprintf("%s/%d", r.HCA.PCI.Address, r.Port.Number) }

// working are the places of a node's rails that can be used.
func working(n job.Node) (places []string) {
	for _, r := range n.Rails {
		if r.Why == "" {
			places = append(places, r.At)
		}
	}
	return places
}

// kind is how many rails a node has, and which of its own are down, by their places among them: two nodes that lost one each, but not the
// same, do not pair. Two pods with one adapter each do, whichever of their machine's that is.
func kind(n job.Node) string {
	key := strconv.Itoa(len(working(n)))
	if key == "0" {
		return key // nothing pairs
	}
	for i, r := range n.Rails {
		if r.Why != "" {
			key += fmt.Sprintf(" %d", i)
		}
	}
	return key
}

// telling are the nodes that say what they have. Others have no GPU, were told to keep out of this, or are of a release that did.
func telling(nodes []job.Node) []job.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n job.Node) bool { return len(n.Rails) == 0 })
}

// Disagreement says which nodes lack rails that most have, and why; "": those that tell are alike.
func Disagreement(nodes []job.Node) string {
	nodes = telling(nodes)
	count := map[string]int{}
	var usual job.Node
	for _, n := range nodes {
		k := kind(n)
		if count[k]++; count[k] > count[kind(usual)] || count[k] == count[kind(usual)] && len(working(n)) > len(working(usual)) {
			usual = n
		}
	}
	if len(count) < 2 {
		return ""
	}
	var odd []string
	for _, n := range nodes {
		if kind(n) != kind(usual) {
			odd = append(odd, lacks(n))
		}
	}
	return fmt.Sprintf("%d of %d nodes have %d adapters for training, but %s", count[kind(usual)], len(nodes), len(working(usual)), list(odd))
}

// lacks is how many rails a node has, and what is wrong with the others.
func lacks(n job.Node) string {
	var dead []string
	for _, r := range n.Rails {
		if r.Why != "" {
			dead = append(dead, r.Name+": "+r.Why)
		}
	}
	text := fmt.Sprintf("%s has %d", n, len(working(n)))
	if len(dead) > 0 {
		text += " (" + list(dead) + ")"
	}
	return text
}

// agreed are the rails that this node may use so that all nodes have as many, and why they are not all; without any, why not.
func (f *facts) agreed() (rails []topology.Rail, why string) {
	differ := Disagreement(f.World.Peers)
	switch {
	case differ == "":
		return f.rails, ""
	case f.World.Rails != RailsCommon:
		return nil, differ
	}
	rails = slices.Clone(f.rails)
	for _, n := range telling(f.World.Peers) {
		places := working(n)
		rails = slices.DeleteFunc(rails, func(r topology.Rail) bool { return !slices.Contains(places, at(r)) })
	}
	if len(rails) == 0 {
		return nil, differ + "; and they have none in common"
	}
	return rails, "only what all nodes have: " + strings.TrimSpace(differ)
}
