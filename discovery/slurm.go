package discovery

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-run/muster/job"
)

const slurmName = "slurm-step"

// slurm is a step that srun started (slurm's src/slurmd/slurmstepd sets its variables), bare or in a container of Pyxis, enroot or
// Apptainer. Those of the job alone are in the batch script, too, which runs on one node.
var slurm = platform{
	name: slurmName,
	here: func(r *reader) bool { return r.any("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NODELIST") },
	find: func(r *reader, f *Finding) error {
		r.text("SLURM_JOB_ID")
		if !r.all("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NODELIST") || noStep(r) {
			return slurmOutside(r)
		}
		if _, err := r.need("SLURM_JOB_ID"); err != nil {
			return err
		}
		if r.get("SLURM_HET_SIZE") != "" {
			return half("SLURM_HET_SIZE=%s: the parts of a heterogeneous job do not know of each other; say --nnodes, --node-rank and --rdzv-endpoint", r.text("SLURM_HET_SIZE"))
		}
		nodes, err := Nodelist(r.text("SLURM_STEP_NODELIST"))
		if err != nil {
			return fmt.Errorf("SLURM_STEP_NODELIST=%s %w", clip(r.get("SLURM_STEP_NODELIST")), err)
		}
		if slurmLeaked(r) {
			return slurmElsewhere(r, len(nodes))
		}
		if err := r.world(f, "SLURM_STEP_NUM_NODES", "SLURM_NODEID"); err != nil {
			return err
		}
		if len(nodes) != f.Nodes {
			return fmt.Errorf("SLURM_STEP_NODELIST has %d nodes, but SLURM_STEP_NUM_NODES=%d", len(nodes), f.Nodes)
		}
		if err := r.attempt("SLURM_RESTART_COUNT", f); err != nil {
			return err
		}
		f.JobID, f.JobIDBy = r.get("SLURM_JOB_ID")+"."+r.text("SLURM_STEP_ID"), "SLURM_STEP_ID"
		f.Hosts, f.Port = nodes, slurmPort(f.JobID)
		if err := slurmTasks(r, f); err != nil {
			return err
		}
		if f.Nodes == 1 && !f.PerProcess && (r.placed() || r.petSeveral() && r.any("PET_RDZV_ENDPOINT")) {
			return harmless("a step of one node, as a loop over the nodes starts them, and other variables number those")
		}
		if _, most, err := job.ParseNodes(r.get(sizeVariable)); f.Nodes == 1 && !f.PerProcess && err == nil && most > 1 { // each node has a step, and so a name, of its own
			return harmless("a step of one node, as a loop over the nodes starts them, and flags number those")
		}
		err = r.at("SLURM_STEP_NODELIST", nodes[0], f)
		f.RankZero = f.RankZero && !strings.HasPrefix(r.get("SLURM_DISTRIBUTION"), "arbitrary") // else task 0 is on the first node
		return err
	},
	over: []string{"*"}, // enroot's hook and Pyxis write MASTER_ADDR, WORLD_SIZE and RANK of processes
}

// noStep reports whether the step's number is one of those (slurm/slurm.h, from SLURM_INTERACTIVE_STEP on) that stand for the shell of a job
// and the like: the shell that salloc opens is on the first node alone.
func noStep(r *reader) bool {
	n, ok := r.plain("SLURM_STEP_ID")
	return ok && n >= 4294967290
}

// slurmLoop refuses a step of one task on one node of a job that has several, as a loop over the nodes starts them: each would train alone. Who means
// that says --nnodes 1.
func slurmLoop(r *reader, f Finding) error {
	nodes, _ := r.plain("SLURM_JOB_NUM_NODES")
	if listed, err := Nodelist(r.get("SLURM_JOB_NODELIST")); err == nil {
		nodes = max(nodes, len(listed))
	}
	if f.Rule != slurmName || f.PerProcess || f.Nodes != 1 || nodes < 2 || r.any(sizeVariable) {
		return nil
	}
	return fmt.Errorf("%s: srun started this on one of the job's %d nodes (%s), and as many such steps would be as many trainings of one node: start one step on all nodes "+
		"(srun --nodes %[2]d --ntasks-per-node 1), or say --nnodes 1 (MUSTER_NNODES=1) where this node alone is meant", f.Rule, nodes, strings.Join(f.Evidence, ", "))
}

