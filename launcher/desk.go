package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/report/web"
)

// A desk answers what comes by the control socket: from the copy that the run loop last left there, or, where something
// is to change, by asking the run loop. A nil desk takes copies and answers nobody.
type desk struct {
	c      Config
	plan   Plan
	began  time.Time
	orders chan order
	server *control.Server
	page   *web.Server

	pictures pictures
	outcome  *outcome

	turn     turn // of the main loop
	listened bool // others could reach this node before this agent was there

	mu      sync.Mutex
	last    standing
	changed chan struct{} // closed at the next change of it; nil: nobody waits for that
	http    string        // where the page is served; "": at its socket alone
	doubts  string        // what the meeting that this node led said of machines
}

// standing is how this node stands. Nobody changes what it points to.
type standing struct {
	phase string
	since time.Time // the phase began; zero: now, if it is another one than before
	waits string
	place *framework.Place // of the round that runs, or ran last; nil: there was none
	of    *job.World       // that state is about; nil: this node does not know
	state *state           // nil: there is no world yet
	world int              // its size, where there is no place any more
	pids  []int            // of the round's workers, by local rank
	saw   journal          // what the judgement saw so far
	loop  time.Time        // the run loop began
	watch *watch           // of the round's workers
	spent *job.Account     // of a job that is over; nil: it goes on
	past  *state           // the last one, while there is none: what came before is not forgotten when nodes meet again
}

// An order is what somebody wants of the run loop.
type order struct {
	what   string
	answer chan<- answer // has room for one
}

type answer struct {
	text string
	err  error
}

// waited is how long this agent had been there when its run loop began; what nobody knows is no time.
func (d *desk) waited(loop time.Time) time.Duration {
	if d == nil {
		return 0
	}
	return max(loop.Sub(d.began), 0)
}

// orderTime is how long the run loop may take to hear an order: it may be starting or clearing away workers.
const orderTime = 10 * time.Second

// openDesk listens in the run's private directory. A job runs as well without.
func openDesk(c Config, p Plan, dir string, began time.Time) *desk {
	if c.tellers == nil {
		c.tellers = newTellers(c)
	}
	d := &desk{c: c, plan: p, began: began, pictures: pictures{machine: p.machine}, outcome: newOutcome(), orders: make(chan order), last: standing{phase: report.Starting, since: began}}
	d.listened = c.listened()
	d.moves(loopTime)
	var err error
	if d.server, err = control.Listen(dir, d.handle, c.Log); err != nil {
		c.Log.Warn(fmt.Sprintf("no control socket, so muster status and muster ctl will not find this agent: %v", err))
	}
	d.openPage(dir)
	return d
}

func (d *desk) close() {
	d.closePage()
	d.server.Close()
}

// show leaves a copy of how this node stands now.
func (d *desk) show(s standing) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.since.IsZero() {
		s.since = time.Now()
		if s.phase == d.last.phase {
			s.since = d.last.since
		}
	}
	if s.state == nil {
		s.past, s.loop = cmp.Or(d.last.state, d.last.past), d.last.loop
	}
	d.last = s
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

// meets is show while there is no world.
func (d *desk) meets(waits string) { d.show(standing{phase: report.Meeting, waits: waits}) }

