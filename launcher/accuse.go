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

// A charge is what members found about their leader. Each brings it to the next world, whose leader keeps it once.
type charge struct {
	Accuse     accuse `json:"accuse"`
	Generation int    `json:"generation"` // of the world that lost its leader
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
	return []any{tell{to, news{Kind: newsHere, Machine: m, Charge: s.Charge}}}
}

// accuse is a finding about a node.
func (s *state) accuse(p policy, n int, kind, why string) []any {
	if m := s.Nodes[n].Machine; p.Suspects && m != nil {
		return []any{accuse{*m, kind, why}}
	}
	return nil
}

// accuseLost is about a node that was lost and had not said goodbye. One node keeps it: the leader; about the leader, the next one, or, where
// none follows, the first of those who are left.
func (s *state) accuseLost(p policy, e lost) []any {
	if e.Why == leftJob || !s.leads() && e.Node != 0 {
		return nil
	}
	found := s.accuse(p, e.Node, foundLost, lostVerdict(s.Nodes[e.Node].Name, e.Node, e.Why).Sentence)
	if s.leads() || found == nil {
		return found
	}
	s.Charge = &charge{found[0].(accuse), s.Generation}
	if p.Regroups {
		return nil
	}
	return s.lastCharge("")
}

// brought is the charge that this node brings from the world that it left.
func (s *state) brought() *charge {
	if s.Charge == nil || s.Charge.Generation != s.Generation {
		return nil
	}
	return s.Charge
}

// charged is the leader's: somebody says that an earlier leader was lost. Of itself it knows better, unless it came anew.
func (s *state) charged(p policy, c *charge) []any {
	if !p.Suspects || c == nil || c.Accuse.Kind != foundLost || slices.ContainsFunc(s.Charged, c.Accuse.Machine.Is) {
		return nil
	}
	if me := s.Nodes[s.Self].Machine; me != nil && me.Is(c.Accuse.Machine) && s.Was == c.Generation {
		return nil
	}
	s.Charged = append(slices.Clone(s.Charged), c.Accuse.Machine)
	return []any{c.Accuse}
}

// lastCharge is that of a job which has no other leader: first is who came first to the meeting that failed; "": nobody knows.
func (s *state) lastCharge(first string) []any {
	if s.brought() == nil || first != "" && first != s.Nodes[s.Self].ID || first == "" && s.Self != 1 {
		return nil
	}
	return []any{s.Charge.Accuse}
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
