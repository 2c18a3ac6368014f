package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/muster-run/muster/evidence"
	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/worker"
)

// fleetTime is how long a node of a world may take to reach the leader.
const fleetTime = 30 * time.Second

// A round is one life of this node's workers, and, when it may be followed by others, the next, in this world or in another.
// Its loop owns all of this; nobody else touches it.
type round struct {
	c       Config
	h       *heritage
	plan    Plan
	meeting *meeting
	session *rendezvous.Session // nil: the nodes are meeting
	line    *line
	peers   <-chan fleet.Event
	queue   <-chan int // nodes that wait for the next world
	desk    *desk
	asking  chan<- answer // who gave the order that is being judged; nil: nobody,
	waiting chan<- answer // or the one that was passed on last
	state   state
	phase   string        // of state
	since   time.Duration // that began, since the loop did
	policy  policy        // of this node's own flags
	timers  timers
	journal journal
	first   int    // event of it that is kept
	nodes   string // under which this world's nodes are kept; "": they are not,
	passed  string // and those of the world before
	unsaved bool   // state is newer than what another agent would find,
	haste   haste  // of what came in since
	keeps   <-chan time.Time
	began   time.Time
	told    time.Time // to stop, by a signal; zero: it was not

	store     *workerStore
	pmi       *pmiServer // of this node's workers; nil: they need none
	arrivals  *arrivals  // of all workers, at Horovod's rendezvous; nil: there is none, or it is on another node
	group     *worker.Group
	ears      []*page.Listener // of its workers, by local rank; nil: it has none
	pages     pages            // of them,
	hook      string           // and what fills them; "": nothing
	watch     *watch
	compared  int            // generation of the world whose nodes were held against each other
	odd       named          // by that
	clocks    clocks         // of this world's nodes
	seen      []netip.Prefix // addresses from which they reached this one, which leads
	skewed    named          // by theirs, of the last world
	health    *health        // of this machine; nil: it was not looked at
	exits     <-chan worker.Exit
	settle    <-chan time.Time
	expire    <-chan time.Time
	wake      <-chan time.Time
	leases    <-chan time.Time   // when to say again that this agent goes on
	late      <-chan time.Time   // the job's deadline
	slow      <-chan time.Time   // that of the workers' start
	kill      context.CancelFunc // ends the time that workers have to stop; nil: they were not told to
	programs  map[int]programEnd // how those of workers had ended when they were told to, by local rank
	stopped   sync.WaitGroup     // of the goroutine that stops them
	written   chan struct{}      // closed when what was found about machines is kept; nil: nothing was
	scene     scene
	place     *framework.Place // what the workers were told last
	overruled string           // flags that do not count, as it was said
	tuned     string           // what is chosen for NCCL, as it was said
	dead      string           // the ports that were lost since the nodes met, as it was said
	run       string           // this run's private directory
	dir       string           // of the current round, for what its scripts fail of
}

// runRound starts this node's workers, or takes over those of an agent that died, watches over them and the world, and those that
// may follow, and returns how the job ended. asked is an event that came before there was a round to judge it.
func runRound(c Config, h *heritage, m *meeting, l *line, d *desk, asked any) *state {
	r := &round{c: c, h: h, plan: h.Plan, meeting: m, desk: d, run: h.Dir, began: timeOf(h.Loop), policy: h.Policy}
	defer r.close()
	deadline, start := c.limits()
	r.late, r.slow = deadline.raise(d.began), start.raise(d.began)
	r.journal.head = journalHead{Form: journalForm, Version: c.Version, Job: h.Plan.Spec.ID, Host: c.Host.Hostname, Policy: r.policy}
	r.join(m.session, l)
	if err := r.enter(asked); err != nil {
		v := VerdictOf(err)
		return &state{Verdict: &v}
	}
	r.loop()
	return &r.state
}

// join makes r a part of a world.
func (r *round) join(s *rendezvous.Session, l *line) {
	r.session, r.line, r.peers, r.queue, r.clocks, r.seen = s, l, l.events(), nil, clocks{}, nil
	if s != nil {
		r.queue = s.Newcomers()
	}
}

// enter leaves what was settled for another agent, or takes up what one left.
func (r *round) enter(asked any) error {
	if r.c.goesOn() {
		return r.resume(r.c.First.Legacy())
	}
	r.endStrays(r.c.First.Legacy())
	r.begins(asked)
	return nil
}