// slurmTasks tells a task for each GPU from a task for each node.
func slurmTasks(r *reader, f *Finding) error {
	tasks, err := TasksPerNode(r.text("SLURM_STEP_TASKS_PER_NODE"))
	if err != nil {
		return fmt.Errorf("SLURM_STEP_TASKS_PER_NODE=%s %w", clip(r.get("SLURM_STEP_TASKS_PER_NODE")), err)
	}
	all, err := r.maybe("SLURM_STEP_NUM_TASKS", 1, 0)
	if err != nil {
		return err
	}
	if tasks > 1 || all > f.Nodes {
		rank, _ := r.plain("SLURM_PROCID")
		local, _ := r.plain("SLURM_LOCALID")
		r.text("SLURM_PROCID")
		if all == 0 {
			if all, err = r.required("SLURM_NTASKS", 1); err != nil {
				return err
			}
		}
		f.process(rank, local, all)
		f.Machine, f.NProc = r.get("SLURMD_NODENAME"), ""
		f.GPUs, _ = r.plain("SLURM_GPUS_ON_NODE")
	}
	return nil
}

// slurmOutside is for what srun did not start.
func slurmOutside(r *reader) error {
	nodes, ok := r.plain("SLURM_JOB_NUM_NODES")
	if !ok {
		nodes, ok = r.plain("SLURM_NNODES")
	}
	if listed, err := Nodelist(r.get("SLURM_NODELIST")); !ok && err == nil {
		nodes = len(listed)
	}
	if listed, err := Nodelist(r.get("SLURM_JOB_NODELIST")); !ok && err == nil {
		nodes = max(nodes, len(listed))
	}
	if slurmLeaked(r) {
		return slurmElsewhere(r, nodes)
	}
	if tasks, _ := r.plain("SLURM_STEP_NUM_TASKS"); tasks > 1 {
		return half("SLURM_STEP_NUM_TASKS=%d, and other variables of the step are missing: start with srun, one task a node", tasks)
	}
	step := r.any("SLURM_STEP_ID", "SLURM_STEP_NODELIST") && (noStep(r) || !r.all("SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_PROCID"))
	steps, _ := r.plain("SLURM_STEP_NUM_NODES")
	switch most := max(nodes, steps); {
	case most > 1:
		return half("a job of %d nodes, but this is no step of it, so that it runs on this node alone: start with srun", most)
	case step && nodes != 1:
		return half("a part of a step's variables, and nothing says of how many nodes the job is: start with srun, or say --nnodes 1 for a run of this node alone")
	}
	return harmless("this is no step of the job")
}

// slurmLeaked reports whether the variables are those of another machine: handed on by a shell of Slurm's.
func slurmLeaked(r *reader) bool {
	own := strings.ToLower(first(r.host.Hostname))
	if own == "" || strings.ToLower(first(r.get("SLURMD_NODENAME"))) == own {
		return false
	}
	var names []string
	for _, name := range []string{"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"} {
		if listed, err := Nodelist(r.get(name)); err == nil {
			names = append(names, listed...)
		}
	}
	return len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return first(name) == own })
}

// slurmElsewhere is for variables of another machine's. For a job of one node they mean nothing here; of several ones this may be one, by
// another name.
func slurmElsewhere(r *reader, nodes int) error {
	r.warn("slurm_leak", "SLURM_JOB_ID=%s is of a job on other machines than %s: it is left aside", r.get("SLURM_JOB_ID"), r.host.Hostname)
	if nodes > 1 {
		return half("SLURM_JOB_ID=%s is of a job of %d nodes, of which %s is none by its name: say --nnodes 1 if it is none, or --nnodes, --node-rank and --rdzv-endpoint",
			r.get("SLURM_JOB_ID"), nodes, r.host.Hostname)
	}
	if tasks, _ := r.plain("SLURM_STEP_NUM_TASKS"); tasks > 1 { // in a container that has a name of its own, each of them would train alone
		return half("SLURM_JOB_ID=%s is of a step of %d tasks on other machines than %s: start one task a node (srun --ntasks-per-node 1), or say --nnodes 1 if this is none of them",
			r.get("SLURM_JOB_ID"), tasks, r.host.Hostname)
	}
	return harmless("SLURM_JOB_ID is of a job on other machines")
}

// slurmPort is one that all nodes of a step find for themselves: several steps may share a node.
func slurmPort(step string) int {
	sum := sha256.Sum256([]byte(step))
	return 20000 + int(binary.BigEndian.Uint32(sum[:4])%10000)
}
