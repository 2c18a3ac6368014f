package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/store"
	"github.com/muster-run/muster/rendezvous/storetest"
	"github.com/muster-run/muster/test/etcdtest"
)

// patience bounds every wait of a test.
const patience = 4 * time.Minute

func options(c *etcdtest.Cluster, prefix string) Options {
	return Options{Endpoints: c.Endpoints(), Prefix: prefix}
}

func open(t testing.TB, o Options) *Store {
	t.Helper()
	s := New(o)
	t.Cleanup(func() { s.Close() })
	return s
}

// A server's answer that the caller's time has passed says no more than silence.
func TestUncertain(t *testing.T) {
	for err, want := range map[error]bool{
		status.Error(codes.Unknown, "context deadline exceeded"): true,
		status.Error(codes.Unavailable, "no leader"):             true,
		status.Error(codes.Unknown, "no space"):                  false,
		rpctypes.ErrTimeout:                                      true,
		rpctypes.ErrCompacted:                                    false,
		nil:                                                      false,
	} {
		if got := uncertain(err); got != want {
			t.Errorf("uncertain(%v) = %v", err, got)
		}
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	e := etcdtest.Start(t, 1)
	var number atomic.Int64
	storetest.Test(t, func(t *testing.T) func() store.Store {
		prefix := fmt.Sprintf("/muster/test%d/", number.Add(1))
		return func() store.Store { return open(t, options(e, prefix)) }
	})
}

// A counter is a number for whoever reads it, and becomes a value like others with the first other change.
func TestCounter(t *testing.T) {
	t.Parallel()
	s, ctx := open(t, options(etcdtest.Start(t, 1), "/counter/")), t.Context()
	for i, change := range []func(key string) (string, error){
		func(key string) (string, error) { n, err := s.Add(ctx, key, 1); return fmt.Sprint(n), err },
		func(key string) (string, error) { n, err := s.Add(ctx, key, 0); return fmt.Sprint(n - 1), err },
		func(key string) (string, error) { n, err := s.Add(ctx, key, -4); return fmt.Sprint(n + 5), err },
		func(key string) (string, error) {
			b, err := s.CompareSet(ctx, key, []byte("3"), []byte("4"))
			return string(b), err
		},
		func(key string) (string, error) { return "4", s.Set(ctx, key, []byte("4")) },
		func(key string) (string, error) { return "4", s.Append(ctx, key, nil) },
	} {
		key := fmt.Sprint(i)
		for range 3 {
			if _, err := s.Add(ctx, key, 1); err != nil {
				t.Fatal(err)
			}
		}
		if b, err := s.Get(ctx, key); string(b) != "3" || err != nil {
			t.Errorf("%d: counted to %q, %v", i, b, err)
		}
		if got, err := change(key); err != nil || i < 3 && got != map[int]string{0: "4", 1: "2", 2: "4"}[i] || i == 3 && got != "4" {
			t.Errorf("%d: changed to %q, %v", i, got, err)
		}
		before, err := s.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		n, err := s.Add(ctx, key, 1)
		if want, _ := store.ParseInt(before); n != want+1 || err != nil {
			t.Errorf("%d: %s and one more is %d, %v", i, before, n, err)
		}
	}
}

// The last user to go takes all with it.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	e := etcdtest.Start(t, 1)
	a, b := open(t, options(e, "/job/")), open(t, options(e, "/job/"))
	for i, s := range []*Store{a, b} {
		if err := s.Set(t.Context(), fmt.Sprint("k", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if all, err := b.Check(t.Context(), "k0", "k1"); !all || err != nil {
		t.Errorf("with one user left the keys are there: %v, %v", all, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if keys := e.Keys(); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
}

// kill is what a user leaves that does not close its store.
func kill(t *testing.T, o Options) {
	t.Helper()
	s := open(t, o)
	if err := s.Set(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	s.client.Close()
}

// Where users were killed, the lease runs out.
func TestKilled(t *testing.T) {
	t.Parallel()
	e := etcdtest.Start(t, 1)
	o := options(e, "/job/")
	o.TTL = 8 * time.Second
	a := open(t, o)
	if err := a.Set(t.Context(), "a", nil); err != nil { // it is there before the other one is killed
		t.Fatal(err)
	}
	kill(t, o)
	if found, err := a.Check(t.Context(), "k"); !found || err != nil {
		t.Errorf("before the lease ran out: %v, %v", found, err)
	}
	if a.Close(); len(e.Keys()) == 0 {
		t.Error("the store went though it had another user")
	}
	e.Empties()
}

// Who comes again under the name of one that was killed takes its place, and leaves for it.
func TestKilledAgain(t *testing.T) {
	t.Parallel()
	e := etcdtest.Start(t, 1)
	o := options(e, "/job/")
	o.Name = "a"
	kill(t, o)
	o.Again = true
	if err := open(t, o).Close(); err != nil {
		t.Fatal(err)
	}
	if keys := e.Keys(); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
}

// The lease ends under a user that goes on: the store is empty for it, and works.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	e := etcdtest.Start(t, 1)
	a, b := open(t, options(e, "/job/")), open(t, options(e, "/job/"))
	if err := a.Set(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	if err := b.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Revoke(t.Context(), a.lease); err != nil {
		t.Fatal(err)
	}
	if n, err := a.Add(t.Context(), "n", 1); n != 1 || err != nil {
		t.Errorf("counted to %d, %v", n, err)
	}
	if keys, err := b.ListKeys(t.Context()); err != nil || fmt.Sprint(keys) != "[n]" {
		t.Errorf("%q, %v", keys, err)
	}
}

// Of an etcd that lost what it had nobody knows at first who uses the store: who leaves then takes nothing away from those who will find out. Later,
// when they are on the list again, nothing is left as ever.
func TestEmptied(t *testing.T) {
	t.Parallel()
	e := etcdtest.Start(t, 1)
	for _, c := range []struct {
		name  string
		again bool // the first user's agent died, and another one took its place
	}{{name: "a user"}, {"its successor", true}} {
		t.Run(c.name, func(t *testing.T) {
			o := options(e, "/job/")
			o.Name, o.TTL = "a", 3*time.Second
			a := open(t, o)
			o.Name = "b"
			b := open(t, o)
			for _, s := range []*Store{a, b} {
				if err := s.Set(t.Context(), "before", nil); err != nil {
					t.Fatal(err)
				}
			}
			if c.again {
				a.client.Close() // all that is left of one that was killed
				o.Name, o.Again = "a", true
				a = open(t, o)
			}
			e.Members[0].Forget()
			if err := errors.Join(a.Set(t.Context(), "after", nil), a.Close()); err != nil {
				t.Fatal(err)
			}
			if found, err := b.Check(t.Context(), "after"); !found || err != nil {
				t.Errorf("what a user leaves is there for another: %v, %v", found, err)
			}
			e.Gets("/job/users/b")
			e.Loses("/job/emptied")
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if keys := e.Keys(); len(keys) > 0 {
				t.Errorf("left: %q", keys)
			}
		})
	}
}

// Nobody enters with a lease that another one ends just then.
func TestEntersAsTheLastLeaves(t *testing.T) {
	t.Parallel()
	e := etcdtest.Start(t, 1)
	a, b := open(t, options(e, "/job/")), open(t, options(e, "/job/"))
	if err := errors.Join(a.Set(t.Context(), "a", nil), b.connect(t.Context())); err != nil {
		t.Fatal(err)
	}
	id, _, err := b.join(t.Context())
	if err := errors.Join(err, a.Close()); err != nil {
		t.Fatal(err)
	}
	if entered, err := b.enlist(t.Context(), id); entered || err != nil { // it is not tried at all
		t.Errorf("entered with a lease that is gone: %v, %v", entered, err)
	}
	if err := b.Set(t.Context(), "b", nil); err != nil {
		t.Fatal(err)
	}
}

// Users that come and go find what they wrote as long as they stay.
func TestComeAndGo(t *testing.T) {
	t.Parallel()
	e := etcdtest.Start(t, 1)
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			for j := range 30 {
				s, key := New(options(e, "/job/")), fmt.Sprint(i, " ", j)
				err := s.Set(t.Context(), key, nil)
				found, err2 := s.Check(t.Context(), key)
				if err := errors.Join(err, err2, s.Close()); !found || err != nil {
					t.Errorf("%s: %v, %v", key, found, err)
					return
				}
			}
		})
	}
	all.Wait()
	if keys := e.Keys(); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
}

// etcd may go away and come back: who waits goes on waiting, and what can be repeated is.
func TestServerComesBack(t *testing.T) {
	t.Parallel()
	e, told := etcdtest.Start(t, 1), make(chan string, 1000)
	o := options(e, "/job/")
	o.Waiting = func(because string) { told <- because }
	s := open(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Set(ctx, "before", []byte("b")); err != nil {
		t.Fatal(err)
	}
	came := make(chan error, 1)
	go func() { came <- s.Wait(ctx, "after") }()
	e.Members[0].Kill()
	set := make(chan error, 1)
	go func() { set <- s.Set(ctx, "after", []byte("a")) }()
	for why := ""; !strings.HasPrefix(why, "connection refused"); {
		select {
		case why = <-told:
		case <-ctx.Done():
			t.Fatal("nobody is told that etcd is away")
		}
	}
	e.Members[0].Start()
	for _, done := range []chan error{set, came} {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if v, err := s.MultiGet(ctx, "before", "after"); err != nil || string(v[0])+string(v[1]) != "ba" {
		t.Errorf("%q, %v", v, err)
	}
}

// While etcd cannot be reached, calls wait as long as they may.
func TestServerIsGone(t *testing.T) {
	t.Parallel()
	e := etcdtest.Start(t, 1)
	s := open(t, options(e, "/job/"))
	e.Members[0].Kill()
	for name, call := range map[string]func(ctx context.Context) error{
		"Wait": func(ctx context.Context) error { return s.Wait(ctx, "k") },
		"Set":  func(ctx context.Context) error { return s.Set(ctx, "k", nil) },
		"Add":  func(ctx context.Context) error { _, err := s.Add(ctx, "k", 1); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s = %v", name, err)
		}
		cancel()
	}
}

// Nodes meet in etcd as they do elsewhere.
func TestMeeting(t *testing.T) {
	t.Parallel()
	meet(t, etcdtest.Start(t, 1), "/muster/job7/", 20)
}

// Their cost grows with their number, no faster.
func BenchmarkJoin(b *testing.B) {
	e := etcdtest.Start(b, 1)
	e.Keys() // it answers
	for _, nodes := range []int{2, 32, 100, 400} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				meet(b, e, fmt.Sprintf("/muster/%d of %d/", i, nodes), nodes)
			}
		})
	}
}

// meet makes so many nodes meet, each with a connection of its own.
func meet(t testing.TB, e *etcdtest.Cluster, prefix string, nodes int) {
	t.Helper()
	var all sync.WaitGroup
	for i := range nodes {
		all.Go(func() {
			s := New(options(e, prefix))
			defer s.Close()
			session, err := rendezvous.Join(t.Context(), s, job.Spec{ID: "job7", Terms: job.Terms{Nodes: nodes}, Self: job.Node{
				Name: fmt.Sprint("host", i), Index: i, Slots: 8, Incarnation: fmt.Sprint("life", i)}}, rendezvous.Options{Timeout: time.Minute})
			if err != nil {
				t.Error(err)
				return
			}
			if session.Rank != i || len(session.World.Members) != nodes {
				t.Errorf("node %d has rank %d of %d", i, session.Rank, len(session.World.Members))
			}
			session.Close()
		})
	}
	all.Wait()
}

// One member of three may go, whichever this user was connected to.
func TestMemberIsLost(t *testing.T) {
	t.Parallel()
	e := etcdtest.Start(t, 3)
	a, b := open(t, options(e, "/job/")), open(t, options(e, "/job/"))
	if err := a.Set(t.Context(), "before", nil); err != nil {
		t.Fatal(err)
	}
	for i, m := range e.Members {
		key, came := fmt.Sprint("after", i), make(chan error, 1)
		go func() { came <- a.Wait(t.Context(), key) }()
		m.Kill()
		if err := errors.Join(b.Set(t.Context(), key, nil), <-came); err != nil {
			t.Fatal(err)
		}
		m.Start()
		if all, err := a.Check(t.Context(), "before", key); !all || err != nil {
			t.Errorf("%v, %v", all, err)
		}
	}
}

// Without two of three members no change is possible. Who makes one that is no good twice learns when they are back that it may
// have been made.
func TestMostMembersAreLost(t *testing.T) {
	t.Parallel()
	e := etcdtest.Start(t, 3)
	s := open(t, options(e, "/job/"))
	if _, err := s.Add(t.Context(), "n", 1); err != nil {
		t.Fatal(err)
	}
	e.Members[0].Kill()
	e.Members[1].Kill()
	added := make(chan error, 1)
	go func() { _, err := s.Add(t.Context(), "n", 1); added <- err }()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := s.Get(ctx, "n"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Get = %v", err)
	}
	e.Members[0].Start()
	e.Members[1].Start()
	if err := <-added; err != nil && !errors.Is(err, store.ErrUncertain) {
		t.Error(err)
	}
	if n, err := s.Add(t.Context(), "n", 1); err != nil || n < 2 || n > 3 {
		t.Errorf("counted to %d, %v", n, err)
	}
}

// What is wrong is told in few words.
func TestRefused(t *testing.T) {
	t.Parallel()
	open, locked := etcdtest.Start(t, 1), etcdtest.Start(t, 1)
	locked.Lock("secret", "guest")
	private, certs := etcdtest.StartTLS(t)
	private.Keys() // it answers
	_, others := etcdtest.StartTLS(t)
	for _, c := range []struct {
		name    string
		at      *etcdtest.Cluster
		tls     [3]string // authorities, certificate, key; "": none
		user    [2]string
		why     string // "": it lets us in
		waiting string // or what is told meanwhile
	}{
		{name: "open", at: open},
		{name: "open, with a password", at: open, user: [2]string{"root", "secret"}},
		{name: "password", at: locked, user: [2]string{"root", "secret"}},
		{name: "wrong password", at: locked, user: [2]string{"root", "guess"}, why: "etcd: log in as root: etcdserver: authentication failed, invalid user ID or password"},
		{name: "no password", at: locked, why: "etcd: etcdserver: user name is empty"},
		{name: "no password for a user", at: locked, user: [2]string{"root", ""}, why: "etcd: no password was given for root: etcdserver: user name is empty"},
		{name: "a user without a role", at: locked, user: [2]string{"guest", "secret"}, why: "etcd: guest may not read and write the keys below /job/: etcdserver: permission denied"},
		{name: "TLS", at: private, tls: [3]string{certs.CA, certs.Cert, certs.Key}},
		{name: "another authority", at: private, tls: [3]string{others.CA, certs.Cert, certs.Key}, why: "x509: certificate signed by unknown authority"},
		{name: "no certificate", at: private, tls: [3]string{certs.CA}, why: "tls: bad certificate (does it ask for a certificate of this node's?)"},
		{name: "another authority's certificate", at: private, tls: [3]string{certs.CA, others.Cert, others.Key}, why: "tls: bad certificate (does it trust the authority of this node's certificate?)"},
		{name: "a certificate that ran out", at: private, tls: [3]string{certs.CA, certs.OldCert, certs.OldKey}, why: "tls: bad certificate (the certificate in " + certs.OldCert + " ran out at 20"},
		{name: "no TLS", at: private, waiting: "(does it ask for TLS? is it an etcd?)"},
		{name: "TLS for nobody", at: open, tls: [3]string{certs.CA}, waiting: "(does it speak TLS?)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			o := options(c.at, "/job/")
			o.User, o.Password = c.user[0], c.user[1]
			var told string
			o.Waiting = func(because string) {
				if told = because; c.waiting != "" {
					cancel()
				}
			}
			if c.tls[0] != "" {
				o.TLS = &Files{c.tls[0], c.tls[1], c.tls[2]}
			}
			s := New(o)
			defer s.Close()
			err := s.Set(ctx, "k", nil)
			switch {
			case c.waiting != "" && !strings.Contains(told, c.waiting):
				t.Errorf("told %q, want %q", told, c.waiting)
			case c.waiting == "" && c.why == "" && err != nil:
				t.Error(err)
			case c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)):
				t.Errorf("%v (told %q), want %q", err, told, c.why)
			}
		})
	}
}

