package launcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/store"
)

// Flags win over etcdctl's variables, and a password may stand with its user, as for etcdctl.
func TestEtcdAccess(t *testing.T) {
	vars := "ETCDCTL_CACERT=/ca ETCDCTL_CERT=/cert ETCDCTL_KEY=/key ETCDCTL_USER=ann ETCDCTL_PASSWORD=secret"
	for _, c := range []struct {
		env   string
		flags Etcd
		want  string
	}{
		{"", Etcd{}, "{false      /muster}"},
		{vars, Etcd{}, "{false /ca /cert /key ann secret /muster}"},
		{vars, Etcd{CACert: "/mine", User: "bob:b:b", Prefix: "/team/"}, "{false /mine /cert /key bob b:b /team}"},
		{"ETCDCTL_USER=ann:pw", Etcd{}, "{false    ann pw /muster}"},
	} {
		got := fmt.Sprint(config(t, c.env, func(conf *Config) { conf.Etcd = c.flags }).etcd())
		if got != c.want {
			t.Errorf("%s %+v: %s, want %s", c.env, c.flags, got, c.want)
		}
	}
}

// Members of an etcd that are away for several reasons are told of as one that is away for one.
func TestEtcdAwayIsNoFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(said, 100)
		m := &meeting{port: "h0:1,h1:1", end: time.Now().Add(time.Hour)}
		m.c.Log = slog.New(slog.NewTextHandler(told, nil))
		m.c.OpenEtcd = func(e EtcdJob) (store.Store, error) { return &refusing{waiting: e.Waiting}, nil }
		if err := m.openEtcd(t.Context(), []string{"h0:1", "h1:1"}); ExitCode(err) != job.ExitStore || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("it ends with %v", err)
		}
		if len(told) != 4 { // after 1 s, 3, 7, 15
			t.Errorf("%d lines in 20 s", len(told))
		}
	})
}

// A refusing etcd has one member that is away for this reason and one for that, and then denies all.
type refusing struct {
	store.Memory
	waiting func(because string)
}

func (r *refusing) Set(context.Context, string, []byte) error {
	for range 10 {
		for _, because := range []string{"connection refused", "certificate signed by unknown authority"} {
			r.waiting(because)
			time.Sleep(time.Second)
		}
	}
	return errors.New("permission denied")
}

// Who is not let in any more, after a world, asks again until it is too late, without a flood of lines, and ends with what it heard last.
func TestEtcdRefusesToTheEnd(t *testing.T) {
	refused := "etcd at h0:1: log in as job: invalid user ID or password; --etcd-cacert, --etcd-cert, --etcd-key and --etcd-user say"
	for _, c := range []struct {
		refuses int
		away    string
		want    string
	}{
		{100, "", refused},
		{40, "", refused},
		{40, "connection refused", "no etcd at h0:1 within 1m0s: connection refused; does it run"},
	} {
		synctest.Test(t, func(t *testing.T) {
			told := make(said, 100)
			m := &meeting{port: "h0:1", plan: Plan{Endpoint: "h0:1", Etcd: []string{"h0:1"}}, end: time.Now().Add(time.Minute), anew: true}
			m.c.Log, m.c.RejoinTimeout = slog.New(slog.NewTextHandler(told, nil)), time.Minute
			m.c.OpenEtcd = func(e EtcdJob) (store.Store, error) {
				return &changed{refuses: c.refuses, away: c.away, waiting: e.Waiting}, nil
			}
			_, err := m.world(t.Context(), rendezvous.Options{}, nil)
			if ExitCode(err) != job.ExitRetry || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("it ends with %v", err)
			}
			if len(told) > 7 { // after 1 s, 3, 7, 15, 31, and where the reason is another one
				t.Errorf("%d lines in a minute", len(told))
			}
		})
	}
}

// A changed etcd has another password now. After so many tries it has no answer, or is away.
type changed struct {
	store.Memory
	refuses int
	away    string
	waiting func(because string)
}

func (c *changed) Set(ctx context.Context, _ string, _ []byte) error {
	if c.refuses--; c.refuses >= 0 {
		return errors.New("log in as job: invalid user ID or password")
	}
	if c.away != "" {
		c.waiting(c.away)
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestFarthest(t *testing.T) {
	for _, c := range []struct {
		members []string
		want    string
	}{
		{[]string{"127.0.0.1:1", "localhost:2"}, "127.0.0.1"},
		{[]string{"127.0.0.1:1", "https://h:2", "i:3"}, "h"},
		{[]string{"[::1]:1", "[fd00::1]:2"}, "fd00::1"},
	} {
		if got := farthest(c.members); got != c.want {
			t.Errorf("%q: %s, want %s", c.members, got, c.want)
		}
	}
}

func TestFirst(t *testing.T) {
	hosts := []job.Addr{"a", "b", "c"}
	for one, want := range map[job.Addr]string{"": "[a b c]", "x": "[a b c]", "a": "[a b c]", "b": "[b a c]", "c": "[c a b]"} {
		if got := fmt.Sprint(first(hosts, one)); got != want {
			t.Errorf("%s: %s, want %s", one, got, want)
		}
	}
	if got := facing(context.Background(), []string{"127.0.0.1:2379"}); got != "" {
		t.Errorf("facing this machine itself: %s", got)
	}
}
