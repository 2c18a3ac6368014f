package launcher

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/report/web"
)

// This file is what an observer tells those who ask, and in the end.

// publish leaves how the job stands for those who ask.
func (o *observer) publish() {
	s := report.Status{
		Schema: report.StatusSchema, Job: o.plan.Spec.ID, Host: o.c.Host.Hostname, PID: os.Getpid(), Version: o.c.Version, Began: o.began,
		Phase: report.Observing, Since: o.began, Waits: fmt.Sprintf("the end of %s (pid %d), which is only observed", o.name(), o.command.PID),
		World: o.size, Round: o.round, Alarms: o.said.Alarms, Workers: o.workers(), Stragglers: o.slow, Ranks: o.everybody(), HTTP: o.http,
	}
	v := web.View{Verdict: o.ended}
	for _, r := range o.falls.rounds {
		s.Rounds = append(s.Rounds, report.StatusRound{Round: r.Number, Message: r.Message})
	}
	if len(o.falls.causes) > 0 {
		if first := o.blamed(); !first.First.Echo {
			s.Causes, v.Failures = []string{first.Sentence}, append([]job.Failure{*first.First}, first.Consequences...)
		}
	}
	if o.said.Stall != nil {
		s.Stall = o.said.Stall.line()
		if f := o.said.Stall.Finding; f.Stage >= heartbeat.Suspect {
			v.Hang, v.Stage, v.Stood = &f.Hang, f.Stage.String(), o.began.Add(o.said.Stood)
		}
	}
	if o.with == nil && o.plan.Endpoint != "" {
		s.Waits += fmt.Sprintf("; this node is observed alone until those that observe the others are met at %s", o.plan.Endpoint)
	}
	if o.with != nil {
		s.Node = &o.with.rank
		for node, name := range o.nodes {
			_, gone := o.with.left[node]
			s.Nodes = append(s.Nodes, report.StatusNode{Name: name, Gone: gone})
		}
	}
	v.Status = s
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shown = shown{v, o.here}
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// everybody is how each rank stands of which this node hears: who judges hears of all, another of its own.
func (o *observer) everybody() (all []report.StatusRank) {
	at := map[int]int{}
	add := func(rank int, state string, step uint64) {
		i, known := at[rank]
		if !known && len(all) < maxStrangers {
			i, at[rank] = len(all), len(all)
			all = append(all, report.StatusRank{Rank: rank, Node: o.with.nodeOf(rank)})
		}
		if i < len(all) {
			all[i].State, all[i].Step = state, max(all[i].Step, step)
		}
	}
	for _, b := range o.look.Beats {
		add(b.Rank, report.RankRuns, b.Steps)
	}
	for _, rank := range o.look.Unheard {
		add(rank, report.RankSilent, 0)
	}
	for _, rank := range o.look.Ended {
		add(rank, report.RankStopped, 0)
	}
	seen := o.sightings()
	for i := range all {
		r := &all[i]
		own, known := seen[r.Rank]
		switch {
		case known && (own.State == report.RankFailed || r.State == report.RankRuns):
			r.State, r.Note = own.State, own.Note
		case o.ended != nil && o.ended.OK():
			r.State = report.RankDone
		case o.with.lost(r.Node):
			r.State = report.RankLost
		case r.State == report.RankRuns && o.said.Stall != nil && o.said.Stall.Finding.Stage >= heartbeat.Suspect:
			r.State = report.RankBlocked
		}
	}
	slices.SortFunc(all, func(a, b report.StatusRank) int { return a.Rank - b.Rank })
	return all
}

// sightings are the ranks of which more is known.
func (o *observer) sightings() map[int]report.StatusRank {
	s := state{Stragglers: o.slow, Stall: o.said.Stall}
	for _, c := range o.falls.causes {
		if !toldToStop(c.Failure.Exit) {
			s.Causes = append(s.Causes, c)
		}
	}
	return sightings(&s)
}

// workers are this node's ranks that run.
func (o *observer) workers() (all []report.StatusWorker) {
	for _, s := range o.seats {
		all = append(all, report.StatusWorker{Rank: s.rank, LocalRank: s.rank - o.first, PID: s.pid, State: "running"})
	}
	withBeats(all, o.here.beats())
	return all
}

// handle answers one request by the control socket.
func (o *observer) handle(ctx context.Context, r control.Request) (any, error) {
	o.mu.Lock()
	now := o.shown
	o.mu.Unlock()
	switch r.Do {
	case "live", "ready":
		return "the observer answers", o.alive()
	case "status":
		return used(now.Status), nil
	case "page":
		drawing, _ := o.drawing(ctx, -1) // the page is one without, too
		return web.Page(o.view(), drawing), nil
	case "outcome":
		return o.outcome.wait(ctx)
	case "dump":
		return now.here.dump(ctx)
	}
	return nil, fmt.Errorf("%.40q: muster only observes this job, which %s runs", r.Do, o.name())
}

// used adds what the kernel knows of the workers.
func used(s report.Status) report.Status {
	s.Workers = append([]report.StatusWorker(nil), s.Workers...)
	for i := range s.Workers {
		if u, err := proc.Root("/proc").Usage(s.Workers[i].PID); err == nil {
			s.Workers[i].CPU, s.Workers[i].Memory = u.CPU.Seconds(), u.Memory
		}
	}
	return s
}

// openPage begins to serve the status page. A job is observed as well without.
func (o *observer) openPage() *web.Server {
	token := cmp.Or(o.plan.pageToken(), newPageToken())
	page, at := servePage(o.c, o.out.Dir, token, web.Config{View: o.view, Changed: o.changes, Tokens: o.plan.pageTokens(token), Live: o.alive, Ready: o.alive, Machine: o.drawing}, o.c.listenPage)
	if o.http = at; at != "" {
		o.c.Log.Info("the status page is at " + at)
	}
	return page
}

// view is what the page shows now.
func (o *observer) view() web.View {
	o.mu.Lock()
	now := o.shown
	o.mu.Unlock()
	now.Status = used(now.Status)
	return now.View
}

// changes is closed when something happens.
func (o *observer) changes() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changed == nil {
		o.changed = make(chan struct{})
	}
	return o.changed
}

