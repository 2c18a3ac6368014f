package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous/store"
)

// A scene is a meeting in fake time. Its nodes come and go by name.
type scene struct {
	*testing.T
	store *shared
	came  map[string]*arrival
	ways  map[string]*mortal
	halts *halt // of who comes next; nil: it does not
}

func play(t *testing.T, script func(s *scene)) {
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t, store: newShared(), came: map[string]*arrival{}, ways: map[string]*mortal{}}
		script(s)
		for _, a := range s.came {
			a.cancel()
			<-a.done
			if a.session != nil {
				a.session.Close()
			}
		}
	})
}

// comes makes a node join, and lets it get as far as it can.
func (s *scene) comes(spec job.Spec, o Options) *arrival { return s.comesFor(0, spec, o) }

// comesFor is comes for a node that dies before so many changes; 0: it does not.
func (s *scene) comesFor(changes int64, spec job.Spec, o Options) *arrival {
	life := spec.Self.Incarnation
	s.ways[life] = &mortal{Store: s.store}
	s.ways[life].fuse.Store(changes)
	s.ways[life].halt.Store(s.halts)
	s.halts = nil
	s.came[life] = join(s.ways[life], spec, o)
	synctest.Wait()
	return s.came[life]
}

// dies stops a node without a word, as kill -9 does.
func (s *scene) dies(a *arrival) {
	for life, b := range s.came {
		if a == b {
			s.ways[life].dead.Store(true)
		}
	}
}

// passes lets time pass.
func (s *scene) passes(d time.Duration) {
	time.Sleep(d) // fake time: see play
	synctest.Wait()
}

func (s *scene) agree(want []string, all ...*arrival) {
	s.Helper()
	for _, a := range all {
		if got := a.world(s.T); !slices.Equal(got, want) {
			s.Fatalf("the world is %v, want %v", got, want)
		}
	}
}

func (s *scene) fails(a *arrival, want string, as any) {
	s.Helper()
	select {
	case <-a.done:
	case <-time.After(time.Hour):
		s.Fatalf("no end, want %q", want)
	}
	if a.err == nil || !strings.Contains(a.err.Error(), want) || !errors.As(a.err, as) {
		s.Errorf("it ended with\n%v, want\n%s", a.err, want)
	}
}

func (s *scene) waits(all ...*arrival) {
	s.Helper()
	synctest.Wait()
	for _, a := range all {
		select {
		case <-a.done:
			s.Fatalf("it does not wait any more: %+v, %v", a.session, a.err)
		default:
		}
	}
}

// last is what a node was told last; the zero value is nothing yet.
func (a *arrival) last() (s Status) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.said) > 0 {
		s = a.said[len(a.said)-1]
	}
	return s
}

// life makes spec another process of the same node.
func life(spec job.Spec, incarnation string) job.Spec {
	spec.Self.Incarnation = incarnation
	return spec
}

func TestLeaderDies(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 3), Options{})
		b := s.comes(agent("b", 3), Options{})
		s.dies(a)
		s.passes(20 * time.Second)
		c := s.comes(agent("c", 3), Options{})
		s.waits(b, c)
		s.passes(2 * time.Second)
		if st := c.last(); st.Count != 2 || !slices.Equal(st.Here, []string{"b", "c"}) {
			t.Errorf("c was told %+v", st)
		}
		d := s.comes(agent("d", 3), Options{})
		s.agree([]string{"b", "c", "d"}, b, c, d)
		if d.after > time.Second {
			t.Errorf("the last node waited %v", d.after)
		}
	})
}

func TestLeaderGivesUp(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 3), Options{})
		b := s.comes(agent("b", 3), Options{})
		a.cancel()
		s.passes(1500 * time.Millisecond)
		if st := b.last(); st.Count != 1 {
			t.Errorf("b still sees %v", st)
		}
		c, d := s.comes(agent("c", 3), Options{}), s.comes(agent("d", 3), Options{})
		s.agree([]string{"b", "c", "d"}, b, c, d)
		if d.after > 0 {
			t.Errorf("the last node waited %v", d.after)
		}
	})
}

// A leader that was stopped for a while finds another in its place, and follows it.
func TestLeaderWakesUp(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 3), Options{})
		b := s.comes(agent("b", 3), Options{})
		key := s.key("leader/2")
		s.store.Set(t.Context(), key, []byte("2"))
		s.passes(10 * time.Second)
		s.waits(a, b)
		if st := a.last(); st.Count != 2 {
			t.Errorf("a sees %v", st)
		}
		c := s.comes(agent("c", 3), Options{})
		s.agree([]string{"a", "b", "c"}, a, b, c)
	})
}