// begins tells the judgement of a new world, and what was asked for while the nodes met.
func (r *round) begins(asked any) {
	w := r.session.World
	e := met{Generation: w.Generation, Self: r.session.Rank, Past: w.Past, Policy: r.inherited(w.Rules), Timeout: w.Rules.NodeTimeout(), World: w.Size(), Of: w.Mark(), Waited: r.desk.waited(r.began), Hold: asked != nil}
	if r.policy.Suspects {
		e.Machine = &r.plan.Spec.Machine
	}
	for _, m := range w.Members {
		e.Nodes, e.IDs = append(e.Nodes, m.Name), append(e.IDs, m.Node.String())
	}
	if r.c.sim.share != nil {
		e.fresh = r.c.sim.share(&r.session.World)
	}
	r.post(e)
	if asked != nil {
		r.post(asked)
	}
}

// open is the leader's: it opens the place where the workers will meet, and with that the round.
func (r *round) open() {
	r.store.close(r.c)
	r.store = nil
	if err := cmp.Or(r.rails(), r.alike(), r.writeAllowed()); err != nil {
		r.post(broken{r.broken(err)})
		return
	}
	store, err := openWorkerStore(context.Background(), r.c, r.line.host, r.c10dStore(), r.exchange())
	if err != nil {
		r.post(broken{r.broken(err)})
		return
	}
	r.store = store
	if err := r.awaited(store.start).open(); err != nil {
		r.post(broken{r.broken(err)})
		return
	}
	r.post(opened{store.start})
}

// loop is the one select of the program: whatever happens becomes an event for decide.
func (r *round) loop() {
	first := r.c.First.Lost()
	defer r.save()
	turns := time.NewTicker(time.Second)
	defer turns.Stop()
	for !r.state.Ended {
		r.desk.moves(loopTime)
		r.saveInTime()
		select {
		case <-turns.C:
		case <-first:
			first = nil
			r.post(broken{r.firstLost()})
		case got := <-r.c.First.Signals():
			sig := got.(syscall.Signal) // as all of os/signal's are
			r.signal(sig)
		case e, ok := <-r.exits:
			if !ok {
				r.exits = nil
				r.warnAlone(true)
				r.post(emptied{r.line.worked(), r.watch.peak()})
				continue
			}
			if e.Process.Lapsed {
				r.post(lapsed{})
			}
			if e.Process.Lost != "" { // nobody is left who could know how it ended
				r.post(broken{r.firstLost()})
			}
			if e.Err != nil {
				r.unmended(e)
				continue
			}
			e.Exit = r.pmi.judge(e)
			e.Exit = r.untrained(e)
			r.arrivals.ended(e.Exit.OK())
			r.warnAlone(false)
			r.watch.ended(e.Task.LocalRank, e.PID, e.Exit.OK())
			r.post(finished{r.ended(e), r.failure(e)})
		case e, ok := <-r.peers:
			if !ok {
				r.peers = nil
				continue
			}
			if e.Change == fleet.Joined && !r.state.leads() {
				r.c.letGo()
			} else if e.Change == fleet.Joined {
				r.clock(e)
				r.sees(e)
			}
			if n, ok := about(e, newsEvidence); ok {
				r.watch.keepEssence(e.Peer, n)
				continue
			}
			if r.desk.hears(e, r.line) {
				continue
			}
			if event := r.line.translate(e); event != nil {
				r.judge(event, r.state.hasteOf(event))
			}
		case e := <-r.watch.events():
			r.post(e)
		case e := <-r.store.ended():
			r.store.child = nil
			r.helperEnded("the workers' store on node 0", e)
		case e, ok := <-r.pmi.told():
			r.hear(e, ok)
		case e := <-r.pmi.ended():
			r.pmi.child = nil
			r.helperEnded("the process that serves PMI on "+r.c.Host.Hostname, e)
		case o := <-r.desk.orders:
			r.asking = o.answer
			r.post(ordered{o.what})
			if r.asking != nil {
				r.asking, r.waiting = nil, r.asking
			}
		case <-r.late:
			deadline, _ := r.c.limits()
			r.post(broken{deadline.verdict(r.c.Host.Hostname)})
		case <-r.slow:
			_, start := r.c.limits()
			r.post(broken{start.verdict(r.c.Host.Hostname)})
		case <-r.settle:
			r.post(settled{})
		case <-r.expire:
			r.post(expired{})
		case <-r.leases:
			r.renew()
			r.heardByStore()
		case <-r.wake:
			r.post(woken{})
		case n := <-r.queue:
			r.post(queued{n})
		case <-r.keeps:
			r.save()
		}
	}
}

