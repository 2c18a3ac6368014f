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
	python := filepath.Dir(stage.Python(t, "launchers"))
	s, links := open(t, "sshd", "ssh", "pdsh", "ours/deepspeed")
	env := func(first string) []string {
		return append(keyed(first, links, python), "DS_ACCELERATOR=cpu", "CUDA_VISIBLE_DEVICES=")
	}
	serve(t, s, env(""))
	for _, c := range []struct {
		who, first string
		code       int
	}{
		{"its own launcher", python, 0}, {"its own launcher", python, 7},
		{"muster", filepath.Join(links, "ours"), 0}, {"muster", filepath.Join(links, "ours"), 7},
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

// open makes a stage of two nodes, and a directory in which links have these names to muster.
func open(t *testing.T, names ...string) (s *stage.Stage, links string) {
	t.Helper()
	links, muster := t.TempDir(), stage.Build(t)
	for _, name := range names {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(links, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(muster, filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	s = stage.Open(t, 1)
	for _, name := range []string{"h0", "h1"} {
		s.Add(name, name)
	}
	return s, links
}

// keyed is what all nodes of a job have: these directories before the others in PATH, and a secret.
func keyed(dirs ...string) []string {
	return []string{"PATH=" + strings.Join(append(dirs, os.Getenv("PATH")), ":"), "MUSTER_TOKEN=all nodes of the job have it"}
}

// serve runs muster's sshd on all nodes.
func serve(t *testing.T, s *stage.Stage, env []string) {
	t.Helper()
	for _, m := range s.Machines() {
		server := m.Run(env, "sshd", "-De")
		if !s.Await(patience, func() bool { return strings.Contains(server.Said(), "listening") }) {
			t.Fatal(server.Ending())
		}
	}
}
