package discovery

import (
	"fmt"
	"slices"
	"strings"
)

// sizes are variables that count the nodes or processes of a job, by whatever system.
var sizes = []string{
	"WORLD_SIZE", "NNODES", "PET_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
	"AWS_BATCH_JOB_NUM_NODES", "AZUREML_NODE_COUNT", "MLP_WORKER_NUM", "LWS_GROUP_SIZE", "JAX_NUM_PROCESSES",
	"PADDLE_TRAINERS_NUM", "PADDLE_NNODES", "PADDLE_ELASTIC_NP", "LEPTON_JOB_TOTAL_WORKERS", "BATCH_NODE_COUNT", "HOST_NUM",
	"MA_NUM_HOSTS", "MS_WORKER_NUM", "NODE_NUM", "DMLC_NUM_WORKER", sizeVariable, "FLUX_JOB_NNODES", "JSM_NAMESPACE_SIZE", "SKYPILOT_NUM_NODES", "PBS_NUM_NODES", "NUM_NODES",
	"HOROVOD_SIZE", "MV2_COMM_WORLD_SIZE",
}

// places are variables that number nodes or processes from 0: the second one proves that there is a first.
var places = []string{
	"RANK", "NODE_RANK", "GROUP_RANK", "PET_NODE_RANK", "PADDLE_TRAINER_ID", "PADDLE_RANK", "DMLC_TASK_ID", "JAX_PROCESS_ID",
	"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK", "SLURM_PROCID", "SLURM_NODEID", "PBS_NODENUM", "SKYPILOT_NODE_RANK",
	"MS_NODE_RANK", "BATCH_NODE_INDEX", "HOROVOD_RANK", "MV2_COMM_WORLD_RANK",
}

// leaked are among them those that a shell of Slurm's hands on to whatever is started in it.
var leaked = []string{"SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS"}

// shared are names that count in a job if they stand together, and are anybody's where they stand alone.
var shared = []string{"NUM_PROCESSES", "PROCESS_ID", "COORDINATOR_ADDRESS", "COORDINATOR_PORT"}

// tasksAlone reports whether SLURM_NTASKS is how many tasks a job of one node may start, and this is none of them but its script.
func tasksAlone(r *reader) bool {
	n, ok := r.plain("SLURM_JOB_NUM_NODES")
	return ok && n == 1 && (noStep(r) || !r.any("SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS"))
}

// certain are those of the sizes that never count the processes of one launcher's own.
var certain = []string{"NNODES", "PET_NNODES", "OMPI_COMM_WORLD_SIZE", "JSM_NAMESPACE_SIZE"}

// ofSeveral returns what even beside a platform's word that this node is alone means one of several.
func ofSeveral(r *reader) []string { return append(above(r, certain, 1), above(r, places, 0)...) }

// above returns those variables that are numbers above low.
func above(r *reader, names []string, low int) (found []string) {
	for _, name := range names {
		if n, ok := r.plain(name); ok && n > low {
			found = append(found, fmt.Sprintf("%s=%d", name, n))
		}
	}
	return found
}

// leftover returns the traces of a job of several nodes that no platform made sense of.
func leftover(r *reader) (found []string) {
	for _, name := range sizes {
		if n, ok := r.plain(name); ok && n > 1 && !(slices.Contains(leaked, name) && slurmLeaked(r)) && !(name == "SLURM_NTASKS" && tasksAlone(r)) {
			found = append(found, fmt.Sprintf("%s=%d", name, n))
		}
	}
	found = append(found, above(r, places, 0)...)
	found = append(found, halves(r)...)
	size, _ := r.plain("NUM_PROCESSES")
	rank, _ := r.plain("PROCESS_ID")
	if all := slices.DeleteFunc(slices.Clone(shared), func(name string) bool { return !r.any(name) }); len(all) > 1 && max(size-1, rank) > 0 {
		found = append(found, strings.Join(all, " with "))
	}
	if base, role, n, ok := member(first(r.host.Hostname), "worker", "node"); ok && n > 0 && r.inKubernetes() && !r.onHost() {
		found = append(found, fmt.Sprintf("the pod's name %s, beside which there is a %s-%s-0", r.host.Hostname, base, role))
	}
	return found
}

// halves are traces that a system leaves with others, which are not there.
func halves(r *reader) (found []string) {
	ranked := slices.ContainsFunc(mpiRanks, func(v mpiRank) bool { return r.any(v.size, v.rank) })
	for _, name := range defaultHostfiles {
		if r.get(name) == mpiHostfile && !ranked { // the launcher's ranks have it, too, and no file
			found = append(found, fmt.Sprintf("%s=%s, a file that is not there", name, mpiHostfile))
		}
	}
	if ips := r.get("SKYPILOT_NODE_IPS"); len(strings.Fields(ips)) > 1 {
		found = append(found, "SKYPILOT_NODE_IPS="+clip(strings.Join(strings.Fields(ips), " ")))
	}
	for _, name := range r.variables("VC_", "_HOSTS") {
		list := r.get(name)
		pods := strings.Split(list, ",")
		if len(pods) > 1 && !slices.ContainsFunc(pods, func(pod string) bool { _, _, ok := ordinal(first(pod)); return !ok }) { // else it is somebody else's
			found = append(found, fmt.Sprintf("%s=%s without %s_NUM", name, clip(list), strings.TrimSuffix(name, "_HOSTS")))
		}
	}
	for _, name := range r.variables("VC_", "_NUM") {
		if n, ok := r.plain(name); ok && n > 1 {
			found = append(found, fmt.Sprintf("%s=%d without %s_HOSTS", name, n, strings.TrimSuffix(name, "_NUM")))
		}
	}
	for _, name := range []string{"DMLC_TRACKER_URI", "DMLC_TRACKER_PORT"} {
		if r.any(name) {
			found = append(found, fmt.Sprintf("%s=%s without DMLC_NUM_WORKER and DMLC_TASK_ID", name, clip(r.get(name))))
		}
	}
	return found
}
