package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-run/muster/test/stage"
)

// Command lines of accelerate and DeepSpeed, called by links of those names to muster, train with the real libraries: two nodes of two
// workers each. The first one is of those that people have in a PyTorchJob's script.
var links = []struct{ script, line string }{
	{"accelerate_bf16", `
export NUM_PROCESSES=4 WORLD_SIZE=2 MASTER_ADDR=h0 MASTER_PORT=23456 RANK=$NODE
accelerate launch \
 --num_processes ${NUM_PROCESSES} \
 --num_machines ${WORLD_SIZE} \
 --rdzv_backend c10d \
 --main_process_ip ${MASTER_ADDR} \
 --main_process_port ${MASTER_PORT} \
 --machine_rank ${RANK} \
 $SCRIPT \
 --output_dir out`},
	{"deepspeed_zero1", `printf 'h0 slots=2\nh1 slots=2\n' >hosts && DS_ACCELERATOR=cpu deepspeed --hostfile hosts $SCRIPT --deepspeed`},
}

func TestLinks(t *testing.T) {
	dir, muster := t.TempDir(), stage.Build(t)
	for _, name := range []string{"accelerate", "deepspeed"} {
		if err := os.Symlink(muster, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	python := stage.Python(t, "launchers")
	path := strings.Join([]string{dir, filepath.Dir(python), os.Getenv("PATH")}, ":")
	for _, c := range links {
		t.Run(c.script, func(t *testing.T) {
			env := func(node int) []string {
				return []string{"PATH=" + path, fmt.Sprint("NODE=", node), "SCRIPT=" + stage.File(t, "scripts/"+c.script+".py")}
			}
			agree(t, 2, 4, env, "sh", "-ec", "cd $SCRATCH\n"+c.line)
		})
	}
}

// The oldest and the newest PyTorch that muster knows.
func TestPyTorch(t *testing.T) {
	muster, script := stage.Build(t), stage.File(t, "scripts/ddp.py")
	for _, python := range []string{"debian", "newest"} {
		t.Run(python, func(t *testing.T) {
			exe := stage.Python(t, python)
			agree(t, 2, 4, func(int) []string { return []string{"PYTHON_EXEC=" + exe} },
				muster, "run", "--nnodes", "2", "--nproc-per-node", "2", "--rdzv-endpoint", "h0:29400", script)
		})
	}
}
