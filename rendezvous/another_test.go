package rendezvous

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

// running is a node that runs a command.
func running(spec job.Spec, argv ...string) job.Spec {
	spec.Program = job.ProgramOf(argv)
	return spec
}

// others are what agents of two jobs find that meet under one id.
func others(s *scene, one, two func(int) job.Spec, o Options) (first, second []*arrival) {
	first = []*arrival{s.comes(one(0), o), s.comes(one(1), o)}
	s.agree([]string{one(0).Self.Name, one(1).Self.Name}, first...)
	o.Timeout = time.Minute
	return first, []*arrival{s.comes(two(0), o), s.comes(two(1), o)}
}

// ofJob are the nodes of a job of two, by index.
func ofJob(name string, argv ...string) func(int) job.Spec {
	return func(i int) job.Spec { return running(indexed(fmt.Sprint(name, i), i), argv...) }
}

// Two jobs at one endpoint to which nobody gave an id: the second waits for as long as the first lives, through whatever worlds, whether its nodes have the
// same indices or others, and expect as many nodes or not. It hears why, its nodes have no part in what the first does meanwhile, and then they meet.
func TestToldApart(t *testing.T) {
	failed := &job.Verdict{Code: 3, Class: job.Failed, Sentence: "rank 0 exited with code 3"}
	a, b := ofJob("a", "train.py", "--lr", "1"), ofJob("b", "train.py", "--lr", "2")
	wide := func(i int) job.Spec {
		spec := b(i)
		spec.Least, spec.Nodes = 2, 3
		return spec
	}
	unnumbered := func(i int) job.Spec {
		spec := b(i)
		spec.Self.Index = -1
		return spec
	}
	for name, two := range map[string]func(int) job.Spec{"same indices": b, "another size": wide, "no indices": unnumbered} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *scene) {
				said := make(chan string, 100)
				o, alive := until(answering("a0", "a1"))
				o.Say = func(text string) { said <- text }
				o.Stands = func(beside Standing) { t.Errorf("it is to end as what stands at %+v", beside) }
				first, second := others(s, a, two, o)
				if got := first[0].session.World.Terms.Program; got != a(0).Program {
					t.Errorf("the world runs %d", got)
				}
				s.passes(time.Hour)
				s.waits(second...)
				for _, x := range second {
					if got := x.last().String(); !strings.HasPrefix(got, "generation 1 of another job that meets here has been running for 1h0m") ||
						!strings.Contains(got, "on a0 (node 0), a1 (node 1); waiting for its end, for it runs another command and has no place for this node: give each job its own --rdzv-id") {
						t.Errorf("it was told %q", got)
					}
				}
				select {
				case n := <-first[0].session.Newcomers():
					t.Errorf("the first job hears that %d wait to join", n)
				default:
				}
				alive.Store(false)                                // they are busy, and that changes nothing now
				s.ends(first[0], Over{Expect: 1, Lost: []int{1}}) // it meets again, and waits for another a1
				a0 := s.back(first[0], true)
				s.passes(20 * time.Second)
				s.waits(append(second, a0)...)
				a1 := s.comes(life(a(1), "a1-life2"), o)
				s.agree([]string{"a0", "a1"}, a0, a1)
				s.passes(time.Minute)
				s.waits(second...)
				for _, x := range second {
					if got := x.last(); !got.Another || got.Running != 2 {
						t.Errorf("in the next world it was told %q", got)
					}
				}
				s.ends(a0, Over{Verdict: failed})
				s.agree([]string{"b0", "b1"}, second...)
				if w := second[0].session.World; w.Terms.Program != two(0).Program || w.Past.Rounds != 0 {
					t.Errorf("the second job has the world %+v", w)
				}
				for range second {
					if got := <-said; !strings.HasPrefix(got, "a job that ran another command has ended here, in generation 2: rank 0 exited with code 3") {
						t.Errorf("it says %q", got)
					}
				}
			})
		})
	}
}

// A newcomer that expects other nodes than the world has cannot be in its place for one that died, and is not refused either.
func TestAnotherIsNotRefused(t *testing.T) {
	play(t, func(s *scene) {
		b := func(i int) job.Spec {
			spec := ofJob("b", "b.py")(i)
			spec.Nodes = 3
			return spec
		}
		first, second := others(s, ofJob("a", "a.py"), b, answering())
		s.passes(10 * time.Second)
		s.waits(second...)
		s.ends(first[0], Over{Verdict: &job.Verdict{Sentence: "all workers ended well"}})
		s.agree([]string{"b0", "b1", "b2"}, append(second, s.comes(b(2), answering()))...)
	})
}