// key finds the full name of a key of the current meeting.
func (s *scene) key(name string) string {
	s.Helper()
	keys, _ := s.store.ListKeys(context.Background())
	for _, k := range keys {
		if prefix, ok := strings.CutSuffix(k, keyTickets); ok {
			return prefix + name
		}
	}
	s.Fatal("there is no meeting")
	return ""
}

func TestFollowerDies(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 3), Options{})
		b := s.comes(agent("b", 3), Options{})
		s.dies(b)
		s.passes(10 * time.Second)
		if st := a.last(); st.Count != 1 {
			t.Errorf("a sees %v", st)
		}
		c := s.comes(agent("c", 3), Options{})
		s.passes(3 * time.Second)
		s.waits(a, c)
		d := s.comes(agent("d", 3), Options{})
		s.agree([]string{"a", "c", "d"}, a, c, d)
	})
}

// The records of a job that was killed while it met do not count.
func TestAllDied(t *testing.T) {
	play(t, func(s *scene) {
		for _, name := range []string{"a", "b"} {
			s.dies(s.comes(agent(name, 3), Options{}))
		}
		s.passes(time.Hour)
		c := s.comes(agent("c", 3), Options{})
		d := s.comes(agent("d", 3), Options{})
		s.passes(10 * time.Second)
		s.waits(c, d)
		e := s.comes(agent("e", 3), Options{})
		s.agree([]string{"c", "d", "e"}, c, d, e)
	})
}

// A ticket without a record holds the others up for a few seconds, not for ever.
func TestHoles(t *testing.T) {
	for _, holes := range []int64{1, 3} {
		play(t, func(s *scene) {
			a := s.comes(agent("a", 3), Options{})
			s.store.Add(t.Context(), s.key("tickets"), holes)
			b := s.comes(agent("b", 3), Options{})
			s.passes(4500 * time.Millisecond)
			if got := b.last().String(); !regexp.MustCompile("; ticket 2 was drawn [23] s ago and has not said who it is$").MatchString(got) {
				t.Errorf("told %q", got)
			}
			c := s.comes(agent("c", 3), Options{})
			s.agree([]string{"a", "b", "c"}, a, b, c)
			if a.after > 8*time.Second {
				t.Errorf("%d holes cost %v", holes, a.after)
			}
		})
	}
}

// Of tickets without a record that were drawn one after the other none waits for the others.
func TestHolesInARow(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 3), Options{})
		for range 4 {
			s.store.Add(t.Context(), s.key("tickets"), 1)
			s.passes(time.Second)
		}
		b := s.comes(agent("b", 3), Options{})
		c := s.comes(agent("c", 3), Options{})
		s.agree([]string{"a", "b", "c"}, a, b, c)
		if a.after > 11*time.Second {
			t.Errorf("4 holes, one each second, cost %v", a.after)
		}
	})
}

// Of a node that drew without being told what, and drew again, the first ticket is not waited for; nor are those of others for it.
func TestDrawnInVain(t *testing.T) {
	for lost := range int64(4) {
		play(t, func(s *scene) {
			a := s.comes(agent("a", 3), Options{})
			s.passes(beat / 4)
			s.store.draws.Store(lost)
			b := s.comes(agent("b", 3), Options{})
			s.passes(beat / 4)
			c := s.comes(agent("c", 3), Options{})
			s.agree([]string{"a", "b", "c"}, a, b, c)
			if a.after > 3*beat {
				t.Errorf("%d lost draws cost %v", lost, a.after)
			}
		})
	}
}

// Beside such a node one that died with its ticket is still waited for, as it may only be slow.
func TestDrawnInVainBesideAHole(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 3), Options{})
		s.store.Add(t.Context(), s.key("tickets"), 1)
		s.passes(beat)
		s.store.draws.Store(1)
		b := s.comes(agent("b", 3), Options{})
		c := s.comes(agent("c", 3), Options{})
		s.agree([]string{"a", "b", "c"}, a, b, c)
		if a.after < silent {
			t.Errorf("both tickets are given up after %v", a.after)
		}
	})
}

// Nor does the ticket of one that died, and was waited for, count for that of one that draws in vain later.
func TestDrawnInVainAfterAHole(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 3), Options{})
		s.store.Add(t.Context(), s.key("tickets"), 1)
		s.passes(20 * beat)
		s.store.draws.Store(1)
		b := s.comes(agent("b", 3), Options{})
		c := s.comes(agent("c", 3), Options{})
		s.agree([]string{"a", "b", "c"}, a, b, c)
		if a.after > 23*beat {
			t.Errorf("a draw in vain 20 s later cost %v", a.after-20*beat)
		}
	})
}

// Whoever comes too late with its record finds its ticket void, and draws again.
func TestVoidTicket(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 2), Options{})
		s.store.Set(t.Context(), s.key("ticket/2"), []byte(void))
		b := s.comes(agent("b", 2), Options{})
		s.agree([]string{"a", "b"}, a, b)
	})
}

