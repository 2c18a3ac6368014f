package discovery

import (
	"fmt"
	"strconv"
	"strings"
)

// A TrainJob of Kubeflow's Trainer v2 (pkg/runtime/framework/plugins) is a JobSet whose pods <trainjob>-node-0-<i> get the variables of
// their framework.

// trainJobTorch is the one for torchrun.
var trainJobTorch = platform{
	name: "trainjob-torch",
	here: func(r *reader) bool { return r.any("JOB_COMPLETION_INDEX") && r.any("PET_NNODES", "PET_NODE_RANK") },
	find: func(r *reader, f *Finding) (err error) {
		if _, err := r.need("PET_NNODES"); err != nil {
			return err
		}
		if f.Least, f.Nodes, err = petNodes(r); err != nil {
			return err
		}
		if f.Rank, err = r.required("PET_NODE_RANK", 0); err != nil {
			return err
		}
		if i, ok := r.plain("JOB_COMPLETION_INDEX"); ok && i != f.Rank {
			return fmt.Errorf("PET_NODE_RANK=%d, but JOB_COMPLETION_INDEX=%d", f.Rank, i)
		}
		r.text("JOB_COMPLETION_INDEX")
		if r.get("PET_NPROC_PER_NODE") == "1" && r.gpus() > 1 {
			r.warn("nproc", "PET_NPROC_PER_NODE=1, and this node has %d GPUs: Trainer v2.0 says 1 wherever resourcesPerNode has no requests; "+
				"if more workers are meant, say --nproc-per-node", r.gpus())
		}
		f.Role = replicatedJob(first(r.host.Hostname), "")
		if r.get("PET_MASTER_ADDR") == "" { // as torchtune's command has it
			return trainJobHost(r, f)
		}
		if err := r.master("PET_MASTER_ADDR", "PET_MASTER_PORT", f); err != nil {
			return err
		}
		f.Role = replicatedJobOf(f.Host)
		return nil
	},
	over: []string{"pytorchjob", "pet", "generic", "indexed", "jobset", "ordinal"},
}

// trainJobHost finds node 0 beside this one.
func trainJobHost(r *reader, f *Finding) error {
	base, _, ok := ordinal(first(r.host.Hostname))
	sub, _ := r.subdomain()
	if !ok || sub == "" {
		return nil
	}
	f.Port = 29500
	return r.at("the pod's name", base+"-0."+sub, f)
}

// replicatedJob is the part of a JobSet's that a pod is of: "node" of llm-node-0-3 in the JobSet llm.
func replicatedJob(pod, set string) string {
	name, _, ok1 := ordinal(pod)
	name, _, ok2 := ordinal(name)
	if !ok1 || !ok2 {
		return ""
	}
	if rest, ok := strings.CutPrefix(name, set+"-"); ok && set != "" {
		return rest
	}
	return name[strings.LastIndexByte(name, '-')+1:]
}

// replicatedJobOf is that of node 0, by its full name: on the host's network a pod does not know its own.
func replicatedJobOf(host string) string {
	pod, set, _ := strings.Cut(host, ".")
	return replicatedJob(pod, first(set))
}

// trainJobJAX is the one for JAX, whose variables are those of jax.distributed itself.
var trainJobJAX = platform{
	name: "trainjob-jax",
	here: func(r *reader) bool { return r.any("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS") },
	find: func(r *reader, f *Finding) error {
		if err := r.world(f, "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"); err != nil {
			return err
		}
		at, err := r.need("JAX_COORDINATOR_ADDRESS")
		if err != nil {
			return err
		}
		f.Framework, f.FrameworkBy = "jax", "JAX_COORDINATOR_ADDRESS"
		f.NProc, f.NProcBy, f.Taken = "1", "JAX_NUM_PROCESSES", true
		err = r.endpoint("JAX_COORDINATOR_ADDRESS", at, f)
		f.Role = replicatedJobOf(f.Host)
		return err
	},
	over: []string{"indexed", "jobset", "generic", "ordinal"},
}

// trainJobXGBoost is the one for XGBoost. DMLC_NUM_WORKER counts processes, one for each GPU; DMLC_TASK_ID nodes.
var trainJobXGBoost = platform{
	name: "trainjob-xgboost",
	here: func(r *reader) bool { return r.any("DMLC_TRACKER_URI") && r.any("DMLC_NUM_WORKER", "DMLC_TASK_ID") },
	find: func(r *reader, f *Finding) error {
		if err := r.world(f, "DMLC_NUM_WORKER", "DMLC_TASK_ID"); err != nil {
			return err
		}
		share := max(r.gpus(), 1)
		if f.Nodes%share != 0 {
			return fmt.Errorf("DMLC_NUM_WORKER=%d is not a multiple of the %d GPUs of this node", f.Nodes, share)
		}
		f.Nodes, f.NProc, f.NProcBy = f.Nodes/share, strconv.Itoa(share), "DMLC_NUM_WORKER"
		f.Framework, f.FrameworkBy, f.Taken = "none", "DMLC_TRACKER_URI", true
		err := r.master("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", f)
		f.Role = replicatedJobOf(f.Host)
		return err
	},
	over: []string{"indexed", "jobset", "ordinal"},
}
