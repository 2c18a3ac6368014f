package launcher

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/output"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/store"
)

// This file is a simulation of whole jobs: the launcher as it is, from its first meeting to its end, with its rendezvous, fleet, watches and judge, on
// each of many nodes, under virtual time. In the place of the machine are a network and a store that are late and get cut, a first process without
// processes, and workers that train on paper. docs/simulation.md says what is asserted.

// A simulation is one job.
type simulation struct {
	t     *testing.T
	seed  uint64
	dice  *rand.Rand
	terms job.Terms
	slots int
	tears int // one of so many changes of the store is not confirmed; 0: all are
	meet  *store.Memory
	dir   string
	began time.Time

	mu        sync.Mutex
	agents    []*simAgent // all there ever were
	lives     map[string]*simAgent
	worlds    map[string]*simWorld // by nonce
	pid       int
	trainings map[int]*simTraining // by round
	newest    int                  // of the rounds; -1: none
	wrong     []string             // what must not be
	log       []string
	now       *incident
	changed   chan struct{}
	ckpt      uint64             // the step from which the next round goes on
	incidents []*incident        // that the job got over
	formed    time.Duration      // from the last node that came
	quiet     [2]time.Duration   // from one incident to the next, at least and at most
	coming    int                // nodes that will be in the place of others
	over      bool               // trainings end well
	restarts  int                // rounds that may follow failures
	late      time.Duration      // how much later than after 10 s a node is given up
	failures  int                // so far
	final     *incident          // the job ends of it
	turns     bool               // what goes wrong takes turns
	told      map[*simAgent]bool // to stop, by its platform
	wall      time.Duration      // of the machine's clock, when it began
}

// simGone is a pid that no kernel gives.
const simGone = 1 << 23

func newSimulation(t *testing.T, seed uint64, terms job.Terms, slots int) *simulation {
	return &simulation{t: t, seed: seed, dice: rand.New(rand.NewPCG(seed, 77)), terms: terms, slots: slots, tears: *simTears, restarts: 1000, quiet: [2]time.Duration{2 * time.Minute, 5 * time.Minute}, meet: new(store.Memory), dir: t.TempDir(), began: time.Now(),
		lives: map[string]*simAgent{}, pid: simGone, trainings: map[int]*simTraining{}, told: map[*simAgent]bool{}, newest: -1, changed: make(chan struct{})}
}

func (s *simulation) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%10.3fs ", time.Since(s.began).Seconds())+fmt.Sprintf(format, args...))
}

// fails notes what must not be.
func (s *simulation) fails(format string, args ...any) {
	if len(s.wrong) < 20 {
		s.wrong = append(s.wrong, fmt.Sprintf("%10.3fs ", time.Since(s.began).Seconds())+fmt.Sprintf(format, args...))
	}
	s.note("WRONG "+format, args...)
}

func (s *simulation) stir() { close(s.changed); s.changed = make(chan struct{}) }

// until waits for something that is looked at under mu.
func (s *simulation) until(most time.Duration, is func() bool) bool {
	late := time.NewTimer(most)
	defer late.Stop()
	for {
		s.mu.Lock()
		done, changed := is(), s.changed
		s.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-changed:
		case <-late.C:
			return false
		}
	}
}

func (s *simulation) brief(least, most time.Duration) time.Duration {
	return least + time.Duration(s.dice.Int64N(int64(most-least)))
}

func (s *simulation) at(addr string) *simAgent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lives[addr]
}

// A simAgent is an agent of a node, and its machine.
type simAgent struct {
	sim     *simulation
	name    string
	index   int
	life    string
	addr    string
	link    *simLink
	first   *simFirst
	desk    *desk
	meeting *meeting
	ended   chan struct{}
	end     *state
	endedAt time.Time

	mu     sync.Mutex
	counts map[string]int
	until  time.Time // its agent stands still
	done   bool
}

func (a *simAgent) awake() {
	a.mu.Lock()
	d := time.Until(a.until)
	a.mu.Unlock()
	if d > 0 {
		time.Sleep(d)
	}
}

// stoodStill reports whether it ever did.
func (a *simAgent) stoodStill() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.until.IsZero()
}

func (a *simAgent) gone() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.done
}

