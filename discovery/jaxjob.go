package discovery

// jaxJob is Kubeflow's (pkg/controller.v1/jax/envvar.go): one process a node. NUM_PROCESSES alone is a habit of people's.
var jaxJob = platform{
	name: "jaxjob",
	here: func(r *reader) bool {
		return r.any("COORDINATOR_ADDRESS") && r.any("COORDINATOR_PORT", "PROCESS_ID", "NUM_PROCESSES")
	},
	find: func(r *reader, f *Finding) error {
		if err := r.world(f, "NUM_PROCESSES", "PROCESS_ID"); err != nil {
			return err
		}
		f.Role, f.Index = "worker", f.Rank // the only one that there is
		f.Framework, f.FrameworkBy = "jax", "COORDINATOR_ADDRESS"
		f.NProc, f.NProcBy, f.Taken = "1", "NUM_PROCESSES", true
		if err := r.master("COORDINATOR_ADDRESS", "COORDINATOR_PORT", f); err != nil {
			return err
		}
		if f.Port == 0 {
			return half("COORDINATOR_PORT is not set")
		}
		return nil
	},
	over: []string{"ordinal"},
}
