package launcher

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/report/web"
	"github.com/muster-run/muster/topology"
	"github.com/muster-run/muster/witness"
)

// An observer looks on while another launcher runs a job: it does what an agent does for its own workers to name a hang, and nothing
// else. Its loop owns all of this; what others ask for is in shown.
type observer struct {
	c      Config
	plan   Plan
	out    Lookout
	limits heartbeat.Limits
	ras    string
	began  time.Time
	pulse  *pulse

	command pid1.Told
	roll    roll
	seats   []seat
	own     turnover // of this node's ranks
	first   int      // rank of those that this node may have
	here    *watch   // over them; nil: there are none
	size    int      // ranks of the job, as far as those of this node say; else 0
	nodes   []string // of those that looked on together last,
	node    int      // and this node's number among them
	with    *company
	met     chan *company // that was found
	finding sync.WaitGroup

	judge   *heartbeat.Judge // nil: another node judges
	all     turnover         // of all ranks that are heard of
	round   int
	said    state // of standstills
	slow    []job.Straggler
	lags    lags     // of whom it was said
	clashes []string // time-outs that do not go with each other, that were told of
	mute    bool     // it was said that nobody tells anything
	falls   falls
	stalls  []report.Stall
	open    bool           // the last of them goes on
	look    heartbeat.Look // the last one, at all ranks that are heard of
	ended   *job.Verdict   // nil: the command runs

	pictures pictures
	outcome  *outcome
	http     string // where the page is served; "": at its socket alone

	turns turn // of the loop

	mu      sync.Mutex
	shown   shown
	changed chan struct{} // closed when something else is shown; nil: nobody waits for that
}

// shown is what is told to those who ask.
type shown struct {
	web.View
	here *watch
}

// Observe looks on until the command has ended. It calls leave with how it did as soon as it knows: what is open then may take longer to
// close than the first process waits. news is of that one.
func Observe(c Config, news <-chan pid1.Told, leave func(report.Ending)) {
	e := report.Ending{Host: c.Host.Hostname, Node: -1, Version: c.Version, Began: time.Now()}
	first, ok := <-news
	if !ok {
		e.Ended = time.Now()
		e.Verdict = VerdictOf(fail(job.ExitRetry, "", "the first process is gone"))
		leave(e)
		return
	}
	o := newObserver(c, first, e.Began)
	o.run(news, func() { leave(o.ending(e)) })
}

func newObserver(c Config, first pid1.Told, began time.Time) *observer {
	plan, err := planLookout(c)
	if err != nil {
		c.Log.Info("this node is observed alone: " + err.Error())
	}
	o := &observer{
		c: c, plan: plan, out: LookoutAt(first.Note), began: began, command: first, pulse: newPulse(), outcome: newOutcome(), met: make(chan *company),
		falls: openFalls(c),
	}
	o.roll = roll{dir: o.out.Pages, pages: map[int]*page.Page{}, locals: map[int]seat{}}
	machine, _ := topology.Probe(c.Root) // without, there are no accelerators
	o.pictures.machine = machine
	gpus := len(machine.Slots())
	o.limits = heartbeat.Limits{Floor: c.HangFloor, Ceiling: c.HangTimeout, Start: c.HangStart, Busy: c.HangBusyAfter, GPUs: gpus > 0, Places: true, Others: c.ownTimeouts(), Foreign: true}
	if gpus > 0 {
		given, _ := c.getenv(witness.RASName)
		o.ras = cmp.Or(given, "localhost:28028")
	}
	return o
}

