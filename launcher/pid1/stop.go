package pid1

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
)

// table is where we find processes.
const table = proc.Root("/proc")

// verdict is the exit code of it all: the agent's, if it ended of its own will.
func (f *first) verdict() int {
	e := f.agentEnd
	switch {
	case f.goodbye && e.Signal == 0:
		return e.Code
	case f.goodbye:
		return f.code
	case !f.hello && e.Signal == 0: // either what it was told was wrong, or Go gave up: for want of threads
		f.complain("the agent ended before it began (exit code %d); if it did not say why, there was no room for another process or thread (ulimit -u, pids.max)", e.Code)
		f.words.write("the agent could not start")
		return job.ExitSystem
	case f.sent(e.Signal): // it had no handler for what was meant for it
		return e.Status()
	}
	text := fmt.Sprintf("the agent died (%s)", how(e))
	if n := f.legacy.vain - 1; n >= mostVain {
		text += fmt.Sprintf(", as did the %d before it", n)
	}
	if f.workers() > 0 {
		text += "; workers were stopped"
	}
	f.complain("%s", text)
	f.words.write(text) // now: our own end may have to wait for a process that does not die
	return f.cfg.LostCode
}

func (f *first) workers() int {
	n := 0
	for _, c := range f.children {
		if c.alive && c.tag != "" {
			n++
		}
	}
	return n
}

// stopWorkers ends workers that the agent left, in order: TERM to each leader, the grace, and then sweep comes.
func (f *first) stopWorkers() {
	f.dropQueue()
	f.loop(func() bool { return !f.forking }, time.After(killTime))
	if f.workers() == 0 {
		return
	}
	for pid, c := range f.children {
		if c.alive && c.tag != "" {
			_ = unix.Kill(pid, unix.SIGTERM)
			_ = unix.Kill(-pid, unix.SIGCONT) // one that is stopped could not obey
		}
	}
	if !f.loop(func() bool { return f.workers() == 0 }, time.After(f.cfg.Grace)) {
		f.complain("%d workers did not end within %v of TERM and are killed", f.workers(), f.cfg.Grace)
	}
}

// sweep kills everything below us that still lives, and reaps it. It does not wait for ever: a process in an
// uninterruptible sleep does not die, and our caller waits for us.
func (f *first) sweep() {
	f.reap()
	defer func() {
		for _, c := range f.filled {
			c.remove()
		}
	}()
	for _, c := range f.children {
		c.cgroup.kill()
		defer c.cgroup.close()
	}
	if !childless() {
		f.killAll()
	}
	f.closeConsoles()
}

func (f *first) killAll() {
	spared := f.known.inherited
	ctx, cancel := context.WithTimeout(context.Background(), killTime)
	defer cancel()
	over := false
	go func() {
		left, err := table.Kill(ctx, proc.Hunt{
			Find:  func(all []proc.Process) []proc.Process { return ours(all, spared) },
			Ended: f.orphans.Load,
		})
		f.spawner.done <- func() {
			over = true
			if text := describe(left, err); text != "" {
				f.complain("%s; going on without it", text)
			}
		}
	}()
	f.loop(func() bool { return over }, nil)
	f.reap()
}

// ours is everything below this process, except what was here before us and its children.
func ours(all []proc.Process, spared []proc.Process) []proc.Process {
	keep := map[int]bool{}
	for _, s := range spared {
		keep[s.PID] = true
		for _, p := range proc.Below(all, s.PID) {
			keep[p.PID] = true
		}
	}
	return slices.DeleteFunc(proc.Below(all, os.Getpid()), func(p proc.Process) bool { return keep[p.PID] })
}

// describe names processes that do not die: "" when there are none.
func describe(left []proc.Process, err error) string {
	if err != nil {
		return err.Error()
	}
	if len(left) == 0 {
		return ""
	}
	var why []string
	for _, p := range left[:min(len(left), 8)] {
		why = append(why, table.Why(p))
	}
	if len(left) > 8 {
		why = append(why, fmt.Sprintf("and %d more", len(left)-8))
	}
	return strings.Join(why, ", ") + " and cannot be killed"
}

// trees are processes to be killed with all they started.
type trees struct {
	targets []proc.Target
	last    bool   // no other worker lives
	since   uint64 // proc.Process.Start of the first worker of those that lived together
	known   *registry
	ended   func() int64 // counts orphans
	cgroups []cgroup
}

func (f *first) treesOf(pids []int) trees {
	t := trees{known: &f.known, ended: f.orphans.Load, last: true, since: f.since}
	for pid, c := range f.children {
		switch {
		case slices.Contains(pids, pid):
			t.targets = append(t.targets, proc.Target{PID: pid, Start: c.started, Tag: c.tag})
			t.cgroups = append(t.cgroups, c.cgroup)
			c.cgroup = cgroup{}
		case c.alive && c.tag != "":
			t.last = false
		}
	}
	return t
}

// kill returns what could not be killed before ctx ended, in words.
func (t trees) kill(ctx context.Context) string {
	if len(t.targets) == 0 {
		return ""
	}
	for _, c := range t.cgroups {
		c.kill()
	}
	return describe(table.Kill(ctx, proc.Hunt{Find: t.find, Ended: t.ended}))
}

// clear removes what is left of the workers that were killed but no process, and returns the cgroups in which something still is.
func (t trees) clear() (filled []cgroup) {
	for _, c := range t.cgroups {
		if !c.close() {
			filled = append(filled, c)
		}
	}
	return filled
}

// find picks the members of the trees. Once those are gone, and no other worker lives, every orphan that we adopted since
// the first worker's start is a leftover too: one that left its session and wiped its environment is found no other way.
func (t trees) find(all []proc.Process) []proc.Process {
	found := table.Tree(all, t.targets...)
	if !t.last || slices.ContainsFunc(found, func(p proc.Process) bool { return !p.Gone() }) {
		return found
	}
	for _, p := range t.strangers(all) {
		found = append(append(found, p), proc.Below(all, p.PID)...)
	}
	return found
}

// strangers are children of ours that we did not start, not older than the workers and not another worker's.
func (t trees) strangers(all []proc.Process) []proc.Process {
	t.known.fork.Lock() // a child just forked is in all, but perhaps not yet known
	defer t.known.fork.Unlock()
	return slices.DeleteFunc(slices.Clone(all), func(p proc.Process) bool {
		return p.Parent != os.Getpid() || p.Start < t.since || t.known.has(p.PID) || !lives(p) ||
			table.Getenv(p.PID, proc.TagName) != ""
	})
}

// lives looks again: a child of ours that was reaped since all were seen is not known any more, and what is below it is not a stranger's.
func lives(p proc.Process) bool {
	now, err := table.Process(p.PID)
	return err == nil && now.Start == p.Start && !now.Gone()
}

// inherited returns the children that this process had before it became the first process: a shell's that said exec.
func inherited() []proc.Process {
	if childless() {
		return nil
	}
	pids, _ := table.Children(os.Getpid())
	var found []proc.Process
	for _, pid := range pids {
		if p, err := table.Process(pid); err == nil {
			found = append(found, p)
		}
	}
	return found
}
