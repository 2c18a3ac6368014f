package launcher

import (
	"testing"
	"time"

	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/job"
)

// Where all workers train nobody looks through the machine's processes for launchers in them.
func TestNoLaunchersAreLookedForInWhoTrains(t *testing.T) {
	for _, trains := range []bool{true, false} {
		w := &watch{ctx: t.Context(), world: job.World{Members: []job.Member{{Node: job.Node{Slots: 2}}}}, nested: nested{busy: make(chan struct{}, 1)}}
		w.launchers(time.Now(), []int{1 << 23}, []page.Snapshot{{PID: 1 << 23, Grouped: trains}})
		if looks := len(w.nested.busy) > 0; looks == trains { // who looks does so for two seconds at least
			t.Errorf("they train: %v; it is looked: %v", trains, looks)
		}
	}
}
