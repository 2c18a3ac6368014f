package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/report"
)

func healthCommand() *cli.Command {
	return &cli.Command{
		Name: "health", Usage: "probes for a container: does the agent live, is it ready",
		Description: "Ready means that this agent listens, never that its peers are there, for they may be let through only then.",
		Subcommands: []*cli.Command{
			asking("live", "the agent's main loop moves", probeTime, (*agent).insist),
			asking("ready", "the agent listens where others are to find it", probeTime, (*agent).insist),
		},
	}
}

// probeTime is for an agent to answer a probe on a busy machine, or for another one to take its place: a little less than the timeoutSeconds of 5 that
// docs/control.md has.
const probeTime = 4 * time.Second

func ctlCommand() *cli.Command {
	return &cli.Command{
		Name: "ctl", Usage: "act on the running job: stop, restart, pause, resume, upgrade",
		Description: "On any node of the job, in the container where its agent runs. What stops workers leaves them --grace for a checkpoint.",
		Subcommands: []*cli.Command{
			simple("stop", "end the job, as SIGTERM does", orderTime),
			simple("restart", "stop the workers of all nodes and start them again; --max-restarts does not count it", orderTime),
			simple("pause", "stop the workers of all nodes, and keep the nodes together", orderTime),
			simple("resume", "start the workers of a paused job again", orderTime),
			upgradeCommand(),
			simple("dump", "keep evidence of how this node's workers stand; the agent's goroutines go to its standard error", dumpTime),
		},
	}
}

// dumpTime is how long an agent may take to gather evidence, from what may be dead.
const dumpTime = 20 * time.Second

func upgradeCommand() *cli.Command {
	var a agent
	return &cli.Command{
		Name: "upgrade", Usage: "go on with another muster binary; the workers do not notice", ArgsUsage: "[flags] FILE",
		Description: "This node's agent makes way for the one in FILE. Should that not begin, the old one goes on.\n\n  muster ctl upgrade /tmp/muster-new",
		Flags:       a.flags(),
		Action: func(x *cli.Context) error {
			if x.NArg() != 1 {
				return wrong("ctl upgrade: give one FILE, a muster binary")
			}
			path, err := filepath.Abs(x.Args().First())
			if err != nil {
				return err
			}
			return upgrade(&a, path)
		},
	}
}

// followTime is how long it may take on a busy machine until another agent answers: should the new one not begin, the old program goes on.
const followTime = time.Minute

// upgrade returns when the agent that follows answers. It may be the old program again.
func upgrade(a *agent, path string) error {
	a.acts = true
	if err := a.stick(); err != nil {
		return err
	}
	before, err := a.status(askTime)
	if err != nil {
		return err
	}
	var after report.Status
	var text string
	if err := a.ask(orderTime, control.Request{Do: "upgrade", File: path}, &text); err != nil {
		return err
	}
	answered(of(before) + text)
	for late := time.Now().Add(followTime); after.PID == 0 || after.PID == before.PID; {
		switch err := a.insist(time.Until(late), control.Request{Do: "status"}, &after); {
		case err != nil:
			return fmt.Errorf("%w; no agent has followed yet, and the workers go on", err)
		case after.PID == before.PID:
			time.Sleep(insistPause)
		}
	}
	asked := strings.Contains(text, " muster "+after.Version+" ")
	old := after.Version == before.Version && after.Life != before.Life+1 // the same again, after another one that did not begin
	if !asked || old {
		return &launcher.Error{Code: absent, Err: fmt.Errorf("%s did not begin, or cannot read what the agent left: muster %s goes on, pid %d", path, report.Plain(after.Version), after.PID)}
	}
	fmt.Printf("muster %s goes on, pid %d\n", report.Plain(after.Version), after.PID)
	return nil
}

// answered shows what an agent answered, which may name programs and files that somebody else named.
func answered(text string) {
	for line := range strings.Lines(text) {
		fmt.Println(report.Plain(strings.TrimSuffix(line, "\n")))
	}
}

// orderTime is how long an agent may take to hear an order, while it starts or clears away workers.
const orderTime = 15 * time.Second

// simple is a command that asks for one thing by its own name, and shows the answer.
func simple(name, usage string, within time.Duration) *cli.Command {
	return asking(name, usage, within, (*agent).order)
}

// asking is simple with another way to ask.
func asking(name, usage string, within time.Duration, ask func(*agent, time.Duration, control.Request, any) error) *cli.Command {
	var a agent
	return &cli.Command{
		Name: name, Usage: usage, ArgsUsage: "[flags]", Flags: a.flags(),
		Action: func(x *cli.Context) error {
			if x.Args().Present() {
				return wrong("%s: takes no arguments, got %q", name, x.Args().First())
			}
			var text string
			if err := ask(&a, within, control.Request{Do: name}, &text); err != nil {
				return err
			}
			answered(text)
			return nil
		},
	}
}
