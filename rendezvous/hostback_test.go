package rendezvous

import (
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

// In these scenes the node that hosts the store is killed and started again at once: it comes back with an empty store, and knows of nothing.

// hosted are the options of a job whose store is lost with its host.
var hosted = Options{LastCall: 3 * time.Second, Fence: fence, Forgets: true, Timeout: time.Hour}

// member is a node of a job of 1:3 with an index.
func member(index int) job.Spec {
	s := numberedAgent(index, 3)
	s.Least = 1
	return s
}

// three makes a world of three such nodes.
func (s *scene) three(o Options) (a, b, c *arrival) {
	s.Helper()
	a, b, c = s.comes(member(0), o), s.comes(member(1), o), s.comes(member(2), o)
	s.agree([]string{"host0", "host1", "host2"}, a, b, c)
	return a, b, c
}

// hostBack replaces the host by another process of its node.
func (s *scene) hostBack(old *arrival, index int) *arrival {
	s.dies(old)
	old.session.Close()
	s.store.empty()
	return s.comes(life(member(index), "second"), hosted)
}

// rejoins makes a member meet again, as in a job whose store is lost with its host.
func (s *scene) rejoins(a *arrival, led bool) *arrival {
	a.session.Close()
	w, o := a.session.World, again(a)
	o.Led, o.Timeout, o.LastCall = led, time.Hour, hosted.LastCall
	return s.comes(job.Spec{ID: w.ID, Terms: w.Terms, Self: w.Members[a.session.Rank].Node}, o)
}

// The host, which led, begins nothing without the others as long as they may have workers. They come when these have ended.
func TestHostOfAWorldComesBack(t *testing.T) {
	play(t, func(s *scene) {
		a, b, c := s.three(hosted)
		fresh := s.hostBack(a, 0)
		s.passes(15 * time.Second)
		s.waits(fresh)
		s.ends(b, Over{Expect: 2, Lost: []int{0}})
		b = s.rejoins(b, false)
		s.passes(10 * time.Second) // c's workers take longer to end
		s.waits(fresh, b)
		s.ends(c, Over{Expect: 2, Lost: []int{0}})
		c = s.rejoins(c, false)
		s.agree([]string{"host0", "host1", "host2"}, fresh, b, c)
		if g := fresh.session.World.Generation; g != 2 || c.after > 0 {
			t.Errorf("generation %d after %v", g, c.after)
		}
	})
	play(t, func(s *scene) { // nobody is left of the world that was
		a, b, c := s.three(hosted)
		s.dies(b)
		s.dies(c)
		fresh := s.hostBack(a, 0)
		s.agree([]string{"host0"}, fresh)
		if fresh.after < hosted.Fence || fresh.after > hosted.Fence+2*beat {
			t.Errorf("it began after %v", fresh.after)
		}
	})
}

// Who leads the world lives, and makes it known in the new store. The host takes it for what it is, and not for one that was made without it.
func TestHostComesBackToALivingWorld(t *testing.T) {
	play(t, func(s *scene) {
		a, b, c := s.three(hosted)
		fresh := s.hostBack(c, 2)
		s.passes(2 * time.Second)
		s.waits(fresh)
		if got := fresh.last().Running; got != 1 {
			t.Errorf("it waits for the end of generation %d", got)
		}
		s.ends(a, Over{Expect: 2, Lost: []int{2}})
		a, b = s.rejoins(a, true), s.rejoins(b, true)
		s.agree([]string{"host0", "host1", "host2"}, a, b, fresh)
	})
}

// A spare knows the world that the store has lost, and tells the host: the two are enough, and do not begin while a member of it may have workers.
func TestSpareKnowsWhatTheStoreForgot(t *testing.T) {
	play(t, func(s *scene) {
		spec := func(index int) job.Spec {
			s := numberedAgent(index, 2)
			s.Spares = 1
			return s
		}
		a, b := s.comes(spec(0), hosted), s.comes(spec(1), hosted)
		s.agree([]string{"host0", "host1"}, a, b)
		x := s.comes(spec(2), hosted)
		s.dies(a)
		a.session.Close()
		s.store.empty()
		fresh := s.comes(life(spec(0), "second"), hosted)
		s.passes(15 * time.Second)
		s.waits(fresh, x)
		s.ends(b, Over{Expect: 1, Lost: []int{0}})
		b = s.rejoins(b, false)
		s.agree([]string{"host0", "host1"}, b)
	})
}

// A spare that waited beside a world hears of the job's end from a store that came back empty, and was told before it looked.
func TestEndInAStoreThatForgot(t *testing.T) {
	for nodes := 1; nodes <= 2; nodes++ {
		play(t, func(s *scene) {
			spec := func(index int) job.Spec {
				s := numberedAgent(index, nodes)
				s.Spares = 2
				return s
			}
			var all []*arrival
			for i := range nodes {
				all = append(all, s.comes(spec(i), hosted))
			}
			s.passes(hosted.LastCall)
			all[0].world(t)
			x, y := s.comes(spec(nodes), hosted), s.comes(spec(nodes+1), hosted)
			s.passes(3 * time.Second)
			s.waits(x, y)
			s.store.empty()
			s.ends(all[0], Over{Verdict: well})
			for _, m := range []*arrival{x, y} {
				s.fails(m, "the job ended while this node stood by", new(*Ended))
			}
		})
	}
}

// The host was cut off from the others for so long that it began alone. When they find it, there is one world again, above all that were.
func TestMembersFindAWorldOfAnotherLife(t *testing.T) {
	play(t, func(s *scene) {
		a, b, c := s.three(hosted)
		for range 2 { // generation 3
			s.ends(a, Over{Expect: 3})
			a, b, c = s.rejoins(a, true), s.rejoins(b, true), s.rejoins(c, true)
			s.agree([]string{"host0", "host1", "host2"}, a, b, c)
		}
		fresh := s.hostBack(a, 0)
		s.passes(time.Minute)
		s.agree([]string{"host0"}, fresh)
		s.ends(b, Over{Expect: 2, Lost: []int{0}})
		b, c = s.rejoins(b, false), s.rejoins(c, false)
		s.passes(time.Minute)
		s.waits(b, c)
		if got := <-fresh.session.Newcomers(); got == 0 {
			t.Error("it does not hear of them")
		}
		s.ends(fresh, Over{Expect: 1})
		fresh = s.rejoins(fresh, true)
		s.agree([]string{"host0", "host1", "host2"}, fresh, b, c)
		if g := fresh.session.World.Generation; g != 4 {
			t.Errorf("generation %d", g)
		}
	})
}

// Who was in no world of a job that has ended, and comes while its end stands in the store, as a script's next run does, begins it anew: that is said, once.
func TestBeginsAnewIsSaid(t *testing.T) {
	for _, standby := range []bool{false, true} { // who has read the end for all who wait
		play(t, func(s *scene) {
			a, b, c := s.three(hosted)
			var x *arrival
			if standby {
				x = s.comes(life(member(2), "other"), hosted)
			}
			s.ends(a, Over{Verdict: well})
			for _, m := range []*arrival{b, c} {
				m.session.Close()
			}
			if standby {
				s.fails(x, "the job ended while this node stood by", new(*Ended))
			}
			o, said := hosted, []string(nil)
			o.Say = func(text string) { said = append(said, text) }
			fresh := s.comes(life(member(0), "anew"), o)
			s.agree([]string{"host0"}, fresh)
			want := "this job has ended here, in generation 1: all workers ended well; nodes that come now begin it anew"
			if len(said) != 1 || said[0] != want {
				t.Errorf("it said %q", said)
			}
			if fresh.after > hosted.LastCall+2*beat {
				t.Errorf("it began after %v", fresh.after)
			}
		})
	}
}

// A member that comes when the host has come to the job's end alone ends as the job did.
func TestMembersFindTheEndOfAnotherLife(t *testing.T) {
	for _, worlds := range []int{1, 3} {
		play(t, func(s *scene) {
			a, b, c := s.three(hosted)
			for range worlds - 1 {
				s.ends(a, Over{Expect: 3})
				a, b, c = s.rejoins(a, true), s.rejoins(b, true), s.rejoins(c, true)
				s.agree([]string{"host0", "host1", "host2"}, a, b, c)
			}
			fresh := s.hostBack(a, 0)
			s.passes(time.Minute)
			s.agree([]string{"host0"}, fresh)
			s.ends(fresh, Over{Verdict: well})
			for _, m := range []*arrival{s.rejoins(b, false), s.rejoins(c, false)} {
				<-m.done
				if !errors.As(m.err, new(*Ended)) {
					t.Errorf("after %d worlds it ends with %v", worlds, m.err)
				}
			}
		})
	}
}

// However long workers may take to stop, the host waits for no more than 30 s for nodes that tell it nothing, and says why.
func TestHostWaitsForABoundedTime(t *testing.T) {
	play(t, func(s *scene) {
		o := hosted
		o.Fence = 10 * time.Minute
		a := s.comes(member(0), o)
		s.passes(10 * time.Second)
		s.waits(a)
		want := regexp.MustCompile(`^1 of 1:3 nodes here \(.*\), missing nodes 1, 2; they begin in (20|21)s: this store is new, and nodes of a world that it forgot may still have workers$`)
		if got := a.last().String(); !want.MatchString(got) {
			t.Errorf("it shows %q", got)
		}
		s.agree([]string{"host0"}, a)
		if a.after < 30*time.Second || a.after > 30*time.Second+2*beat {
			t.Errorf("it began after %v", a.after)
		}
	})
	play(t, func(s *scene) { // where nodes are given up later, they tell it later
		o := hosted
		o.Fence, o.NodeTimeout = 10*time.Minute, time.Minute
		a := s.comes(member(0), o)
		s.passes(79 * time.Second)
		s.waits(a)
		s.agree([]string{"host0"}, a)
		if a.after < 80*time.Second || a.after > 80*time.Second+2*beat {
			t.Errorf("with a node time-out of a minute it began after %v", a.after)
		}
	})
	play(t, func(s *scene) { // the last call takes longer
		o := hosted
		o.LastCall = time.Minute
		a, b := s.comes(member(0), o), s.comes(member(1), o)
		s.passes(10 * time.Second)
		for _, x := range []*arrival{a, b} {
			if got := x.last(); got.New || got.Closes == 0 {
				t.Errorf("it shows %q", got)
			}
		}
	})
}

// Members that have lost their leader with the store say so for as long as they have workers, and the host waits.
func TestMembersVouchForTheirWorld(t *testing.T) {
	play(t, func(s *scene) {
		a, b, c := s.three(hosted)
		fresh := s.hostBack(a, 0)
		b.session.Vouch()
		s.passes(beat / 2)
		c.session.Vouch()
		s.passes(5 * time.Minute)
		c.session.Close()
		s.dies(c)
		s.waits(fresh)
		want := regexp.MustCompile(`^generation 1 of this job has been running for (4m59|5m\d)s on .*; waiting for its end$`)
		if got := fresh.last().String(); !want.MatchString(got) {
			t.Errorf("it shows %q", got)
		}
		s.ends(b, Over{Expect: 1, Lost: []int{0, 2}})
		b = s.rejoins(b, false)
		s.agree([]string{"host0", "host1"}, fresh, b)
	})
}

// Nobody knows of how long a world has been running that was told to a store which came back empty, and of which nothing is heard there. What is known
// of its end is told with it.
func TestWorldThatIsOnlyRemembered(t *testing.T) {
	play(t, func(s *scene) {
		a, b, c := s.three(hosted)
		for _, m := range []*arrival{a, b, c} {
			s.dies(m)
			m.session.Close()
		}
		x := s.comes(life(member(2), "other"), hosted)
		s.store.empty()
		s.passes(4500 * time.Millisecond)
		s.waits(x)
		want := regexp.MustCompile(`^generation 1 of this job was begun on host0 \(node 0\), host1 \(node 1\), host2 \(node 2\), and nothing was heard of it in the [34]s since this node looks; waiting for its end$`)
		if got := x.last().String(); !want.MatchString(got) {
			t.Errorf("it shows %q", got)
		}
	})
}

// Who waits knows that the world is over, and tells that, too, to a store that came back empty: those who come next do not wait for that end.
func TestEndIsToldToANewStore(t *testing.T) {
	play(t, func(s *scene) {
		a, b, c := s.three(hosted)
		x := s.comes(life(member(2), "other"), hosted)
		s.ends(a, Over{Expect: 2, Lost: []int{2}})
		for _, m := range []*arrival{a, b, c} {
			s.dies(m)
			m.session.Close()
		}
		s.passes(3 * time.Second)
		s.store.empty()
		s.passes(3 * time.Second)
		y := s.comes(life(member(1), "other"), hosted)
		s.passes(3 * time.Second)
		s.dies(x)
		s.passes(8 * time.Second)
		s.waits(y)
		if got := y.last(); got.Running != 0 {
			t.Errorf("it shows %q", got)
		}
	})
}
