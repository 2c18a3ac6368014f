// Package launcher takes a job from its environment to its end.
package launcher

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/report"
)

// Run takes this node's part in a job, from its environment to its end, and returns how the job ended: the same on
// all nodes.
func Run(ctx context.Context, c Config) report.Ending {
	e := report.Ending{Host: c.Host.Hostname, Node: -1, Version: c.Version, Began: time.Now()}
	c.tellers = newTellers(c)
	c.openEvents()
	defer c.closeEvents()
	plan, last, err := run(ctx, c, &e)
	if err != nil {
		e.Verdict = VerdictOf(err)
		c.tellUnmet(plan, e.Verdict)
	}
	e.Ended = time.Now()
	c.tellVerdict(e)
	if c.VerdictFile != "" {
		if err := e.Write(c.VerdictFile); err != nil {
			c.Log.Error(err.Error())
		}
	}
	if file, _ := c.getenv("TORCHELASTIC_ERROR_FILE"); file != "" && !e.Verdict.OK() {
		if err := e.WriteError(file); err != nil {
			c.Log.Error(err.Error())
		}
	}
	if plan.Park && e.Verdict.OK() {
		c.park(plan, last, e)
	}
	return e
}

// run fills in the ending. An error, most often an *Error, says that this node took no part; VerdictOf puts it into words.
func run(ctx context.Context, c Config, e *report.Ending) (p Plan, last part, err error) {
	h, err := inherit(&c, e) // what an agent before this one left, or:
	if h == nil && err == nil {
		h, err = prepare(&c, e) // who am I, how many are we, what is to run
	}
	if h != nil {
		p = h.Plan
		defer h.release()
	}
	if err != nil {
		return p, last, err
	}
	h.own.ask(c, p, net.DefaultResolver.LookupHost)
	c.tellTakeOver(h)
	defer removeRun(h.Dir)
	defer removeRun(h.Pages)
	if s := c.ended(); s != nil {
		h.place(e)
		s.tells(e)
		c.tellAgain(ctx, h, *s, e.Began)
		return p, part{session: &rendezvous.Session{World: *c.past.World, Rank: c.past.Rank}}, nil
	}
	if h.Plan.Unfit == "" {
		h.makePages()
		h.hook = unpackHook(h.Dir, h.Pages)
		h.ownPages(c)
		defer h.openRAS(c)()
		defer h.hook() // before it is removed
	}
	desk := openDesk(c, h.Plan, h.Dir, e.Began)
	defer func() {
		v := e.Verdict
		if err != nil {
			v = VerdictOf(err)
		}
		desk.outcome.is(v)
		desk.close()
	}()
	var meet *meeting
	var talk *line
	defer func() { meet.close() }()
	ctx, cancel := c.within(ctx, e.Began)
	defer cancel()
	var asked any
	find := func(ctx context.Context) (err error) {
		if !c.takesOver() {
			c.tellMeeting(p)
		}
		if meet, err = openMeeting(ctx, c, h, desk); err != nil { // find the others
			return err
		}
		switch {
		case h.Plan.Unfit != "":
			o := meet.brings(h.Plan.policy(c), job.Tally{})
			o.Unfit = h.Plan.Unfit
			return meet.aside(ctx, o)
		case c.meets(): // the loop does, as it did when the agent before this one died
			talk = &line{}
		case c.takesOver():
			talk, err = meet.resumed(ctx)
		default: // agree with them on the world, and keep in touch
			past, err1 := c.ledger(h.Plan).read()
			if err1 != nil {
				c.Log.Warn(err1.Error())
			}
			talk, err = meet.world(ctx, meet.first(past), h.met)
		}
		return err
	}
	if !c.goesOn() {
		asked, err = c.unlessAsked(ctx, desk.orders, "before any worker was started", find)
	} else {
		err = find(ctx) // it waits for nobody, and whoever asks us to stop is heard in the round: workers are to have their grace
	}
	if err != nil {
		c.tellAsked(asked)
		return p, last, h.Plan.sooner(err)
	}
	s := runRound(c, h, meet, talk, desk, asked) // train
	meet.quits = s.leavesOthers()
	if s.Leave > 0 {
		meet.leaves = timeOf(h.Loop).Add(s.Leave)
	}
	h.place(e)
	s.tells(e)
	return p, part{meet.session, meet.hosting}, nil
}

