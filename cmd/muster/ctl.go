package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/control"
	"github.com/muster-run/muster/report"
)

func healthCommand() *cli.Command {
	return &cli.Command{
		Name: "health", Usage: "probes for a container: does the agent live, is it ready",
		Description: "Ready means that this agent listens, never that its peers are there, for they may be let through only then.",
		Subcommands: []*cli.Command{
			simple("live", "the agent answers", time.Second),
			simple("ready", "the agent listens where others are to find it", time.Second),
		},
	}
}

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
			var text string
			if err := a.ask(orderTime, control.Request{Do: "upgrade", File: path}, &text); err != nil {
				return err
			}
			fmt.Println(report.Plain(text))
			return nil
		},
	}
}

// orderTime is how long an agent may take to hear an order, while it starts or clears away workers.
const orderTime = 15 * time.Second

// simple is a command that asks for one thing by its own name, and shows the answer.
func simple(name, usage string, within time.Duration) *cli.Command {
	var a agent
	return &cli.Command{
		Name: name, Usage: usage, ArgsUsage: "[flags]", Flags: a.flags(),
		Action: func(x *cli.Context) error {
			if x.Args().Present() {
				return wrong("%s: takes no arguments, got %q", name, x.Args().First())
			}
			var text string
			if err := a.ask(within, control.Request{Do: name}, &text); err != nil {
				return err
			}
			fmt.Println(report.Plain(text))
			return nil
		},
	}
}
