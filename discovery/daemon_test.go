package discovery

import (
	"strings"
	"testing"
)

// What mpirun starts under Slurm is in the step of its daemons, without the node where mpirun is: its numbers are no job's.
func TestStepOfDaemons(t *testing.T) {
	step := func(nodes, list, id string, more ...string) Finding {
		environ := map[string]string{"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": list, "SLURM_STEP_NUM_NODES": nodes,
			"SLURM_STEP_NUM_TASKS": nodes, "SLURM_STEP_TASKS_PER_NODE": "1(x" + nodes + ")", "SLURM_PROCID": id, "SLURM_NODEID": id, "SLURM_LOCALID": "0", "SLURMD_NODENAME": "n1"}
		for i := 0; i < len(more); i += 2 {
			environ[more[i]] = more[i+1]
		}
		return Detect(hostOf("n1", environ, nil))
	}
	const cure = "start muster by srun instead of that launcher"
	for name, c := range map[string]struct {
		f    Finding
		want string
	}{
		"three nodes, one rank each": {step("2", "n[1-2]", "0", "OMPI_COMM_WORLD_SIZE", "3", "OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_LOCAL_SIZE", "1", "MASTER_ADDR", "n0"),
			"process 1 of 3 of a launcher inside a job of Slurm's, whose own step here has 2 nodes: " + cure},
		"by PMI": {step("2", "n[1-2]", "0", "PMI_SIZE", "3", "PMI_RANK", "1"), cure},
		"two ranks each": {step("2", "n[1-2]", "0", "OMPI_COMM_WORLD_SIZE", "6", "OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_LOCAL_SIZE", "2", "OMPI_COMM_WORLD_LOCAL_RANK", "0"),
			"process 2 of 6 of a launcher inside a job of Slurm's, whose own step here has 2 nodes: " + cure},
		"two nodes": {step("1", "n1", "0", "OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_RANK", "1", "MASTER_ADDR", "n0"), "own step here has 1 node: " + cure},
		"all agree": {step("3", "n[0-2]", "1", "PMI_SIZE", "3", "PMI_RANK", "1"), ""},
	} {
		if c.f.Problem != nil || (c.f.Barred == nil) != (c.want == "") || c.want != "" && !strings.Contains(c.f.Barred.Error(), c.want) {
			t.Errorf("%s: %v, %v; want %q", name, c.f.Barred, c.f.Problem, c.want)
		}
	}
}