// until are options of who comes while others live, and for how long those do.
func until(o Options) (Options, *atomic.Bool) {
	ask, alive := o.Lives, new(atomic.Bool)
	alive.Store(true)
	o.Lives = func(ctx context.Context, n job.Node) bool { return alive.Load() && ask(ctx, n) }
	return o, alive
}

// A job of which nobody is left, while it has a world or its members meet, is not waited for; one whose members answer is.
func TestNobodyIsLeftOfAnother(t *testing.T) {
	a, b := ofJob("a", "a.py"), ofJob("b", "b.py")
	for _, meets := range []bool{false, true} {
		play(t, func(s *scene) {
			o, alive := until(answering("a0", "a1"))
			o.Fence = 19 * time.Second
			first, second := others(s, a, b, o)
			s.passes(time.Minute)
			if meets {
				s.ends(first[0], Over{Expect: 1, Lost: []int{1}})
				a0 := s.back(first[0], true)
				s.passes(5 * time.Second)
				s.dies(a0)
				s.passes(10 * time.Second)
			} else {
				s.dies(first[0])
				first[0].session.Close()
				s.passes(30 * time.Second)
				s.waits(second...)
				alive.Store(false)
			}
			s.waits(second...)
			s.passes(20 * time.Second)
			s.agree([]string{"b0", "b1"}, second...)
		})
	}
}

// The store goes with the job that hosted it. Those who waited go on in the one that comes after, where they know how that ended, and where they do not.
func TestAnotherTakesItsStore(t *testing.T) {
	a, b := ofJob("a", "a.py"), ofJob("b", "b.py")
	for _, told := range []bool{true, false} {
		play(t, func(s *scene) {
			o, alive := until(answering("a0", "a1"))
			first, second := others(s, a, b, o)
			s.passes(time.Minute)
			alive.Store(false)
			if told {
				s.ends(first[0], Over{Verdict: &job.Verdict{Sentence: "all workers ended well"}})
			} else {
				first[0].session.Close()
			}
			s.store.empty()
			s.passes(20 * time.Second)
			s.agree([]string{"b0", "b1"}, second...)
		})
	}
}

// Where the store comes back empty and the first job lives on, the second hears of it in the new one.
func TestAnotherOutlivesItsStore(t *testing.T) {
	play(t, func(s *scene) {
		_, second := others(s, ofJob("a", "a.py"), ofJob("b", "b.py"), answering("a0", "a1"))
		s.passes(time.Minute)
		s.store.empty()
		s.passes(30 * time.Second)
		s.waits(second...)
		for _, x := range second {
			if got := x.last(); !got.Another || got.Quiet > 0 || got.Alive < 20*time.Second {
				t.Errorf("it was told %q", got)
			}
		}
	})
}

// Of two jobs that come at once, the one that is left out waits for the other.
func TestAnotherLeftOut(t *testing.T) {
	play(t, func(s *scene) {
		spec := func(name, argv string) job.Spec { return running(agent(name, 2), argv) }
		s.halts = &halt{key: keyOutcome, long: time.Second} // who leads is slow, and more come than there are places for
		a0, a1 := s.comes(spec("a0", "a.py"), Options{}), s.comes(spec("a1", "a.py"), Options{})
		b0 := s.comes(spec("b0", "b.py"), Options{})
		s.agree([]string{"a0", "a1"}, a0, a1)
		s.passes(2 * beat)
		s.waits(b0)
		if got := b0.last(); !got.Another || got.Running != 1 {
			t.Errorf("it was told %q", got)
		}
	})
}

// Who cannot be told from a node of the world's job is one, as before: it ends with it, or has the place of a member that died.
func TestNotToldApart(t *testing.T) {
	verdict := &job.Verdict{Code: 3, Class: job.Failed, Sentence: "rank 0 exited with code 3"}
	none, one, other := uint64(0), job.ProgramOf([]string{"a.py"}), job.ProgramOf([]string{"b.py"})
	for name, c := range map[string]struct{ a0, a1, b1 uint64 }{
		"an older release's newcomer": {one, one, none},
		"an older release's world":    {none, none, other},
		"an older release's member":   {one, none, other},
		"parameter servers":           {one, other, other},
		"the same command":            {other, other, other},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *scene) {
				node := func(name string, i int, program uint64) job.Spec {
					spec := indexed(name, i)
					spec.Program = program
					return spec
				}
				a0, a1 := s.comes(node("a0", 0, c.a0), Options{}), s.comes(node("a1", 1, c.a1), Options{})
				s.agree([]string{"a0", "a1"}, a0, a1)
				b1 := s.comes(node("b1", 1, c.b1), answering("a0", "a1"))
				s.passes(time.Minute)
				if got := b1.last(); got.Another || got.Twin == "" {
					t.Errorf("it was told %q", got)
				}
				s.ends(a0, Over{Verdict: verdict})
				s.fails(b1, "the job ended without this agent", new(*Ended))
			})
		})
	}
	play(t, func(s *scene) { // the time is in its command
		a := ofJob("a", "train.py", "--out", "1pm")
		first := []*arrival{s.comes(a(0), Options{}), s.comes(a(1), Options{})}
		s.agree([]string{"a0", "a1"}, first...)
		s.dies(first[1])
		b1 := s.comes(running(indexed("b1", 1), "train.py", "--out", "2pm"), answering("a0"))
		s.passes(time.Second)
		s.ends(first[0], Over{Expect: 1, Lost: []int{1}})
		a0 := s.back(first[0], true)
		s.agree([]string{"a0", "b1"}, b1, a0)
		if got := a0.session.World.Terms.Program; got != job.Various {
			t.Errorf("the world runs %d", got)
		}
	})
}

