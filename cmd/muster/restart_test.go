package main

import (
	"fmt"
	"syscall"
	"testing"
)

// A worker that fails is followed by another round, on all nodes, with a store of its own; the job ends well in the end.
func TestRestart(t *testing.T) {
	t.Parallel()
	for victim := range 4 {
		t.Run(fmt.Sprintf("rank %d", victim), func(t *testing.T) {
			t.Parallel()
			all := startNodes(t, 2, []string{fmt.Sprintf("VICTIM=%d", victim)}, "--max-restarts", "2", "--", "sh", "-c",
				`echo "rank $RANK of $WORLD_SIZE, round $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS at $MASTER_PORT"
				[ -e "$TORCHELASTIC_ERROR_FILE" ] && exit 99
				echo '{"message": "ValueError: bad"}' >"$TORCHELASTIC_ERROR_FILE"
				[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0
				[ $RANK = $VICTIM ] && exit 7
				exec sleep 1000`)
			for n, p := range all {
				p.ends(0, fmt.Sprintf("[rank %d] rank %d of 4, round 2 of 2", 2*n, 2*n), fmt.Sprintf("[rank %d] rank %d of 4, round 2 of 2", 2*n+1, 2*n+1),
					fmt.Sprintf("rank %d on", victim), "exited with code 7: ValueError: bad; restart 1 of 2", "restart 2 of 2")
			}
		})
	}
}

// When no round is left, the job ends with the cause of the last one.
func TestRestartsUsedUp(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 2, nil, "--max-restarts", "2", "--", "sh", "-c",
		`[ $RANK = $TORCHELASTIC_RESTART_COUNT ] && exit $((10 + RANK)); exec sleep 1000`)
	for _, p := range all {
		p.ends(12, "restart 1 of 2", "restart 2 of 2", "rank 2 on", "exited with code 12; all 2 nodes stopped, after 2 restarts; exit 12")
	}
}

// Told to stop, a job that would go on does not.
func TestTermEndsRestarts(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 2, nil, "--max-restarts", "1000000", "--", "sh", "-c", `sleep 0.1; exit 1`)
	all[1].says("restart 2 of 1000000")
	all[1].cmd.Process.Signal(syscall.SIGTERM)
	for _, p := range all {
		p.ends(143, "was told to stop by SIGTERM; exit 143")
	}
}
