package launcher

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/report"
)

// This file is what an observer tells those who ask, and in the end.

// publish leaves how the job stands for those who ask.
func (o *observer) publish() {
	s := report.Status{
		Schema: report.StatusSchema, Job: o.plan.Spec.ID, Host: o.c.Host.Hostname, PID: os.Getpid(), Version: o.c.Version, Began: o.began,
		Phase: report.Observing, Since: o.began, Waits: fmt.Sprintf("the end of %s (pid %d), which is only observed", o.name(), o.command.PID),
		World: o.size, Round: o.round, Alarms: o.said.Alarms, Workers: o.workers(), Stragglers: o.slow,
	}
	if o.said.Stall != nil {
		s.Stall = o.said.Stall.line()
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
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shown = shown{s, o.here}
}

// workers are this node's ranks that run.
func (o *observer) workers() (all []report.StatusWorker) {
	for _, s := range o.seats {
		all = append(all, report.StatusWorker{Rank: s.rank, LocalRank: s.rank - o.seats[0].rank, PID: s.pid, State: "running"})
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
		return "the observer answers", nil
	case "status":
		return used(now.status), nil
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
	if text := recordedSince(path, o.began); text != "" {
		return ", of " + report.Line(text, 300)
	}
	return ""
}
