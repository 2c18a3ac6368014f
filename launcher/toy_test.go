package launcher

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/job"
)

// This file is a training in fake time: its ranks are goroutines that compute, save, and wait for each other, and what is seen of them
// follows from that.

// habits are how a training goes.
type habits struct {
	step     time.Duration // that a rank computes for between two collectives of all
	spread   float64       // of that, from batch to batch
	reduces  int           // collectives of a step
	pairs    bool          // and ranks meet in pairs besides
	old      bool          // PyTorch has no recorder
	gpus     bool          // who waits in a collective spins, and kernels may run for long
	limit    time.Duration // the framework's own
	compile  time.Duration // of the first step
	prepares time.Duration // for which a rank does nothing that could be seen, before that
	slow     int           // a rank that takes ten times as long, from a step on; -1: none
	from     int
	graph    int // the step from which nothing is counted any more; 0: none
	mute     int // a rank that has no hook; -1: none
	steps    int // after which it ends
	breaks   []interlude
	fault    fault
	struckBy int // the rank to blame
	when     int // the step in which that happens
}

// An interlude is what a training does now and then beside its steps.
type interlude struct {
	every int           // steps
	long  time.Duration // about
	who   int           // alone, while the others wait; -1: all
	work  work
	says  bool // by muster beat --phase
}

// work is what a rank does, as far as it is seen from outside: shares of a processor, bytes a second.
type work struct {
	cpu, disk, wire float64
	state           byte
	lulls           bool // it does that in bursts
}

var (
	asleep   = work{cpu: 0.003, wire: 200, state: 'S'} // helper threads, the store's heartbeats
	computes = work{cpu: 0.97, wire: 200, state: 'R'}
	saves    = work{cpu: 0.05, disk: 20 << 20, state: 'S', lulls: true}
	uploads  = work{cpu: 0.02, wire: 4 << 20, state: 'S', lulls: true}
	reads    = work{cpu: 0.10, disk: 40 << 20, state: 'D', lulls: true}
	nothing  = work{state: 'S'}
	halts    = work{state: 'T'}
	blocked  = work{state: 'D'}
)

// A fault is what goes wrong with a training; 0: nothing.
type fault int

const (
	_           fault = iota
	sleepsApart       // a rank sleeps between two collectives,
	stopsApart        // is stopped there,
	blocksApart       // is in the kernel without end,
	spinsApart        // computes for ever,
	leaves            // or ends
	stopsInside       // a rank is stopped in a collective
	cutNetwork        // what all are in does not come to an end
	otherOp           // a rank calls another collective than the rest
	otherOrder        // and others in another order
	noInput           // nobody is in a collective
	kinds       = int(noInput)
	besides     = 1 << 20 // for random numbers of their own
)

func (f fault) String() string {
	return [...]string{"nothing", "a rank sleeps", "a rank is stopped", "a rank is in the kernel", "a rank spins", "a rank ends", "a rank is stopped inside",
		"the network is cut", "another collective", "another order", "no input"}[f]
}

// A training is one round of it.
type training struct {
	habits
	ctx   context.Context
	ranks []*toy
	all   *circle
	pairs []*circle
	ended sync.WaitGroup

	mu     sync.Mutex
	moved  time.Time   // when a counter of any rank last moved
	moves  []time.Time // the last of these times, a tenth of a second apart
	struck bool        // the fault has come
}

// A circle is ranks that meet in collectives.
type circle struct {
	id   uint64
	name string
	size int

	mu   sync.Mutex
	here int
	open chan struct{} // closed when all are here
}

func newCircle(id uint64, name string, size int) *circle {
	return &circle{id: id, name: name, size: size, open: make(chan struct{})}
}

// meet waits for the others.
func (c *circle) meet(ctx context.Context) {
	c.mu.Lock()
	open := c.open
	if c.here++; c.here == c.size {
		c.here, c.open = 0, make(chan struct{})
		close(open)
	}
	c.mu.Unlock()
	await(ctx, open)
}

// await ends the goroutine of a rank whose round is over.
func await(ctx context.Context, c <-chan struct{}) {
	select {
	case <-c:
	case <-ctx.Done():
		runtime.Goexit()
	}
}

func newTraining(ctx context.Context, h habits, size, seed, pid int) *training {
	t := &training{habits: h, ctx: ctx, all: newCircle(0xa11, "0", size), moved: time.Now()}
	for i := range (size + 1) / 2 {
		t.pairs = append(t.pairs, newCircle(uint64(0xb00+i), "pair", min(2, size-2*i)))
	}
	for rank := range size {
		r := &toy{t: t, rank: rank, pid: pid + rank, since: time.Now(), does: asleep, random: rand.New(rand.NewPCG(uint64(seed), uint64(pid+rank)))}
		t.ranks = append(t.ranks, r)
	}
	return t
}

// begin lets the ranks go. over hears when one has ended well.
func (t *training) begin(over func(*toy)) {
	for _, r := range t.ranks {
		t.ended.Go(func() { r.train(); over(r) })
	}
}

