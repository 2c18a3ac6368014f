package evidence

import (
	"os"
	"path/filepath"
	"testing"
)

// tree makes files below a new root; a name that ends with "/" is a directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if name[len(name)-1] == '/' {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// events is memory.events as Linux 6 writes it.
func events(oom, kill, group string) string {
	return "low 0\nhigh 0\nmax 812\noom " + oom + "\noom_kill " + kill + "\noom_group_kill " + group + "\n"
}

func TestMemory(t *testing.T) {
	const (
		v2Mount = "1038 1027 0:29 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate\n"
		other   = "1027 900 0:60 / / rw,relatime - overlay overlay rw\n1028 1027 0:63 / /proc rw - proc proc rw\n"
	)
	for name, c := range map[string]struct {
		files map[string]string
		want  Usage
	}{
		"version 2, its own namespace": {map[string]string{
			"proc/7/cgroup": "0::/\n", "proc/self/mountinfo": other + v2Mount,
			"sys/fs/cgroup/memory.current": "1073741824\n", "sys/fs/cgroup/memory.max": "2147483648\n", "sys/fs/cgroup/memory.peak": "2147479552\n",
			"sys/fs/cgroup/memory.events": events("5", "3", "1"), "sys/fs/cgroup/memory.events.local": events("4", "2", "1"),
		}, Usage{Known: true, Current: 1 << 30, Peak: 2147479552, Limit: 2 << 30, Kills: 3, Groups: 1, Struck: 4}},

		"version 2, the host's view, the limit above": {map[string]string{
			"proc/7/cgroup": "0::/kubepods.slice/pod1.slice/cri-7.scope\n", "proc/self/mountinfo": v2Mount,
			"sys/fs/cgroup/kubepods.slice/pod1.slice/memory.max":                     "1048576\n",
			"sys/fs/cgroup/kubepods.slice/pod1.slice/memory.current":                 "1044480\n",
			"sys/fs/cgroup/kubepods.slice/pod1.slice/memory.events":                  events("9", "8", "0"),
			"sys/fs/cgroup/kubepods.slice/pod1.slice/cri-7.scope/memory.current":     "4096\n",
			"sys/fs/cgroup/kubepods.slice/pod1.slice/cri-7.scope/memory.max":         "max\n",
			"sys/fs/cgroup/kubepods.slice/pod1.slice/cri-7.scope/memory.events":      "low 0\nhigh 0\nmax 0\noom 0\noom_kill 2\n",
			"sys/fs/cgroup/kubepods.slice/pod1.slice/cri-7.scope/memory.peak":        "8192\n",
			"sys/fs/cgroup/kubepods.slice/pod1.slice/cri-7.scope/cgroup.procs":       "7\n",
			"sys/fs/cgroup/kubepods.slice/pod1.slice/cri-7.scope/memory.oom.group":   "0\n",
			"sys/fs/cgroup/kubepods.slice/memory.max":                                "2097152\n",
			"sys/fs/cgroup/kubepods.slice/pod1.slice/cri-7.scope/memory.swap.max":    "0\n",
			"sys/fs/cgroup/kubepods.slice/pod1.slice/cri-7.scope/cgroup.controllers": "memory\n",
		}, Usage{Known: true, Current: 1044480, Limit: 1 << 20, Kills: 2, Struck: 9}},

		"version 2 without the memory controller": {map[string]string{
			"proc/7/cgroup": "0::/\n", "proc/self/mountinfo": v2Mount, "sys/fs/cgroup/cgroup.controllers": "cpu\n",
		}, Usage{}},

		"version 2, a cgroup outside of the namespace": {map[string]string{
			"proc/7/cgroup": "0::/..\n", "proc/self/mountinfo": v2Mount,
			"sys/fs/cgroup/memory.current": "1\n", "sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.events": events("0", "0", "0"),
		}, Usage{Known: true, Current: 1}},

		"version 1, docker's bind mount": {map[string]string{
			"proc/7/cgroup":       "12:cpu,cpuacct:/docker/1a2b\n4:memory:/docker/1a2b\n1:name=systemd:/docker/1a2b\n0::/system.slice/x\n",
			"proc/self/mountinfo": "800 799 0:30 /docker/1a2b /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n801 799 0:32 /docker/1a2b /sys/fs/cgroup/mem\\040ory ro master:15 - cgroup cgroup rw,memory\n",
			"sys/fs/cgroup/mem ory/memory.usage_in_bytes":     "4096\n",
			"sys/fs/cgroup/mem ory/memory.max_usage_in_bytes": "8192\n",
			"sys/fs/cgroup/mem ory/memory.limit_in_bytes":     "16384\n",
			"sys/fs/cgroup/mem ory/memory.failcnt":            "21\n",
			"sys/fs/cgroup/mem ory/memory.oom_control":        "oom_kill_disable 0\nunder_oom 0\noom_kill 6\n",
		}, Usage{Known: true, Current: 4096, Peak: 8192, Limit: 16384, Kills: 6, Struck: 21}},

		"version 1 without a limit, on a kernel that does not count": {map[string]string{
			"proc/7/cgroup":              "4:memory:/a\n",
			"proc/self/mountinfo":        "801 799 0:32 / /cg rw - cgroup cgroup rw,memory\n",
			"cg/a/memory.usage_in_bytes": "4096\n", "cg/a/memory.limit_in_bytes": "9223372036854771712\n", "cg/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n",
		}, Usage{Current: 4096}},

		"no such process":     {map[string]string{"proc/": ""}, Usage{}},
		"nothing is mounted":  {map[string]string{"proc/7/cgroup": "0::/a\n4:memory:/a\n", "proc/self/mountinfo": other}, Usage{}},
		"lines that are none": {map[string]string{"proc/7/cgroup": "x\n\n:\n", "proc/self/mountinfo": "a b\n - \n1 2 3 - cgroup2 x y\n"}, Usage{}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := OpenMemory(tree(t, c.files), 7)
			if err != nil {
				t.Fatal(err)
			}
			got, err := m.Read()
			if err != nil || got != c.want {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestSince(t *testing.T) {
	before := Usage{Known: true, Kills: 2, Groups: 1, Struck: 5}
	for _, c := range []struct {
		after Usage
		want  OOM
		say   string
	}{
		{Usage{Known: true, Kills: 2, Struck: 9, Limit: 4096}, OOM{Known: true, Limit: 4096}, ""},
		{Usage{Known: true, Kills: 3, Struck: 9, Limit: 64 << 20, Groups: 1}, OOM{Known: true, Kills: 1, Own: true, Limit: 64 << 20}, "the kernel killed a process of its container for want of memory (limit 64 MiB)"},
		{Usage{Known: true, Kills: 5, Struck: 5, Limit: 4096}, OOM{Known: true, Kills: 3, Limit: 4096}, "the kernel killed 3 processes of its container for want of memory"},
		{Usage{Known: true, Kills: 4, Groups: 2}, OOM{Known: true, Kills: 2, Group: true}, "the kernel killed all processes of its container for want of memory"},
		{Usage{Known: true, Kills: 1}, OOM{Known: true}, ""}, // a new cgroup
		{Usage{Kills: 9}, OOM{}, ""},
	} {
		got := c.after.Since(before)
		if got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.after, got, c.want)
		}
		if got.Kills > 0 && got.clause() != c.say {
			t.Errorf("%q, want %q", got.clause(), c.say)
		}
	}
	if got := (Usage{Known: true, Kills: 9}).Since(Usage{}); got.Kills != 0 || got.Known {
		t.Errorf("without an earlier reading: %+v", got)
	}
}
