package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/gpus"
	"github.com/muster-run/muster/output"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/witness"
)

// A watch looks at this node's workers once a second: at what they say of themselves, and, while they stand still, from outside.
// What it sees goes to the leader with this agent's signs of life. The leader's watch judges by those of all nodes whether the world
// hangs.
type watch struct {
	c       Config
	workers func() []int // their processes, by local rank
	world   job.World
	group   int // this node's
	round   int
	pages   pages
	pulse   *pulse
	does    *together
	fleet   *fleet.Fleet     // nil: the world has one node
	judge   *heartbeat.Judge // of the leader alone, and
	roll    *heartbeat.Roll  // what it judges by
	senses  senses
	gpus    *gpus.Meter              // nil: the node has none that can be asked
	health  *health                  // nil: nothing of this machine is looked at
	tail    func(local int) []string // a worker's last lines
	rhythms func(context.Context, []bool) ([]output.Rhythm, error)
	dirs    string             // where evidence is written,
	hidden  func() report.Mask // of the environment's secrets
	spare   string             // or, if it cannot be, in the run's private directory, which goes with the run
	ras     string             // where NCCL's own watch answers; "": there is none
	began   time.Time
	found   chan any // what follows from a look, for the run loop

	asking   chan struct{} // holds one while workers are asked for what their recorders hold
	stacking sync.RWMutex  // held by those who ask where the workers' threads are

	still atomic.Bool // no worker of this node advances: it is looked at from outside

	ctx   context.Context // of all its goroutines
	stop  context.CancelFunc
	owned sync.WaitGroup

	// Of the looking goroutine.
	counts   []uint64
	moved    time.Time  // when a worker of this node last advanced
	silent   bool       // it was said that there are no heartbeats,
	fewer    bool       // or less than there could be
	unsaid   []bool     // by local rank, whether a worker's output is looked at, for nothing better tells of its progress
	deaf     int        // times in a row that nothing could be learned of the output
	asked    time.Time  // when somebody was last asked for it
	heard    time.Time  // when that was last answered
	pmi      *pmiServer // that workers are to speak to; nil: to none
	apart    apart      // what was said of workers that are not in this world
	arrivals *arrivals  // at Horovod's rendezvous; nil: there is none, or another node knows
	nested   nested     // real launchers below workers
	loaded   loaded     // another framework than PyTorch, whose contract they have
	departs  departing  // workers that have failed and do not end
	foreign  bool       // they are another launcher's, and their world is what they say
	lags     lags       // of whom it was said that the others wait for it
	lagged   bool       // they waited for somebody when that was last looked at
	how      int        // far the round has come,
	trains   bool       // and what was told of what the judge has learned
	learned  time.Duration
	before   uint64 // the latest step of the rounds before; 0: nobody told

	complained bool // that nothing can be learned of the output

	clashed map[string]bool // time-outs of which was told that they do not go with each other

	mu      sync.Mutex
	closed  bool
	over    []exited        // by local rank, how its last process ended
	stacks  [][]string      // by local rank, where it was when that was last asked for
	bundles int             // of evidence, so far
	said    []output.Rhythm // by local rank, what their output told last; nil: it is not asked for, or was never told
	last    []job.Beat      // of this node
	top     uint64          // the latest step that was told of
	far     []far           // of all ranks that are heard of, by rank

	advanced []time.Time     // when each worker of this node last did
	turned   []time.Duration // when the thread last did that fills its page, by CLOCK_MONOTONIC; 0: it is not known
}

// senses are how a watch perceives its workers.
type senses struct {
	page  func(local int) page.Snapshot         // what a worker says
	sight func(pids []int) ([]job.Sight, error) // how workers look from outside
	clock func() time.Duration                  // by which pages tell time
}

const (
	lookEach   = time.Second
	lookCloser = 3 * time.Second // a node whose workers stand still for so long is looked at from outside
	heardAgo   = 4 * time.Second // a beat counts for so long
	speakBy    = 2 * time.Minute // a worker that has said nothing by then has no heartbeats
	fewerBy    = speakBy / 4     // by then it has found its recorder, if it has any
	lagEach    = time.Minute

	maxStragglers = 8 // that are shown
)

// An exited is the end of a worker's process; another one may have been started in its place since.
type exited struct {
	pid  int
	well bool
}