// A world runs what all its nodes do.
func TestProgram(t *testing.T) {
	for _, c := range []struct {
		all  []uint64
		want uint64
	}{
		{[]uint64{7}, 7},
		{[]uint64{7, 7, 7}, 7},
		{[]uint64{7, 8, 7}, job.Various},
		{[]uint64{0, 0}, 0},
		{[]uint64{0, 7}, 0},
		{[]uint64{7, 0, 7}, 0},
		{[]uint64{7, 0, 8}, job.Various},
	} {
		var tickets []ticket
		for _, p := range c.all {
			tickets = append(tickets, ticket{record: record{Terms: job.Terms{Program: p}}})
		}
		if got := program(tickets); got != c.want {
			t.Errorf("%v: %d, want %d", c.all, got, c.want)
		}
	}
}

// It waits while the nodes of the first job meet again, too, for as long as that lasts, and hears so.
func TestAnotherWaitsWhileTheyMeet(t *testing.T) {
	play(t, func(s *scene) {
		first, second := others(s, ofJob("a", "a.py"), ofJob("b", "b.py"), answering("a0", "a1"))
		s.passes(time.Hour)
		s.ends(first[0], Over{Expect: 1, Lost: []int{1}})
		a0 := s.back(first[0], true)
		s.passes(2 * time.Minute) // twice as long as they wait for each other
		s.waits(append(second, a0)...)
		const want = "generation 1 of another job that meets here, on a0 (node 0), a1 (node 1), has lost a node, and the others meet again; waiting for its end, for it runs another command"
		for _, x := range second {
			if got := x.last().String(); !strings.HasPrefix(got, want) {
				t.Errorf("it was told %q", got)
			}
		}
		s.dies(a0)
		s.passes(time.Minute)
		s.agree([]string{"b0", "b1"}, second...)
	})
}

// It stays another job when a node comes in the place of one that died, with another command: what its worlds run is not known any more.
func TestApartWhateverFollows(t *testing.T) {
	play(t, func(s *scene) {
		o := answering("a0", "a1")
		first, second := others(s, ofJob("a", "a.py", "--out", "1pm"), ofJob("b", "b.py"), o)
		s.passes(time.Minute)
		s.dies(first[1])
		s.ends(first[0], Over{Expect: 1, Lost: []int{1}})
		a0 := s.back(first[0], true)
		s.passes(5 * time.Second)
		a1 := s.comes(running(life(indexed("a1", 1), "a1-life2"), "a.py", "--out", "2pm"), o)
		s.passes(10 * time.Second)
		s.agree([]string{"a0", "a1"}, a0, a1)
		if a0.session.World.Terms.Program != job.Various {
			t.Fatal("it is known what they run")
		}
		s.passes(time.Hour)
		s.waits(second...)
		for _, x := range second {
			if got := x.last().String(); !strings.HasPrefix(got, "generation 2 of another job") {
				t.Errorf("it was told %q", got)
			}
		}
		s.ends(a0, Over{Verdict: &job.Verdict{Code: 3, Class: job.Failed, Sentence: "rank 0 exited with code 3"}})
		s.passes(20 * time.Second)
		s.agree([]string{"b0", "b1"}, second...)
	})
}

// A job whose members answer lives, though its leader's sign stands still.
func TestAnotherWaitsWhileTheyAnswer(t *testing.T) {
	play(t, func(s *scene) {
		first, second := others(s, ofJob("a", "a.py"), ofJob("b", "b.py"), answering("a0", "a1"))
		s.passes(time.Minute)
		first[0].session.Close()
		s.passes(time.Hour)
		s.waits(second...)
	})
}
