package rendezvous

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

// named is a policy that tells whose it is.
func named(who string) json.RawMessage { return json.RawMessage(strconv.Quote(who)) }

// policed are the options of a node that was told something of its own.
func policed(who string) Options {
	o := lastCall
	o.Policy = named(who)
	return o
}

func (s *scene) goesBy(want string, a *arrival) {
	s.Helper()
	if got := string(a.session.World.Rules.Policy); got != strconv.Quote(want) {
		s.Errorf("the world goes by the policy of %s, want %q", got, want)
	}
}

// A late comer that leads the meeting for the next world lets in all for whom the last one ended: it goes by the rules of those who were in it.
func TestLateComerThatWouldClose(t *testing.T) {
	play(t, func(s *scene) {
		a, b := s.comes(elastic("a", 2, 3), policed("a")), s.comes(elastic("b", 2, 3), policed("b"))
		s.passes(31 * time.Second)
		s.agree([]string{"a", "b"}, a, b)
		s.goesBy("a", b)
		closed := policed("c")
		closed.Closed = true
		c := s.comes(elastic("c", 2, 3), closed)
		s.passes(time.Minute)
		s.agree([]string{"a", "b", "c"}, append(s.goesOn(2, a, b), c)...)
		s.goesBy("a", c)
	})
}

// A late comer with a short fence waits all the same until no workers can live on a node that was cut off: it has heard from who was in that world,
// or has read it in the store where nobody of it came.
func TestFenceOfTheWorldBefore(t *testing.T) {
	for _, survives := range []bool{true, false} {
		play(t, func(s *scene) {
			long, short := policed("a"), policed("c")
			long.Fence, short.LastCall, short.Fence = 5*time.Minute, time.Second, time.Second
			a, b := s.comes(elastic("a", 2, 3), long), s.comes(elastic("b", 2, 3), long)
			s.passes(31 * time.Second)
			s.agree([]string{"a", "b"}, a, b)
			c := s.comes(elastic("c", 2, 3), short)
			s.dies(a)
			a.session.Close()
			goOn, want := []*arrival{c}, []string{"c", "d"}
			if survives {
				goOn, want = append(goOn, s.back(b, false)), []string{"c", "b"}
			} else {
				s.dies(b)
				goOn = append(goOn, s.comes(elastic("d", 2, 3), short))
			}
			s.passes(long.Fence - time.Second)
			s.waits(goOn...)
			s.passes(time.Minute)
			s.agree(want, goOn...)
			s.goesBy(map[bool]string{true: "a", false: "c"}[survives], c)
		})
	}
}

// A spare that takes the first node's place takes its rules over.
func TestSpareLeadsByTheRulesOfBefore(t *testing.T) {
	play(t, func(s *scene) {
		a, b, d := s.comes(spared("a", 2), policed("a")), s.comes(spared("b", 2), policed("b")), s.comes(spared("d", 2), policed("d"))
		s.agree([]string{"a", "b"}, a, b)
		s.dies(a)
		a.session.Close()
		next := s.goesOn(1, b)
		s.agree([]string{"d", "b"}, d, next[0])
		s.goesBy("a", d)
	})
}

// Nodes of the release before tell no rules: those of the latest world that is known count, and else each leader's own.
func TestRulesOfTheReleaseBefore(t *testing.T) {
	known := &world{World: job.World{Generation: 3, Rules: &job.Rules{LastCall: 3, Fence: 8}}}
	for _, c := range []struct {
		what     string
		before   *world
		guests   []record
		want     job.Rules
		handedOn bool
	}{
		{"nobody tells", nil, []record{{Seen: 3}}, job.Rules{LastCall: 1, Fence: 2}, false},
		{"the world does", known, []record{{Seen: 3}}, job.Rules{LastCall: 3, Fence: 8}, true},
		{"one of the world before it does", known, []record{{Seen: 3}, {Seen: 2, Rules: &job.Rules{LastCall: 2, Fence: 9}}}, job.Rules{LastCall: 3, Fence: 9}, true},
		{"one of it does", known, []record{{Seen: 3, Rules: &job.Rules{LastCall: 4}}, {Seen: 3}}, job.Rules{LastCall: 4, Fence: 8}, true},
		{"a newcomer does", nil, []record{{Rules: &job.Rules{LastCall: 5, Fence: 9}}}, job.Rules{LastCall: 1, Fence: 2}, false},
	} {
		l := &leader{node: &node{Options: Options{LastCall: 1, Fence: 2}, before: past{world: c.before}}}
		for _, r := range c.guests {
			l.learn(r)
		}
		if got := l.rules(); got.LastCall != c.want.LastCall || got.Fence != c.want.Fence {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
		first := ticket{1, record{Rules: &job.Rules{LastCall: 7}}}
		if got := l.handsOn([]ticket{first}, ""); (got != first.Rules) != c.handedOn {
			t.Errorf("%s: the next world has %+v", c.what, got)
		}
	}
}

func TestRulesBounded(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 2), policed(strings.Repeat("x", maxRules)))
		s.fails(a, "a job's rules have 4098 bytes, more than 4096", new(*Refusal))
	})
}
