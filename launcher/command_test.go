package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Python runs a directory that has a program, as torchrun's users may have it.
func TestScriptIsDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := script(dir); err == nil || !strings.Contains(err.Error(), "is a directory without __main__.py") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "__main__.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := script(dir); err != nil {
		t.Error(err)
	}
}
