package launcher

import (
	"slices"

	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
)

// This file is how each rank stands, as far as this node knows: the leader of all nodes' ranks, a member of its own.

// A far is how far a rank has come.
type far struct {
	steps uint64
	phase string // that it announced: checkpoint, evaluation, …
}

// note keeps how far ranks have come, the leader those of all nodes: the beats themselves are of one look only.
func (w *watch) note(beats []job.Beat) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first, n := w.hears()
	if w.far == nil {
		w.far = make([]far, n)
	}
	for i := range beats {
		if b, at := &beats[i], beats[i].Rank-first; at >= 0 && at < n {
			w.far[at] = far{max(b.Steps, w.far[at].steps), b.Phase}
		}
	}
}

// hears is of which ranks this agent is told how far they have come: the first, and how many.
func (w *watch) hears() (first, n int) {
	if w.group == 0 {
		return 0, w.world.Size()
	}
	me := w.world.Members[w.group]
	return me.First, me.Slots
}

// reached is how far the ranks have come of which this agent is told, from the first of them on.
func (w *watch) reached() (all []far, first int) {
	if w == nil {
		return nil, 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	first, _ = w.hears()
	return slices.Clone(w.far), first
}

// ranks is how each rank stands.
func (now standing) ranks() (all []report.StatusRank) {
	w, s := now.of, now.state
	if w == nil || s == nil || len(w.Members) != len(s.Nodes) {
		return nil
	}
	seen := sightings(s)
	reached, first := now.watch.reached()
	for n, m := range w.Members {
		if !s.leads() && n != s.Self {
			continue
		}
		for rank := m.First; rank < m.First+m.Slots; rank++ {
			r := report.StatusRank{Rank: rank, Node: n, State: s.outlook(n)}
			if i := rank - first; i >= 0 && i < len(reached) {
				r.Step, r.Note = reached[i].steps, reached[i].phase
			}
			if own, known := seen[rank]; known && (r.State == report.RankRuns || own.State == report.RankFailed || own.State == report.RankDone || own.State == report.RankStopped) {
				r.State, r.Note = own.State, own.Note
			} else if r.State == report.RankRuns && s.Stall != nil && s.Stall.Finding.Stage >= heartbeat.Suspect {
				r.State = report.RankBlocked
			}
			all = append(all, r)
		}
	}
	return all
}

// outlook is the state of a node's ranks of which nothing else is known.
func (s *state) outlook(n int) string {
	node := s.Nodes[n]
	switch {
	case node.Gone && (s.Verdict == nil || !s.Verdict.OK()) && !node.Done && !node.Clear:
		return report.RankLost
	case node.Done || s.Verdict != nil && s.Verdict.OK() && s.Order == "":
		return report.RankDone
	case node.Clear:
		return report.RankStopped
	case s.Stopping && n == s.Self && s.Empty:
		return report.RankStopped
	case s.Stopping || s.Verdict != nil:
		return report.RankStops
	case s.Start == nil:
		return report.RankWaits
	case node.Mute > 0:
		return report.RankSilent
	}
	return report.RankRuns
}

// sightings are the ranks of which more is known than of their nodes.
func sightings(s *state) map[int]report.StatusRank {
	seen := map[int]report.StatusRank{}
	set := func(rank int, state, note string) { seen[rank] = report.StatusRank{State: state, Note: note} }
	for _, l := range s.Stragglers {
		set(l.Rank, report.RankStraggles, l.String())
	}
	if s.Stall != nil {
		state, found := report.RankSuspect, s.Stall.Finding
		if found.Stage == heartbeat.Hung {
			state = report.RankHung
		}
		for _, c := range found.Culprits {
			set(c.Rank, state, c.Looks)
		}
	}
	for _, e := range s.ranks() {
		switch {
		case e.Exit.OK():
			set(e.Rank, report.RankDone, "")
		case e.Exit.Sent:
			set(e.Rank, report.RankStopped, e.Exit.String())
		default:
			set(e.Rank, report.RankFailed, e.Exit.String())
		}
	}
	for _, f := range s.failures() {
		why := f.Exit.String()
		if f.Exception != "" {
			why += ": " + f.Exception
		}
		set(f.Rank, report.RankFailed, why)
	}
	return seen
}

// failures are the workers that failed in this round, as far as this node heard.
func (s *state) failures() (all []job.Failure) {
	for _, c := range s.Causes {
		if c.Failure != nil {
			all = append(all, *c.Failure)
		}
	}
	if s.Verdict != nil && s.Verdict.First != nil && len(all) == 0 {
		all = append(all, *s.Verdict.First)
	}
	return all
}
