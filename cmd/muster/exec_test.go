package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/test/freeport"
)

// A command has a worker's environment and directory, byte for byte, but for what would make it a part of the job.
func TestExec(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 2, []string{"ODD=\xff\xfe", "SECRET=a b"}, "--", "sh", "-c", `tr '\0' '\n' </proc/$$/environ >env-$RANK; `+training)
	up(all, 0)
	for n, p := range all {
		rank := 2*n + 1
		want, err := os.ReadFile(filepath.Join(p.cmd.Dir, fmt.Sprintf("env-%d", rank)))
		if err != nil {
			t.Fatal(err)
		}
		p.asks("exec", "--rank", fmt.Sprint(rank), "--", "sh", "-c", `tr '\0' '\n' </proc/$$/environ >env-exec; exit 9`).ends(9)
		got, err := os.ReadFile(filepath.Join(p.cmd.Dir, "env-exec"))
		if err != nil {
			t.Fatal(err)
		}
		var expected []string
		for line := range strings.Lines(string(want)) {
			name, _, _ := strings.Cut(line, "=")
			if !slices.Contains([]string{"MUSTER_WORKER", "TORCHELASTIC_ERROR_FILE", "MUSTER_PAGE", "MUSTER_BEAT_SOCKET", "PYTHONPATH", "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}, name) {
				expected = append(expected, line)
			}
		}
		if string(got) != strings.Join(expected, "") || !strings.Contains(string(got), "ODD=\xff\xfe\n") {
			t.Errorf("rank %d: got %q, want %q", rank, got, expected)
		}
	}
	all[0].asks("exec", "--", "sh", "-c", "echo first $RANK").ends(0, "first 0\n")
	all[0].asks("exec", "--rank", "2", "--", "true").ends(1, "rank 2 runs on node 1 (", "; this is node 0 (", "with ranks 0 to 1")
	all[1].asks("exec", "--rank", "4", "--", "true").ends(1, "rank 4: the world has ranks 0 to 3")
	all[1].asks("exec", "--", "nothere").ends(127, "start nothere: no such command in PATH")
	all[1].asks("exec", "--", "./env-exec").ends(126, "permission denied")
	beside := all[1].asks("exec", "--", "sh", "-c", "echo beside; read -r _; echo never")
	beside.ends(0, "beside") // its input is the caller's, which is empty here; it is no worker
	all[0].asks("ctl", "stop").ends(0)
	for _, p := range all {
		p.ends(143)
	}
}

// What a command in a worker's environment does not outlive is its own business, not the job's.
func TestExecIsNoWorker(t *testing.T) {
	t.Parallel()
	p := muster(t, t.TempDir(), nil, "run", "--", "sh", "-c", training)
	p.says("up 0 of 1")
	beside := p.asks("exec", "--", "sh", "-c", `echo beside; trap 'echo over; exit 7' USR1; while :; do sleep 0.05; done`)
	beside.says("beside")
	p.asks("ctl", "stop").ends(0)
	p.ends(143)
	beside.cmd.Process.Signal(syscall.SIGUSR1)
	beside.ends(7, "over")
}

// Before there are ranks there is no environment of one.
func TestExecTooEarly(t *testing.T) {
	t.Parallel()
	p := muster(t, t.TempDir(), nil, "run", "--nnodes", "2", "--rdzv-endpoint", fmt.Sprintf("127.0.0.1:%d", freeport.Take(t)), "--", "true")
	p.says("1 of 2 nodes here")
	p.asks("exec").ends(1, "no worker was started yet")
	p.asks("ctl", "restart").ends(1, "nodes are still meeting")
	p.asks("ctl", "stop").ends(0, "the job ends")
	p.ends(143, "was told to stop by muster ctl before any worker was started")
}

// Everything is set up on two nodes, shown, and left to whoever comes in by exec; the script need not even be there.
func TestDebug(t *testing.T) {
	t.Parallel()
	endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
	var all []*program
	for n := range 2 {
		all = append(all, muster(t, t.TempDir(), nil, "run", "--debug", "--nnodes", "2", "--node-rank", fmt.Sprint(n), "--nproc-per-node", "2",
			"--rdzv-endpoint", endpoint, "nothere.py"))
	}
	for n, p := range all {
		p.says("debug: the training itself could not start: no script nothere.py")
		p.says(fmt.Sprintf("debug: rank %d: WORLD_SIZE=4  # workers on all nodes\n", 2*n))
		p.says(fmt.Sprintf("debug: rank %d: RANK=%d LOCAL_RANK=1 ROLE_RANK=%d", 2*n+1, 2*n+1, 2*n+1))
		p.reaches(report.Running)
		p.asks("exec", "--rank", fmt.Sprint(2*n+1), "--", "sh", "-c", `echo "here $RANK of $WORLD_SIZE"`).ends(0, fmt.Sprintf("here %d of 4\n", 2*n+1))
	}
	all[1].asks("ctl", "stop").ends(0)
	for _, p := range all {
		p.ends(143)
	}
}

// Nodes of which only some are to train refuse each other, in one sentence.
func TestDebugOnSomeNodes(t *testing.T) {
	t.Parallel()
	endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
	var all []*program
	for n, debug := range []string{"0", "1"} {
		all = append(all, muster(t, t.TempDir(), []string{"MUSTER_DEBUG=" + debug}, "run", "--nnodes", "2", "--node-rank", fmt.Sprint(n), "--nproc-per-node", "1",
			"--rdzv-endpoint", endpoint, "--", "true"))
	}
	for _, p := range all {
		p.ends(job.ExitRefused, "(node 1) was started with --debug, ", "(node 0) without; say it on all nodes or on none")
	}
}

// --debug takes a line for a shell, and none of the script's words.
func TestDebugCommand(t *testing.T) {
	t.Parallel()
	muster(t, t.TempDir(), nil, "run", "--debug=echo in $RANK; exit 6", "--", "true", "x").ends(6, `instead of ["true" "x"]: echo in`, "[rank 0] in 0\n")
	muster(t, t.TempDir(), []string{"MUSTER_DEBUG=0"}, "run", "--", "echo", "trains").ends(0, "[rank 0] trains")
	muster(t, t.TempDir(), nil, "run", "--debug=", "--", "true").ends(2, "--debug: the command is empty")
	muster(t, t.TempDir(), nil, "env", "--debug=true", "--", "true").ends(0, `runs: ["sh" "-c" "exec sleep infinity"]`)
}
