package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Faults by which a node lacks something.

// A node's disk and shared memory are full for a while. Only who writes there is concerned, and muster is not.
func diskFull(l *lap, fault string) {
	v := 1 + l.draw.IntN(nodes-1) // not that of the checkpoints
	l.befalls(fault, v)
	free := l.fill(v)
	l.pause()
	l.goesOn()
	free()
	l.goesOn()
}

// Rank 0 finds no room for its checkpoint.
func checkpointFull(l *lap, fault string) {
	l.befalls(fault, 0)
	free := l.fill(0)
	const words = `rank 0 .*(its file system is full|No space left on device)`
	l.told(words + `.*; restart \d+ of \d+ follows`)
	free()
	l.again(words)
}

// fill takes all room on a node's disk and in its shared memory.
func (l *lap) fill(v int) (free func()) {
	h := l.hosts[v]
	// Twice: what a checkpoint in the making gave back would be just the room for the next.
	h.Ask("sh", "-c", "for twice in 1 2; do cat /dev/zero >> $TMPDIR/full; cat /dev/zero >> /dev/shm/full; sleep 0.5; done")
	return func() { h.Ask("sh", "-c", "rm $TMPDIR/full /dev/shm/full") }
}

// An agent may open nothing more for a while.
func agentFiles(l *lap, fault string) {
	v := l.victim()
	l.befalls(fault, v)
	lift := l.limit(l.agent(v), unix.RLIMIT_NOFILE, l.count(l.agent(v), "fd"))
	l.pause()
	lift()
	l.goesOn()
}

// Rank 0 may open nothing more, and finds so at its next checkpoint.
func workerFiles(l *lap, fault string) {
	pid := l.worker(0)
	l.befalls(fault, 0)
	l.limit(pid, unix.RLIMIT_NOFILE, 3) // there is no hole below
	const words = `rank 0 .* (exited with code 1|was killed by SIGABRT): .*(Too many open files|PytorchStreamWriter|open failed|cannot be opened)`
	l.told(words + `.*; restart \d+ of \d+ follows`)
	l.again(words)
}

// A worker wants more memory than its address space may have.
func workerMemory(l *lap, fault string) {
	v := l.victim()
	pid := l.worker(v)
	l.befalls(fault, v)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	l.must(err)
	pages, err := strconv.Atoi(strings.Fields(string(text))[0])
	l.must(err)
	l.limit(pid, unix.RLIMIT_AS, pages*os.Getpagesize()+64<<20)
	l.hosts[v].Ask("touch", l.hosts[v].Dir+"/hungry")
	const words = `exited with code 1: MemoryError`
	l.told(words + `.*; restart \d+ of \d+ follows`)
	l.again(words)
}

// A container's memory is at its end: the kernel kills the worker that wants more.
func containerMemory(l *lap, fault string) {
	v := l.victim()
	used, err := strconv.Atoi(l.hosts[v].group("memory", "memory.usage_in_bytes"))
	l.must(err)
	l.befalls(fault, v)
	l.set(v, "memory", "memory.limit_in_bytes", fmt.Sprint(used+128<<20))
	l.hosts[v].Ask("touch", l.hosts[v].Dir+"/hungry")
	const words = `the kernel killed .* of its container for want of memory`
	l.told(words + `.*; restart \d+ of \d+ follows`)
	l.set(v, "memory", "memory.limit_in_bytes", "-1")
	l.again(words)
}

// A container may start nothing more for a while, no thread either.
func containerPIDs(l *lap, fault string) {
	v := l.victim()
	l.befalls(fault, v)
	l.set(v, "pids", "pids.max", l.hosts[v].group("pids", "pids.current"))
	l.pause()
	l.set(v, "pids", "pids.max", "max")
	l.goesOn()
}

// limit sets a process's soft limit, until it is lifted.
func (l *lap) limit(pid, resource, to int) (lift func()) {
	l.t.Helper()
	var was unix.Rlimit
	l.must(unix.Prlimit(pid, resource, nil, &was))
	l.must(unix.Prlimit(pid, resource, &unix.Rlimit{Cur: uint64(to), Max: was.Max}, nil))
	return func() {
		l.t.Helper()
		l.must(unix.Prlimit(pid, resource, &was, nil))
	}
}

// count is how many entries a directory of a process's has.
func (l *lap) count(pid int, dir string) int {
	l.t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", pid, dir))
	l.must(err)
	return len(all)
}

// cgroups is where version 1 has its controllers. Version 2 lets nobody limit a few processes who has not all to himself.
const cgroups = "/sys/fs/cgroup"

// controllers are those that faults need.
var controllers = []string{"memory", "pids"}

// controls reports whether this machine lets us limit something of a few processes.
func controls(controller string) bool {
	dir, err := os.MkdirTemp(filepath.Join(cgroups, controller), "chaos-")
	if err != nil {
		return false
	}
	_, err = os.Stat(filepath.Join(dir, "tasks"))
	return os.Remove(dir) == nil && err == nil
}

// enters is a command line that puts itself into the cgroups of its machine, and becomes another one.
func (h *host) enters(argv ...string) []string {
	var script string
	for _, c := range controllers {
		if dir := h.groups[c]; dir != "" {
			script += "echo 0 > " + dir + "/cgroup.procs; "
		}
	}
	return append([]string{"sh", "-euc", script + `exec "$@"`, "sh"}, argv...)
}

// contain makes a machine's cgroups.
func (l *lap) contain(h *host) {
	l.t.Helper()
	h.groups = map[string]string{}
	for _, c := range controllers {
		if controls(c) {
			dir, err := os.MkdirTemp(filepath.Join(cgroups, c), "chaos-")
			l.must(err)
			h.groups[c] = dir
			l.groups = append(l.groups, dir)
		}
	}
}

// removeGroups does so when nobody is left in them.
func (l *lap) removeGroups() {
	for _, dir := range l.groups {
		if err := os.Remove(dir); err != nil {
			l.t.Error(err)
		}
	}
}

func (h *host) group(controller, file string) string {
	text, _ := os.ReadFile(filepath.Join(h.groups[controller], file)) // what is not there is no number
	return strings.TrimSpace(string(text))
}

func (l *lap) set(v int, controller, file, value string) {
	l.t.Helper()
	l.must(os.WriteFile(filepath.Join(l.hosts[v].groups[controller], file), []byte(value), 0o644))
}
