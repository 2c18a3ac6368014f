// Package golden holds what a test has made against a file that is kept beside it, and writes that file anew with -update.
package golden

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Update reports whether what is kept is to be written anew.
func Update() bool { return *update }

// File holds got against a file, from its first line that differs on.
func File[T string | []byte](t testing.TB, path string, got T) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) == string(want) {
		return
	}
	now, kept, n := strings.SplitAfter(string(got), "\n"), strings.SplitAfter(string(want), "\n"), 0
	for now[n] == kept[n] {
		n++
	}
	t.Errorf("%s differs from line %d on (-update writes it anew; read the diff before you commit it). There it has %q, and now is\n%s",
		path, n+1, kept[n], strings.Join(now[n:], ""))
}
