package launcher

import (
	"fmt"
	"slices"

	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/job"
)

// This file is the judgement of what follows from a standstill of the workers. Like that of all else it is pure: whether and whom a
// standstill is a hang, the leader's watch has found out.
//
//	running ── suspect, slow ──▶ running; all nodes keep evidence
//	        ── hung ──▶ running (observe, dump), or stopping, for that cause (restart, exclude-node)
//	        ── somebody advances ──▶ running; it was no hang

// What is done at a hang.
const (
	hangObserve = "observe"      // it is named
	hangDump    = "dump"         // and evidence is kept
	hangRestart = "restart"      // and the round ends, as by a failed worker
	hangExclude = "exclude-node" // and the culprit's node is left out of the next
)

type (
	// stalled: the leader's watch has something to say of the workers' standstill.
	stalled struct {
		Finding heartbeat.Finding
		Text    string // it in words
		Group   int    // the node of the first culprit; -1: there is none
		Nodes   []int  // of all of them
	}
	// lagging: the leader's watch sees for whom the others wait, or that they do no more.
	lagging struct {
		Text string // of the worst; "": nothing new is to be said
		All  []job.Straggler
	}
	// clashing: the leader's watch sees a time-out of the framework that does not go with ours.
	clashing struct{ Text string }
	// collect: keep what helps to understand a standstill.
	collect struct {
		Why   string
		Nodes []int // of who is to blame
	}
)

// lagging is the leader's: people hear of the worst once, and see all for as long as it is so in this round.
func (s *state) lagging(e lagging) []any {
	s.Stragglers = e.All
	if e.Text == "" {
		return nil
	}
	return []any{say{e.Text}}
}

// stalled is the leader's: it tells all, and acts if the user wants it to.
func (s *state) stalled(p policy, e stalled) []any {
	if s.Verdict != nil || s.Next != nil || s.Stopping || s.Order != "" {
		return nil
	}
	todo := append([]any{tell{everyone, news{Kind: newsStalled, Stalled: &e}}}, s.noted(p, e)...)
	todo = append(todo, s.accuseHung(p, e)...)
	if e.Finding.Stage != heartbeat.Hung || p.leaves() || p.OnHang != hangRestart && p.OnHang != hangExclude {
		return todo
	}
	hang := e.Finding.Hang
	return append(todo, s.heard(p, cause{At: max(s.Now-hang.Quiet, 0), Node: max(e.Group, 0), Hang: &hang, Why: e.Text})...)
}

// noted is any node's: people see it, and evidence is kept while it is there.
func (s *state) noted(p policy, e stalled) []any {
	todo := []any{say{e.line()}}
	switch e.Finding.Stage {
	case heartbeat.Suspect, heartbeat.Slow, heartbeat.Hung:
		s.Stall, s.Stood = &e, s.Now-e.Finding.Quiet
		if p.OnHang != hangObserve {
			todo = append(todo, collect{e.Text, e.Nodes})
		}
	case heartbeat.Resumed:
		s.Stall = nil
		if e.Finding.False {
			s.Alarms++
		}
	}
	return todo
}

// line is the event for people.
func (e stalled) line() string {
	return map[heartbeat.Stage]string{
		heartbeat.Suspect: "this may be a hang: ", heartbeat.Slow: "slow: ", heartbeat.Hung: "hang: ",
	}[e.Finding.Stage] + e.Text
}

// hungVerdict is that of a job which ended for a hang. Another try may help against a fault of the machines, and never against ranks
// that wait for each other.
func hungVerdict(c cause) job.Verdict {
	v := job.Verdict{Code: job.ExitHung, Origin: "worker", Class: job.Hung, Sentence: "hang: " + c.Why, Hang: c.Hang}
	switch {
	case c.Hang.Class == heartbeat.Desync:
		v.Code = job.ExitDesync
	case len(c.Hang.Culprits) > 0 && c.Hang.Culprits[0].Queued: // what does not end is most often the script's
	case c.Hang.Class == heartbeat.Odd, c.Hang.Class == heartbeat.Network, len(c.Hang.Culprits) > 0 && c.Hang.Culprits[0].Halted:
		v.Code, v.Origin = job.ExitRetry, "platform"
	}
	v.Hint = hungHint(*c.Hang)
	return v
}

