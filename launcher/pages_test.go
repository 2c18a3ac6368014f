package launcher

import (
	"testing"

	"github.com/muster-run/muster/heartbeat/page"
)

// Who is about to end waits for nobody, though its helper thread looked last while it was in a collective.
func TestExitingWaitsForNobody(t *testing.T) {
	s := page.Snapshot{PID: 812, Recorder: true, Lanes: []page.Lane{{Group: 7, Entered: 63, Completed: 62}}}
	for _, exiting := range []bool{false, true} {
		s.Exiting = exiting
		if b := beatOf(0, 0, 812, s, 0); b.Lanes[0].Waits() == exiting {
			t.Errorf("exiting %v: %+v", exiting, b.Lanes)
		}
	}
}