func TestConnectionsBreak(t *testing.T) {
	for torn := range int64(maxTries) {
		play(t, func(s *scene) {
			a := s.comes(agent("a", 2), Options{})
			s.store.torn.Store(torn)
			b := s.comes(agent("b", 2), Options{})
			s.agree([]string{"a", "b"}, a, b)
		})
	}
}

// What stands in the store ends on terminals. Whoever has no fit name is refused; other texts lose what cannot be shown.
func TestUnfitWords(t *testing.T) {
	for _, c := range []struct{ record, want string }{
		{`{"protocol":1,"nodes":2,"node":{"name":"b\u001b[2J","index":-1,"slots":8,"incarnation":"x"}}`, "cannot be shown: \"b\\x1b[2J\""},
		{`{"protocol":1,"nodes":2,"node":{"name":"b","index":-1,"slots":8,"incarnation":"\r\n"}}`, "cannot be shown"},
		{`{"protocol":1,"nodes":2,"node":{"name":"` + strings.Repeat("b", 254) + `","index":-1,"slots":8,"incarnation":"x"}}`, "more than 253 bytes"},
	} {
		play(t, func(s *scene) {
			a := s.comes(agent("a", 2), Options{})
			s.store.Add(t.Context(), s.key("tickets"), 1)
			s.store.Set(t.Context(), s.key("ticket/2"), []byte(c.record))
			s.fails(a, c.want, new(*Refusal))
		})
	}
	play(t, func(s *scene) { // of an outcome and of a summary
		s.comes(agent("a", 3), Options{})
		b := s.comes(agent("b", 3), Options{})
		s.store.Set(t.Context(), s.key("summary"), []byte(`{"epoch":1,"here":["a\u001b[2J"],"count":1}`))
		s.passes(time.Second + beat/2)
		for _, said := range b.said {
			if strings.Contains(fmt.Sprint(said), "\x1b") {
				t.Errorf("%q", said)
			}
		}
		s.store.Set(t.Context(), s.key("outcome"), []byte(`{"refused":"no\u001b[2J"}`))
		s.fails(b, "rendezvous: no[2J", new(*Refusal))
	})
	play(t, func(s *scene) {
		b := s.comes(agent("b", 2), Options{})
		s.store.Set(t.Context(), s.key("outcome"), []byte(`{"world":{"id":"job7"}}`+"\n0\t-1\t8\tb\x1b[2J\tx\t\t\t\t\t\t"))
		select {
		case <-b.done:
		case <-time.After(time.Hour):
		}
		if b.err == nil || !strings.Contains(b.err.Error(), "cannot be shown") {
			t.Errorf("got %v", b.err)
		}
	})
	if err := complete(agent("a\nb", 2)); err == nil {
		t.Error("our own name was taken")
	}
}

func TestStoreComesBackEmpty(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 3), Options{Seen: 4})
		b := s.comes(agent("b", 3), Options{})
		s.store.empty()
		s.passes(3 * time.Second)
		c := s.comes(agent("c", 3), Options{})
		s.agree([]string{"a", "b", "c"}, a, b, c)
		if g := a.session.World.Generation; g != 5 {
			t.Errorf("generation %d, want 5", g)
		}
	})
}

// Those who begin under too low a number, because the store has forgotten, go on under the right one.
func TestSeenMovesTheMeeting(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 3), Options{})
		b := s.comes(agent("b", 3), Options{Seen: 7})
		c := s.comes(agent("c", 3), Options{Seen: 2})
		s.agree([]string{"a", "b", "c"}, a, b, c)
		if g := a.session.World.Generation; g != 8 {
			t.Errorf("generation %d, want 8", g)
		}
	})
}

func TestJobsStayApart(t *testing.T) {
	play(t, func(s *scene) {
		ids := []string{"a", "a/b", "a%2Fb", strings.Repeat("x", 1000), strings.Repeat("x", 1001), "..", "1"}
		for i, id := range ids {
			spec := life(agent(fmt.Sprint("host", i), 2), id)
			spec.ID = id
			s.waits(s.comes(spec, Options{}))
		}
		for life, a := range s.came {
			if a.last().Count != 1 {
				t.Errorf("%.10s meets somebody: %v", life, a.last())
			}
		}
	})
}

func TestNewestOfOneIndexWins(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(numberedAgent(0, 3), Options{})
		old := s.comes(numberedAgent(2, 3), Options{})
		fresh := s.comes(life(numberedAgent(2, 3), "second"), Options{})
		s.fails(old, "another process took my place as host2 (node 2): host2 (node 2), incarnation second, ticket 3", new(*Excluded))
		if old.after > beat {
			t.Errorf("it was told after %v", old.after)
		}
		s.waits(a, fresh)
		b := s.comes(numberedAgent(1, 3), Options{})
		s.agree([]string{"host0", "host1", "host2"}, a, b, fresh)
		if w := a.session.World; w.Members[2].Incarnation != "second" {
			t.Errorf("%+v", w)
		}
	})
}