// newWatch begins to look.
func (r *round) newWatch() *watch {
	slots := len(r.group.PIDs())
	w := &watch{
		c: r.c, workers: r.group.PIDs, world: r.session.World, group: r.session.Rank, round: r.state.Round, before: r.state.Marks.Before, pages: r.pages, pulse: r.line.pulse, does: r.line.does, fleet: r.line.fleet,
		tail: r.group.Tail, departs: departing{}, hidden: r.scene.hidden, rhythms: r.group.Rhythms, unsaid: make([]bool, slots), dirs: r.c.evidenceDir(r.run), spare: filepath.Join(r.run, "evidence"), ras: r.h.RAS, began: time.Now(), found: make(chan any),
		asking: make(chan struct{}, 1), clashed: map[string]bool{}, over: make([]exited, slots), stacks: make([][]string, slots), counts: make([]uint64, slots),
	}
	w.pmi, w.arrivals, w.apart.elsewhere = r.pmi, r.arrivals, r.plan.Framework.PMI || r.plan.Framework.Rendezvous
	w.senses = senses{w.told, witness.New("/").Look, monotonic}
	if r.c.sim.senses != nil {
		w.senses = r.c.sim.senses(w.workers)
	}
	w.nested = nested{busy: make(chan struct{}, 1), refused: Launchers{}}
	if r.plan.Framework.Name == framework.Default {
		w.loaded.busy = make(chan struct{}, 1)
	}
	w.moved = w.began
	if w.does == nil { // an agent that took over in a meeting has no line yet
		w.does = &together{clock: r.c.sim.clock}
	}
	w.does.begin(w.world.Size())
	for i := range w.unsaid {
		w.unsaid[i] = r.c.Output.Progress != ""
	}
	if r.state.leads() {
		w.roll = heartbeat.NewRoll(w.world, w.round, w.c.Version)
		w.judge = heartbeat.New(heartbeat.Limits{
			Floor: r.c.HangFloor, Ceiling: r.c.HangTimeout, Start: r.c.HangStart, Busy: r.c.HangBusyAfter, GPUs: len(r.plan.Devices) > 0, Others: r.c.ownTimeouts(),
			Places: r.c.OnHang != hangObserve, Trained: r.state.Trained, Learned: r.state.Learned,
		})
	}
	ctx, stop := context.WithCancel(context.Background())
	w.ctx, w.stop = ctx, stop
	if w.gpus = r.newGPUs(); w.gpus != nil {
		w.owned.Go(func() { w.gpus.Run(ctx, w.still.Load) })
	}
	if w.health = r.watched(); w.health != nil {
		w.owned.Go(func() { w.health.run(ctx, w.tell) })
	}
	w.owned.Go(func() { w.run(ctx) })
	return w
}

// newGPUs returns nil on a node without NVIDIA's accelerators.
func (r *round) newGPUs() *gpus.Meter {
	n := len(r.plan.Devices)
	if n == 0 || !strings.HasPrefix(r.plan.Devices[0], "/dev/nvidia") || r.c.First == nil {
		return nil
	}
	list, _ := r.c.getenv("CUDA_VISIBLE_DEVICES")
	return gpus.New(r.c.First.Start, r.c.First.KillTree, r.c.Environ, gpus.Visible(list, n, len(r.group.PIDs())))
}

// close ends it. A nil watch is closed.
func (w *watch) close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.stop()
	w.owned.Wait()
	if w.pulse != nil {
		w.pulse.hush()
	}
	w.does.begin(0)
}

// events is what follows from its looks; a nil watch sees nothing.
func (w *watch) events() <-chan any {
	if w == nil {
		return nil
	}
	return w.found
}

// ended takes note of a worker's end.
func (w *watch) ended(local, pid int, well bool) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over[local] = exited{pid, well}
}

// living is the processes of this node's workers, by local rank; 0: it has ended. done are those whose work is.
func (w *watch) living() (pids []int, done []int) {
	pids = w.workers()
	w.mu.Lock()
	defer w.mu.Unlock()
	for local, end := range w.over {
		if end.pid != 0 && pids[local] == end.pid {
			if pids[local] = 0; end.well {
				done = append(done, local)
			}
		}
	}
	return pids, done
}

// beats is what was seen last.
func (w *watch) beats() []job.Beat {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// goes starts a goroutine of this watch; it reports false when that is closed. A nil watch is.
func (w *watch) goes(f func()) bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.owned.Go(f)
	}
	return !w.closed
}