// helperEnded is the end of a child of muster's own without which workers cannot go on.
func (r *round) helperEnded(what string, e proc.Exit) {
	if e.Lost != "" {
		r.post(broken{r.firstLost()})
		return
	}
	r.post(broken{job.Verdict{Code: job.ExitInternal, Origin: "agent", Class: job.Failed, Sentence: what + " ended: it " + e.String()}})
}

// signal handles what came to this agent. What does not ask it for anything is for the workers, if they know it; so is HUP,
// by which a server reads its files again, and which else is a terminal's end.
func (r *round) signal(sig syscall.Signal) {
	switch {
	case sig == syscall.SIGQUIT:
		dumpIfAsked(r.c, sig)
	case sig == syscall.SIGHUP && r.pass(sig) > 0:
	case stops(sig):
		if r.told.IsZero() {
			r.told = time.Now()
		}
		r.post(signalled{sig})
	default:
		r.pass(sig)
	}
}

// pass hands a signal to the workers that have a handler for it, and returns how many there were.
func (r *round) pass(sig syscall.Signal) int {
	if r.group == nil {
		return 0
	}
	n := r.group.Signal(sig)
	r.c.tellPassed(sig, n)
	return n
}

// firstLost is the verdict of an agent whose first process was killed: it can start and reap nothing any more.
func firstLost(where string) job.Verdict {
	return job.Verdict{Code: job.ExitRetry, Origin: "agent", Class: job.Lost,
		Sentence: fmt.Sprintf("the first process on %s was killed, and its workers with it", where)}
}

func (r *round) firstLost() job.Verdict {
	return firstLost(nodeName(r.state.Nodes, r.state.Self))
}

// post lets decide judge an event and does what it says.
func (r *round) post(event any) { r.judge(event, atOnce) }

// judge does what follows from an event. What it does may be events, too.
func (r *round) judge(event any, h haste) {
	now := time.Since(r.began)
	r.journal.add(now, event)
	r.keepEvent()
	var todo []any
	was := r.state
	r.state, todo = decide(r.policy, was, now, event)
	if phase, _ := r.state.phase(); phase != r.phase {
		r.phase, r.since = phase, now
	}
	for _, deed := range todo {
		r.timers.note(now, deed)
	}
	lines := r.tellLines(was, event, todo)
	before := r.journal.tells(len(lines))
	if !r.unsaved || h < r.haste {
		r.haste = h
	}
	if r.unsaved = true; len(todo)+len(lines) > 0 {
		r.save()
	}
	r.c.events.AddJudged(time.Now(), before, lines...)
	for _, deed := range todo {
		r.do(deed)
	}
	r.show()
}

// show leaves a copy of how this node stands at the desk. The judgement writes to no slice of an earlier state, and an entry
// of the journal never changes.
func (r *round) show() {
	state := r.state
	s := standing{state: &state, since: r.began.Add(r.since), place: r.place, saw: r.journal, loop: r.began}
	s.phase, s.waits = state.phase()
	s.watch, s.of = r.watch, r.worldOf(&state)
	if r.group != nil {
		s.pids = r.group.PIDs()
	}
	r.desk.show(s)
}

// worldOf is the world that a state is about; nil: it is not known any more.
func (r *round) worldOf(s *state) *job.World {
	switch {
	case r.session != nil && r.session.World.Generation == s.Generation:
		return &r.session.World
	case r.place != nil && r.place.World.Generation == s.Generation:
		return &r.place.World
	}
	return nil
}