// The leader itself may be the one that was replaced.
func TestLeaderIsReplaced(t *testing.T) {
	play(t, func(s *scene) {
		old := s.comes(numberedAgent(0, 2), Options{})
		fresh := s.comes(life(numberedAgent(0, 2), "second"), Options{})
		s.fails(old, "another process took my place as host0 (node 0)", new(*Excluded))
		if old.after > 2*calm {
			t.Errorf("it was told after %v", old.after)
		}
		b := s.comes(numberedAgent(1, 2), Options{})
		s.agree([]string{"host0", "host1"}, fresh, b)
		if b.after > 5*time.Second {
			t.Errorf("it took %v", b.after)
		}
	})
}

func TestTwoAgentsOfOneHost(t *testing.T) {
	at := func(addr job.Addr, incarnation string) job.Spec {
		s := life(agent("host0", 2), incarnation)
		s.Self.Addrs = []job.Addr{addr}
		return s
	}
	play(t, func(s *scene) {
		a := s.comes(at("10.0.0.1:29400", "one"), Options{})
		b := s.comes(at("10.0.0.1:29401", "two"), Options{})
		s.agree([]string{"host0", "host0"}, a, b)
		if a.after > 0 {
			t.Errorf("it took %v", a.after)
		}
	})
	play(t, func(s *scene) {
		old := s.comes(at("10.0.0.1:29400", "one"), Options{})
		fresh := s.comes(at("10.0.0.1:29400", "two"), Options{})
		s.fails(old, "another process took my place as host0", new(*Excluded))
		s.waits(fresh)
	})
}

// Whoever came to the meeting and found no seat is told at once.
func TestOneTooMany(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 2), Options{})
		s.store.Add(t.Context(), s.key("tickets"), 1) // keeps a busy until all have drawn
		b := s.comes(agent("b", 2), Options{})
		c := s.comes(agent("c", 2), Options{})
		s.agree([]string{"a", "b"}, a, b)
		s.fails(c, "this job has 2 nodes and they are here without c: a, b; give all nodes a higher --nnodes, or start fewer", new(*Excluded))
		if c.after > b.after {
			t.Errorf("it was told after %v", c.after)
		}
	})
}

// Whoever could not be part of any world of this job need not wait for the next.
func TestLateAndWrong(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 1), Options{})
		s.agree([]string{"a"}, a)
		b := s.comes(numberedAgent(1, 1), Options{})
		s.fails(b, "host1 (node 1) has an index beyond the last of 1 nodes, which is 0", new(*Refusal))
	})
}

func TestContradictions(t *testing.T) {
	with := func(change func(n *job.Spec)) job.Spec {
		s := numberedAgent(1, 3)
		change(&s)
		return s
	}
	for _, c := range []struct {
		name string
		spec job.Spec
		want string
	}{
		{"nodes", numberedAgent(1, 4), "host0 (node 0) expects 3 nodes, host1 (node 1) expects 4; give all nodes the same --nnodes"},
		{"index", with(func(s *job.Spec) { s.Self.Index = 3 }), "host1 (node 3) has an index beyond the last of 3 nodes, which is 2"},
		{"framework", with(func(s *job.Spec) { s.Framework = "jax" }), "host0 (node 0) is to train with torch, host1 (node 1) with jax; give all nodes the same --framework and --ps"},
		{"servers", with(func(s *job.Spec) { s.Servers = 1 }), "host0 (node 0) is to train with torch, host1 (node 1) with torch and 1 parameter servers"},
		{"none", with(func(s *job.Spec) { s.Self.Slots = 0 }), "host1 (node 1) brings no slots, so no worker would run there"},
		{"less", with(func(s *job.Spec) { s.Self.Slots = -1 }), "host1 (node 1) brings -1 slots"},
		{"uneven", with(func(s *job.Spec) { s.Self.Slots = 4 }), "host0 (node 0) brings 8 slots, host1 (node 1) brings 4; say --uneven on all nodes if that is meant"},
	} {
		t.Run(c.name, func(t *testing.T) {
			play(t, func(s *scene) {
				first := s.comes(numberedAgent(0, 3), Options{})
				third := s.comes(numberedAgent(2, 3), Options{})
				wrong := s.comes(c.spec, Options{})
				for _, a := range []*arrival{first, third, wrong} {
					s.fails(a, c.want, new(*Refusal))
					if a.err.Error() != first.err.Error() {
						t.Errorf("two sentences:\n%v\n%v", a.err, first.err)
					}
				}
				if wrong.after > 0 {
					t.Errorf("it took %v", wrong.after)
				}
			})
		})
	}
}

