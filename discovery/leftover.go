package discovery

import (
	"fmt"
	"slices"
)

// sizes are variables that count the nodes or processes of a job, by whatever system.
var sizes = []string{
	"WORLD_SIZE", "NNODES", "PET_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
	"AWS_BATCH_JOB_NUM_NODES", "AZUREML_NODE_COUNT", "MLP_WORKER_NUM", "LWS_GROUP_SIZE", "JAX_NUM_PROCESSES",
	"PADDLE_TRAINERS_NUM", "PADDLE_NNODES", "PADDLE_ELASTIC_NP", "NUM_PROCESSES", "LEPTON_JOB_TOTAL_WORKERS", "BATCH_NODE_COUNT", "HOST_NUM",
	"MA_NUM_HOSTS", "MS_WORKER_NUM", "NODE_NUM", "WORKER_NUM", "DMLC_NUM_WORKER", sizeVariable, "FLUX_JOB_NNODES", "JSM_NAMESPACE_SIZE",
}

// places are variables that number nodes or processes from 0: the second one proves that there is a first.
var places = []string{
	"RANK", "NODE_RANK", "GROUP_RANK", "PET_NODE_RANK", "PADDLE_TRAINER_ID", "PADDLE_RANK", "DMLC_TASK_ID", "JAX_PROCESS_ID", "PROCESS_ID",
	"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK",
}

// leaked are among them those that a shell of Slurm's hands on to whatever is started in it.
var leaked = []string{"SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS"}

// leftover returns the traces of a job of several nodes that no platform made sense of.
func leftover(r *reader) (found []string) {
	for _, name := range sizes {
		if n, ok := r.plain(name); ok && n > 1 && !(slices.Contains(leaked, name) && slurmLeaked(r)) {
			found = append(found, fmt.Sprintf("%s=%d", name, n))
		}
	}
	for _, name := range places {
		if n, ok := r.plain(name); ok && n > 0 {
			found = append(found, fmt.Sprintf("%s=%d", name, n))
		}
	}
	if base, role, n, ok := member(first(r.host.Hostname), "worker", "node"); ok && n > 0 && r.inKubernetes() {
		found = append(found, fmt.Sprintf("the pod's name %s, beside which there is a %s-%s-0", r.host.Hostname, base, role))
	}
	return found
}
