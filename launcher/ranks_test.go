package launcher

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
)

// How each rank stands follows from what is known of it, of its node, and of the world; what is known of it says most.
func TestRanks(t *testing.T) {
	world := &job.World{Members: []job.Member{{Node: job.Node{Slots: 2}}, {Node: job.Node{Slots: 2}, First: 2}}}
	failed := job.Failure{Rank: 3, Group: 1, PID: 7, Exit: job.Exit{Signal: 9}, Exception: "ValueError: x"}
	stall := func(stage heartbeat.Stage) *stalled {
		return &stalled{Finding: heartbeat.Finding{Stage: stage, Hang: job.Hang{Culprits: []job.Culprit{{Rank: 1, Looks: "stopped"}}}}}
	}
	for name, c := range map[string]struct {
		state func(s *state)
		want  string
	}{
		"before the round": {func(s *state) { s.Start = nil }, "waiting waiting waiting waiting"},
		"it runs":          {func(*state) {}, "running running running running"},
		"a straggler":      {func(s *state) { s.Stragglers = []job.Straggler{{Rank: 2}} }, "running running straggler running"},
		"a silent node":    {func(s *state) { s.edit(1).Mute = 5 }, "running running silent silent"},
		"a suspect":        {func(s *state) { s.Stall = stall(heartbeat.Suspect) }, "blocked suspect blocked blocked"},
		"a hang":           {func(s *state) { s.Stall = stall(heartbeat.Hung) }, "blocked hung blocked blocked"},
		"nobody can tell":  {func(s *state) { s.Stall = stall(heartbeat.Unclear); s.Stall.Finding.Culprits = nil }, "running running running running"},
		"one failed": {func(s *state) {
			s.Stopping, s.Causes = true, []cause{{Node: 1, Failure: &failed}}
		}, "stopping stopping stopping failed"},
		"and others are gone": {func(s *state) {
			s.Stopping, s.Empty, s.Causes = true, true, []cause{{Node: 1, Failure: &failed}}
			s.edit(0).Clear = true
			s.edit(1).Clear = true
			s.edit(1).Ranks = []job.Ended{{Rank: 2, Exit: job.Exit{Signal: 15, Sent: true}}, {Rank: 3, Exit: failed.Exit}}
		}, "stopped stopped stopped failed"},
		"a node was lost": {func(s *state) {
			s.Stopping = true
			s.edit(1).Gone = true
		}, "stopping stopping lost lost"},
		"one is done":   {func(s *state) { s.Ranks = []job.Ended{{Rank: 0}} }, "done running running running"},
		"a node is":     {func(s *state) { s.edit(1).Done = true; s.edit(1).Gone = true }, "running running done done"},
		"it ended well": {func(s *state) { s.Verdict = &job.Verdict{Class: job.Succeeded} }, "done done done done"},
		"it failed": {func(s *state) {
			s.Verdict = &job.Verdict{Code: 137, Class: job.Killed, First: &failed}
			s.edit(0).Clear = true
			s.edit(1).Clear = true
		}, "stopped stopped stopped failed"},
		"of a member": {func(s *state) { s.Self = 1 }, "running running"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state{Nodes: []*node{{Name: "a"}, {Name: "b"}}, Start: &start{}, Started: true}
			c.state(s)
			var got []string
			for _, r := range (standing{of: world, state: s}).ranks() {
				got = append(got, r.State)
				if r.State == report.RankFailed && !strings.Contains(r.Note, "SIGKILL") {
					t.Errorf("of rank %d it is said: %q", r.Rank, r.Note)
				}
			}
			if fmt.Sprint(got) != "["+c.want+"]" {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	if all := (standing{of: world, state: &state{Nodes: []*node{{}}}}).ranks(); all != nil {
		t.Errorf("of another world: %+v", all)
	}
}

// How far ranks are is what was told of them last, and never less than before.
func TestFar(t *testing.T) {
	w := &watch{world: job.World{Members: []job.Member{{Node: job.Node{Slots: 2}}}}}
	w.note([]job.Beat{{Rank: 0, Steps: 7, Phase: "checkpoint"}, {Rank: 5, Steps: 9}})
	w.note([]job.Beat{{Rank: 0, Steps: 6}})
	if got, first := w.reached(); first != 0 || len(got) != 2 || got[0] != (far{steps: 7}) {
		t.Errorf("%+v from %d", got, first)
	}
	w = &watch{group: 1, world: job.World{Members: []job.Member{{Node: job.Node{Slots: 2}}, {Node: job.Node{Slots: 2}, First: 2}}}}
	w.note([]job.Beat{{Rank: 1, Steps: 5}, {Rank: 3, Steps: 8}, {Rank: 4, Steps: 9}})
	if got, first := w.reached(); first != 2 || !slices.Equal(got, []far{{}, {steps: 8}}) {
		t.Errorf("of a member's own ranks: %+v from %d", got, first)
	}
}
