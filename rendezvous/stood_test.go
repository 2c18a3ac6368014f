package rendezvous

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

const stoodBy = "the job ended while this node stood by: all workers ended well"

// pauses keeps a node from the store for a while, as a machine does that stands still.
func (s *scene) pauses(spec job.Spec, o Options) (*arrival, *standing) {
	still := &standing{Store: s.store}
	a := join(still, spec, o)
	s.came[spec.Self.Incarnation] = a
	s.passes(0)
	return a, still
}

// stops lets nothing through for so long.
func (s *standing) stops(d time.Duration) {
	until := time.Now().Add(d)
	s.until.Store(&until)
}

// A spare that stands still while the next world is made, and ends, ends with it: whether it saw that it was made without it or not.
func TestWorldsPassASpare(t *testing.T) {
	for name, c := range map[string]struct {
		from  time.Duration // it stands still, from the end of the first world on
		again bool          // others have read the end for all who wait
	}{
		"as the next is made":      {},
		"when it is about to meet": {from: 2 * time.Second},
		"others read the end":      {again: true},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *scene) {
				spec := func(name string) job.Spec {
					s := spared(name, 2)
					s.Spares = 3
					return s
				}
				a, b := s.comes(spec("a"), lastCall), s.comes(spec("b"), lastCall)
				s.passes(time.Minute)
				s.agree([]string{"a", "b"}, a, b)
				s.comes(spec("y"), lastCall)
				x, still := s.pauses(spec("x"), lastCall)
				s.passes(10 * time.Second)
				if c.from > 0 {
					s.ends(a, Over{Expect: 2})
					s.passes(c.from)
				}
				still.stops(10 * time.Minute)
				both := s.goesOn(2, a, b)
				s.agree([]string{"a", "b"}, both...)
				var z *arrival
				if c.again {
					z = s.comes(spec("z"), lastCall)
					s.passes(10 * time.Second)
				}
				s.ends(both[0], Over{Verdict: well})
				if c.again {
					s.fails(z, stoodBy, new(*Ended))
				}
				s.fails(x, stoodBy, new(*Ended))
			})
		})
	}
}

// So does one that takes no place in the first world, and looks when that is over.
func TestWorldPassesWhoIsLeftOut(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(spared("a", 2), lastCall)
		o := lastCall
		o.NotBefore = time.Now().Add(time.Hour)
		x, still := s.pauses(spared("x", 2), o)
		s.passes(10 * time.Second)
		still.stops(10 * time.Minute)
		b := s.comes(spared("b", 2), lastCall)
		s.agree([]string{"a", "b"}, a, b)
		s.ends(a, Over{Verdict: well})
		s.fails(x, stoodBy, new(*Ended))
	})
}

// An agent that takes over from one that died, which stood by, ends with the job that has ended meanwhile: where it was told beside which world that was, and
// where it serves the store. Any other node begins the job anew.
func TestWorldsPassBetweenTwoAgents(t *testing.T) {
	for _, worlds := range []int{1, 2} {
		for name, c := range map[string]struct{ told, serves, forgotten bool }{
			"told":                     {told: true},
			"told, and the store lost": {told: true, forgotten: true},
			"it serves":                {serves: true},
			"another node":             {},
		} {
			t.Run(fmt.Sprintf("%s, %d", name, worlds), func(t *testing.T) {
				play(t, func(s *scene) {
					a, b := s.comes(spared("a", 2), lastCall), s.comes(spared("b", 2), lastCall)
					s.agree([]string{"a", "b"}, a, b)
					var kept Standing
					o := lastCall
					o.Stands = func(now Standing) { kept = now }
					if c.serves {
						o.Unfit = "no GPU"
					}
					x := s.comes(spared("x", 2), o)
					s.passes(10 * time.Second)
					s.dies(x)
					x.cancel()
					<-x.done
					if c.forgotten {
						s.store.empty()
						s.passes(2 * time.Second) // a makes the world known again
					}
					if worlds == 2 {
						both := s.goesOn(2, a, b)
						s.agree([]string{"a", "b"}, both...)
						a = both[0]
					}
					s.ends(a, Over{Verdict: well})
					if c.told {
						o.Stood = kept
					}
					again := s.comes(spared("x", 2), o)
					if c.told || c.serves {
						s.fails(again, stoodBy, new(*Ended))
						return
					}
					s.passes(time.Minute)
					s.waits(again)
				})
			})
		}
	}
}
