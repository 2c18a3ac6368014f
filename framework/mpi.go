package framework

import (
	"strconv"

	"github.com/muster-run/muster/job"
)

// mpi is MPI of the MPICH family without mpiexec: the variables by which its process manager Hydra makes processes a world
// (src/pm/hydra/proxy/pmip_cb.c), and MVAPICH's names for the same numbers. The protocol behind PMI_FD is package pmi's.
var mpi = Framework{
	Name:  MPI,
	Doc:   "MPICH, Intel MPI and MVAPICH without mpiexec: PMI-1. Open MPI does not speak it: see docs/no-ssh.md",
	Calls: true,
	PMI:   true,
	env:   mpiEnv,
}

// MPI is the name of that profile.
const MPI = "mpi"

// PMIDescriptor is where a worker finds its connection to the server of PMI: the first one behind the standard streams.
const PMIDescriptor = 3

func mpiEnv(p Place, local int, given func(string) (string, bool)) job.Env {
	me := p.World.Members[p.Group]
	rank, size := strconv.Itoa(me.First+local), strconv.Itoa(p.World.Size())
	number, slots := strconv.Itoa(local), strconv.Itoa(me.Slots)
	e := append(p.ranks(local), p.meeting()...)
	e = append(e, job.Env{
		{Name: "PMI_FD", Value: strconv.Itoa(PMIDescriptor), Why: "inherited connection at which muster answers MPI_Init"},
		{Name: "PMI_RANK", Value: rank, Why: "RANK, in the words of PMI"},
		{Name: "PMI_SIZE", Value: size, Why: "WORLD_SIZE, in the words of PMI"},
		{Name: "MPI_LOCALRANKID", Value: number, Why: "LOCAL_RANK, in the words of MPICH and Intel MPI"},
		{Name: "MPI_LOCALNRANKS", Value: slots, Why: "LOCAL_WORLD_SIZE, in the words of MPICH and Intel MPI"},
		{Name: "MV2_COMM_WORLD_RANK", Value: rank, Why: "MVAPICH's name for RANK"},
		{Name: "MV2_COMM_WORLD_SIZE", Value: size, Why: "MVAPICH's name for WORLD_SIZE"},
		{Name: "MV2_COMM_WORLD_LOCAL_RANK", Value: number, Why: "MVAPICH's name for LOCAL_RANK; scripts choose the GPU by it"},
		{Name: "MV2_COMM_WORLD_LOCAL_SIZE", Value: slots, Why: "MVAPICH's name for LOCAL_WORLD_SIZE"},
	}...)
	e = append(e, p.interfaceHost(given)...)
	return append(e, unset(given, unbuffered)...)
}

// interfaceHost says at which address of this node MPICH's older devices are called, unless the user named an interface: both are an
// error (src/mpid/ch3/channels/nemesis/netmod/tcp/tcp_init.c).
func (p Place) interfaceHost(given func(string) (string, bool)) job.Env {
	for _, name := range []string{"MPIR_CVAR_CH3_NETWORK_IFACE", "MPIR_CVAR_NETWORK_IFACE", "MPICH_NETWORK_IFACE"} {
		if _, set := given(name); set {
			return nil
		}
	}
	return unset(given, job.Var{Name: "MPIR_CVAR_CH3_INTERFACE_HOSTNAME", Value: p.Hosts[p.Group], Why: "this node's address, for ch3 of MPICH and MVAPICH"})
}
