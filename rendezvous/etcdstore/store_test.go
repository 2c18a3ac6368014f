package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/store"
	"github.com/muster-run/muster/rendezvous/storetest"
)

// An etcd is a real server, which can be killed and started again with what it had.
type etcd struct {
	testing.TB
	endpoint string
	args     []string
	log      *os.File
	cmd      *exec.Cmd
}

func server(t testing.TB) *etcd {
	t.Helper()
	client, peer, dir := freePort(t), freePort(t), t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	e := &etcd{TB: t, endpoint: client, log: log, args: []string{"--data-dir", filepath.Join(dir, "data"),
		"--listen-client-urls", "http://" + client, "--advertise-client-urls", "http://" + client,
		"--listen-peer-urls", "http://" + peer, "--initial-advertise-peer-urls", "http://" + peer, "--initial-cluster", "default=http://" + peer}}
	e.start()
	t.Cleanup(func() {
		e.kill()
		log.Close()
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("etcd: %s", b[max(0, len(b)-4096):])
		}
	})
	return e
}

func (e *etcd) options(prefix string) Options {
	return Options{Endpoints: []string{e.endpoint}, Prefix: prefix}
}

func (e *etcd) start() {
	e.Helper()
	e.cmd = exec.Command("etcd", e.args...)
	e.cmd.Stdout, e.cmd.Stderr = e.log, e.log
	if err := e.cmd.Start(); err != nil {
		e.Fatalf("%v; make prepare installs it", err)
	}
}

func (e *etcd) kill() {
	e.cmd.Process.Kill()
	e.cmd.Wait()
}

func freePort(t testing.TB) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// client is an etcd client of the test's own.
func client(t testing.TB, endpoint string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func open(t testing.TB, o Options) *Store {
	t.Helper()
	s := New(o)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestStore(t *testing.T) {
	e := server(t)
	var number atomic.Int64
	storetest.Test(t, func(t *testing.T) func() store.Store {
		prefix := fmt.Sprintf("/muster/test%d/", number.Add(1))
		return func() store.Store { return open(t, e.options(prefix)) }
	})
}

// A counter is a number for whoever reads it, and becomes a value like others with the first other change.
func TestCounter(t *testing.T) {
	s, ctx := open(t, server(t).options("/counter/")), t.Context()
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

// keys are all that etcd has.
func (e *etcd) keys() (keys []string) {
	e.Helper()
	r, err := client(e, e.endpoint).Get(e.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		e.Fatal(err)
	}
	for _, kv := range r.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// The last user to go takes all with it.
func TestNothingIsLeft(t *testing.T) {
	e := server(t)
	a, b := open(t, e.options("/job/")), open(t, e.options("/job/"))
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
	if keys := e.keys(); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
}

// Where users were killed, the lease runs out; who comes under the name of one that was killed takes its place.
func TestKilled(t *testing.T) {
	e := server(t)
	for _, name := range []string{"a", "b"} {
		o := e.options("/job/")
		o.Name, o.TTL = name, 2*time.Second
		s := open(t, o)
		if err := s.Set(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
		s.client.Close() // what Close does is not done
	}
	gone := client(t, e.endpoint).Watch(t.Context(), "/job/data/", clientv3.WithPrefix(), clientv3.WithFilterPut())
	o := e.options("/job/")
	o.Name = "a"
	a := open(t, o)
	if err := a.Set(t.Context(), "a again", nil); err != nil {
		t.Fatal(err)
	}
	if all, err := a.Check(t.Context(), "a", "b"); !all || err != nil {
		t.Errorf("before the lease ran out: %v, %v", all, err)
	}
	a.Close()
	for left := 3; left > 0; {
		r, ok := <-gone
		if !ok {
			t.Fatalf("%d keys are left", left)
		}
		left -= len(r.Events)
	}
	if keys := e.keys(); len(keys) > 0 {
		t.Errorf("left: %q", keys)
	}
}

// etcd may go away and come back: who waits goes on waiting, and what can be repeated is.
func TestServerComesBack(t *testing.T) {
	e := server(t)
	s := open(t, e.options("/job/"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Set(ctx, "before", []byte("b")); err != nil {
		t.Fatal(err)
	}
	came := make(chan error, 1)
	go func() { came <- s.Wait(ctx, "after") }()
	e.kill()
	set := make(chan error, 1)
	go func() { set <- s.Set(ctx, "after", []byte("a")) }()
	e.start()
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
	e := server(t)
	s := open(t, e.options("/job/"))
	e.kill()
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

// Nodes meet in etcd as they do elsewhere, and their cost grows with their number.
func TestMeeting(t *testing.T) {
	e := server(t)
	const nodes = 20
	var all sync.WaitGroup
	for i := range nodes {
		s := open(t, e.options("/muster/job7/"))
		all.Go(func() {
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
