package schemas

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// described are kinds whose schema is in no module: of T9k's there is a manual only, and paddle-operator's is not among Go's. Their fields are
// written down here, by what is said of them, and there are no others.
var described = map[string]func() any{
	"batch.tensorstack.dev/v1beta1 DeepSpeedJob": func() any { return new(object[deepSpeedJob]) },
	"batch.tensorstack.dev/v1beta1 GenericJob":   func() any { return new(object[genericJob]) },
	"batch.paddlepaddle.org/v1 PaddleJob":        func() any { return new(object[paddleJob]) },
}

type object[T any] struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            T                 `json:"spec"`
}

// A deepSpeedJob is the spec of T9k's, by its manual.
type deepSpeedJob struct {
	t9kJob
	RunPolicy struct {
		ActiveDeadlineSeconds *int64
		BackoffLimit          *int32
		CleanUpPolicy         cleanUp
	}
	Config struct {
		SlotsPerWorker int
		Run            run
		LocalRank      *bool
		Autotune       autotune
		OtherArgs      []string
		CustomCommand  []string
	}
	Elastic struct {
		Enabled                                    bool
		MinReplicas, MaxReplicas, ExpectedReplicas int
	}
	Worker struct {
		Replicas      int
		RestartPolicy restart
		Template      corev1.PodTemplateSpec
	}
}

// A genericJob is the spec of T9k's, by its manual.
type genericJob struct {
	t9kJob
	Service struct {
		Ports []corev1.ServicePort
	}
	SuccessRules, FailureRules []map[string][]int // places in the type of replica
	CleanUpPolicy              cleanUp
	ReplicaSpecs               []struct {
		Type          string
		Replicas      int
		RestartPolicy struct {
			Policy restart
			Limit  int
		}
		Template corev1.PodTemplateSpec
	}
}

// A t9kJob is what all kinds of T9k have.
type t9kJob struct {
	Scheduler struct {
		T9kScheduler *struct {
			Queue    string
			Priority int
		}
	}
	RunMode struct {
		Debug struct {
			Enabled      bool
			ReplicaSpecs []waiting
		}
		Pause struct {
			Enabled     bool
			ResumeSpecs []waiting
		}
	}
}

// waiting is what replicas of a type do instead of training.
type waiting struct {
	Type              string
	SkipInitContainer bool
	Command, Args     []string
}

// A paddleJob is the spec of paddle-operator's, v0.3.
type paddleJob struct {
	CleanPodPolicy   cleanPod
	Intranet         intranet
	WithGloo         *int
	Elastic          *int
	PS               *paddlePods
	Worker           *paddlePods
	Heter            *paddlePods
	SchedulingPolicy *struct {
		MinAvailable         *int32
		Queue, PriorityClass string
		MinResources         corev1.ResourceList
	}
	SampleSetRef *struct{ Name, Namespace, MountPath string }
}

type paddlePods struct {
	Replicas         int
	Requests, Limits *int // with elastic
	Template         corev1.PodTemplateSpec
}

// run is what is started, one of three.
type run map[string][]string

func (r *run) UnmarshalJSON(text []byte) error {
	var words map[string][]string
	if err := json.Unmarshal(text, &words); err != nil {
		return err
	}
	if len(words) > 1 {
		return fmt.Errorf("config.run has %d of python, module and exec; it may have one", len(words))
	}
	for name := range words {
		if !slices.Contains([]string{"python", "module", "exec"}, name) {
			return fmt.Errorf(`unknown field "config.run.%s"`, name)
		}
	}
	*r = words
	return nil
}

type (
	cleanUp  string
	restart  string
	autotune string
	cleanPod string
	intranet string
)

func (v *cleanUp) UnmarshalText(text []byte) error {
	return among(v, text, "None", "All", "Unfinished")
}

func (v *restart) UnmarshalText(text []byte) error {
	return among(v, text, "Always", "OnFailure", "Never", "ExitCode")
}

func (v *autotune) UnmarshalText(text []byte) error { return among(v, text, "none", "run", "tune") }

func (v *cleanPod) UnmarshalText(text []byte) error {
	return among(v, text, "Always", "Never", "OnFailure", "OnCompletion")
}

func (v *intranet) UnmarshalText(text []byte) error {
	return among(v, text, "PodIP", "Service", "Host")
}

// among reads one of some words.
func among[T ~string](v *T, text []byte, words ...string) error {
	if !slices.Contains(words, string(text)) {
		return fmt.Errorf("%T is %q, not one of %q", *v, text, words)
	}
	*v = T(text)
	return nil
}

// Jobs that the real paddle-operator took have no other fields.
func TestDescribed(t *testing.T) {
	files, err := filepath.Glob("../../discovery/testdata/platforms/paddle-operator-*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no jobs, %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var written struct{ Job string }
		if err := json.Unmarshal(text, &written); err != nil {
			t.Fatal(err)
		}
		var given struct{ Spec any }
		if err := yaml.Unmarshal([]byte(written.Job), &given); err != nil {
			t.Fatal(err)
		}
		for _, wrong := range strict(given.Spec, new(paddleJob)) {
			t.Errorf("%s: %v", file, wrong)
		}
	}
}

// What is wrong with a job of such a kind is found, as what DeepSpeedJobs are often written with.
func TestDescribedWrong(t *testing.T) {
	for _, c := range []struct{ example, from, to, want string }{
		{"t9k-deepspeedjob", "kind: DeepSpeedJob", "kind: DeepspeedJob", "is not a kind that is known"},
		{"t9k-deepspeedjob", "slotsPerWorker", "slotPerWorker", "slotPerWorker"},
		{"t9k-deepspeedjob", "cleanUpPolicy: Unfinished", "cleanUpPolicy: Running", "Unfinished"},
		{"t9k-deepspeedjob", "run:\n", "run:\n      module: [a]\n", "it may have one"},
		{"t9k-deepspeedjob", "      python:", "      script:", "config.run.script"},
		{"t9k-genericjob", "successRules", "successRule", "successRule"},
		{"t9k-genericjob", "[0]", "0", "cannot unmarshal"},
		{"t9k-genericjob", "policy: OnFailure", "policy: Sometimes", "ExitCode"},
		{"t9k-genericjob", "volumeMounts", "mounts", "mounts"},
		{"paddlejob", "cleanPodPolicy", "cleanUpPolicy", "cleanUpPolicy"},
		{"paddlejob-ps", "intranet: Service", "intranet: Hostname", "PodIP"},
	} {
		text, err := os.ReadFile(filepath.Join("../../examples", c.example, "job.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		wrong := strings.Replace(string(text), c.from, c.to, 1)
		if wrong == string(text) {
			t.Errorf("%s has no %q", c.example, c.from)
		}
		var all []string
		for _, object := range objects(t, []byte(wrong)) {
			for _, err := range check(t, object) {
				all = append(all, err.Error())
			}
		}
		if !strings.Contains(strings.Join(all, "\n"), c.want) {
			t.Errorf("%s with %q: %q", c.example, c.to, all)
		}
	}
}
