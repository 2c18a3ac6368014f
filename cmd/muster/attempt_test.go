package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/test/freeport"
)

// A job that its platform starts again meets with agents of its own, while some of the attempt before are still there: one that waits for peers, and one that hosts
// their meeting at the same port. Workers keep their files by a name that is the same in all attempts.
func TestAttempts(t *testing.T) {
	t.Parallel()
	endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
	host, _ := os.Hostname()
	node := func(attempt, n int) *program {
		step := []string{"SLURM_JOB_ID=5", "SLURM_STEP_ID=0", "SLURM_STEP_NODELIST=n[0-1]", "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_TASKS_PER_NODE=1(x2)",
			fmt.Sprint("SLURM_PROCID=", n), "SLURM_LOCALID=0", fmt.Sprint("SLURM_NODEID=", n), "SLURMD_NODENAME=" + host, fmt.Sprint("SLURM_RESTART_COUNT=", attempt)}
		return muster(t, t.TempDir(), step, "run", "--nproc-per-node", "1", "--rdzv-endpoint", endpoint, "--local-addr", "127.0.0.1", "--serve", map[int]string{0: "yes", 1: "no"}[n],
			"--", "sh", "-c", fmt.Sprintf("echo rank $RANK of attempt %d at $TORCHELASTIC_RUN_ID", attempt))
	}
	old := node(0, 0)
	old.says("1 of 2 nodes here")
	all := []*program{node(1, 0), node(1, 1)}
	for n, p := range all {
		p.ends(0, fmt.Sprintf("rank %d of attempt 1 at 5.0", n))
	}
	old.cmd.Process.Signal(syscall.SIGINT)
	old.ends(job.ExitINT)
}