func (w *watch) run(ctx context.Context) {
	ticks := time.NewTicker(lookEach)
	defer ticks.Stop()
	lags := time.NewTicker(lagEach)
	defer lags.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			w.look(ctx, time.Now())
		case <-lags.C:
			w.stragglers(ctx)
		}
	}
}

// look is one look.
func (w *watch) look(ctx context.Context, now time.Time) {
	own, ended := w.own(now)
	w.mention(own, now)
	if w.pulse != nil && w.judge == nil {
		w.pulse.show(w.world.Generation, w.round, own, ended)
	}
	if w.judge == nil {
		w.remember(own)
		w.reach(ctx, own)
		w.note(own)
		return
	}
	w.roll.Begin(now.Sub(w.began))
	w.roll.Own(w.group, own, ended)
	w.others(now)
	look := w.roll.Look()
	w.remember(own)
	w.note(look.Beats)
	w.reach(ctx, look.Beats)
	for _, f := range w.judge.Observe(look) {
		w.tell(ctx, w.stalled(f))
	}
	w.clashes(func(e any) { w.tell(ctx, e) })
}

// reach tells how far the round has come, when that is further than before.
func (w *watch) reach(ctx context.Context, beats []job.Beat) {
	how, again := w.how, w.caughtUp()
	for _, b := range beats {
		how = max(how, progress(b))
	}
	trains, learned := false, time.Duration(0)
	if w.judge != nil {
		trains, learned = w.judge.Learned()
	}
	if how > w.how || again || trains && (!w.trains || learned > w.learned*5/4) {
		w.how, w.trains, w.learned = how, trains, learned
		w.tell(ctx, reached{how, again, trains, learned})
	}
}

