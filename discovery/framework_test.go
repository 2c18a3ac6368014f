package discovery

import (
	"strings"
	"testing"
)

func TestFramework(t *testing.T) {
	for _, c := range []struct{ env, want string }{
		{"", ""},
		{"PET_NNODES=1", ""},
		{`TF_CONFIG={"cluster":{"worker":["a:2222"]},"task":{"type":"worker","index":0}}`, "tensorflow by TF_CONFIG"},
		{"PADDLE_NNODES=2 PADDLE_MASTER=resnet-worker-0:36543 PADDLE_JOB_ID=resnet", "paddle by PADDLE_NNODES"},
		{"PADDLE_TRAINERS_NUM=2 PADDLE_TRAINER_ID=1 TRAINING_ROLE=TRAINER", "paddle by PADDLE_TRAINERS_NUM"},
		{"COORDINATOR_ADDRESS=jx-worker-0 COORDINATOR_PORT=6666 NUM_PROCESSES=3 PROCESS_ID=0", "jax by COORDINATOR_ADDRESS"},
		{"NUM_PROCESSES=3", ""},
		{"TF_CONFIG=", ""},
	} {
		f := Detect(host(strings.Fields(c.env)...))
		if got := strings.TrimSuffix(f.Framework+" by "+f.FrameworkBy, " by "); got != c.want {
			t.Errorf("%s: %q, want %q", c.env, got, c.want)
		}
	}
}
