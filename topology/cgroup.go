package topology

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// Limits are how much of the machine this process may use.
type Limits struct {
	CPUs  CPUs    // Cpus_allowed_list of /proc/self/status: the cpuset, and whatever the process was bound to
	Nodes CPUs    // Mems_allowed_list: the NUMA nodes whose memory it may have
	Set   CPUs    // the cgroup's cpuset; nil: not told
	Quota float64 // CPUs' worth of time of the cgroup, the least of those above it that can be seen; 0: no quota
	From  string  // the file that says so
	// Memory and Tasks are the least of the cgroups' limits, in bytes, and in processes and threads; 0: none that can be seen.
	Memory, Tasks         int64
	MemoryFrom, TasksFrom string // the files that say so
}

// A hierarchy is where a kind of cgroup is mounted, and which of its groups this process is in.
type hierarchy struct {
	at    string // from the root: sys/fs/cgroup/cpu
	group string // below that: /kubepods/pod1/…; "/" where a cgroup namespace hides what is above
}

// limits reads what the kernel grants this process.
func (t tree) limits() Limits {
	status := t.text("proc/self/status")
	l := Limits{CPUs: t.allowed(status, "Cpus_allowed_list"), Nodes: t.allowed(status, "Mems_allowed_list")}
	mounts := parseCgroupMounts(t.text("proc/self/mountinfo"))
	groups := parseCgroups(t.text("proc/self/cgroup"))
	for _, g := range t.above(mounts, groups, "") {
		l.lower(parseMax(t.line(g+"/cpu.max")), path.Join("/", g, "cpu.max"))
	}
	for _, g := range t.above(mounts, groups, "cpu") {
		quota, _ := t.number(g + "/cpu.cfs_quota_us")
		period, _ := t.number(g + "/cpu.cfs_period_us")
		l.lower(share(quota, period), path.Join("/", g, "cpu.cfs_quota_us"))
	}
	for _, g := range t.above(mounts, groups, "") {
		t.least(g+"/memory.max", &l.Memory, &l.MemoryFrom)
		t.least(g+"/pids.max", &l.Tasks, &l.TasksFrom)
	}
	for _, g := range t.above(mounts, groups, "memory") {
		t.least(g+"/memory.limit_in_bytes", &l.Memory, &l.MemoryFrom)
	}
	for _, g := range t.above(mounts, groups, "pids") {
		t.least(g+"/pids.max", &l.Tasks, &l.TasksFrom)
	}
	for _, g := range t.above(mounts, groups, "") {
		l.set(t.cpus(g + "/cpuset.cpus.effective"))
	}
	for _, g := range t.above(mounts, groups, "cpuset") {
		l.set(t.cpus(g + "/cpuset.effective_cpus"))
		l.set(t.cpus(g + "/cpuset.cpus"))
	}
	return l
}

func (l *Limits) lower(quota float64, from string) {
	if quota > 0 && (l.Quota == 0 || quota < l.Quota) {
		l.Quota, l.From = quota, from
	}
}

// unlimited is where version 1 of cgroups begins to say that there is no limit: the largest number of whole pages.
const unlimited = 1 << 62

// least takes the limit that a file sets, if it is lower than what is there. "max" is none.
func (t tree) least(name string, limit *int64, from *string) {
	if n, ok := t.number(name); ok && n > 0 && n < unlimited && (*limit == 0 || int64(n) < *limit) {
		*limit, *from = int64(n), path.Join("/", name)
	}
}

func (l *Limits) set(c CPUs) {
	if l.Set == nil && len(c) > 0 {
		l.Set = c
	}
}

// Usable is which CPUs this process may run on: what the kernel allows it, within the cgroup's set; all that are online where neither is told.
func (l Limits) Usable(online CPUs) CPUs {
	switch {
	case l.CPUs != nil && l.Set != nil:
		return l.CPUs.And(l.Set)
	case l.CPUs != nil:
		return l.CPUs
	case l.Set != nil:
		return l.Set
	}
	return online
}

func (t tree) allowed(status, key string) CPUs {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			set, err := ParseCPUs(value)
			if err != nil {
				t.note("proc/self/status: %s: %v", key, err)
			}
			return set
		}
	}
	return nil
}

// above lists the directories of this process's group and of those that it is in, as far as they are mounted here.
func (t tree) above(mounts map[string]hierarchy, groups map[string]string, controller string) (dirs []string) {
	m, mounted := mounts[controller]
	group, member := groups[controller]
	if !mounted {
		m = hierarchy{at: path.Join("sys/fs/cgroup", controller), group: "/"}
	}
	if !member {
		group = "/"
	}
	inside, ok := strings.CutPrefix(group, strings.TrimSuffix(m.group, "/"))
	dir := path.Join(m.at, path.Clean("/"+inside))
	if !ok || !t.exists(dir) { // what is mounted is the group itself, though its path is the host's
		dir = m.at
	}
	for range maxDepth {
		dirs = append(dirs, dir)
		if dir == m.at {
			break
		}
		dir = path.Dir(dir)
	}
	return dirs
}

// maxDepth bounds how many groups are looked at, one in the other.
const maxDepth = 64

// parseMax reads cpu.max: "max 100000" or "1600000 100000", of 100 ms if only one number is there.
func parseMax(text string) float64 {
	words := strings.Fields(text)
	if len(words) == 0 {
		return 0
	}
	period := 100000
	if len(words) > 1 {
		period, _ = strconv.Atoi(words[1])
	}
	quota, _ := strconv.Atoi(words[0]) // max is no number: none
	return share(quota, period)
}

// share is a quota in CPUs; -1 is none.
func share(quota, period int) float64 {
	if quota <= 0 || period <= 0 {
		return 0
	}
	return float64(quota) / float64(period)
}

// parseCgroups reads /proc/self/cgroup: "4:memory:/a", "3:cpu,cpuacct:/b", "0::/c". The unified hierarchy's controller is "".
func parseCgroups(text string) map[string]string {
	groups := map[string]string{}
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(parts) != 3 || !path.IsAbs(parts[2]) {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			groups[controller] = path.Clean(parts[2])
		}
	}
	return groups
}

// parseCgroupMounts finds in /proc/self/mountinfo where cgroups are: "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu".
func parseCgroupMounts(text string) map[string]hierarchy {
	mounts := map[string]hierarchy{}
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 || !path.IsAbs(left[4]) || !path.IsAbs(left[3]) {
			continue
		}
		h := hierarchy{at: strings.TrimPrefix(path.Clean(left[4]), "/"), group: path.Clean(left[3])}
		var controllers []string
		switch right[0] {
		case "cgroup2":
			controllers = []string{""}
		case "cgroup":
			controllers = slices.DeleteFunc(strings.Split(right[2], ","), func(word string) bool { return word == "" || word == "rw" || word == "ro" })
		}
		for _, c := range controllers {
			if _, known := mounts[c]; !known {
				mounts[c] = h
			}
		}
	}
	return mounts
}