func debugged(s job.Spec, debug bool) job.Spec {
	s.Debug = debug
	return s
}

// Whoever would train with nodes that only look around is told so, whichever of them leads the meeting.
func TestDebugOnSomeNodes(t *testing.T) {
	for last, want := range map[bool]string{
		true:  "host2 (node 2) was started with --debug, host0 (node 0) without; say it on all nodes or on none",
		false: "host0 (node 0) was started with --debug, host2 (node 2) without; say it on all nodes or on none",
	} {
		play(t, func(s *scene) {
			a := s.comes(debugged(numberedAgent(0, 3), !last), Options{})
			b := s.comes(debugged(numberedAgent(1, 3), !last), Options{})
			c := s.comes(debugged(numberedAgent(2, 3), last), Options{})
			for _, each := range []*arrival{a, b, c} {
				s.fails(each, want, new(*Refusal))
			}
		})
	}
	play(t, func(s *scene) {
		a, b := s.comes(debugged(agent("a", 2), true), Options{}), s.comes(debugged(agent("b", 2), true), Options{})
		s.agree([]string{"a", "b"}, a, b)
	})
}

// A refused meeting is not the end of the job's name: the next try meets anew, and is told why.
func TestAfterARefusal(t *testing.T) {
	play(t, func(s *scene) {
		s.comes(agent("a", 2), Options{})
		s.comes(agent("b", 3), Options{})
		c := s.comes(agent("c", 2), Options{})
		if !strings.Contains(c.last().String(), "an earlier meeting was refused: a expects 2 nodes, b expects 3") {
			t.Errorf("c was told %v", c.last())
		}
		d := s.comes(agent("d", 2), Options{})
		s.agree([]string{"c", "d"}, c, d)
	})
}

func TestUneven(t *testing.T) {
	play(t, func(s *scene) {
		small := agent("b", 2)
		small.Self.Slots, small.Uneven = 0, true
		big := agent("a", 2)
		big.Uneven = true
		a, b := s.comes(big, Options{}), s.comes(small, Options{})
		s.agree([]string{"a", "b"}, a, b)
	})
	play(t, func(s *scene) {
		none := func(name string) job.Spec { n := agent(name, 2); n.Self.Slots, n.Uneven = 0, true; return n }
		a := s.comes(none("a"), Options{})
		b := s.comes(none("b"), Options{})
		s.fails(a, "no node brings a slot", new(*Refusal))
		s.fails(b, "no node brings a slot", new(*Refusal))
	})
}

// Records of other versions of muster, and of nobody.
func TestForeignRecords(t *testing.T) {
	record := func(protocol int) string {
		b, _ := json.Marshal(record{Protocol: protocol, Terms: job.Terms{Nodes: 2}, Node: job.Node{
			Name: "new", Index: -1, Slots: 8, Incarnation: "newlife", Version: "v9.0.0",
		}})
		return strings.Replace(string(b), "{", `{"unheard_of":[1,2],`, 1)
	}
	for _, c := range []struct{ record, want string }{
		{record(Protocol + 1), ""},
		{record(Protocol + 2), "a runs muster v0.1.0, which speaks meeting protocol 2, and new runs muster v9.0.0, which speaks 4"},
		{"\x80\x04\x95pickle", "ticket 2 holds nothing that muster can read"},
		{strings.Repeat("x", maxRecord+1), "ticket 2 holds nothing that muster can read: 65537 bytes are more than the 65536"},
	} {
		play(t, func(s *scene) {
			a := s.comes(agent("a", 2), Options{})
			ctx := t.Context()
			s.store.Add(ctx, s.key("tickets"), 1)
			s.store.Add(ctx, s.key("presence/2"), 1)
			s.store.Set(ctx, s.key("ticket/2"), []byte(c.record))
			if c.want == "" {
				s.agree([]string{"a", "new"}, a)
				return
			}
			s.fails(a, c.want, new(*Refusal))
		})
	}
}

// One node of the release before makes the leader publish what that can read; one that comes later reads what it needs.
func TestOneOlderNodeAmongMany(t *testing.T) {
	const n = 2 * shown
	for _, oldest := range []int{Protocol - 1, Protocol} {
		play(t, func(s *scene) {
			spec := agent("old", n)
			b, _ := json.Marshal(record{Protocol: oldest, Terms: spec.Terms, Node: spec.Self})
			a := s.comes(agent("a", n), Options{})
			s.store.Add(t.Context(), s.key("tickets"), 1)
			s.store.Add(t.Context(), s.key("presence/2"), 1)
			s.store.Set(t.Context(), s.key("ticket/2"), b)
			for i := range n - 2 {
				s.comes(agent(fmt.Sprint("host", i), n), Options{})
			}
			a.world(t)
			text, _ := s.store.Get(t.Context(), s.key(keyOutcome))
			want := n
			if oldest == Protocol {
				want = shown
			}
			_, table, _ := strings.Cut(string(text), "\n")
			if got, err := readMembers(table); err != nil || len(got) != want {
				t.Errorf("protocol %d is the lowest: %d members are plain, %v, want %d", oldest, len(got), err, want)
			}
		})
	}
}

