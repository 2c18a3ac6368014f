package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous/store"
)

// elastic is a node of a job that begins with the fewest nodes if need be.
func elastic(name string, fewest, nodes int) job.Spec {
	s := agent(name, nodes)
	s.Least = fewest
	return s
}

// spared is a node of a job with one spare.
func spared(name string, nodes int) job.Spec {
	s := agent(name, nodes)
	s.Spares = 1
	return s
}

var lastCall = Options{LastCall: 30 * time.Second}

// again is what a member of a world brings to the next meeting.
func again(a *arrival) Options {
	w := a.session.World
	o := Options{LastCall: lastCall.LastCall, Seen: w.Generation, Previous: &w, Forgets: true}
	if w.Rules != nil {
		o = o.After(&w)
	}
	return o
}

// goesOn ends a world that another one follows, and makes its members meet again.
func (s *scene) goesOn(expect int, all ...*arrival) []*arrival {
	s.Helper()
	var next []*arrival
	for _, a := range all {
		s.ends(a, Over{Expect: expect})
	}
	for _, a := range all {
		next = append(next, s.back(a, false))
	}
	return next
}

// ends makes a member say how its world ended.
func (s *scene) ends(a *arrival, how Over) {
	s.Helper()
	if err := a.session.End(s.Context(), how); err != nil {
		s.Fatal(err)
	}
}

// back makes a member meet again, which has heard that its leader lives or has not.
func (s *scene) back(a *arrival, led bool) *arrival {
	a.session.Close()
	w, o := a.session.World, again(a)
	o.Led = led
	return s.comes(job.Spec{ID: w.ID, Terms: w.Terms, Self: w.Members[a.session.Rank].Node}, o)
}

// The fewest nodes begin when they have waited long enough for others; all of them at once.
func TestLastCall(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(elastic("a", 2, 4), lastCall)
		s.passes(time.Minute)
		b := s.comes(elastic("b", 2, 4), lastCall)
		s.passes(10500 * time.Millisecond)
		if got := b.last().String(); !regexp.MustCompile(`^2 of 2:4 nodes here \(a, b\); they begin in (19|20|21)s$`).MatchString(got) {
			t.Errorf("b was told %q", got)
		}
		c := s.comes(elastic("c", 2, 4), lastCall)
		s.waits(a, b, c)
		s.agree([]string{"a", "b", "c"}, a, b, c)
		if b.after < 30*time.Second || b.after > 32*time.Second {
			t.Errorf("they waited %v", b.after)
		}
	})
	play(t, func(s *scene) {
		a, b, c := s.comes(elastic("a", 2, 3), lastCall), s.comes(elastic("b", 2, 3), lastCall), s.comes(elastic("c", 2, 3), lastCall)
		s.agree([]string{"a", "b", "c"}, a, b, c)
		if a.after > 0 {
			t.Errorf("they waited %v", a.after)
		}
	})
}

// When one of the fewest goes away, the time begins anew with the next.
func TestLastCallBeginsAnew(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(elastic("a", 2, 3), lastCall)
		b := s.comes(elastic("b", 2, 3), lastCall)
		s.passes(20 * time.Second)
		b.cancel()
		s.passes(20 * time.Second)
		c := s.comes(elastic("c", 2, 3), lastCall)
		s.passes(29 * time.Second)
		s.waits(a, c)
		s.agree([]string{"a", "c"}, a, c)
	})
}

// Who stands by while the store is away does not say of the world that it runs, when all that it finds is old.
func TestStoreIsBack(t *testing.T) {
	play(t, func(s *scene) {
		a, b := s.comes(spared("a", 2), lastCall), s.comes(spared("b", 2), lastCall)
		s.agree([]string{"a", "b"}, a, b)
		still := &standing{Store: s.store}
		x := join(still, spared("x", 2), lastCall)
		s.passes(10500 * time.Millisecond)
		until := time.Now().Add(20 * time.Second)
		still.until.Store(&until)
		a.session.Close()
		s.passes(21500 * time.Millisecond)
		want := `^generation 1 of this job was last heard of 2\ds ago, when it had been running for 11s on a, b; waiting for its end$`
		if got := x.last().String(); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("x was told %q", got)
		}
		b.session.Close()
		x.cancel()
		<-x.done
	})
}

