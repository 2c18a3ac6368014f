package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Workers that have loaded another framework than the one whose contract they have, where nothing of what they import said so, are told of: each of them trains
// alone, and ends well.
func TestLoadsAnother(t *testing.T) {
	t.Parallel()
	const load = `import mmap, sys, time
with open(sys.argv[1], "w+b") as f:
    f.write(b"x")
    f.flush()
    library = mmap.mmap(f.fileno(), 1)
time.sleep(3)
`
	const says = "muster: the workers of this node have loaded paddle, and none is in a process group of PyTorch's: as --framework torch has it, each of the job's 4 ranks is a training of its own"
	dir := t.TempDir()
	for framework, told := range map[string]bool{"torch": true, "none": false} {
		library := filepath.Join(dir, framework, "libpaddle.so")
		if err := os.Mkdir(filepath.Dir(library), 0o755); err != nil {
			t.Fatal(err)
		}
		all := startNodes(t, 2, nil, "--nproc-per-node", "2", "--framework", framework, "--", "sh", "-c", `python3 -c "$1" "$2" & wait $!`, "sh", load, library)
		for _, p := range all {
			if p.ends(0); strings.Contains(p.out.String(), says) != told {
				t.Errorf("--framework %s:\n%s", framework, p.out.String())
			}
		}
	}
}
