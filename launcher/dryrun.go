package launcher

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"

	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
	"github.com/muster-run/muster/witness"
)

// Dry is what a run would do.
type Dry struct {
	Plan Plan
	Task job.Task
	User func(name string) (string, bool) // the user's own environment, without what another launcher's words add
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
		World: world, Job: p.Called, Group: group, MasterAddr: host, MasterPort: c.WorkerPort, AgentStore: agentStore(c), GPUs: p.GPUs, Servers: p.Spec.Servers,
		MaxRestarts: p.Restarts, ErrorDir: runPlace,
	}
	p.Process.told(&place)
	if p.Framework.Rendezvous {
		place.Interface = fmt.Sprintf("<interface of node %d>", group)
	}
	if c.Tune != tuneOff {
		at := host
		if p.Etcd != nil {
			at = ""
		}
		world.Terms = p.Spec.Terms
		choice := p.choose(c, world, at, "the nodes meet in etcd, and have not met yet", filepath.Join(runPlace, topologyFile), net.DefaultResolver.LookupHost)
		place.Networks = tuned(choice)
		p.Notes = slices.Concat(p.Notes, stays(choice), choice.Notes)
	}
	for n := range world.Members {
		place.Hosts = append(place.Hosts, fmt.Sprintf("<node %d>", n))
	}
	tasks := p.Tasks(place, c)
	d := Dry{Plan: p, Task: tasks[rank-world.Members[group].First], User: Config{Environ: c.Environ}.getenv}
	d.Task.Env = lasting(append(d.Task.Env, p.watched(c, d.Task)...))
	d.Kept = len(d.Task.Env.Over(c.Environ)) - len(d.Task.Env.Over(nil))
	return d, nil
}

// runPlace stands for the directory that a run makes for itself.
const runPlace = "<directory of the run>"

// watched are the variables by which a worker is watched, and found.
func (p Plan) watched(c Config, t job.Task) job.Env {
	path := pagePath(runPlace, 0, t.LocalRank)
	e := append(pageEnv(filepath.Join(runPlace, "hook"), path, c.getenv),
		job.Var{Name: page.SocketName, Value: page.SocketFile(path), Why: "where the worker may say how far it is, in datagrams of text"},
		job.Var{Name: proc.TagName, Value: fmt.Sprintf("<job>/%d/<round>/<nonce>", t.Rank), Why: "by which the worker's processes are found, whatever they start"})
	_, given := c.getenv(witness.RASName)
	if enabled, _ := c.getenv("NCCL_RAS_ENABLE"); len(p.Devices) > 0 && enabled != "0" && !given {
		v := witness.RASVar(0)
		e = append(e, job.Var{Name: v.Name, Value: "<a free port>", Why: v.Why})
	}
	return e
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
	name := s.Self.Name
	for n := range s.Nodes {
		s.Self.Name = p.Process.machine(n, name)
		w.Members = append(w.Members, job.Member{Node: s.Self, First: n * s.Self.Slots})
	}
	return w
}