// A toy is a rank.
type toy struct {
	t         *training
	rank, pid int

	mu     sync.Mutex
	random *rand.Rand
	knows  page.Snapshot // what a hook would find now,
	tells  page.Snapshot // and what it found last,
	looked time.Time     // which was then
	waits  time.Time     // since when it is in a collective
	does   work
	since  time.Time
	did    job.Sight
}

// train is the life of a rank.
func (r *toy) train() {
	h := r.t.habits
	r.work(r.about(10*time.Second, 0.5), reads) // import torch
	r.appear()
	r.quietly(r.t.all) // init_process_group
	for step := 1; step <= h.steps && !r.leaves(step); step++ {
		r.step(step)
	}
	r.work(r.about(time.Duration(1+20*(r.rank%3))*time.Second, 0.5), saves)
	r.count(1, func(s *page.Snapshot) { s.Exiting, r.tells.Exiting = true, true })
}

func (r *toy) step(n int) {
	h := r.t.habits
	r.strike(n)
	r.work(r.about(h.step/10, 1), reads)
	r.calls(+1)
	long := r.about(h.step, h.spread)
	switch {
	case n == 1:
		if r.rank == 0 {
			r.work(r.about(h.prepares, 0.2), asleep)
		}
		long += r.about(h.compile, 0.2)
	case r.rank == h.slow && n >= h.from:
		long *= 10
	}
	r.work(long, computes)
	for range h.reduces {
		if h.pairs {
			r.reduce(1, n)
		}
		r.reduce(0, n)
	}
	r.calls(0)
	r.count(n, func(s *page.Snapshot) { s.Optimizer++ })
	for _, b := range h.breaks {
		if n%b.every == 0 {
			r.pause(n, b)
		}
	}
}

// pause is an interlude.
func (r *toy) pause(n int, b interlude) {
	if b.who < 0 || b.who == r.rank {
		long := r.about(b.long, 0.3)
		r.announce(b, 2*long)
		r.work(long, b.work)
		r.announce(interlude{says: b.says}, 0)
	}
	r.reduce(0, n)
}

func (r *toy) announce(b interlude, long time.Duration) {
	if !b.says {
		return
	}
	r.count(1, func(s *page.Snapshot) {
		s.Beats++
		s.Until = 0
		if long > 0 {
			s.Until = sinceEpoch() + long
		}
	})
}

// about is a time that varies, as the logarithm of a normal distribution does.
func (r *toy) about(d time.Duration, spread float64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := math.Exp(r.random.NormFloat64() * spread)
	return time.Duration(float64(d) * min(x, 4)) // nobody's batch is so much larger
}

// work passes time with something.
func (r *toy) work(d time.Duration, w work) {
	end := time.Now().Add(d)
	for left := d; left > 0; left = time.Until(end) {
		r.turn(w)
		burst := left
		if w.lulls && left > 2*time.Second {
			burst = min(left, r.about(time.Second, 0.5))
		}
		r.sleep(burst)
		if w.lulls {
			r.turn(asleep)
			r.sleep(min(max(time.Until(end), 0), r.about(2*time.Second, 0.5)))
		}
	}
	r.turn(asleep)
}

func (r *toy) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.t.ctx.Done():
		runtime.Goexit()
	}
}

// turn takes account of what it did, and turns to something else.
func (r *toy) turn(w work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.account()
	r.does = w
}

func (r *toy) account() {
	now := time.Now()
	d := now.Sub(r.since).Seconds()
	r.since = now
	r.did.CPU += time.Duration(d * r.does.cpu * float64(time.Second))
	r.did.Disk += uint64(d * r.does.disk)
	r.did.Wire += uint64(d * r.does.wire)
	r.did.State = r.does.state
}

// appear is the hook's beginning.
func (r *toy) appear() {
	h := r.t.habits
	r.count(1, func(s *page.Snapshot) {
		if r.rank == h.mute {
			return
		}
		*s = page.Snapshot{PID: r.pid, Claims: 1, Rank: r.rank, World: len(r.t.ranks), Recorder: !h.old, Hooks: h.old, Limit: h.limit}
	})
}

// lane finds a group of it, or makes it.
func (r *toy) lane(c *circle, s *page.Snapshot) *page.Lane {
	for i := range s.Lanes {
		if s.Lanes[i].Group == c.id {
			return &s.Lanes[i]
		}
	}
	s.Lanes = append(s.Lanes, page.Lane{Group: c.id, Name: c.name, Members: c.size, Blind: r.t.old})
	return &s.Lanes[len(s.Lanes)-1]
}

// count changes what is told, but not under a replayed graph.
func (r *toy) count(step int, change func(*page.Snapshot)) {
	h := r.t.habits
	if h.graph > 0 && step >= h.graph {
		return
	}
	r.mu.Lock()
	change(&r.knows)
	r.mu.Unlock()
	r.t.mu.Lock()
	r.t.move(time.Now())
	r.t.mu.Unlock()
}

