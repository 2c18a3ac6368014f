package chaos

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/muster-run/muster/proc"
)

// descriptors are how many a node's first process and its agent have open.
func (l *lap) descriptors(i int) (counts []int) {
	l.t.Helper()
	for _, pid := range []int{l.hosts[i].Program().First(), l.agent(i)} {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		l.must(err)
		counts = append(counts, len(open))
	}
	return counts
}

// leaksDescriptors looks at a job that still runs: after many faults its processes have no more open than when it began, but for a connection that is
// just made anew.
func (l *lap) leaksDescriptors() {
	l.t.Helper()
	const few = 8
	most := 0
	for _, n := range l.open {
		most = max(most, n)
	}
	for i := range l.hosts {
		for _, n := range l.descriptors(i) {
			if n > most+few {
				l.t.Errorf("h%d has %d descriptors; none had more than %d", i, n, most)
			}
		}
	}
}

// leaks looks at what a job has left that came to its end: nothing runs, lies about, or forbids anything.
func (l *lap) leaks() {
	l.t.Helper()
	if rules, err := l.Switch.Command("-n", "nft", "list", "ruleset").CombinedOutput(); err != nil || len(rules) > 0 {
		l.t.Errorf("left in the network: %s %v", rules, err)
	}
	for _, h := range l.hosts {
		if left := h.Processes(); len(left) > 0 {
			l.t.Errorf("left on %s: %+v", h.Own, left)
		}
		for _, dir := range []string{h.Dir, "/dev/shm"} {
			if left := strings.TrimSpace(h.Ask("find", dir, "-mindepth", "1")); left != "" {
				l.t.Errorf("left on %s: %s", h.Own, left)
			}
		}
	}
}

// inhabitants are all processes in the machines' namespaces.
func (l *lap) inhabitants() (all []proc.Process) {
	l.t.Helper()
	kinds, ours := []string{"net", "pid", "mnt", "ipc", "uts"}, map[string]bool{}
	name := func(pid int, kind string) string {
		name, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		return name
	}
	for _, m := range l.Machines() {
		for _, kind := range kinds {
			if in := name(m.PID(), kind); m.Alive() && in != "" && in != name(os.Getpid(), kind) {
				ours[in] = true
			}
		}
	}
	running, err := proc.Root("/proc").All()
	l.must(err)
	for _, p := range running {
		if slices.ContainsFunc(kinds, func(kind string) bool { return ours[name(p.PID, kind)] }) {
			all = append(all, p)
		}
	}
	return all
}

// left are those of them that still run. Namespaces are not looked for again: the kernel gives their numbers to others at once.
func left(all []proc.Process) (names []string) {
	for _, p := range all {
		if now, err := proc.Root("/proc").Process(p.PID); err == nil && now.Start == p.Start && now.State != 'Z' {
			names = append(names, fmt.Sprintf("%d %s", p.PID, p.Name))
		}
	}
	return names
}
