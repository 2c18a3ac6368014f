package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/muster-run/muster/dialect"
	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/proc"
)

// This file finds real launchers, which would start workers in each worker, from outside: those that the hook for Python is not in, as under a
// program that imported PyTorch before it called one.

// How long a process with a launcher's words may take to become muster, or to be refused: the hook of Python does so, once Python has started.
const (
	withoutHook = 2 * time.Second
	withHook    = 20 * time.Second
)

// Launchers are real ones, and when each was first seen. The zero Launchers has seen none.
type Launchers map[proc.Process]time.Time

// Look looks for those among all that are a process or below it, and returns one that is not about to become something else, and what it is. hook
// begins the directories of hooks in PYTHONPATH.
func (l *Launchers) Look(all []proc.Process, root int, hook string, now time.Time) (found proc.Process, as string) {
	seen := Launchers{}
	at := slices.IndexFunc(all, func(p proc.Process) bool { return p.PID == root })
	for _, p := range append(proc.Below(all, root), all[max(at, 0):at+1]...) {
		call, ok := RealLauncher(p, all, root)
		if !ok {
			continue
		}
		key := proc.Process{PID: p.PID, Start: p.Start}
		seen[key] = now
		if at, before := (*l)[key]; before {
			seen[key] = at
		}
		patience := withoutHook
		if strings.Contains(proc.Root("/proc").Getenv(p.PID, "PYTHONPATH"), hook) {
			patience = withHook
		}
		if as == "" && now.Sub(seen[key]) >= patience {
			found, as = p, call
		}
	}
	*l = seen
	return found, as
}

// RealLauncher reports which launcher a process is that is root or below it, and neither muster nor below another muster there, who cares for what is
// below itself.
func RealLauncher(p proc.Process, all []proc.Process, root int) (as string, ok bool) {
	for at := p.PID; at != root; {
		i := slices.IndexFunc(all, func(o proc.Process) bool { return o.PID == at })
		if i < 0 || at != p.PID && runsMuster(at) {
			return "", false
		}
		at = all[i].Parent
	}
	argv := argvOf(p.PID)
	call, ok := dialect.Of(argv)
	if !ok || runsMuster(p.PID) || !dialect.Theirs(fileOf(p.PID, argv, call), isThere) {
		return "", false
	}
	if !slices.Contains([]string{"", "0", "false", "f", "no", "n", "off"}, strings.ToLower(proc.Root("/proc").Getenv(p.PID, "MUSTER_BYPASS"))) {
		return "", false
	}
	return cmp.Or(call.Python, argv[0]) + " " + call.As, true
}

// fileOf is the file of the launcher that a process is, as far as it is one by that file's name.
func fileOf(pid int, argv []string, call dialect.Call) string {
	if call.Python == "" {
		file, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		return cmp.Or(file, argv[0])
	}
	i := slices.IndexFunc(argv[1:], func(arg string) bool { return filepath.Base(arg) == call.As })
	if i < 0 { // it is a module
		return call.As
	}
	dir, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if file := argv[1+i]; !filepath.IsAbs(file) {
		return filepath.Join(dir, file)
	}
	return argv[1+i]
}

// runsMuster reports whether a process runs this program, or another one of its name.
func runsMuster(pid int) bool {
	exe := fmt.Sprintf("/proc/%d/exe", pid)
	path, _ := os.Readlink(exe)
	self, err1 := os.Stat("/proc/self/exe")
	its, err2 := os.Stat(exe)
	return strings.HasPrefix(filepath.Base(path), "muster") || errors.Join(err1, err2) == nil && os.SameFile(self, its)
}

// argvOf is a process' command line; nil where it cannot be read, or the process has none.
func argvOf(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A nested looks for real launchers in workers that have not begun to train. What it reads of a process may wait for that in the kernel: nothing else
// waits for it.
type nested struct {
	next    time.Time
	busy    chan struct{} // holds one while it looks
	refused Launchers     // of the one that looks
}

// It looks the less often the longer it found nobody.
const (
	nestedFirst = 2 * time.Second
	nestedPart  = 10 // of the time since the begin
	nestedMost  = time.Minute
)

// launchers looks, when it is time, for real launchers in workers of this node that have not begun to train, and refuses them.
func (w *watch) launchers(now time.Time, pids []int, pages []page.Snapshot) {
	n := &w.nested
	if w.foreign || w.world.Size() < 2 || now.Before(n.next) || len(pids) != len(pages) {
		return
	}
	n.next = now.Add(min(max(nestedFirst, now.Sub(w.began)/nestedPart), nestedMost))
	idle := map[int]int{}
	for local, s := range pages {
		if pids[local] != 0 && !s.Grouped && !s.Met && s.Optimizer == 0 && s.Steps == 0 {
			idle[local] = pids[local]
		}
	}
	if len(idle) == 0 {
		return
	}
	select {
	case n.busy <- struct{}{}:
		go func() {
			defer func() { <-n.busy }()
			n.look(w, idle)
		}()
	default:
	}
}

// look looks once, and again while there is one of whom it is not known yet.
func (n *nested) look(w *watch, idle map[int]int) {
	seen := map[int]*Launchers{}
	for again := true; again; {
		all, err := proc.Root("/proc").All()
		if err != nil {
			return
		}
		again = false
		for local, pid := range idle {
			if seen[local] == nil {
				seen[local] = &Launchers{}
			}
			p, as := seen[local].Look(all, pid, "/hook-", time.Now())
			key := proc.Process{PID: p.PID, Start: p.Start}
			if _, before := n.refused[key]; as != "" && !before {
				n.refused[key] = time.Now()
				w.refuse(local, pid, p, as)
			}
			again = again || as == "" && len(*seen[local]) > 0
		}
		select {
		case <-w.ctx.Done():
			return
		case <-time.After(withoutHook):
		}
	}
}

// refuse stops a real launcher in a worker, and leaves why, as who calls one by a link to muster does.
func (w *watch) refuse(local, pid int, p proc.Process, as string) {
	rank := w.world.Members[w.group].First + local
	why := fmt.Errorf("%s in a worker would start workers in each of the job's %d; let muster start it (muster run -- and that command line), "+
		"or make it a link to muster; MUSTER_BYPASS=1 allows it", as, w.world.Size())
	w.c.Log.Warn(fmt.Sprintf("rank %d (pid %d): %v; it was stopped", rank, p.PID, why))
	Refuse(func(name string) string { return proc.Root("/proc").Getenv(pid, name) }, why)
	if again, err := proc.Root("/proc").Process(p.PID); err == nil && again.Start == p.Start {
		_ = syscall.Kill(p.PID, syscall.SIGTERM)
	}
}
