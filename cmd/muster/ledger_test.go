package main

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
)

// A worker that fails, and does steps again from its checkpoint, costs what the ledger says, and all of it sums up to the workers' time.
func TestLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	muster(t, dir, []string{"M=" + executable(t)}, "run", "--nproc-per-node", "2", "--max-restarts", "2", "--verdict", "v.json", "--", "sh", "-c", `
		step=0
		[ $TORCHELASTIC_RESTART_COUNT = 0 ] || step=2
		while [ $step -lt 8 ]; do
			step=$((step + 1))
			$M beat --step $step
			until $M status --json | grep -q "\"step\": $step,"; do :; done # it was seen
			[ $TORCHELASTIC_RESTART_COUNT$RANK$step != 015 ] || exit 3
		done`).ends(0)
	p := muster(t, dir, nil, "ledger", "--json", ".")
	p.ends(0)
	var l report.Ledger
	if err := json.Unmarshal([]byte(p.out.String()), &l); err != nil {
		t.Fatal(err)
	}
	if len(l.Runs) != 1 || len(l.Runs[0].Receipts) != 3 {
		t.Fatalf("%+v", l)
	}
	c, failed := l.Runs[0].Costs, l.Runs[0].Receipts[1]
	if failed.Cause != "failed" || failed.Rank == nil || *failed.Rank != 1 || failed.Redo <= 0 || failed.Redo > c.Wall {
		t.Errorf("%+v", failed)
	}
	sum := c.Useful
	for _, r := range l.Runs[0].Receipts {
		sum += r.Ranks
	}
	if c.Useful <= 0 || math.Abs(sum-c.Wall) > 1e-6 {
		t.Errorf("%f of %f: %+v", sum, c.Wall, l.Runs[0])
	}
	text, err := os.ReadFile(filepath.Join(dir, "v.json"))
	var v struct{ Ledger job.Account }
	if err := errors.Join(err, json.Unmarshal(text, &v)); err != nil {
		t.Fatal(err)
	}
	if laps := v.Ledger.Laps; len(laps) != 2 || laps[0].Of == "" || laps[1].Of != laps[0].Of {
		t.Errorf("in which world were they? %+v", laps)
	}
	muster(t, dir, nil, "ledger", ".").ends(0, "CAUSE", "rank 1 on node 0", "useful: ")
	muster(t, dir, nil, "ledger", t.TempDir()).ends(2, "holds no verdict with a ledger; muster run --verdict FILE leaves one")
	muster(t, dir, nil, "ledger", "none").ends(2, "ledger: lstat none: no such file or directory")
	muster(t, dir, nil, "ledger").ends(2, "takes one DIR")
}
