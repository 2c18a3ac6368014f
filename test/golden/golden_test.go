package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A said keeps what a test would fail with.
type said struct {
	testing.TB
	text string
}

func (s *said) Helper()                      {}
func (s *said) Errorf(f string, args ...any) { s.text = fmt.Sprintf(f, args...) }

// What differs is told, from its first line on, and nothing else.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(path, []byte("a\nb\nc\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		"a\nb\nc\n":    "",
		"a\nB\nc\n":    "line 2 on",
		"a\nb\nc":      "line 3 on",
		"a\nb\nc\nd\n": "line 4 on",
		"a\nb\n":       "line 3 on",
		"":             "line 1 on",
	} {
		s := &said{TB: t}
		File(s, path, got)
		if (s.text == "") != (want == "") || !strings.Contains(s.text, want) {
			t.Errorf("of %q: %q, want %q", got, s.text, want)
		}
	}
}
