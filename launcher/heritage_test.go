package launcher

import (
	"testing"

	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/proc"
)

// The store that an agent left is this round's, or none: that of the round before may have been ended already, and one that
// was started may not have been noted.
func TestInheritStore(t *testing.T) {
	here := &start{Port: 4711, AgentStore: true}
	for _, c := range []struct {
		name  string
		start *start
		noted int
		lives []int
		want  int // PID; -1: none
		ended bool
	}{
		{"rank 0 hosts it", &start{Port: 4711}, 0, nil, -1, false},
		{"it serves", here, 7, []int{6, 7}, 7, false},
		{"it ended, and nobody saw it", here, 7, nil, 0, true},
		{"it was started, and not noted", nil, 0, []int{7}, -1, false},
		{"the last round's was to be ended", nil, 7, []int{7}, -1, false},
		{"the last round's was ended", nil, 7, nil, -1, false},
	} {
		old := &pid1.Legacy{}
		for _, pid := range c.lives {
			old.Children = append(old.Children, pid1.Inherited{Child: &proc.Child{PID: pid}})
		}
		w := inheritStore(moment{State: state{Start: c.start}, Store: c.noted}, old)
		if (w == nil) != (c.want < 0) || w != nil && (w.child.PID != c.want || (len(w.child.Exit) > 0) != c.ended) {
			t.Errorf("%s: %+v", c.name, w)
		}
	}
}
