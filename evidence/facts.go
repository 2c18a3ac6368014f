package evidence

import (
	"path/filepath"
	"strconv"
	"strings"
)

// A Fact is a file in which the kernel or a driver says how the machine is.
type Fact struct {
	Path string // from the root
	Text string
}

// facts are the files that Facts reads, as patterns of path/filepath. PID is the process that is asked about, GROUP the
// directory of its cgroup (version 2). None of them changes anything by being read, and none tells of other processes.
var facts = []string{
	"etc/os-release",
	"proc/version", "proc/cmdline", "proc/uptime", "proc/loadavg", "proc/meminfo", "proc/mounts", "proc/net/dev", "proc/net/sockstat", "proc/pressure/*",
	"proc/PID/status", "proc/PID/limits", "proc/PID/cgroup", "proc/PID/oom_score_adj",
	"proc/driver/nvidia/version", "proc/driver/nvidia/params", "proc/driver/nvidia/gpus/*/information",
	"sys/class/infiniband/*/ports/*/state", "sys/class/infiniband/*/ports/*/rate", "sys/class/infiniband/*/ports/*/link_layer",
	"sys/devices/system/node/online", "sys/devices/system/cpu/online",
	"sys/fs/cgroup/GROUP/memory.*", "sys/fs/cgroup/GROUP/cpu.*", "sys/fs/cgroup/GROUP/cpuset.*", "sys/fs/cgroup/GROUP/pids.*", "sys/fs/cgroup/GROUP/cgroup.*",
	"sys/fs/cgroup/memory/memory.*", "sys/fs/cgroup/cpu/cpu.*", "sys/fs/cgroup/cpuset/cpuset.*", "sys/fs/cgroup/pids/pids.*",
}

const (
	maxFacts    = 1000     // more than eight GPUs, sixteen adapters and all cgroup files
	maxFactText = 64 << 10 // bytes kept of one file
)

// Facts reads what the machine says of itself and of a process: kernel, memory, limits, cgroup, GPU driver and adapters. What is not
// there or may not be read is left out. root is that of the file system, "/" outside tests.
func Facts(root string, pid int) (found []Fact) {
	groups, _ := read(filepath.Join(root, "proc", strconv.Itoa(pid), "cgroup"))
	_, group := groupPaths(groups)
	names := strings.NewReplacer("PID", strconv.Itoa(pid), "GROUP", filepath.Clean("/"+group)) // seen from inside it may begin with ".."
	for _, pattern := range facts {
		paths, _ := filepath.Glob(filepath.Join(root, names.Replace(pattern))) // an error is a bad pattern: an odd cgroup's name
		for _, path := range paths {
			text, err := read(path)
			if err != nil || text == "" || len(found) == maxFacts {
				continue
			}
			name, _ := filepath.Rel(root, path)
			found = append(found, Fact{name, text[:min(len(text), maxFactText)]})
		}
	}
	return found
}
