package launcher

import (
	"fmt"
	"slices"

	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/job"
)

// Dry is what a run would do.
type Dry struct {
	Plan Plan
	Task job.Task
	User func(name string) (string, bool) // the user's own environment
	Kept int                              // variables of it that workers get as they are
}

// DryRun plans a run without meeting anybody: all nodes are taken to be like this one. What only the meeting
// decides is shown as what it stands for.
func DryRun(c Config, rank int) (Dry, error) {
	p, err := NewPlan(c)
	if err != nil {
		return Dry{}, err
	}
	world := uniform(p)
	group, ok := world.MemberOf(rank)
	if !ok {
		return Dry{}, fail(job.ExitUsage, "", "rank %d: the world would have ranks 0 to %d", rank, world.Size()-1)
	}
	host := "127.0.0.1"
	switch {
	case p.Etcd != nil:
		host = "<group rank 0's node>"
	case p.Endpoint != "":
		host = hostOf(p.Endpoint)
	}
	place := framework.Place{
		World: world, Group: group, MasterAddr: host, MasterPort: c.WorkerPort, AgentStore: agentStore(c), GPUs: p.GPUs, Servers: p.Spec.Servers,
		MaxRestarts: p.Restarts,
	}
	for n := range world.Members {
		place.Hosts = append(place.Hosts, fmt.Sprintf("<node %d>", n))
	}
	tasks := p.Tasks(place, c)
	d := Dry{Plan: p, Task: tasks[rank-world.Members[group].First], User: c.getenv}
	d.Task.Env = lasting(d.Task.Env)
	d.Kept = len(d.Task.Env.Over(c.Environ)) - len(d.Task.Env.Over(nil))
	return d, nil
}

// lasting are the variables that a worker gets: of those with one name the last.
func lasting(e job.Env) (last job.Env) {
	for i, v := range e {
		if !slices.ContainsFunc(e[i+1:], func(later job.Var) bool { return later.Name == v.Name }) {
			last = append(last, v)
		}
	}
	return last
}

// uniform is a world of nodes that are all like this one. Their ports are 0: nobody has taken any.
func uniform(p Plan) job.World {
	s := p.Spec
	s.Self.Ports = make([]int, p.Framework.Ports(s.Self.Slots))
	w := job.World{ID: s.ID, Generation: 1}
	for n := range s.Nodes {
		w.Members = append(w.Members, job.Member{Node: s.Self, First: n * s.Self.Slots})
	}
	return w
}
