package rendezvous

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

var noGPU = Options{Unfit: "no GPU"}

// told is how many heard by a refusal that others cannot run workers.
func told(t *testing.T, err error) int {
	t.Helper()
	r := new(Refusal)
	if !errors.As(err, &r) {
		t.Fatalf("no refusal: %v", err)
	}
	return r.Told
}

// A node that cannot run workers takes no place, whoever leads the meeting, and stands by until the job is over.
func TestUnfitNodeStandsBy(t *testing.T) {
	for name, first := range map[string]bool{"it leads": true, "another leads": false} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *scene) {
				var x, a *arrival
				comes := func() { x = s.comes(spared("x", 2), noGPU) }
				if first {
					comes()
				}
				a = s.comes(spared("a", 2), lastCall)
				if !first {
					comes()
				}
				s.passes(30 * time.Second)
				s.waits(x, a)
				if st := a.last().String(); !strings.Contains(st, "x cannot run workers: no GPU") {
					t.Errorf("a was told %s", st)
				}
				b := s.comes(spared("b", 2), lastCall)
				s.agree([]string{"a", "b"}, a, b)
				s.passes(time.Hour)
				s.waits(x)
				both := s.goesOn(2, a, b)
				s.agree([]string{"a", "b"}, both...)
				if err := both[0].session.End(t.Context(), Over{Verdict: &job.Verdict{Code: 3, Class: job.Failed, Sentence: "rank 1 exited with code 3"}}); err != nil {
					t.Fatal(err)
				}
				s.fails(x, "rank 1 exited with code 3", new(*Ended))
			})
		})
	}
}

// Where the others are too few without it, all hear why: at once when everybody is there, else soon, and those who come later too.
func TestNoWorldWithoutTheUnfit(t *testing.T) {
	const why = "x cannot run workers: no GPU; the job needs 2 nodes"
	play(t, func(s *scene) {
		x := s.comes(agent("x", 2), noGPU)
		s.passes(time.Minute)
		s.waits(x)
		if st := x.last().String(); st != "0 of 2 nodes here, missing nodes 0, 1; x cannot run workers: no GPU" {
			t.Errorf("x was told %s", st)
		}
		a := s.comes(agent("a", 2), Options{})
		s.fails(a, why, new(*Refusal))
		s.fails(x, why, new(*Refusal))
		if a.after > time.Second || told(t, x.err) != 2 {
			t.Errorf("a heard it after %v, with %d nodes", a.after, told(t, x.err))
		}
	})
	play(t, func(s *scene) {
		x := s.comes(agent("x", 3), noGPU)
		a := s.comes(agent("a", 3), Options{})
		s.passes(silent - beat)
		s.waits(x, a)
		s.fails(a, "x cannot run workers: no GPU; the job needs 3 nodes", new(*Refusal))
		s.fails(x, "no GPU", new(*Refusal))
		x = s.comes(agent("x", 3), noGPU)
		b := s.comes(agent("b", 3), Options{})
		s.fails(b, "no GPU", new(*Refusal))
		if sum := told(t, a.err) + told(t, b.err); sum != 4 {
			t.Errorf("%d heard it, twice x among them", sum)
		}
		<-x.done
	})
}

// A node that declines is not waited for, and one that comes in its place is welcome.
func TestDecline(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(numberedAgent(0, 2), Options{})
		if err := Decline(t.Context(), s.store, numberedAgent(1, 2), "no GPU"); err != nil {
			t.Fatal(err)
		}
		s.passes(time.Minute)
		s.waits(a)
		if st := a.last().String(); st != "1 of 2 nodes here (host0 (node 0)), missing node 1; host1 (node 1) cannot run workers: no GPU" {
			t.Errorf("a was told %s", st)
		}
		b := s.comes(life(numberedAgent(1, 2), "b-life2"), Options{})
		s.agree([]string{"host0", "host1"}, a, b)
	})
}

// A host of which all others decline does not wait for them.
func TestAllDecline(t *testing.T) {
	play(t, func(s *scene) {
		if err := Decline(t.Context(), s.store, numberedAgent(1, 3), "no GPU"); err != nil {
			t.Fatal(err)
		}
		x := s.comes(numberedAgent(0, 3), noGPU)
		s.passes(time.Minute)
		s.waits(x)
		if err := Decline(t.Context(), s.store, numberedAgent(2, 3), "no GPU"); err != nil {
			t.Fatal(err)
		}
		s.fails(x, "host1 (node 1) cannot run workers: no GPU, host0 (node 0) cannot run workers: no GPU, host2", new(*Refusal))
	})
}

// Who brings no slots cannot say how many others should.
func TestUnlikeTheFirst(t *testing.T) {
	play(t, func(s *scene) {
		host := spared("x", 2)
		host.Self.Slots = 0
		s.comes(host, noGPU)
		a, few := s.comes(spared("a", 2), lastCall), spared("b", 2)
		few.Self.Slots = 4
		b := s.comes(few, lastCall)
		for _, one := range []*arrival{a, b} {
			s.fails(one, "a brings 8 slots, b brings 4", new(*Refusal))
		}
	})
}

// Who takes no part may not know what the others train with, and has no say in it. Those others must agree.
func TestUnfitNodeHasNoSay(t *testing.T) {
	jax := func(name string) job.Spec {
		spec := agent(name, 2)
		spec.Spares, spec.Framework = 1, "jax"
		return spec
	}
	play(t, func(s *scene) {
		x := s.comes(spared("x", 2), noGPU)
		a, b := s.comes(jax("a"), lastCall), s.comes(jax("b"), lastCall)
		s.agree([]string{"a", "b"}, a, b)
		if got := a.session.World.Terms.Framework; got != "jax" {
			t.Errorf("the world is to train with %q", got)
		}
		s.waits(x)
	})
	play(t, func(s *scene) {
		s.comes(spared("x", 2), noGPU)
		s.comes(jax("a"), lastCall)
		s.fails(s.comes(spared("b", 2), lastCall), "a is to train with jax, b with torch", new(*Refusal))
	})
}
