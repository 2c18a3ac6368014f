package launcher

import (
	"testing"
	"time"

	"github.com/muster-run/muster/heartbeat/page"
)

// Of a worker whose program has failed, and whose Python does not end, that is said once.
func TestDeparting(t *testing.T) {
	d := departing{}
	began := time.Now()
	failed := page.Snapshot{PID: 7, Over: true, Raised: "ValueError: the real bug"}
	for _, c := range []struct {
		rank, at int // seconds
		page     page.Snapshot
		want     string
	}{
		{1, 0, page.Snapshot{PID: 7}, ""},
		{1, 1, failed, ""},
		{2, 1, page.Snapshot{PID: 8, Over: true}, ""},
		{1, 10, failed, ""},
		{1, 11, failed, "rank 1 (pid 7) has failed, and its Python has not ended 10 s later: ValueError: the real bug; muster ctl dump shows what it waits for"},
		{1, 12, failed, ""},
		{2, 20, page.Snapshot{PID: 8, Over: true}, ""},
	} {
		if got := d.note(c.rank, c.page, began.Add(time.Duration(c.at)*time.Second)); got != c.want {
			t.Errorf("rank %d at %d s: %q", c.rank, c.at, got)
		}
	}
}
