package launcher

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
)

// Who judges knows how the ranks of all observed nodes stand, and on which node they are; who observes alone has its own.
func TestRanksOfObserved(t *testing.T) {
	o := observer{look: heartbeat.Look{Beats: []job.Beat{{Rank: 5, Steps: 7}, {Rank: 0, Steps: 8}, {Rank: 1, Steps: 8}, {Rank: 2, Steps: 8}}, Unheard: []int{4, 5}, Ended: []int{3}}}
	o.falls.causes = []cause{{Failure: &job.Failure{Rank: 3, Exit: job.Exit{Signal: 9}}}, {Failure: &job.Failure{Rank: 1, Exit: job.Exit{Signal: 15}}}}
	check := func(want string) {
		t.Helper()
		var all []string
		for _, r := range o.everybody() {
			all = append(all, fmt.Sprintf("%d@%d %s %d", r.Rank, r.Node, r.State, r.Step))
		}
		if got := strings.Join(all, ", "); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	check("0@0 running 8, 1@0 running 8, 2@0 running 8, 3@0 failed 0, 4@0 silent 0, 5@0 silent 7")
	o.with = &company{ranks: map[int][]int{1: {2, 3}, 2: {4, 5}}, left: map[int]bool{2: false}}
	check("0@0 running 8, 1@0 running 8, 2@1 running 8, 3@1 failed 0, 4@2 lost 0, 5@2 lost 7")
	o.said.Stall = &stalled{Finding: heartbeat.Finding{Stage: heartbeat.Hung, Hang: job.Hang{Culprits: []job.Culprit{{Rank: 1, Looks: "stopped"}}}}}
	check("0@0 blocked 8, 1@0 hung 8, 2@1 blocked 8, 3@1 failed 0, 4@2 lost 0, 5@2 lost 7")
	o.said.Stall, o.falls.causes, o.slow, o.ended = nil, nil, []job.Straggler{{Rank: 0}}, nil
	if got := o.everybody()[0]; got.State != report.RankStraggles || got.Note == "" {
		t.Errorf("%+v", got)
	}
	o.slow, o.ended = nil, &job.Verdict{}
	check("0@0 done 8, 1@0 done 8, 2@1 done 8, 3@1 done 0, 4@2 done 0, 5@2 done 7")
}

// The nodes of a world that is observed are in the order of their ranks, whichever node says so.
func TestObservedWorld(t *testing.T) {
	members := []job.Member{{Node: job.Node{Name: "a"}}, {Node: job.Node{Name: "b"}}, {Node: job.Node{Name: "c"}}}
	o := observer{own: turnover{now: map[int]int{3: 8}}, first: 2, with: &company{world: job.World{Members: members}, ranks: map[int][]int{0: {0, 1}, 2: {4, 5}}}}
	w := o.world()
	if n, _ := w.MemberOf(5); w.Size() != 6 || n != 2 || w.Members[0].Name != "a" {
		t.Errorf("%d ranks, the last on node %d of %v", w.Size(), n, w.Members)
	}
}

// A node's first rank is known though it has ended, or was never seen: the others say how many are before them.
func TestLowest(t *testing.T) {
	says := func(env ...string) int {
		c := exec.Command("sleep", "60")
		c.Env = env
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
		return c.Process.Pid
	}
	for _, c := range []struct {
		now  map[int]int
		want int
	}{
		{map[int]int{5: says("LOCAL_RANK=1"), 6: says("LOCAL_RANK=2")}, 4},
		{map[int]int{5: says(), 6: says()}, 5},
		{map[int]int{4: says(), 6: says("LOCAL_RANK=2")}, 4},
		{map[int]int{5: says("LOCAL_RANK=6")}, 5}, // there is no rank below 0
	} {
		o := observing(0)
		o.roll.locals = map[int]seat{}
		for rank, pid := range c.now {
			s := seat{rank: rank, pid: pid}
			s.local = o.roll.local(s)
			o.seats = append(o.seats, s)
		}
		slices.SortFunc(o.seats, func(a, b seat) int { return a.rank - b.rank })
		o.seated()
		if o.first != c.want || o.workers()[0].LocalRank != o.seats[0].rank-c.want {
			t.Errorf("%v: first is %d, want %d; %+v", c.now, o.first, c.want, o.workers())
		}
	}

	o := observing(0) // workers were started again, and one of the round before still lives
	o.own.note(0, 1)
	o.own.note(1, 2)
	o.seats = []seat{{rank: 0, local: -1, pid: 1}, {rank: 1, local: -1, pid: 3}}
	o.seated()
	if o.first != 0 {
		t.Errorf("beside one of the round before first is %d", o.first)
	}
}