// A node that finds no place stands by, and takes the place of a member that was lost; the others keep theirs.
func TestSpareTakesAPlace(t *testing.T) {
	play(t, func(s *scene) {
		a, b := s.comes(spared("a", 2), lastCall), s.comes(spared("b", 2), lastCall)
		s.agree([]string{"a", "b"}, a, b)
		x := s.comes(spared("x", 2), lastCall)
		s.passes(time.Hour)
		s.waits(x)
		if got := x.last().String(); !regexp.MustCompile(`^generation 1 of this job has been running for 1h0m[01]s on a, b; waiting for its end$`).MatchString(got) {
			t.Errorf("x was told %q", got)
		}
		if n := <-a.session.Newcomers(); n != 1 {
			t.Errorf("the world knows of %d newcomers", n)
		}
		s.dies(a)
		a.session.Close()
		next := s.goesOn(1, b)
		s.agree([]string{"x", "b"}, x, next[0])
		if g := x.session.World.Generation; g != 2 || next[0].after > 0 {
			t.Errorf("generation %d after %v", g, next[0].after)
		}
	})
}

// Who stands by, and who was given up by a world that goes on, wait as long as that lives, and the time that they have once it is dead.
func TestStandbyOfADeadWorld(t *testing.T) {
	play(t, func(s *scene) {
		a, b, c := s.comes(spared("a", 3), lastCall), s.comes(spared("b", 3), lastCall), s.comes(spared("c", 3), lastCall)
		s.agree([]string{"a", "b", "c"}, a, b, c)
		bounded := Options{LastCall: lastCall.LastCall, Timeout: time.Minute}
		x := s.comes(spared("x", 3), bounded)
		o := again(c)
		o.Timeout = time.Minute
		c = s.comes(spared("c", 3), o)
		s.passes(time.Hour)
		s.waits(x, c)
		a.session.Close()
		s.dies(a)
		s.passes(70 * time.Second)
		for _, left := range []*arrival{x, c} {
			s.fails(left, "gave up after 1h", new(*Missing))
			if left.after > time.Hour+65*time.Second {
				t.Errorf("it waited %v", left.after)
			}
		}
	})
}

// Members come before those who stood by, whoever is faster; and who finds no place stands by.
func TestMembersComeFirst(t *testing.T) {
	play(t, func(s *scene) {
		a, b := s.comes(spared("a", 2), lastCall), s.comes(spared("b", 2), lastCall)
		s.agree([]string{"a", "b"}, a, b)
		x := s.comes(spared("x", 2), lastCall)
		y := s.comes(spared("y", 2), lastCall)
		s.passes(2500 * time.Millisecond)
		if got := y.last().String(); !strings.HasSuffix(got, "waiting for its end with 2 nodes (x, y)") {
			t.Errorf("y was told %q", got)
		}
		next := s.goesOn(2, a, b)
		s.agree([]string{"a", "b"}, next...)
		s.passes(time.Minute)
		s.waits(x, y)
		if n := <-next[0].session.Newcomers(); n != 2 {
			t.Errorf("the world knows of %d newcomers", n)
		}
	})
}

// A world shrinks to those who are left without waiting for others, and grows again.
func TestScaleDownAndUp(t *testing.T) {
	play(t, func(s *scene) {
		var all []*arrival
		for _, name := range []string{"a", "b", "c", "d"} {
			all = append(all, s.comes(elastic(name, 2, 4), lastCall))
		}
		s.agree([]string{"a", "b", "c", "d"}, all...)
		s.dies(all[1])
		next := s.goesOn(3, all[0], all[2], all[3])
		s.agree([]string{"a", "c", "d"}, next...)
		if next[2].after > 0 {
			t.Errorf("they waited %v", next[2].after)
		}
		e := s.comes(elastic("e", 2, 4), lastCall)
		s.passes(2 * time.Second)
		if n := <-next[0].session.Newcomers(); n != 1 {
			t.Errorf("the world knows of %d newcomers", n)
		}
		s.agree([]string{"a", "c", "d", "e"}, append(s.goesOn(3, next...), e)...)
	})
}