// One of several members that is not trusted is named, and ends nothing where another one, which is away, may be.
func TestNotAllAreTrusted(t *testing.T) {
	t.Parallel()
	private, certs := etcdtest.StartTLS(t)
	private.Keys() // it answers
	others, _ := etcdtest.StartTLS(t)
	private.Members[0].Kill()
	wrong, told := others.Endpoints()[0], make(chan string, 1000)
	o := options(private, "/job/")
	o.TLS = &Files{certs.CA, certs.Cert, certs.Key}
	o.Endpoints = []string{wrong, private.Endpoints()[0]}
	o.Waiting = func(because string) { told <- because }
	s := New(o)
	defer s.Close()
	ended := make(chan error, 1)
	go func() { ended <- s.Set(t.Context(), "k", nil) }()
	for named := false; !named; {
		select {
		case because := <-told:
			named = strings.HasPrefix(because, wrong+": ") && strings.Contains(because, "x509: certificate signed by unknown authority")
		case <-time.After(patience):
			t.Fatal("the member is not named")
		case err := <-ended:
			t.Fatal(err)
		}
	}
	private.Members[0].Start()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	wrong = "https://" + wrong
	o.Endpoints = []string{wrong, wrong}
	none := New(o)
	defer none.Close()
	if err := none.Set(t.Context(), "k", nil); err == nil || !strings.Contains(err.Error(), "etcd: "+wrong+": ") {
		t.Error(err)
	}
}

