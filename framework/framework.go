// Package framework turns a world into the tasks that a training framework expects: one file and one line a framework.
package framework

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// A Place is one node's position in a round: the world, which member this node is, and where the ranks meet.
type Place struct {
	World       job.World
	Job         string   // as a user or its platform calls it, whichever attempt at it this is; "": as the world's ID has it
	Group       int      // this node's group rank
	Hosts       []string // of all nodes, by group rank, as this node reaches them; nil where the framework makes no Calls
	MasterAddr  string   // rank 0's node, as this node reaches it
	MasterPort  int      // where rank 0 or the agent hosts the workers' store
	AgentStore  bool     // the store on MasterPort is muster's, so rank 0 must not host one
	Rendezvous  int      // port on rank 0's node at which muster serves the framework's own protocol
	Interface   string   // this node's with its address among Hosts; "": nobody knows
	GPUs        int      // that this node's workers see, all of them
	Servers     int      // how many nodes, the last ones, are parameter servers
	PerProcess  bool     // each process has an agent, so that several members of the world may be on one machine
	Own         bool     // of GPUs, those that this node's workers see are theirs alone
	Restarts    int      // rounds before this one
	MaxRestarts int
	Networks    job.Env // what workers are told of those between the nodes, under all else
	ErrorDir    string  // of this round on this node, for ErrorDir/LOCAL_RANK/error.json; "" in a dry run
}

// A Framework knows what one training framework expects of whoever starts its processes.
type Framework struct {
	Name string
	Doc  string // one line
	// Whole: one process a node, with all its GPUs, is usual.
	Whole bool
	// Master: rank 0 serves a protocol of the framework's own at MasterAddr:MasterPort, if anybody serves there.
	Master bool
	// Listens: each worker listens at a port of its own, which all others are told.
	Listens bool
	// Calls: workers are told where all nodes are, as Place.Hosts.
	Calls bool
	// IPv4: it takes addresses apart at their first colon.
	IPv4 bool
	// PMI: workers inherit a connection, at PMIDescriptor, to a server of that protocol.
	PMI bool
	// Rendezvous: workers meet at MasterAddr:Place.Rendezvous, where muster serves package horovod's protocol.
	Rendezvous bool
	// Imports are the modules by which a program tells that it is its; Perhaps those that stand on others, too. Library is what its processes
	// have loaded; "": nothing tells.
	Imports, Perhaps, Library string
	// Beside: programs of PyTorch's import it, too, for their data or log files.
	Beside bool
	// Servers: nodes may be parameter servers, and Success then says whose end is the job's, in the words of --success.
	Servers bool
	Success string
	// env returns the variables of the worker with this local rank. given looks up the user's own environment,
	// of which nothing but per-process variables may be overwritten.
	env func(p Place, local int, given func(string) (string, bool)) job.Env
}

// frameworks is every framework that muster knows, the default first.
var frameworks = []Framework{torch, none, jax, tensorflow, paddle, mpi, horovodRun}

// Default is the framework of those who say nothing.
const Default = "torch"

// Lookup returns the framework with this name; "" is the default.
func Lookup(name string) (Framework, error) {
	if name == "" {
		return frameworks[0], nil
	}
	i := slices.IndexFunc(frameworks, func(f Framework) bool { return f.Name == name })
	if i < 0 {
		return Framework{}, fmt.Errorf("no framework %q; there is %s", name, strings.Join(Names(), ", "))
	}
	return frameworks[i], nil
}

// Names are those of all frameworks, the default first.
func Names() []string {
	var names []string
	for _, f := range frameworks {
		names = append(names, f.Name)
	}
	return names
}

// Ports is how many ports of a node with so many slots all others are to be told.
func (f Framework) Ports(slots int) int {
	if !f.Listens {
		return 0
	}
	return slots
}

// Check reports which node of a world did not tell what the workers of all must know of it.
func (f Framework) Check(w job.World) error {
	for i, m := range w.Members {
		if got, want := len(m.Ports), f.Ports(m.Slots); got < want {
			return fmt.Errorf("node %d (%s) told %d ports for its %d workers, and %s needs one for each: "+
				"does it run with another --framework, or an older muster?", i, m.Name, got, m.Slots, f.Name)
		}
	}
	return nil
}

