package main

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/muster-run/muster/launcher"
	"github.com/muster-run/muster/proc"
)

// This file looks at what a shell script runs: real launchers, and jobs that go on when it has ended.

// A shellWatch looks whether a script runs a real launcher, until it is closed.
type shellWatch struct {
	s    shell
	seen launcher.Launchers
	as   string // the one that was found
	stop chan struct{}
	done chan struct{}
}

func watchFor(s shell) *shellWatch {
	w := &shellWatch{s: s, stop: make(chan struct{}), done: make(chan struct{})}
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

// look looks once, and tells everybody to stop if there is a real launcher.
func (w *shellWatch) look(now time.Time) {
	if w.as != "" {
		return
	}
	all, err := proc.Root("/proc").All()
	if err != nil {
		return
	}
	p, as := w.seen.Look(all, os.Getpid(), w.s.links+"/", now)
	if as == "" {
		return
	}
	w.as = fmt.Sprintf("%s (pid %d)", as, p.PID)
	fmt.Fprintf(os.Stderr, "muster: %s runs %s, which is not muster: stopping it\n", w.s.name, w.as)
	_ = syscall.Kill(p.PID, syscall.SIGTERM)
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM) // which goes on to the script
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
		} else if _, real := launcher.RealLauncher(p, all, os.Getpid()); real {
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