func (r *round) do(deed any) {
	switch d := deed.(type) {
	case begin:
		r.begin(d.Start)
	case stop:
		if r.state.Next != nil && !r.state.Led && r.session != nil {
			r.session.Vouch() // we have lost the leader
		}
		if d.Said != "" {
			r.c.aloud().Warn(d.Said)
		}
		r.stop(d)
	case mend:
		r.mend(d)
	case accuse:
		r.accuse(d)
	case kill:
		r.stop(stop{})
	case tell:
		r.line.tell(d.To, d.News)
	case settle:
		r.settle = time.After(d.Within)
	case expire:
		r.expire = nil
		if d.Within > 0 {
			r.expire = time.After(d.Within)
		}
	case wake:
		r.wake = time.After(d.Within)
	case open:
		r.open()
	case meet:
		r.meet(d)
	case collect:
		r.watch.collect(d)
	case say:
		r.c.aloud().Warn(d.Text)
	case reply:
		r.reply(d)
	default:
		panic(fmt.Sprintf("round: unknown deed %T", deed))
	}
}

// reply answers who gave an order, if anybody waits for that.
func (r *round) reply(d reply) {
	who := &r.asking
	if *who == nil {
		who = &r.waiting
	}
	switch {
	case *who == nil:
	case d.Refused:
		*who <- answer{err: errors.New(d.Text)}
	default:
		*who <- answer{text: d.Text}
	}
	*who = nil
}

// begin starts this node's workers. Those of the round before are gone.
func (r *round) begin(at start) {
	if err := r.turn(at.Round); err != nil {
		r.unbegun(err)
		return
	}
	if err := r.contract(); err != nil {
		r.unbegun(err)
		return
	}
	r.arrivals = r.awaited(at)
	if err := r.openPMI(at); err != nil {
		r.unbegun(err)
		return
	}
	r.scene = openScene(r.c)
	r.tune(at.Round > 0)
	r.place = r.placeOf(at)
	r.heed()
	r.renew()
	tasks := r.plan.Tasks(*r.place, r.c)
	r.debug(tasks)
	r.openPages(tasks, at.Round)
	for i := range tasks {
		tasks[i] = r.h.withRAS(tasks[i])
	}
	r.show() // a worker may ask for its surroundings before we hear that it was started
	group, err := worker.Start(context.Background(), tasks, r.surroundings(r.heirs(tasks, r.c.First.Legacy())))
	if err != nil {
		r.unbegun(err)
		return
	}
	r.group, r.exits, r.slow = group, group.Exits(), nil
	r.c.lastWords(fmt.Sprintf("running: world size %d, %d nodes, this is node %d", r.session.World.Size(), len(r.session.World.Members), r.session.Rank))
	r.post(begun{len(tasks)})
	r.watch = r.newWatch()
	r.record()
}

// surroundings are those of this round's workers.
func (r *round) surroundings(heirs []worker.Heir) worker.Options {
	return worker.Options{
		Processes: r.c.First, Console: r.c.Console.Number, Environ: r.c.Environ, Job: r.plan.Spec.ID, Round: r.state.Round,
		Output: r.c.Output, Devices: r.plan.Devices, Mends: r.rules().mends(), Heirs: heirs, Files: r.pmi.files,
	}
}

// leasePulse is between two words of this agent to the first process, that it goes on.
const leasePulse = time.Second

// renew lets this node's workers live for another while, where others may go on without this node: an agent that stands still
// cannot stop them. Its word counts as long as for its peers.
func (r *round) renew() {
	if !r.rules().Regroups || len(r.session.World.Members) == 1 {
		return
	}
	if err := r.c.First.Lease(r.rules().nodeTimeout()); err != nil {
		r.c.Log.Debug(err.Error())
	}
	if heard := r.line.heard(); !heard.IsZero() { // an agent that takes over is to give others up when this one would
		r.c.keep(keptHeard, clock()-int64(time.Since(heard)))
	}
	r.leases = time.After(leasePulse)
}

// heardByStore tells the judgement whether the store hears of this world. An agent that takes over goes on with what the one before it knew, until it knows better.
func (r *round) heardByStore() {
	if r.session.Rank != 0 {
		return
	}
	quiet, heard := r.session.Unheard()
	if is := quiet >= r.rules().nodeTimeout(); is != r.state.Away && (is || heard) {
		r.post(away{is})
	}
}

