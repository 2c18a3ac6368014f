package launcher

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/store"
	"github.com/muster-run/muster/test/freeport"
)

// freeEndpoint returns an endpoint on this machine at which nobody listens.
func freeEndpoint(t *testing.T) job.Addr {
	t.Helper()
	return job.Addr(fmt.Sprintf("127.0.0.1:%d", freeport.Take(t)))
}

// joiner is what one agent of this machine knows of a job; life tells agents apart.
func joiner(at job.Addr, nodes, index int, life string) (Config, Plan) {
	c := Config{JoinTimeout: time.Minute, Log: slog.New(slog.DiscardHandler)}
	return c, Plan{Endpoint: at, MayServe: true, Spec: job.Spec{ID: "job7", Terms: job.Terms{Nodes: nodes}, Self: job.Node{
		Name: "host", Index: index, Slots: 1, Incarnation: life, Addrs: []job.Addr{"127.0.0.1"},
	}}}
}

// A gathering is the end of one agent's meeting.
type gathering struct {
	meeting *meeting
	err     error
}

// said are lines of a log.
type said chan string

func (s said) Write(b []byte) (int, error) {
	s <- string(b)
	return len(b), nil
}

func (s said) wait(t *testing.T, text string) {
	t.Helper()
	late := time.After(4 * time.Minute)
	for {
		select {
		case line := <-s:
			if strings.Contains(line, text) {
				return
			}
		case <-late:
			t.Fatalf("it does not say %q", text)
		}
	}
}

// gather joins, in a goroutine of its own.
func gather(t *testing.T, c Config, p Plan) <-chan gathering {
	t.Helper()
	m, err := openMeeting(t.Context(), c, &heritage{Plan: p}, nil)
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan gathering, 1)
	go func() { end <- gathering{m, m.join(t.Context(), rendezvous.Options{})} }()
	return end
}

// ends waits for a meeting to end.
func ends(t *testing.T, end <-chan gathering) gathering {
	t.Helper()
	select {
	case e := <-end:
		t.Cleanup(e.meeting.close)
		return e
	case <-time.After(4 * time.Minute):
		t.Fatal("the meeting does not end")
		panic("unreachable")
	}
}

// A member that is told to stop when the world was just published is still expected: it reaches the leader, and can
// tell it so.
func TestToldToStopBeforeTheCall(t *testing.T) {
	t.Parallel()
	at := freeEndpoint(t)
	c, p := joiner(at, 2, 0, "a")
	a := gather(t, c, p)
	c, p = joiner(at, 2, 1, "b")
	b := ends(t, gather(t, c, p))
	lead := ends(t, a)
	if lead.err != nil || b.err != nil {
		t.Fatal(lead.err, b.err)
	}
	leader, err := lead.meeting.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer leader.close()
	asked, cancel := context.WithCancel(t.Context())
	cancel()
	member, err := b.meeting.connect(asked)
	if err != nil {
		t.Fatal(err)
	}
	member.tell(0, news{Kind: newsEnding})
	defer member.close()
	for e := range leader.events() {
		if n, ok := leader.translate(e).(told); ok && n.News.Kind == newsEnding {
			return
		}
	}
}

// Nodes that were told different times give each other up after that of their world, from the first moment on.
func TestTimeoutOfTheLine(t *testing.T) {
	t.Parallel()
	at := freeEndpoint(t)
	c, p := joiner(at, 2, 0, "a")
	c.NodeTimeout = 5 * time.Second
	a := gather(t, c, p)
	c, p = joiner(at, 2, 1, "b")
	c.NodeTimeout = 20 * time.Second
	b, lead := ends(t, gather(t, c, p)), ends(t, a)
	for _, m := range []*meeting{lead.meeting, b.meeting} {
		m.session.World.Rules = &job.Rules{Timeout: time.Minute}
		l, err := m.connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		if l.fleet.NodeTimeout != time.Minute {
			t.Errorf("%s gives others up after %v", m.spec.Self.Name, l.fleet.NodeTimeout)
		}
	}
}

// Without a leader, being told to stop ends the call soon.
func TestLastCall(t *testing.T) {
	t.Parallel()
	asked, cancel := context.WithCancel(t.Context())
	cancel()
	begun := time.Now()
	calling, end := outlast(asked, fleetTime)
	defer end()
	<-calling.Done()
	if d := time.Since(begun); d < lastCall || d > lastCall+20*time.Second {
		t.Errorf("it took %v", d)
	}
}

