// Package preflight looks for reasons not to start: what of a machine or of its container will stop a job, or make it slow, before the
// job finds out.
package preflight

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/muster-run/muster/job"
)

// A Result is how a check ended. Unknown is neither good nor bad.
type Result int

const (
	Pass Result = iota
	Unknown
	Warn
	Fail // on something that the job needs
)

var results = []string{"pass", "unknown", "warn", "fail"}

func (r Result) String() string { return results[r] }

// MarshalText writes a Result for JSON.
func (r Result) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// A Finding is what a check says of one thing.
type Finding struct {
	Check  string `json:"check"` // its name
	Result Result `json:"result"`
	Found  string `json:"found"`           // what is there, with the thing's name
	Means  string `json:"means,omitempty"` // what comes of it
	Hint   string `json:"hint,omitempty"`  // what to do

	Odd []job.Node `json:"-"` // nodes of a world: those that are not as the others
}

func (f Finding) String() string {
	text := f.Check + ": " + f.Found
	if f.Means != "" {
		text += ": " + f.Means
	}
	if f.Hint != "" {
		text += "; " + f.Hint
	}
	return text
}

// A Need is what the job needs of this machine.
type Need struct {
	Workers int      // of this node; 0: as many as there are GPUs for, or one
	Nodes   int      // of the job
	Dirs    []string // that it will write to: logs, checkpoints, evidence
}

// network reports whether a job's nodes exchange data from GPU to GPU, so that it needs its adapters.
func (n Need) network(h Host) bool { return n.Nodes > 1 && len(h.Machine.Slots()) > 0 }

// A check is one entry of the table: another is one line more.
type check struct {
	name string
	look func(Host, Need) []Finding
}

var checks = []check{
	{"shm", shm},
	{"leftovers", leftovers},
	{"memlock", memlock},
	{"nofile", nofile},
	{"tasks", tasks},
	{"stack", stack},
	{"memory", memory},
	{"quota", quota},
	{"cpuset", cpuset},
	{"numa-balancing", numaBalancing},
	{"disk", disk},
	{"hostname", hostname},
	{"ports", portRange},
	{"gpus", gpus},
	{"gpu-devices", gpuDevices},
	{"driver", driver},
	{"gpu-link", gpuLink},
	{"gpu-memory", gpuMemory},
	{"gpu-clocks", gpuClocks},
	{"gpu-mode", gpuMode},
	{"gpu-persistence", persistence},
	{"nvlink", nvlinks},
	{"pcie", pcieErrors},
	{"fabric", fabric},
	{"xid", xid},
	{"gpudirect", gpuDirect},
	{"acs", acs},
	{"iommu", iommu},
	{"rdma", rdma},
	{"hca", hcas},
	{"hca-rate", hcaRate},
	{"hca-errors", hcaErrors},
	{"verbs", verbs},
	{"gid", gid},
	{"mtu", mtu},
	{"plugin", plugin},
}

// Check makes all checks, the worst findings first. A check that has nothing to look at, such as that of GPUs where there are none, says nothing.
func Check(h Host, n Need) []Finding {
	if n.Workers == 0 {
		n.Workers = max(1, len(h.Machine.Slots()))
	}
	var all []Finding
	for _, c := range checks {
		for _, f := range c.look(h, n) {
			f.Check = c.name
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(b.Result, a.Result) })
	return all
}

// Worst is the worst result among findings.
func Worst(all []Finding) Result {
	worst := Pass
	for _, f := range all {
		worst = max(worst, f.Result)
	}
	return worst
}

// These make findings.

func pass(format string, args ...any) []Finding {
	return []Finding{{Result: Pass, Found: fmt.Sprintf(format, args...)}}
}

func unknown(format string, args ...any) []Finding {
	return []Finding{{Result: Unknown, Found: fmt.Sprintf(format, args...)}}
}

func found(r Result, means, hint, format string, args ...any) []Finding {
	return []Finding{{Result: r, Found: fmt.Sprintf(format, args...), Means: means, Hint: hint}}
}

// needed is Fail for what the job needs, else Warn.
func needed(yes bool) Result {
	if yes {
		return Fail
	}
	return Warn
}

// plural is a number of things.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// size is a number of bytes for people.
func size(n int64) string {
	for _, u := range []struct {
		unit string
		of   int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.of {
			return fmt.Sprintf("%.4g %s", float64(n)/float64(u.of), u.unit)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