// In a crowd nodes show themselves less often, and have longer until they are taken for gone.
func TestPaceOfACrowd(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 3), Options{})
		b := s.comes(agent("b", 3), Options{})
		s.store.Add(t.Context(), s.key(keyTickets), 3998)
		s.passes(20 * time.Second)
		signs := func() int {
			sum, _ := s.store.Memory.Add(t.Context(), s.key(numbered(keyPresence, 2)), 0)
			return int(sum)
		}
		before := signs()
		s.passes(40 * time.Second)
		if n := signs() - before; n != 10 {
			t.Errorf("b showed itself %d times in 40 s", n)
		}
		s.dies(b)
		s.passes(15 * time.Second)
		if n := a.last().Count; n != 2 {
			t.Errorf("%d nodes are here 15 s after one of 2 died", n)
		}
		s.passes(11 * time.Second)
		if n := a.last().Count; n != 1 {
			t.Errorf("%d nodes are here 26 s after one of 2 died", n)
		}
	})
}

// well is the verdict of a job that ended well.
var well = &job.Verdict{Class: job.Succeeded, Sentence: "all workers ended well"}

func TestLateComerWaitsForTheEnd(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 2), Options{})
		b := s.comes(agent("b", 2), Options{})
		s.agree([]string{"a", "b"}, a, b)
		s.passes(89500 * time.Millisecond) // between two beats
		var said []string
		c := s.comes(agent("c", 2), Options{Say: func(text string) { said = append(said, text) }})
		s.passes(30 * time.Second)
		s.waits(c)
		want := "generation 1 of this job has been running for 2m0s on a, b; waiting for its end"
		if got := c.last().String(); got != want {
			t.Errorf("c was told %q, want %q", got, want)
		}
		if err := a.session.End(t.Context(), Over{Verdict: well}); err != nil {
			t.Fatal(err)
		}
		s.passes(3 * beat)
		s.waits(c) // it may be of the next run
		if want := "this job has ended here, in generation 1: all workers ended well; nodes that come now begin it anew"; !slices.Equal(said, []string{want}) {
			t.Errorf("c said %q, want %q", said, want)
		}
		d := s.comes(agent("d", 2), Options{})
		s.agree([]string{"c", "d"}, c, d)
		if g := d.session.World.Generation; g != 2 || d.after > 0 {
			t.Errorf("generation %d after %v", g, d.after)
		}
	})
}

func TestLateComerWaitsForTheLeadersSilence(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 2), Options{})
		b := s.comes(agent("b", 2), Options{})
		s.agree([]string{"a", "b"}, a, b)
		c := s.comes(agent("c", 2), Options{})
		s.passes(time.Minute)
		s.waits(c)
		s.dies(a)
		d := s.comes(agent("d", 2), Options{})
		s.agree([]string{"c", "d"}, c, d)
		if d.after < 4*time.Second || d.after > 8*time.Second {
			t.Errorf("the world was given up after %v", d.after)
		}
	})
}

// The members of a world meet again when it is over, without waiting for anything.
func TestNextRound(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 2), Options{})
		b := s.comes(agent("b", 2), Options{})
		s.agree([]string{"a", "b"}, a, b)
		if err := a.session.End(t.Context(), Over{Expect: 2}); err != nil {
			t.Fatal(err)
		}
		w := a.session.World
		again := Options{Seen: w.Generation, Previous: &w}
		b2 := s.comes(life(agent("b", 2), "b-life1"), again)
		a2 := s.comes(life(agent("a", 2), "a-life1"), again)
		s.agree([]string{"a", "b"}, a2, b2)
		if a2.session.World.Generation != 2 || a2.session.World.Nonce == w.Nonce || a2.after > 0 {
			t.Errorf("%+v after %v", a2.session.World, a2.after)
		}
	})
}

// The store carries the meeting only: a world outlives it.
func TestStoreGoesAwayUnderTheWorld(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 1), Options{})
		s.agree([]string{"a"}, a)
		s.store.away.Store(true)
		s.passes(time.Minute)
		s.store.away.Store(false)
		s.passes(2 * time.Second)
		b, _ := s.store.Get(t.Context(), s.key(keyAlive))
		if n, err := number(keyAlive, b); err != nil || n > 5 {
			t.Errorf("alive is %d, %v", n, err)
		}
		if err := a.session.End(t.Context(), Over{Verdict: well}); err != nil {
			t.Error(err)
		}
	})
}

