package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Nodes that have the job's token meet; whoever has another one, or none, is refused by name. Workers do not see it.
func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		vars  []string // of node 1; node 0 has the file
		code  int
		words string
	}{
		{"the same", []string{"MUSTER_TOKEN=0123456789abcdef"}, 0, "rank 3 of 4, token none"},
		{"another", []string{"MUSTER_TOKEN=0123456789abcdeX"}, 67, "do not have the same job token"},
		{"none", nil, 67, "do not have the same job token"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			vars := [][]string{{"MUSTER_TOKEN_FILE=" + file}, c.vars}
			for n, p := range startEach(t, vars, "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE, token ${MUSTER_TOKEN-none}") {
				if n == 1 {
					p.ends(c.code, c.words)
				} else {
					p.ends(c.code)
				}
			}
		})
	}
}
