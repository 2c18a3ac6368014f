package discovery

import "testing"

// Jobs of one name in two namespaces are two, wherever the namespace is told; names that are whole, and those of machines, need none.
func TestNamespace(t *testing.T) {
	pod := map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "MASTER_ADDR": "sdxl-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": "2", "RANK": "1"}
	with := func(environ map[string]string, more ...string) map[string]string {
		all := map[string]string{}
		for name, value := range environ {
			all[name] = value
		}
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	for _, c := range []struct {
		name           string
		environ, files map[string]string
		want           string
	}{
		{"by the account's file", pod, map[string]string{namespaceFile: "team-a\n", resolverFile: "search b.svc.cluster.local\n"}, "team-a"},
		{"by where names are looked up", pod, map[string]string{resolverFile: "nameserver 10.0.0.2\nsearch team-a.svc.cluster.local svc.cluster.local cluster.local\n"}, "team-a"},
		{"behind a node's own domain", pod, map[string]string{resolverFile: "search corp.example team-a.svc.k8s svc.k8s\n"}, "team-a"},
		{"not in a namespace's", pod, map[string]string{resolverFile: "search svc.cluster.local corp.example\n"}, ""},
		{"no name", pod, map[string]string{namespaceFile: "a b"}, ""},
		{"nowhere", pod, nil, ""},
		{"an address", with(pod, "MASTER_ADDR", "10.0.0.7"), map[string]string{namespaceFile: "team-a"}, ""},
		{"by a manifest", with(pod, "MASTER_ADDR", "head"), map[string]string{namespaceFile: "team-a"}, "team-a"},
		{"by a manifest, torchrun's", map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "head"},
			map[string]string{namespaceFile: "team-a"}, "team-a"},
		{"an id of a user's", with(pod, "MASTER_ADDR", "head", "PET_RDZV_ID", "j"), map[string]string{namespaceFile: "team-a"}, ""},
		{"outside of Kubernetes", with(pod, "KUBERNETES_SERVICE_HOST", ""), map[string]string{namespaceFile: "team-a"}, ""},
		{"a whole name", map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "LWS_LEADER_ADDRESS": "llm-0.llm.team-a", "LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1"},
			map[string]string{namespaceFile: "team-a"}, ""},
	} {
		if f := Detect(hostOf("sdxl-worker-0", c.environ, c.files)); f.Namespace != c.want || f.Problem != nil {
			t.Errorf("%s: %q, %v, want %q", c.name, f.Namespace, f.Problem, c.want)
		}
	}
}

// What names a cluster or a list and is empty is told.
func TestEmpty(t *testing.T) {
	for _, name := range []string{"CLUSTER_SPEC", "DLTS_HOSTFILE"} {
		h := hostOf("ann", nil, nil)
		h.Environ = []string{name + "="}
		if f := Detect(h); len(f.Warnings) != 1 || f.Warnings[0].Code != "empty" || f.Nodes != 1 {
			t.Errorf("%s: %v, %v", name, f.Warnings, f.Problem)
		}
	}
}

// An attempt counts where all nodes are told the same one.
func TestAttempt(t *testing.T) {
	jobSet := map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "1", "MUSTER_NNODES": "2"}
	for _, c := range []struct {
		host    string
		environ map[string]string
		more    []string
		attempt int
		by      string
		wrong   bool
	}{
		{"ann", nil, nil, -1, "", false},
		{"llm-node-0-1", jobSet, []string{"MUSTER_ATTEMPT", "3"}, 3, "MUSTER_ATTEMPT", false},
		{"llm-node-0-1", jobSet, []string{"MUSTER_ATTEMPT", ""}, -1, "", false}, // a label that is not there
		{"llm-node-0-1", jobSet, []string{"MUSTER_ATTEMPT", "x"}, -1, "", true},
		{"n1", map[string]string{"BATCH_MAIN_NODE_HOSTNAME": "n0", "BATCH_NODE_COUNT": "2", "BATCH_NODE_INDEX": "1"}, []string{"BATCH_TASK_RETRY_ATTEMPT", "2"}, 2, "", false},
		{"w1", map[string]string{"LEPTON_JOB_TOTAL_WORKERS": "2", "LEPTON_JOB_WORKER_INDEX": "1", "LEPTON_JOB_WORKER_PREFIX": "w"}, []string{"LEPTON_JOB_FAILURE_COUNT", "2"}, 2, "", false},
	} {
		environ := map[string]string{}
		for name, value := range c.environ {
			environ[name] = value
		}
		for i := 0; i < len(c.more); i += 2 {
			environ[c.more[i]] = c.more[i+1]
		}
		if f := Detect(hostOf(c.host, environ, map[string]string{"/etc/hosts": "10.1.0.2\tllm-node-0-1.llm.a.svc.cluster.local\tllm-node-0-1\n"})); f.Attempt != c.attempt || f.AttemptBy != c.by || (f.Problem != nil) != c.wrong {
			t.Errorf("%v: attempt %d by %q, %v", c, f.Attempt, f.AttemptBy, f.Problem)
		}
	}
}
