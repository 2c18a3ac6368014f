package platforms

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"
)

const examples = "../../examples"

// A manifest is one object of Kubernetes.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   meta
	Spec       yaml.Node
}

type meta struct {
	Name, Namespace     string
	Labels, Annotations map[string]string
}

// A template is what a controller makes pods from.
type template struct {
	Metadata meta
	Spec     struct {
		Hostname, Subdomain string
		HostNetwork         bool        `yaml:"hostNetwork"`
		DNSPolicy           string      `yaml:"dnsPolicy"`
		RestartPolicy       string      `yaml:"restartPolicy"`
		InitContainers      []container `yaml:"initContainers"`
		Containers          []container
	}
}

// A container is what of it counts for who runs there.
type container struct {
	Name       string
	Command    []string
	Args       []string
	WorkingDir string `yaml:"workingDir"`
	Env        []variable
	Ports      []port
	Resources  struct {
		Limits map[string]string
	}
}

type port struct {
	Name          string
	ContainerPort int `yaml:"containerPort"`
}

type variable struct {
	Name, Value string
	ValueFrom   struct {
		FieldRef struct {
			FieldPath string `yaml:"fieldPath"`
		} `yaml:"fieldRef"`
	} `yaml:"valueFrom"`
}

// A replicas is a template, and how many pods are made from it.
type replicas struct {
	Replicas      int
	RestartPolicy string `yaml:"restartPolicy"`
	Template      template
}

// read is what the manifests of an example have in them.
func read(t testing.TB, example string) (all []manifest) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(examples, example, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
			var m manifest
			if err := d.Decode(&m); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			all = append(all, m)
		}
	}
	return all
}

// into decodes what a controller reads of its object.
func (m manifest) into(t testing.TB, spec any) {
	t.Helper()
	if err := m.Spec.Decode(spec); err != nil {
		t.Fatalf("%s %s: %v", m.Kind, m.Metadata.Name, err)
	}
}

// ports are what the first container declares; a role that there is not has none.
func (t template) ports() []port {
	if len(t.Spec.Containers) == 0 {
		return nil
	}
	return t.Spec.Containers[0].Ports
}