// comes starts an agent on a node.
func (s *simulation) comes(index int) *simAgent {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.agents)
	a := &simAgent{sim: s, name: fmt.Sprintf("n%d", index), index: -1, life: fmt.Sprintf("life-%d", n), addr: fmt.Sprintf("10.%d.%d.%d:1", n>>16, n>>8&255, n&255),
		link: newSimLink(), ended: make(chan struct{}), counts: map[string]int{}}
	a.first = &simFirst{a: a, lost: make(chan struct{}), signals: make(chan os.Signal, 8), procs: map[int]*simProc{}}
	s.agents = append(s.agents, a)
	s.lives[a.addr] = a
	go a.run()
	return a
}

// config is what all are told.
func (a *simAgent) config() Config {
	timeout := 10*time.Second + a.sim.late
	if a.sim.seed%10 == 0 && strings.HasSuffix(a.name, "1") { // was told otherwise, which counts in worlds that it leads first
		timeout = 20 * time.Second
	}
	return Config{
		JoinTimeout: 30 * time.Minute, NodeTimeout: timeout, RejoinTimeout: 20 * time.Minute, LastCall: 10 * time.Second, JoinPolicy: joinNow, StopTimeout: 5 * time.Second, Grace: 25 * time.Second,
		MaxRestarts: a.sim.restarts, OnHang: hangRestart, OnExit: onExitStop, Preflight: preflightOff, Tune: tuneOff, Evidence: filepath.Join(a.sim.dir, "evidence"),
		PreemptSignal: syscall.SIGTERM, Host: job.Host{Hostname: a.name, Getenv: func(string) string { return "" }}, Console: &pid1.Console{},
		Version: "simulated", First: a.first, Log: slog.New(slog.DiscardHandler),
		sim: simulated{dial: a.dial, senses: a.senses, clock: sinceEpoch, awake: a.awake, share: a.sim.share},
	}
}

// A simWorld is what all members of a world have alike, each on its own machine.
type simWorld struct {
	members []job.Member
	nodes   []*node
}

// share has all agents of a world keep what is alike once: memory of a node does not grow with the number of nodes then.
func (s *simulation) share(w *job.World) []*node {
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.worlds[w.Nonce]
	if had == nil {
		var names, ids []string
		for _, m := range w.Members {
			names, ids = append(names, m.Name), append(ids, m.Node.String())
		}
		had = &simWorld{w.Members, freshNodes(names, ids)}
		s.worlds = map[string]*simWorld{w.Nonce: had} // the one before is over
	}
	same := func(a, b job.Member) bool {
		return a.Incarnation == b.Incarnation && a.First == b.First && a.Slots == b.Slots && a.String() == b.String()
	}
	if !slices.EqualFunc(had.members, w.Members, same) {
		s.fails("two agents of a world have other members")
	}
	w.Members = had.members
	return had.nodes
}

// run is the launcher's run, from the meeting on.
func (a *simAgent) run() {
	defer close(a.ended)
	s, c := a.sim, a.config()
	how, err := framework.Lookup(framework.Default)
	if err != nil {
		s.t.Error(err)
		return
	}
	spec := job.Spec{ID: "sim", Terms: s.terms, Self: job.Node{Name: a.name, Index: a.index, Slots: s.slots, Addrs: []job.Addr{job.Addr(a.addr)}, Incarnation: a.life, Version: c.Version}}
	h := &heritage{Dir: filepath.Join(s.dir, a.life), Began: clock(), Plan: Plan{Spec: spec, Command: []string{"train"}, Framework: how, Restarts: c.MaxRestarts, Called: "sim"},
		hook: func() (string, error) { return "", errors.New("pages are simulated") }}
	d := &desk{c: c, plan: h.Plan, began: time.Now(), orders: make(chan order), outcome: newOutcome()}
	m := &meeting{c: c, desk: d, plan: h.Plan, decided: make(chan struct{}, 1), spec: spec, hosts: spec.Self.Addrs, end: time.Now().Add(c.JoinTimeout), store: simStore{s.meet, a}}
	m.door.self, a.meeting, a.desk = a.life, m, d
	var l *line
	asked, err := c.unlessAsked(context.Background(), d.orders, "before any worker was started", func(ctx context.Context) (err error) {
		l, err = m.world(ctx, rendezvous.Options{LastCall: c.LastCall, Fence: h.Plan.policy(c).fence(), Policy: h.Plan.policy(c).encode(), Lives: m.lives}, h.met)
		return err
	})
	if err != nil {
		v := VerdictOf(err)
		a.end = &state{Verdict: &v}
	} else {
		a.end = runRound(c, h, m, l, d, asked)
		m.quits = a.end.leavesOthers()
	}
	a.mu.Lock()
	a.done, a.endedAt = true, time.Now()
	a.mu.Unlock()
	m.close()
}

