package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-run/muster/test/etcdtest"
	"github.com/muster-run/muster/test/freeport"
)

// previous returns muster as the release before had it, or, as another program would see one that is older still (test/previous).
func previous(t *testing.T, which ...string) string {
	t.Helper()
	cmd := exec.Command("../../test/previous", which...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("test/previous: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// mixed starts a node of each of these programs, in the order of their ranks: the first one leads the world. The second one hosts the store.
func mixed(t *testing.T, vars []string, nodes string, programs []string, args ...string) (all []*program) {
	t.Helper()
	endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
	for n, exe := range programs {
		all = append(all, startProgram(t, t.TempDir(), vars, append([]string{exe, "run", "--nnodes", nodes, "--node-rank", strconv.Itoa(n), "--nproc-per-node", "2",
			"--rdzv-id", "mixed", "--local-addr", fmt.Sprintf("127.0.0.%d", n+1), "--rdzv-endpoint", endpoint, "--serve", map[bool]string{true: "yes", false: "no"}[n == 1], "--join-timeout", "2m"}, args...)...))
	}
	return all
}

// twoLives is a job in which rank 3 fails in the first round, and waits for a file in the second.
func twoLives(t *testing.T) (args []string, end func()) {
	open := filepath.Join(t.TempDir(), "open")
	return []string{"--max-restarts", "1", "--", "sh", "-c", fmt.Sprintf(`echo "up $RANK of $WORLD_SIZE, round $TORCHELASTIC_RESTART_COUNT"
		[ $TORCHELASTIC_RESTART_COUNT$RANK = 03 ] && exit 7; until [ -e %s ]; do sleep 0.02; done; [ $TORCHELASTIC_RESTART_COUNT != 0 ]`, open)}, func() { signalFile(t, open) }
}

// lives waits until two nodes have gone through both rounds, and ends them.
func lives(t *testing.T, all []*program, end func()) {
	t.Helper()
	for rank := range 4 {
		all[rank/2].says(fmt.Sprintf("up %d of 4, round 1", rank))
	}
	end()
	for _, p := range all {
		p.ends(0, "exited with code 7", "restart 1 of 1")
	}
}

// Agents of this release and the one before form a world, whichever leads: a failure on one is told to the other, and the next round has both.
func TestPreviousRelease(t *testing.T) {
	t.Parallel()
	old, ours := previous(t), executable(t)
	for name, programs := range map[string][]string{"the old one leads": {old, ours}, "the new one leads": {ours, old}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args, end := twoLives(t)
			lives(t, mixed(t, nil, "2", programs, args...), end)
		})
	}
}

// So do the nodes that are left when the leader's is lost.
func TestPreviousReleaseElastic(t *testing.T) {
	t.Parallel()
	old, ours := previous(t), executable(t)
	for name, programs := range map[string][]string{"an old leader": {old, ours, old}, "a new leader": {ours, old, ours}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := filepath.Join(t.TempDir(), "open")
			args := []string{"--last-call", "15s", "--", "sh", "-c", fmt.Sprintf(`echo "up $RANK of $WORLD_SIZE"; until [ -e %s ]; do sleep 0.02; done`, open)}
			all := mixed(t, nil, "2:3", programs, args...)
			for n, p := range all {
				p.says(fmt.Sprintf("up %d of 6", 2*n))
			}
			c := &crowd{T: t, nodes: map[string]*program{"leader": all[0]}}
			c.dies("leader")
			for n, p := range all[1:] {
				p.says(fmt.Sprintf("up %d of 4", 2*n))
			}
			signalFile(t, open)
			for _, p := range all[1:] {
				p.ends(0)
			}
		})
	}
}

// What is further apart is refused, by name, on both sides.
func TestReleasesTooFarApart(t *testing.T) {
	t.Parallel()
	old, ours := previous(t, "older"), executable(t)
	for name, programs := range map[string][]string{"the old one leads": {old, ours}, "the new one leads": {ours, old}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, p := range mixed(t, nil, "2", programs, "--", "true") {
				p.ends(67, "which speaks meeting protocol", "use the same image on all nodes")
			}
		})
	}
}

// What the release before does not know of it cannot do, and the world that it makes is none for who asks for that.
func TestPreviousReleaseKnowsLess(t *testing.T) {
	t.Parallel()
	old, ours := previous(t), executable(t)
	for rank, programs := range [][]string{{ours, old}, {old, ours}} {
		all := mixed(t, []string{"MUSTER_ON_WORKER_EXIT=restart"}, "2", programs, "--max-restarts", "1", "--", "sleep", "1000")
		all[rank].ends(67, "--on-worker-exit")
	}
}

// An agent of the release before that makes way for this one leaves it all that the job was told, in its own words.
func TestUpgradeFromPrevious(t *testing.T) {
	t.Parallel()
	fail, end := filepath.Join(t.TempDir(), "fail"), filepath.Join(t.TempDir(), "end")
	p := startProgram(t, t.TempDir(), nil, previous(t), "run", "--standalone", "--nproc-per-node", "2", "--clean", "none", "--", "sh", "-c",
		fmt.Sprintf(`echo "up $RANK"; [ $RANK = 0 ] && { until [ -e %s ]; do sleep 0.02; done; exit 3; }; until [ -e %s ]; do sleep 0.02; done; echo "end $RANK"`, fail, end))
	p.says("up 0")
	p.says("up 1")
	muster(t, t.TempDir(), []string{"TMPDIR=" + p.tmp}, "ctl", "upgrade", executable(t)).ends(0, "makes way for muster")
	p.says(tookOver)
	signalFile(t, fail)
	muster(t, t.TempDir(), []string{"TMPDIR=" + p.tmp}, "status", "--watch").says("exited with code 3")
	signalFile(t, end)
	p.ends(3, "end 1")
}

// In an etcd it is the same.
func etcdPrevious(t *testing.T, exe string) {
	old := previous(t)
	for i, programs := range [][]string{{old, exe}, {exe, old}} {
		at := etcdtest.Start(t, 1)
		args, end := twoLives(t)
		var all []*program
		for n, program := range programs {
			all = append(all, oneOf(t, program, at, n, "2", nil, args...))
		}
		lives(t, all, end)
		nothingLeft(t, at)
		if t.Failed() {
			t.Fatalf("order %d", i)
		}
	}
}