// run is the observer's loop. It ends with the command, or with the first process, and calls ended before anything is closed.
func (o *observer) run(news <-chan pid1.Told, ended func()) {
	server, err := control.Listen(o.out.Dir, o.handle, o.c.Log)
	if err != nil {
		o.c.Log.Warn(fmt.Sprintf("no control socket, so muster status will not find this observer: %v", err))
	} else {
		defer server.Close()
	}
	ctx, stop := context.WithCancel(context.Background())
	defer o.close()
	defer o.finding.Wait()
	defer o.endVigils()
	defer stop()
	o.turns.within(loopTime)
	o.publish()
	defer o.openPage().Close() // first: who reads hears of the end, however long the others take
	o.search(ctx)
	looks, lags := time.NewTicker(lookEach), time.NewTicker(lagEach)
	defer looks.Stop()
	defer lags.Stop()
	for o.publish(); ; o.publish() {
		o.turns.within(loopTime)
		select {
		case t, ok := <-news:
			if ok {
				o.command = t
			}
			if !ok || t.End != nil {
				if t.Code != job.ExitOK {
					o.settle()
				}
				ended()
				v := o.verdict()
				o.ended = &v
				o.outcome.is(v)
				o.publish()
				return
			}
		case now := <-looks.C:
			o.turn(now)
			o.watchOver(ctx, o.seats)
		case e := <-o.falls.ends:
			o.fell(e)
		case <-lags.C:
			o.stragglers()
		case with := <-o.met:
			o.join(with)
		case e, ok := <-o.with.events():
			if !ok || !o.heard(e) {
				o.search(ctx)
			}
		case n := <-o.with.newcomers():
			if n > 0 {
				o.search(ctx)
			}
		}
	}
}

func (o *observer) close() {
	o.here.close()
	o.with.close()
	o.roll.close()
}

// search leaves the others, if there are any, and looks for them anew. The loop waits for neither.
func (o *observer) search(ctx context.Context) {
	before := o.with
	o.join(nil)
	if o.plan.Endpoint == "" {
		return
	}
	o.finding.Go(func() {
		before.close()
		with := findCompany(ctx, o.c, o.plan, func(text string) { o.c.Log.Info(text) })
		select {
		case o.met <- with:
		case <-ctx.Done():
			with.close()
		}
	})
}

// join is to look on with others, or, if with is nil, alone.
func (o *observer) join(with *company) {
	o.with, o.judge, o.all = with, nil, turnover{}
	if with.leads() {
		o.judge = heartbeat.New(o.limits)
	}
	if with != nil {
		o.nodes, o.node = with.names(), with.rank
	}
	o.lapse()
	o.sit()
	o.tellFailures()
}

// turn is what is done each second.
func (o *observer) turn(now time.Time) {
	if seats := o.roll.call(); !slices.Equal(seats, o.seats) {
		o.seats = seats
		o.seated()
		o.sit()
	}
	o.fallenUnseen()
	look := heartbeat.Look{At: now.Sub(o.began)}
	look.Beats, look.Ended = o.ranks(now)
	o.mention(now)
	o.look = look
	if !o.with.leads() {
		o.with.line.pulse.show(o.with.world.Generation, 0, look.Beats, look.Ended)
		return
	}
	o.with.told(&look, now)
	o.look = look
	if len(look.Beats) == 0 { // no worker runs, or none has come so far
		return
	}
	o.rounds(look.Beats)
	o.strangers(&look)
	for _, f := range o.judge.Observe(look) {
		o.found(f)
	}
	for _, c := range o.judge.Clashes() {
		if !slices.Contains(o.clashes, c.Kind) {
			o.clashes = append(o.clashes, c.Kind)
			o.c.Log.Warn(c.Text)
		}
	}
}

// seated takes in who is here.
func (o *observer) seated() {
	for _, s := range o.seats {
		if o.own.note(s.rank, s.pid) {
			o.absolve(count(proc.Root("/proc").Getenv(s.pid, restartCount)))
			if o.size = 0; !o.with.leads() { // who leads counts the rounds of all
				o.round++
			}
		}
		o.size = max(o.size, s.world)
	}
	o.first = o.lowest()
}

// lowest is the rank of this node's local rank 0, as far as the processes of any say, else the lowest that was seen in this round. That one
// may have ended, or not have come yet; and some of the round before may still live.
func (o *observer) lowest() int {
	first := math.MaxInt
	for rank := range o.own.now {
		first = min(first, rank)
	}
	for _, s := range o.seats {
		first = min(first, s.rank)
		if s.local >= 0 && s.local < maxSlots {
			first = min(first, s.rank-s.local)
		}
	}
	return first
}