// caughtUp notes the latest step that a worker of this node told of, and reports whether it is now that they have come as far as the rounds
// before. Steps that the hook counts do not tell: a process counts its own.
func (w *watch) caughtUp() bool {
	var step uint64
	for local := range w.workers() {
		step = max(step, w.read(local).Steps)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, said := range w.said {
		step = max(step, said.Step)
	}
	was := w.top
	w.top = max(w.top, step)
	return w.before > 0 && was < w.before && w.top >= w.before
}

// peak is the latest step that a worker of this node told of; 0: none did.
func (w *watch) peak() uint64 {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.top
}

// A programEnd is how a worker's program has ended, as its page tells, while its interpreter may take seconds to end. In these its peers notice that
// it is gone, and end themselves.
type programEnd struct {
	over   bool
	raised string        // the exception of which it has ended; "": of none
	caught bool          // of none, which is known: whatever it told of, it went on from that
	ago    time.Duration // for how long its interpreter has been about to end since; 0 without an exception
}

func (w *watch) program(local int) programEnd {
	if w == nil {
		return programEnd{}
	}
	s := w.read(local)
	end := programEnd{over: s.Over, caught: s.PID != 0 && s.Raised == ""}
	if s.Over || s.Exiting {
		end.raised = s.Raised
	}
	if s.Exiting && s.Raised != "" {
		end.ago = max(w.senses.clock()-s.Helper, 0)
	}
	return end
}

// step is how many steps of training a worker has done, as far as its page tells.
func (w *watch) step(local int) uint64 {
	if w == nil {
		return 0
	}
	b := beatOf(0, local, 0, w.read(local), 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	if local < len(w.said) {
		heardOf(&b, w.said[local])
	}
	return b.Steps
}

func (w *watch) remember(beats []job.Beat) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = beats
}

func (w *watch) tell(ctx context.Context, event any) {
	select {
	case w.found <- event:
	case <-ctx.Done():
	}
}

// stalled is a finding as an event for the judgement of the job.
func (w *watch) stalled(f heartbeat.Finding) stalled {
	f, all := bounded(f), f
	e := stalled{Finding: f, Text: all.Sentence(w.world), Group: -1, Nodes: suspectNodes(w.world, f.Culprits)}
	if len(f.Culprits) > 0 {
		if group, known := w.world.MemberOf(f.Culprits[0].Rank); known {
			e.Group = group
		}
	}
	return e
}

// bounded leaves so much of a finding as a message to all nodes can hold.
func bounded(f heartbeat.Finding) heartbeat.Finding {
	f.Culprits = slices.Clone(f.Culprits[:min(len(f.Culprits), maxCulprits)])
	for i := range f.Culprits {
		if i > 2 {
			f.Culprits[i].Stack = nil
		}
	}
	f.Stuck = f.Stuck[:min(len(f.Stuck), maxCulprits)]
	return f
}

const maxCulprits = 32

// own is what can be told of this node's workers, and who of them has ended.
func (w *watch) own(now time.Time) (beats []job.Beat, ended []int) {
	pids, done := w.living()
	w.mu.Lock()
	stacks := slices.Clone(w.stacks)
	w.mu.Unlock()
	first, clock := w.world.Members[w.group].First, w.senses.clock()
	var helpless []bool
	var pages []page.Snapshot
	said := w.listen(now.Sub(w.moved) >= lookCloser)
	for _, local := range done {
		ended = append(ended, first+local)
	}
	for local, pid := range pids {
		if pid == 0 {
			w.had(local, page.Snapshot{})
			w.does.ended(local)
			continue
		}
		s := w.senses.page(local)
		w.had(local, s)
		w.does.note(local, s)
		pages = append(pages, s)
		if text := w.departs.note(first+local, s, now); text != "" {
			w.c.Log.Warn(w.hidden().Line(text, exceptionText))
		}
		b := beatOf(first+local, local, pid, s, clock)
		b.Stack, b.Second = stacks[local], second(s, clock, now)
		if said != nil {
			w.unsaid[local] = heardOf(&b, said[local])
			w.deafen(&b)
		}
		if s.Exiting { // the interpreter's end may take long on a busy machine
			ended = append(ended, first+local)
		}
		if b.Count != w.counts[local] {
			w.counts[local], w.moved = b.Count, now
			w.moves(local, now)
		}
		beats, helpless = append(beats, b), append(helpless, held(s, clock))
	}
	if len(done) == 0 && len(pages) == len(pids) && !w.foreign {
		for _, text := range w.apart.note(first, w.world.Size(), pages) {
			w.c.Log.Warn(text)
		}
	}
	w.launchers(now, pids, pages)
	if text := w.loads(now, pids, pages); text != "" {
		w.c.Log.Warn(text)
	}
	if text := w.pmi.alone(w.world, pids, w.apart.elsewhere && w.apart.steps || now.Sub(w.began) >= lateMPI); text != "" {
		w.c.Log.Warn(text)
	}
	if text := w.arrivals.alone(w.apart.steps || now.Sub(w.began) >= lateHorovod); text != "" {
		w.c.Log.Warn(text)
	}
	still := now.Sub(w.moved) >= lookCloser
	w.still.Store(still)
	if still {
		w.closer(beats, helpless, said)
	} else {
		w.forget()
	}
	return beats, ended
}

// moves notes that a worker advanced.
func (w *watch) moves(local int, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.advanced == nil {
		w.advanced = make([]time.Time, len(w.counts))
	}
	w.advanced[local] = now
}

// had notes when the thread that fills a worker's page had a turn.
func (w *watch) had(local int, s page.Snapshot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.turned == nil {
		w.turned = make([]time.Duration, len(w.counts))
	}
	if w.turned[local] = s.Helper; s.Exiting {
		w.turned[local] = 0
	}
}

// ages is since when those threads of the workers that run have had none, by local rank; negative: it is not known.
func (w *watch) ages() []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	ages, now := make([]time.Duration, len(w.turned)), w.senses.clock()
	for local, at := range w.turned {
		if ages[local] = max(now-at, 0); at == 0 {
			ages[local] = -1
		}
	}
	return ages
}

