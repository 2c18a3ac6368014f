package discovery

import "fmt"

// xgboostJob is Kubeflow's: a PyTorchJob's variables, with the workers' names beside them. One process a node.
var xgboostJob = platform{
	name: "xgboostjob",
	here: func(r *reader) bool { return r.any("WORKER_ADDRS") },
	find: func(r *reader, f *Finding) error {
		if err := r.world(f, "WORLD_SIZE", "RANK"); err != nil {
			return err
		}
		workers := list(r.text("WORKER_ADDRS"))
		if len(workers)+1 != f.Nodes {
			return fmt.Errorf("WORKER_ADDRS has %d workers, which with the master is not WORLD_SIZE=%d", len(workers), f.Nodes)
		}
		f.NProc, f.NProcBy = "1", "WORKER_ADDRS"
		f.Framework, f.FrameworkBy, f.Taken = "none", "WORKER_ADDRS", true
		masterAndWorkers(f)
		if _, err := r.need("MASTER_ADDR"); err != nil {
			return err
		}
		return r.master("MASTER_ADDR", "MASTER_PORT", f)
	},
	over: []string{"pytorchjob", "pai-dlc", "generic"},
}

// masterAndWorkers are the roles of an operator that gives the master rank 0, and lets it decide.
func masterAndWorkers(f *Finding) {
	rank := f.Rank
	if f.Prefer >= 0 {
		rank = f.Prefer
	}
	switch {
	case rank == 0:
		f.Role, f.Index, f.Decider = "master", 0, true
	case rank > 0:
		f.Role, f.Index = "worker", rank-1
	}
}
