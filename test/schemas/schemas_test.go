package schemas

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// published is where operators keep the schemas of their kinds, which the Go proxy has with their source.
var published = map[string]struct{ module, file string }{
	"kubeflow.org/v1 PyTorchJob":                  {"github.com/kubeflow/training-operator@v1.9.0", "manifests/base/crds/kubeflow.org_pytorchjobs.yaml"},
	"kubeflow.org/v1 TFJob":                       {"github.com/kubeflow/training-operator@v1.9.0", "manifests/base/crds/kubeflow.org_tfjobs.yaml"},
	"kubeflow.org/v1 PaddleJob":                   {"github.com/kubeflow/training-operator@v1.9.0", "manifests/base/crds/kubeflow.org_paddlejobs.yaml"},
	"kubeflow.org/v2beta1 MPIJob":                 {"github.com/kubeflow/mpi-operator@v0.6.0", "manifests/base/kubeflow.org_mpijobs.yaml"},
	"trainer.kubeflow.org/v1alpha1 TrainJob":      {"github.com/kubeflow/trainer/v2@v2.0.0", "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml"},
	"batch.volcano.sh/v1alpha1 Job":               {"volcano.sh/volcano@v1.10.0", "config/crd/volcano/bases/batch.volcano.sh_jobs.yaml"},
	"jobset.x-k8s.io/v1alpha2 JobSet":             {"sigs.k8s.io/jobset@v0.10.1", "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"},
	"leaderworkerset.x-k8s.io/v1 LeaderWorkerSet": {"sigs.k8s.io/lws@v0.7.0", "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml"},
	"monitoring.coreos.com/v1 PodMonitor":         {"github.com/prometheus-operator/prometheus-operator@v0.86.1", "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml"},
}

// sums are of modules that not every mirror of the checksum database knows.
var sums = map[string]string{"github.com/prometheus-operator/prometheus-operator@v0.86.1": "h1:pHUuiRErcFb3nFDox7RxoxpEN0FyT24GtYOkr2GBu04="}

// builtin are Kubernetes' own kinds, by the types that its API server reads them into.
var builtin = map[string]func() any{
	"v1 Service":          func() any { return new(corev1.Service) },
	"batch/v1 Job":        func() any { return new(batchv1.Job) },
	"apps/v1 StatefulSet": func() any { return new(appsv1.StatefulSet) },

	"networking.k8s.io/v1 NetworkPolicy": func() any { return new(networkingv1.NetworkPolicy) },
}

// fenced are the blocks of YAML in a page.
var fenced = regexp.MustCompile("(?ms)^```yaml\\n(.*?)^```$")

// The objects that the pages show, as opposed to parts of some, are as good as those of the examples.
func TestPages(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range fenced.FindAllSubmatch(text, -1) {
			if !bytes.HasPrefix(m[1], []byte("apiVersion:")) {
				continue
			}
			for _, object := range objects(t, m[1]) {
				found++
				for _, wrong := range check(t, object) {
					t.Errorf("%s: %v", file, wrong)
				}
			}
		}
	}
	if found == 0 {
		t.Error("no object is found in docs")
	}
}

func TestManifests(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests, %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, object := range objects(t, text) {
				for _, wrong := range check(t, object) {
					t.Errorf("%s: %v", file, wrong)
				}
			}
		})
	}
}

// A manifest that is wrong is found to be: the schemas are there, and are looked at.
func TestWrong(t *testing.T) {
	text, err := os.ReadFile("../../examples/pytorchjob-volcano/job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{"cleanPodPolicy", "cleanUpPolicy", "spec.runPolicy.cleanUpPolicy: unknown"},
		{"restartPolicy: Never", "restartPolicy: 7", "restartPolicy"},
		{"replicas: 3", "replicas: three", "replicas"},
		{"hostNetwork", "hostnetwork", "hostnetwork: unknown"},
	} {
		var all []string
		for _, object := range objects(t, bytes.Replace(text, []byte(c.from), []byte(c.to), 1)) {
			for _, wrong := range check(t, object) {
				all = append(all, wrong.Error())
			}
		}
		if !strings.Contains(strings.Join(all, "\n"), c.want) {
			t.Errorf("%s instead of %s: %q", c.to, c.from, all)
		}
	}
}

// objects are those of a file, whose aliases stand for what they name, as JSON has it.
func objects(t *testing.T, text []byte) (all []map[string]any) {
	t.Helper()
	for d := yamlv3.NewDecoder(bytes.NewReader(text)); ; {
		var whole any
		if err := d.Decode(&whole); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		plain, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := json.Unmarshal(plain, &object); err != nil {
			t.Fatal(err)
		}
		all = append(all, object)
	}
}

// check is what an API server would have against an object.
func check(t *testing.T, object map[string]any) []error {
	t.Helper()
	kind, _ := object["apiVersion"].(string)
	version := kind[strings.Index(kind, "/")+1:]
	kind += " " + object["kind"].(string)
	if made := builtin[kind]; made != nil {
		return strict(object, made())
	}
	if made := described[kind]; made != nil {
		return strict(object, made())
	}
	at, ok := published[kind]
	if !ok {
		return []error{errors.New(kind + " is not a kind that is known")}
	}
	return against(t, crd(t, at.module, at.file), version, object)
}

// strict reads an object into its type, which must have all its fields.
func strict(object, into any) []error {
	text, err := json.Marshal(object)
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// crd is the definition of a kind, from the source of its operator.
func crd(t *testing.T, module, file string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	c := exec.Command("go", "mod", "download", "-json", module)
	sum := sums[module]
	if sum != "" {
		c.Env = append(os.Environ(), "GOSUMDB=off")
	}
	out, err := c.Output()
	var where struct{ Dir, Error, Sum string }
	if bad := json.Unmarshal(out, &where); bad != nil || where.Error != "" || sum != "" && sum != where.Sum {
		t.Fatalf("go mod download %s: %v %v %s; its sum is %s", module, err, bad, where.Error, where.Sum)
	}
	text, err := os.ReadFile(filepath.Join(where.Dir, file))
	if err != nil {
		t.Fatal(err)
	}
	d := new(apiextensionsv1.CustomResourceDefinition)
	if err := yaml.Unmarshal(text, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// against is what is wrong with an object by its definition: fields that it does not have, values, and rules in CEL.
func against(t *testing.T, d *apiextensionsv1.CustomResourceDefinition, version string, object map[string]any) (wrong []error) {
	t.Helper()
	for _, v := range d.Spec.Versions {
		if v.Name != version {
			continue
		}
		props := new(apiextensions.JSONSchemaProps)
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, props, nil); err != nil {
			t.Fatal(err)
		}
		structural, err := schema.NewStructural(props)
		if err != nil {
			t.Fatal(err)
		}
		pruned := pruning.PruneWithOptions(object, structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
		for _, path := range pruned {
			wrong = append(wrong, errors.New(path+": unknown"))
		}
		defaulting.Default(object, structural)
		validator, _, err := validation.NewSchemaValidator(props)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range validation.ValidateCustomResource(nil, object, validator) {
			wrong = append(wrong, e)
		}
		if rules := cel.NewValidator(structural, true, celconfig.PerCallLimit); rules != nil {
			found, _ := rules.Validate(context.Background(), field.NewPath(""), structural, object, nil, celconfig.RuntimeCELCostBudget)
			for _, e := range found {
				wrong = append(wrong, e)
			}
		}
		return wrong
	}
	return []error{errors.New("there is no version " + version)}
}
