package main

import (
	"github.com/urfave/cli/v2"

	"github.com/muster-run/muster/affinity"
	"github.com/muster-run/muster/launcher"
)

// ncclFlags say what muster does for NCCL and other collectives, where on a machine workers run, and what becomes of machines that are not fit for them.
func ncclFlags(c *launcher.Config) []cli.Flag {
	c.Tune, c.Rails, c.Preflight, c.Bind = "auto", "tell", "auto", affinity.Auto
	return []cli.Flag{
		&cli.GenericFlag{Name: "preflight", Value: choice{&c.Preflight, "auto off strict"}, Hidden: true, Usage: "`auto|off|strict` whether a machine with accelerators is looked at before the job: tell what is wrong, or take no part if something lacks (auto)"},
		&cli.GenericFlag{Name: "bind", Value: choice{&c.Bind, affinity.Modes()}, Hidden: true, Usage: "`auto|none|socket|numa|core` whether workers have the CPUs, and first the memory, near their GPUs: all of the socket, of the NUMA node, or cores of their own; auto: the node where that costs nothing (auto)"},
		&cli.GenericFlag{Name: "nccl-tune", Value: choice{&c.Tune, "auto off explain"}, Hidden: true, Usage: "`auto|off|explain` whether workers are told of the networks between nodes, and each with its reason (auto)"},
		&cli.GenericFlag{Name: "nccl-rails", Value: choice{&c.Rails, "tell common refuse"}, Hidden: true, Usage: "`tell|common|refuse` where a node lacks an adapter: name it, use what all nodes have, or start nothing (tell)"},
	}
}
