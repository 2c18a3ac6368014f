package platforms

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/muster-run/muster/discovery"
)

// Of the jobs that real operators were given the models make what the operators made: the same names, variables and files.
func TestModels(t *testing.T) {
	for pattern, kind := range map[string]string{
		"training-operator-v1.9.0-pytorchjob-*.json": "kubeflow.org/v1 PyTorchJob",
		"training-operator-v1.9.0-tfjob-[^d]*.json":  "kubeflow.org/v1 TFJob",
		"training-operator-v1.9.0-paddlejob-*.json":  "kubeflow.org/v1 PaddleJob",
		"volcano-v1.14.4-*.json":                     "batch.volcano.sh/v1alpha1 Job",
		"paddle-operator-v0.3.5-*.json":              "batch.paddlepaddle.org/v1 PaddleJob",
		"lws-v0.10.0-*.json":                         "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet",
		"trainer-v2.3.0-trainjob-[jt]*.json":         "trainer.kubeflow.org/v1alpha1 TrainJob",
		"mpi-operator-v0.8.0-openmpi.json":           "kubeflow.org/v2beta1 MPIJob",
		"kubernetes-v1.34.1-indexed-job-*.json":      "batch/v1 Job",
		"kubernetes-v1.34.1-statefulset-*.json":      "apps/v1 StatefulSet",
	} {
		files, err := filepath.Glob(filepath.Join("../../discovery/testdata/platforms", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no fixtures, %v", pattern, err)
		}
		for _, file := range files {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) { compare(t, file, kind) })
		}
	}
}

func compare(t *testing.T, file, kind string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := discovery.ParseFixture(text)
	if err != nil {
		t.Fatal(err)
	}
	made := job(t, text, kind, f)
	if len(made) != len(f.Pods) {
		t.Errorf("%d pods, the operator made %d", len(made), len(f.Pods))
	}
	for _, p := range made {
		real := find(f.Pods, p.Name)
		if real == nil {
			t.Errorf("the operator made no %s", p.Name)
			continue
		}
		if got, want := [4]any{p.Hostname, p.Subdomain, p.HostNetwork, p.IP}, [4]any{real.Hostname, real.Subdomain, real.HostNetwork, real.IP}; got != want {
			t.Errorf("%s: %v, the operator has %v", p.Name, got, want)
		}
		same(t, p.Name, variables(p.Env), variables(real.Env))
		same(t, p.Name, p.Files, real.Files)
	}
}

// job makes the pods of a fixture's job, in a cluster that is as that one was.
func job(t *testing.T, text []byte, kind string, f discovery.Fixture) []*pod {
	var written struct{ Job string }
	var given struct {
		Name string
		Spec yaml.Node
	}
	if err := json.Unmarshal(text, &written); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(written.Job), &given); err != nil {
		t.Fatal(err)
	}
	first := f.Pods[0]
	m := manifest{Spec: given.Spec}
	m.APIVersion, m.Kind, _ = strings.Cut(kind, " ")
	m.Metadata.Name = given.Name
	if m.Metadata.Name == "" {
		m.Metadata.Name = jobOf(first)
	}
	c := &cluster{namespace: first.Namespace, node: func(nth int) string { return "" }}
	for _, v := range first.Env {
		if v[0] == "PADDLE_PORT" {
			c.port, _ = strconv.Atoi(v[1])
		}
	}
	c.ip = func(pod string, _ int) string {
		if real := find(f.Pods, pod); real != nil {
			return real.IP
		}
		return ""
	}
	m.model(t)(t, c, m)
	for _, p := range c.made {
		if real := find(f.Pods, p.Name); real != nil && p.HostNetwork { // the scheduler's choice
			p.Hostname = real.Hostname
			p.Env = append(p.Env, [2]string{"HOSTNAME", real.Hostname})
		}
	}
	return c.made
}

// jobOf is the job's name as a pod's begins with it.
func jobOf(p discovery.Pod) string {
	for _, role := range []string{"-master-", "-worker-", "-chief-", "-ps-", "-evaluator-", "-launcher", "-node-"} {
		if name, _, ok := strings.Cut(p.Name, role); ok {
			return name
		}
	}
	return strings.TrimRight(p.Hostname, "-0123456789")
}

// find is the pod of that name, or of that name and what a Job adds to it.
func find(pods []discovery.Pod, name string) *discovery.Pod {
	for i, p := range pods {
		if p.Name == name || strings.HasPrefix(p.Name, name+"-") && len(p.Name) == len(name)+6 {
			return &pods[i]
		}
	}
	return nil
}

// variables are all but those of the cluster's own Services; of one that stands twice, both values.
func variables(env [][2]string) map[string]string {
	all := map[string]string{}
	for _, v := range env {
		switch before, twice := all[v[0]]; {
		case strings.HasPrefix(v[0], "KUBERNETES_") || strings.Contains(v[0], "_SERVICE_") || strings.Contains(v[0], "_PORT_"):
		case twice && v[0] != "HOSTNAME":
			all[v[0]] = before + " and " + v[1]
		default:
			all[v[0]] = v[1]
		}
	}
	return all
}

// same holds names and values against those of an operator. What is in its Secrets is nobody's business, and who wrote down
// what Volcano made left out which those are.
func same(t *testing.T, pod string, got, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if value, ok := got[name]; !ok || value != want[name] && !strings.HasPrefix(want[name], "<secret ") {
			t.Errorf("%s: %s is %q (%t), the operator has %q", pod, name, value, ok, want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok && !strings.HasPrefix(name, "/root/.ssh/") {
			t.Errorf("%s: %s is %q, the operator has none", pod, name, got[name])
		}
	}
}
