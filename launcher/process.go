package launcher

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/job"
)

// This file is agents that were started one for each process, as srun and mpirun do with several tasks a node. To each other they are nodes of
// one worker; workers are told of the machines on which those stand.

// A Process is what one of them was started for.
type Process struct {
	Local int  // its number on its machine, as the platform says it; -1: it does not
	Each  int  // how many are on each machine, where that is the same on all; 0: it is not known
	Own   bool // what GPUs it sees are its own, though others are on its machine
}

// asProcess reports whether this agent is one of several on its machine, as the platform started them. Flags may say of how many nodes, and where
// they meet.
func (c Config) asProcess(found discovery.Finding) bool {
	meets := c.Endpoint+c.MasterAddr != ""
	placed := found.Barred == nil || meets && errors.Is(found.Barred, discovery.ErrNowhere) || (meets || c.JobID != "") && errors.Is(found.Barred, discovery.ErrUnnamed)
	return found.PerProcess && found.Problem == nil && placed && !c.Standalone && (c.Nodes == 0 || c.Least == 0 && (c.Nodes == found.Processes || c.Nodes == found.Nodes && found.Nodes <= found.Processes))
}

// counts reports whether the number of nodes that was said is that of processes, each of which is one.
func (c Config) counts(found discovery.Finding) bool {
	return c.Nodes == found.Processes && (c.Nodes != found.Nodes || found.Rank < 0)
}

// miscounted refuses a number of nodes that is neither that of the machines nor that of the processes: each of these would do a node's part, or,
// where there is one, train alone, which only a flag of muster's own may mean.
func (c Config) miscounted(found discovery.Finding) error {
	if !found.PerProcess || found.Problem != nil || c.Standalone || c.Nodes == 0 || c.asProcess(found) || c.Nodes == 1 && c.Dialect.Command == nil {
		return nil
	}
	if errors.Is(found.Barred, discovery.ErrNowhere) && c.Nodes > 1 && (c.Nodes == found.Processes || c.Nodes == found.Nodes) {
		return nil // which is then the sentence
	}
	machines := ""
	if found.Nodes > 0 && found.Nodes != c.Nodes {
		machines = fmt.Sprintf(" on %d nodes", found.Nodes)
	}
	return fail(job.ExitUsage, fmt.Sprintf("leave it out, say %d, or start it once per node (srun --ntasks-per-node 1, mpirun --map-by ppr:1:node)", found.Processes),
		"%s, but the platform says that this is process %d of %d%s (%s)", c.said("nnodes", job.Terms{Nodes: c.Nodes, Least: c.Least}.Size()),
		found.ProcessRank, found.Processes, machines, strings.Join(found.Evidence, ", "))
}

// planProcess settles that, and refuses what is said of whole nodes only.
func planProcess(c Config, found discovery.Finding, p *Plan) error {
	if !c.asProcess(found) {
		return nil
	}
	is := fmt.Sprintf("this is process %d of %d, each with a muster of its own (%s)", found.ProcessRank, found.Processes, strings.Join(found.Evidence, ", "))
	once := "leave it out, or start muster once per node (srun --ntasks-per-node 1, mpirun --map-by ppr:1:node)"
	switch n, err := strconv.Atoi(c.NProc); {
	case err == nil && n > 1, c.NProc == "cpu":
		return fail(job.ExitUsage, once, "%s, but %s", c.said("nproc-per-node", c.NProc), is)
	case c.NodeRank >= 0 && c.counts(found) && c.NodeRank != found.ProcessRank:
		return fail(job.ExitUsage, "leave it out", "%s, but %s", c.said("node-rank", c.NodeRank), is)
	case c.NodeRank >= 0 && !c.counts(found) && found.Rank >= 0 && c.NodeRank != found.Rank:
		return fail(job.ExitUsage, "leave it out", "%s, but %s on node %d", c.said("node-rank", c.NodeRank), is, found.Rank)
	case c.Spares > 0:
		return fail(job.ExitUsage, once, "%s, but %s, and none is left over", c.said("spares", c.Spares), is)
	case c.Dialect.Cores.Asked:
		return fail(job.ExitUsage, "let it bind them (srun --cpu-bind), or start muster once per node", "%s says on which cores workers run, but %s", c.Dialect.Cores.From, is)
	case p.Framework.PMI:
		return fail(job.ExitUsage, "start the program itself by srun or mpirun, which is a launcher of MPI's", "--framework %s, but %s", p.Framework.Name, is)
	}
	p.Process, p.Spec.Process = &Process{Local: found.LocalRank}, true
	if found.Nodes > 0 && found.Processes%found.Nodes == 0 {
		p.Process.Each = found.Processes / found.Nodes
	}
	return nil
}

// sees tells a process that was given GPUs of its own from one that sees those of its whole machine, of which the platform says how many there are.
func (q *Process) sees(p *Plan, all int) {
	if q == nil {
		return
	}
	q.Own = p.GPUs < all
	if p.GPUs > 0 && q.Local >= p.GPUs {
		q.Own = true
		p.Notes = append(p.Notes, fmt.Sprintf("this process has LOCAL_RANK %d and sees %d GPU of its own: a script that takes the GPU of that number finds none; "+
			"let all processes see all GPUs (srun --gpu-bind=none), or let the script take GPU 0", q.Local, p.GPUs))
	}
}

// told is a place in which workers are told of machines instead of agents.
func (q *Process) told(p *framework.Place) {
	if q != nil {
		p.PerProcess, p.Own = true, q.Own
	}
}

// machine is the name of a machine in a world that is only thought of.
func (q *Process) machine(agent int, own string) string {
	if q == nil || q.Each == 0 {
		return own
	}
	return fmt.Sprintf("machine %d", agent/q.Each)
}

// process makes sure that the world says of this node's machine what the platform does: names of machines may not be theirs alone.
func (r *round) process() error {
	q, w := r.plan.Process, r.session.World
	if q == nil || q.Local < 0 || len(w.Members) != r.plan.Spec.Nodes {
		return nil
	}
	p := framework.Place{World: w, Group: r.session.Rank, PerProcess: true}
	if local, size := p.Local(0); local != q.Local {
		return fail(job.ExitRefused, "start muster once per node (srun --ntasks-per-node 1), or give each machine a name of its own",
			"the platform says that this is process %d of its machine, but of the %d on machines called %s it is number %d", q.Local, size, w.Members[r.session.Rank].Name, local)
	}
	return nil
}