// A store that came back empty hears of the world again; and so it does from an agent that took another's place.
func TestWorldIsMadeKnownAgain(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 2), Options{Seen: 4})
		b := s.comes(agent("b", 2), Options{Seen: 4})
		s.agree([]string{"a", "b"}, a, b)
		leader := a
		if b.session.Rank == 0 {
			leader = b
		}
		for round := range 2 {
			s.store.empty()
			if round == 1 {
				leader.session.Close()
				leader.session = Resume(s.store, leader.session.World, 0)
			}
			s.passes(2 * time.Second)
			c := s.comes(life(agent("c", 2), fmt.Sprint("c", round)), Options{})
			s.passes(20 * time.Second)
			s.waits(c)
			if got := c.last().String(); !strings.HasPrefix(got, "generation 5 of this job has been running") {
				t.Errorf("c was told %q", got)
			}
		}
		if err := leader.session.End(t.Context(), Over{Verdict: well}); err != nil {
			t.Error(err)
		}
	})
}

func TestTimeouts(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(numberedAgent(0, 4), Options{Timeout: time.Minute})
		b := s.comes(numberedAgent(3, 4), Options{Timeout: 30 * time.Second})
		s.fails(b, "rendezvous: gave up after 30s: 2 of 4 nodes here (host0 (node 0), host3 (node 3)), missing nodes 1, 2", new(*Missing))
		s.fails(a, "rendezvous: gave up after 1m0s: 1 of 4 nodes here (host0 (node 0)), missing nodes 1, 2, 3", new(*Missing))
	})
	play(t, func(s *scene) {
		a := s.comes(agent("a", 3), Options{})
		b := s.comes(agent("b", 3), Options{Timeout: time.Minute})
		s.fails(b, "gave up after 1m0s: 2 of 3 nodes here (a, b)", new(*Missing))
		a.cancel()
		<-a.done
		if !errors.Is(a.err, context.Canceled) || errors.As(a.err, new(*Missing)) {
			t.Errorf("called off with %v", a.err)
		}
	})
	play(t, func(s *scene) {
		a := s.comes(agent("a", 1), Options{})
		s.agree([]string{"a"}, a)
		b := s.comes(agent("b", 1), Options{Timeout: time.Minute})
		s.fails(b, "gave up after 1m0s: generation 1 of this job has been running for", new(*Missing))
	})
}

// Whoever is called off while the world with it is being published is a member: the others must hear of its end.
func TestCalledOffTooLate(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 2), Options{})
		b := join(slowReader{s.store}, agent("b", 2), Options{}) // has not read that it is wanted
		synctest.Wait()
		b.cancel()
		s.agree([]string{"a", "b"}, a, b)
		b.session.Close()
	})
}

// A slowReader does not see an outcome in time.
type slowReader struct{ *shared }

func (s slowReader) Get(ctx context.Context, key string) ([]byte, error) {
	if _, done := ctx.Deadline(); strings.HasSuffix(key, keyOutcome) && done && ctx.Err() == nil && s.torn.Add(-1) == -1 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.shared.Get(ctx, key)
}

// A node that left since the last roll is not made a member.
func TestLeavesBeforeTheLastOneComes(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 3), Options{})
		b := s.comes(agent("b", 3), Options{})
		s.passes(beat / 2)
		b.cancel()
		s.passes(beat / 4)
		if b.err == nil {
			t.Fatal("it goes on")
		}
		c := s.comes(agent("c", 3), Options{})
		s.passes(beat)
		s.waits(a, c)
		d := s.comes(agent("d", 3), Options{})
		s.agree([]string{"a", "c", "d"}, a, c, d)
	})
}

// Nodes that were given different ids hear of each other, and do not meet.
func TestOtherJobs(t *testing.T) {
	play(t, func(s *scene) {
		other := func(id, name string) job.Spec {
			n := agent(name, 2)
			n.ID = id
			return n
		}
		a, b := s.comes(agent("a", 3), Options{Timeout: time.Minute}), s.comes(agent("b", 3), Options{Timeout: time.Minute})
		c := s.comes(other("job\x1b8", "c"), Options{})
		for i := range 20 {
			s.dies(s.comes(other(fmt.Sprint("dead", i), fmt.Sprint("d", i)), Options{}))
		}
		d := s.comes(other("job9", "d"), Options{})
		s.passes(10 * time.Second)
		for _, x := range []*arrival{a, b} {
			if got := x.last().String(); !strings.HasSuffix(got, `2 of 3 nodes here (a, b); also meeting here: job "job8", job "job9" (were all nodes given the same job id?)`) {
				t.Errorf("told %q", got)
			}
		}
		s.waits(d)
		c.cancel()
		s.fails(a, `also meeting here: job "job9" (`, new(*Missing))
	})
}

