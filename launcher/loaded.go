package launcher

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/proc"
)

// This file notices workers that are of another framework than PyTorch, by whose contract each of them trains alone, and looks like success.

// loaded is which one all workers of this node have loaded. What it reads of a process may wait for that in the kernel: nothing else waits for it.
type loaded struct {
	busy chan struct{} // holds one while it looks; nil: it never does
	name atomic.Value  // string; none while it is not known
	said atomic.Bool   // or nothing is to be said: they have met by PyTorch

	// Of the looking goroutine.
	next  time.Time
	since time.Time // when it was known
}

// How long workers that have loaded it may have no process group of PyTorch's: before they make one they may load much else, the more so where they
// have loaded PyTorch, too.
const (
	lateLoaded = 30 * time.Second
	lateBoth   = 3 * time.Minute
)

// maxLooked bounds the processes of a worker that are looked at.
const maxLooked = 16

// loads looks, when it is time, what the workers of this node have loaded, and returns what there is to say of that.
func (w *watch) loads(now time.Time, pids []int, pages []page.Snapshot) string {
	l := &w.loaded
	switch {
	case slices.ContainsFunc(pages, grouped):
		l.said.Store(true)
		return ""
	case l.busy == nil || w.foreign || w.world.Size() < 2 || len(pids) != len(pages) || l.said.Load():
		return ""
	case l.name.Load() == nil && !now.Before(l.next):
		l.next, l.since = now.Add(min(max(nestedFirst, now.Sub(w.began)/nestedPart), nestedMost)), now
		l.look(pids, pages)
		return ""
	}
	patience := lateLoaded
	if slices.ContainsFunc(pages, hooked) {
		patience = lateBoth
	}
	if now.Sub(l.since) < patience {
		return ""
	}
	return l.alone(w.world.Size())
}

// grouped reports whether a worker has, or had, a process group of PyTorch's.
func grouped(s page.Snapshot) bool { return s.Grouped || s.Met }

// hooked reports whether a worker has PyTorch, and would tell of one.
func hooked(s page.Snapshot) bool { return s.PID != 0 }

// look looks once, unless it still does.
func (l *loaded) look(pids []int, pages []page.Snapshot) {
	select {
	case l.busy <- struct{}{}:
		go func() {
			defer func() { <-l.busy }()
			if name := loadedBy(pids, pages); name != "" {
				l.name.Store(name)
			}
		}()
	default:
	}
}

// loadedBy is the framework that all these workers have loaded, themselves or a process below them; "": there is none, or one has PyTorch, too, and would not
// tell of a process group.
func loadedBy(pids []int, pages []page.Snapshot) (name string) {
	all, err := proc.Root("/proc").All()
	if err != nil {
		return ""
	}
	for i, pid := range pids {
		its := loadedIn(append([]proc.Process{{PID: pid}}, proc.Below(all, pid)...))
		both := slices.Contains(its, framework.Default)
		its = slices.DeleteFunc(its, func(n string) bool { return n == framework.Default })
		if len(its) == 0 || i > 0 && its[0] != name || both && !hooked(pages[i]) {
			return ""
		}
		name = its[0]
	}
	return name
}

// loadedIn are the frameworks that the first of these processes has loaded that has loaded any.
func loadedIn(all []proc.Process) []string {
	for _, p := range all[:min(len(all), maxLooked)] {
		if names := framework.Loaded(mapsOf(p.PID)); len(names) > 0 {
			return names
		}
	}
	return nil
}

// alone returns what there is to say, once, of workers that are known to have loaded another framework.
func (l *loaded) alone(size int) string {
	name, known := l.name.Load().(string)
	if !known || l.said.Swap(true) {
		return ""
	}
	return fmt.Sprintf("the workers of this node have loaded %[1]s, and none is in a process group of PyTorch's: as --framework %[2]s has it, each of the job's %[3]d ranks is a training of its own, "+
		"unless the script makes a world of them itself; is it to be --framework %[1]s?", name, framework.Default, size)
}

// loadedAlone is alone of workers that have all ended well.
func (w *watch) loadedAlone() string {
	if w == nil {
		return ""
	}
	w.mu.Lock()
	other := slices.ContainsFunc(w.over, func(e exited) bool { return !e.well })
	w.mu.Unlock()
	for local := range w.pages {
		other = other || grouped(w.read(local))
	}
	if other {
		return ""
	}
	return w.loaded.alone(w.world.Size())
}
