package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-run/muster/test/stage"
)

// tuned is a configuration of which the tuner is to find how large a batch is best.
const tuned = `{"train_micro_batch_size_per_gpu": [1, 2], "gradient_accumulation_steps": 1,
	"zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": true,
	"autotuning": {"enabled": true, "fast": true, "start_profile_step": 2, "end_profile_step": 4}}`

// DeepSpeed's own tuner, whose trials are muster's jobs on both nodes: it leaves the best configuration, with which one trains then.
func TestAutotuning(t *testing.T) {
	const script = "deepspeed_autotuning"
	if !playing(t, script) {
		return
	}
	python := filepath.Dir(stage.Printed(t, "./python", "autotuning"))
	s, links := open(t, "sshd", "ssh", "pdsh", "deepspeed")
	env := append(keyed(links, python), "DS_ACCELERATOR=cpu", "CUDA_VISIBLE_DEVICES=")
	serve(t, s, env)
	first := s.Machines()[0]
	for name, text := range map[string]string{"hosts": "h0 slots=2\nh1 slots=2\n", "ds.json": tuned} {
		if err := os.WriteFile(filepath.Join(first.Dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		flags, config string
		ranks         int
	}{
		{"--autotuning tune", "ds.json", 0},
		{"", "autotuning_results/ds_config_optimal.json", 4},
	} {
		p := first.Run(env, "sh", "-c", fmt.Sprintf("cd $SCRATCH && exec deepspeed --hostfile hosts %s %s --deepspeed_config %s", c.flags, stage.File(t, "scripts/"+script+".py"), c.config))
		s.Await(4*patience, func() bool { return !p.Running() }) // a tuner starts several jobs
		ranks, results := map[string]bool{}, map[string]bool{}
		for _, m := range said.FindAllStringSubmatch(p.Said(), -1) {
			ranks[m[1]], results[m[2]] = true, true
		}
		if p.Code() != 0 || len(ranks) != c.ranks || len(results) > 1 {
			t.Fatalf("deepspeed %s %s, and %d ranks came to %d results; want %d and 1", c.flags, p.Ending(), len(ranks), len(results), c.ranks)
		}
	}
}