// members are the living agents whose workers are of a round.
func (s *simulation) members(round int) (all []*simAgent) {
	t := s.trainings[round]
	if t == nil {
		return nil
	}
	seen := map[*simAgent]bool{}
	for _, rank := range slices.Sorted(maps.Keys(t.procs)) {
		if a := t.procs[rank].at; !seen[a] && !a.link.isDead() {
			seen[a] = true
			all = append(all, a)
		}
	}
	return all
}

// A simFirst is a first process without processes.
type simFirst struct {
	a       *simAgent
	lost    chan struct{}
	signals chan os.Signal

	mu    sync.Mutex
	procs map[int]*simProc
	lease *time.Timer
	off   bool
	begun time.Time // a worker was started last,
	left  time.Time // and it was left, for an agent that takes over, that workers are
}

func (f *simFirst) Lost() <-chan struct{}                       { return f.lost }
func (f *simFirst) Signals() <-chan os.Signal                   { f.a.awake(); return f.signals }
func (*simFirst) Legacy() *pid1.Legacy                          { return nil }
func (*simFirst) Life() int                                     { return 0 }
func (*simFirst) Hold(string, syscall.Conn) error               { return errors.ErrUnsupported }
func (*simFirst) Drop(string) error                             { return nil }
func (*simFirst) DropOld(string) error                          { return nil }
func (*simFirst) LastWords(string) error                        { return nil }
func (*simFirst) Succeed(*os.File) error                        { return errors.ErrUnsupported }
func (*simFirst) Tail(int) ([]string, error)                    { return nil, nil }
func (*simFirst) Forget(...int)                                 {}
func (*simFirst) Counts(context.Context) (output.Counts, error) { return output.Counts{}, nil }
func (*simFirst) Rhythms(_ context.Context, pids []int, _ []bool) ([]output.Rhythm, error) {
	return make([]output.Rhythm, len(pids)), nil
}

func (f *simFirst) Keep(name string, data []byte) error {
	if name == keptState && bytes.Contains(data, []byte(`"started":true`)) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.left.Before(f.begun) {
			f.left = time.Now()
		}
	}
	return nil
}

// Lease kills all workers unless it is renewed.
func (f *simFirst) Lease(within time.Duration) error {
	f.a.awake()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lease != nil {
		f.lease.Stop()
	}
	f.lease = nil
	if within > 0 {
		f.lease = time.AfterFunc(within, func() { f.kill(true) })
	}
	return nil
}

// kill ends all workers.
func (f *simFirst) kill(lapsed bool) {
	f.mu.Lock()
	all := slices.Collect(maps.Values(f.procs))
	f.mu.Unlock()
	for _, p := range all {
		p.ends(proc.Exit{Signal: syscall.SIGKILL, Lapsed: lapsed}, nil)
	}
}

func (f *simFirst) Start(_ context.Context, spec proc.Spec) (*proc.Child, error) {
	f.a.awake()
	s := f.a.sim
	p := &simProc{at: f.a, env: map[string]string{}}
	for _, kv := range spec.Env {
		switch name, value, _ := strings.Cut(kv, "="); name {
		case "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT":
			p.env[name] = value
		}
	}
	if _, err := fmt.Sscanf(strings.ReplaceAll(spec.Tag, "/", " "), "sim %d %d", &p.rank, &p.round); err != nil {
		return nil, fmt.Errorf("tag %q: %w", spec.Tag, err)
	}
	exit, tail := make(chan proc.Exit, 1), make(chan []string, 1)
	p.exit, p.tail = exit, tail
	s.mu.Lock()
	s.pid++
	p.pid = s.pid
	s.mu.Unlock()
	f.mu.Lock()
	off := f.off
	f.procs[p.pid], f.begun = p, time.Now()
	f.mu.Unlock()
	if off {
		p.ends(proc.Exit{Signal: syscall.SIGKILL}, nil)
	} else {
		s.starts(p)
	}
	return &proc.Child{PID: p.pid, Exit: exit, Tail: tail}, nil
}