// A job that ended takes its spares with it; one that comes afterwards begins anew.
func TestSparesEndWithTheJob(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(spared("a", 1), lastCall)
		s.agree([]string{"a"}, a)
		x, y := s.comes(spared("x", 1), lastCall), s.comes(spared("y", 1), lastCall)
		failed := &job.Verdict{Code: 3, Class: job.Failed, Sentence: "rank 0 exited with code 3"}
		if err := a.session.End(t.Context(), Over{Verdict: failed}); err != nil {
			t.Fatal(err)
		}
		for _, spare := range []*arrival{x, y} {
			over := new(Ended)
			s.fails(spare, "the job ended while this node stood by: rank 0 exited with code 3", &over)
			if over.Verdict.Code != 3 {
				t.Errorf("verdict %+v", over.Verdict)
			}
		}
		z := s.comes(spared("z", 1), lastCall)
		s.agree([]string{"z"}, z)
	})
}

// Who stands by waits as long as there is a world, and its patience begins with the last that is heard of it.
func TestPatienceOfSpares(t *testing.T) {
	play(t, func(s *scene) {
		a, b := s.comes(spared("a", 2), lastCall), s.comes(spared("b", 2), lastCall)
		s.agree([]string{"a", "b"}, a, b)
		x := s.comes(spared("x", 2), Options{Timeout: 5 * time.Minute})
		s.passes(time.Hour)
		s.waits(x)
		a.session.End(t.Context(), Over{Expect: 1})
		s.fails(x, "1 of 2 nodes here (x)", new(*Missing))
		if d := x.after - time.Hour; d < 5*time.Minute-2*beat || d > 6*time.Minute {
			t.Errorf("it gave up %v after the world's end", d)
		}
	})
}

// A world of which nothing is heard may go on. Fewer nodes than it had wait longer before they take its place.
func TestSilentWorld(t *testing.T) {
	play(t, func(s *scene) {
		a, b := s.comes(elastic("a", 1, 2), lastCall), s.comes(elastic("b", 1, 2), lastCall)
		s.agree([]string{"a", "b"}, a, b)
		x := s.comes(elastic("x", 1, 2), lastCall)
		s.passes(time.Hour)
		s.waits(x)
		a.session.Close()
		s.passes(30 * time.Second)
		s.waits(x)
		s.agree([]string{"x"}, x)
	})
}

// Whoever was told otherwise than a world that lives is refused alone.
func TestNewcomerWithOtherTerms(t *testing.T) {
	play(t, func(s *scene) {
		a, b := s.comes(spared("a", 2), lastCall), s.comes(spared("b", 2), lastCall)
		s.agree([]string{"a", "b"}, a, b)
		for want, change := range map[string]func(*job.Spec){
			"a expects 2 nodes, x expects 3":          func(s *job.Spec) { s.Nodes = 3 },
			"a expects 2 nodes, x expects 1:2":        func(s *job.Spec) { s.Least = 1 },
			"a expects 1 spares, x expects 0":         func(s *job.Spec) { s.Spares = 0 },
			"a brings 8 slots, x brings 4":            func(s *job.Spec) { s.Self.Slots = 4 },
			"a and x do not have the same job token":  func(s *job.Spec) { s.Token = "guess" },
			"x was started with --debug, a without":   func(s *job.Spec) { s.Debug = true },
			"x (node 3) has an index beyond the last": func(s *job.Spec) { s.Self.Index = 3 },
		} {
			spec := spared("x", 2)
			change(&spec)
			s.fails(s.comes(spec, lastCall), want, new(*Refusal))
		}
		next := s.goesOn(2, a, b)
		s.agree([]string{"a", "b"}, next...)
	})
}

// The first of those who stand by leads their meeting. When it dies, nobody is lost.
func TestFirstSpareDies(t *testing.T) {
	play(t, func(s *scene) {
		a, b := s.comes(spared("a", 2), lastCall), s.comes(spared("b", 2), lastCall)
		s.agree([]string{"a", "b"}, a, b)
		x, y := s.comes(spared("x", 2), lastCall), s.comes(spared("y", 2), lastCall)
		s.dies(x)
		s.passes(20 * time.Second)
		if n := <-a.session.Newcomers(); n != 1 {
			t.Errorf("the world knows of %d newcomers", n)
		}
		a.session.Close()
		next := s.goesOn(1, b)
		s.agree([]string{"y", "b"}, y, next[0])
	})
}