// Two agents have one index, and the one that is replaced hosts the store: it ends at once and says why, and the others
// meet without it, in a store that one of them hosts now.
func TestHostIsReplaced(t *testing.T) {
	t.Parallel()
	at := freeEndpoint(t)
	c, p := joiner(at, 3, 0, "old")
	told := make(said, 100)
	c.Log = slog.New(slog.NewTextHandler(told, nil))
	old := gather(t, c, p)
	told.wait(t, "1 of 3 nodes here") // so its ticket is the first
	c, p = joiner(at, 3, 0, "new")
	fresh := gather(t, c, p)
	c, p = joiner(at, 3, 1, "b")
	b := gather(t, c, p)

	e := ends(t, old)
	var excluded *rendezvous.Excluded
	if !errors.As(e.err, &excluded) || !excluded.Replaced || ExitCode(e.err) != job.ExitRefused {
		t.Fatalf("the one that was replaced: %v", e.err)
	}
	e.meeting.close()

	c, p = joiner(at, 3, 2, "c")
	p.MayServe = false
	for _, last := range []<-chan gathering{gather(t, c, p), b, fresh} {
		if e := ends(t, last); e.err != nil {
			t.Error(e.err)
		}
	}
}

// Who hosts the store is gone while a world lives: another agent of its machine hosts it, and who comes late finds that world.
func TestHostHasASuccessor(t *testing.T) {
	t.Parallel()
	at := freeEndpoint(t)
	agent := func(index int, log *slog.Logger, mayServe bool) <-chan gathering {
		c, p := joiner(at, 3, index, fmt.Sprint("life", index))
		c.RejoinTimeout, p.Restarts, p.Spec.Least = time.Minute, 1, 2
		c.Log, p.MayServe = log, mayServe
		return gather(t, c, p)
	}
	quiet := slog.New(slog.DiscardHandler)
	first, second := agent(0, quiet, true), agent(1, quiet, true)
	a, b := ends(t, first), ends(t, second)
	if a.err != nil || b.err != nil {
		t.Fatal(a.err, b.err)
	}
	a.meeting.close() // it came first, and hosts the store
	b.meeting.succeed()

	told := make(said, 1000)
	late := agent(2, slog.New(slog.NewTextHandler(told, nil)), false)
	told.wait(t, "generation 1 of this job was begun on") // nothing beats in it
	if err := b.meeting.session.End(t.Context(), rendezvous.Over{Verdict: &job.Verdict{Sentence: "all ended well"}}); err != nil {
		t.Error(err)
	}
	var ended *rendezvous.Ended
	if e := ends(t, late); !errors.As(e.err, &ended) {
		t.Error(e.err)
	}
}

// Whoever holds the port and goes away was this node's last agent, not another program.
func TestPortIsLeft(t *testing.T) {
	t.Parallel()
	for name, sure := range map[string]bool{"the host": true, "perhaps the host": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go leave(before)
			c, p := joiner(job.Addr(before.Addr().String()), 1, 0, "a")
			p.Serve = sure
			if e := ends(t, gather(t, c, p)); e.err != nil {
				t.Error(e.err)
			}
		})
	}
}

// leave says nothing to a caller, if one comes, and stops listening.
func leave(ln net.Listener) {
	time.AfterFunc(2*time.Second, func() { ln.Close() })
	if c, err := ln.Accept(); err == nil {
		defer c.Close()
	}
	ln.Close()
}

// Agents that were given different job ids do not meet, and are told of each other.
func TestJobsAtOneEndpoint(t *testing.T) {
	t.Parallel()
	at := freeEndpoint(t)
	var all []<-chan gathering
	for i := range 2 {
		c, p := joiner(at, 2, i, fmt.Sprint("life", i))
		c.JoinTimeout, p.Spec.ID = 20*time.Second, fmt.Sprint("job", i)
		all = append(all, gather(t, c, p))
	}
	for i, end := range all {
		e := ends(t, end)
		if want := fmt.Sprintf(`Job "job%d" also meets at that port: were all nodes given the same job id?`, 1-i); e.err == nil || !strings.Contains(e.err.Error(), want) {
			t.Errorf("job%d: %v", i, e.err)
		}
	}
}

