package main

import (
	"fmt"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/proc"
)

// stoppingFlags say when and how a job is ended.
func stoppingFlags(c *launcher.Config) []cli.Flag {
	c.PreemptSignal, c.Success, c.OnExit, c.SignalExit = syscall.SIGTERM, "all", "stop", "fixed"
	c.Park = "auto"
	return []cli.Flag{
		&cli.GenericFlag{Name: "deadline", Value: seconds{&c.Deadline}, Usage: "`TIME` after which the job is told to stop (none); exit 72"},
		&cli.GenericFlag{Name: "start-timeout", Value: seconds{&c.StartTimeout}, Hidden: true, Usage: "`TIME` within which the workers must be started (none); exit 73"},
		&cli.GenericFlag{Name: "preempt-signal", Value: stopSignal{&c.PreemptSignal}, Hidden: true, Usage: "`SIGNAL` that tells workers to save and end when the node is wanted; TERM follows"},
		&cli.GenericFlag{Name: "signal-scope", Value: scope{&c.SignalScope}, Hidden: true, Usage: "`leader|group|tree` that is told to stop: the worker, its group, all it started"},
		&cli.GenericFlag{Name: "success", Value: choice{&c.Success, "all rank0 node0"}, Hidden: true, Usage: "`all|rank0|node0` whose success is the job's"},
		&cli.GenericFlag{Name: "park", Value: choice{&c.Park, "auto yes no"}, Hidden: true, Usage: "`auto|yes|no` whether this agent stays after success: auto where the platform starts again what ends, and this is its container's main process"},
		&cli.GenericFlag{Name: "signal-exit", Value: choice{&c.SignalExit, "fixed posix"}, Hidden: true, Usage: "`fixed|posix` exit code when a signal ended a worker: a permanent one (122 for SEGV), or 128+n"},
		&cli.GenericFlag{Name: "on-worker-exit", Value: choice{&c.OnExit, "stop restart leave"}, Hidden: true, Usage: "`WHAT` follows when a worker fails: stop (all), restart (it alone, as --max-restarts allows), leave (the others run on)"},
		&cli.GenericFlag{Name: "clean", Value: cleaned{&c.OnExit}, Hidden: true, Usage: "`unfinished|none` that are stopped then: other words for stop and leave"},
	}
}

// cleaned is what follows when a worker fails, in the words of operators that clean up after a job: who is then ended.
type cleaned struct{ onExit *string }

func (v cleaned) Set(text string) error {
	same := map[string]string{"unfinished": "stop", "all": "stop", "none": "leave"}
	onExit, ok := same[text]
	if !ok {
		return fmt.Errorf("%q is none of unfinished, none, all", text)
	}
	*v.onExit = onExit
	return nil
}

func (v cleaned) String() string { return "" }

// stopSignal is the name or the number of a signal as a flag.
type stopSignal struct{ sig *syscall.Signal }

func (v stopSignal) Set(text string) error {
	sig, err := signalNamed(text)
	if err == nil && (sig == 0 || sig == syscall.SIGKILL || sig == syscall.SIGSTOP) {
		err = fmt.Errorf("%q cannot tell a worker anything", text)
	}
	if err != nil {
		return err
	}
	*v.sig = sig
	return nil
}

func (v stopSignal) String() string { return "" }

// scope is how far a signal goes, as a flag.
type scope struct{ scope *proc.Scope }

func (v scope) Set(text string) error {
	known := map[string]proc.Scope{"leader": proc.Leader, "group": proc.Group, "tree": proc.Tree}
	s, ok := known[text]
	if !ok {
		return fmt.Errorf("%q is none of leader, group, tree", text)
	}
	*v.scope = s
	return nil
}

func (v scope) String() string { return "" }
