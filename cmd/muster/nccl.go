package main

import (
	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/launcher"
)

// ncclFlags say what muster does for NCCL and other collectives.
func ncclFlags(c *launcher.Config) []cli.Flag {
	c.Tune, c.Rails = "auto", "tell"
	return []cli.Flag{
		&cli.GenericFlag{Name: "nccl-tune", Value: choice{&c.Tune, "auto off explain"}, Hidden: true, Usage: "`auto|off|explain` whether workers are told of the networks between nodes, and each with its reason (auto)"},
		&cli.GenericFlag{Name: "nccl-rails", Value: choice{&c.Rails, "tell common refuse"}, Hidden: true, Usage: "`tell|common|refuse` where a node lacks an adapter: name it, use what all nodes have, or start nothing (tell)"},
	}
}
