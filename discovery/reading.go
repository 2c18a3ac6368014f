package discovery

import (
	"net"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// A Reading is a finding for programs, as `muster discover --json` prints it. What is null nobody said.
type Reading struct {
	Rule string `json:"rule"`
	// Nodes train: a number; "unknown", where the platform does not say; "told-by-launcher". Null for a range.
	Nodes any  `json:"nodes"`
	Min   *int `json:"min"`
	Max   *int `json:"max"`
	// Rank is this node's number; "assigned", where the nodes settle it when they meet; null, where it does not train.
	Rank            any      `json:"rank"`
	Prefer          *int     `json:"prefer"`
	Host            *string  `json:"host"` // "self": this node, which is told no name of its own
	Port            *int     `json:"port"`
	PortOwner       *string  `json:"portOwner"` // "framework": muster meets elsewhere
	PortIsExclusive bool     `json:"portIsExclusive"`
	FixPort         *int     `json:"fixPort"`
	NProc           *int     `json:"nproc"`
	Workers         *int     `json:"workers"` // that muster run would start here, unless flags say otherwise; the caller's to fill in
	Role            *string  `json:"role"`
	Index           *int     `json:"index"`
	Hosts           []string `json:"hosts"`
	Servers         int      `json:"servers"`
	Group           *int     `json:"group"`
	Members         *int     `json:"members"`
	Sparse          bool     `json:"sparse"`
	JobID           *string  `json:"jobID"`
	Attempt         *int     `json:"attempt"`
	Namespace       *string  `json:"namespace"` // of Kubernetes, where it is a part of the id under which the nodes meet
	RdzvID          *string  `json:"rdzvID"`    // that id, unless flags say otherwise; the caller's to fill in
	Framework       *string  `json:"framework"`

	PerProcess       bool `json:"perProcess"`
	Processes        *int `json:"processes"` // on all nodes
	ProcessRank      *int `json:"processRank"`
	LocalRank        *int `json:"localRank"`
	ParkAfterSuccess bool `json:"parkAfterSuccess"`
	ExitDecider      bool `json:"exitDecider"`

	Place   string   `json:"place,omitempty"` // of this node in the network, the caller's to fill in,
	PlaceBy []string `json:"placeBy,omitempty"`

	Evidence []string `json:"evidence"`
	Warn     []string `json:"warn"`     // words for programs
	Warnings []string `json:"warnings"` // the same for people
	NotRun   *string  `json:"notRun"`   // why muster run has no part in this
	Error    *string  `json:"error"`
}

// Reading says what a finding means on the machine where it was found.
func (f Finding) Reading(h job.Host) Reading {
	out := Reading{
		Rule: f.Rule, Nodes: f.nodes(), Rank: f.rank(), Prefer: known(f.Prefer), Port: positive(f.Port), PortIsExclusive: f.Taken,
		FixPort: positive(f.FixPort), NProc: f.nproc(h), Role: text(f.Role), Index: known(f.Index), Hosts: f.Hosts, Servers: f.Servers,
		Group: known(f.Group), Members: positive(f.Members), Sparse: f.Sparse, JobID: text(f.JobID), Attempt: known(f.Attempt), Namespace: text(f.Namespace),
		Framework: text(f.Framework), PerProcess: f.PerProcess, ParkAfterSuccess: f.Park, ExitDecider: f.Decider,
		Processes: positive(f.Processes), ProcessRank: known(f.ProcessRank), LocalRank: known(f.LocalRank),
		Evidence: f.Evidence, Warn: []string{}, Warnings: []string{}, NotRun: wrong(f.Barred), Error: wrong(f.Trouble()),
	}
	if f.Least != 0 {
		out.Min, out.Max = positive(f.Least), positive(f.Nodes)
	} else if f.Trouble() == nil {
		out.Min, out.Max = positive(f.Nodes), positive(f.Nodes)
	}
	if len(f.Etcd) > 0 {
		host, port, _ := net.SplitHostPort(strings.TrimPrefix(f.Etcd[0], secure))
		n, _ := strconv.Atoi(port) // as Members spells it
		f.Host, out.Port = host, positive(n)
	}
	if out.Host = text(f.Host); f.Self {
		out.Host = text("self")
	}
	if f.Taken {
		out.PortOwner = text("framework")
	}
	for _, w := range f.Warnings {
		out.Warn, out.Warnings = append(out.Warn, w.Code), append(out.Warnings, w.Text)
	}
	return out
}

// nodes is how many train.
func (f Finding) nodes() any {
	switch {
	case f.Rule == "single" && f.Trouble() != nil, f.Nested:
		return nil
	case f.Least != 0:
		return nil
	case f.Nodes > 0:
		return f.Nodes
	case f.ToldBy != "":
		return "told-by-" + f.ToldBy
	case f.Problem == nil:
		return "unknown"
	}
	return nil
}

// rank is this node's number.
func (f Finding) rank() any {
	switch {
	case f.Rank >= 0:
		return f.Rank
	case f.Trouble() != nil || f.Barred != nil || f.Serves || f.Outside:
		return nil
	case f.Nodes == 1 && f.Least == 0:
		return 0
	}
	return "assigned"
}

// nproc is how many workers this node would have.
func (f Finding) nproc(h job.Host) *int {
	n, err := strconv.Atoi(f.NProc)
	switch {
	case f.PerProcess:
		return positive(1)
	case err == nil:
		return &n
	case f.Nested || f.NProc == "cpu":
		return nil
	case h.GPUs != nil && h.GPUs() > 0:
		return positive(h.GPUs())
	}
	return positive(1)
}

// known is a number from 0, nil where there is none.
func known(n int) *int {
	if n < 0 {
		return nil
	}
	return &n
}

// positive is a number from 1, nil where there is none.
func positive(n int) *int {
	if n <= 0 {
		return nil
	}
	return &n
}

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func wrong(err error) *string {
	if err == nil {
		return nil
	}
	return text(err.Error())
}
