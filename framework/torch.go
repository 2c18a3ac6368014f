package framework

import (
	"cmp"
	"strconv"

	"github.com/muster-run/muster/job"
)

// torch is PyTorch's contract as torchrun keeps it (torch/distributed/elastic/agent/server/local_elastic_agent.py),
// which accelerate, DeepSpeed, Lightning, Composer, Megatron and Transformers read as well.
var torch = Framework{
	Name:    "torch",
	Doc:     "PyTorch and what stands on it: env:// with RANK, WORLD_SIZE, MASTER_ADDR and torchrun's own variables",
	Imports: "torch accelerate deepspeed lightning pytorch_lightning torchvision torchaudio timm diffusers peft trl composer megatron fairscale",
	Perhaps: "transformers",
	Library: "libtorch_python.so",
	env:     torchEnv,
}

func torchEnv(p Place, local int, given func(string) (string, bool)) job.Env {
	e := append(p.ranks(local), torchRanks(p, local)...)
	e = append(e, p.meeting()...)
	e = append(e, torchStore(p))
	e = append(e, torchElastic(p, local)...)
	return append(e, torchDefaults(p, given)...)
}

// torchRanks are further names for the same numbers.
func torchRanks(p Place, local int) job.Env {
	me := p.World.Members[p.Group]
	rank, size := strconv.Itoa(me.First+local), strconv.Itoa(p.World.Size())
	_, locals := p.Local(local)
	node, nodes := p.Node()
	group, groups := strconv.Itoa(node), strconv.Itoa(nodes)
	return job.Env{
		{Name: "GROUP_RANK", Value: group, Why: "group rank of this node (torchrun, Lightning)"},
		{Name: "GROUP_WORLD_SIZE", Value: groups, Why: "number of nodes"},
		{Name: "ROLE_NAME", Value: "default", Why: "torchrun's role; muster has one"},
		{Name: "ROLE_RANK", Value: rank, Why: "rank within the role, which is all of the world"},
		{Name: "ROLE_WORLD_SIZE", Value: size, Why: "size of the role, which is all of the world"},
		{Name: "LOCAL_SIZE", Value: strconv.Itoa(locals), Why: "DeepSpeed's name for LOCAL_WORLD_SIZE"},
		{Name: "CROSS_RANK", Value: group, Why: "DeepSpeed's name for GROUP_RANK"},
		{Name: "CROSS_SIZE", Value: groups, Why: "DeepSpeed's name for GROUP_WORLD_SIZE"},
	}
}

// torchStore says who hosts the store where the ranks meet.
func torchStore(p Place) job.Var {
	if p.AgentStore {
		return job.Var{Name: "TORCHELASTIC_USE_AGENT_STORE", Value: "True", Why: "the agent hosts the workers' store: rank 0 is a client like the others"}
	}
	return job.Var{Name: "TORCHELASTIC_USE_AGENT_STORE", Value: "False", Why: "rank 0 hosts the workers' store"}
}

func torchElastic(p Place, local int) job.Env {
	e := job.Env{
		{Name: "TORCHELASTIC_RUN_ID", Value: cmp.Or(p.Job, p.World.ID), Why: "the job's id; Lightning and torch know a launcher by it"},
		{Name: "TORCHELASTIC_RESTART_COUNT", Value: strconv.Itoa(p.Restarts), Why: "rounds before this one, the same on all nodes"},
		{Name: "TORCHELASTIC_MAX_RESTARTS", Value: strconv.Itoa(p.MaxRestarts), Why: "rounds that may follow the first"},
	}
	if p.ErrorDir != "" {
		e = append(e, job.Var{Name: "TORCHELASTIC_ERROR_FILE", Value: errorFile(p.ErrorDir, local), Why: "where a script under @record leaves its exception"})
	}
	return e
}

// torchDefaults are settings that the user may have made himself; his stay.
func torchDefaults(p Place, given func(string) (string, bool)) job.Env {
	defaults := job.Env{
		{Name: "TORCH_NCCL_ASYNC_ERROR_HANDLING", Value: "1", Why: "torchrun's default: a failed NCCL collective ends the worker"},
		{Name: "NCCL_ASYNC_ERROR_HANDLING", Value: "1", Why: "the same for PyTorch before 2.2"},
		unbuffered,
	}
	if _, locals := p.Local(0); locals > 1 {
		defaults = append(defaults, job.Var{Name: "OMP_NUM_THREADS", Value: "1", Why: "torchrun's default for several workers a node"})
	}
	return unset(given, defaults...)
}
