package main

import (
	"fmt"
	"os"
	"strings"
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
	stopped := agentOf(t, old.cmd.Process.Pid)
	syscall.Kill(stopped, syscall.SIGSTOP) // whose it is is known by its claim
	all := []*program{node(1, 0), node(1, 1)}
	all[0].says(fmt.Sprintf("an earlier attempt's (5.0) agent (pid %d, muster.test run) has it and does not answer; it was stopped: let it go on (kill -CONT %[1]d), or end it", stopped))
	syscall.Kill(stopped, syscall.SIGCONT)
	all[0].says("is an earlier attempt's (5.0), which hands over what calls for this one")
	for n, p := range all {
		p.ends(0, fmt.Sprintf("rank %d of attempt 1 at 5.0", n))
	}
	old.cmd.Process.Signal(syscall.SIGINT)
	old.ends(job.ExitINT)
}

// A loop over the nodes of a Slurm job starts a step on each, with a name of its own: nodes that flags number meet all the same, in whose words ever.
func TestSlurmLoop(t *testing.T) {
	t.Parallel()
	host, _ := os.Hostname()
	for _, words := range []string{"run --nnodes 2 --rdzv-endpoint 127.0.0.1:%d --node-rank %d --", "torchrun --nnodes 2 --master-addr 127.0.0.1 --master-port %d --node-rank %d --no-python"} {
		port := freeport.Take(t)
		var all []*program
		for n := range 2 {
			step := []string{"SLURM_JOB_ID=5", fmt.Sprint("SLURM_STEP_ID=", n), "SLURM_STEP_NODELIST=" + host, "SLURM_STEP_NUM_NODES=1", "SLURM_STEP_TASKS_PER_NODE=1", "SLURM_JOB_NUM_NODES=2",
				"SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NODEID=0", "SLURMD_NODENAME=" + host}
			all = append(all, muster(t, t.TempDir(), step, append(strings.Fields(fmt.Sprintf(words, port, n)), "sh", "-c", "echo rank $RANK of $WORLD_SIZE")...))
		}
		for n, p := range all {
			p.ends(0, fmt.Sprintf("rank %d of 2", n))
		}
	}
}
