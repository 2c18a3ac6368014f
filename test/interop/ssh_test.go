package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-run/muster/test/stage"
)

// A job as T9k's DeepSpeedJob has it: on both nodes sshd, ssh and pdsh are muster, and on one of them deepspeed is called. DeepSpeed's own
// launcher starts workers on both, and so does muster in its place: with the arguments, with what .deepspeed_env says, and it ends as the worker
// that failed.
func TestDeepspeedJob(t *testing.T) {
	dir, muster := t.TempDir(), stage.Build(t)
	for _, name := range []string{"sshd", "ssh", "pdsh", "ours/deepspeed"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(muster, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	python := filepath.Dir(stage.Python(t, "launchers"))
	s := stage.Open(t, 1)
	env := func(first string) []string {
		path := strings.Join([]string{first, dir, python, os.Getenv("PATH")}, ":")
		return []string{"PATH=" + path, "MUSTER_TOKEN=all nodes of the job have it", "DS_ACCELERATOR=cpu", "CUDA_VISIBLE_DEVICES="}
	}
	for _, name := range []string{"h0", "h1"} {
		m := s.Add(name, name)
		server := m.Run(env(""), "sshd", "-De")
		if !s.Await(patience, func() bool { return strings.Contains(server.Said(), "listening") }) {
			t.Fatal(server.Ending())
		}
	}
	for _, c := range []struct {
		who, first string
		code       int
	}{
		{"its own launcher", python, 0}, {"its own launcher", python, 7},
		{"muster", filepath.Join(dir, "ours"), 0}, {"muster", filepath.Join(dir, "ours"), 7},
	} {
		line := fmt.Sprintf(`cd $SCRATCH && printf 'h0 slots=2\nh1 slots=2\n' >hosts && printf 'FROM_FILE=c d\nCODE=%d\n' >.deepspeed_env &&
			exec deepspeed --hostfile hosts %s --lr 'a b'`, c.code, stage.File(t, "scripts/deepspeed_pdsh.py"))
		p := s.Machines()[0].Run(env(c.first), "sh", "-ec", line)
		s.Await(patience, func() bool { return !p.Running() })
		results, ranks := said.FindAllStringSubmatch(p.Said(), -1), map[string]bool{}
		for _, m := range results {
			ranks[m[1]] = m[2] == "together 10.0"
		}
		if p.Code() != c.code || len(ranks) != 4 || len(results) != 4 || !ranks["0"] || !ranks["3"] {
			t.Errorf("%s, where rank 3 ends with %d: it %s, and was told %q", c.who, c.code, p.Ending(), results)
		}
	}
}
