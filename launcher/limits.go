package launcher

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/worker"
)

// policy is what the user and the platform decided about the end of the job.
func (p Plan) policy(c Config) policy {
	how := policy{NodeTimeout: cmp.Or(c.NodeTimeout, c.KeepAlive), StopTimeout: c.StopTimeout, Grace: c.Grace, MaxRestarts: p.Restarts, Success: p.Success, Servers: p.Spec.Servers, OnExit: c.OnExit, Posix: c.SignalExit == "posix"}
	how.Window, how.Backoff = c.RestartWindow, c.Backoff
	how.Fewest, how.Exclude, how.Rest = p.Spec.Fewest(), c.ExcludeAfter, c.ExcludeFor
	how.Suspects = c.Suspects != ""
	how.Yields = p.regroups(c) && p.Spec.Standby()
	how.Regroups, how.Nodes, how.Join, how.LastCall = p.regroups(c), p.Spec.Nodes, c.JoinPolicy, c.LastCall
	how.OnHang, how.Idle = c.OnHang, c.IdleRounds
	if end, err := strconv.ParseInt(c.Host.Getenv("SLURM_JOB_END_TIME"), 10, 64); err == nil && c.From["grace"] == "" {
		how.JobEnd = time.Until(time.Unix(end, 0))
	}
	return how
}

// regroups reports whether nodes that are left when one was lost meet again: where there may be fewer, or others in its place, or
// the user asked for restarts.
func (p Plan) regroups(c Config) bool {
	return c.RejoinTimeout > 0 && c.OnExit != onExitLeave && (p.Spec.Standby() || p.Restarts > 0 && p.Spec.Nodes > 1)
}

// stopping is how workers are told to end. Another signal than TERM announces preemption; TERM follows it while there is
// still the time that it has after a failure.
func (c Config) stopping(how stop) worker.Stopping {
	s := worker.Stopping{Scope: c.SignalScope}
	if how.Preempt && c.PreemptSignal != syscall.SIGTERM {
		s.Signal, s.Term = c.PreemptSignal, max(how.Within-c.StopTimeout, how.Within/2)
	}
	return s
}

// What the agent and the first process need of open files: with little more, workers would begin and others find no room.
// Measured: 14 and 4 for each worker, 6 with log files.
const (
	agentFiles  = 32
	workerFiles = 4
	loggedFiles = 6
)

// room refuses more workers than there can be open files for.
func (c Config) room(slots int) error {
	each := workerFiles
	if c.Output.Dir != "" {
		each = loggedFiles
	}
	var l unix.Rlimit
	need := uint64(agentFiles + each*slots)
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || l.Cur >= need {
		return nil // Go raised the soft limit to the hard one
	}
	return fail(job.ExitSystem, "raise that limit", "no room for the workers: ulimit -n is %d, and muster needs %d open files for %d of them",
		l.Cur, need, slots)
}

// A limit is a time that must not pass before something has happened.
type limit struct {
	flag  string
	after time.Duration // 0: no limit
	code  int
	what  string
}

func (c Config) limits() (deadline, start limit) {
	return limit{"deadline", c.Deadline, job.ExitDeadline, "the job has not ended"},
		limit{"start-timeout", c.StartTimeout, job.ExitSlowStart, "the workers were not started"}
}

// verdict is that of a job which passed the limit.
func (l limit) verdict(host string) job.Verdict {
	return job.Verdict{Code: l.code, Origin: "platform", Class: job.Late,
		Sentence: fmt.Sprintf("%s within %v (--%s, on %s)", l.what, l.after, l.flag, host)}
}

// raise returns a channel that tells when the limit is passed; nil: never.
func (l limit) raise(began time.Time) <-chan time.Time {
	if l.after == 0 {
		return nil
	}
	return time.After(time.Until(began.Add(l.after)))
}

// within bounds what is done before there is a round by both limits.
func (c Config) within(ctx context.Context, began time.Time) (context.Context, context.CancelFunc) {
	var cancels []context.CancelFunc
	deadline, start := c.limits()
	for _, l := range []limit{deadline, start} {
		if l.after != 0 {
			v := l.verdict(c.Host.Hostname)
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadlineCause(ctx, began.Add(l.after), fail(v.Code, "", "%s", v.Sentence))
			cancels = append(cancels, cancel)
		}
	}
	return ctx, func() {
		for _, cancel := range cancels {
			cancel()
		}
	}
}
