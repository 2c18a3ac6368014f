package rendezvous

import (
	"testing"

	"github.com/muster-run/muster/job"
)

// After the first world a node that contradicts the job is refused alone, whichever node leads the meeting, and the others wait on for a right one.
func TestWrongNewcomer(t *testing.T) {
	other := agent("c", 2)
	other.Token = "another"
	larger := agent("c", 3)
	larger.Least = 2
	for name, c := range map[string]struct {
		spec job.Spec
		want string
	}{
		"token": {other, "do not have the same job token"},
		"nodes": {larger, "give all nodes the same --nnodes"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, first := range []bool{false, true} {
				play(t, func(s *scene) {
					a, b := s.comes(agent("a", 2), lastCall), s.comes(agent("b", 2), lastCall)
					s.agree([]string{"a", "b"}, a, b)
					s.dies(b)
					b.session.Close()
					s.ends(a, Over{Expect: 1, Lost: []int{1}})
					var wrong, back *arrival
					if first {
						wrong = s.comes(c.spec, lastCall)
						back = s.back(a, false)
					} else {
						back = s.back(a, false)
						wrong = s.comes(c.spec, lastCall)
					}
					s.passes(2 * beat)
					s.fails(wrong, c.want, new(*Refusal))
					s.waits(back)
					if got := back.last(); got.Count != 1 {
						t.Errorf("a counts %d nodes: %v", got.Count, got)
					}
					d := s.comes(agent("d", 2), lastCall)
					s.passes(2 * silent)
					s.agree([]string{"a", "d"}, back, d)
				})
			}
		})
	}
}
