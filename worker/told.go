package worker

import (
	"slices"
	"time"

	"github.com/muster-run/muster/proc"
)

// table is where we find processes.
const table = proc.Root("/proc")

// toldWith returns whom a signal to m reaches beside its leader, which lives.
func (m *member) toldWith(scope proc.Scope) []proc.Process {
	leader, err := table.Process(m.child.PID)
	if scope == proc.Leader || err != nil {
		return nil
	}
	all, _ := table.All() // without a process table pid1 tells the leader alone, too
	if scope == proc.Tree {
		all = table.Tree(all, proc.Target{PID: leader.PID, Start: leader.Start, Tag: m.tag})
	}
	return slices.DeleteFunc(all, func(p proc.Process) bool {
		return p.PID == leader.PID || scope == proc.Group && p.Group != leader.PID
	})
}

// look is how often we look whether those who were told to end have ended: nobody tells us of a worker's children.
const look = 20 * time.Millisecond

// linger waits for those whom we told to end when we told their worker, which has ended: what they were told for takes
// them as long as it would take a worker. It ends when the time to stop is over, and the trees are killed.
func (g *Group) linger(m *member) {
	m.mu.Lock()
	told := m.told
	m.mu.Unlock()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for slices.ContainsFunc(told, lives) {
		select {
		case <-g.killed:
			return
		case <-tick.C:
		}
	}
}

// lives reports whether p is there, and is not another process with its number.
func lives(p proc.Process) bool {
	now, err := table.Process(p.PID)
	return err == nil && now.Start == p.Start && !now.Gone()
}
