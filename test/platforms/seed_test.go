package platforms

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/muster-run/muster/test/stage"
)

// TestOwnScript runs a PyTorchJob's own script, which calls accelerate launch, as it stands: all that is another in its image is that accelerate is a
// link to muster. Its training is by the real accelerate.
func TestOwnScript(t *testing.T) {
	t.Parallel()
	python := stage.Python(t, "launchers")
	e := example{
		name: "../test/platforms/testdata/seed", ranks: []int{0, 1}, expect: map[string]any{},
		play: &play{
			nproc: -1,
			env:   []string{fmt.Sprintf("PATH=/app/scripts:%s:/usr/local/bin:/usr/bin:/bin", filepath.Dir(python))}, // the real accelerate is there, too
			links: map[string]string{"/app/scripts/accelerate": "/usr/local/bin/muster"},
			files: map[string]string{
				"/app/scripts/multi_train_run.sh":            "testdata/seed/multi_train_run.sh",
				"/app/lora-scripts/sd-scripts/sdxl_train.py": "testdata/seed/sdxl_train.py",
				"/app/lora-scripts/sd-scripts/train.py":      "../interop/scripts/accelerate_bf16.py",
			},
			says: func(nth int) []string {
				return []string{fmt.Sprintf("[rank %d] rank %[1]d of 4: equal parameters ", 2*nth), fmt.Sprintf("[rank %d] rank %[1]d of 4: equal parameters ", 2*nth+1)}
			},
		},
	}
	e.run(t, stage.Build(t))
}
