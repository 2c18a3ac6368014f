package framework

import (
	"strconv"

	"github.com/muster-run/muster/horovod"
	"github.com/muster-run/muster/job"
)

// horovodRun is Horovod without horovodrun: the variables of its gloo controller (horovod/runner/gloo_run.py, horovod/common/gloo/gloo_context.cc).
// The protocol behind the rendezvous is package horovod's.
var horovodRun = Framework{
	Name:       "horovod",
	Doc:        "Horovod with its gloo controller, without horovodrun and MPI; muster serves its rendezvous",
	Calls:      true,
	IPv4:       true, // third_party/HTTPRequest takes the first address of that family
	Rendezvous: true,
	Imports:    "horovod",
	env:        horovodEnv,
}

func horovodEnv(p Place, local int, given func(string) (string, bool)) job.Env {
	me := p.World.Members[p.Group]
	var world horovod.World
	for _, m := range p.World.Members {
		world = append(world, m.Slots)
	}
	cross, crosses := world.Cross(p.Group, local)
	e := append(p.ranks(local), p.meeting()...)
	e = append(e, job.Env{
		{Name: "HOROVOD_HOSTNAME", Value: horovod.Host(p.Group), Why: "word by which the ranks of this node find each other"},
		{Name: "HOROVOD_RANK", Value: strconv.Itoa(me.First + local), Why: "RANK, in the words of Horovod"},
		{Name: "HOROVOD_SIZE", Value: strconv.Itoa(p.World.Size()), Why: "WORLD_SIZE, in the words of Horovod"},
		{Name: "HOROVOD_LOCAL_RANK", Value: strconv.Itoa(local), Why: "LOCAL_RANK, in the words of Horovod"},
		{Name: "HOROVOD_LOCAL_SIZE", Value: strconv.Itoa(me.Slots), Why: "LOCAL_WORLD_SIZE, in the words of Horovod"},
		{Name: "HOROVOD_CROSS_RANK", Value: strconv.Itoa(cross), Why: "number of this node among those that have this local rank"},
		{Name: "HOROVOD_CROSS_SIZE", Value: strconv.Itoa(crosses), Why: "how many those are"},
		{Name: "HOROVOD_GLOO_RENDEZVOUS_ADDR", Value: p.MasterAddr, Why: "rank 0's node, where muster serves the rendezvous; without it each worker is a world of its own"},
		{Name: "HOROVOD_GLOO_RENDEZVOUS_PORT", Value: strconv.Itoa(p.Rendezvous), Why: "port of the rendezvous, fresh each round"},
		{Name: "HOROVOD_CONTROLLER", Value: "gloo", Why: "else a Horovod that was built with MPI takes that"},
		{Name: "HOROVOD_CPU_OPERATIONS", Value: "gloo", Why: "the same"},
	}...)
	if p.Interface != "" {
		e = append(e, unset(given, job.Var{Name: "HOROVOD_GLOO_IFACE", Value: p.Interface, Why: "interface of this node's address; else gloo asks for the address of the host's name"})...)
	}
	return append(e, unset(given, unbuffered)...)
}
