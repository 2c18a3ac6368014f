package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A worker that fails is started again where it was, with a log directory and an error file of its own, and no other worker notices;
// when no restart is left, it is a failure like any other.
func TestRestartInPlace(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]string{"mended": "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && : >$DIR/over && exit 0", "used up": ":"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			all := startNodes(t, 2, []string{"DIR=" + dir}, "--on-worker-exit", "restart", "--max-restarts", "2", "--restart-backoff", "0", "--verdict", "verdict.json",
				"--log-dir", dir+"/logs", "--tee", "3", "--", "sh", "-c", `echo "rank $RANK, life $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS at $MASTER_PORT"
				[ -e "$TORCHELASTIC_ERROR_FILE" ] && exit 99
				[ $RANK = 3 ] || { until [ -e $DIR/over ]; do sleep 0.01; done; exit 0; }
				echo '{"message": "ValueError: bad"}' >"$TORCHELASTIC_ERROR_FILE"
				`+fails+`; exit 7`)
			code := map[string]int{"mended": 0, "used up": 7}[name]
			all[1].ends(code, "rank 3 on", "exited with code 7: ValueError: bad; restart 1 of 2 follows, of this worker alone", "restart 2 of 2 follows, of this worker alone",
				"[rank 3] rank 3, life 2 of 2")
			all[0].ends(code, "restart 2 of 2 follows, of this worker alone")
			if code != 0 {
				all[0].ends(code, "exited with code 7: ValueError: bad; all 2 nodes stopped, after 2 restarts")
			}
			for n, p := range all {
				for rank := 2 * n; rank < 2*n+2; rank++ {
					lives := 1
					if rank == 3 {
						lives = 3
					}
					if got := strings.Count(p.out.String(), fmt.Sprintf("[rank %d] rank %d, life", rank, rank)); got != lives {
						t.Errorf("rank %d had %d lives:\n%s", rank, got, p.out.String())
					}
				}
			}
			logs := under(t, dir+"/logs")
			for life := range 3 {
				if got := logs[fmt.Sprintf("attempt_%d/1/stdout.log", life)]; !strings.Contains(got, fmt.Sprintf("life %d of 2", life)) {
					t.Errorf("the log of life %d: %q", life, got)
				}
			}
			verdict, err := os.ReadFile(filepath.Join(all[0].cmd.Dir, "verdict.json"))
			if err != nil || strings.Count(string(verdict), "it alone was started again") != 2 {
				t.Errorf("%s, %v", verdict, err)
			}
		})
	}
}

// A world is made of nodes that were told the same.
func TestOnWorkerExitOfAll(t *testing.T) {
	t.Parallel()
	all := startEach(t, [][]string{{"MUSTER_ON_WORKER_EXIT=restart"}, nil}, "--max-restarts", "1", "--", "true")
	for _, p := range all {
		p.ends(67, "was started with --on-worker-exit ", "; give all nodes the same")
	}
	p := muster(t, t.TempDir(), nil, "run", "--on-worker-exit", "leave", "--clean", "none", "--", "true")
	p.ends(2, "--on-worker-exit and --clean both say what follows when a worker fails; drop one of them")
	p = muster(t, t.TempDir(), nil, "run", "--on-worker-exit", "restart", "--", "true")
	p.ends(0, "--on-worker-exit restart starts no worker again without --max-restarts N")
}

// A PyTorch training that heals itself loses a worker here, an agent there, and both at once, and trains on: no other worker notices, and the
// weights are those of all ranks.
func TestTrainingThatHeals(t *testing.T) {
	t.Parallel()
	enough := filepath.Join(t.TempDir(), "enough")
	all := startNodes(t, 2, []string{"PYTHON_EXEC=" + python(t, "debian")}, "--worker-store", "agent", "--on-worker-exit", "restart", "--max-restarts", "4", "--restart-backoff", "1s",
		abs(t, "../../test/torch/scripts/heals.py"), enough)
	begins := func(rank, life int) (pid, step int) {
		p := all[rank/2]
		p.says(fmt.Sprintf("rank %d life %d pid ", rank, life))
		p.says("at step")
		got := regexp.MustCompile(fmt.Sprintf(`rank %d life %d pid (\d+) at step (\d+)`, rank, life)).FindStringSubmatch(p.out.String())
		pid, _ = strconv.Atoi(got[1])
		step, _ = strconv.Atoi(got[2])
		return pid, step
	}
	kill := func(rank, life int) {
		pid, _ := begins(rank, life)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for rank := range 4 {
		begins(rank, 0)
	}
	kill(3, 0)
	begins(3, 1)
	all[0].killAgent()
	all[1].killAgent()
	kill(1, 0) // it is to come back after a pause, which another agent keeps
	all[0].says("restart 2 of 4 follows after 1s")
	all[0].killAgent()
	begins(1, 2)
	kill(3, 1)
	all[1].killAgent() // before or after it knew
	_, step := begins(3, 3)
	if step == 0 {
		t.Error("rank 3 did not take up the others' work")
	}
	signalFile(t, enough)
	var weights []string
	for n, p := range all {
		p.ends(0)
		weights = append(weights, regexp.MustCompile(`after step .*`).FindAllString(p.out.String(), -1)...)
		for _, rank := range []int{2 * n, 2*n + 1} {
			if got := strings.Count(p.out.String(), fmt.Sprintf("rank %d life 0", rank)); got != 1 {
				t.Errorf("rank %d began %d times", rank, got)
			}
		}
	}
	if len(weights) != 4 || len(slices.Compact(weights)) != 1 {
		t.Errorf("the ranks end with %q", weights)
	}
}