func (f *simFirst) proc(pid int) *simProc {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.procs[pid]
}

// Signal is TERM, which most workers heed.
func (f *simFirst) Signal(pid int, sig syscall.Signal, _ proc.Scope) error {
	f.a.awake()
	p := f.proc(pid)
	if p == nil || !p.alive() {
		return proc.ErrEnded
	}
	f.a.sim.stops(p)
	p.told = time.Now()
	if d := f.a.sim.obeys(p); d > 0 {
		time.AfterFunc(d, func() { p.ends(proc.Exit{Signal: sig}, nil) })
	}
	return nil
}

func (f *simFirst) KillTree(_ context.Context, pids ...int) error {
	f.a.awake()
	for _, pid := range pids {
		if p := f.proc(pid); p != nil {
			if p.alive() {
				f.a.sim.stops(p)
				f.a.sim.killed(p)
			}
			time.Sleep(2 * time.Millisecond)
			p.ends(proc.Exit{Signal: syscall.SIGKILL}, nil)
		}
	}
	return nil
}

// A simProc is a worker.
type simProc struct {
	at          *simAgent
	pid         int
	rank, round int
	env         map[string]string
	told        time.Time // to end
	exit        chan<- proc.Exit
	tail        chan<- []string

	mu   sync.Mutex
	over bool
}

func (p *simProc) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.over
}

// ends is the end of a worker.
func (p *simProc) ends(e proc.Exit, lines []string) {
	p.mu.Lock()
	was := p.over
	p.over = true
	p.mu.Unlock()
	if was {
		return
	}
	e.PID, e.At = p.pid, time.Now()
	p.at.sim.left(p, e.Code != 0)
	p.exit <- e
	p.tail <- lines
	p.at.first.mu.Lock()
	delete(p.at.first.procs, p.pid)
	p.at.first.mu.Unlock()
}

// A simTraining is the training of one round. Its ranks are no goroutines: where each is follows from the time.
type simTraining struct {
	round, size int
	place       string // of its store
	procs       map[int]*simProc
	living      int
	first, all  time.Time // the first, and all of its workers were started
	goes        time.Time // all have imported, and met
	base        uint64    // the step it goes on from
	halted      time.Time // nothing moves from then on; zero: it goes on
	stopped     time.Time // a worker was told to stop first
	how         simHang
	culprit     int
	doomed      *simProc     // is about to fail, whatever it is told
	deaf        *simAgent    // whose workers heed nothing
	failed      map[int]bool // ranks that ended of themselves, and badly
	gently      bool         // nobody failed: who is told to stop has time for a checkpoint
}

// A simHang is how a training stands still.
type simHang int

const (
	hangNone    simHang = iota
	hangAbsent          // a rank sleeps, and does not enter the collective that the others are in
	hangStopped         // a rank is stopped in a collective
	hangKernel          // a rank is in the kernel, and does not enter
	hangWire            // what all are in does not come to an end
)

func (h simHang) String() string {
	return [...]string{"nothing", "a rank sleeps", "a rank is stopped", "a rank is in the kernel", "the network of collectives is cut"}[h]
}

