package framework

import (
	"strconv"

	"github.com/muster-run/muster/job"
)

// torch is PyTorch's contract as torchrun keeps it (torch/distributed/elastic/agent/server/local_elastic_agent.py),
// which accelerate, DeepSpeed, Lightning, Composer, Megatron and Transformers read as well.
var torch = Framework{
	Name: "torch",
	Doc:  "PyTorch and what stands on it: env:// with RANK, WORLD_SIZE, MASTER_ADDR and torchrun's own variables",
	env:  torchEnv,
}

func torchEnv(p Place, local int, given func(string) (string, bool)) job.Env {
	e := append(torchRanks(p, local), torchMeeting(p)...)
	e = append(e, torchElastic(p, local)...)
	return append(e, torchDefaults(p.World.Members[p.Group].Slots, given)...)
}

// torchRanks are the per-process variables: always ours, for a platform fills the same names with numbers of nodes.
func torchRanks(p Place, local int) job.Env {
	me := p.World.Members[p.Group]
	rank, size := strconv.Itoa(me.First+local), strconv.Itoa(p.World.Size())
	group, groups := strconv.Itoa(p.Group), strconv.Itoa(len(p.World.Members))
	slots := strconv.Itoa(me.Slots)
	return job.Env{
		{Name: "RANK", Value: rank, Why: "global rank of this worker"},
		{Name: "WORLD_SIZE", Value: size, Why: "workers on all nodes"},
		{Name: "LOCAL_RANK", Value: strconv.Itoa(local), Why: "rank of this worker on its node; scripts choose the GPU by it"},
		{Name: "LOCAL_WORLD_SIZE", Value: slots, Why: "workers on this node"},
		{Name: "NODE_RANK", Value: group, Why: "group rank of this node (Composer, MaxText)"},
		{Name: "GROUP_RANK", Value: group, Why: "group rank of this node (torchrun, Lightning)"},
		{Name: "GROUP_WORLD_SIZE", Value: groups, Why: "number of nodes"},
		{Name: "ROLE_NAME", Value: "default", Why: "torchrun's role; muster has one"},
		{Name: "ROLE_RANK", Value: rank, Why: "rank within the role, which is all of the world"},
		{Name: "ROLE_WORLD_SIZE", Value: size, Why: "size of the role, which is all of the world"},
		{Name: "LOCAL_SIZE", Value: slots, Why: "DeepSpeed's name for LOCAL_WORLD_SIZE"},
		{Name: "CROSS_RANK", Value: group, Why: "DeepSpeed's name for GROUP_RANK"},
		{Name: "CROSS_SIZE", Value: groups, Why: "DeepSpeed's name for GROUP_WORLD_SIZE"},
	}
}

// torchMeeting says where the ranks meet, and who hosts that store.
func torchMeeting(p Place) job.Env {
	port, why := strconv.Itoa(p.MasterPort), "port on which rank 0 hosts the workers' store, fresh each round"
	use := job.Var{Name: "TORCHELASTIC_USE_AGENT_STORE", Value: "False", Why: "rank 0 hosts the workers' store"}
	if p.AgentStore {
		why = "port of the workers' store that the agent hosts, fresh each round"
		use.Value, use.Why = "True", "the agent hosts the workers' store: rank 0 is a client like the others"
	}
	return job.Env{
		{Name: "MASTER_ADDR", Value: p.MasterAddr, Why: "rank 0's node, by the address at which this node reached it"},
		{Name: "MASTER_PORT", Value: port, Why: why},
		use,
	}
}

func torchElastic(p Place, local int) job.Env {
	e := job.Env{
		{Name: "TORCHELASTIC_RUN_ID", Value: p.World.ID, Why: "the job's id; Lightning and torch know a launcher by it"},
		{Name: "TORCHELASTIC_RESTART_COUNT", Value: strconv.Itoa(p.Restarts), Why: "rounds before this one, the same on all nodes"},
		{Name: "TORCHELASTIC_MAX_RESTARTS", Value: strconv.Itoa(p.MaxRestarts), Why: "rounds that may follow the first"},
	}
	if p.ErrorDir != "" {
		e = append(e, job.Var{Name: "TORCHELASTIC_ERROR_FILE", Value: errorFile(p.ErrorDir, local), Why: "where a script under @record leaves its exception"})
	}
	return e
}

// torchDefaults are settings that the user may have made himself; his stay.
func torchDefaults(slots int, given func(string) (string, bool)) job.Env {
	defaults := job.Env{
		{Name: "TORCH_NCCL_ASYNC_ERROR_HANDLING", Value: "1", Why: "torchrun's default: a failed NCCL collective ends the worker"},
		{Name: "NCCL_ASYNC_ERROR_HANDLING", Value: "1", Why: "the same for PyTorch before 2.2"},
		{Name: "PYTHONUNBUFFERED", Value: "1", Why: "lines of output when they are printed, not 8 KiB later"},
	}
	if slots > 1 {
		defaults = append(defaults, job.Var{Name: "OMP_NUM_THREADS", Value: "1", Why: "torchrun's default for several workers a node"})
	}
	var e job.Env
	for _, v := range defaults {
		if _, set := given(v.Name); !set {
			e = append(e, v)
		}
	}
	return e
}