// Who waits for others in a store that is not there ends for that, and says since when. Whoever knows that the job had a world ends as its
// members do.
func TestStoreAwayToTheEnd(t *testing.T) {
	here := rendezvous.Status{Here: []string{"a", "b"}, Count: 2, Expected: 3}
	for name, c := range map[string]struct {
		m    *meeting
		away time.Duration
		code int
		want string
		back bool
	}{
		"there":                {&meeting{}, 0, job.ExitPeers, "gave up after 10m0s: 2 of 3 nodes here (a, b); did the missing nodes start, and can they reach h0:1?", false},
		"only just away":       {&meeting{}, time.Second, job.ExitPeers, "2 of 3 nodes here", false},
		"away":                 {&meeting{}, time.Minute, job.ExitStore, "gave up after 10m0s: the store at h0:1 was away for 1m0s: connection refused; is it running, under the same name or address? --join-timeout says", false},
		"away, after a world":  {&meeting{anew: true}, time.Minute, job.ExitRetry, "connection refused; is it running, under the same name or address? --rdzv-timeout says", false},
		"there, after a world": {&meeting{anew: true}, 0, job.ExitRetry, "2 of 3 nodes here", false},
		"away from a spare":    {&meeting{lived: true}, time.Minute, job.ExitRetry, "the store at h0:1 was away for 1m0s: connection refused; the job may have ended: see the log of its nodes, and whether the store runs; --join-timeout says", false},
		"there, for a spare":   {&meeting{lived: true}, 0, job.ExitRetry, "2 of 3 nodes here (a, b); the job may have ended: see the log of its nodes", false},
		"back":                 {&meeting{}, time.Minute, job.ExitPeers, "2 of 3 nodes here (a, b); the store at h0:1 was away for 1m0s of that; did the missing", true},
		"soon back":            {&meeting{}, time.Second, job.ExitPeers, "2 of 3 nodes here (a, b); did the missing nodes start", true},
		"back, for a spare":    {&meeting{lived: true}, time.Minute, job.ExitRetry, "the store at h0:1 was away for 1m0s of that", true},
	} {
		c.m.port = "h0:1"
		if c.away > 0 {
			c.m.away("connection reset by peer")
			c.m.gone.Load().since = time.Now().Add(-c.away)
			c.m.away("connection refused")
		}
		if c.back {
			c.m.back()
		}
		err := c.m.missing(&rendezvous.Missing{Status: here, After: 10 * time.Minute})
		var missing *rendezvous.Missing
		if !strings.Contains(err.Error(), c.want) || ExitCode(err) != c.code || !errors.As(err, &missing) {
			t.Errorf("%s: %d, %v", name, ExitCode(err), err)
		}
	}
}

// Who gives up while another job has a world knows of no world of its own: the line says what to do.
func TestGivesUpBesideAnother(t *testing.T) {
	m := &meeting{port: "h0:1"}
	s := rendezvous.Status{Running: 1, Another: true, Alive: time.Minute, World: []string{"a", "b"}, Size: 2}
	err := m.missing(&rendezvous.Missing{Status: s, After: time.Minute})
	want := "gave up after 1m0s: generation 1 of another job that meets here has been running for 1m0s on a, b; waiting for its end, for it runs another command"
	if text := err.Error(); ExitCode(err) != job.ExitPeers || !strings.Contains(text, want) || strings.Contains(text, "did the missing nodes start") {
		t.Errorf("%d, %v", ExitCode(err), err)
	}
}

// What a node is told to look at are whole sentences, whichever of them there are.
func TestMissingHints(t *testing.T) {
	m := &meeting{port: "h0:1", store: &store.Memory{}, plan: Plan{Called: "job"}}
	if err := m.store.Set(t.Context(), "torch.rendezvous.job", nil); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string][2]bool{
		"did the missing nodes start, and can they reach h0:1? A torchrun meets in": {false, false},
		"A torchrun meets in": {false, true},
		"the job may have ended: see the log of its nodes. A torchrun meets in": {true, false},
	} {
		if got := sentences(m.missingHints(c[0], c[1])); !strings.HasPrefix(got, want) {
			t.Errorf("%q is not %q", got, want)
		}
	}
}