// starts takes in a new worker. That is when it must be alone with those of its round.
func (s *simulation) starts(p *simProc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.trainings[p.round]
	var size int
	fmt.Sscan(p.env["WORLD_SIZE"], &size)
	place := p.env["MASTER_ADDR"] + ":" + p.env["MASTER_PORT"]
	if t == nil {
		t = &simTraining{round: p.round, size: size, place: place, procs: map[int]*simProc{}, failed: map[int]bool{}, first: time.Now(), base: s.ckpt}
		s.trainings[p.round] = t
		if p.round != s.newest+1 {
			s.fails("round %d follows round %d", p.round, s.newest)
		}
		s.newest = max(s.newest, p.round)
		s.note("round %d begins, of %d ranks", p.round, size)
	}
	for _, round := range slices.Sorted(maps.Keys(s.trainings)) {
		if other := s.trainings[round]; round != p.round && other.living > 0 {
			s.fails("rank %d of round %d is started on %s while %d workers of round %d live, one on %s", p.rank, p.round, p.at.name, other.living, round, other.anyone())
		}
	}
	if p.round < s.newest {
		s.fails("rank %d of round %d is started on %s after round %d began", p.rank, p.round, p.at.name, s.newest)
	}
	if nodes := size / s.slots; nodes < s.terms.Fewest() || nodes > s.terms.Nodes {
		s.fails("round %d is of %d nodes, and %s may be in a world", p.round, nodes, s.terms.Size())
	}
	if t.size != size || t.place != place {
		s.fails("round %d is %d ranks at %s, and for rank %d on %s %d at %s", p.round, t.size, t.place, p.rank, p.at.name, size, place)
	}
	if other := t.procs[p.rank]; other != nil && other.alive() {
		s.fails("rank %d of round %d is on %s, and on %s as well", p.rank, p.round, other.at.name, p.at.name)
	}
	t.procs[p.rank] = p
	if t.living++; len(t.procs) == t.size && t.all.IsZero() {
		t.all = time.Now()
		t.goes = t.all.Add(5*time.Second + time.Duration(hashOf("import", fmt.Sprint(s.seed), t.round)%uint64(10*time.Second)))
		s.note("round %d: all %d workers run", t.round, t.size)
		s.keepsRanks(t)
	}
	s.stir()
}

// keepsRanks asserts that who was in the round before has its rank again, where the world is as large.
func (s *simulation) keepsRanks(t *simTraining) {
	before := s.trainings[t.round-1]
	if before == nil || before.size != t.size {
		return
	}
	had := map[*simAgent]int{}
	for rank, p := range before.procs {
		had[p.at] = rank / s.slots
	}
	for rank, p := range t.procs {
		if group, was := had[p.at]; was && group != rank/s.slots {
			s.fails("%s was node %d in round %d, and is node %d in round %d", p.at.name, group, before.round, rank/s.slots, t.round)
		}
	}
}

func (t *simTraining) anyone() string {
	for _, p := range t.procs {
		if p.alive() {
			return p.at.name
		}
	}
	return "?"
}

// left is the end of a worker: the others wait for it.
func (s *simulation) left(p *simProc, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.trainings[p.round]
	if t == nil || t.procs[p.rank] != p {
		return
	}
	if t.living--; t.living == 0 && t.stopped.IsZero() { // nobody is left to be told
		t.stopped = time.Now()
		s.saves(t)
	}
	t.failed[p.rank] = failed
	t.halt(time.Now(), hangNone, p.rank)
	s.stir()
}

func (t *simTraining) halt(now time.Time, how simHang, who int) {
	if t.halted.IsZero() {
		t.halted, t.how, t.culprit = now, how, who
	}
}

// stops notes that a worker is told to stop, and that somebody had a reason for it.
func (s *simulation) stops(p *simProc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.trainings[p.round]
	if t == nil || !t.stopped.IsZero() {
		return
	}
	t.stopped = time.Now()
	t.gently = s.now == nil || s.now.round != t.round || s.now.gently
	s.note("round %d: workers are told to stop, on %s first", p.round, p.at.name)
	if s.over && s.final == nil {
		s.fails("round %d is stopped, which ends well", p.round)
	}
	if s.now == nil && !s.over {
		s.fails("round %d is stopped, and nothing happened", p.round)
	}
	if s.now != nil && s.now.mayNot {
		s.fails("round %d is stopped for %s", p.round, s.now.what)
	}
	s.saves(t)
	s.stir()
}

// killed asserts that a worker had the time to end that it is promised, and no more.
func (s *simulation) killed(p *simProc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, took := s.trainings[p.round], time.Since(p.told)
	least, late := 5*time.Second, time.Second
	switch {
	case s.now != nil && s.now.hurried && s.now.round == t.round:
		late += 3 * time.Second
	case t.gently || s.calledOff(p.at):
		least = 25 * time.Second
	}
	if off := took - least; off < 0 || off > late && p.at.link.passes() && !p.at.stoodStill() {
		s.fails("rank %d of round %d is killed on %s %v after it was told to end, which is to be %v", p.rank, p.round, p.at.name, took, least)
	}
}