// placeOf is this node's place in a round.
func (r *round) placeOf(at start) *framework.Place {
	p := &framework.Place{
		World: r.session.World, Job: r.plan.Called, Group: r.session.Rank, GPUs: r.plan.GPUs, Servers: r.plan.Spec.Servers,
		MasterAddr: r.line.host, MasterPort: at.Port, AgentStore: at.AgentStore, ErrorDir: r.dir,
		Restarts: at.Round, MaxRestarts: at.MaxRestarts, Rendezvous: at.Exchange, Networks: r.h.Tuned,
	}
	r.plan.Process.told(p)
	if p.Hosts = r.hosts(); r.plan.Framework.IPv4 {
		p.MasterAddr = p.Hosts[0]
	}
	if r.plan.Framework.Rendezvous {
		p.Interface = interfaceOf(p.Hosts[p.Group])
	}
	return p
}

// hosts are where all nodes are, for workers that call each other; nil: they do not.
func (r *round) hosts() []string {
	if !r.plan.Framework.Calls {
		return nil
	}
	return hosts(r.session.World, r.line.host, r.plan.Framework.IPv4, r.plan.Process != nil)
}

// unbegun tells why this node's workers were not started.
func (r *round) unbegun(err error) {
	switch {
	case errors.Is(err, pid1.ErrLost): // no worker is to blame
		r.post(broken{r.firstLost()})
		return
	case errors.Is(err, pid1.ErrLapsed):
		r.post(begun{})
		r.post(emptied{})
		r.post(lapsed{})
		return
	}
	r.post(unbegun{r.notStarted(err)})
}

// broken is the verdict when an error of this agent ends the job.
func (r *round) broken(err error) job.Verdict {
	if errors.Is(err, pid1.ErrLost) {
		return r.firstLost()
	}
	return VerdictOf(err)
}

// turn clears away the last round's things, and makes the directories of this one.
func (r *round) turn(number int) error {
	r.clear()
	dir := r.roundDir(number)
	if r.dir != "" && r.dir != dir && r.c.Output.Dir == "" {
		os.RemoveAll(r.dir) // what its scripts failed of was read
	}
	r.dir = dir
	return r.errorDirs()
}

// clear forgets the last round's workers, which are gone.
func (r *round) clear() {
	if r.kill != nil {
		r.kill()
	}
	r.stopped.Wait()
	r.unwatch()
	if r.group != nil {
		r.group.Forget()
	}
	r.kill, r.programs, r.group, r.exits = nil, nil, nil, nil
	if r.leases != nil {
		r.leases = nil
		_ = r.c.First.Lease(0) // an error says that there is nobody to keep it
	}
}

// unwatch ends the looks at the last round's workers.
func (r *round) unwatch() {
	r.watch.close()
	r.closePages()
	r.watch = nil
}

// roundDir is where workers of a round leave what they failed of: beside their log files, as torchrun has it, or where it is
// read and forgotten.
func (r *round) roundDir(number int) string {
	if r.c.Output.Dir != "" {
		return r.c.Output.Attempt(number)
	}
	return filepath.Join(r.run, fmt.Sprintf("round-%d", number))
}

// errorDirs makes a directory for each worker; it is there if an agent died as it began. A disk for logs may fail, and
// workers run all the same.
func (r *round) errorDirs() error {
	for local := range r.session.World.Members[r.session.Rank].Slots {
		if err := r.errorDir(r.dir, local); err != nil {
			return err
		}
	}
	return nil
}

func (r *round) errorDir(dir string, local int) error {
	err, ok := reachFor(nil, func() error { return os.MkdirAll(filepath.Join(dir, strconv.Itoa(local)), 0o755) })
	if !ok {
		err = fmt.Errorf("%s: the file system does not answer", dir)
	}
	if err != nil && r.c.Output.Dir != "" {
		r.c.Log.Warn(fmt.Sprintf("no place for error.json: %v", err))
		return nil
	}
	return err
}

// stop tells the workers to end, and kills what is left after a while. Another call can only make that shorter.
func (r *round) stop(how stop) {
	switch {
	case r.group == nil:
		return
	case r.kill != nil && how.Within == 0:
		r.kill()
		return
	case r.kill != nil:
		time.AfterFunc(how.Within, r.kill)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), how.Within)
	r.kill, r.programs = cancel, map[int]programEnd{}
	for local := range r.group.PIDs() {
		r.programs[local] = r.watch.program(local)
	}
	r.stopped.Go(func() {
		if err := r.group.Stop(ctx, r.c.stopping(how)); err != nil {
			r.c.Log.Error(err.Error())
		}
	})
}

