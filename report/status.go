package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/muster-run/muster/job"
)

// StatusSchema names the form of a status; docs/control.md describes it. The number grows when a field changes its meaning,
// not when one is added.
const StatusSchema = "muster.status/1"

// A Status is how a job stands, as the agent of one of its nodes sees it.
type Status struct {
	Schema  string    `json:"schema"`
	Job     string    `json:"job"`
	Host    string    `json:"host"`           // this node's name
	PID     int       `json:"pid"`            // the agent's
	Life    int       `json:"life,omitempty"` // agents before it, each of which died or made way
	HTTP    string    `json:"http,omitempty"` // where its status page is, for people; "": on its socket alone
	Version string    `json:"muster"`         // of the muster binary
	Began   time.Time `json:"began_at"`

	Phase string    `json:"phase"`               // one of the phases below
	Since time.Time `json:"since"`               // when it began
	Waits string    `json:"waits_for,omitempty"` // what has to happen before it ends, as far as this agent knows

	Node        *int           `json:"node,omitempty"` // this node's group rank; nil: there is no world yet
	World       int            `json:"world_size,omitempty"`
	Nodes       []StatusNode   `json:"nodes,omitempty"` // by group rank
	Order       string         `json:"order,omitempty"` // of their ranks: by what they follow each other
	Round       int            `json:"round"`           // rounds before this one
	MaxRestarts int            `json:"max_restarts"`    // that failures may be followed by
	Workers     []StatusWorker `json:"workers,omitempty"`
	Ranks       []StatusRank   `json:"ranks,omitempty"`        // by rank: of all nodes as node 0 knows them, else of this one
	Causes      []string       `json:"causes,omitempty"`       // what went wrong in this round, as far as this agent heard
	Rounds      []StatusRound  `json:"rounds,omitempty"`       // how those before ended; node 0 alone knows
	Message     string         `json:"message,omitempty"`      // how the job ends, once that is known
	Stall       string         `json:"stall,omitempty"`        // what was said last of a standstill that lasts
	Alarms      int            `json:"false_alarms,omitempty"` // standstills that were called a hang, and were none
	Suspects    string         `json:"suspects,omitempty"`     // machines that failed jobs before, and what place their nodes have; the node that led the meeting alone knows
	Clashes     []string       `json:"clashes,omitempty"`      // time-outs of the framework that do not go with ours; node 0 alone knows

	Spent *job.Account `json:"ledger,omitempty"` // where the job's time went, as far as this node knows

	Health []string `json:"health,omitempty"` // what broke of machines during the job, the last few

	Stragglers []job.Straggler `json:"stragglers,omitempty"` // for whom the others wait, the worst first; node 0 alone knows
}

// The phases of a job on a node.
const (
	Starting = "starting" // nobody is met yet, or the round's workers are about to be started
	Meeting  = "meeting"  // nodes are looking for each other
	Running  = "running"  // this node's workers were started
	Stopping = "stopping" // the round is being ended
	Paused   = "paused"   // there are no workers until somebody says resume
	Leaving  = "leaving"  // the verdict is known
	Parked   = "parked"   // the job ended well, and the agent stays

	Observing = "observing" // another launcher runs the job
)

// StatusNode is one node of the world.
type StatusNode struct {
	Name  string `json:"name"`
	Done  bool   `json:"done,omitempty"`  // all its workers ended well
	Clear bool   `json:"clear,omitempty"` // it was told to stop, and nothing is left of its workers
	Gone  bool   `json:"gone,omitempty"`  // its agent left or was lost
	Place string `json:"place,omitempty"` // where it stands in the network, as far as it and this node know
}