func (d *desk) now() standing {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// handle answers one request.
func (d *desk) handle(ctx context.Context, r control.Request) (any, error) {
	switch r.Do {
	case "live":
		return "the agent answers", d.alive()
	case "ready":
		return d.ready()
	case "status":
		return d.status(), nil
	case "page":
		return d.pageText(ctx)
	case "outcome":
		return d.outcome.wait(ctx)
	case "inside":
		return d.inside(r.Rank)
	case "bugreport":
		return d.bugReport(), nil
	case "dump":
		return d.dump(ctx)
	}
	if r.Do == "upgrade" {
		return d.upgrade(ctx, r.File)
	}
	if slices.Contains(orderNames, r.Do) {
		return d.ask(ctx, r.Do)
	}
	return nil, fmt.Errorf("%.40q is nothing that this version of muster (%s) can be asked", r.Do, d.c.Version)
}

// ready reports whether the agent listens, where it is to. It says nothing of its peers: they may only be let through to
// this node when it is ready. Where the agent before this one listened, the sockets are open all the time.
func (d *desk) ready() (any, error) {
	if s := d.now(); s.phase == report.Starting && s.state == nil && !d.listened {
		return nil, errors.New("the agent does not listen yet")
	}
	return "the agent listens", nil
}

// ask passes an order on to the run loop, or to who stands in for it before there is one.
func (d *desk) ask(ctx context.Context, what string) (any, error) {
	late := time.After(orderTime)
	answers := make(chan answer, 1)
	select {
	case d.orders <- order{what, answers}:
	case <-ctx.Done():
		return nil, errors.New("the agent is ending")
	case <-late:
		return nil, errors.New("the agent is busy; try again in a moment")
	}
	select {
	case a := <-answers:
		return a.text, a.err
	case <-ctx.Done():
		select {
		case a := <-answers: // it ends because of the order
			return a.text, a.err
		default:
			return nil, errors.New("the agent took the order, and is ending")
		}
	case <-late:
		return nil, errors.New("the agent took the order and does not answer; muster status shows what became of it")
	}
}

// goroutines is where all of them stand, as Go programs write it at SIGQUIT.
func goroutines() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}

// status is how the job stands, as this node sees it.
func (d *desk) status() report.Status { return d.statusOf(d.now()) }

func (d *desk) statusOf(now standing) report.Status {
	s := report.Status{
		Schema: report.StatusSchema, Job: d.plan.Spec.ID, Host: d.c.Host.Hostname, PID: os.Getpid(), Life: d.c.First.Life(), Version: d.c.Version, Began: d.began,
		Phase: now.phase, Since: now.since, Waits: now.waits, MaxRestarts: d.plan.Restarts,
	}
	d.mu.Lock()
	s.Suspects, s.HTTP = d.doubts, d.http
	d.mu.Unlock()
	if now.state != nil {
		now.state.describe(&s)
		if s.Spent = now.spent; s.Spent == nil && !now.loop.IsZero() {
			spent := now.state.spent(time.Since(now.loop))
			s.Spent = &spent
		}
	}
	if p := now.past; p != nil {
		spent := p.spent(time.Since(now.loop))
		s.Spent, s.Rounds, s.Round, s.Alarms = &spent, p.ended(), p.Round, p.Alarms
	}
	if s.World = now.world; now.place != nil {
		s.World = now.place.World.Size()
		showPlaces(&s, now.place.World)
		s.Workers = workers(now)
		withBeats(s.Workers, now.watch.beats())
		withQuiet(s.Workers, now.watch)
	}
	s.Ranks = now.ranks()
	return s
}

// showPlaces adds where the nodes stand, of those that this one has read of, and what that meant for their ranks.
func showPlaces(s *report.Status, w job.World) {
	s.Order = rendezvous.Order(w)
	for i := range min(len(s.Nodes), len(w.Members)) {
		s.Nodes[i].Place = w.Members[i].Place.String()
	}
}

// remark takes what a meeting that this node leads said of machines.
func (d *desk) remark(text string) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.doubts = text
}

// phase is that of a node with a world, and what it waits for.
func (s *state) phase() (phase, waits string) {
	switch {
	case s.Verdict != nil:
		return report.Leaving, s.unfinished()
	case s.Order == orderPause && s.Nodes[s.Self].Clear && (s.Paused || !s.leads()):
		return report.Paused, "muster ctl resume"
	case s.Meeting:
		return report.Meeting, "the nodes of the next world"
	case s.Fence > s.Now:
		return report.Stopping, "the end of workers that may live on a node that was lost"
	case s.Again && s.Rest > s.Now:
		return report.Stopping, "the end of the pause after several failures in a row"
	case s.Held > s.Now:
		return report.Stopping, "whoever failed first to say so; no worker is stopped yet"
	case s.Stopping:
		return report.Stopping, s.unfinished()
	case s.Started:
		return report.Running, ""
	case s.leads():
		return report.Starting, ""
	}
	return report.Starting, fmt.Sprintf("node 0 (%s) to open the round", s.Nodes[0].Name)
}

