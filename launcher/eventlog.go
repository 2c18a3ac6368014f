package launcher

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/report/events"
)

// This file keeps the event log (--events): what the judgement comes to, what comes before and after it, and what else people are told. A job runs as
// well without, and waits for nothing that is written there.

const (
	keptMark   = "events"        // events.Mark, for another agent
	lastEvents = 2 * time.Second // for what waits at the end
)

// openEvents begins the log, or goes on with that of an agent before this one. What people are told becomes a line as well, unless it is said aloud.
func (c *Config) openEvents() {
	c.people = c.Log
	if c.EventsFile == "" {
		return
	}
	o := events.Options{Where: c.EventsFile, Console: c.Console.Stdout(), Parent: os.Getppid(), Host: c.Host.Hostname, Mark: events.Mark{Run: newID()}, Say: func(text string) { c.aloud().Warn(text) }}
	if old := c.First.Legacy(); old != nil && old.Blobs[keptMark] != nil {
		_ = json.Unmarshal(old.Blobs[keptMark], &o.Mark) // we wrote it; of another form it begins anew
	}
	first := c.First
	o.Keep = func(m events.Mark) {
		b, _ := json.Marshal(m) // plain values
		_ = first.Keep(keptMark, b)
	}
	o.Keep(o.Mark)
	c.events = events.Open(o)
	c.Log = slog.New(noting{c.Log.Handler(), c.events})
}

// closeEvents writes what waits.
func (c Config) closeEvents() {
	if lost := c.events.Close(lastEvents); lost > 0 {
		c.aloud().Warn(fmt.Sprintf("events: %d lines could not be written to %s", lost, c.EventsFile))
	}
}

// note adds lines about what the run loop has no part in.
func (c Config) note(lines ...events.Line) { c.events.Add(time.Now(), lines...) }

// noting is a log for people of which each line is an event, too.
type noting struct {
	slog.Handler
	events *events.Log
}

func (n noting) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || n.Handler.Enabled(ctx, level)
}

func (n noting) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool { text += " " + a.Key + "=" + a.Value.String(); return true })
		level := map[bool]string{true: events.Error, false: events.Warn}[r.Level >= slog.LevelError]
		if r.Level < slog.LevelWarn {
			level = events.Info
		}
		n.events.Add(r.Time, events.Line{Level: level, Event: events.Note, Message: cmp.Or(text, "-")})
	}
	if !n.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return n.Handler.Handle(ctx, r)
}

func (n noting) WithAttrs(attrs []slog.Attr) slog.Handler {
	n.Handler = n.Handler.WithAttrs(attrs)
	return n
}

// tellStart are the first lines of this node's part in a job.
func (c Config) tellStart(began time.Time, p Plan) {
	c.events.Begin(p.Spec.ID)
	c.events.Add(began, events.Line{Level: events.Info, Event: events.AgentStarted, Version: c.Version, PID: os.Getpid(), Message: "muster " + c.Version + " was started"})
	if p.Spec.ID == "" {
		return
	}
	l := events.Line{
		Level: events.Info, Event: events.PlatformRead, Platform: cmp.Or(p.Platform, "none"), Framework: p.Framework.Name, Nodes: p.Spec.Nodes, Slots: &p.Spec.Self.Slots, Endpoint: string(p.Endpoint),
		Message: fmt.Sprintf("job %s of %s node(s), with %s on this one", p.Called, p.Spec.Size(), counted(p.Spec.Self.Slots, "worker")),
	}
	c.note(l)
	for _, text := range p.Preflight {
		result, _, _ := strings.Cut(text, " ")
		level := events.Warn
		if result == "fail" {
			level = events.Error
		}
		c.note(events.Line{Level: level, Event: events.Preflight, Result: result, Message: text})
	}
}

// tellTakeOver is the first line of another agent, where its run loop does not say so.
func (c Config) tellTakeOver(h *heritage) {
	c.events.Begin(h.Plan.Spec.ID)
	if c.First.Life() == 0 || c.goesOn() && c.ended() == nil {
		return
	}
	where := "the nodes had not met"
	if c.goesOn() {
		where = "the job had ended"
		c.tellLast(h, c.First.Legacy())
	}
	c.note(c.here(tookOver(where)))
}

// here adds what tells this agent from others.
func (c Config) here(l events.Line) events.Line {
	l.Life, l.PID, l.Version = c.First.Life(), os.Getpid(), c.Version
	return l
}

// tellMeeting is the begin of the first meeting.
func (c Config) tellMeeting(p Plan) {
	where := "this node is the whole world"
	if p.Endpoint != "" {
		where = "the nodes meet at " + string(p.Endpoint)
	}
	c.note(events.Line{Level: events.Info, Event: events.RendezvousBegun, Endpoint: string(p.Endpoint), Nodes: p.Spec.Nodes, Limit: events.Seconds(c.JoinTimeout), Message: where})
}

