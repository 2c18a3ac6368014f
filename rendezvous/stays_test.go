package rendezvous

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

// parks are the options of a node whose platform starts again whatever ends.
var parks = Options{Timeout: time.Minute, LastCall: 30 * time.Second, Forgets: true, Stays: true}

var success = job.Verdict{Class: job.Succeeded, Sentence: "all workers ended well"}

// stay makes an agent that is parked say so, for a while.
func (s *scene) stay(a *arrival, d time.Duration) {
	s.Helper()
	for ; d > 0; d -= 5 * time.Second {
		if err := a.session.Stay(s.Context(), s.store, success); err != nil {
			s.Fatal(err)
		}
		s.passes(5 * time.Second)
	}
}

// A node that is made again beside agents that are parked waits as long as they are, does not begin the job with the few that were made again, and begins it
// with all; whether the store still has the end of the job, or is another one, and whether agents that are parked come to it before the node or after.
func TestStays(t *testing.T) {
	for name, forgets := range map[string]bool{"the store that they met in": false, "another store": true} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *scene) {
				a, b := s.comes(elastic("a", 1, 2), parks), s.comes(elastic("b", 1, 2), parks)
				s.agree([]string{"a", "b"}, a, b)
				s.ends(a, Over{Verdict: &success})
				if forgets {
					s.store.empty()
				} else {
					s.stay(a, 5*time.Second)
				}
				again := s.comes(life(elastic("b", 1, 2), "b2"), parks)
				s.stay(a, 10*time.Minute)
				s.waits(again)
				if got := again.last().String(); !strings.Contains(got, "the job has ended well, and agents of it are parked") {
					t.Errorf("it was told %q", got)
				}
				s.agree([]string{"a", "b"}, s.comes(life(elastic("a", 1, 2), "a2"), parks), again)
			})
		})
	}
}

// It gives up, or begins with the few, some time after nobody is parked any more; one whose platform does not start again what ends never waits so.
func TestStaysNoMore(t *testing.T) {
	play(t, func(s *scene) {
		a, b := s.comes(agent("a", 2), parks), s.comes(agent("b", 2), parks)
		s.agree([]string{"a", "b"}, a, b)
		s.ends(a, Over{Verdict: &success})
		s.stay(a, 5*time.Second)
		other := parks
		other.Stays = false
		again, plain := s.comes(life(agent("b", 3), "b2"), parks), s.comes(life(agent("c", 3), "c2"), other)
		s.stay(a, 2*time.Minute)
		s.fails(plain, "gave up after 1m0s", new(*Missing))
		s.waits(again)
		s.fails(again, "gave up after 2m5", new(*Missing))
	})
	play(t, func(s *scene) {
		a, b := s.comes(elastic("a", 1, 2), parks), s.comes(elastic("b", 1, 2), parks)
		s.agree([]string{"a", "b"}, a, b)
		s.ends(a, Over{Verdict: &success})
		again := s.comes(life(elastic("b", 1, 2), "b2"), Options{LastCall: parks.LastCall, Stays: true})
		s.stay(a, 2*time.Minute)
		s.waits(again)
		s.agree([]string{"b"}, again)
		if again.after < 2*time.Minute+staysTime || again.after > 3*time.Minute+staysTime {
			t.Errorf("it waited %v", again.after)
		}
	})
}

// Who was in a job that failed has nobody wait.
func TestStaysAfterSuccessOnly(t *testing.T) {
	play(t, func(s *scene) {
		a, b := s.comes(agent("a", 2), parks), s.comes(agent("b", 2), parks)
		s.agree([]string{"a", "b"}, a, b)
		s.ends(a, Over{Verdict: &job.Verdict{Code: 1, Class: job.Failed, Sentence: "rank 0 exited 1"}})
		again := s.comes(life(agent("b", 2), "b2"), parks)
		s.stay(a, 2*time.Minute)
		s.fails(again, "gave up after 1m0s", new(*Missing))
	})
}
