package pid1

import (
	"os"
	"path/filepath"
	"testing"
)

// A cgroup is divided where it is ours and has no limits that a worker would miss.
func TestOpenCgroups(t *testing.T) {
	const mounted = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	for _, c := range []struct {
		name, group, mounts string
		files               map[string]string
		want                string
	}{
		{"a container's", "0::/\n", mounted, nil, "/sys/fs/cgroup"},
		{"hybrid", "4:cpu:/a\n0::/\n", "30 20 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", nil, "/sys/fs/cgroup/unified"},
		{"a container's, seen from its host", "0::/docker/1\n", "30 20 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", nil, "/sys/fs/cgroup"},
		{"the last mount lies over the others", "0::/\n", mounted + "31 20 0:26 / /mnt rw - cgroup2 none rw\n", nil, "/mnt"},
		{"somebody else's", "0::/user.slice\n", mounted, nil, ""},
		{"with a limit of CPUs", "0::/\n", mounted, map[string]string{"cpu.max": "200000 100000\n"}, ""},
		{"with a limit of memory", "0::/\n", mounted, map[string]string{"cpu.max": "max 100000\n", "memory.max": "1073741824\n"}, ""},
		{"with files of limits, but none", "0::/\n", mounted, map[string]string{"cpu.max": "max 100000\n", "memory.max": "max\n", "cpuset.cpus": "\n"}, "/sys/fs/cgroup"},
		{"version 1", "4:cpu:/\n", "30 20 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", nil, ""},
		{"none", "", "", nil, ""},
	} {
		root := t.TempDir()
		write := func(name, text string) {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write("proc/self/cgroup", c.group)
		write("proc/self/mountinfo", c.mounts)
		for file, text := range c.files {
			write("sys/fs/cgroup/"+file, text)
		}
		want := ""
		if c.want != "" {
			want = filepath.Join(root, c.want)
		}
		if got := openCgroups(root).dir; got != want {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
	}
}
