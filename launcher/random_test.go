package launcher

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	schedules = flag.Int("schedules", 3000, "random schedules of losses to play")
	schedule  = flag.Uint64("schedule", 0, "the only one to play; 0: all")
)

// Nodes fail, die, are cut off, are told to stop, and their agents are replaced, at any time. Whatever happens: no two rounds have
// workers at once, not even on a node that was given up; a failure that was heard is not lost; and every agent ends.
func TestRandomLosses(t *testing.T) {
	for seed := uint64(1); seed <= uint64(*schedules); seed++ {
		if *schedule != 0 && seed != *schedule {
			continue
		}
		play := newPlay(t, seed)
		play.run()
		play.judge()
		if t.Failed() {
			t.Fatalf("seed %d (-schedule %d):\n%s", seed, seed, strings.Join(play.log, "\n"))
		}
	}
}

// A play is a world with its fate.
type play struct {
	*world
	random *rand.Rand
	failed map[int][]int // by round, nodes whose workers failed in it
	lives  map[int]int   // by number of a life of one worker, the node
	late   map[int]int   // by node, the round in which its first worker failed when its leader had been gone for a while
}

const playTime = 90 * time.Second

func newPlay(t *testing.T, seed uint64) *play {
	r := rand.New(rand.NewPCG(seed, 1))
	nodes := 1 + r.IntN(5)
	p := &play{newWorld(t, nodes), r, map[int][]int{}, map[int]int{}, map[int]int{}}
	p.fewest, p.policy.Nodes = 1+r.IntN(nodes), nodes
	p.policy.MaxRestarts, p.policy.Regroups, p.policy.Yields = r.IntN(3), r.IntN(5) > 0, r.IntN(2) == 0
	p.policy.OnExit = []string{onExitStop, onExitRestart}[r.IntN(2)]
	p.policy.Backoff = time.Duration(r.IntN(2)) * 30 * time.Second
	if seed%5 == 0 {
		p.policy.NodeTimeout = 40 * time.Second
	}
	p.own = map[int]policy{}
	for n := range nodes {
		p.deaf[n] = r.IntN(4) == 0
		if n > 0 && r.IntN(4) == 0 {
			p.own[n] = policy{NodeTimeout: time.Duration(5+n) * time.Second, StopTimeout: time.Duration(r.IntN(60)) * time.Second, MaxRestarts: r.IntN(3), Regroups: r.IntN(2) == 0}
		}
	}
	p.watch, p.mended = p.see, p.again
	p.begin()
	for range r.IntN(6) {
		p.later(r.IntN(nodes), time.Duration(r.Int64N(int64(playTime))), p.fate())
	}
	p.later(-1, 2*playTime, ending{})
	return p
}

// fate is something that happens to a node.
func (p *play) fate() any {
	switch p.random.IntN(6) {
	case 0:
		return death{}
	case 1:
		return cutOff{p.random.IntN(2) == 0}
	case 2:
		return doom{}
	case 3:
		return signalled{syscall.SIGTERM}
	case 4:
		return ordered{orderRestart}
	}
	return stumble{}
}

// see looks at what is about to happen.
func (p *play) see(n int, event any) {
	s := p.states[n]
	switch e := event.(type) {
	case finished:
		heard := s.Started && !s.Stopping && s.Verdict == nil && s.Order == "" && s.Next == nil && s.Left > 0
		if e.Failure != nil && heard && !p.policy.mends() {
			p.failed[s.Round] = append(p.failed[s.Round], n)
			if since, silent := p.silent[p.members[s.Generation][0]]; silent && !s.leads() && s.Own == nil && p.now-since > lossTime {
				p.late[n] = s.Round
			}
		}
	case begun:
		if by, used := p.lives[s.Round]; used && !p.dead[by] && !p.cut[by] {
			p.t.Errorf("%v: node %d begins round %d, which is the number of a life on node %d", p.now, n, s.Round, by)
		}
		for i, other := range p.states {
			if other.Started && !other.Empty && !p.dead[i] && i != n && other.Round != s.Round {
				p.t.Errorf("%v: node %d begins round %d, and node %d has workers of round %d", p.now, n, s.Round, i, other.Round)
			}
		}
	case unmet:
		if p.fewest == 1 && !p.dead[n] && !p.cut[n] {
			p.t.Errorf("node %d finds no other world, and needs nobody", n)
		}
	}
}

// again looks at a worker that is started again in place: nobody had its number.
func (p *play) again(n int, m mend) {
	s := p.states[n]
	if by, used := p.lives[m.Number]; used && !p.dead[by] && !p.cut[by] || m.Number <= s.Round {
		p.t.Errorf("%v: rank %d of node %d begins life %d in round %d, which node %d had", p.now, m.Rank, n, m.Number, s.Round, by)
	}
	p.lives[m.Number] = n
}

func (p *play) judge() {
	var codes []string
	for n, s := range p.states {
		switch {
		case p.dead[n]:
		case !s.Ended || s.Started && !s.Empty:
			p.t.Errorf("node %d never ended: %+v", n, s)
		case s.Verdict != nil && s.Verdict.OK():
			for _, by := range p.failed[s.Round] {
				if !p.dead[by] && !p.cut[by] {
					p.t.Errorf("node %d ends well with round %d, in which a worker of node %d failed", n, s.Round, by)
				}
			}
			fallthrough
		default:
			codes = append(codes, fmt.Sprintf("%d", s.verdict().Code))
		}
		if round, late := p.late[n]; late && round == s.Round && s.verdict().First != nil {
			p.t.Errorf("node %d ends of what may have followed from its leader's loss: %s", n, s.verdict().Sentence)
		}
	}
	calm := len(p.cut) == 0 && len(p.dead) == 0 && !p.policy.Yields
	if calm && len(slices.Compact(codes)) > 1 {
		p.t.Errorf("the agents end with %v", codes)
	}
}