// move notes that a counter moved.
func (t *training) move(now time.Time) {
	t.moved = now
	if n := len(t.moves); n > 0 && now.Sub(t.moves[n-1]) < time.Second/10 {
		return
	}
	if t.moves = append(t.moves, now); len(t.moves) > 400 {
		t.moves = append(t.moves[:0], t.moves[200:]...)
	}
}

// movedBefore is when a counter last moved before then.
func (t *training) movedBefore(then time.Time) (last time.Time) {
	for _, at := range t.moves {
		if at.Before(then) {
			last = at
		}
	}
	return last
}

// calls enters backward, or leaves it, for a hook that sees no more.
func (r *toy) calls(in int) {
	if !r.t.old {
		return
	}
	r.count(1, func(s *page.Snapshot) {
		s.Calls.Op = "backward"
		if in > 0 {
			s.Calls.Entered++
		} else {
			s.Calls.Completed++
		}
	})
}

// reduce is a collective of all, or of a pair.
func (r *toy) reduce(which, step int) {
	c := r.t.all
	if which == 1 {
		c = r.t.pairs[r.rank/2]
	}
	r.enter(c, step, "all_reduce")
	r.stops(step)
	c.meet(r.t.ctx)
	r.cut(step)
	r.turn(work{cpu: 0.1, wire: 10 << 20, state: 'S'})
	r.sleep(r.about(20*time.Millisecond, 0.5))
	r.turn(asleep)
	r.count(step, func(s *page.Snapshot) {
		if l := r.lane(c, s); !r.t.old {
			l.Completed++
			l.Op = ""
		}
	})
}

func (r *toy) enter(c *circle, step int, op string) {
	r.count(step, func(s *page.Snapshot) {
		l := r.lane(c, s)
		l.Entered++
		l.Op, l.Bytes = op, 4096
	})
	r.mu.Lock()
	r.waits = time.Now()
	r.mu.Unlock()
	if r.t.gpus {
		r.turn(computes)
	} else {
		r.turn(asleep)
	}
}

// quietly meets the others without a collective.
func (r *toy) quietly(c *circle) {
	r.turn(asleep)
	c.meet(r.t.ctx)
}

// page is what the agent reads: a hook looks once a second, and an agent may come just before it does.
func (r *toy) page(lag time.Duration) page.Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	late := time.Second + lag
	if can := r.does.state != 'T'; can && (now.Sub(r.looked) >= late || r.random.IntN(3) > 0 && lag == 0) {
		r.looked = now
		r.tells = r.knows
		r.tells.Lanes = append([]page.Lane(nil), r.knows.Lanes...)
		for i := range r.tells.Lanes {
			if now.Sub(r.waits) < 3*time.Second || r.t.old {
				r.tells.Lanes[i].Op, r.tells.Lanes[i].Bytes = "", 0
			}
		}
		if r.tells.Helper = sinceEpoch(); r.tells.PID == 0 {
			r.tells.Helper = 0
		}
	}
	return r.tells
}

// sight is how it looks from outside.
func (r *toy) sight() job.Sight {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.account()
	return r.did
}

// epoch is when machines were started.
func sinceEpoch() time.Duration { return time.Duration(time.Now().UnixNano()) }

// The faults.

func (t *training) strikes() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.struck = true
}

// stuck is the end of all progress of a rank.
func (r *toy) stuck(w work) {
	r.t.strikes()
	r.turn(w)
	<-r.t.ctx.Done()
	runtime.Goexit()
}

func (r *toy) guilty(step int) bool { return step == r.t.when && r.rank == r.t.struckBy }

// leaves reports whether a rank has nothing left to do before the others.
func (r *toy) leaves(step int) bool {
	if r.t.fault != leaves || !r.guilty(step) {
		return false
	}
	r.t.strikes()
	return true
}

// strike is what goes wrong before a step.
func (r *toy) strike(step int) {
	if step != r.t.when {
		return
	}
	if r.t.fault == noInput {
		r.stuck(nothing)
	}
	if r.t.fault == otherOrder { // one rank of the pair goes on without it
		r.disorder(step)
	}
	if !r.guilty(step) {
		return
	}
	switch r.t.fault {
	case sleepsApart:
		r.stuck(nothing)
	case stopsApart:
		r.stuck(halts)
	case blocksApart:
		r.stuck(blocked)
	case spinsApart:
		r.stuck(computes)
	case otherOp:
		r.enter(r.t.all, step, "broadcast")
		r.stuck(nothing)
	}
}

// disorder lets a rank wait for its pair, which waits for all.
func (r *toy) disorder(step int) {
	c := r.t.all
	if r.guilty(step) {
		c = r.t.pairs[r.rank/2]
	}
	r.enter(c, step, "all_gather")
	r.stuck(nothing)
}

// stops is what goes wrong inside a collective.
func (r *toy) stops(step int) {
	if r.t.fault == stopsInside && r.guilty(step) {
		r.stuck(halts)
	}
}

// cut is a network that moves nothing any more.
func (r *toy) cut(step int) {
	if r.t.fault == cutNetwork && step == r.t.when {
		r.stuck(nothing)
	}
}
