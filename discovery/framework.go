package discovery

import "github.com/muster-run/muster/job"

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

// trains returns the framework for which the system is, and the variable that says so; "" if it does not say.
func trains(h job.Host) (framework, by string) {
	for _, t := range frameworkTraces {
		there := 0
		for _, name := range t.variables {
			if h.Getenv(name) != "" {
				there++
			}
		}
		if there == len(t.variables) {
			return t.framework, t.variables[0]
		}
	}
	return "", ""
}
