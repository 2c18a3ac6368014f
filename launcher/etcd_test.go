package launcher

import (
	"context"
	"fmt"
	"testing"

	"github.com/muster-run/muster/job"
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
