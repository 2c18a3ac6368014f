package discovery

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
)

// several reports whether a reading is of a job of more than this node, or of one that nobody can read.
func several(f Finding) bool {
	return f.Nodes != 1 || f.Least != 0 || f.Processes > 1 || f.Barred != nil || f.Trouble() != nil
}

// said is all that two nodes with the same evidence must read alike.
func said(h job.Host) string {
	f := Detect(h)
	f.Evidence = slices.Sorted(slices.Values(f.Evidence))
	return fmt.Sprintf("%s %d:%d rank %d prefer %d at %s:%d %q %s %d %s %v", f.Rule, f.Least, f.Nodes, f.Rank, f.Prefer, f.Host, f.Port, f.NProc, f.Role, f.Index, f.JobID, f.Trouble() == nil)
}

// once keeps of each variable what counts, in the order of names.
func once(environ []string) (env []string) {
	last := map[string]string{}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		last[name] = kv
	}
	for _, name := range slices.Sorted(maps.Keys(last)) {
		env = append(env, last[name])
	}
	return env
}

// The order of variables means nothing, and of one that stands twice the last counts.
func TestOrder(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	for _, c := range cases(t) {
		want, env := said(c.host), once(c.env)
		for range 3 {
			random.Shuffle(len(env), func(i, j int) { env[i], env[j] = env[j], env[i] })
			if got := said(c.again(env, c.files)); got != want {
				t.Errorf("%s, seed %d: %s, and with another order of variables %s", c.name, seed, want, got)
			}
		}
		var before []string
		for _, kv := range env {
			name, _, _ := strings.Cut(kv, "=")
			before = append(before, name+"=7")
		}
		if got := said(c.again(append(before, env...), c.files)); got != want {
			t.Errorf("%s: %s, and with other values before %s", c.name, want, got)
		}
	}
}

// A node of several that lost a part of its evidence may be refused, or understood all the same, but never trains alone. What Kubernetes
// itself leaves is no evidence of others.
func TestDropped(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 2))
	for _, c := range cases(t) {
		if !several(Detect(c.host)) {
			continue
		}
		env := once(c.env)
		for i, kv := range env {
			name, _, _ := strings.Cut(kv, "=")
			c.without(t, "without "+name, slices.Delete(slices.Clone(env), i, i+1), c.files)
		}
		for path := range c.files {
			rest := maps.Clone(c.files)
			delete(rest, path)
			c.without(t, "without "+path, env, rest)
		}
		for range 8 {
			some := slices.DeleteFunc(slices.Clone(env), func(string) bool { return random.IntN(3) == 0 })
			_ = said(c.again(some, c.files)) // that it does not crash is all that holds
		}
	}
}

func (c testCase) without(t *testing.T, what string, env []string, files map[string]string) {
	t.Helper()
	h := c.again(env, files)
	if f := Detect(h); !several(f) && c.evident(env, files) {
		t.Errorf("%s, %s: a job of its own (%s by %q)", c.name, what, f.Rule, f.Evidence)
	}
}

// evident reports whether anything is left that only a node of several has.
func (c testCase) evident(env []string, files map[string]string) bool {
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if isLink(value) || slices.ContainsFunc(innocent, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		return true
	}
	for path := range files {
		if strings.HasPrefix(path, "/etc/") || strings.HasPrefix(path, "/t9k") || strings.HasPrefix(path, "/opt/ml") {
			return true
		}
	}
	return false
}

// innocent are variables, by how they begin, that nodes alone have, too.
var innocent = strings.Fields("KUBERNETES_ HOSTNAME PYTHONUNBUFFERED PET_NPROC_PER_NODE TRAINING_JOB_NAME S3_ AWS_ACCESS AWS_SECRET AWS_REGION AWS_ENDPOINT BUCKET_")

// A Service of an unlucky name makes kubelet set variables that look meant for us, before all others.
func TestServiceLinks(t *testing.T) {
	var links []string
	for name := range strings.FieldsSeq("MASTER COORDINATOR PADDLE PADDLE_MASTER PET_MASTER LWS_LEADER MUSTER DMLC_TRACKER JAX_COORDINATOR MLP_WORKER_0 SLURM RANK VC TF_CONFIG MS_SCHED WORLD") {
		links = append(links, name+"_PORT=tcp://10.1.2.3:80", name+"_SERVICE_HOST=10.1.2.3", name+"_SERVICE_PORT=80", name+"_PORT_80_TCP_ADDR=10.1.2.3")
	}
	alone := Pod{Hostname: "nb-0", Env: [][2]string{{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}}}.testCase("a node alone", 2)
	for _, c := range append(cases(t), alone) {
		if want, got := said(c.host), said(c.again(append(slices.Clone(links), c.env...), c.files)); got != want {
			t.Errorf("%s: %s, and with Services of unlucky names %s", c.name, want, got)
		}
	}
}

// Two nodes of one job never have the same number, and all know of the same job.
func TestPodsAgree(t *testing.T) {
	jobs := map[string][]testCase{}
	for _, c := range byOperators(t) {
		name, _, _ := strings.Cut(c.name, "/")
		jobs[name] = append(jobs[name], c)
	}
	for name, pods := range jobs {
		ranks, sizes, ids := map[string]string{}, map[string]int{}, map[string]string{}
		for _, c := range pods {
			files := maps.Clone(c.files)
			if files == nil {
				files = map[string]string{}
			}
			files[namespaceFile] = "llm"
			f := Detect(c.again(c.env, files))
			if f.Trouble() != nil || f.Barred != nil || f.Nodes == 0 {
				continue
			}
			group := fmt.Sprint(f.Group)
			id := fmt.Sprintf("%s of %q", f.JobID, f.Namespace)
			if other, ok := ids[group]; ok && other != id {
				t.Errorf("%s: job %s, and another of its pods %s", c.name, id, other)
			}
			ids[group] = id
			if n, ok := sizes[group]; ok && n != f.Nodes {
				t.Errorf("%s: %d and %d nodes", c.name, n, f.Nodes)
			}
			sizes[group] = f.Nodes
			key := fmt.Sprintf("%s/%d/%d", group, f.Rank, f.Prefer)
			if other, ok := ranks[key]; ok && (f.Rank >= 0 || f.Prefer >= 0) && f.Nodes > 1 {
				t.Errorf("%s: %s and %s are both node %d (%d)", name, other, c.name, f.Rank, f.Prefer)
			}
			ranks[key] = c.name
		}
	}
}