// drawing is a node's machine for the page; of node -1 this one's.
func (o *observer) drawing(ctx context.Context, node int) ([]byte, error) {
	o.mu.Lock()
	here := o.shown.here
	o.mu.Unlock()
	return o.pictures.draw(ctx, here, node)
}

// ending is how the command ended, and what was seen of its job.
func (o *observer) ending(e report.Ending) report.Ending {
	e.Job, e.World, e.Stalls, e.Verdict = o.plan.Spec.ID, o.size, o.stalls, o.verdict()
	if e.Nodes = o.nodes; len(o.nodes) > 0 {
		e.Node = o.node
	}
	e.Stragglers, e.Ended = o.slow, time.Now()
	if o.c.VerdictFile != "" {
		if err := e.Write(o.c.VerdictFile); err != nil {
			o.c.Log.Error(err.Error())
		}
	}
	return e
}

func (o *observer) verdict() job.Verdict {
	end := o.command.End
	if end == nil {
		return VerdictOf(fail(job.ExitRetry, "", "the first process was lost, and %s is not observed any more", o.name()))
	}
	exit := job.Exit{Code: end.Code, Signal: int(end.Signal), Core: end.Core}
	v := job.Verdict{Code: o.command.Code, Class: job.Succeeded, Sentence: fmt.Sprintf("%s (pid %d) %v", o.name(), end.PID, exit)}
	switch {
	case v.Code == job.ExitOK:
	case exit.Killed():
		v.Origin, v.Class = "worker", job.Killed
	default:
		v.Origin, v.Class = "worker", job.Failed
		if len(o.falls.causes) == 0 {
			v.Sentence += o.exception()
		}
	}
	v = o.accused(v)
	if n := len(o.stalls); n > 0 && !v.OK() && o.stalls[n-1].Over == 0 && o.stalls[n-1].Round == o.round {
		v.Hang = &o.stalls[n-1].Hang
		v.Sentence += "; before that: " + o.stalls[n-1].Message
	}
	return v
}

// exception is what the command has left of the first failure, as torchrun does where the script's main is under @record, to be added to
// a sentence. A file of an earlier run says nothing.
func (o *observer) exception() string {
	path, _ := o.c.getenv(errorFileName)
	around := o.falls.scene
	if text, _ := reachFor(around.files, func() string { return recordedSince(path, o.began) }); text != "" {
		return ", of " + around.hidden().Line(text, exceptionText)
	}
	return ""
}
