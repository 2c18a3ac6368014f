package cluster

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// An operator is deployed by the manifests that its module has.
type operator struct {
	part, module, manifests string
	images                  map[string]string // what the manifests call them, and the program that each holds
	flag                    string            // more than the manifests give the program
	without                 *regexp.Regexp    // documents that are left out
	namespace               string
	deployments             []string
}

var operators = []operator{
	{
		part: "training-operator", module: "github.com/kubeflow/training-operator", manifests: "manifests/overlays/standalone",
		flag:   "--pytorch-init-container-image=" + registry + "train:1", // Alpine's image is not to be had here
		images: map[string]string{"kubeflow/training-operator": "training-operator"}, namespace: "kubeflow", deployments: []string{"training-operator"},
	},
	{
		part: "lws", module: "sigs.k8s.io/lws", manifests: "config/default",
		images: map[string]string{"lws/lws": "lws"}, namespace: "lws-system", deployments: []string{"lws-controller-manager"},
	},
	{ // its admission has a script with openssl and kubectl make certificates, and does nothing for jobs that are others' than Volcano's
		part: "volcano", module: "volcano.sh/volcano", manifests: "installer/volcano-development.yaml",
		images:    map[string]string{"volcanosh/vc-scheduler": "vc-scheduler", "volcanosh/vc-controller-manager": "vc-controller-manager"},
		without:   regexp.MustCompile(`(?m)^  name: volcano-admission`),
		namespace: "volcano-system", deployments: []string{"volcano-scheduler", "volcano-controllers"},
	},
}

// entrypoints are how the manifests, or where they say nothing of it their images, call the programs.
var entrypoints = map[string]string{"training-operator": "/manager", "lws": "/manager", "vc-scheduler": "/vc-scheduler", "vc-controller-manager": "/vc-controller-manager"}

// text is all that is applied, with images that lie on the nodes.
func (o operator) text(c *cluster) string {
	c.t.Helper()
	path := filepath.Join(source(c.t, o.part, o.module), o.manifests)
	text := ""
	if strings.HasSuffix(path, ".yaml") {
		text = c.read(path)
	} else {
		text = c.must("kustomize", "--load-restrictor", "LoadRestrictionsNone", path)
	}
	for name, program := range o.images {
		image := regexp.MustCompile(`(?m)^(\s+image:) \S*` + regexp.QuoteMeta(name) + `:\S+$`)
		if !image.MatchString(text) {
			c.t.Fatalf("%s has no image of %s", path, name)
		}
		text = image.ReplaceAllString(text, "$1 "+registry+program+":1")
	}
	if o.flag != "" {
		text = regexp.MustCompile(`(?m)^(\s+- )/manager$`).ReplaceAllString(text, "$0\n${1}"+o.flag)
	}
	var kept []string
	for _, document := range strings.Split(text, "\n---\n") {
		if o.without == nil || !o.without.MatchString(document) {
			kept = append(kept, document)
		}
	}
	return strings.ReplaceAll(strings.Join(kept, "\n---\n"), "imagePullPolicy: Always", "imagePullPolicy: IfNotPresent")
}

// ready waits for the nodes, gives them hardware to count, and deploys the operators.
func (c *cluster) ready() {
	c.t.Helper()
	for _, m := range c.nodes {
		c.must("wait", "--for=create", "node/"+m.Name, c.within())
		c.must("wait", "--for=condition=Ready", "node/"+m.Name, c.within())
		c.must("patch", "node", m.Name, "--subresource=status", "--type=merge", "-p", `{"status": {"capacity": {"nvidia.com/gpu": "32", "baidu.com/a800_80g_cgpu": "8", "rdma/hca": "8"}}}`)
		c.must("wait", `--for=jsonpath={.status.allocatable.rdma/hca}=8`, "node/"+m.Name, c.within())
	}
	for _, o := range operators {
		c.apply(o.text(c))
	}
	for _, o := range operators {
		for _, name := range o.deployments {
			c.must("-n", o.namespace, "rollout", "status", "deployment/"+name, c.within())
		}
	}
}

func (c *cluster) within() string { return fmt.Sprintf("--timeout=%s", patience) }
