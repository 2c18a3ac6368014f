package dialects

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// besideDeepspeed are variables of torchrun's that muster gives to workers under deepspeed, too, and of the shell by which DeepSpeed
// reaches another node.
var besideDeepspeed = strings.Fields("LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE " +
	"TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RESTART_COUNT TORCH_NCCL_ASYNC_ERROR_HANDLING _ SHLVL OLDPWD")

// deepspeeds are variables that no other launcher gives.
var deepspeeds = strings.Fields("LOCAL_SIZE CROSS_RANK CROSS_SIZE")

func TestDeepspeed(t *testing.T) {
	t.Parallel()
	python := python(t)
	s := open(t, "../../dialect/testdata/hostfile", "../../dialect/testdata/deepspeed", "../../dialect/testdata/home")
	d := drive(t, s.dir, python, "scripts/drive_deepspeed.py")
	links := linked(t, "deepspeed")
	path := strings.Join([]string{links, filepath.Dir(python), "/usr/bin", "/bin"}, ":")
	lines := linesOf(t, "deepspeed")
	if len(lines) < 30 {
		t.Fatalf("%d command lines", len(lines))
	}
	for i, l := range lines {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			t.Log(l.text)
			dumps := t.TempDir()
			end := s.underMuster(t, l, path)
			d.run(t, s.commands(t, l, dumps, path))
			theirs, ours := workersIn(t, dumps), end()
			compare(t, theirs, ours, slices.Concat(besideDeepspeed, l.but))
			for rank, its := range theirs {
				for _, name := range deepspeeds {
					if value := ours[rank].Env[name]; value != its.Env[name] {
						t.Errorf("rank %s: %s: %s, muster gives %s", rank, name, its.Env[name], value)
					}
				}
				if own := ours[rank].Argv; !slices.Contains(l.but, "LOCAL_RANK") && !slices.Equal(own[1:], its.Argv[1:]) {
					t.Errorf("rank %s: arguments %q, muster gives %q", rank, its.Argv, own)
				}
			}
		})
	}
}