// Nodes that torchrun was started on are not missing without a reason.
func TestGivesUpBesideTorchrun(t *testing.T) {
	for key, tells := range map[string]bool{"torch.rendezvous.job": true, "torch.rendezvous.none": true, "torch.rendezvous.other": false} {
		m := &meeting{port: "h0:1", store: &store.Memory{}, plan: Plan{Called: "job"}}
		if err := m.store.Set(t.Context(), key, []byte("gASVLg==")); err != nil {
			t.Fatal(err)
		}
		err := m.missing(&rendezvous.Missing{After: time.Minute})
		if why := new(Error); !errors.As(err, &why) || strings.Contains(why.Hint, "A torchrun meets in that store") != tells {
			t.Errorf("%s: %v", key, err)
		}
		var said bytes.Buffer
		m.c.Log, m.spec.Nodes = slog.New(slog.NewTextHandler(&said, nil)), 2
		m.looksForTorchruns(2)
		if said.Len() > 0 {
			t.Errorf("%s: of a full world it is said: %s", key, &said)
		}
		if m.looksForTorchruns(1); strings.Contains(said.String(), "A torchrun meets in that store") != tells {
			t.Errorf("%s: %s", key, &said)
		}
	}
}

// A store that is away for one reason and then for another is told of once.
func TestStoreAwayIsNoFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(said, 100)
		m := &meeting{port: "h0:1"}
		m.show.Store(newWaiting(slog.New(slog.NewTextHandler(told, nil)), nil, "meeting"))
		time.Sleep(firstTold)
		for range 10 {
			m.away("connection refused")
			m.away("no route to host")
		}
		if len(told) != 1 {
			t.Errorf("%d lines", len(told))
		}
	})
}

// The host of a store that leaves the job lets the others read in which world they go on.
func TestHostLeaves(t *testing.T) {
	t.Parallel()
	at := freeEndpoint(t)
	c, p := joiner(at, 2, 0, "a")
	a := gather(t, c, p)
	c, p = joiner(at, 2, 1, "b")
	b, host := ends(t, gather(t, c, p)), ends(t, a).meeting
	host.quits = true
	host.remember([]byte("a world without a"))
	closed := make(chan struct{})
	go func() { host.close(); close(closed) }()
	select {
	case <-closed:
		t.Error("the store is gone as soon as there is something to read")
	case <-time.After(100 * time.Millisecond):
	}
	b.meeting.close()
	<-closed
}

// A host that was told to stop serves the store for no longer than its platform lets it live.
func TestHostLeavesInTime(t *testing.T) {
	for name, c := range map[string]struct {
		is   func(*meeting)
		most time.Duration
	}{
		"others meet again": {func(m *meeting) { m.quits = true }, overTime + readTime},
		"others meet":       {func(m *meeting) { m.awaited.Store(true) }, overTime},
		"others stood by":   {func(m *meeting) { m.ended = true }, overTime},
		"nobody is left":    {func(m *meeting) {}, 0},
	} {
		for _, left := range []time.Duration{-time.Second, 0, time.Second, 6 * time.Second, time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				m, began := &meeting{leaves: time.Now().Add(left)}, time.Now()
				c.is(m)
				if got := m.needed().Sub(began); got > max(left, 0) || got != min(left, c.most) && left >= 0 {
					t.Errorf("%s, and %v are left: it serves for %v", name, left, got)
				}
			})
		}
	}
}

// The host of a store that stood by until the job ended lets the others that did read so.
func TestHostStoodBy(t *testing.T) {
	t.Parallel()
	at, told := freeEndpoint(t), make(said, 1000)
	var coming []<-chan gathering
	for i := range 3 {
		c, p := joiner(at, 3, i, fmt.Sprint("life", i))
		c.Log = slog.New(slog.NewTextHandler(told, nil))
		coming = append(coming, gather(t, c, p))
	}
	var all []*meeting
	for _, end := range coming {
		e := ends(t, end)
		if e.err != nil {
			t.Fatal(e.err)
		}
		all = append(all, e.meeting)
	}
	stands := func(m *meeting) <-chan gathering {
		left, end := m.session, make(chan gathering, 1)
		left.Close()
		m.anew = true
		go func() { end <- gathering{m, m.join(t.Context(), rendezvous.Options{Seen: 1, Previous: &left.World})} }()
		return end
	}
	host, b := stands(all[0]), stands(all[1]) // they do not hear the third
	told.wait(t, "waiting for its end with 2 nodes")
	if err := all[2].session.End(t.Context(), rendezvous.Over{Verdict: &job.Verdict{Sentence: "all ended well"}}); err != nil {
		t.Fatal(err)
	}
	for _, end := range []<-chan gathering{host, b} {
		if e := ends(t, end); !errors.As(e.err, new(*rendezvous.Ended)) {
			t.Error(e.err)
		}
	}
	all[2].close()
	closed := make(chan struct{})
	go func() { all[0].close(); close(closed) }()
	select {
	case <-closed:
		t.Error("the store is gone as soon as its host knows")
	case <-time.After(100 * time.Millisecond):
	}
	all[1].close()
	<-closed
}

