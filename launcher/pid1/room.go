package pid1

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What the first process and the agent cannot do without. With less Go itself gives up, in its own words and with its
// own exit code. Measured: one worker is started and watched with 16 open files and with 40 processes and threads.
const (
	leastFiles = 32
	leastTasks = 48
)

// cramped says which of the limits that we were started with leaves no room for us: "" if none does. Go raised the
// soft limit of open files to the hard one, for us and not for our children (package os, rlimit.go).
func cramped(files, tasks uint64) string {
	if n := limit(unix.RLIMIT_NOFILE); n < files {
		return fmt.Sprintf("no room to start: ulimit -n is %d, and muster needs %d open files; raise that limit", n, files)
	}
	if n := limit(unix.RLIMIT_NPROC); n < tasks && os.Geteuid() != 0 { // the kernel does not count root's
		return fmt.Sprintf("no room to start: ulimit -u is %d, and muster needs %d processes and threads beside all others of this user; raise that limit", n, tasks)
	}
	if file, n := tasksLeft("/"); n < tasks {
		return fmt.Sprintf("no room to start: %s leaves room for %d processes and threads, and muster needs %d; raise that limit", file, n, tasks)
	}
	return ""
}

// tasksLeft returns the tightest limit of processes and threads of our cgroup and those above it, and the room that it
// leaves, with what we have taken of it already. Without a limit that is endless. root is where the file system begins.
func tasksLeft(root string) (file string, left uint64) {
	left = math.MaxUint64
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup")) // no cgroups, no limits
	for line := range strings.Lines(string(groups)) {
		dir, path := pidsGroup(strings.TrimSpace(line))
		for ; dir != ""; path = filepath.Dir(path) {
			group := filepath.Join(dir, path)
			if n, ok := roomOf(filepath.Join(root, group)); ok && n < left {
				file, left = filepath.Join(group, "pids.max"), n
			}
			if path == "/" {
				break
			}
		}
	}
	return file, left
}

// pidsGroup says where the cgroup of a line of /proc/self/cgroup is: the usual mount of its hierarchy, and the path below,
// which may mean nothing in a container, where the mount is the container's own cgroup. dir is "" where no processes
// are counted. Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/pids.rst.
func pidsGroup(line string) (dir, path string) {
	f := strings.SplitN(line, ":", 3)
	switch {
	case len(f) < 3:
		return "", ""
	case f[1] == "":
		return "/sys/fs/cgroup", filepath.Join("/", f[2])
	case slices.Contains(strings.Split(f[1], ","), "pids"):
		return "/sys/fs/cgroup/pids", filepath.Join("/", f[2])
	}
	return "", ""
}

// roomOf reads what a cgroup leaves; false: it has no limit.
func roomOf(group string) (left uint64, limited bool) {
	most, errM := number(filepath.Join(group, "pids.max")) // "max": none
	now, errN := number(filepath.Join(group, "pids.current"))
	if errM != nil || errN != nil {
		return 0, false
	}
	us := 1
	if p, err := table.Process(os.Getpid()); err == nil {
		us = p.Threads
	}
	return most - min(most, now-min(now, uint64(us))), true
}

func number(file string) (uint64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
}

// limit returns a soft limit.
func limit(resource int) uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(resource, &l) != nil {
		return math.MaxUint64
	}
	return l.Cur
}
