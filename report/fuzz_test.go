package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A secret of the environment is found wherever it stands, and a JSON text stays one.
func FuzzMask(f *testing.F) {
	f.Add("tok-12345", "see ", " and more")
	f.Add("first line\nsecond line", `{"a": "`, `", "password": "x"}`)
	f.Add("[masked]", "https://me:", "@host")
	f.Fuzz(func(t *testing.T, secret, before, behind string) {
		m := NewMask([]string{"A_TOKEN=" + secret})
		if len(secret) >= shortSecret && !strings.Contains(masked+masked, secret) { // else it is what stands in its place
			for what, got := range map[string]string{"a text": m.Text(before + secret), "a line": m.Line(secret+behind, 1000)} {
				if strings.Contains(got, secret) {
					t.Errorf("of %q %s shows %q", secret, what, got)
				}
			}
		}
		if text := []byte(before + secret + behind); json.Valid(text) && !json.Valid(m.JSON(text)) {
			t.Errorf("%q became %q", text, m.JSON(text))
		}
	})
}

// A directory of verdicts may hold anything.
func FuzzLedger(f *testing.F) {
	f.Add([]byte(`{"schema": "` + Schema + `", "job": "j", "node": 0, "began": "2026-11-20T10:00:00Z", "spent": {"laps": [{"round": 1, "world": 4, "train": 9}], "older": {"rounds": 1, "seconds": {"train": 1e300}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "verdict.json")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		r, is, err := readRun(path)
		if err != nil || !is {
			return
		}
		if _, err := json.Marshal(r); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	})
}
