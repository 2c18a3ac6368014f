package worker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-run/muster/proc"
)

// A gate is the accelerators' device files: whoever has one open may hold memory of the device, so the next round's workers
// would find none. The kernel takes long to give back what a process had there, and something that a worker started may have
// got away.
type gate struct {
	job     string // whose workers these are
	devices []string
	before  []proc.Process // who had them open when the round began: not ours to wait for
}

const (
	gateTime = 10 * time.Second      // for the devices to be free
	gateLook = 20 * time.Millisecond // between two looks
)

func newGate(job string, devices []string) gate {
	before, _ := table.Users(devices...) // a table that cannot be read shows nobody later either
	return gate{job, devices, before}
}

// gateOf is the gate of a round that began before our time: whoever is not of its workers' trees had the devices before.
func gateOf(job string, devices []string, heirs []Heir) gate {
	g := newGate(job, devices)
	if len(g.before) == 0 {
		return g
	}
	var targets []proc.Target
	for _, h := range heirs {
		if h.Child != nil {
			leader, _ := table.Process(h.PID) // gone: its tag remains
			targets = append(targets, proc.Target{PID: h.PID, Start: leader.Start, Tag: h.Tag})
		}
	}
	all, _ := table.All()
	ours := table.Tree(all, targets...)
	g.before = slices.DeleteFunc(g.before, func(p proc.Process) bool {
		return slices.ContainsFunc(ours, func(o proc.Process) bool { return o.PID == p.PID })
	})
	return g
}

// wait returns when nobody has a device open who had not before, but for other jobs' workers, which may share it. The error names who does not let go.
func (g gate) wait() error {
	for end := time.Now().Add(gateTime); ; {
		users := g.users()
		switch {
		case len(users) == 0:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%s hold accelerators (%s) %v after the workers' end; the next workers may find no memory there",
				strings.Join(users, ", "), strings.Join(g.devices, ", "), gateTime)
		}
		time.Sleep(gateLook)
	}
}

// others reports whether p belongs to a worker of another job.
func (g gate) others(p proc.Process) bool {
	tag := table.Getenv(p.PID, proc.TagName)
	return tag != "" && !strings.HasPrefix(tag, g.job+"/")
}

func (g gate) users() (names []string) {
	now, _ := table.Users(g.devices...)
	for _, p := range now {
		if !slices.ContainsFunc(g.before, func(old proc.Process) bool { return old.PID == p.PID && old.Start == p.Start }) && !g.others(p) {
			names = append(names, fmt.Sprintf("process %d (%s)", p.PID, p.Name))
		}
	}
	return names
}
