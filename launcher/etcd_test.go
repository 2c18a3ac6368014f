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