// A store that comes back empty knows the world again before those who stood by could take it for gone.
func TestStandbyInAnEmptyStore(t *testing.T) {
	play(t, func(s *scene) {
		a, b := s.comes(spared("a", 2), lastCall), s.comes(spared("b", 2), lastCall)
		s.agree([]string{"a", "b"}, a, b)
		x := s.comes(spared("x", 2), lastCall)
		y := s.comes(spared("y", 2), lastCall)
		s.store.empty()
		s.passes(time.Minute)
		s.waits(x, y)
		a.session.Close()
		next := s.goesOn(1, b)
		<-next[0].done
		if err := next[0].err; err != nil {
			t.Fatal(err)
		}
		if w := next[0].session.World; w.Generation < 2 || !slices.ContainsFunc(w.Members, func(m job.Member) bool { return m.Name == "b" }) {
			t.Errorf("the world is %+v", w)
		}
	})
}

// The end of a world is said where others look for it: in a store that came back empty, whether its leader had the time to make the world known again or
// not, and by members whose agents took the place of others.
func TestEndInAnEmptyStore(t *testing.T) {
	for name, happens := range map[string]func(s *scene, b, c *arrival){
		"known again": func(s *scene, _, _ *arrival) {
			s.store.empty()
			s.passes(2 * time.Second)
		},
		"not known": func(s *scene, _, _ *arrival) { s.store.empty() },
		"by others": func(s *scene, b, c *arrival) {
			for _, a := range []*arrival{b, c} {
				a.session = Resume(s.store, a.session.World, a.session.Rank)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *scene) {
				a, b, c := s.comes(elastic("a", 2, 3), lastCall), s.comes(elastic("b", 2, 3), lastCall), s.comes(elastic("c", 2, 3), lastCall)
				s.agree([]string{"a", "b", "c"}, a, b, c)
				happens(s, b, c)
				s.dies(a)
				a.session.Close()
				next := s.goesOn(2, b, c)
				s.agree([]string{"b", "c"}, next...)
				for _, n := range next {
					if n.after > 0 {
						t.Errorf("they met after %v", n.after)
					}
				}
			})
		})
	}
}

// Who has no store tells nobody of the end, and comes to no harm.
func TestEndWithoutAStore(t *testing.T) {
	s := Resume(nil, job.World{ID: "job7", Members: []job.Member{{}, {}}}, 1)
	if err := s.End(t.Context(), Over{Expect: 1}); err != nil {
		t.Error(err)
	}
}

// Who tells of the end of a world in a store in which others begin anew, and know nothing of it, does not put it in the place of theirs.
func TestEndAmongStrangers(t *testing.T) {
	play(t, func(s *scene) {
		a, b := s.comes(agent("a", 2), Options{}), s.comes(agent("b", 2), Options{})
		s.agree([]string{"a", "b"}, a, b)
		a.session.Close()
		b.session.Close()
		s.store.empty()
		x := s.comes(agent("x", 2), Options{})
		if err := b.session.End(t.Context(), Over{Expect: 1}); err != nil {
			t.Fatal(err)
		}
		y := s.comes(agent("y", 2), Options{})
		s.agree([]string{"x", "y"}, x, y)
	})
}

// A world of which nothing is heard, and whose node answers, lives: those who wait do not begin another one.
func TestAWorldThatAnswers(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(elastic("a", 1, 2), lastCall)
		s.passes(31 * time.Second)
		s.agree([]string{"a"}, a)
		a.session.Close() // it does not reach the store any more
		var gone atomic.Bool
		o := lastCall
		o.Lives = func(_ context.Context, n job.Node) bool {
			time.Sleep(40 * time.Millisecond) // an answer takes a while
			return n.Name == "a" && !gone.Load()
		}
		x := s.comes(elastic("x", 1, 2), o)
		s.passes(5 * time.Minute)
		s.waits(x)
		if alive := x.last().Alive; alive < 4*time.Minute || alive%time.Second != 0 {
			t.Errorf("it has been running for %v", alive)
		}
		gone.Store(true)
		s.passes(40 * time.Second)
		s.agree([]string{"x"}, x)
	})
}