// sit has the processes watched that are this node's ranks now.
func (o *observer) sit() {
	o.here.close()
	o.here = nil
	if len(o.seats) == 0 {
		return
	}
	slots := min(o.seats[len(o.seats)-1].rank-o.first+1, maxSlots)
	pids, pages := make([]int, slots), make(pages, slots)
	for _, s := range o.seats {
		if local := s.rank - o.first; local < slots {
			pids[local], pages[local] = s.pid, s.page
		}
	}
	w := &watch{
		asking: make(chan struct{}, 1), clashed: map[string]bool{},
		c: o.c, workers: func() []int { return slices.Clone(pids) }, world: job.World{ID: o.plan.Spec.ID, Members: []job.Member{{Node: o.plan.Spec.Self}}},
		foreign: true, pages: pages, judge: o.judge, does: &together{}, tail: func(int) []string { return nil }, ras: o.ras, began: time.Now(),
		departs: departing{}, hidden: o.falls.scene.hidden, dirs: o.c.evidenceDir(o.out.Dir), spare: filepath.Join(o.out.Dir, "evidence"),
		over: make([]exited, slots), stacks: make([][]string, slots), counts: make([]uint64, slots),
	}
	if o.with != nil {
		w.world.Members, w.group, w.fleet = slices.Clone(o.with.world.Members), o.with.rank, o.with.line.fleet
	}
	w.world.Members[w.group].First, w.world.Members[w.group].Slots = o.first, slots
	w.senses = senses{w.told, witness.New("/").Look, monotonic}
	w.moved = w.began
	w.does.begin(slots)
	w.ctx, w.stop = context.WithCancel(context.Background())
	o.here = w
}

// ranks is what is seen of this node's, and which of them have ended in this round.
func (o *observer) ranks(now time.Time) (beats []job.Beat, ended []int) {
	if o.here != nil {
		beats, ended = o.here.own(now)
		o.here.remember(beats)
	}
	for rank := range o.own.now {
		if !slices.ContainsFunc(o.seats, func(s seat) bool { return s.rank == rank }) {
			ended = append(ended, rank)
		}
	}
	return beats, ended
}

// rounds begins to judge anew when workers were started again.
func (o *observer) rounds(beats []job.Beat) {
	anew := false
	for _, b := range beats {
		anew = o.all.note(b.Rank, b.PID) || anew
	}
	if anew {
		o.judge = heartbeat.New(o.limits)
		o.with.forget()
		o.lapse()
		o.round++
	}
}

// lapse ends what was said of a standstill, whose end will not be seen.
func (o *observer) lapse() { o.said.Stall, o.open, o.lags = nil, false, nil }

// maxStrangers bounds the ranks that are not heard of: what a process calls the size of its world may be nonsense.
const maxStrangers = 1 << 16

// strangers adds the ranks of which nobody tells: they may be those that are waited for.
func (o *observer) strangers(look *heartbeat.Look) {
	known := map[int]bool{}
	for _, b := range look.Beats {
		known[b.Rank] = true
	}
	for _, rank := range slices.Concat(look.Ended, look.Unheard) {
		known[rank] = true
	}
	for rank := range min(o.size, maxStrangers) {
		if !known[rank] {
			look.Beats = append(look.Beats, job.Beat{Rank: rank, Mute: "nobody observes it, or not yet"})
		}
	}
}

// world is who runs which ranks, for people.
func (o *observer) world() job.World {
	w := job.World{ID: o.plan.Spec.ID}
	add := func(name string, ranks []int) {
		if len(ranks) > 0 {
			first := slices.Min(ranks)
			w.Members = append(w.Members, job.Member{Node: job.Node{Name: name, Slots: slices.Max(ranks) - first + 1}, First: first})
		}
	}
	if len(o.own.now) > 0 {
		add(o.c.Host.Hostname, slices.AppendSeq([]int{o.first}, maps.Keys(o.own.now)))
	}
	if o.with != nil {
		for node, ranks := range o.with.ranks {
			add(o.with.world.Members[node].Name, ranks)
		}
	}
	slices.SortFunc(w.Members, func(a, b job.Member) int { return cmp.Compare(a.First, b.First) })
	return w
}

