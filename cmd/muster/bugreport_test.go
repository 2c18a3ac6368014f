package main

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// unpacked is the files of an archive, by their names below its directory.
func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for in := tar.NewReader(zip); ; {
		head, err := in.Next()
		if err == io.EOF {
			return files
		}
		data, errRead := io.ReadAll(in)
		if err != nil || errRead != nil {
			t.Fatal(err, errRead)
		}
		_, name, _ := strings.Cut(head.Name, "/")
		files[name] = string(data)
	}
}

// What a report holds of a job on two nodes, one round of which has failed with secrets in its last words: all that explains
// it, and none of the secrets.
func TestBugreport(t *testing.T) {
	t.Parallel()
	secrets := []string{"qwertz-4711", "s3cr3t/db", "abcdefghijklmn", "hf_0123456789abc", "given-on-the-line"}
	log := filepath.Join(t.TempDir(), "termination-log")
	all := startNodes(t, 2, []string{"MY_API_KEY=" + secrets[0], "DB=postgres://me:" + secrets[1] + "@db/x", "MUSTER_TERMINATION_LOG=" + log, "HARMLESS=as-it-is"},
		"--max-restarts", "1", "--", "sh", "-c", `[ $TORCHELASTIC_RESTART_COUNT$RANK = 02 ] && { echo "cannot log in with $MY_API_KEY"; echo "Authorization: Bearer abcdefghijklmn"; echo "ValueError: hf_0123456789abc"; exit 3; }
		`+training, "train", "--api-key", secrets[4])
	up(all, 1)
	for n, p := range all {
		file := filepath.Join(t.TempDir(), "report.tar.gz")
		p.asks("bugreport", "-o", file).ends(0, file+" has what may explain this job")
		if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		files := unpacked(t, file)
		for name, want := range map[string]string{
			"status.json": `"phase":"running"`, "environment.txt": "HARMLESS=as-it-is\n", "goroutines.txt": "launcher.(*round).loop", "journal": "cannot log in with [masked]",
			"settings.txt": "nnodes: 2 (--nnodes)", "last-words.txt": "muster: running: world size 4",
			"machine/proc/version": "Linux", fmt.Sprintf("machine/proc/%d/limits", agentOf(t, p.cmd.Process.Pid)): "Max open files", "machine/space.txt": "/dev/shm is",
		} {
			if !strings.Contains(files[name], want) {
				t.Errorf("node %d: %s does not say %q: %.300q", n, name, want, files[name])
			}
		}
		for name, text := range files {
			if i := slices.IndexFunc(secrets, func(s string) bool { return strings.Contains(text, s) }); i >= 0 {
				t.Errorf("node %d: %s tells %q", n, name, secrets[i])
			}
		}
		journal := filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(journal, []byte(files["journal"]), 0o600); err != nil {
			t.Fatal(err)
		}
		muster(t, t.TempDir(), nil, "replay", journal).ends(0, "begun", "no verdict")
		p.asks("bugreport", "-o", file).ends(1, "file exists", "say where it can be written with --output")
		p.asks("bugreport").ends(0, "muster-bugreport-")
	}
	all[0].asks("ctl", "stop").ends(0)
	for _, p := range all {
		p.ends(143)
	}
	all[0].asks("bugreport", "--job", "over").ends(1, `no muster run for job "over"`)
}

// An agent that does not answer leaves the machine's word, and the exit status says so.
func TestBugreportOfTheMute(t *testing.T) {
	t.Parallel()
	p := muster(t, t.TempDir(), nil, "run", "--", "sh", "-c", training)
	p.says("up 0 of 1")
	socket, _ := filepath.Glob(filepath.Join(p.tmp, "muster-*", "agent.sock"))
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	syscall.Kill(agentOf(t, p.cmd.Process.Pid), syscall.SIGSTOP)
	p.asks("bugreport", "--socket", socket[0], "-o", file).ends(1, "has the machine's part only", "does not answer")
	syscall.Kill(agentOf(t, p.cmd.Process.Pid), syscall.SIGCONT)
	if files := unpacked(t, file); !strings.Contains(files["error.txt"], "does not answer") || files["machine/proc/version"] == "" {
		t.Errorf("%v", files)
	}
	p.asks("ctl", "stop").ends(0)
	p.ends(143)
}
