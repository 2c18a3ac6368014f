package launcher

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

// What a member does in a world is up to the leader's flags.
func TestLeadersFlagsCount(t *testing.T) {
	theirs := policy{MaxRestarts: 3, Regroups: true, StopTimeout: 7 * time.Second, JobEnd: time.Hour}
	mine := policy{StopTimeout: time.Minute, JobEnd: time.Minute}
	leader, todo := decide(theirs, state{Nodes: []*node{{}, {}}}, 0, opened{start{Port: 1}})
	at := todo[0].(tell).News.Start
	if leader.Policy != nil {
		t.Errorf("the leader follows %+v", leader.Policy)
	}
	s, _ := decide(mine, state{Self: 1, Nodes: []*node{{}, {}}}, 0, told{0, news{Kind: newsStart, Start: at}})
	r := round{policy: mine, state: s}
	if got := r.rules(); !got.Regroups || got.fence() != theirs.fence() || got.JobEnd != time.Minute {
		t.Errorf("%+v", got)
	}
	s, _ = decide(mine, s, time.Second, begun{1})
	s, todo = decide(mine, s, 2*time.Second, lost{Why: "silent"})
	if s.Next == nil || !slices.Contains(todo, any(stop{Within: 7 * time.Second})) {
		t.Errorf("without its leader it does %v", todo)
	}
	s, _ = decide(mine, s, 3*time.Second, emptied{})
	s, _ = decide(mine, s, time.Minute, met{Generation: 2, Nodes: []string{"b"}})
	if _, todo = decide(mine, s, time.Minute, opened{start{Port: 1}}); todo[0].(tell).News.Start.MaxRestarts != 3 {
		t.Errorf("as the next leader it begins %+v", todo[0].(tell).News.Start)
	}
}

// An older leader does not tell its flags; then each node has its own.
func TestLeaderThatTellsNoFlags(t *testing.T) {
	mine := policy{Regroups: true, StopTimeout: time.Minute}
	s, _ := decide(mine, state{Self: 1, Nodes: []*node{{}, {}}}, 0, told{0, news{Kind: newsStart, Start: &start{Port: 1}}})
	if r := (round{policy: mine, state: s}); r.rules() != mine {
		t.Errorf("%+v", r.rules())
	}
}

func TestOverruled(t *testing.T) {
	ours := policy{StopTimeout: 5 * time.Second, Join: joinNow, JobEnd: time.Hour, Nodes: 4}
	for _, c := range []struct {
		change func(*policy)
		want   string
	}{
		{func(p *policy) { p.JobEnd = 0 }, ""},
		{func(p *policy) { p.MaxRestarts, p.Regroups = 3, true }, "the flags of the job's first leader count: --max-restarts 3, not 0; give all nodes the same"},
		{func(p *policy) { p.StopTimeout, p.Join = 0, joinNever }, "the flags of the job's first leader count: --join-policy never, not now, --stop-timeout 0s, not 5s; give all nodes the same"},
		{func(p *policy) { p.Regroups = true }, "the flags of the job's first leader count: --rdzv-timeout, which is 0 on one of both; give all nodes the same"},
	} {
		theirs := ours
		c.change(&theirs)
		if got := ours.overruled(theirs); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// A newcomer that leads goes by the policy of the world before, as its record and the rounds that it begins say.
func TestNewcomerThatLeads(t *testing.T) {
	theirs := policy{MaxRestarts: 3, Regroups: true, StopTimeout: 7 * time.Second, JobEnd: time.Hour}
	mine := policy{StopTimeout: time.Minute, JobEnd: time.Minute}
	r := round{policy: mine, c: Config{Log: slog.New(slog.DiscardHandler)}}
	heard := r.inherited(&job.Rules{Policy: theirs.encode()})
	if heard == nil || heard.MaxRestarts != 3 || heard.JobEnd != 0 {
		t.Fatalf("it hears %+v", heard)
	}
	s, _ := decide(mine, state{}, 0, met{Generation: 2, Nodes: []string{"d", "b"}, Policy: heard})
	s, todo := decide(mine, s, 0, opened{start{Port: 1}})
	if at := todo[0].(tell).News.Start; at.MaxRestarts != 3 || at.Policy.StopTimeout != 7*time.Second {
		t.Errorf("it begins %+v", at)
	}
	r.state = s
	if own := r.inherited(&job.Rules{Policy: mine.encode()}); own == nil || *own != *mine.rules() {
		t.Errorf("the job's policy is its own now, and it hears %+v", own)
	}
}

// Where the job's policy is this node's own, or cannot be read, there is nothing to follow.
func TestNoOthersPolicy(t *testing.T) {
	mine := policy{StopTimeout: time.Minute, JobEnd: time.Minute}
	r := round{policy: mine, c: Config{Log: slog.New(slog.DiscardHandler)}}
	for _, rules := range []*job.Rules{nil, {}, {Policy: mine.encode()}, {Policy: []byte(`"later"`)}} {
		if got := r.inherited(rules); got != nil {
			t.Errorf("%+v: %+v", rules, got)
		}
	}
}