// found tells all what the judge has to say.
func (o *observer) found(f heartbeat.Finding) {
	e := stalled{Finding: bounded(f), Text: f.Sentence(o.world()), Group: -1, Nodes: o.with.nodesOf(f.Culprits)}
	if o.with != nil {
		o.with.line.tell(everyone, news{Kind: newsStalled, Stalled: &e})
	}
	o.noted(e)
}

// noted keeps what was found, here or by another node.
func (o *observer) noted(e stalled) {
	o.keep(e)
	o.said.Now = time.Since(o.began)
	for _, todo := range o.said.noted(policy{OnHang: o.c.OnHang}, e) {
		switch d := todo.(type) {
		case say:
			o.c.Log.Warn(d.Text)
		case collect:
			o.here.collect(d)
		}
	}
}

// maxStalls bounds the standstills that a verdict tells of.
const maxStalls = 64

// keep is for the verdict.
func (o *observer) keep(e stalled) {
	if e.Finding.Stage == heartbeat.Resumed && o.open {
		last := &o.stalls[len(o.stalls)-1]
		last.Over, last.False, o.open = e.Finding.Quiet, e.Finding.False, false
	}
	if e.Finding.Stage < heartbeat.Suspect {
		return
	}
	if !o.open && len(o.stalls) < maxStalls {
		o.stalls, o.open = append(o.stalls, report.Stall{At: time.Now().Add(-e.Finding.Quiet), Round: o.round}), true
	}
	if o.open {
		last := &o.stalls[len(o.stalls)-1]
		last.Stage, last.Message, last.Hang = e.Finding.Stage.String(), e.line(), e.Finding.Hang
	}
}

// heard takes in what the others say; false: none of them is left.
func (o *observer) heard(e fleet.Event) bool {
	switch e.Change {
	case fleet.Left, fleet.Lost:
		o.with.left[e.Peer] = e.Change == fleet.Left
		if e.Change == fleet.Lost {
			o.c.Log.Info(fmt.Sprintf("node %d (%s) is not observed any more: %v", e.Peer, o.with.world.Members[e.Peer].Name, e.Why))
		}
		return !o.with.over()
	case fleet.Heard:
		if o.pictures.hears(e, o.with.line) {
			return true
		}
		var n news
		if json.Unmarshal(e.Message.Body, &n) != nil {
			return true // a newer version's
		}
		if n.Kind == newsFailed && n.Failure != nil {
			o.heardOf(e.Peer, *n.Failure)
		}
		if n.Kind == newsStalled && n.Stalled != nil && !o.with.leads() {
			o.noted(*n.Stalled)
		}
		if n.Kind == newsEvidence && o.with.leads() {
			o.here.keepEssence(e.Peer, n)
		}
	}
	return true
}

// stragglers says for whom the others wait, when that changes.
func (o *observer) stragglers() {
	if o.judge == nil {
		return
	}
	found := o.judge.Stragglers()
	o.slow = found[:min(len(found), maxStragglers)]
	if text := o.lags.line(o.slow[:min(len(o.slow), 1)]); text != "" { // whose node it is, is not known
		o.c.Log.Info(text)
	}
}

// mention says once that nobody tells how far he is.
func (o *observer) mention(now time.Time) {
	if len(o.seats) > 0 || now.Sub(o.began) >= speakBy && !o.mute {
		if len(o.seats) == 0 {
			o.c.Log.Info(fmt.Sprintf("no worker of %s has told how far it is, and without that a hang is not noticed: none has imported PyTorch, or the hook does not reach it", o.name()))
		}
		o.mute = true
	}
}

// name is the command's, for people: of a Python module its own.
func (o *observer) name() string {
	argv := o.c.Argv
	if i := slices.Index(argv, "-m"); i > 0 && i+1 < len(argv) && strings.HasPrefix(filepath.Base(argv[0]), "python") {
		return argv[i+1]
	}
	return filepath.Base(argv[0])
}
