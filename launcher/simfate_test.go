package launcher

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
)

// This file is the fate of a simulated job: what happens to it, and what must follow.

// An incident is one thing that goes wrong.
type incident struct {
	fate    fate
	kind    string // of fate
	what    string
	at      time.Time
	round   int  // that it hits
	mayNot  bool // nobody is to be stopped for it,
	may     bool // or only if workers end of it
	gently  bool // nobody has failed,
	hurried bool // and then the leader was lost

	redo            time.Duration // that the next round does once more
	told, all, goes time.Time     // workers were told to stop; all of the next round run; they train again
}

// A fate is a kind of incident. strike lets it happen to the round that runs; judge looks at what was made of it.
type fate struct {
	name   string
	weight int
	unless func(*simulation) bool // it does not happen
	ends   func(*simulation) bool // it ends the job
	codes  []int                  // with one of these
	strike func(s *simulation, i *incident, t *simTraining)
	judge  func(s *simulation, i *incident, past job.Round)
	within time.Duration // from the fault to the first that is told to stop
	again  time.Duration // from that until all of the next round run, if there are nodes for it
	loses  bool          // a node
}

func (s *simulation) wantFirst(i *incident, past job.Round, rank int) {
	p := s.trainings[i.round].procs[rank]
	if f := past.First; f == nil || f.Rank != rank || f.Group != rank/s.slots || f.LocalRank != rank%s.slots || f.Node != p.at.name || f.PID != p.pid {
		s.fails("%s: rank %d on %s was first, and not %s, %+v", i.what, rank, p.at.name, past.Message, f)
	}
}

func (s *simulation) wantText(i *incident, past job.Round, parts ...string) {
	for _, part := range parts {
		if !strings.Contains(past.Message, part) {
			s.fails("%s: %q is not in %q", i.what, part, past.Message)
		}
	}
}

// echoes is the end of a worker that speaks of another one's, fails one that does not.
func (p *simProc) echoes() {
	p.ends(proc.Exit{Code: 1}, []string{"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:12345"})
}

func (p *simProc) fails() {
	p.ends(proc.Exit{Code: 7}, []string{"Traceback (most recent call last):", `  File "data.py", line 3, in <module>`, "ValueError: no batch"})
}

// noticed lets a worker on another node fail of a node's end, before its agent is given up.
func (s *simulation) noticed(t *simTraining, dead *simAgent, least, most time.Duration) {
	how, after := s.dice.IntN(3), s.brief(least, most)
	for rank := range t.size {
		if p := t.procs[rank]; p.at != dead && how < 2 {
			time.AfterFunc(after, []func(){p.echoes, p.fails}[how])
			return
		}
	}
}

// tooMany counts one more failure.
func tooMany(s *simulation) bool {
	s.failures++
	return s.failures > s.restarts
}

// fixed reports whether nodes that are lost are the end of the job.
func fixed(s *simulation) bool { return !s.terms.Standby() && s.restarts == 0 }

// ofOne reports whether the world has one node, which nobody waits for.
func ofOne(s *simulation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.members(s.newest)) == 1
}