func (r *round) ended(e worker.Exit) job.Ended {
	program := r.programs[e.Task.LocalRank]
	return job.Ended{
		Rank: e.Task.Rank, LocalRank: e.Task.LocalRank, Group: r.session.Rank, PID: e.PID, Exit: e.Exit,
		Over: e.Exit.Sent && program.over && program.raised == "", Raised: e.Exit.Sent && program.raised != "",
	}
}

// failure says what went wrong with a worker; nil: nothing did.
func (r *round) failure(e worker.Exit) *job.Failure {
	if e.Exit.OK() {
		return nil
	}
	f := r.blame(e.Task.Rank, e.Task.LocalRank)
	hidden := r.scene.hidden()
	f.PID, f.Exit, f.At, f.Ago, f.Tail = e.PID, e.Exit, e.At, time.Since(e.At), lastLines(hidden, e.Tail)
	end := r.watch.program(e.Task.LocalRank)
	exception, told := r.exception(e, end.raised, f.Restarts)
	struck := !told && e.Exit.Signal != 0 && e.Exit.Signal != int(syscall.SIGABRT) // no exception ends a process so: it went on from what its last lines have
	if struck {
		exception = ""
	}
	f.InThread = !told && exception != "" && evidence.OfThread(e.Tail)
	f.Caught = !told && exception != "" && end.caught && !f.InThread
	f.Exception = hidden.Line(exception, exceptionText)
	if end.ago > f.Ago { // when it failed counts, and not how long Python took to end
		f.At, f.Ago = f.At.Add(f.Ago-end.ago), end.ago
	}
	doomed := e.Exit.Sent && e.Exit.Signal != 0 && r.programs[e.Task.LocalRank].raised != ""
	if doomed {
		f.Exit = job.Exit{Code: 1} // as it was about to
	}
	f.Step = r.watch.step(e.Task.LocalRank)
	r.scene.explain(f, end.raised, e.Tail)
	f.Echo = f.Echo && !struck
	r.pmi.explain(f, e)
	if doomed && f.Echo {
		f.Exit = e.Exit
	}
	return f
}

// notStarted is the failure of a worker that never ran.
func (r *round) notStarted(err error) job.Failure {
	f := r.blame(r.session.World.Members[r.session.Rank].First, 0)
	if worker := new(worker.StartError); errors.As(err, &worker) {
		f = r.blame(worker.Task.Rank, worker.Task.LocalRank)
	}
	f.Exit = job.Exit{Code: job.ExitSystem, Err: err.Error()}
	if why := new(Error); errors.As(err, &why) {
		f.Exit, f.Hint = job.Exit{Code: why.Code, Err: why.Err.Error()}, why.Hint
	}
	var start *proc.StartError
	if errors.As(err, &start) {
		f.Exit.Err = start.Text
		if start.Code == job.ExitNotFound || start.Code == job.ExitNotExec { // else the system refused
			f.Exit.Code = start.Code
		}
	}
	return *f
}

func (r *round) blame(rank, local int) *job.Failure {
	return &job.Failure{Node: r.session.World.Members[r.session.Rank].Name, Group: r.session.Rank, Rank: rank, LocalRank: local, Restarts: r.state.lifeOf(rank)}
}

// verdict is what a round came to that has ended. A member whose work was done when its node was cleared away has none: that is
// success.
func (s *state) verdict() job.Verdict {
	if s.Verdict == nil {
		return job.Verdict{Class: job.Succeeded, Sentence: "all workers of this node ended well"}
	}
	return *s.Verdict
}

// close ends what the round started, the workers first.
func (r *round) close() {
	const slow = time.Hour // for workers may have long to stop, and other nodes to hear of the end
	r.desk.moves(slow)
	r.stop(stop{})
	r.stopped.Wait()
	r.unwatch()
	r.health.close()
	r.store.close(r.c)
	r.pmi.close(r.c)
	r.line.close()
	r.endAccusing()
	r.desk.moves(loopTime) // a file system may hang
	if r.place != nil {
		r.record()
	}
	if r.c.JournalFile != "" {
		if err := r.journal.write(r.c.JournalFile); err != nil {
			r.c.Log.Error(err.Error())
		}
	}
	r.desk.moves(slow)
	if r.session != nil && r.state.leads() {
		_, _ = r.c.unlessAsked(context.Background(), r.desk.orders, "", r.tellEnd)
	}
}