// calledOff reports whether a round is stopped to let others in, just as something else happens.
func (s *simulation) calledOff(at *simAgent) bool {
	st := at.desk.now().state
	return st != nil && st.Order == orderRestart
}

// pauses has a training stand still for a while.
func (s *simulation) pauses(t *simTraining, d time.Duration) {
	t.halt(time.Now(), hangWire, -1)
	time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.stopped.IsZero() {
			t.halted, t.how, t.goes = time.Time{}, hangNone, t.goes.Add(d)
		}
	})
}

// saves keeps the last checkpoint.
func (s *simulation) saves(t *simTraining) {
	done := t.base + t.steps(time.Now())
	s.ckpt = max(s.ckpt, done/simKept*simKept)
}

// obeys is how long a worker takes to heed TERM; 0: it does not.
func (s *simulation) obeys(p *simProc) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.trainings[p.round]
	h := hashOf("obeys", fmt.Sprint(s.seed, p.rank), p.round)
	switch {
	case t != nil && t.how != hangNone && t.culprit == p.rank && t.how != hangWire, t != nil && (t.doomed == p || t.deaf == p.at), h%16 == 0:
		return 0
	}
	return time.Millisecond + time.Duration(h%uint64(2*time.Second))
}

// A step has some collectives, one after the other.
const (
	simPace  = 250 * time.Millisecond
	simCalls = 8 // collectives of a step
	simStep  = simCalls * simPace
	simKept  = 100 // steps from one checkpoint to the next
)

// steps is how many all have done.
func (t *simTraining) steps(now time.Time) uint64 { return t.calls(now) / simCalls }

// calls is how many collectives came to their end.
func (t *simTraining) calls(now time.Time) uint64 {
	if t.goes.IsZero() {
		return 0
	}
	if !t.halted.IsZero() && t.halted.Before(now) {
		now = t.halted
	}
	return uint64(max(0, now.Sub(t.goes)) / simPace)
}

// page is what a rank tells.
func (s *simulation) page(p *simProc) page.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, now := s.trainings[p.round], time.Now()
	snap := page.Snapshot{PID: p.pid, Claims: 1, Rank: p.rank, World: t.size, Recorder: true, Grouped: true, Met: true, Limit: 10 * time.Minute, Helper: sinceEpoch()}
	if t.goes.IsZero() || now.Before(t.goes) {
		return snap
	}
	k := t.calls(now)
	lane := page.Lane{Group: 0xa11, Name: "0", Members: t.size, Entered: k, Completed: k}
	snap.Optimizer, snap.Steps = k/simCalls, t.base+k/simCalls
	start := t.goes.Add(time.Duration(k) * simPace)
	if in := now.Sub(start) - simPace/2 - time.Duration(p.rank%7)*simPace/20; in >= 0 && !t.misses(p.rank, now) {
		if lane.Entered++; in > 3*time.Second {
			lane.Op, lane.Bytes = "all_reduce", 4096
		}
	}
	if t.how == hangStopped && p.rank == t.culprit && !t.halted.After(now) {
		snap.Helper = time.Duration(t.halted.UnixNano())
	}
	snap.Lanes = []page.Lane{lane}
	return snap
}

// misses reports whether a rank does not enter what the others are in.
func (t *simTraining) misses(rank int, now time.Time) bool {
	return !t.halted.IsZero() && !t.halted.After(now) && rank == t.culprit && t.how != hangWire && t.how != hangStopped
}

// sight is how a rank looks from outside.
func (s *simulation) sight(p *simProc) job.Sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, now := s.trainings[p.round], time.Now()
	calls := t.calls(now)
	v := job.Sight{State: 'S', CPU: time.Duration(calls) * simPace / 2, Wire: calls * 10 << 20}
	quiet := now.Sub(cmp.Or(t.goes, t.first).Add(time.Duration(calls) * simPace))
	v.CPU += max(0, quiet) * 3 / 1000
	v.Wire += uint64(max(0, quiet.Seconds()) * 200)
	if !t.halted.IsZero() && !t.halted.After(now) && p.rank == t.culprit {
		switch t.how {
		case hangStopped:
			v.State = 'T'
		case hangKernel:
			v.State = 'D'
		}
	}
	if t.goes.IsZero() || now.Before(t.goes) { // it reads its libraries
		v.Disk = uint64(now.Sub(s.began).Seconds() * (10 << 20))
		v.CPU += now.Sub(s.began) / 2
	}
	return v
}

