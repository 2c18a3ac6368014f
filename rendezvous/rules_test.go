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

// The world says after how much silence its nodes give each other up, which all must be able to. Who is of the release before knows of one time only.
func TestTimeoutOfTheWorld(t *testing.T) {
	tells := func(d time.Duration) record { return record{Rules: &job.Rules{Timeout: d}} }
	for _, c := range []struct {
		what    string
		members []record
		want    time.Duration
	}{
		{"the first one's counts", []record{tells(time.Minute), tells(5 * time.Second)}, time.Minute},
		{"one is of the release before", []record{tells(time.Minute), {Rules: &job.Rules{Fence: 9}}}, job.NodeTimeout},
		{"one is of an older one", []record{tells(time.Minute), {}}, job.NodeTimeout},
		{"the first one is", []record{{}, tells(time.Minute)}, job.NodeTimeout},
	} {
		var tickets []ticket
		for i, r := range c.members {
			tickets = append(tickets, ticket{i + 1, r})
		}
		if got := (&leader{node: &node{}}).handsOn(tickets, "").NodeTimeout(); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
		if r := tickets[0].Rules; r != nil && r.Timeout != time.Minute {
			t.Errorf("%s: the first one's record is another now: %+v", c.what, r)
		}
	}
	play(t, func(s *scene) {
		long, short := policed("a"), policed("b")
		long.NodeTimeout, short.NodeTimeout = time.Minute, 0
		a, b := s.comes(elastic("a", 2, 3), long), s.comes(elastic("b", 2, 3), short)
		s.passes(31 * time.Second)
		s.agree([]string{"a", "b"}, a, b)
		if got := b.session.World.Rules.NodeTimeout(); got != time.Minute {
			t.Errorf("b is told %v", got)
		}
		if o := short.After(&b.session.World); o.NodeTimeout != time.Minute || string(o.Policy) != `"a"` || o.Seen != 1 || o.Previous == nil {
			t.Errorf("when it meets the others again it brings %+v", o)
		}
	})
	for _, d := range []time.Duration{-1, 1, time.Hour} {
		play(t, func(s *scene) {
			o := policed("a")
			o.NodeTimeout = d
			s.fails(s.comes(agent("a", 2), o), "a job's node time-out is "+d.String()+", and not 5s to 5m0s", new(*Refusal))
		})
	}
}

// Nodes that are enough wait longer than they were told to wait for each other, where the world before may still have workers: they would give up for nothing.
func TestFenceLongerThanTheMeeting(t *testing.T) {
	play(t, func(s *scene) {
		o := policed("a")
		o.Fence, o.Timeout = 5*time.Minute, 40*time.Second
		a, b := s.comes(elastic("a", 1, 2), o), s.comes(elastic("b", 1, 2), o)
		s.agree([]string{"a", "b"}, a, b)
		s.dies(a)
		a.session.Close()
		s.ends(b, Over{Expect: 2}) // who hears nothing of a, and does not know that it is dead
		w, o2 := b.session.World, again(b)
		o2.Timeout = o.Timeout
		c := s.comes(job.Spec{ID: w.ID, Terms: w.Terms, Self: w.Members[1].Node}, o2)
		s.passes(o.Fence - time.Second)
		s.waits(c)
		s.passes(time.Minute)
		s.agree([]string{"b"}, c)
	})
	play(t, func(s *scene) { // so does a newcomer that was told of a shorter one
		o := policed("a")
		o.Fence, o.Timeout = 5*time.Minute, 40*time.Second
		a, b := s.comes(elastic("a", 1, 2), o), s.comes(elastic("b", 1, 2), o)
		s.agree([]string{"a", "b"}, a, b)
		for _, lost := range []*arrival{a, b} {
			s.dies(lost)
			lost.session.Close()
		}
		o.Fence = 10 * time.Second
		c := s.comes(elastic("c", 1, 2), o)
		s.passes(4 * time.Minute)
		s.waits(c)
		s.passes(2 * time.Minute)
		s.agree([]string{"c"}, c)
	})
	play(t, func(s *scene) { // but not for ever, whatever stands in the store
		o := policed("a")
		o.Fence, o.Timeout = 10000*time.Hour, 40*time.Second
		a := s.comes(elastic("a", 1, 2), o)
		s.agree([]string{"a"}, a)
		s.dies(a)
		a.session.Close()
		o.Fence = 10 * time.Second
		c := s.comes(elastic("c", 1, 2), o)
		s.passes(2 * mostFence)
		s.fails(c, "gave up after", new(*Missing))
	})
	play(t, func(s *scene) { // who waits for more of them, and not for workers to end, gives up; so it is where others come and go
		o := policed("a")
		o.Timeout, o.LastCall, o.Fence = 40*time.Second, time.Hour, 10*time.Second
		a := s.comes(elastic("a", 2, 3), o)
		for range 10 {
			b := s.comes(elastic("b", 2, 3), o)
			s.passes(8 * time.Second)
			s.dies(b)
			b.cancel()
			s.passes(8 * time.Second)
			if a.err != nil {
				break
			}
		}
		s.fails(a, "nodes here", new(*Missing))
		if a.after < o.Timeout || a.after > o.Timeout+o.Fence+2*silent+beat {
			s.Errorf("it gave up after %v", a.after)
		}
	})
	play(t, func(s *scene) { // too few give up when they were told to
		o := policed("a")
		o.Timeout = 40 * time.Second
		a := s.comes(elastic("a", 2, 3), o)
		s.passes(41 * time.Second)
		s.fails(a, "1 of 2:3 nodes here", new(*Missing))
	})
}