// A node that takes no place for a while stands by, and is let in afterwards.
func TestRest(t *testing.T) {
	play(t, func(s *scene) {
		o := lastCall
		o.NotBefore = time.Now().Add(10 * time.Minute)
		x := s.comes(elastic("x", 2, 3), o)
		a, b := s.comes(elastic("a", 2, 3), lastCall), s.comes(elastic("b", 2, 3), lastCall)
		s.passes(31 * time.Second)
		s.agree([]string{"a", "b"}, a, b)
		s.passes(5 * time.Minute)
		s.waits(x)
		select {
		case n := <-a.session.Newcomers():
			t.Errorf("the world knows of %d newcomers", n)
		default:
		}
		s.passes(5 * time.Minute)
		if n := <-a.session.Newcomers(); n != 1 {
			t.Errorf("the world knows of %d newcomers", n)
		}
		s.agree([]string{"a", "b", "x"}, append(s.goesOn(2, a, b), x)...)
	})
}

// A closed world does not grow when its nodes meet again: those who stand by take the places of the lost, whoever leads the meeting.
func TestClosedWorld(t *testing.T) {
	play(t, func(s *scene) {
		closed := Options{LastCall: 10 * time.Second, Closed: true}
		a, b, c := s.comes(elastic("a", 2, 5), closed), s.comes(elastic("b", 2, 5), closed), s.comes(elastic("c", 2, 5), closed)
		s.agree([]string{"a", "b", "c"}, a, b, c)
		x, y := s.comes(elastic("x", 2, 5), closed), s.comes(elastic("y", 2, 5), closed)
		s.passes(time.Minute)
		s.dies(b)
		next := s.goesOn(2, a, c)
		s.agree([]string{"a", "x", "c"}, next[0], x, next[1])
		s.passes(time.Minute)
		s.waits(y)
	})
}

// indexed is a node of a job of two, at an address of its own and one that a service gives to whoever has its index now.
func indexed(name string, index int) job.Spec {
	s := numberedAgent(index, 2)
	s.Self.Name, s.Self.Incarnation, s.Self.Addrs = name, name+"-life1", []job.Addr{job.Addr(name), job.Addr(fmt.Sprint("service", index))}
	return s
}

// answering are options of who comes while those at some addresses live, and the service leads to itself.
func answering(alive ...job.Addr) Options {
	alive = append(alive, "service0", "service1")
	return Options{Timeout: time.Minute, Lives: func(_ context.Context, n job.Node) bool {
		return slices.ContainsFunc(n.Addrs, func(a job.Addr) bool { return slices.Contains(alive, a) })
	}}
}

// Who comes under the index of a member that lives waits for as long as it does, and ends as the job, whether it leads those who wait or not, and
// whatever world they could make by themselves. Who comes in the place of a dead one takes part in what follows.
func TestSecondOfAnIndex(t *testing.T) {
	failed := &job.Verdict{Code: 3, Class: job.Failed, Sentence: "rank 0 exited with code 3"}
	play(t, func(s *scene) {
		a, b := s.comes(indexed("a", 0), Options{}), s.comes(indexed("b", 1), Options{})
		s.agree([]string{"a", "b"}, a, b)
		x, y := s.comes(indexed("x", 1), answering("a", "b")), s.comes(indexed("y", 0), answering("a", "b"))
		s.passes(time.Hour)
		s.waits(x, y)
		for twin, of := range map[*arrival]string{x: "b (node 1)", y: "a (node 0)"} {
			if got := twin.last().String(); !strings.Contains(got, "waiting for its end, for another agent has the place of "+of+" in it") {
				t.Errorf("it was told %q", got)
			}
		}
		said := len(x.said)
		if err := a.session.End(t.Context(), Over{Verdict: failed}); err != nil {
			t.Fatal(err)
		}
		for twin, of := range map[*arrival]string{x: "b (node 1)", y: "a (node 0)"} {
			over := new(Ended)
			s.fails(twin, "the job ended without this agent, as another one had the place of "+of+": rank 0 exited with code 3", &over)
			if over.Verdict.Code != 3 || twin.after > time.Hour+2*time.Second {
				t.Errorf("verdict %+v after %v", over.Verdict, twin.after)
			}
		}
		for _, status := range x.said[said:] {
			t.Errorf("after the end x was told %q", status)
		}
	})
	play(t, func(s *scene) {
		a, b := s.comes(indexed("a", 0), Options{}), s.comes(indexed("b", 1), Options{})
		s.agree([]string{"a", "b"}, a, b)
		x := s.comes(indexed("x", 1), answering("a"))
		if err := a.session.End(t.Context(), Over{Verdict: failed}); err != nil {
			t.Fatal(err)
		}
		s.passes(10 * time.Second)
		s.waits(x)
		y := s.comes(indexed("y", 0), answering())
		s.agree([]string{"y", "x"}, y, x)
	})
}

