package main

import (
	"strings"
	"testing"
)

// An evaluator meets nobody, and its program is told what the platform says of it.
func TestEvaluator(t *testing.T) {
	t.Parallel()
	config := `TF_CONFIG={"cluster":{"chief":["a-chief-0.ns.svc:2222"],"evaluator":["a-evaluator-0.ns.svc:2222"],"ps":["a-ps-0.ns.svc:2222"],"worker":["a-worker-0.ns.svc:2222"]},"task":{"type":"evaluator","index":0}}`
	muster(t, t.TempDir(), []string{config}, "run", "--", "sh", "-c", `echo "$RANK of $WORLD_SIZE, $TF_CONFIG"; exit 3`).
		ends(3, "this node is evaluator 0 of the job: it runs beside the 2 nodes that train", "0 of 1, "+strings.TrimPrefix(config, "TF_CONFIG="))
	muster(t, t.TempDir(), []string{config}, "run", "--nnodes", "2", "--", "true").ends(2, "this node is evaluator 0 of the job, beside those who train")
	muster(t, t.TempDir(), []string{config}, "discover", "--gpus", "8", "--json").ends(0, `"rank":null,`, `"workers":1,`, `"role":"evaluator"`, `"notRun":null`)
}

// SageMaker puts "train" behind an image's entrypoint, which is no argument of the script's.
func TestSageMakersArgument(t *testing.T) {
	t.Parallel()
	run := func(args ...string) *program {
		return startProgram(t, t.TempDir(), nil, append([]string{"unshare", "-m", "sh", "-c", `mount -t tmpfs none /opt && mkdir -p /opt/ml/input/config &&
			echo '{"current_host":"algo-1","hosts":["algo-1"]}' >/opt/ml/input/config/resourceconfig.json && exec "$@"`, "sh", executable(t), "run"}, args...)...)
	}
	script := []string{"--", "sh", "-c", `echo "got $#: $*"`, "script"}
	run(append(script, "--lr", "1", "train")...).ends(0, "got 2: --lr 1\n", `"train", the last argument, is what sagemaker puts behind an image's entrypoint`)
	run(append(script, "train", "train")...).ends(0, "got 1: train\n")
	run(append(script, "--lr", "1")...).ends(0, "got 2: --lr 1\n")
	run("train").ends(2, `nothing to run: "train" is what sagemaker puts behind the entrypoint`)
	muster(t, t.TempDir(), nil, append([]string{"run"}, append(script, "train")...)...).ends(0, "got 1: train\n")
}
