package discovery

import (
	"slices"

	"github.com/muster-run/muster/job"
)

// A system for trainings of one framework leaves variables that it alone gives. Sources: kubeflow/training-operator
// pkg/controller.v1/{tensorflow,paddlepaddle,jax}/envvar.go, PaddleFlow/paddle-operator controllers/paddlejob_helper.go.
var frameworkTraces = []struct {
	framework string
	variables []string // which are all there
}{
	{"tensorflow", []string{"TF_CONFIG"}},
	{"paddle", []string{"PADDLE_TRAINERS_NUM"}},
	{"paddle", []string{"PADDLE_NNODES"}},
	{"jax", []string{"COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID"}},
}

// anyFramework are systems that leave TensorFlow's variable to trainings of all frameworks.
var anyFramework = []string{"vertex", "pai-dlc", "aihc", "sagemaker", "volcengine", "modelarts"}

// trains returns the framework for which the system is, and the variable that says so; "" if it does not say.
func trains(h job.Host, rule string) (framework, by string) {
	for _, t := range frameworkTraces {
		there := 0
		for _, name := range t.variables {
			if h.Getenv(name) != "" {
				there++
			}
		}
		if there == len(t.variables) && !(t.framework == "tensorflow" && tfNobody(h)) && !(t.framework == "tensorflow" && slices.Contains(anyFramework, rule)) {
			return t.framework, t.variables[0]
		}
	}
	return "", ""
}