// Who waits in another one's place and has to enter the meeting anew, when the world is over and its agents are gone, ends as the job all the same.
func TestTwinLooksBack(t *testing.T) {
	ctx, m := t.Context(), new(store.Memory)
	n := &node{generation: 4}
	n.store, n.meeting = m, shelf{m, "/job/life/"}.meeting(4)
	n.Stood = Standing{Life: "life", Generation: 3, Twin: "a"}
	at := n.meeting.beside(3)
	a := indexed("a", 0).Self
	met, err := encodeOutcome(&outcome{World: &world{World: job.World{ID: "job", Generation: 3, Members: []job.Member{{Node: a}}}}})
	if err != nil {
		t.Fatal(err)
	}
	end, err := json.Marshal(Over{Generation: 3, Verdict: &job.Verdict{Sentence: "all ended well"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.MultiSet(ctx, []string{at.prefix + keyOutcome, at.prefix + keyOver}, [][]byte{met, end}); err != nil {
		t.Fatal(err)
	}
	over := new(Ended)
	if _, err := n.lookBack(ctx); !errors.As(err, &over) || over.Twin == "" {
		t.Errorf("it goes on after %v", err)
	}
	n.Stood = Standing{}
	if _, err := n.lookBack(ctx); err != nil || !n.before.history {
		t.Errorf("who waited in nobody's place: %v", err)
	}
}

// A member that was given up, and comes back when the world ends, takes nobody's place: whoever was not given up is waited for. Then it
// is let in with them, where there is room.
func TestBackAtTheFence(t *testing.T) {
	for _, spares := range []int{0, 1} {
		play(t, func(s *scene) {
			come := func(name string) *arrival {
				spec := elastic(name, 2, 3)
				spec.Spares = spares
				return s.comes(spec, lastCall)
			}
			a, b, c := come("a"), come("b"), come("c")
			s.agree([]string{"a", "b", "c"}, a, b, c)
			var x *arrival
			if spares > 0 {
				x = come("x")
			}
			back := s.back(c, false)
			s.ends(a, Over{Expect: 2, Lost: []int{2}})
			first := s.back(b, true)
			s.waits(back, first)
			second := s.back(a, true)
			if spares > 0 {
				s.agree([]string{"a", "b", "x"}, first, second, x)
				s.waits(back)
				return
			}
			s.agree([]string{"a", "b", "c"}, first, second, back)
		})
	}
}

// A member that was cut off takes the leader for lost, and says so where nobody has said otherwise; who has heard from the leader knows better.
func TestCutOffMemberSpeaksFirst(t *testing.T) {
	for _, led := range []bool{true, false} {
		play(t, func(s *scene) {
			a, b, c := s.comes(elastic("a", 2, 3), lastCall), s.comes(elastic("b", 2, 3), lastCall), s.comes(elastic("c", 2, 3), lastCall)
			s.agree([]string{"a", "b", "c"}, a, b, c)
			s.ends(c, Over{Expect: 2, Lost: []int{0}})
			cut, b := s.back(c, false), s.back(b, led)
			if !led { // the leader is dead
				s.agree([]string{"b", "c"}, b, cut)
				return
			}
			s.waits(cut, b)
			a = s.back(a, true)
			s.agree([]string{"a", "b", "c"}, a, b, cut)
		})
	}
}

// An agent of the release before does not say who is lost: then as many count as it expects.
func TestOverOfTheReleaseBefore(t *testing.T) {
	play(t, func(s *scene) {
		a, b, c := s.comes(elastic("a", 2, 3), lastCall), s.comes(elastic("b", 2, 3), lastCall), s.comes(elastic("c", 2, 3), lastCall)
		s.agree([]string{"a", "b", "c"}, a, b, c)
		s.ends(a, Over{Expect: 2})
		a, b = s.back(a, false), s.back(b, false)
		s.agree([]string{"a", "b"}, a, b)
	})
}

// More lost members than a word may name are counted.
func TestOverBounded(t *testing.T) {
	over := Over{Generation: 1, Expect: 1}
	for rank := range 4 * maxLost {
		over.Lost = append(over.Lost, 1+rank)
		if b, err := over.encode(); err != nil || len(b) > maxOver {
			t.Fatalf("%d lost make %d bytes, %v", len(over.Lost), len(b), err)
		}
	}
}

// Who was away while a world went on does not bring the order of the one that it knew, also where it leads the meeting.
func TestOrderOfTheLatestWorld(t *testing.T) {
	play(t, func(s *scene) {
		var all []*arrival
		for _, name := range []string{"a", "b", "c", "d"} {
			all = append(all, s.comes(elastic(name, 2, 4), lastCall))
		}
		s.agree([]string{"a", "b", "c", "d"}, all...)
		away := all[0]
		e := s.comes(elastic("e", 2, 4), lastCall)
		s.ends(all[1], Over{Expect: 3, Lost: []int{0}})
		b, c, d := s.back(all[1], false), s.back(all[2], false), s.back(all[3], false)
		s.agree([]string{"e", "b", "c", "d"}, e, b, c, d)
		away = s.back(away, false) // the first in the meeting that follows
		s.waits(away)
		s.ends(e, Over{Expect: 4})
		next := []*arrival{s.back(d, true), s.back(c, true), s.back(b, true), s.back(e, true)}
		s.agree([]string{"e", "b", "c", "d"}, next...)
		s.waits(away)
	})
}

// Where the store comes back empty, and who comes anew is the first in it, the world that runs still stands in it: nobody begins another beside it, and
// whoever is left of it keeps its rank.
func TestNewcomerFirstInAnEmptyStore(t *testing.T) {
	play(t, func(s *scene) {
		come := func(name string) *arrival {
			spec := spared(name, 2)
			spec.Spares = 2
			return s.comes(spec, lastCall)
		}
		b, c := come("b"), come("c")
		s.agree([]string{"b", "c"}, b, c)
		s.passes(beat / 2)
		d := come("d")
		s.passes(10*time.Second + 3*beat/4)
		s.store.empty()
		e := come("e") // and then d looks, before b tells of its world again
		s.passes(10 * time.Minute)
		s.waits(d, e)
		s.dies(b)
		b.session.Close()
		s.ends(c, Over{Expect: 1, Lost: []int{0}})
		s.agree([]string{"d", "c"}, s.back(c, false), d)
		s.waits(e)
	})
}

// When all members are lost at once those who come after them know from the store how many rounds there were, of which none is charged to them; also where
// it came back empty meanwhile, and from the world alone if nobody counted.
func TestRoundsOutliveTheirWorld(t *testing.T) {
	for _, counted := range []bool{true, false} {
		play(t, func(s *scene) {
			o := lastCall
			o.Past = job.Tally{Rounds: 4, Free: 1}
			a, b := s.comes(elastic("a", 1, 2), o), s.comes(elastic("b", 1, 2), o)
			s.agree([]string{"a", "b"}, a, b)
			want := job.Tally{Rounds: 4, Free: 4}
			if counted {
				a.session.Count(5)
				s.passes(time.Second)
				s.store.empty()
				s.passes(2 * beat)
				keys, _ := s.store.ListKeys(t.Context())
				if i := slices.IndexFunc(keys, func(k string) bool { return strings.HasSuffix(k, "/1/"+keyRounds) }); i < 0 {
					s.Errorf("a store that came back empty is told %q", keys)
				} else if b, _ := s.store.Get(t.Context(), keys[i]); string(b) != "5" {
					s.Errorf("a store that came back empty is told %q", b)
				}
				want = job.Tally{Rounds: 7, Free: 7}
				a.session.Count(7)
				b.session.Count(9) // who does not lead counts for itself
				s.passes(time.Millisecond)
			}
			s.dies(a)
			s.dies(b)
			a.session.Close()
			b.session.Close()
			c, d := s.comes(elastic("c", 1, 2), lastCall), s.comes(elastic("d", 1, 2), lastCall)
			s.passes(time.Minute)
			s.agree([]string{"c", "d"}, c, d)
			if got := d.session.World.Past; got != want {
				s.Errorf("counted %v: the next world begins with %+v, want %+v", counted, got, want)
			}
		})
	}
}

// What cannot be a number of rounds is none.
func TestNoRounds(t *testing.T) {
	for _, text := range []string{"", "-1", "5.5", "4000000000", strings.Repeat("9", 1000)} {
		m := shelf{Store: &store.Memory{}, prefix: "x/"}
		if err := m.put(t.Context(), keyRounds, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := readRounds(t.Context(), m); got != 0 || err != nil {
			t.Errorf("%.40q: %d, %v", text, got, err)
		}
		s := &Session{meeting: m}
		s.rounds.Store(3)
		if err := s.record(t.Context()); err != nil {
			t.Error(err)
		}
		if got, err := readRounds(t.Context(), m); got != 3 || err != nil {
			t.Errorf("%.40q stands in the way: %d, %v", text, got, err)
		}
	}
}

// An unwilling store makes nothing known.
type unwilling struct{ store.Store }

func (unwilling) CompareSet(context.Context, string, []byte, []byte) ([]byte, error) {
	return nil, store.ErrClosed
}

// A world whose store does not take it leaves nothing there.
func TestNothingBesideTheWorld(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 1), Options{})
		s.agree([]string{"a"}, a)
		a.session.Close()
		s.store.empty()
		next := Resume(unwilling{s.store}, a.session.World, 0)
		next.Count(2)
		s.passes(3 * beat)
		next.Close()
		keys, _ := s.store.ListKeys(t.Context())
		for _, k := range keys {
			if !strings.HasPrefix(k, "muster/") {
				t.Errorf("%q is left", k)
			}
		}
	})
}