// StatusWorker is one worker of this node.
type StatusWorker struct {
	Rank      int       `json:"rank"`
	LocalRank int       `json:"local_rank"`
	PID       int       `json:"pid"`
	State     string    `json:"state"`                   // running, or how it ended
	Step      uint64    `json:"step,omitempty"`          // of training, as far as they can be counted
	Beats     string    `json:"heartbeats,omitempty"`    // where they come from: recorder, hooks, beats; none, and why
	Quiet     *float64  `json:"quiet_seconds,omitempty"` // since when it tells of no progress; nil: it never did, or runs no more
	Exit      *job.Exit `json:"exit,omitempty"`          // nil: it runs
	CPU       float64   `json:"cpu_seconds,omitempty"`   // of the worker itself, without its children
	Memory    int64     `json:"memory_bytes,omitempty"`  // resident, the same
}

// StatusRank is one rank of the world, as far as this node knows of it.
type StatusRank struct {
	Rank  int    `json:"rank"`
	Node  int    `json:"node"`           // group rank
	State string `json:"state"`          // one of those below
	Step  uint64 `json:"step,omitempty"` // of training, as far as they can be counted
	Note  string `json:"note,omitempty"` // how it ended, or what else is to be said of it
}

// The states of a rank, the calm ones first.
const (
	RankWaits     = "waiting"   // its worker is not started
	RankRuns      = "running"   // or so is assumed of it
	RankStops     = "stopping"  // it was told to
	RankStopped   = "stopped"   // nothing is left of it
	RankDone      = "done"      // it ended well
	RankBlocked   = "blocked"   // the world stands still, and it waits for another one
	RankStraggles = "straggler" // the others wait for it while training goes on
	RankSilent    = "silent"    // nothing is heard of its node
	RankSuspect   = "suspect"   // the world stands still, perhaps because of it
	RankHung      = "hung"      // the world hangs because of it
	RankLost      = "lost"      // its node is gone
	RankFailed    = "failed"    // it ended badly
)

// RankStates are all of them.
var RankStates = []string{RankWaits, RankRuns, RankStops, RankStopped, RankDone, RankBlocked, RankStraggles, RankSilent, RankSuspect, RankHung, RankLost, RankFailed}

// Troubled reports whether a person should look at a rank in this state.
func Troubled(state string) bool {
	switch state {
	case RankStraggles, RankSilent, RankSuspect, RankHung, RankLost, RankFailed:
		return true
	}
	return false
}

// StatusRound is a round that is over.
type StatusRound struct {
	Round   int    `json:"round"`
	Message string `json:"message"`
}

// JSON is the status in the form of docs/control.md.
func (s Status) JSON() []byte {
	data, _ := json.MarshalIndent(s, "", "  ") // plain values: cannot fail
	return append(data, '\n')
}

// Text is the status for people. What other machines and workers said does nothing to a terminal.
func (s Status) Text(now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "job %s: %s for %v%s\n", Plain(s.Job), s.Phase, now.Sub(s.Since).Round(time.Second), s.round())
	if s.Node != nil {
		fmt.Fprintf(&b, "world size %d on %s; this is node %d (%s)\n", s.World, count(len(s.Nodes), "node"), *s.Node, Plain(s.Host))
	}
	said := func(what, text string) {
		if text != "" {
			b.WriteString(Plain(what+text) + "\n")
		}
	}
	said("page: ", s.HTTP)
	said("ranks: ", s.Order)
	said("waits for: ", s.Waits)
	said("", s.Message)
	said("", s.Stall)
	said("mind: ", s.Suspects)
	for _, c := range s.Clashes {
		said("mind: ", c)
	}
	for _, h := range s.Health {
		said("health: ", h)
	}
	for _, l := range s.Stragglers {
		said("straggler: ", l.String())
	}
	for _, c := range s.Causes {
		said("went wrong: ", c)
	}
	for _, r := range s.Rounds {
		said(fmt.Sprintf("round %d ended: ", r.Round), r.Message)
	}
	if _, back, had := s.Recovery(); had && s.Message == "" {
		said("", back)
	}
	b.WriteString(s.nodes() + s.workers())
	return b.String()
}

