package main

import (
	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/launcher"
)

// hangFlags say when workers that stand still are a hang, and what is done then.
func hangFlags(c *launcher.Config) []cli.Flag {
	c.OnHang, c.IdleRounds = "dump", 3
	return []cli.Flag{
		&cli.GenericFlag{Name: "max-idle-rounds", Value: number{&c.IdleRounds, 0, 1 << 20}, Hidden: true, Usage: "`N` rounds in a row that may fail before the first step; 0: any number (3)"},
		&cli.GenericFlag{Name: "on-hang", Value: choice{&c.OnHang, "observe dump restart exclude-node"}, Usage: "`WHAT` to do when no rank advances: observe, dump, restart, exclude-node (dump)"},
		&cli.StringFlag{Name: "evidence", Destination: &c.Evidence, Hidden: true, Usage: "`DIR` for evidence of hangs, best one that outlives the container (beside the log files, or with the run)"},
		&cli.GenericFlag{Name: "hang-timeout", Value: seconds{&c.HangTimeout}, Hidden: true, Usage: "`TIME` after which that is a hang, however long the job's pauses were before (10m)"},
		&cli.GenericFlag{Name: "hang-floor", Value: seconds{&c.HangFloor}, Hidden: true, Usage: "`TIME` before which it is none, however short they were (30s)"},
		&cli.GenericFlag{Name: "hang-start-timeout", Value: seconds{&c.HangStart}, Hidden: true, Usage: "`TIME` before which it is none while the job has not trained yet (20m)"},
		&cli.GenericFlag{Name: "hang-busy-after", Value: seconds{&c.HangBusyAfter}, Hidden: true, Usage: "`TIME` before which it is none while the rank that is waited for is at work (--hang-timeout)"},
	}
}