func fates() []fate {
	var rank int
	var node *simAgent
	hang := func(how simHang) fate {
		return fate{name: how.String(), weight: 1, ends: tooMany, codes: []int{job.ExitHung, job.ExitRetry}, within: 3 * time.Minute, again: 7 * time.Second,
			strike: func(s *simulation, i *incident, t *simTraining) {
				rank = s.dice.IntN(t.size)
				i.what = fmt.Sprintf("%v: %d", how, rank)
				t.halt(time.Now(), how, rank)
			},
			judge: func(s *simulation, i *incident, past job.Round) {
				s.wantText(i, past, "hang: ")
				if d := i.told.Sub(i.at); d < 25*time.Second || d > time.Minute {
					s.fails("%s: found after %v", i.what, d)
				}
				if how != hangWire {
					s.wantText(i, past, fmt.Sprintf("rank %d ", rank))
				}
			}}
	}
	return []fate{
		{name: "a rank fails", weight: 4, ends: tooMany, codes: []int{3}, within: time.Second, again: 7 * time.Second,
			strike: func(s *simulation, i *incident, t *simTraining) {
				rank = s.dice.IntN(t.size)
				i.what = fmt.Sprintf("rank %d fails", rank)
				p, other := t.procs[rank], t.procs[(rank+1+s.dice.IntN(max(1, t.size-1)))%t.size]
				fails := func() {
					p.ends(proc.Exit{Code: 3}, []string{"Traceback (most recent call last):", `  File "train.py", line 7, in <module>`, "RuntimeError: CUDA error: an illegal memory access was encountered"})
				}
				how := s.dice.IntN(5)
				if other == p {
					how = 0
				}
				switch how {
				case 0:
					go fails()
				case 1: // another fails of that,
					go fails()
					time.AfterFunc(30*time.Millisecond, other.echoes)
				case 2: // or of itself on another node, later than clocks are off, and mostly before anybody is told to stop,
					other = t.procs[(rank-rank%s.slots+s.slots+s.dice.IntN(max(1, t.size-s.slots)))%t.size]
					go fails()
					if other.at != p.at {
						time.AfterFunc(s.brief(600*time.Microsecond, 2*time.Millisecond), other.fails)
					}
				case 3: // or is the first to end,
					t.doomed = p
					go other.echoes()
					time.AfterFunc(30*time.Millisecond, fails)
				case 4: // or what its agent tells does not arrive at once
					go fails()
					time.AfterFunc(100*time.Microsecond, p.at.link.breaks)
				}
			},
			judge: func(s *simulation, i *incident, past job.Round) { s.wantFirst(i, past, rank) }},
		{name: "a machine dies", weight: 4, ends: fixed, codes: []int{job.ExitRetry}, within: 15 * time.Second, loses: true, again: 30 * time.Second,
			strike: func(s *simulation, i *incident, t *simTraining) {
				all := s.members(t.round)
				node = all[s.dice.IntN(len(all))]
				i.what = fmt.Sprintf("%s dies", node.name)
				a := node
				go s.dies(a)
				s.noticed(t, a, 5*time.Second, 8*time.Second)
				s.replaces(s.late + s.brief(time.Second, 2*time.Minute-s.late))
			},
			judge: func(s *simulation, i *incident, past job.Round) { s.wantText(i, past, node.name, "lost") }},
		{name: "a container is killed", weight: 3, ends: fixed, codes: []int{job.ExitRetry}, within: time.Second, loses: true, again: 20 * time.Second,
			strike: func(s *simulation, i *incident, t *simTraining) {
				all := s.members(t.round)
				node = all[s.dice.IntN(len(all))]
				i.what = fmt.Sprintf("all processes of %s are killed", node.name)
				a := node
				go s.kills(a)
				s.noticed(t, a, time.Millisecond, 200*time.Millisecond)
				s.replaces(s.late + s.brief(time.Second, 2*time.Minute-s.late))
			},
			judge: func(s *simulation, i *incident, past job.Round) { s.wantText(i, past, node.name, "lost") }},
		{name: "a node is cut off", weight: 3, unless: ofOne, ends: fixed, codes: []int{job.ExitRetry}, within: 15 * time.Second, loses: true, again: 30 * time.Second,
			strike: func(s *simulation, i *incident, t *simTraining) {
				all := s.members(t.round)
				node = all[s.dice.IntN(len(all))]
				i.what = fmt.Sprintf("%s is cut off, and its collectives as well", node.name)
				a := node
				t.halt(time.Now(), hangWire, -1)
				if s.dice.IntN(2) == 0 {
					t.deaf = a
				}
				resets := s.dice.IntN(2) == 0 // by who cuts it off
				go func() {
					a.link.set(func() { a.link.cut = true })
					if resets {
						a.link.breaks()
					}
				}()
				s.heals(a, s.late+s.brief(40*time.Second, 3*time.Minute-2*s.late))
			},
			judge: func(s *simulation, i *incident, past job.Round) { s.wantText(i, past, "lost") }},
		{name: "a short cut", weight: 2,
			strike: func(s *simulation, i *incident, t *simTraining) {
				all := s.members(t.round)
				node = all[s.dice.IntN(len(all))]
				i.what, i.mayNot = fmt.Sprintf("%s is cut off for a moment", node.name), true
				a, d := node, s.brief(100*time.Millisecond, 8*time.Second)
				s.pauses(t, d)
				go a.link.set(func() { a.link.cut = true })
				s.heals(a, d)
			}},
		{name: "connections break", weight: 2,
			strike: func(s *simulation, i *incident, t *simTraining) {
				all := s.members(t.round)
				node = all[s.dice.IntN(len(all))]
				i.what, i.mayNot = fmt.Sprintf("the connections of %s break", node.name), true
				a := node
				for n := range 8 {
					at := time.Duration(n) * s.brief(2*time.Second, 4*time.Second)
					time.AfterFunc(at, func() {
						a.link.set(func() { a.link.cut = true })
						a.link.breaks()
					})
					s.heals(a, at+40*time.Millisecond)
				}
			}},
		{name: "a node is cut off from agents alone", weight: 2,
			strike: func(s *simulation, i *incident, t *simTraining) {
				all := s.members(t.round)
				node = all[s.dice.IntN(len(all))]
				i.what, i.mayNot = fmt.Sprintf("%s is cut off, and trains on", node.name), true
				a := node
				go a.link.set(func() { a.link.cut = true })
				s.heals(a, s.late+s.brief(15*time.Second, time.Minute))
			}},
		{name: "a rank fails while a node is cut off from agents", weight: 2, unless: func(s *simulation) bool { return s.restarts < 100 }, within: 40 * time.Second, loses: true, again: 40 * time.Second,
			strike: func(s *simulation, i *incident, t *simTraining) {
				all := s.members(t.round)
				node = all[len(all)-1]
				rank = s.dice.IntN(max(1, t.size-s.slots))
				i.what = fmt.Sprintf("%s is cut off, and trains on, until rank %d fails", node.name, rank)
				a, p := node, t.procs[rank]
				t.deaf = a
				if len(all) > 1 {
					go a.link.set(func() { a.link.cut = true })
				}
				time.AfterFunc(s.late+s.brief(12*time.Second, 20*time.Second), func() {
					p.ends(proc.Exit{Code: 3}, []string{"Traceback (most recent call last):", `  File "train.py", line 7, in <module>`, "RuntimeError: no memory"})
				})
				s.heals(a, s.late+s.brief(time.Minute, 2*time.Minute))
			},
			judge: func(s *simulation, i *incident, past job.Round) { // it may have failed of the node's end, for all that others can know
				if !strings.Contains(past.Message, "lost") {
					s.wantFirst(i, past, rank)
				}
			}},
		{name: "an agent stands still", weight: 2, unless: ofOne, within: 20 * time.Second, loses: true, again: time.Minute,
			strike: func(s *simulation, i *incident, t *simTraining) {
				all := s.members(t.round)
				node = all[s.dice.IntN(len(all))]
				d := s.late + s.brief(11*time.Second, 40*time.Second)
				i.what = fmt.Sprintf("the agent of %s stands still for %v", node.name, d)
				i.mayNot = fixed(s) // its workers have no lease, and train on
				a := node
				go func() {
					a.mu.Lock()
					a.until = time.Now().Add(d)
					a.mu.Unlock()
				}()
			}},
		{name: "an agent stands still about as long as its lease", weight: 2, unless: ofOne, loses: true, again: time.Minute,
			strike: func(s *simulation, i *incident, t *simTraining) {
				all := s.members(t.round)
				node = all[s.dice.IntN(len(all))]
				d := s.late + s.brief(8900*time.Millisecond, 10*time.Second)
				i.what, i.may = fmt.Sprintf("the agent of %s stands still for %v", node.name, d), true
				a := node
				go func() {
					a.mu.Lock()
					a.until = time.Now().Add(d)
					a.mu.Unlock()
				}()
			}},
		{name: "a node is wanted", weight: 3, unless: ofOne, ends: func(s *simulation) bool { return !s.terms.Standby() }, codes: []int{job.ExitTERM}, within: time.Second, loses: true, again: 50 * time.Second,
			strike: func(s *simulation, i *incident, t *simTraining) {
				all := s.members(t.round)
				node = all[s.dice.IntN(len(all))]
				i.what, i.gently, s.told[node] = fmt.Sprintf("%s is told to stop", node.name), true, true
				node.first.signals <- syscall.SIGTERM
				if s.dice.IntN(2) == 0 {
					t.deaf = all[s.dice.IntN(len(all))]
				}
				if leader := all[0]; len(all) > 2 && leader != node && s.terms.Standby() && s.dice.IntN(2) == 0 {
					i.what += fmt.Sprintf(", and then %s is killed, which leads", leader.name)
					t.deaf, i.hurried = all[1+s.dice.IntN(len(all)-1)], true
					time.AfterFunc(s.brief(time.Second, 3*time.Second), func() { s.kills(leader) })
					s.replaces(s.late + s.brief(time.Second, 2*time.Minute-s.late))
				}
				s.replaces(s.late + s.brief(time.Second, 2*time.Minute-s.late))
			}},
		hang(hangAbsent), hang(hangStopped), hang(hangKernel), hang(hangWire),
	}
}

