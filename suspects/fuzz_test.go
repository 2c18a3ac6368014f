package suspects

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A file of findings is in a directory that others write to.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"time":"2026-11-20T10:00:00Z","machine":{"id":"m","host":"h"},"why":"x"}` + "\n\n{}\nx"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "m")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		all, _ := read(path, time.Time{}) // what is no finding is left aside
		for _, a := range all {
			if _, err := json.Marshal(a); err != nil {
				t.Errorf("%+v: %v", a, err)
			}
			About(all, a.Machine)
		}
	})
}
