package framework

import "github.com/muster-run/muster/job"

// none is for programs that know no framework, or one that muster does not: what all other frameworks are given, too.
var none = Framework{
	Name: "none",
	Doc:  "any program: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR and MASTER_PORT, and nothing else",
	env: func(p Place, local int, _ func(string) (string, bool)) job.Env {
		return append(p.ranks(local), p.meeting()...)
	},
}