// Tasks returns one task for each slot of this node, in the order of local ranks. The world is one that Check has seen.
func (f Framework) Tasks(p Place, argv []string, given func(string) (string, bool)) []job.Task {
	me := p.World.Members[p.Group]
	tasks := make([]job.Task, me.Slots)
	for local := range tasks {
		tasks[local] = job.Task{
			Rank:      me.First + local,
			LocalRank: local,
			Argv:      argv,
			Env:       f.env(p, local, given),
		}
	}
	return tasks
}

// ranks are the per-process variables that scripts of all frameworks may read: always ours, for a platform fills the same names
// with numbers of nodes.
func (p Place) ranks(local int) job.Env {
	rank := p.World.Members[p.Group].First + local
	local, locals := p.Local(local)
	node, _ := p.Node()
	return job.Env{
		{Name: "RANK", Value: strconv.Itoa(rank), Why: "global rank of this worker"},
		{Name: "WORLD_SIZE", Value: strconv.Itoa(p.World.Size()), Why: "workers on all nodes"},
		{Name: "LOCAL_RANK", Value: strconv.Itoa(local), Why: "rank of this worker on its node; scripts choose the GPU by it"},
		{Name: "LOCAL_WORLD_SIZE", Value: strconv.Itoa(locals), Why: "workers on this node"},
		{Name: "NODE_RANK", Value: strconv.Itoa(node), Why: "group rank of this node (Composer, MaxText)"},
	}
}

// Local is the number on its machine of this node's worker with a local rank, and how many are on that machine.
func (p Place) Local(rank int) (local, all int) {
	me := p.World.Members[p.Group]
	if !p.PerProcess {
		return rank, me.Slots
	}
	for i, m := range p.World.Members {
		if m.Name != me.Name {
			continue
		}
		if i < p.Group {
			local += m.Slots
		}
		all += m.Slots
	}
	return local + rank, all
}

// Node is the number of this node's machine, by the order of ranks, and how many there are.
func (p Place) Node() (rank, all int) {
	if !p.PerProcess {
		return p.Group, len(p.World.Members)
	}
	seen := map[string]int{}
	for _, m := range p.World.Members {
		if _, known := seen[m.Name]; !known {
			seen[m.Name] = len(seen)
		}
	}
	return seen[p.World.Members[p.Group].Name], len(seen)
}

// meeting says where the ranks meet, and who serves there.
func (p Place) meeting() job.Env {
	why := "port on which rank 0 hosts the workers' store, fresh each round"
	if p.AgentStore {
		why = "port of the workers' store that the agent hosts, fresh each round"
	}
	return job.Env{
		{Name: "MASTER_ADDR", Value: p.MasterAddr, Why: "rank 0's node, by the address at which this node reached it"},
		{Name: "MASTER_PORT", Value: strconv.Itoa(p.MasterPort), Why: why},
	}
}

// master is where rank 0 serves.
func (p Place) master() string { return net.JoinHostPort(p.MasterAddr, strconv.Itoa(p.MasterPort)) }

// endpoints are where the workers of some nodes listen, by rank.
func (p Place) endpoints(from, to int) []string {
	var all []string
	for group := from; group < to; group++ {
		for local := range p.World.Members[group].Slots {
			all = append(all, p.endpoint(group, local))
		}
	}
	return all
}

func (p Place) endpoint(group, local int) string {
	return net.JoinHostPort(p.Hosts[group], strconv.Itoa(p.World.Members[group].Ports[local]))
}

// trainers is how many nodes train: the first ones, for those that are parameter servers are the last.
func (p Place) trainers() int { return len(p.World.Members) - p.Servers }

// devices are a worker's GPUs, as indexes into those that its node's workers see: an equal share, or one in turn where there are
// more workers than GPUs; "" where there are none.
func (p Place) devices(local int) string {
	local, slots := p.Local(local)
	if p.Own {
		local, slots = 0, 1
	}
	if p.GPUs == 0 || slots == 0 {
		return ""
	}
	var mine []string
	share := max(p.GPUs/slots, 1)
	for i := range share {
		mine = append(mine, strconv.Itoa((local*share+i)%p.GPUs))
	}
	return strings.Join(mine, ",")
}

// unset are those of defaults that the user did not set himself.
func unset(given func(string) (string, bool), defaults ...job.Var) (e job.Env) {
	for _, v := range defaults {
		if _, set := given(v.Name); !set {
			e = append(e, v)
		}
	}
	return e
}

// unbuffered is a default of all Python.
var unbuffered = job.Var{Name: "PYTHONUNBUFFERED", Value: "1", Why: "lines of output when they are printed, not 8 KiB later"}