// A world of which nothing is heard may be suspended with all its machines, and go on for a moment when they wake up. Who stands by in full number waits all
// the same until no worker can live there, also when it was told to wait for less.
func TestSuspendedWorld(t *testing.T) {
	play(t, func(s *scene) {
		o := lastCall
		o.Fence = 19 * time.Second
		a, b := s.comes(spared("a", 2), o), s.comes(spared("b", 2), o)
		s.agree([]string{"a", "b"}, a, b)
		o.Timeout = 10 * time.Second
		c, d := s.comes(spared("c", 2), o), s.comes(spared("d", 2), o)
		s.passes(time.Minute)
		a.session.Close() // as seen by others
		s.passes(o.Fence - 2*time.Second)
		s.waits(c, d)
		s.passes(5 * time.Second)
		s.agree([]string{"c", "d"}, c, d)
	})
}

// A member that knows how the last round ended counts it as it was: a failure is not free, as the loss of all would be.
func TestMembersCountBetter(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(elastic("a", 1, 2), lastCall)
		s.passes(31 * time.Second)
		s.agree([]string{"a"}, a)
		a.session.Count(1)
		c := s.comes(elastic("c", 1, 2), lastCall)
		s.passes(time.Second)
		s.ends(a, Over{Expect: 1})
		w, o := a.session.World, again(a)
		o.Past = job.Tally{Rounds: 1}
		b := s.comes(job.Spec{ID: w.ID, Terms: w.Terms, Self: w.Members[0].Node}, o)
		s.agree([]string{"a", "c"}, b, c)
		if got := c.session.World.Past; got != o.Past {
			t.Errorf("the next world begins with %+v", got)
		}
	})
}
