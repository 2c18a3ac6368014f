package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// Restarts are counted over all lives of a container, where it is told where to count, until the job ends well.
func TestStateDir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	for i, c := range []struct {
		script string
		code   int
		rounds int
	}{
		{"exit 3", 3, 2},
		{"exit 3", 3, 1},
		{"exit 0", 0, 1},
		{"exit 3", 3, 2},
	} {
		p := muster(t, t.TempDir(), nil, "run", "--rdzv-id", "counted", "--max-restarts", "1", "--state-dir", dir, "--", "sh", "-c", "echo begins; "+c.script)
		p.ends(c.code)
		if got := strings.Count(p.out.String(), "begins"); got != c.rounds {
			t.Errorf("run %d had %d rounds, want %d:\n%s", i, got, c.rounds, p.out.String())
		}
	}
}
