package discovery

import (
	"crypto/sha256"
	"encoding/hex"
)

// mpirun is a rank that an MPI launcher, or a launcher like one, started: Open MPI, PMIx, PMI, LSF's jsrun, Flux. None of them says where
// node 0 is: people do, in MASTER_ADDR, or all ranks are on this node, where the launcher's name for them tells them from others.
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
			local := 0
			for _, name := range v.localSizes {
				n, _ := r.plain(name)
				local = max(local, n)
			}
			if nodes, ok := r.plain(v.nodes); ok && nodes > 0 {
				local = max(local, (size+nodes-1)/nodes)
			}
			id, ok := 0, false
			for _, name := range v.locals {
				if n, is := r.plain(name); is {
					id, ok = n, true
				}
			}
			switch {
			case local > 1 || ok && id > 0:
				f.process(rank, id, size)
				f.Rank = -1
				if local > 1 && size%local == 0 {
					f.Nodes = size / local
				}
			default:
				f.Nodes, f.Rank = size, rank
			}
			return mpirunPlace(r, f)
		}
		return nil
	},
}

// mpirunPlace is where the ranks meet, if anything says so.
func mpirunPlace(r *reader, f *Finding) (err error) {
	for _, name := range []string{"PMIX_NAMESPACE", "FLUX_JOB_ID", "PALS_APID"} {
		if f.JobID == "" && r.get(name) != "" {
			f.JobID, f.JobIDBy = r.text(name), name
		}
	}
	if server := mpirunServer(r, f); server != "" {
		sum := sha256.Sum256([]byte(server))
		f.JobID += "." + hex.EncodeToString(sum[:4])
	} else if f.JobIDBy == "PMIX_NAMESPACE" && f.PerProcess && f.Nodes == 1 {
		f.JobID, f.JobIDBy = "", ""
	}
	switch {
	case r.any("MASTER_ADDR"):
		return r.master("MASTER_ADDR", "MASTER_PORT", f)
	case f.PerProcess && f.Nodes == 1 && f.JobID != "":
		f.Port = slurmPort(f.JobID)
		r.itself(f)
	}
	return nil
}

// mpirunServer is where the launcher listens, which is its own as long as it lives. Its name for the job is not: PMIx makes one of the machine's
// name and a process's number, which launchers in several containers on one network have alike, and Flux counts from its own start.
func mpirunServer(r *reader, f *Finding) string {
	names := map[string][]string{"PMIX_NAMESPACE": {"OMPI_MCA_orte_hnp_uri"}} // which all machines have alike
	if f.PerProcess && f.Nodes == 1 {
		names["PMIX_NAMESPACE"] = append(names["PMIX_NAMESPACE"], "PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI21", "PMIX_SERVER_URI2")
		names["FLUX_JOB_ID"] = []string{"FLUX_URI"}
	}
	for _, name := range names[f.JobIDBy] {
		if r.get(name) != "" {
			return r.text(name)
		}
	}
	return ""
}

// An mpiRank is the names of the variables that one of them has for it.
type mpiRank struct {
	size, rank         string
	locals, localSizes []string
	nodes              string
}

// mpiRanks are the variables by which launchers tell a rank which one it is: in all, on its node, and of how many there. MPICH's kin has names
// of its own for the latter: Intel MPI's Hydra, PALS of HPE, MVAPICH.
var mpiRanks = []mpiRank{
	{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", []string{"OMPI_COMM_WORLD_LOCAL_RANK"}, []string{"OMPI_COMM_WORLD_LOCAL_SIZE"}, ""},
	{"PMI_SIZE", "PMI_RANK", []string{"MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID", "MV2_COMM_WORLD_LOCAL_RANK"},
		[]string{"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"}, ""},
	{"JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", []string{"JSM_NAMESPACE_LOCAL_RANK"}, []string{"JSM_NAMESPACE_LOCAL_SIZE"}, ""},
	{"FLUX_JOB_SIZE", "FLUX_TASK_RANK", []string{"FLUX_TASK_LOCAL_ID"}, nil, "FLUX_JOB_NNODES"},
}