// An etcd that stands still lets us in and says nothing, which is no reason to ask for TLS.
func TestMute(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var told []string
	s := New(Options{Endpoints: []string{mute.Addr().String()}, Prefix: "/job/", Waiting: func(because string) {
		told = append(told, because)
		if because == "connected, but no answer" {
			cancel()
		}
	}})
	defer s.Close()
	_ = s.Set(ctx, "k", nil)
	if last := told[len(told)-1]; last != "connected, but no answer" {
		t.Errorf("told %q", told)
	}
}

// An etcd that does not answer to a login, as it is busy with the others' or has no leader, is told of and asked again.
func TestLoginIsSlow(t *testing.T) {
	t.Parallel()
	e := etcdtest.Start(t, 1)
	e.Lock("secret")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var mute atomic.Bool // who comes next is heard by nobody
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			if mute.Swap(true) { // the first connection is for a question without a name
				go func() { _, _ = io.Copy(io.Discard, near); near.Close() }()
				continue
			}
			far, err := net.Dial("tcp", e.Endpoints()[0])
			if err != nil {
				near.Close()
				continue
			}
			go func() { _, _ = io.Copy(far, near); far.Close() }()
			go func() { _, _ = io.Copy(near, far); near.Close() }()
		}
	}()
	told := make(chan string, 1000)
	s := open(t, Options{Endpoints: []string{ln.Addr().String()}, Prefix: "/job/", User: "root", Password: "secret", Waiting: func(because string) {
		told <- because
		mute.Store(false)
	}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Set(ctx, "k", []byte("v")); err != nil {
		t.Error(err)
	}
	var all []string
	for len(told) > 0 {
		all = append(all, <-told)
	}
	if !slices.Contains(all, "log in as root: no answer in 5s") {
		t.Errorf("told %q", all)
	}
}

// listened is a store that an etcd of one member serves, and what it tells from now on.
func listened(t *testing.T) (*etcdtest.Cluster, *Store, <-chan string) {
	t.Helper()
	e, told := etcdtest.Start(t, 1), make(chan string, 100)
	o := options(e, "/job/")
	o.Waiting = func(because string) { told <- because }
	s := open(t, o)
	if err := s.Set(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	for len(told) > 0 { // while it started
		<-told
	}
	return e, s, told
}

// One that stands still when it was reached is told of in the same words.
func TestStandsStill(t *testing.T) {
	t.Parallel()
	e, s, told := listened(t)
	e.Members[0].Stop()
	ended := make(chan error, 1)
	go func() { _, err := s.Add(t.Context(), "n", 1); ended <- err }()
	for range 2 { // again when the connection was given up
		select {
		case because := <-told:
			if because != noAnswer {
				t.Errorf("told %q", because)
			}
		case <-time.After(patience):
			t.Fatal("nobody is told")
		}
	}
	e.Members[0].Continue()
	if err := <-ended; err != nil && !errors.Is(err, store.ErrUncertain) {
		t.Error(err)
	}
}

// So is one for whose answer somebody waits already who enters anew, as where the lease could not be renewed.
func TestStandsStillAsOneEnters(t *testing.T) {
	t.Parallel()
	e, s, told := listened(t)
	if err := s.lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.unlock()
	e.Members[0].Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 2*(quietTime+tryTime))
	defer cancel()
	if _, err := s.Check(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if len(told) == 0 {
		t.Error("nobody is told")
	}
}

// So is one of whose answer nothing comes before the wait for others begins, or when it is asked what became of a change.
func TestStandsStillAsOthersAreAwaited(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(context.Context, *Store){
		"what is there":  func(ctx context.Context, s *Store) { _, _, _ = s.look(ctx, []string{"k"}) },
		"what comes":     func(ctx context.Context, s *Store) { _ = s.await(ctx, []string{"k"}, 1) },
		"whether it was": func(ctx context.Context, s *Store) { s.settle(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, s, told := listened(t)
			e.Members[0].Stop()
			ctx, cancel := context.WithTimeout(t.Context(), 2*(quietTime+tryTime))
			defer cancel()
			go func() { defer cancel(); ask(ctx, s) }()
			select {
			case because := <-told:
				if because != noAnswer {
					t.Errorf("told %q", because)
				}
			case <-ctx.Done():
				t.Error("nobody is told")
			}
		})
	}
}

// What gRPC says of connections is told in the words for other stores'.
func TestBecause(t *testing.T) {
	for text, want := range map[string]string{
		"error reading from server: EOF": "connection closed",
		"error reading from server: read tcp 127.0.0.1:1->127.0.0.1:2: use of closed network connection":                                 noAnswer,
		"error reading from server: read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer":                                   "connection reset by peer",
		"keepalive ping failed to receive ACK within timeout":                                                                            noAnswer,
		`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:2: connect: connection refused"`:                   "connection refused",
		`last connection error: connection error: desc = "error reading server preface: read tcp 127.0.0.1:1->127.0.0.1:2: i/o timeout"`: noAnswer,
		`connection error: desc = "keepalive ping failed to receive ACK within timeout"`:                                                 noAnswer,
		"etcdserver: leader changed": "etcdserver: leader changed",
	} {
		if got := because(status.Error(codes.Unavailable, text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Unknown} { // the server may see a time pass first
		if got := because(status.Error(code, "context deadline exceeded")); got != "no answer in 2s" {
			t.Errorf("%v: %q", code, got)
		}
	}
}

// Of a server that is gone is told that, however long a call goes on.
func TestIsGoneForLong(t *testing.T) {
	t.Parallel()
	e, told := etcdtest.Start(t, 1), make(chan string, 1000)
	o := options(e, "/job/")
	o.Waiting = func(because string) { told <- because }
	s := open(t, o)
	if err := s.Set(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	e.Members[0].Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 2*(quietTime+tryTime))
	defer cancel()
	if _, err := s.Check(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	for len(told) > 0 {
		if because := <-told; because == noAnswer {
			t.Errorf("told %q", because)
		}
	}
}

// Half of a pair is none.
func TestHalfOfAPair(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ authorities, cert, key, want string }{
		{"/no/such", "", "", "authorities: open /no/such: no such file or directory"},
		{"", "/tls.crt", "", `certificate "/tls.crt" without its key`},
		{"", "", "/tls.key", `key "/tls.key" without its certificate`},
	} {
		if _, err := (Files{c.authorities, c.cert, c.key}).Config(); err == nil || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// A full etcd is waited for as one that is away is: whoever keeps it is told what to do.
func TestWaitsForRoom(t *testing.T) {
	t.Parallel()
	e := etcdtest.StartOn(t, "127.0.0.1", "env", "ETCD_QUOTA_BACKEND_BYTES=1000000")
	full := make(chan string, 1000)
	o := options(e, "/p/")
	o.Waiting = func(because string) { full <- because }
	s := open(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	filling, enough := context.WithCancel(ctx)
	defer enough()
	go func() {
		for why := range full {
			if strings.HasPrefix(why, "its database is full; etcdctl") {
				enough()
				return
			}
		}
	}()
	for i := 0; filling.Err() == nil; i++ {
		if err := s.Set(filling, fmt.Sprint("big", i), make([]byte, 200<<10)); err != nil && filling.Err() == nil {
			t.Fatal(err)
		}
	}
	if ctx.Err() != nil {
		t.Fatal("it does not become full")
	}
	done := make(chan error, 1)
	go func() { done <- s.Set(ctx, "key", []byte("value")) }()
	keys, err := s.ListKeys(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys { // which needs no room
		if _, err := s.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-done:
		t.Fatalf("it was set before there was room: %v", err)
	default:
	}
	for set := false; !set; {
		e.MakeRoom()
		select {
		case err := <-done:
			if set = true; err != nil {
				t.Fatal(err)
			}
		case <-time.After(time.Second):
		}
	}
	if got, err := s.Get(ctx, "key"); err != nil || string(got) != "value" {
		t.Errorf("%q, %v", got, err)
	}
}

// Certificates are replaced while a job runs: each connection shows the one that is there by then, and who takes over waits for one.
func TestCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	e, certs := etcdtest.StartTLS(t)
	dir := t.TempDir()
	files := Files{certs.CA, filepath.Join(dir, "cert"), filepath.Join(dir, "key")}
	put := func(cert, key string) {
		for to, from := range map[string]string{files.Cert: cert, files.Key: key} {
			b, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(to, b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	told := make(chan string, 1000)
	hears := func(words ...string) {
		t.Helper()
		for late := time.After(patience); ; {
			select {
			case text := <-told:
				if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) }) {
					return
				}
			case <-late:
				t.Fatalf("%q is not told", words)
			}
		}
	}
	o := options(e, "/p/")
	o.TLS, o.Again, o.Waiting = &files, true, func(because string) { told <- because }
	s := open(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done := make(chan error, 1)
	set := func() { done <- s.Set(ctx, "k", nil) }
	go set()
	hears("no such file")
	for range 2 {
		put(certs.Cert, certs.Key)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		put(certs.OldCert, certs.OldKey)
		e.Members[0].Kill()
		e.Members[0].Start()
		go set()
		hears("tls: bad certificate", "broken pipe", "reset by peer", "connection closed") // it hangs up when it has looked at ours
	}
	put(certs.Cert, certs.Key)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
