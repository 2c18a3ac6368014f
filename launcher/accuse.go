package launcher

import (
	"slices"

	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/job"
)

// This file is the judgement of what is found about machines, for jobs to come (--suspects). Like that of all else it is pure. Each node
// tells the leader on which machine it is, and hears the leader's: who is lost cannot say it any more.

// The kinds of findings.
const (
	foundLost     = "lost"
	foundExcluded = "excluded"
	foundFault    = "fault"
	foundHung     = "hung"
)

// An accuse keeps a finding about the machine of a node.
type accuse struct {
	Machine job.Machine
	Kind    string
	Why     string
}

// faults are the kinds of evidence that speak of the machine and not of the program.
var faults = []string{"gpu-ecc", "gpu-lost", "gpu-xid", "gpu-fabric", "nvlink"}

// isHere tells on which machine this node is.
func (s *state) isHere(p policy) []any {
	m := s.Nodes[s.Self].Machine
	if !p.Suspects || m == nil {
		return nil
	}
	to := 0
	if s.leads() {
		to = everyone
	}
	return []any{tell{to, news{Kind: newsHere, Machine: m}}}
}

// accuse is a finding about a node.
func (s *state) accuse(p policy, n int, kind, why string) []any {
	if m := s.Nodes[n].Machine; p.Suspects && m != nil {
		return []any{accuse{*m, kind, why}}
	}
	return nil
}

// accuseLost is about a node that was lost and had not said goodbye. One node keeps it: the leader, or the next one.
func (s *state) accuseLost(p policy, e lost) []any {
	if e.Why == leftJob || !s.leads() && (s.Self != 1 || e.Node != 0) {
		return nil
	}
	return s.accuse(p, e.Node, foundLost, lostVerdict(s.Nodes[e.Node].Name, e.Node, e.Why).Sentence)
}

// accuseFailed is the leader's, about the node where a worker failed first, if the machine was at fault.
func (s *state) accuseFailed(p policy, f *job.Failure) []any {
	if f == nil || f.Group < 0 || f.Group >= len(s.Nodes) ||
		!slices.ContainsFunc(f.Evidence, func(e job.Evidence) bool { return slices.Contains(faults, e.Kind) }) {
		return nil
	}
	return s.accuse(p, f.Group, foundFault, f.String())
}

// accuseHung is the leader's, about the one node of which the kernel does not let workers go, for which all others wait.
func (s *state) accuseHung(p policy, e stalled) []any {
	culprits := e.Finding.Hang.Culprits
	if e.Finding.Stage != heartbeat.Hung || len(e.Nodes) != 1 || len(culprits) == 0 || !culprits[0].Kernel {
		return nil
	}
	return s.accuse(p, e.Nodes[0], foundHung, "hang: "+e.Text)
}

// accuseExcluded is the leader's, about the node where a worker failed first, if that is left out for it.
func (s *state) accuseExcluded(p policy, f *job.Failure) []any {
	if f == nil || f.Group < 0 || f.Group >= len(s.Nodes) || s.Nodes[f.Group].Out == "" {
		return nil
	}
	return s.accuse(p, f.Group, foundExcluded, s.Nodes[f.Group].Out)
}