// Several jobs meet at one port of one machine: none is in the way of another, whichever comes first, and each goes on there when another has ended.
func TestJobsShareAPort(t *testing.T) {
	t.Parallel()
	at := freeEndpoint(t)
	node := func(id string, index int, life string) <-chan gathering {
		c, p := joiner(at, 2, index, life)
		p.Spec.ID = id
		return gather(t, c, p)
	}
	met := func(id string, both ...<-chan gathering) (all []*meeting) {
		for _, one := range both {
			e := ends(t, one)
			if e.err != nil {
				t.Fatalf("%s: %v", id, e.err)
			}
			for _, m := range e.meeting.session.World.Members {
				if !strings.HasPrefix(m.Incarnation, id) {
					t.Errorf("%s has %v in its world", id, m)
				}
			}
			all = append(all, e.meeting)
		}
		return all
	}
	a, b := node("a", 0, "a0"), node("b", 1, "b1")
	c := node("c", 0, "c0")
	bs, as := met("b", b, node("b", 0, "b0")), met("a", a, node("a", 1, "a1"))
	met("c", c, node("c", 1, "c1"))
	if bs[0].lives(t.Context(), as[0].session.World.Members[0].Node) {
		t.Error("the agent of another job at that port is taken for one of this job")
	}
	for _, m := range as { // and with them who had the port
		m.close()
	}
	a = node("a", 0, "a2") // at a port that another job has now
	met("a", a, node("a", 1, "a3"))
}

