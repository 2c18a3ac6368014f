package discovery

import "fmt"

// azureML is a job of Azure Machine Learning. It starts the command as often on each node as process_count_per_instance says: 1 is right.
var azureML = platform{
	name: "azureml",
	here: func(r *reader) bool { return r.all("AZUREML_RUN_ID") && r.any("AZUREML_NODE_COUNT") },
	find: func(r *reader, f *Finding) (err error) {
		f.JobID, f.JobIDBy = r.text("AZUREML_RUN_ID"), "AZUREML_RUN_ID"
		if f.Nodes, err = r.required("AZUREML_NODE_COUNT", 1); err != nil {
			return err
		}
		for _, name := range []string{"NODE_RANK", "AZ_BATCHAI_TASK_INDEX"} {
			if f.Rank < 0 {
				if f.Rank, err = r.maybe(name, 0, -1); err != nil {
					return err
				}
			}
		}
		if err := azureProcess(r, f); err != nil {
			return err
		}
		if f.Nodes == 1 {
			f.Rank = 0
		}
		switch {
		case r.get("MASTER_ADDR") != "":
			return r.master("MASTER_ADDR", "MASTER_PORT", f)
		case r.get("AZ_BATCH_MASTER_NODE") != "":
			host, _, err := Endpoint(r.text("AZ_BATCH_MASTER_NODE")) // its port is Azure Batch's
			if err != nil && f.Nodes > 1 {
				return fmt.Errorf("AZ_BATCH_MASTER_NODE %w", err)
			}
			f.Host = host
		case r.get("AZ_BATCHAI_MPI_MASTER_NODE") != "":
			f.Host, _ = Host(r.text("AZ_BATCHAI_MPI_MASTER_NODE"))
		}
		return nil
	},
	over: []string{"generic", "pytorchjob", "mpirun", "pet"},
}

// azureProcess tells a copy for each process from one for each node.
func azureProcess(r *reader, f *Finding) (err error) {
	for _, v := range []struct{ size, rank, local string }{
		{"WORLD_SIZE", "RANK", "LOCAL_RANK"}, {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"},
	} {
		size, ok := r.plain(v.size)
		rank, is := r.plain(v.rank)
		local, one := r.plain(v.local)
		switch {
		case !ok || !is || !one:
		case size > f.Nodes:
			r.text(v.size)
			f.process(rank, local, size)
			return nil
		case f.Rank < 0:
			r.text(v.rank)
			f.Rank = rank
		}
	}
	return nil
}
