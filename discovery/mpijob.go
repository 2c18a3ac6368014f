package discovery

import (
	"errors"
	"fmt"
	"slices"
)

// mpiHostfile is the list that the operators of MPI give the launcher; workers have none.
const mpiHostfile = "/etc/mpi/hostfile"

// defaultHostfiles are the variables by which they tell MPI's launchers of it.
var defaultHostfiles = []string{"OMPI_MCA_orte_default_hostfile", "I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE", "PRTE_MCA_prte_default_hostfile"}

// mpiJob is a job of mpi-operator (K_MPI_JOB_ROLE), of the MPIJob inside training-operator (whose pods have kubexec.sh), or of Trainer v2's
// MPI runtime. The launcher knows the nodes, of which it may be one; workers know nothing but their names.
var mpiJob = platform{
	name: "mpi-launcher",
	here: func(r *reader) bool {
		if r.get("K_MPI_JOB_ROLE") != "launcher" && r.file(mpiHostfile) == "" && mpirun.here(r) { // a worker's rank knows more
			return false
		}
		return r.any("K_MPI_JOB_ROLE") || mpiExec(r) || r.file(mpiHostfile) != "" &&
			r.any(defaultHostfiles...)
	},
	find: func(r *reader, f *Finding) error {
		role := r.text("K_MPI_JOB_ROLE")
		text := r.file(mpiHostfile)
		if role == "worker" || role == "" && text == "" {
			return mpiWorker(r, f)
		}
		f.Role, f.Decider = "launcher", true
		all, err := Hostfile(text)
		if err != nil {
			return half("%s %v", mpiHostfile, err)
		}
		f.lines(all)
		f.slots(all, 0, mpiHostfile)
		if f.Rank = slices.IndexFunc(all, func(l HostLine) bool { return r.isSelf(l.Host) }); f.Rank < 0 {
			f.Barred = errors.New("the launcher of an MPI job trains nothing itself: it starts the other nodes (muster mpirun, muster deepspeed …)")
		}
		return r.at(mpiHostfile, all[0].Host, f)
	},
	over: []string{"hostfile", "indexed", "jobset", "ordinal"},
}

// mpiExec reports whether this is a pod of the MPIJob of training-operator.
func mpiExec(r *reader) bool { return r.file("/etc/mpi/kubexec.sh") != "" }

// mpiWorker is a pod that waits for the launcher.
func mpiWorker(r *reader, f *Finding) error {
	f.Rule, f.Role, f.ToldBy = "mpi-worker", "worker", "launcher"
	base, _, n, ok := member(first(r.host.Hostname), "worker")
	if ok {
		f.Index = n
	}
	f.Barred = errors.New("a worker of an MPI job is started by its launcher, which alone knows how many there are: " +
		"let it wait as sshd (muster sshd), or say --nnodes, --node-rank and --rdzv-endpoint")
	if ok && !mpiExec(r) { // whose pods have no names that others resolve
		sub, known := r.subdomain() // before mpi-operator 0.5 it is not the job's name
		if !known || sub == "" {
			sub = base
		}
		var err error
		if f.Host, err = Host(base + "-launcher." + sub); err != nil {
			return fmt.Errorf("the pod's name %w", err)
		}
	}
	return nil
}
