package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A secret of the environment that a failed worker printed is in none of what is told of its end: the last words, which stand in
// the cluster's records, the verdict, the journal, torchrun's error file. The worker's own lines stay as they are.
func TestSecretsInVerdicts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	python := "Traceback (most recent call last):\n  File \"train.py\", line 1, in <module>\nRuntimeError: the hub refused tok-12345678"
	p := muster(t, dir, []string{"HF_TOKEN=tok-12345678", "TORCHELASTIC_ERROR_FILE=" + dir + "/error.json", "MUSTER_TERMINATION_LOG=" + dir + "/words"},
		"run", "--nproc-per-node", "1", "--framework", "torch", "--verdict", "verdict.json", "--journal", "journal", "--log-dir", "logs", "--", "sh", "-c", `echo "$0" >&2; exit 1`, python)
	p.ends(1, "the hub refused [masked]; exit 1")
	logs, _ := filepath.Glob(dir + "/logs/*/attempt_0/0/stderr.log")
	if len(logs) != 1 || !strings.Contains(readFile(t, logs[0]), "refused tok-12345678") {
		t.Errorf("the worker's own lines are not in %q as it wrote them", logs)
	}
	for _, name := range []string{"error.json", "words", "verdict.json", "journal"} {
		text := readFile(t, filepath.Join(dir, name))
		if strings.Contains(text, "tok-12345678") || !strings.Contains(text, "refused [masked]") {
			t.Errorf("%s: %s", name, text)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "journal")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the journal: %v, %v", info, err)
	}
}

// A secret that stands where a long line is cut is hidden as a whole: of its first half nobody could tell what it is.
func TestSecretsAtACut(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("x", n) + " " }
	said := long(388) + "tok-12345678\nTraceback (most recent call last):\n  File \"train.py\", line 1, in <module>\nRuntimeError: " + long(270) + "tok-12345678"
	dir := t.TempDir()
	p := muster(t, dir, []string{"HF_TOKEN=tok-12345678"}, "run", "--nproc-per-node", "1", "--framework", "torch", "--verdict", "verdict.json", "--", "sh", "-c", `echo "$0" >&2; exit 1`, said)
	p.ends(1)
	if text := readFile(t, filepath.Join(dir, "verdict.json")); strings.Contains(text, "tok-1") || strings.Count(text, "x [mas") < 2 {
		t.Error(text)
	}
}

// Workers do not get the secrets that are muster's own.
func TestSecretsOfOurOwn(t *testing.T) {
	t.Parallel()
	p := muster(t, t.TempDir(), []string{"MUSTER_TOKEN=0123456789abcdef", "MUSTER_ETCD_USER=root:0123456789abcdef"}, "run", "--nproc-per-node", "1", "--", "sh", "-c", `env | grep -c 0123456789abcdef`)
	p.ends(1, "0")
}

// What a run leaves in directories that others may enter is closed to them: docs/security.md.
func TestRunIsPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := muster(t, dir, []string{"TMPDIR=" + dir, "XDG_RUNTIME_DIR="}, "run", "--nproc-per-node", "1", "--log-dir", dir+"/logs", "--", "sh", "-c",
		`stat -c %a "$TMPDIR"/muster-* "$TMPDIR"/muster-*/*.sock "$(dirname "$MUSTER_PAGE")" "$TMPDIR"/logs/* | tr '\n' ' '`)
	p.ends(0, "700 600 600 700 700")
}