func TestProgress(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(numberedAgent(0, 4), Options{})
		s.passes(time.Second)
		b := s.comes(numberedAgent(3, 4), Options{})
		s.passes(time.Second)
		c := s.comes(numberedAgent(1, 4), Options{})
		s.passes(2 * time.Second)
		want := "3 of 4 nodes here (host0 (node 0), host3 (node 3), host1 (node 1)), missing node 2"
		for _, x := range []*arrival{a, b, c} {
			if got := x.last().String(); got != want {
				t.Errorf("told %q, want %q", got, want)
			}
		}
		if n := len(b.said); n > 5 {
			t.Errorf("%d reports in three seconds", n)
		}
	})
}

func TestIncomplete(t *testing.T) {
	for want, spec := range map[string]job.Spec{
		"the job has no id":            {Terms: job.Terms{Nodes: 1}, Self: job.Node{Incarnation: "x"}},
		"a world of 0 nodes":           {ID: "x", Self: job.Node{Incarnation: "x"}},
		"this node has no incarnation": {ID: "x", Terms: job.Terms{Nodes: 1}},
	} {
		if _, err := Join(t.Context(), new(store.Memory), spec, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A meeting costs a fixed number of operations per node.
func TestCostIsLinear(t *testing.T) {
	for _, n := range []int{10, 100, 1000} {
		play(t, func(s *scene) {
			var all []*arrival
			for i := range n {
				all = append(all, join(s.store, agent(fmt.Sprint("host", i), n), Options{}))
			}
			for _, a := range all {
				<-a.done
				if a.err != nil {
					t.Fatal(a.err)
				}
				if a.session.Rank == 0 {
					a.session.Close()
				}
			}
			for _, a := range all {
				a.cancel()
			}
			calls := s.store.calls.Load()
			if calls > int64(13*n+10) {
				t.Errorf("%d nodes cost %d calls", n, calls)
			}
			t.Logf("%d nodes: %d calls", n, calls)
		})
	}
}

// An agent that died after it had entered is followed by another, which finds itself in the world.
func TestEntersInTheWorld(t *testing.T) {
	play(t, func(s *scene) {
		a := s.comes(agent("a", 2), Options{})
		b := s.comes(agent("b", 2), Options{})
		s.agree([]string{"a", "b"}, a, b)
		again := s.comes(agent("b", 2), Options{})
		s.agree([]string{"a", "b"}, a, again)
		if again.session.World.Nonce != a.session.World.Nonce {
			t.Error("it is in another world")
		}
	})
}

// Who stood still as it came, and as the store came back empty, does not begin a world where nobody meets any more.
func TestStoodStillAsTheStoreWasEmptied(t *testing.T) {
	play(t, func(s *scene) {
		s.halts = &halt{key: keyPresence, long: 20 * time.Second}
		a := s.comes(spared("a", 1), Options{})
		s.passes(time.Second)
		s.store.empty()
		b := s.comes(spared("b", 1), Options{})
		s.agree([]string{"b"}, b)
		s.passes(30 * time.Second)
		s.waits(a)
		if a.last().Running != 1 {
			t.Errorf("a was told %+v", a.last())
		}
	})
}

// A leader that stood still as it published takes the world that others have made meanwhile for what stands, and not its own.
func TestStoodStillAsItPublished(t *testing.T) {
	play(t, func(s *scene) {
		soon := Options{LastCall: time.Second}
		s.halts = &halt{key: keyOutcome, long: 20 * time.Second}
		a := s.comes(elastic("a", 2, 3), soon)
		b, c := s.comes(elastic("b", 2, 3), soon), s.comes(elastic("c", 2, 3), soon)
		s.agree([]string{"b", "c"}, b, c)
		s.passes(30 * time.Second)
		s.waits(a)
		if a.last().Running != 1 {
			t.Errorf("a was told %+v", a.last())
		}
	})
}

// A node that has made a world of itself, and stood still before it knew, does not run beside the one that stood by and took its place.
func TestStoodStillAlone(t *testing.T) {
	play(t, func(s *scene) {
		s.halts = &halt{key: keyOutcome, long: 40 * time.Second, late: true}
		a := s.comes(spared("a", 1), Options{})
		s.passes(2 * time.Second)
		b := s.comes(spared("b", 1), Options{})
		s.agree([]string{"b"}, b)
		s.passes(60 * time.Second)
		s.waits(a)
		if a.last().Running != 2 {
			t.Errorf("a was told %+v", a.last())
		}
	})
}
