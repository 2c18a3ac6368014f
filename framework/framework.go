// Package framework turns a world into the tasks that a training framework expects: one file and one line a framework.
package framework

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-run/muster/job"
)

// A Place is one node's position in a round: the world, which member this node is, and where the ranks meet.
type Place struct {
	World       job.World
	Group       int    // this node's group rank
	MasterAddr  string // rank 0's node, as this node reaches it
	MasterPort  int    // where rank 0 or the agent hosts the workers' store
	AgentStore  bool   // the store on MasterPort is muster's, so rank 0 must not host one
	Restarts    int    // rounds before this one
	MaxRestarts int
	ErrorDir    string // of this round on this node, for ErrorDir/LOCAL_RANK/error.json; "" in a dry run
}

// A Framework knows what one training framework expects of whoever starts its processes.
type Framework struct {
	Name string
	Doc  string // one line
	// env returns the variables of the worker with this local rank. given looks up the user's own environment,
	// of which nothing but per-process variables may be overwritten.
	env func(p Place, local int, given func(string) (string, bool)) job.Env
}

// frameworks is every framework that muster knows, the default first.
var frameworks = []Framework{torch}

// Lookup returns the framework with this name; "" is the default.
func Lookup(name string) (Framework, error) {
	if name == "" {
		return frameworks[0], nil
	}
	i := slices.IndexFunc(frameworks, func(f Framework) bool { return f.Name == name })
	if i < 0 {
		var names []string
		for _, f := range frameworks {
			names = append(names, f.Name)
		}
		return Framework{}, fmt.Errorf("no framework %q; there is %s", name, strings.Join(names, ", "))
	}
	return frameworks[i], nil
}

// Tasks returns one task for each slot of this node, in the order of local ranks.
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
