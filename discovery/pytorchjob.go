package discovery

import (
	"strconv"

	"github.com/muster-run/muster/lazy"
)

// masterPod is the name of a PyTorchJob's first pod, and of its Service. Volcano's has a dot behind it.
var masterPod = lazy.Regexp(`^[a-z0-9]([-a-z0-9]*)-master-0$`)

// pytorchJob is Kubeflow's training-operator (pkg/controller.v1/pytorch/envvar.go), and what others make of it. RANK counts nodes;
// WORLD_SIZE does so too, but from version 1.7 on, with a number in nprocPerNode, processes: PET_NNODES leaves no doubt.
var pytorchJob = platform{
	name: "pytorchjob",
	here: func(r *reader) bool { return hasMaster(r) || workersOnly(r) },
	find: findPyTorchJob,
	over: []string{"pet", "generic", "ordinal"},
}

// hasMaster reports whether the variables are those of a job with a master.
func hasMaster(r *reader) bool {
	_, size := r.plain("WORLD_SIZE")
	_, rank := r.plain("RANK")
	_, port := r.plain("MASTER_PORT")
	if !size || !rank || !port || r.any("VC_TASK_INDEX", "WORKER_ADDRS", "JOB_COMPLETION_INDEX") {
		return false
	}
	return masterPod().MatchString(r.get("MASTER_ADDR")) || ownMaster(r)
}

// ownMaster reports whether this is the master of version 1.3, which is told that it is at "localhost".
func ownMaster(r *reader) bool {
	return r.get("MASTER_ADDR") == "localhost" && r.get("RANK") == "0" && r.inKubernetes()
}

// workersOnly reports whether this is a worker of a job without a master, which its name numbers and nothing else.
func workersOnly(r *reader) bool {
	_, _, n, ok := member(first(r.host.Hostname), "worker")
	if _, most, err := petNodes(&reader{host: r.host}); err == nil && n >= most || r.onHost() {
		return false // the name is a machine's
	}
	return ok && r.inKubernetes() && r.any("PET_NNODES") && !r.any("JOB_COMPLETION_INDEX", "MASTER_ADDR", "PET_MASTER_ADDR", "PET_NODE_RANK")
}

func findPyTorchJob(r *reader, f *Finding) (err error) {
	if f.NProc = r.text("PET_N_PROC_PER_NODE"); f.NProc != "" { // as version 1.4 spells it
		f.NProcBy = "PET_N_PROC_PER_NODE"
	}
	if !hasMaster(r) {
		return findWorkersOnly(r, f)
	}
	if err := r.world(f, "WORLD_SIZE", "RANK"); err != nil {
		return err
	}
	if r.get("PET_NNODES") != "" {
		if f.Least, f.Nodes, err = petNodes(r); err != nil {
			return err
		}
	} else if share, err := strconv.Atoi(r.get("PET_NPROC_PER_NODE")); err == nil && r.any("PET_NODE_RANK") && share > 0 && f.Nodes%share == 0 {
		f.Nodes /= share
	}
	if f.Rank, err = r.maybe("PET_NODE_RANK", 0, f.Rank); err != nil {
		return err
	}
	if r.any("PET_RDZV_ENDPOINT") {
		f.Rank, f.Prefer = -1, f.Rank
	}
	masterAndWorkers(f)
	switch {
	case f.Prefer >= 0:
		return petEndpoint(r, f)
	case ownMaster(r):
		r.text("MASTER_ADDR")
		r.itself(f)
		f.Port, err = r.port("MASTER_PORT")
		return err
	case r.any("PET_MASTER_ADDR"):
		return r.master("PET_MASTER_ADDR", "PET_MASTER_PORT", f)
	}
	return r.master("MASTER_ADDR", "MASTER_PORT", f)
}

// findWorkersOnly numbers the workers by their names.
func findWorkersOnly(r *reader, f *Finding) (err error) {
	base, role, n, _ := member(first(r.host.Hostname), "worker")
	r.saw("the pod's name " + r.host.Hostname)
	f.Role, f.Index = role, n
	if f.Least, f.Nodes, err = petNodes(r); err != nil {
		return err
	}
	if r.any("PET_RDZV_ENDPOINT") {
		f.Prefer = n
		return petEndpoint(r, f)
	}
	if f.Rank = n; f.Least != 0 {
		f.Rank, f.Prefer = -1, n
	}
	f.Port = volcanoPort // the operator's default, too, and it declares it on every pod
	return r.at("the pod's name", base+"-worker-0", f)
}