// quiet is since when a worker has told of no progress; known: it ever did.
func (w *watch) quiet(local int) (since time.Duration, known bool) {
	if w == nil {
		return 0, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if local >= len(w.advanced) || w.advanced[local].IsZero() {
		return 0, false
	}
	return time.Since(w.advanced[local]), true
}

// told is a worker's page, if the process lives that wrote it; of one that was started again, the page is that of the process before
// until it has come as far.
func (w *watch) told(local int) page.Snapshot {
	s := w.read(local)
	if s.PID != 0 {
		if p, err := proc.Root("/proc").Process(s.PID); err != nil || p.Start != s.Start || p.Gone() {
			return page.Snapshot{Steps: s.Steps, Beats: s.Beats, Phase: s.Phase, Until: s.Until, Mute: "the process that told of its progress is gone"}
		}
	}
	return s
}

// read is a worker's page; empty where there is none, or one that nobody understands.
func (w *watch) read(local int) page.Snapshot {
	if local >= len(w.pages) || w.pages[local] == nil {
		return page.Snapshot{}
	}
	s, err := w.pages[local].Read()
	if err != nil && !errors.Is(err, page.ErrTorn) {
		return page.Snapshot{Mute: err.Error()}
	}
	return s
}

// closer adds how workers look from outside.
func (w *watch) closer(beats []job.Beat, helpless []bool, said []output.Rhythm) {
	pids := make([]int, len(beats))
	for i, b := range beats {
		pids[i] = b.PID
	}
	sights, err := w.senses.sight(pids)
	if err != nil {
		w.c.Log.Info(fmt.Sprintf("less can be seen of workers that stand still: %v", err))
	}
	for i := range sights {
		if sights[i].State == 0 { // it is gone, or cannot be seen: that is not to be idle
			continue
		}
		sights[i].Held = helpless[i]
		if said != nil {
			sights[i].Output = said[beats[i].Local].Bytes
		}
		w.gpus.See(&sights[i], beats[i].Local)
		beats[i].Sight = &sights[i]
	}
}

// forget drops what workers said of where they are: they are there no more.
func (w *watch) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.stacks)
}

// others adds what the other nodes told.
func (w *watch) others(now time.Time) {
	if w.fleet == nil {
		return
	}
	w.fleet.Beats(func(rank int, text json.RawMessage, at time.Time) {
		if now.Sub(at) > heardAgo {
			return
		}
		if report, ok := w.roll.Read(text); ok {
			w.roll.Told(rank, report)
		}
	})
}

// mention says once that workers have no heartbeats, or less of them than there could be, and why.
func (w *watch) mention(beats []job.Beat, now time.Time) {
	if i := slices.IndexFunc(beats, recorderless); i >= 0 && w.world.Size() != 1 && !w.fewer && now.Sub(w.began) >= fewerBy {
		w.fewer = true
		w.c.Log.Info(fmt.Sprintf("rank %d has heartbeats of calls alone, so of a hang less will be known: %s", beats[i].Rank, beats[i].Mute))
	}
	if w.silent || now.Sub(w.began) < speakBy {
		return
	}
	w.silent = true
	for _, b := range beats {
		if b.Sources&^job.Ready == 0 && !b.Over && b.Mute != job.Parted {
			why := b.Mute
			if why == "" {
				why = "no Python with PyTorch has said anything, and nothing called muster beat"
			}
			w.c.Log.Info(fmt.Sprintf("rank %d has no heartbeats so far, and without them a hang of it is not noticed: %s", b.Rank, why))
			return
		}
	}
}

// recorderless reports whether a worker tells of calls, for want of a recorder.
func recorderless(b job.Beat) bool {
	return b.Sources&(job.FromRecorder|job.FromHooks) == job.FromHooks && b.Mute != "" && !b.Over
}

// stragglers says for whom the others wait, when that changes.
func (w *watch) stragglers(ctx context.Context) {
	if w.judge == nil {
		return
	}
	found := w.judge.Stragglers()
	if len(found) == 0 && !w.lagged {
		return
	}
	w.lagged = len(found) > 0
	e := lagging{All: found[:min(len(found), maxStragglers)]}
	for i := range e.All {
		if n, known := w.world.MemberOf(e.All[i].Rank); known {
			e.All[i].Node = w.world.Members[n].Name
		}
	}
	e.Text = w.lags.line(e.All)
	w.tell(ctx, e)
}

// lags is of which ranks it was said in this round that the others wait for them.
type lags map[int]bool

// line is what is to be said of the worst, with the others of its node; "": it was said before. Ranks that are as slow as each other take
// turns at being the worst.
func (l *lags) line(found []job.Straggler) string {
	if len(found) == 0 || (*l)[found[0].Rank] {
		return ""
	}
	if *l == nil {
		*l = lags{}
	}
	worst, too := found[0], []string(nil)
	for _, s := range found {
		if s.Node == worst.Node && !(*l)[s.Rank] {
			(*l)[s.Rank] = true
			too = append(too, strconv.Itoa(s.Rank))
		}
	}
	if too = too[1:]; len(too) == 0 || worst.Node == "" {
		return worst.String()
	}
	return fmt.Sprintf("%v; so they do for rank %s of that node", worst, strings.Join(too, ", "))
}
