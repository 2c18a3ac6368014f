package launcher

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/job"
)

// accusations are what is found in a world of three nodes, by whom, as long as it goes.
func accusations(t *testing.T, change func(*world), happen func(*world)) (all []string) {
	w := newWorld(t, 3)
	w.policy.Suspects = true
	for n := range w.states {
		for i := range 3 {
			w.states[n].Nodes[i].Machine = &job.Machine{Name: fmt.Sprintf("gpu%d", i)}
		}
	}
	change(w)
	w.begin()
	happen(w)
	w.run()
	for _, line := range w.log {
		if at, deed, ok := strings.Cut(line, ": launcher.accuse "); ok {
			all = append(all, at[strings.Index(at, "node"):]+" "+deed)
		}
	}
	return all
}

// What is found about a machine is kept once, by one node: that a node was lost, that it was left out, or that the machine was at fault. A goodbye
// is no loss, and a program that fails none of the machine's.
func TestAccusations(t *testing.T) {
	regroups := func(w *world) {
		w.policy.Regroups, w.policy.Yields, w.policy.Fewest, w.policy.Nodes, w.fewest = true, true, 2, 3, 2
	}
	fails := func(kind string) func(*world) {
		return func(w *world) {
			f := &job.Failure{Node: "host-1", Rank: 2, Group: 1, PID: 100, Exit: job.Exit{Code: 3}, Evidence: []job.Evidence{{Kind: kind}}}
			w.feed(1, finished{job.Ended{Rank: 2}, f})
		}
	}
	hangs := func(nodes int, kernel bool) func(*world) {
		return func(w *world) {
			f := heartbeat.Finding{Stage: heartbeat.Hung, Hang: job.Hang{Class: heartbeat.Odd, Culprits: []job.Culprit{{Rank: 2, Halted: true, Kernel: kernel}}}}
			w.feed(0, stalled{Finding: f, Text: "rank 2 waits for its disk", Group: 1, Nodes: []int{1, 2}[:nodes]})
		}
	}
	for name, c := range map[string]struct {
		change func(*world)
		happen func(*world)
		want   []string
	}{
		"a member is lost":     {regroups, func(w *world) { w.feed(1, death{}) }, []string{"node 0 {Machine:gpu1 Kind:lost Why:node 1 (host-1) was lost: connection refused}"}},
		"and the job with it":  {func(*world) {}, func(w *world) { w.feed(1, death{}) }, []string{"node 0 {Machine:gpu1 Kind:lost Why:node 1 (host-1) was lost: connection refused}"}},
		"the leader is lost":   {regroups, func(w *world) { w.feed(0, death{}) }, []string{"node 1 {Machine:gpu0 Kind:lost Why:node 0 (host-0) was lost: connection refused}"}},
		"and the job with him": {func(*world) {}, func(w *world) { w.feed(0, death{}) }, []string{"node 1 {Machine:gpu0 Kind:lost Why:node 0 (host-0) was lost: connection refused}"}},
		"and the next leader": {func(w *world) { regroups(w); w.policy.Fewest, w.fewest = 1, 1 }, func(w *world) { w.feed(0, death{}); w.feed(1, death{}) },
			[]string{"node 2 {Machine:gpu0 Kind:lost Why:node 0 (host-0) was lost: connection refused}"}},
		"and nobody follows": {func(w *world) { regroups(w); w.policy.Fewest, w.fewest = 3, 3 }, func(w *world) { w.feed(0, death{}) },
			[]string{"node 1 {Machine:gpu0 Kind:lost Why:node 0 (host-0) was lost: connection refused}"}},
		"a member says goodbye":   {func(*world) {}, func(w *world) { w.dead[1] = true; w.feed(0, departed{1}) }, nil},
		"a GPU is broken":         {regroups, fails("gpu-ecc"), []string{"node 0 {Machine:gpu1 Kind:fault Why:rank 2 on host-1 (node 1, local rank 0, pid 100) exited with code 3; }"}},
		"a program is":            {regroups, fails("syntax"), nil},
		"too many fail on a node": {func(w *world) { regroups(w); w.policy.Exclude, w.policy.MaxRestarts = 1, 1 }, fails("syntax"), []string{"node 0 {Machine:gpu1 Kind:excluded Why:1 rounds failed on node 1 (host-1)}"}},
		"the kernel keeps a rank": {regroups, hangs(1, true), []string{"node 0 {Machine:gpu1 Kind:hung Why:hang: rank 2 waits for its disk}"}},
		"a rank is stopped":       {regroups, hangs(1, false), nil},
		"two nodes are to blame":  {regroups, hangs(2, true), nil},
		"nobody is to keep it":    {func(w *world) { regroups(w); w.policy.Suspects = false }, func(w *world) { w.feed(1, death{}) }, nil},
	} {
		if got := accusations(t, c.change, c.happen); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// In a new world each side hears on which machine the other is, also an agent that follows another.
func TestMachinesAreTold(t *testing.T) {
	p := policy{Suspects: true}
	at := func(self int) state {
		s, todo := decide(p, state{}, 0, met{Generation: 1, Self: self, Nodes: []string{"a", "b"}, Machine: &job.Machine{Name: "gpu"}, Hold: true})
		if len(todo) != 1 || todo[0].(tell).News.Machine.Name != "gpu" || todo[0].(tell).To != []int{everyone, 0}[self] {
			t.Errorf("node %d: %+v", self, todo)
		}
		return s
	}
	for self := range 2 {
		s, _ := decide(p, at(self), 0, told{1 - self, news{Kind: newsHere, Machine: &job.Machine{Name: "other"}}})
		if m := s.Nodes[1-self].Machine; m == nil || m.Name != "other" {
			t.Errorf("node %d heard of %v", self, m)
		}
		if todo := s.standing(p, 1-self); len(todo) == 0 || todo[0].(tell).News.Kind != newsHere {
			t.Errorf("node %d says again %+v", self, todo)
		}
	}
}

// What members found about a leader that was lost is kept once by the next, even if that was not there; but not by one that was never gone.
func TestChargesAreBrought(t *testing.T) {
	p := policy{Suspects: true, Regroups: true}
	gone, other := job.Machine{Name: "gpu0"}, job.Machine{Name: "gpu7"}
	c := &charge{accuse{gone, foundLost, "node 0 was lost"}, 3}
	for name, test := range map[string]struct {
		leader job.Machine
		was    int
		want   int
	}{
		"a spare leads":           {other, 0, 1},
		"it has come back":        {gone, 0, 1},
		"it was not gone":         {gone, 3, 0},
		"a member of before does": {other, 3, 1},
	} {
		s := state{Generation: test.was}
		s, _ = decide(p, s, 0, met{Generation: 4, Nodes: []string{"a", "b", "c"}, Machine: &test.leader, Hold: true})
		kept := 0
		for from := 1; from < 3; from++ {
			var todo []any
			s, todo = decide(p, s, 0, told{from, news{Kind: newsHere, Machine: &other, Charge: c}})
			kept += len(todo)
		}
		if kept != test.want {
			t.Errorf("%s: it is kept %d times, want %d", name, kept, test.want)
		}
	}
}

// A charge comes to the next world and no further, and where there is none, who came first to the meeting keeps it.
func TestChargesLastOneWorld(t *testing.T) {
	p, at := policy{Suspects: true, Regroups: true, Nodes: 3}, &job.Machine{Name: "gpu2"}
	meets := met{Generation: 3, Self: 2, Nodes: []string{"a", "b", "c"}, IDs: []string{"a", "b", "c (node 2)"}, Machine: at}
	s, _ := decide(p, state{}, 0, meets)
	s, _ = decide(p, s, 0, told{0, news{Kind: newsHere, Machine: &job.Machine{Name: "gpu0"}}})
	s, _ = decide(p, s, 0, lost{Node: 0, Why: "silent", Certain: true})
	for first, want := range map[string]int{"": 0, "b": 0, "c (node 2)": 1} {
		kept := 0
		_, todo := decide(p, s, 0, unmet{Verdict: job.Verdict{Code: job.ExitRetry}, First: first})
		for _, deed := range todo {
			if _, ok := deed.(accuse); ok {
				kept++
			}
		}
		if kept != want {
			t.Errorf("after %q came first it is kept %d times, want %d", first, kept, want)
		}
	}
	meets.Self = 1
	for meets.Generation = 4; meets.Generation < 6; meets.Generation++ {
		var todo []any
		s, todo = decide(p, s, 0, meets)
		if c := todo[0].(tell).News.Charge; (c != nil) != (meets.Generation == 4) {
			t.Errorf("generation %d hears the charge %+v", meets.Generation, c)
		}
	}
}
