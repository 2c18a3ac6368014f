package framework

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An error file, and a worker's last lines, may be anything.
func FuzzException(f *testing.F) {
	f.Add([]byte(`{"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Traceback"}}}`), "")
	f.Add([]byte(`{"message": "ValueError: x"}`), "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nValueError: x")
	f.Add([]byte(`{"message": 7}`), "  File \"a.sh\", line 1\nSyntaxError: invalid syntax")
	f.Fuzz(func(t *testing.T, file []byte, tail string) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "0"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(errorFile(dir, 0), file, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Recorded(errorFile(dir, 0)); len(got) > 4*len(file) { // an invalid byte becomes three
			t.Errorf("%d bytes of %d", len(got), len(file))
		}
		for part := range strings.SplitSeq(traceback(strings.Split(tail, "\n")), ": ") { // of an exception group and of one in it
			if !strings.Contains(tail, part) {
				t.Errorf("%q is not in %q", part, tail)
			}
		}
	})
}