func (a *simAgent) senses(pids func() []int) senses {
	return senses{clock: sinceEpoch, page: func(local int) page.Snapshot {
		a.awake()
		if p := a.first.proc(pids()[local]); p != nil {
			return a.sim.page(p)
		}
		return page.Snapshot{}
	}, sight: func(pids []int) (all []job.Sight, err error) {
		for _, pid := range pids {
			var v job.Sight
			if p := a.first.proc(pid); p != nil {
				v = a.sim.sight(p)
			}
			all = append(all, v)
		}
		return all, nil
	}}
}

// dies is the end of a machine's power.
func (s *simulation) dies(a *simAgent) {
	a.link.sever()
	s.ends(a)
}

// kills is the end of a container, of which the kernel tells.
func (s *simulation) kills(a *simAgent) {
	a.link.kills()
	s.ends(a)
}

// ends is the end of all processes of a node.
func (s *simulation) ends(a *simAgent) {
	a.first.mu.Lock()
	a.first.off = true
	a.first.mu.Unlock()
	a.first.kill(false)
	close(a.first.lost) // what is left of its agent ends, and nobody hears it
}

var (
	simNodes     = flag.Int("nodes", 10, "nodes of a simulated job")
	simSlots     = flag.Int("slots", 8, "workers of each")
	simSpares    = flag.Int("spares", -1, "spares of the job; -1: one for each hundred nodes")
	simSeed      = flag.Uint64("seed", 0, "the seed of the simulated job; 0: those of the tests")
	simSeeds     = flag.Int("seeds", 4, "simulated jobs to play")
	simIncidents = flag.Int("incidents", 6, "things that go wrong in each")
	simTears     = flag.Int("tears", 400, "one of so many changes of a store is not confirmed; 0: all are")
)

// Whatever happens to a job, its rounds follow each other, each names who began its end, and all agents end as the job does. A job is its seed.
func TestSimulation(t *testing.T) {
	first, last := uint64(1), uint64(*simSeeds)
	if *simSeed != 0 {
		first, last = *simSeed, *simSeed
	}
	for seed := first; seed <= last; seed++ {
		if t.Failed() {
			break
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dice := rand.New(rand.NewPCG(seed, 99))
				terms := job.Terms{Nodes: 2 + dice.IntN(5), Spares: dice.IntN(3)}
				terms.Least = 1 + dice.IntN(terms.Nodes)
				s := newSimulation(t, seed, terms, 1+dice.IntN(3))
				if dice.IntN(3) == 0 {
					s.restarts = dice.IntN(3)
				}
				if seed%5 == 0 {
					s.late = 30 * time.Second
				}
				s.play(*simIncidents)
			})
		})
	}
}

// That a node's workers were started is left at once on every node, though another agent's word was the reason: one that takes over must not start them anew.
func TestBegunIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(t, 1, job.Terms{Nodes: 4}, 2)
		s.play(0)
		for _, a := range s.agents {
			if f := a.first; f.left.IsZero() || f.left.Sub(f.begun) > time.Millisecond {
				t.Errorf("%s: workers were started at %v, and that was left at %v", a.name, f.begun, f.left)
			}
		}
	})
}

// One job, and what it took; make simulate has larger ones.
func TestSimulate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terms := job.Terms{Nodes: *simNodes, Least: max(1, *simNodes*9/10), Spares: *simSpares}
		if terms.Spares < 0 {
			terms.Spares = (terms.Nodes + 99) / 100
		}
		s := newSimulation(t, max(1, *simSeed), terms, *simSlots)
		s.quiet, s.turns, s.wall = [2]time.Duration{40 * time.Second, time.Minute}, true, wallClock()
		s.play(*simIncidents)
		if !t.Failed() {
			s.table()
		}
	})
}
