package evidence

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is there is read, from the cgroup of the process that is asked about; what is not, or is no file, is left out.
func TestFacts(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"proc/version": "Linux", "proc/7/limits": "Max open files", "proc/7/cgroup": "0::/../kubepods/pod7\n", "proc/8/limits": "of another",
		"proc/7/environ": "TOKEN=x", "sys/fs/cgroup/kubepods/pod7/memory.max": "100", "sys/fs/cgroup/memory.max": "of another",
		"proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: H100", "proc/meminfo": strings.Repeat("m", maxFactText+1), "proc/uptime": "",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	os.Mkdir(filepath.Join(root, "proc/loadavg"), 0o755)
	got := map[string]string{}
	for _, f := range Facts(root, 7) {
		got[f.Path] = f.Text
	}
	for path, want := range map[string]string{
		"proc/version": "Linux", "proc/7/limits": "Max open files", "sys/fs/cgroup/kubepods/pod7/memory.max": "100",
		"proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: H100", "proc/meminfo": strings.Repeat("m", maxFactText),
	} {
		if got[path] != want {
			t.Errorf("%s: %.40q, want %.40q", path, got[path], want)
		}
	}
	for path := range got {
		if strings.Contains(path, "environ") || strings.Contains(path, "8") || path == "sys/fs/cgroup/memory.max" || path == "proc/uptime" || path == "proc/loadavg" {
			t.Errorf("%s is told", path)
		}
	}
	if here := Facts("/", os.Getpid()); len(here) < 8 {
		t.Errorf("this machine has %d facts: %v", len(here), here)
	}
}