// unfinished says on whose workers a stop waits: a member knows of its own only.
func (s *state) unfinished() string {
	i := slices.IndexFunc(s.Nodes, func(n *node) bool { return !n.Clear && !n.Done && !n.Gone })
	switch {
	case s.Started && !s.Empty:
		return "the workers of this node to end"
	case s.leads() && i >= 0:
		return "the workers of " + nodeName(s.Nodes, i) + " to end"
	}
	return ""
}

// describe adds to a status what the judgement knows.
func (s *state) describe(r *report.Status) {
	self := s.Self
	r.Node, r.Round, r.MaxRestarts = &self, s.Round, r.MaxRestarts+s.Free
	if s.Start != nil {
		r.MaxRestarts = s.Start.MaxRestarts // the leader's word counts
	}
	for _, n := range s.Nodes {
		r.Nodes = append(r.Nodes, report.StatusNode{Name: n.Name, Done: n.Done, Clear: n.Clear, Gone: n.Gone})
	}
	for _, c := range s.Causes {
		r.Causes = append(r.Causes, c.text(s.Nodes))
	}
	if s.asks() {
		r.Causes = append(r.Causes, s.Own.Sentence)
	}
	r.Rounds = s.ended()
	if s.Verdict != nil {
		r.Message = s.Verdict.Sentence
	}
	if s.Stall != nil {
		r.Stall = s.Stall.line()
	}
	r.Alarms, r.Clashes, r.Stragglers, r.Health = s.Alarms, s.Clashes, s.Stragglers, s.Ailing
}

// ended is how the rounds before ended, as it is told.
func (s *state) ended() (all []report.StatusRound) {
	for _, p := range s.Past {
		all = append(all, report.StatusRound{Round: p.Number, Message: p.Message})
	}
	return all
}

func (c cause) text(nodes []*node) string {
	switch {
	case c.Failure != nil:
		return c.Failure.String()
	case c.Hang != nil:
		return c.Why
	}
	return lostVerdict(nodes[c.Node].Name, c.Node, c.Why).Sentence
}

// withBeats adds what workers say of themselves.
func withBeats(all []report.StatusWorker, beats []job.Beat) {
	for i := range all {
		at := slices.IndexFunc(beats, func(b job.Beat) bool { return b.Rank == all[i].Rank })
		if at >= 0 {
			all[i].Step, all[i].Beats = beats[at].Steps, sources(beats[at])
		}
	}
}

// withQuiet adds since when the workers that run tell of no progress.
func withQuiet(all []report.StatusWorker, w *watch) {
	for i := range all {
		if d, known := w.quiet(all[i].LocalRank); known && all[i].Exit == nil {
			seconds := d.Seconds()
			all[i].Quiet = &seconds
		}
	}
}

// sources says where a worker's heartbeats come from.
func sources(b job.Beat) string {
	var from []string
	for _, s := range []struct {
		source job.Source
		name   string
	}{{job.FromRecorder, "recorder"}, {job.FromHooks, "hooks"}, {job.FromBeats, "beats"}, {job.FromOutput, "output"}} {
		if b.Sources&s.source != 0 {
			from = append(from, s.name)
		}
	}
	switch {
	case recorderless(b):
		return strings.Join(from, ", ") + "; " + b.Mute
	case len(from) > 0:
		return strings.Join(from, ", ")
	case b.Mute != "":
		return "none: " + b.Mute
	}
	return "none"
}

// workers is those of this node: those that ended as the judgement knows them, the others as the kernel does.
func workers(now standing) (out []report.StatusWorker) {
	first := now.place.World.Members[now.place.Group].First
	for local, pid := range now.pids {
		w := report.StatusWorker{Rank: first + local, LocalRank: local, PID: pid, State: "running"}
		if i := slices.IndexFunc(now.state.Ranks, func(e job.Ended) bool { return e.Rank == w.Rank }); i >= 0 {
			exit := now.state.Ranks[i].Exit
			w.Exit, w.State = &exit, exit.String()
		} else if u, err := proc.Root("/proc").Usage(pid); err == nil {
			w.CPU, w.Memory = u.CPU.Seconds(), u.Memory
		} else if now.state.life(w.Rank) != nil {
			w.State = "about to start again"
		}
		out = append(out, w)
	}
	return out
}
