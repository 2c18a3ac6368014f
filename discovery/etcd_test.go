package discovery

import (
	"fmt"
	"strings"
	"testing"
)

func TestMembers(t *testing.T) {
	for _, c := range []struct{ in, want, err string }{
		{"etcd://h1:2379,h2:2380", "[h1:2379 h2:2380]", ""},
		{"h1", "[h1:2379]", ""},
		{"H1., h2:7", "[h1:2379 h2:7]", ""},
		{"etcd://[fd00::1]:7,fd00::2", "[[fd00::1]:7 [fd00::2]:2379]", ""},
		{"http://h1:7/,h2", "[h1:7 h2:2379]", ""},
		{"https://h1:7,https://h2/", "[https://h1:7 https://h2:2379]", ""},
		{"https://h1:7,h2", "", "has members with https:// and others without"},
		{"etcd://", "", "names no host"},
		{"h1,,h2", "", "names no host"},
		{"h1:0", "", "has no port from 1 to 65535"},
		{"etcd://h1:2379/a", "", "has no port"},
		{"etcd://u:p@h1:2379", "", "names a user, which --etcd-user says, or ETCDCTL_USER"},
		{"0.0.0.0", "", "means every address"},
	} {
		got, err := Members(c.in)
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v, want %q", c.in, err, c.err)
		case c.err == "" && (err != nil || fmt.Sprint(got) != c.want):
			t.Errorf("%s: %v, %v; want %s", c.in, got, err, c.want)
		}
	}
}

// Where the nodes meet in an etcd there is no host, whatever else a platform left.
func TestDetectEtcd(t *testing.T) {
	for env, want := range map[string]string{
		"PET_NNODES=2 PET_RDZV_ENDPOINT=h1:7,h2 PET_RDZV_BACKEND=etcd PET_RDZV_ID=j": "[h1:7 h2:2379]  2 j",
		"PET_NNODES=2 PET_RDZV_ENDPOINT=h1 PET_RDZV_BACKEND=etcd-v2 MASTER_ADDR=m":   "[h1:2379]  2 ",
		"PET_NNODES=3 PET_RDZV_ENDPOINT=etcd://h1":                                   "[h1:2379]  3 ",
		"PET_NNODES=3 PET_RDZV_ENDPOINT=h1:7 PET_RDZV_BACKEND=c10d":                  "[] h1 3 ",
	} {
		f := Detect(host(strings.Fields(env)...))
		if got := fmt.Sprintf("%v %s %d %s", f.Etcd, f.Host, f.Nodes, f.JobID); got != want || f.Problem != nil {
			t.Errorf("%s: %s, %v; want %s", env, got, f.Problem, want)
		}
	}
}
