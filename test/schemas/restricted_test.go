package schemas

import (
	"os"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// A namespace that is restricted takes the pods of the example whose README says so.
func TestRestricted(t *testing.T) {
	text, err := os.ReadFile("../../examples/init-container/job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	security, err := policy.NewEvaluator(policy.DefaultChecks())
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, object := range objects(t, text) {
		if object["kind"] != "Job" {
			continue
		}
		found++
		var job batchv1.Job
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &job); err != nil {
			t.Fatal(err)
		}
		pod := job.Spec.Template
		for _, said := range security.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &pod.ObjectMeta, &pod.Spec) {
			if !said.Allowed {
				t.Errorf("%s: %s", said.ForbiddenReason, said.ForbiddenDetail)
			}
		}
	}
	if found != 1 {
		t.Errorf("%d jobs", found)
	}
}