// tells leaves in an ending what the judgement knows of it.
func (s *state) tells(e *report.Ending) {
	e.Verdict, e.Ranks, e.Stragglers, e.During, e.Spent = s.verdict(), s.ranks(), s.Stragglers, s.Ailing, s.spent(s.Now)
}

// VerdictOf is what an error means for the job.
func VerdictOf(err error) job.Verdict {
	if ended := new(rendezvous.Ended); errors.As(err, &ended) { // it stood by
		v := ended.Verdict
		v.Sentence = ended.Error()
		return v
	}
	v := job.Verdict{Code: ExitCode(err), Origin: "agent", Class: job.Failed, Sentence: err.Error()}
	switch v.Code {
	case job.ExitTERM, job.ExitINT:
		v.Origin, v.Class = "platform", job.Preempted
	case job.ExitRetry:
		v.Origin, v.Class = "platform", job.Lost
	case job.ExitUsage, job.ExitRefused:
		v.Class = job.Refused
	case job.ExitDeadline, job.ExitSlowStart:
		v.Origin, v.Class = "platform", job.Late
	}
	return v
}

// unlessAsked runs f until it ends, or until somebody asks this agent to stop, at a time of which when is the end of a sentence. An event that comes when f has done
// its work is returned: by then the other nodes must be told of it.
func (c Config) unlessAsked(ctx context.Context, orders <-chan order, when string, f func(context.Context) error) (asked any, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over, watched := make(chan struct{}), make(chan any, 1)
	go func() { watched <- c.watch(over, orders, when, cancel) }()
	err = f(ctx)
	close(over)
	asked = <-watched
	var why *Error
	if err != nil && errors.As(context.Cause(ctx), &why) && !errors.Is(err, why) {
		return asked, why
	}
	return asked, err
}

// watch cancels at the first event that asks us to stop, and returns it; nil: none came.
func (c Config) watch(over <-chan struct{}, orders <-chan order, when string, cancel context.CancelCauseFunc) any {
	stop := func(by string, code int) {
		cancel(fail(code, "", "%s %s", preemptedVerdict(c.Host.Hostname, by, code).Sentence, when))
	}
	for {
		select {
		case <-over:
			return nil
		case <-c.First.Lost():
			v := firstLost(c.Host.Hostname)
			cancel(fail(v.Code, "", "%s", v.Sentence))
			return nil
		case o := <-orders:
			if o.what == orderStop {
				o.answer <- answer{text: "the job ends on this node; nodes that have not met it do not hear of that: give them the order, too"}
				stop(byOrder, job.ExitTERM)
				return ordered{orderStop}
			}
			o.answer <- answer{err: errors.New("no worker runs: nodes are still meeting, or the job has ended")}
		case got := <-c.First.Signals():
			sig := got.(syscall.Signal) // as all of os/signal's are
			if stops(sig) {
				stop(job.SignalName(sig), codeFor(sig))
				return signalled{sig}
			}
			dumpIfAsked(c, sig)
		}
	}
}

// stops reports whether a signal asks the agent to end the job.
func stops(sig syscall.Signal) bool {
	return sig == syscall.SIGTERM || sig == syscall.SIGINT || sig == syscall.SIGHUP
}

// dumpIfAsked writes all goroutines to standard error at SIGQUIT, as Go programs do, and goes on, as they do not.
func dumpIfAsked(c Config, sig syscall.Signal) {
	if sig == syscall.SIGQUIT {
		c.Console.Stderr().Write(goroutines())
	}
}
