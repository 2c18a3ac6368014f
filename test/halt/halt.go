// Package halt stops processes for tests, for as long as they need.
package halt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	patience = 4 * time.Minute      // until all of a process stands
	pause    = 1 * time.Millisecond // between two looks
)

// Stop sends a process SIGSTOP and returns when it does nothing any more: a thread that has a processor runs on until it hears of the signal,
// and may answer meanwhile. SIGCONT makes it go on.
func Stop(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stop process %d: %v", pid, err)
	}
	for end := time.Now().Add(patience); !stands(pid); time.Sleep(pause) {
		if time.Now().After(end) {
			t.Fatalf("process %d does not stop", pid)
		}
	}
}

// stands reports whether all threads of a process are stopped: their state in /proc/PID/task/TID/stat, proc(5).
func stands(pid int) bool {
	all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range all {
		text, err := os.ReadFile(path)
		_, state, _ := strings.Cut(string(text), ") ")
		if err == nil && !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return len(all) > 0
}
