package framework

import (
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// jax is what jax.distributed.initialize reads (jax/_src/distributed.py). It has no variables for the number of processes and one's
// own: without arguments it learns them from a cluster that it knows, and Slurm's are its plainest words
// (jax/_src/clusters/slurm_cluster.py).
var jax = Framework{
	Name:    "jax",
	Doc:     "JAX: jax.distributed.initialize() without arguments, and the names of JAXJob and MaxText",
	Master:  true,
	Calls:   true,
	Imports: "jax flax optax",
	Library: "libjax_common.so",
	env:     jaxEnv,
}

func jaxEnv(p Place, local int, given func(string) (string, bool)) job.Env {
	e := append(p.ranks(local), p.meeting()...)
	e = append(e, jaxRanks(p, local)...)
	if ids := p.devices(local); ids != "" {
		e = append(e, unset(given, job.Var{Name: "JAX_LOCAL_DEVICE_IDS", Value: ids, Why: "this worker's share of the GPUs that it sees"})...)
	}
	e = append(e, unset(given,
		job.Var{Name: "SLURM_JOB_ID", Value: "0", Why: "JAX looks for it beside the next ones"},
		job.Var{Name: "SLURM_STEP_NODELIST", Value: p.MasterAddr, Why: "the same; JAX_COORDINATOR_ADDRESS says more"})...)
	e = append(e, p.direct(given)...)
	return append(e, unset(given, unbuffered)...)
}

// jaxRanks are further names for where rank 0 serves, and for a worker's numbers.
func jaxRanks(p Place, local int) job.Env {
	me := p.World.Members[p.Group]
	number, locals := p.Local(local)
	rank, size, port := strconv.Itoa(me.First+local), strconv.Itoa(p.World.Size()), strconv.Itoa(p.MasterPort)
	e := job.Env{
		{Name: "JAX_COORDINATOR_ADDRESS", Value: p.master(), Why: "where rank 0 serves, for jax.distributed.initialize"},
		{Name: "JAX_COORDINATOR_PORT", Value: port, Why: "the same port"},
		{Name: "SLURM_NTASKS", Value: size, Why: "WORLD_SIZE, in the words in which JAX looks for it"},
		{Name: "SLURM_PROCID", Value: rank, Why: "RANK, in the words in which JAX looks for it"},
		{Name: "SLURM_LOCALID", Value: strconv.Itoa(number), Why: "LOCAL_RANK, in the words in which JAX looks for it"},
		{Name: "COORDINATOR_ADDRESS", Value: p.MasterAddr, Why: "JAXJob's name for MASTER_ADDR"},
		{Name: "COORDINATOR_PORT", Value: port, Why: "JAXJob's name for MASTER_PORT"},
		{Name: "NUM_PROCESSES", Value: size, Why: "JAXJob's name for WORLD_SIZE"},
		{Name: "PROCESS_ID", Value: rank, Why: "JAXJob's name for RANK"},
	}
	if locals > 1 { // MaxText takes a node for a process
		return e
	}
	return append(e,
		job.Var{Name: "JAX_COORDINATOR_IP", Value: p.MasterAddr, Why: "MaxText's name for MASTER_ADDR"},
		job.Var{Name: "NNODES", Value: strconv.Itoa(len(p.World.Members)), Why: "MaxText's name for the number of nodes"})
}

// direct keeps gRPC, by which the processes of JAX and TensorFlow talk to each other, from asking a proxy for the way to another node
// (grpc, doc/environment_variables.md).
func (p Place) direct(given func(string) (string, bool)) job.Env {
	for _, name := range []string{"grpc_proxy", "https_proxy", "http_proxy"} {
		if proxy, set := given(name); set && proxy != "" {
			hosts := strings.Join(p.Hosts, ",")
			return unset(given, job.Var{Name: "no_grpc_proxy", Value: hosts, Why: "nodes reach each other without the proxy of " + name})
		}
	}
	return nil
}