// heals ends the cut of a node after a while.
func (s *simulation) heals(a *simAgent, after time.Duration) {
	time.AfterFunc(after, func() {
		a.link.set(func() { a.link.cut = false })
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stir()
	})
}

// replaces has a node more come after a while, unless the job ends by then.
func (s *simulation) replaces(after time.Duration) {
	s.coming++
	time.AfterFunc(after, func() {
		s.mu.Lock()
		s.coming--
		s.stir()
		ends, next := s.over || s.final != nil, len(s.agents)
		s.mu.Unlock()
		if !ends {
			s.comes(next)
		}
	})
}

// play is a job with so many incidents, and its end.
func (s *simulation) play(incidents int) {
	all := s.terms.Nodes + s.terms.Spares
	if s.seed%4 == 0 && all > s.terms.Fewest() {
		all-- // is all there are
	}
	for n := range all {
		s.comes(n)
		time.Sleep(s.brief(0, 3*time.Second/time.Duration(all)+1))
	}
	s.mu.Lock()
	came := time.Now()
	s.mu.Unlock()
	if !s.trains(0, 10*time.Minute) {
		s.fails("no world begins")
		s.finish()
		return
	}
	s.mu.Lock()
	s.formed = max(0, s.trainings[0].all.Sub(came))
	s.note("formed %v after the last came", s.trainings[0].all.Sub(came))
	s.mu.Unlock()
	for range incidents {
		if !s.strikes() {
			break
		}
	}
	s.finish()
}