// tellAsked is who asked this agent to end, where no run loop hears it.
func (c Config) tellAsked(asked any) {
	switch e := asked.(type) {
	case signalled:
		name := job.SignalName(e.Sig)
		c.note(events.Line{Level: events.Warn, Event: events.SignalReceived, Signal: name, Message: "this agent was told to stop by " + name})
	case ordered:
		c.note(events.Line{Level: events.Info, Event: events.OrderReceived, Order: e.What, Message: fmt.Sprintf("muster ctl %s on this node", e.What)})
	}
}

// tellUnmet is the end of a job, or of this node's part in it, before there was a run loop.
func (c Config) tellUnmet(p Plan, v job.Verdict) {
	if p.Spec.ID == "" {
		c.tellStart(time.Now(), p)
	} else if v.Class != job.Preempted && !v.OK() {
		c.note(unmetLine(v))
	}
	c.note(events.Line{
		Level: levelOf(v), Event: events.Decision, Action: events.End, Reason: v.Sentence, ExitCode: &v.Code, Class: v.Class, Origin: v.Origin, Hint: v.Hint,
		Message: fmt.Sprintf("this node ends: %s; exit %d", v.Sentence, v.Code),
	})
}

// tellVerdict is the last line. An agent before this one may have come to it.
func (c Config) tellVerdict(e report.Ending) {
	if c.events.Over() {
		return
	}
	v := e.Verdict
	l := events.Line{
		Level: levelOf(v), Event: events.Verdict, Outcome: report.Outcome(v), ExitCode: &v.Code, Class: v.Class, Origin: v.Origin, Nodes: len(e.Nodes), WorldSize: e.World,
		Wall: events.Seconds(e.Ended.Sub(e.Began)), Message: cmp.Or(v.Sentence, v.Class),
	}
	if f := v.First; f != nil {
		failureOf(&l, *f)
		l.ExitCode, l.Signal, l.ByMuster = &v.Code, f.Exit.SignalName(), false
		l.OfNode, l.OfHost = &f.Group, f.Node
	}
	l.Hint = cmp.Or(v.Hint, l.Hint)
	if trained, ok := e.Spent.Sum().Seconds["train"]; ok {
		l.Train = events.Seconds(time.Duration(trained * float64(time.Second)))
	}
	c.note(l)
}

// tellPassed is a signal that is not for this agent.
func (c Config) tellPassed(sig syscall.Signal, workers int) {
	name := job.SignalName(sig)
	c.note(events.Line{Level: events.Info, Event: events.SignalReceived, Signal: name, Message: fmt.Sprintf("%s was passed on to %s, as far as they have a handler for it", name, counted(workers, "worker"))})
}

// tellLines are the lines of one judgement; nil: nobody wants them.
func (r *round) tellLines(was state, event any, todo []any) []events.Line {
	if r.c.events == nil {
		return nil
	}
	lines := linesOf(r.policy, was, event, r.state, todo)
	for i := range lines {
		switch lines[i].Event {
		case events.WorkersStarted:
			r.tellWorkers(&lines[i])
		case events.AgentTookOver:
			lines[i] = r.c.here(lines[i])
		}
	}
	return lines
}

// tellWorkers names them.
func (r *round) tellWorkers(l *events.Line) {
	l.Ranks = []int{}
	if r.session == nil {
		return
	}
	self := r.session.World.Members[r.session.Rank]
	for local := range self.Slots {
		l.Ranks = append(l.Ranks, self.First+local)
	}
	if r.group != nil {
		l.PIDs = r.group.PIDs()
	}
}

// tellRest are the lines that an agent before this one had not come to write. They follow from its journal; what is no more in that either is told
// as dropped.
func (r *round) tellRest() {
	if r.c.events == nil {
		return
	}
	now, s, told := r.state, r.journal.head.State, r.journal.head.Told
	defer func() { r.state = now }()
	for i, e := range r.journal.entries {
		event, err := e.value()
		if err != nil {
			return // it was read before
		}
		was := s
		var todo []any
		s, todo = decide(r.policy, was, e.At, event)
		r.state = s
		lines := r.tellLines(was, event, todo)
		if s.Round != now.Round || s.Generation != now.Generation { // its workers are gone, and nobody knows what processes they were
			for k := range lines {
				lines[k].PIDs = nil
			}
		}
		r.c.events.AddJudged(r.began.Add(e.At), told, lines...)
		r.journal.entries[i].lines = len(lines)
		told += len(lines)
	}
	r.journal.told = told
	r.c.events.AddJudged(time.Now(), told)
}

// tellLast is tellRest where there is no run loop any more.
func (c Config) tellLast(h *heritage, old *pid1.Legacy) {
	m, err := momentOf(old)
	if err != nil {
		return // it was read before
	}
	r := &round{c: c, h: h, plan: h.Plan, policy: h.Policy, began: timeOf(h.Loop), state: m.State, session: &rendezvous.Session{World: *h.World, Rank: h.Rank}}
	r.journal.resume(old, m)
	r.tellRest()
}

// aloud tells people of what is an event of its own.
func (c Config) aloud() *slog.Logger { return cmp.Or(c.people, c.Log) }
