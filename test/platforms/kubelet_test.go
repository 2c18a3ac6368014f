package platforms

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/discovery"
)

// A pod is what is made of a manifest, and how it is run.
type pod struct {
	discovery.Pod
	Container  string   `json:"container"`
	Command    []string `json:"command"`
	WorkingDir string   `json:"workingDir,omitempty"`
	Restart    string   `json:"restartPolicy"`

	inits [][]string // command lines of its init containers, whose image is muster's where they name no program
	names []string   // under which DNS has its address, in its namespace
	meta  meta
	bare  bool // this is a host without Kubernetes
}

// A cluster gives to pods what no manifest says.
type cluster struct {
	namespace string
	ip        func(pod string, nth int) string
	node      func(nth int) string // the name of a machine
	port      int                  // that paddle-operator finds by chance

	made []*pod
}

// pod makes one from a template, with what an operator adds to the environment of its containers and to its files.
func (c *cluster) pod(t template, name, restart string, env [][2]string, files map[string]string) *pod {
	nth := len(c.made)
	p := &pod{meta: t.Metadata, Restart: restart}
	p.Name, p.Namespace, p.Subdomain, p.HostNetwork = name, c.namespace, t.Spec.Subdomain, t.Spec.HostNetwork
	p.IP, p.Hostname, p.Files = c.ip(name, nth), name, maps.Clone(files)
	if t.Spec.Hostname != "" {
		p.Hostname = t.Spec.Hostname
	}
	if p.Files == nil {
		p.Files = map[string]string{}
	}
	if p.Subdomain != "" {
		p.names = []string{p.Hostname + "." + p.Subdomain}
	}
	if p.HostNetwork {
		p.Hostname = c.node(nth)
	}
	p.meta.Name = name
	for _, first := range t.Spec.InitContainers {
		if len(first.Command) == 0 {
			first.Command = []string{"muster"}
		}
		p.inits = append(p.inits, slices.Concat(first.Command, first.Args))
	}
	main := t.Spec.Containers[0]
	p.Container, p.WorkingDir = main.Name, main.WorkingDir
	for _, v := range main.Env {
		p.Env = append(p.Env, [2]string{v.Name, p.value(v)})
	}
	p.Env = slices.Concat(p.Env, env, [][2]string{
		{"KUBERNETES_PORT", "tcp://10.96.0.1:443"}, {"KUBERNETES_SERVICE_HOST", "10.96.0.1"}, {"KUBERNETES_SERVICE_PORT", "443"}, {"HOSTNAME", p.Hostname}})
	for _, word := range slices.Concat(main.Command, main.Args) {
		p.Command = append(p.Command, expand(word, p.Env))
	}
	c.made = append(c.made, p)
	return p
}

var (
	reference  = regexp.MustCompile(`\$\(([^)]+)\)`)
	annotation = regexp.MustCompile(`^metadata\.(labels|annotations)\['(.*)'\]$`)
)

// expand puts in for $(NAME) what was said of it before; of what was not it stays.
func expand(text string, env [][2]string) string {
	return reference.ReplaceAllStringFunc(text, func(ref string) string {
		for _, v := range slices.Backward(env) {
			if v[0] == ref[2:len(ref)-1] {
				return v[1]
			}
		}
		return ref
	})
}

// value is what a manifest says of a variable, or what the pod's own fields are that it names.
func (p *pod) value(v variable) string {
	path := v.ValueFrom.FieldRef.FieldPath
	if m := annotation.FindStringSubmatch(path); m != nil {
		return map[string]map[string]string{"labels": p.meta.Labels, "annotations": p.meta.Annotations}[m[1]][m[2]]
	}
	switch path {
	case "":
		return expand(v.Value, p.Env)
	case "metadata.name":
		return p.Name
	case "metadata.namespace":
		return p.Namespace
	case "status.podIP":
		return p.IP
	}
	return "no model of " + path
}

// hosts is the pod's /etc/hosts, as kubelet writes it: on the host's network it begins with another line, and has what the host's has.
func (p *pod) hosts() string {
	names := p.Hostname
	switch {
	case p.bare:
		return fmt.Sprintf("127.0.0.1\tlocalhost\n%s\t%s\n", p.IP, p.Hostname)
	case p.HostNetwork:
		return fmt.Sprintf("# Kubernetes-managed hosts file (host network).\n127.0.0.1\tlocalhost\n%s\t%s\n", p.IP, p.Hostname)
	case p.Subdomain != "":
		names = fmt.Sprintf("%s.%s.%s.svc.cluster.local\t%[1]s", p.Hostname, p.Subdomain, p.Namespace)
	}
	return fmt.Sprintf("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n%s\t%s\n", p.IP, names)
}

// A model makes the pods of an object, as its operator does.
type model func(t testing.TB, c *cluster, m manifest)

// models are all, by kind and the group that has it.
var models = map[string]model{
	"kubeflow.org PyTorchJob":                  pytorchJob,
	"kubeflow.org TFJob":                       tfJob,
	"kubeflow.org PaddleJob":                   kubeflowPaddle,
	"batch.volcano.sh Job":                     volcanoJob,
	"batch.paddlepaddle.org PaddleJob":         paddleJob,
	"leaderworkerset.x-k8s.io LeaderWorkerSet": leaderWorkerSet,
	"jobset.x-k8s.io JobSet":                   jobSet,
	"trainer.kubeflow.org TrainJob":            trainJob,
	"batch Job":                                kubernetesJob,
	"apps StatefulSet":                         statefulSet,
	"kubeflow.org MPIJob":                      mpiJob,
	"batch.tensorstack.dev DeepSpeedJob":       deepSpeedJob,
	"batch.tensorstack.dev GenericJob":         genericJob,
	" Service":                                 func(testing.TB, *cluster, manifest) {}, // without which pods have no names, as their models say
}

// model is the one for an object.
func (m manifest) model(t testing.TB) model {
	t.Helper()
	group, _, ok := strings.Cut(m.APIVersion, "/")
	if !ok {
		group = ""
	}
	found := models[group+" "+m.Kind]
	if found == nil {
		t.Fatalf("there is no model of who makes pods of %s %s", m.APIVersion, m.Kind)
	}
	return found
}
