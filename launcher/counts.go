package launcher

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-run/muster/output"
	"github.com/muster-run/muster/rendezvous/tcpstore"
	"github.com/muster-run/muster/report"
)

// This file is what this node counts for those who scrape its metrics. Of what it tells, what this agent alone knows is left with the first process
// before it is told, so that an agent that takes over does not tell of less.

// keptCounts is where that is: keepsake.
const keptCounts = "counts"

// A keepsake is what agents have counted, in sum.
type keepsake struct {
	Commands map[string]tcpstore.Tally `json:"commands,omitempty"`
	Crowded  int                       `json:"crowded,omitempty"`
	Broke    map[string]int            `json:"broke,omitempty"` // "warn hca-errors": 2
}

// tellers are what this agent counts by, through all of its life.
type tellers struct {
	mu     sync.Mutex
	before keepsake           // of agents before this one, and of stores that have ended
	stores []*tcpstore.Server // that this agent hosts
	health *health            // nil: nobody looks at the machine

	asking sync.Mutex
	output output.Counts // as the first process said last
	heard  bool          // it did
	asked  bool          // it has not answered yet
}

// newTellers go on from what agents before this one have counted.
func newTellers(c Config) *tellers {
	t := &tellers{}
	if c.First != nil && c.First.Legacy() != nil {
		_ = json.Unmarshal(c.First.Legacy().Blobs[keptCounts], &t.before) // there may be none, and no version writes another form
	}
	return t
}

// hosts counts a store in.
func (d *desk) hosts(s *tcpstore.Server) {
	if d == nil || d.c.tellers == nil {
		return
	}
	t := d.c.tellers
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stores = append(t.stores, s)
}

// hosted keeps what was counted of a store that has ended.
func (d *desk) hosted(s *tcpstore.Server) {
	if d == nil || d.c.tellers == nil {
		return
	}
	t := d.c.tellers
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.stores, s); i >= 0 {
		t.stores = slices.Delete(t.stores, i, i+1)
		t.before.Commands = added(t.before.Commands, s.Tallies())
		t.before.Crowded += s.Crowded()
	}
}

func added(a, b map[string]tcpstore.Tally) map[string]tcpstore.Tally {
	sum := maps.Clone(b)
	for name, t := range a {
		sum[name] = t.Add(b[name])
	}
	return sum
}

// looksAt lets a look at the machine be told of.
func (d *desk) looksAt(h *health) {
	if d == nil || d.c.tellers == nil {
		return
	}
	d.c.tellers.mu.Lock()
	defer d.c.tellers.mu.Unlock()
	d.c.tellers.health = h
}

// counts are all that is counted until now.
func (d *desk) counts() (c report.Counts) {
	d.kept(&c)
	c.Output = d.written()
	c.Preflight = findings(tallied(d.plan.Preflight))
	d.beating(&c)
	return c
}

// kept adds what this agent alone knows, and keeps it.
func (d *desk) kept(c *report.Counts) {
	t := d.c.tellers
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.sum(c)
	if len(all.Commands)+all.Crowded+len(all.Broke) == 0 {
		return
	}
	if data, err := json.Marshal(all); err == nil {
		_ = d.c.First.Keep(keptCounts, data) // a first process that is gone has no other agent
	}
}

// sum adds what was counted until now, and returns what another agent has to go on from. It is called with mu held.
func (t *tellers) sum(c *report.Counts) keepsake {
	all := keepsake{Commands: maps.Clone(t.before.Commands), Crowded: t.before.Crowded, Broke: maps.Clone(t.before.Broke)}
	s := report.StoreCounts{Commands: map[string]report.Times{}}
	for _, server := range t.stores {
		s.Clients, s.Keys = s.Clients+server.Clients(), s.Keys+server.Keys()
		all.Commands = added(all.Commands, server.Tallies())
		all.Crowded += server.Crowded()
	}
	s.Crowded = all.Crowded
	for name, tally := range all.Commands {
		s.Commands[name] = report.Times{Count: tally.Count, Seconds: tally.Seconds, Within: report.Upto(tcpstore.Bounds[:], tally.Within[:])}
	}
	if len(t.stores) > 0 || len(s.Commands) > 0 || s.Crowded > 0 {
		c.Store = &s
	}
	if t.health != nil {
		c.Meters = t.health.meters()
		for what, n := range t.health.counted() {
			if all.Broke == nil {
				all.Broke = map[string]int{}
			}
			all.Broke[what] += n
		}
	}
	c.Broke = findings(all.Broke)
	return all
}

// written is what became of the workers' output, as far as the first process says.
func (d *desk) written() *report.OutputCounts { return d.c.tellers.written(d.c.First.Counts) }

// written asks, and tells what it was told last. Who asks waits a moment, and not for a question that is out already: the first process may be
// slow for once, and one of an older version never answers.
func (t *tellers) written(ask func(context.Context) (output.Counts, error)) *report.OutputCounts {
	t.asking.Lock()
	defer t.asking.Unlock()
	if !t.asked {
		t.asked = true
		answered := make(chan struct{})
		go t.hear(ask, answered) // until the first process answers, or is gone
		t.asking.Unlock()
		select {
		case <-answered:
		case <-time.After(rhythmTime):
		}
		t.asking.Lock()
	}
	if !t.heard {
		return nil
	}
	return &report.OutputCounts{Bytes: t.output.Bytes, Lines: t.output.Lines, Unshown: t.output.Unshown, Unfiled: t.output.Unfiled}
}

func (t *tellers) hear(ask func(context.Context) (output.Counts, error), answered chan<- struct{}) {
	n, err := ask(context.Background())
	t.asking.Lock()
	defer t.asking.Unlock()
	if t.asked = false; err == nil {
		t.output, t.heard = n, true
	}
	close(answered)
}

// tallied counts findings in words, "fail gpu-link: …", by the two that they begin with.
func tallied(found []string) map[string]int {
	n := map[string]int{}
	for _, text := range found {
		what, _, _ := strings.Cut(text, ":")
		n[what]++
	}
	return n
}

func findings(n map[string]int) (all []report.FindingCount) {
	for what, count := range n {
		result, check, _ := strings.Cut(what, " ")
		all = append(all, report.FindingCount{Check: check, Result: result, Count: count})
	}
	slices.SortFunc(all, func(a, b report.FindingCount) int {
		return cmp.Or(strings.Compare(a.Check, b.Check), strings.Compare(a.Result, b.Result))
	})
	return all
}

// beating adds the age of heartbeats of workers that run.
func (d *desk) beating(c *report.Counts) {
	now := d.now()
	if now.place == nil || now.watch == nil {
		return
	}
	first := now.place.World.Members[now.place.Group].First
	for local, age := range now.watch.ages() {
		if age >= 0 {
			c.Beating = append(c.Beating, report.BeatAge{Rank: first + local, LocalRank: local, Age: age})
		}
	}
}