// trains waits until a round that is not older trains.
func (s *simulation) trains(round int, most time.Duration) bool {
	if !s.until(most, func() bool {
		t := s.trainings[s.newest]
		return s.newest >= round && !t.goes.IsZero() && t.stopped.IsZero()
	}) {
		return false
	}
	s.mu.Lock()
	d := time.Until(s.trainings[s.newest].goes)
	s.mu.Unlock()
	time.Sleep(d)
	return true
}

// strikes lets one thing happen, and waits until the job has got over it.
func (s *simulation) strikes() bool {
	time.Sleep(s.brief(s.quiet[0], s.quiet[1]))
	list, sum := slices.DeleteFunc(fates(), func(f fate) bool { return f.unless != nil && f.unless(s) }), 0
	for _, f := range list {
		sum += f.weight
	}
	n := s.dice.IntN(sum)
	k := 0
	for ; n >= list[k].weight; k++ {
		n -= list[k].weight
	}
	if s.turns {
		k = slices.IndexFunc(list, func(f fate) bool { return f.name == rates[len(s.incidents)%len(rates)].fate })
	}
	f := list[k]
	s.mu.Lock()
	t := s.trainings[s.newest]
	if !t.stopped.IsZero() || t.goes.IsZero() || t.goes.After(time.Now()) { // others were let in just now
		s.mu.Unlock()
		return s.trains(0, 30*time.Minute)
	}
	i := &incident{fate: f, kind: f.name, at: time.Now(), round: t.round}
	s.now = i
	living := s.living()
	f.strike(s, i, t)
	lost := 0
	if f.loses {
		lost++
		if len(s.members(t.round)) == 1 { // the next world knows how many rounds there were, and not of what they failed
			s.failures = 0
		}
	}
	if i.hurried {
		lost++
	}
	enough := living-lost >= s.terms.Fewest()
	if f.ends != nil && f.ends(s) {
		s.final = i
	}
	s.note("FATE %s", i.what)
	s.mu.Unlock()
	if i.mayNot || i.may && !s.until(s.late+15*time.Second, func() bool { return t.living < t.size }) {
		time.Sleep(2 * time.Minute)
		s.mu.Lock()
		s.now = &incident{what: "calm", at: time.Now(), round: t.round}
		s.mu.Unlock()
		return true
	}
	within, again := cmp.Or(f.within, 5*time.Second), f.again
	if f.loses {
		within, again = within+2*s.late, again+2*s.late
	}
	told := s.until(within, func() bool { return !t.stopped.IsZero() })
	i.told = t.stopped
	if !told {
		s.mu.Lock()
		s.fails("%s: nobody was told to stop within %v", i.what, within)
		s.mu.Unlock()
	}
	if s.final != nil {
		return false
	}
	if !s.trains(i.round+1, 40*time.Minute) {
		s.mu.Lock()
		s.fails("%s: no round follows", i.what)
		s.mu.Unlock()
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.trainings[s.newest]
	i.told, i.all, i.goes = t.stopped, next.all, next.goes
	i.redo = time.Duration(t.base+t.steps(i.at)-next.base) * simStep
	s.incidents = append(s.incidents, i)
	s.note("%s: told after %v, all run after %v, trains after %v", i.what, i.told.Sub(i.at), i.all.Sub(i.at), i.goes.Sub(i.at))
	if took := next.all.Sub(t.stopped); enough && took > again {
		s.fails("%s: the next round takes %v, and may take %v", i.what, took, again)
	}
	if past, ok := s.past(i.round); !ok && s.outlived(i.round) {
		s.fails("%s: nobody tells of round %d", i.what, i.round)
	} else if ok && f.judge != nil && !strings.HasSuffix(past.Message, " to join") {
		f.judge(s, i, past)
	}
	return true
}

// outlived reports whether anybody of a round is in the newest.
func (s *simulation) outlived(round int) bool {
	return slices.ContainsFunc(s.members(s.newest), func(a *simAgent) bool { return slices.Contains(s.members(round), a) })
}

// past is what a round came to, as the leader of the newest has it.
func (s *simulation) past(round int) (job.Round, bool) {
	for _, a := range s.members(s.newest) {
		st := a.desk.now().state
		if st == nil {
			continue
		}
		for _, r := range st.Past {
			if r.Number == round {
				return r, true
			}
		}
	}
	return job.Round{}, false
}

// living is how many agents there are that reach the others.
func (s *simulation) living() (n int) {
	for _, a := range s.agents {
		if !a.gone() && a.link.passes() {
			n++
		}
	}
	return n
}

// fills waits until nobody comes any more, or comes back, and all who can be are in the world.
func (s *simulation) fills() {
	cut := func(a *simAgent) bool { return !a.link.passes() && !a.link.isDead() }
	if !s.until(30*time.Minute, func() bool {
		t := s.trainings[s.newest]
		return t != nil && s.coming == 0 && !slices.ContainsFunc(s.agents, cut) && t.size == min(s.living(), s.terms.Nodes)*s.slots && t.stopped.IsZero() && !t.all.IsZero()
	}) && s.newest >= 0 {
		s.fails("the last world has %d ranks, and there are nodes for more", s.trainings[s.newest].size)
	}
}

// ending lets ranks end well, one node's after the other's, beginning with any. Who comes meanwhile is not let in any more.
func (s *simulation) ending(t *simTraining) {
	first := s.dice.IntN(t.size / s.slots)
	if s.terms.Standby() && t.size > s.slots {
		time.AfterFunc(100*time.Millisecond, func() {
			s.mu.Lock()
			over, next := t.living == 0, len(s.agents)
			s.mu.Unlock()
			if !over { // else it would begin the job anew
				s.comes(next)
			}
		})
	}
	for rank := range t.size {
		t.procs[(rank+first*s.slots)%t.size].ends(proc.Exit{}, nil)
		time.Sleep(s.brief(0, 8*time.Second/time.Duration(t.size)))
	}
}

// finish lets the training end well, and all agents with it.
func (s *simulation) finish() {
	if s.final == nil {
		s.fills()
		time.Sleep(s.quiet[0])
	}
	s.mu.Lock()
	s.over = true
	s.note("the job ends")
	t := s.trainings[s.newest]
	s.mu.Unlock()
	if t != nil && s.final == nil {
		s.ending(t)
	}
	s.mu.Lock()
	agents := s.agents
	s.mu.Unlock()
	patience := time.After(5 * time.Minute)
	for _, a := range agents {
		select {
		case <-a.ended:
		case <-patience:
			patience = time.After(0)
			s.fails("the agent of %s does not end", a.name)
			if !a.link.isDead() {
				s.dies(a)
			}
		}
	}
	for _, a := range agents {
		<-a.ended
	}
	s.sums(agents)
	ends := map[string]int{}
	for _, a := range agents {
		if a.end != nil && !a.link.isDead() {
			ends[fmt.Sprintf("%d: %s", a.end.verdict().Code, a.end.verdict().Sentence)]++
		}
	}
	for _, text := range slices.Sorted(maps.Keys(ends)) {
		s.note("%d agents end with %s", ends[text], text)
	}
	for _, w := range s.wrong {
		s.t.Error(w)
	}
	if s.t.Failed() || testing.Verbose() && !s.turns {
		s.t.Logf("seed %d:\n%s", s.seed, strings.Join(s.log, "\n"))
	}
}

// sums asserts that all agents that trained to the end say the same of it, and that their account of the time adds up to what it was.
func (s *simulation) sums(agents []*simAgent) {
	var first *simAgent
	codes := map[int]string{}
	last := s.trainings[s.newest]
	for _, a := range agents {
		if v := a.end.verdict(); !a.link.isDead() && !s.told[a] && s.final == nil && !v.OK() {
			s.fails("the job ends well, and %s with %d: %s", a.name, v.Code, v.Sentence)
		}
		if a.end == nil || a.link.isDead() || last == nil || !slices.ContainsFunc(slices.Collect(maps.Values(last.procs)), func(p *simProc) bool { return p.at == a }) {
			continue
		}
		codes[a.end.verdict().Code] = a.name
		switch v := a.end.verdict(); {
		case s.final != nil && !slices.Contains(s.final.fate.codes, v.Code):
			s.fails("%s: %s ends with %d, and not %d: %s", s.final.what, a.name, v.Code, s.final.fate.codes, v.Sentence)
		case s.final != nil && s.final.fate.judge != nil:
			s.final.fate.judge(s, s.final, job.Round{Message: v.Sentence, First: v.First})
		}
		if leader := last.procs[0].at; (s.final == nil || !s.final.fate.loses) && !leader.link.isDead() && a.endedAt.After(leader.endedAt) {
			s.fails("%s, which leads, ends before %s", leader.name, a.name)
		}
		for _, f := range a.end.verdict().Consequences {
			if !last.failed[f.Rank] {
				s.fails("%s says that rank %d failed of that, which was stopped", a.name, f.Rank)
			}
		}
		if first == nil && last.round > 0 && slices.ContainsFunc(slices.Collect(maps.Values(s.trainings[0].procs)), func(p *simProc) bool { return p.at == a }) {
			first = a
		}
	}
	if len(codes) > 1 {
		s.fails("the agents end with different codes: %v", codes)
	}
	if first == nil {
		return
	}
	account := first.end.spent(first.end.Now)
	if n := account.Older.Rounds + len(account.Laps); n != s.newest+1 && !s.leftOut(first) {
		s.fails("%s has an account of %d rounds, and %d there were", first.name, n, s.newest+1)
	}
	var train, lost time.Duration
	for _, t := range s.trainings {
		if !t.goes.IsZero() {
			train += time.Duration(t.calls(time.Now())) * simPace
		}
	}
	for _, i := range s.incidents {
		lost += i.redo
	}
	sum := account.Sum()
	told := time.Duration((sum.Seconds["train"] + sum.Seconds["redo"]) * float64(time.Second))
	if off := (told - train).Abs(); off > time.Duration(len(s.trainings))*(15*time.Second+s.late)+time.Duration(s.failures)*time.Minute && !s.leftOut(first) {
		s.fails("%s says that %v were trained, and it were %v", first.name, told, train)
	}
	s.note("%v trained, of which %v once more; as %s has it, %v", train, lost, first.name, sum.Seconds)
}

// leftOut reports whether an agent was not in all rounds.
func (s *simulation) leftOut(a *simAgent) bool {
	for _, t := range s.trainings {
		if !slices.ContainsFunc(slices.Collect(maps.Values(t.procs)), func(p *simProc) bool { return p.at == a }) {
			return true
		}
	}
	return false
}

// rates are how often what goes wrong with trainings, in percent of all: GPUs 58.7 and the network 8.4 as Llama 3 had it in 419 failures, hangs 9.9 as
// ByteRobust had them, and the rest as the end of a machine.
var rates = []struct {
	fate  string
	share float64
}{{"a rank fails", 58.7}, {"a machine dies", 23}, {"a rank sleeps", 9.9}, {"a node is cut off", 8.4}}

// trainings are those of which it is known how often they failed.
var trainings = []struct {
	name  string
	each  time.Duration
	about string
}{
	{"Llama 3", 54 * 24 * time.Hour / 419, "419 failures in 54 days on 16,384 GPUs"},
	{"MegaScale", 3 * 7 * 24 * time.Hour / 100, "taken as 100 restarts in 3 weeks on 10,000 GPUs"},
}

func wallClock() time.Duration { return time.Duration(clock()) }

// table prints what was measured.
func (s *simulation) table() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Printf("\n%d nodes of %d workers, seed %d\n%-32s %8.2f s\n", s.terms.Nodes, s.slots, s.seed, "formed after the last node came", s.formed.Seconds())
	fmt.Printf("%-32s %10s %10s %10s\n", "from a fault until", "detected", "all run", "they train")
	down, ours, shares := 0.0, 0.0, 0.0
	for _, r := range rates {
		var n, told, all, goes float64
		for _, i := range s.incidents {
			if i.kind == r.fate {
				n, told, all, goes = n+1, told+i.told.Sub(i.at).Seconds(), all+i.all.Sub(i.at).Seconds(), goes+i.goes.Sub(i.at).Seconds()
			}
		}
		if n == 0 {
			continue
		}
		fmt.Printf("%-32s %8.2f s %8.2f s %8.2f s\n", r.fate, told/n, all/n, goes/n)
		down, ours, shares = down+r.share*goes/n, ours+r.share*all/n, shares+r.share
	}
	for _, p := range trainings {
		if shares == 0 {
			break
		}
		each, redo := p.each.Seconds(), (simKept * simStep / 2).Seconds()
		fmt.Printf("effective training time at %s's rate, one failure in %v (%s): %.2f %%; lost to muster: %.2f %%\n", p.name, p.each.Round(time.Minute), p.about,
			100*(1-(down/shares+redo)/each), 100*ours/shares/each)
	}
	wall := wallClock() - s.wall
	fmt.Printf("%v of virtual time in %v by the clock on the wall; %d MiB\n", time.Since(s.began).Round(time.Second), wall.Round(time.Second), m.Sys>>20)
}
