package interop

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/muster-run/muster/test/stage"
)

// Open MPI's mpirun makes a world of two nodes, on which sshd and ssh are muster: 4.1 by its own daemons, 5 by PRRTE's. Its programs are none of
// --framework mpi's, which says so.
func TestMpirun(t *testing.T) {
	for _, python := range []string{"openmpi4", "openmpi"} {
		if !playing(t, "mpi4py_allreduce/"+python) {
			continue
		}
		t.Run(python, func(t *testing.T) {
			bin := filepath.Dir(stage.Printed(t, "./python", python))
			s, links := open(t, "sshd", "ssh", "muster")
			env := append(keyed(links, bin), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
			serve(t, s, env)
			script := stage.File(t, "scripts/mpi4py_allreduce.py")
			p := s.Machines()[0].Run(env, bin+"/mpirun", "-n", "4", "--host", "h0:2,h1:2", "--map-by", "slot", bin+"/python", "-u", script)
			s.Await(patience, func() bool { return !p.Running() })
			ranks, results := map[string]bool{}, map[string]bool{}
			for _, m := range ofMPI.FindAllStringSubmatch(p.Said(), -1) {
				ranks[m[1]], results[m[2]] = true, true
			}
			if p.Code() != 0 || len(ranks) != 4 || len(results) != 1 {
				t.Errorf("mpirun %s: %d ranks came to %d results", p.Ending(), len(ranks), len(results))
			}
			t.Log(results)
			p = s.Machines()[0].Run(append(env, "OPAL_PREFIX="+filepath.Dir(bin)), "muster", "run", "--framework", "mpi", "--nproc-per-node", "2", script)
			s.Await(patience, func() bool { return !p.Running() })
			if p.Code() == 0 || !strings.Contains(p.Said(), "no worker of this node has called MPI_Init as --framework mpi understands it") {
				t.Errorf("--framework mpi %s, and does not say that it cannot be", p.Ending())
			}
		})
	}
}

// ofMPI is what a rank of MPI says.
var ofMPI = regexp.MustCompile(`(?m)^rank (\d+) of 4: (.*)$`)