// hungHint is what a person can do about a hang.
func hungHint(h job.Hang) string {
	hint := hungHints[h.Class]
	if h.Done > 0 {
		hint = hungHints[heartbeat.Absent]
	}
	if culprits := h.Culprits; len(culprits) > 0 && culprits[0].Over != "" {
		hint = "look at what that rank does at its end: handlers of atexit, threads that are no daemons; --evidence DIR keeps its stack"
	}
	switch culprits := h.Culprits; {
	case len(culprits) > 0 && culprits[0].Ended:
		hint = unevenHint
	case len(culprits) > 0 && culprits[0].Queued:
		hint = "look at what that rank has on its GPU before the collective: a kernel of the script's own that waits for something; if it moves with the GPU, suspect the GPU"
	case h.Kernels:
		hint += "; with TORCH_NCCL_ENABLE_TIMING=1 it is seen whose GPU has not begun the collective"
	}
	if h.Class == heartbeat.Network && h.Number == 0 { // what they are in could not be matched: it may be class D
		hint = hungHints[heartbeat.Desync] + "; if they do, " + hint
	}
	return hint
}

// stood adds to how a round, or the job, ended that it hung until then: whoever failed of a time-out, or was told to stop by a person or a
// platform that lost patience, is not what was wrong.
func (s *state) stood(v job.Verdict) job.Verdict {
	hang, text := s.hung()
	if v.OK() || v.Hang != nil || hang == nil {
		return v
	}
	v.Sentence, v.Hang = v.Sentence+"; before that: "+text, hang
	if v.Hint == "" || v.First != nil && v.First.Echo {
		v.Hint = hungHint(*hang)
	}
	return v
}

// hung is the hang in which this round is until now, and its sentence; nil: it is in none.
func (s *state) hung() (*job.Hang, string) {
	if s.Stall == nil || s.Stall.Finding.Stage != heartbeat.Hung || s.Order != "" || s.Next != nil {
		return nil, ""
	}
	hang := s.Stall.Finding.Hang
	until := s.Now
	if s.Marks.Told != nil {
		until = *s.Marks.Told
	}
	text := s.Stall.line()
	before, after, timed := hang.Cut(text)
	if hang.Quiet = max(hang.Quiet, until-s.Stood); timed {
		text = before + " for " + hang.Lasted() + after
	}
	return &hang, text
}

var hungHints = map[string]string{
	heartbeat.Absent:  "look at what that rank does; --evidence DIR keeps its stack, and those of the others",
	heartbeat.Odd:     "look at that node: its kernel log, its disks and accelerators, who stopped the process",
	heartbeat.Network: "look at the network between the nodes: links, firewalls, NCCL_SOCKET_IFNAME, switches",
	heartbeat.Desync:  "all ranks must call the same collectives in the same order, and with the same sizes: look for a branch that depends on the rank or its data",
	heartbeat.Starved: "look at what feeds the data loaders: storage, network file systems, queues",
}

// singles reports whether a hang is due to its first culprit, rather than to all ranks alike.
func singles(h job.Hang) bool {
	return len(h.Culprits) > 0 && (h.Class != heartbeat.Starved || h.Culprits[0].Halted)
}

// excluded leaves the node of a hang out of the next world, if the others can do without it. It returns the end of a sentence.
func (s *state) excluded(p policy, v job.Verdict) string {
	i := slices.IndexFunc(s.Causes, func(c cause) bool { return c.Hang == v.Hang })
	if p.OnHang != hangExclude || i < 0 || !singles(*v.Hang) {
		return ""
	}
	c := s.Causes[i]
	if s.Nodes[c.Node].Gone || !p.Yields || s.present()-1+s.Queue < p.Fewest {
		return ""
	}
	n := s.edit(c.Node)
	n.Out = fmt.Sprintf("it is to blame for a hang on %s", nodeName(s.Nodes, c.Node))
	return "; " + leftOut(n.Out, p.Rest)
}