func (s Status) round() string {
	if s.Round == 0 && s.MaxRestarts == 0 {
		return ""
	}
	return fmt.Sprintf(", round %d, after which %s may follow", s.Round, count(max(s.MaxRestarts-s.Round, 0), "other"))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// manyNodes is how many nodes are listed one by one, unless something is to be said of them.
const manyNodes = 16

func (s Status) nodes() string {
	if len(s.Nodes) < 2 {
		return ""
	}
	place := func(StatusNode) string { return "" }
	head := ""
	if slices.ContainsFunc(s.Nodes, func(n StatusNode) bool { return n.Place != "" }) {
		head, place = "\tPLACE", func(n StatusNode) string { return "\t" + cmp.Or(Plain(n.Place), "-") }
	}
	said, troubled := func(int) string { return "" }, map[int]bool{}
	for _, r := range s.Ranks {
		troubled[r.Node] = troubled[r.Node] || Troubled(r.State)
	}
	if len(s.Ranks) > 0 {
		of := s.ranks()
		head += "\tRANKS"
		said = func(node int) string { return "\t" + cmp.Or(of[node], "-") }
	}
	return table(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "\nNODE\tNAME\tSTATE"+head)
		plain := 0
		for i, n := range s.Nodes {
			if n.State() == "" && len(s.Nodes) > manyNodes && i != *s.Node && !troubled[i] {
				plain++
				continue
			}
			fmt.Fprintf(w, "%d\t%s\t%s%s%s\n", i, Plain(n.Name), cmp.Or(n.State(), "-"), place(n), said(i))
		}
		if plain > 0 {
			fmt.Fprintf(w, "and %d nodes of which there is nothing to say\n", plain)
		}
	})
}

// ranks is how those of each node stand: "0-7 running", or "0-7: rank 3 hung, 7 blocked".
func (s Status) ranks() map[int]string {
	said := map[int]string{}
	for first := 0; first < len(s.Ranks); {
		end, n := first, map[string]int{}
		var who, calm []string
		for ; end < len(s.Ranks) && s.Ranks[end].Node == s.Ranks[first].Node; end++ {
			r := s.Ranks[end]
			n[r.State]++
			switch {
			case Troubled(r.State) && len(who) < manyNodes:
				who = append(who, fmt.Sprintf("rank %d %s", r.Rank, r.State))
			case !Troubled(r.State) && n[r.State] == 1:
				calm = append(calm, r.State)
			}
		}
		text := fmt.Sprint(s.Ranks[first].Rank)
		if end-first > 1 {
			text += fmt.Sprintf("-%d", s.Ranks[end-1].Rank)
		}
		if len(n) == 1 {
			text += " " + s.Ranks[first].State
		} else {
			for _, state := range calm {
				who = append(who, fmt.Sprintf("%d %s", n[state], state))
			}
			text += ": " + strings.Join(who, ", ")
		}
		said[s.Ranks[first].Node] = text
		first = end
	}
	return said
}

// State is what is to be said of a node; "": nothing.
func (n StatusNode) State() string {
	switch {
	case n.Gone:
		return "gone"
	case n.Clear:
		return "stopped"
	case n.Done:
		return "done"
	}
	return ""
}

func (s Status) workers() string {
	if len(s.Workers) == 0 {
		return ""
	}
	return table(func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "\nRANK\tLOCAL\tPID\tCPU\tMEMORY\tSTEP\tSTATE")
		for _, r := range s.Workers {
			cpu, memory, step := "-", "-", "-"
			if r.Step > 0 {
				step = fmt.Sprint(r.Step)
			}
			if r.Memory > 0 {
				cpu = time.Duration(r.CPU * float64(time.Second)).Round(time.Second / 10).String()
				memory = fmt.Sprintf("%.1f MiB", float64(r.Memory)/(1<<20))
			}
			fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%s\t%s\t%s\n", r.Rank, r.LocalRank, r.PID, cpu, memory, step, Plain(r.State))
		}
	})
}

func table(fill func(*tabwriter.Writer)) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fill(w)
	_ = w.Flush() // into memory
	return b.String()
}
