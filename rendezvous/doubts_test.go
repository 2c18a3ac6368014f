package rendezvous

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

// on puts a node on a machine of its own name.
func on(s job.Spec) job.Spec {
	s.Machine = job.Machine{Name: "machine-of-" + s.Self.Name}
	return s
}

// doubting are the options of nodes that doubt some machines, and where they say it.
func doubting(said *[]string, doubtful ...string) Options {
	o := lastCall
	o.Doubt = func(m job.Machine) string {
		for _, name := range doubtful {
			if m.Name == "machine-of-"+name {
				return m.Name + " is suspect"
			}
		}
		return ""
	}
	o.Say = func(text string) { *said = append(*said, text) }
	return o
}

// A node on a doubtful machine is the spare, whoever came first, and it is waited 5 s for one who takes its place.
func TestDoubtfulSpare(t *testing.T) {
	for _, late := range []time.Duration{0, 3 * time.Second} {
		play(t, func(s *scene) {
			var said []string
			o := doubting(&said, "a")
			a, b := s.comes(on(spared("a", 2)), o), s.comes(on(spared("b", 2)), o)
			s.passes(late)
			c := s.comes(on(spared("c", 2)), o)
			s.agree([]string{"b", "c"}, b, c)
			if got := strings.Join(said, "\n"); got != "a is left as a spare: machine-of-a is suspect" {
				t.Errorf("it was said %q", got)
			}
			s.dies(a)
		})
	}
}

// Where nobody comes in its place, and where there are no spares at all, it takes part, and that is said.
func TestDoubtfulMember(t *testing.T) {
	for spares, want := range []time.Duration{0, silent} {
		play(t, func(s *scene) {
			var said []string
			o := doubting(&said, "a")
			specs := []job.Spec{on(agent("a", 2)), on(agent("b", 2))}
			for i := range specs {
				specs[i].Spares = spares
			}
			a, b := s.comes(specs[0], o), s.comes(specs[1], o)
			s.agree([]string{"a", "b"}, a, b)
			if got := strings.Join(said, "\n"); got != "a takes part, although machine-of-a is suspect" {
				t.Errorf("it was said %q", got)
			}
			if a.after < want || a.after > want+2*beat {
				t.Errorf("%d spares: they waited %v", spares, a.after)
			}
		})
	}
}

// What cannot be shown on a terminal is refused.
func TestMachineOfStrangers(t *testing.T) {
	for _, m := range []job.Machine{{Name: "\x1b[31m"}, {ID: strings.Repeat("x", 300)}, {Boot: "\n"}} {
		if checkMachine(m) == nil {
			t.Errorf("%q passes", m)
		}
	}
}
