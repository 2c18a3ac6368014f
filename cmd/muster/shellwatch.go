package main

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
	"github.com/muster-run/muster/proc"
)

// This file looks at what a shell script runs: real launchers, and jobs that go on when it has ended.

// A shellWatch looks whether a script runs a real launcher, until it is closed.
type shellWatch struct {
	s     shell
	first map[proc.Process]time.Time // when one was seen
	found *proc.Process
	as    string
	stop  chan struct{}
	done  chan struct{}
}

func watchFor(s shell) *shellWatch {
	w := &shellWatch{s: s, first: map[proc.Process]time.Time{}, stop: make(chan struct{}), done: make(chan struct{})}
	go w.run()
	return w
}

// close ends the watch, and returns which real launcher it found; "": none. What it reads of a process may wait for that in the kernel.
func (w *shellWatch) close() string {
	close(w.stop)
	select {
	case <-w.done:
		return w.as
	case <-time.After(5 * time.Second):
		return ""
	}
}

func (w *shellWatch) run() {
	defer close(w.done)
	each := time.NewTicker(time.Second)
	defer each.Stop()
	for {
		select {
		case <-w.stop:
			return
		case now := <-each.C:
			w.look(now)
		}
	}
}

// How long a process with a launcher's words may take to become muster: the hook of Python does so, once Python has started.
const (
	withoutHook = 2 * time.Second
	withHook    = 20 * time.Second
)

// look looks once, and tells everybody to stop if there is a real launcher.
func (w *shellWatch) look(now time.Time) {
	if w.found != nil {
		return
	}
	all, err := proc.Root("/proc").All()
	if err != nil {
		return
	}
	seen := map[proc.Process]time.Time{}
	for _, p := range proc.Below(all, os.Getpid()) {
		as, ok := realLauncher(p, all)
		if !ok {
			continue
		}
		key := proc.Process{PID: p.PID, Start: p.Start}
		seen[key] = now
		if at, before := w.first[key]; before {
			seen[key] = at
		}
		patience := withoutHook
		if strings.Contains(proc.Root("/proc").Getenv(p.PID, "PYTHONPATH"), w.s.links+"/") {
			patience = withHook
		}
		if now.Sub(seen[key]) >= patience {
			w.found, w.as = &p, fmt.Sprintf("%s (pid %d)", as, p.PID)
			fmt.Fprintf(os.Stderr, "muster: %s runs %s, which is not muster: stopping it\n", w.s.name, w.as)
			_ = syscall.Kill(p.PID, syscall.SIGTERM)
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM) // which goes on to the script
			return
		}
	}
	w.first = seen
}

// realLauncher reports which launcher a process is that is not muster, nor below another muster, who cares for what is there.
func realLauncher(p proc.Process, all []proc.Process) (as string, ok bool) {
	argv := argvOf(p.PID)
	call, ok := dialect.Of(argv)
	if !ok || isMuster(p.PID) || !dialect.Theirs(fileOf(p.PID, argv, call), isThere) {
		return "", false
	}
	if yes, _ := truth(proc.Root("/proc").Getenv(p.PID, bypass)); yes == "true" {
		return "", false
	}
	for parent := p.Parent; parent != os.Getpid(); {
		i := slices.IndexFunc(all, func(o proc.Process) bool { return o.PID == parent })
		if i < 0 || isMuster(parent) {
			return "", false
		}
		parent = all[i].Parent
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

// isMuster reports whether a process runs this program, or another one of its name.
func isMuster(pid int) bool {
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

// callTime is how long something that a script leaves behind may take to call a launcher, if it is as young as that, or none was called before.
const callTime = 5 * time.Second

// stays are the processes below this one whose end is to be waited for once the script has ended: the jobs that it started, what is about to become
// one, and where there was none yet, for a moment all that it left behind.
func (s *shell) stays(over bool) (pids []int) {
	called := s.called() // before the look at processes: one that was called and is not there has ended
	all, err := proc.Root("/proc").All()
	if err != nil {
		return nil
	}
	first := over && s.over.IsZero()
	if first {
		s.over, s.before = time.Now(), called
	}
	var left []int
	young := false
	for _, p := range proc.Below(all, os.Getpid()) {
		if p.Gone() {
			continue
		}
		left, young = append(left, p.PID), young || p.Age() < callTime
		if called.running(p.PID) {
			pids = append(pids, p.PID)
			if first {
				s.alive = append(s.alive, p.PID)
			}
		} else if _, real := realLauncher(p, all); real {
			pids = append(pids, p.PID)
		}
	}
	switch {
	case !over:
	case len(pids) == 0 && (young || len(called) == 0) && time.Since(s.over) < callTime:
		return left
	case len(pids) > 0 && !s.told:
		s.told = true
		fmt.Fprintf(os.Stderr, "muster: %s has ended, and left %s running in it: waiting for that\n", s.name, s.Call)
	}
	return pids
}
