package discovery

// mpirun is a rank that an MPI launcher, or a launcher like one, started: Open MPI, PMIx, PMI, LSF's jsrun, Flux. None of them says where
// node 0 is.
var mpirun = platform{
	name: "mpirun",
	here: func(r *reader) bool {
		for _, v := range mpiRanks {
			if n, ok := r.plain(v.size); ok && n > 1 && r.any(v.rank) {
				return true
			}
		}
		return false
	},
	find: func(r *reader, f *Finding) error {
		for _, v := range mpiRanks {
			size, ok := r.plain(v.size)
			rank, is := r.plain(v.rank)
			if !ok || !is || size < 2 {
				continue
			}
			r.text(v.size)
			r.text(v.rank)
			local, _ := r.plain(v.localSize)
			switch id, ok := r.plain(v.local); {
			case local > 1 || ok && id > 0:
				f.process(rank, id, max(local, 1))
				f.Rank = -1
				if local > 1 && size%local == 0 {
					f.Nodes = size / local
				}
			default:
				f.Nodes, f.Rank = size, rank
			}
			return nil
		}
		return nil
	},
}

// mpiRanks are the variables by which launchers tell a rank which one it is.
var mpiRanks = []struct{ size, rank, local, localSize string }{
	{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
	{"PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
	{"JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"},
	{"FLUX_JOB_SIZE", "FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", ""},
}
