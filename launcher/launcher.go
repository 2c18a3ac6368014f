// Package launcher takes a job from its environment to its end.
package launcher

import (
	"context"
	"errors"
	"os"
	"runtime"
	"syscall"

	"github.com/muster-run/muster/job"
)

// Run takes this node's part in a job, from its environment to its end, and returns how the job ended: the same on
// all nodes. An error, most often an *Error, says that it never began.
func Run(ctx context.Context, c Config) (job.Verdict, error) {
	plan, err := NewPlan(c) // who am I, how many are we, what is to run
	if err != nil {
		return job.Verdict{}, err
	}
	c.lastWords("starting: " + plan.Spec.ID)
	for _, note := range plan.Notes {
		c.Log.Warn(note)
	}
	var meet *meeting
	var line *line
	defer func() { line.close(); meet.close() }()
	err = c.unlessAsked(ctx, func(ctx context.Context) error {
		if meet, err = openMeeting(ctx, c, plan); err != nil { // find the others
			return err
		}
		if err = meet.join(ctx); err != nil { // agree with them on the world
			return err
		}
		line, err = meet.connect(ctx) // and keep in touch
		return err
	})
	if err != nil {
		return job.Verdict{}, err
	}
	return runRound(c, plan, meet.session, line) // train
}

// unlessAsked runs f until it ends, or until a signal asks this agent to stop.
func (c Config) unlessAsked(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		c.watchSignals(over, cancel)
	}()
	err := f(ctx)
	close(over)
	<-watched
	var asked *Error
	if errors.As(context.Cause(ctx), &asked) { // also when f was just done: the signal must not be lost
		return asked
	}
	return err
}

// watchSignals cancels at the first signal that asks us to stop.
func (c Config) watchSignals(over <-chan struct{}, cancel context.CancelCauseFunc) {
	for {
		select {
		case <-over:
			return
		case <-c.First.Lost():
			v := firstLost(c)
			cancel(fail(v.Code, "", "%s", v.Sentence))
			return
		case sig := <-c.First.Signals():
			if stops(sig) {
				v := preemptedVerdict(c.Host.Hostname, 0, sig, 1)
				cancel(fail(v.Code, "", "%s before any worker was started", v.Sentence))
				return
			}
			dumpIfAsked(c, sig)
		}
	}
}

// stops reports whether a signal asks the agent to end the job.
func stops(sig os.Signal) bool {
	return sig == syscall.SIGTERM || sig == syscall.SIGINT || sig == syscall.SIGHUP
}

// dumpIfAsked writes all goroutines to standard error at SIGQUIT, as Go programs do, and goes on, as they do not.
func dumpIfAsked(c Config, sig os.Signal) {
	if sig == syscall.SIGQUIT {
		buf := make([]byte, 1<<20)
		c.Console.Stderr().Write(buf[:runtime.Stack(buf, true)])
	}
}