// Two jobs at one endpoint to which nobody gave an id: the second hears why it waits, and meets when the first is over and its agents, who hosted the store, are gone.
func TestJobsWithoutAnID(t *testing.T) {
	t.Parallel()
	at, told := freeEndpoint(t), make(said, 1000)
	node := func(script string, index int) <-chan gathering {
		c, p := joiner(at, 2, index, fmt.Sprint(script, index))
		c.Log, p.Spec.Program = slog.New(slog.NewTextHandler(told, nil)), job.ProgramOf([]string{script})
		return gather(t, c, p)
	}
	both := []<-chan gathering{node("a.py", 0), node("a.py", 1)}
	first := []gathering{ends(t, both[0]), ends(t, both[1])}
	second := []<-chan gathering{node("b.py", 0), node("b.py", 1)}
	for range second {
		told.wait(t, "generation 1 of another job that meets here ")
	}
	for _, e := range first {
		if e.err != nil {
			t.Fatal(e.err)
		}
		if e.meeting.session.Rank == 0 {
			if err := e.meeting.session.End(t.Context(), rendezvous.Over{Verdict: &job.Verdict{Sentence: "all ended well"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, e := range first {
		e.meeting.close()
	}
	for _, end := range second {
		e := ends(t, end)
		if e.err != nil {
			t.Fatal(e.err)
		}
		for _, m := range e.meeting.session.World.Members {
			if !strings.HasPrefix(m.Incarnation, "b.py") {
				t.Errorf("%v is in its world", m)
			}
		}
		if e.meeting.lived {
			t.Error("another job's world is taken for its own")
		}
	}
}

// People hear of nodes that are together and may not be meant to be, once, and of those that are apart because each machine has a loopback address of its own.
func TestRemarks(t *testing.T) {
	const (
		mixed    = "the nodes do not all run the same command (a (node 0), b (node 1)): if that is not meant, several jobs meet here as one; give each its own --rdzv-id"
		confined = "2 of at most 4 nodes, for they meet at "
	)
	world := func(generation, most int, program uint64) job.World {
		return job.World{Generation: generation, Terms: job.Terms{Nodes: most, Least: 1, Program: program}, Members: []job.Member{{Node: job.Node{Name: "a"}}, {Node: job.Node{Name: "b", Index: 1}}}}
	}
	for name, c := range map[string]struct {
		m    *meeting
		w    job.World
		want []string
	}{
		"one command":                 {&meeting{port: "h0:1"}, world(1, 4, 7), nil},
		"an older release's":          {&meeting{port: "h0:1"}, world(1, 4, 0), nil},
		"various":                     {&meeting{port: "h0:1"}, world(1, 2, job.Various), []string{mixed}},
		"various, later":              {&meeting{port: "h0:1"}, world(3, 2, job.Various), []string{mixed}},
		"various, again":              {&meeting{port: "h0:1", various: true}, world(3, 2, job.Various), nil},
		"localhost":                   {&meeting{port: "localhost:1"}, world(1, 4, 7), []string{confined + "localhost: agents of other machines cannot reach it"}},
		"127.0.0.1":                   {&meeting{port: "127.0.0.1:1"}, world(1, 4, 7), []string{confined + "127.0.0.1"}},
		"::1":                         {&meeting{port: "[::1]:1"}, world(1, 4, 7), []string{confined + "::1"}},
		"localhost, and all are here": {&meeting{port: "localhost:1"}, world(1, 2, 7), nil},
		"localhost, later":            {&meeting{port: "localhost:1"}, world(2, 4, 7), nil},
		"an etcd at localhost":        {&meeting{port: "localhost:1", plan: Plan{Etcd: []string{"localhost:1"}}}, world(1, 4, 7), nil},
		"no endpoint":                 {&meeting{}, world(1, 4, 7), nil},
		"both":                        {&meeting{port: "localhost:1"}, world(1, 4, job.Various), []string{mixed, confined}},
	} {
		c.m.session = &rendezvous.Session{World: c.w}
		got := c.m.remarks()
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got, want := listNodes(make([]job.Member, mostNamed+2)), ", and 2 more"; !strings.HasSuffix(got, want) {
		t.Errorf("%q does not end with %q", got, want)
	}
}

// What a node runs is what its user wrote, whichever Python runs it, and it is kept for who takes over.
func TestProgramIsPlanned(t *testing.T) {
	var all []Plan
	for _, c := range []Config{{Argv: []string{"sh", "-c", "exit"}}, {Argv: []string{"sh", "-c", "exit"}, Debug: "true"}, {Argv: []string{"sh", "-c", "true"}}} {
		var p Plan
		c.Environ = []string{"PATH=" + os.Getenv("PATH")}
		if err := planCommand(c, discovery.Finding{}, &p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if all[0].Spec.Program != job.ProgramOf([]string{"sh", "-c", "exit"}) || all[1].Spec.Program != all[0].Spec.Program || all[2].Spec.Program == all[0].Spec.Program {
		t.Errorf("%d, %d, %d", all[0].Spec.Program, all[1].Spec.Program, all[2].Spec.Program)
	}
	var h heritage
	b, err := json.Marshal(heritage{Plan: all[0], World: &job.World{Terms: job.Terms{Program: job.Various}}})
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err != nil || h.Plan.Spec.Program != all[0].Spec.Program || h.World.Terms.Program != job.Various {
		t.Errorf("%v: %s", err, b)
	}
}

// Who connects to a job's claim and says nothing is in the way of nobody.
func TestClaimOfTheSilent(t *testing.T) {
	t.Parallel()
	at := freeEndpoint(t)
	node := func(id string, index int) <-chan gathering {
		c, p := joiner(at, 2, index, fmt.Sprint(id, index))
		p.Spec.ID = id
		return gather(t, c, p)
	}
	first, a := node("b", 0), node("a", 0)
	for range mostTrusted - 1 {
		silent, err := net.Dial("unixpacket", fmt.Sprintf("@muster/%s/%x", portOf(at), sha256.Sum224([]byte("a"))))
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
	}
	for _, one := range []<-chan gathering{a, node("a", 1), node("b", 1), first} {
		if e := ends(t, one); e.err != nil {
			t.Error(e.err)
		}
	}
}

// A line that others can cause at will is a warning once in a while.
func TestSparing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var loud sparing
		for i, want := range []slog.Level{slog.LevelWarn, slog.LevelDebug, slog.LevelDebug} {
			if got := loud.level(); got != want {
				t.Errorf("line %d is at %v", i, got)
			}
		}
		time.Sleep(sparingTime)
		if got := loud.level(); got != slog.LevelWarn {
			t.Errorf("after a while it is at %v", got)
		}
	})
}
