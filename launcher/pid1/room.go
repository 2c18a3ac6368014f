package pid1

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// What the first process and the agent cannot do without. With less Go itself gives up, in its own words and with its
// own exit code. Measured: one worker is started and watched with 16 open files and with 40 processes and threads.
const (
	leastFiles = 32
	leastTasks = 48
)

// cramped says which of the limits that we were started with leaves no room for us: "" if none does. Go raised the
// soft limit of open files to the hard one, for us and not for our children (package os, rlimit.go).
func cramped(files, tasks uint64) string {
	if n := limit(unix.RLIMIT_NOFILE); n < files {
		return fmt.Sprintf("no room to start: ulimit -n is %d, and muster needs %d open files; raise that limit", n, files)
	}
	if n := limit(unix.RLIMIT_NPROC); n < tasks && os.Geteuid() != 0 { // the kernel does not count root's
		return fmt.Sprintf("no room to start: ulimit -u is %d, and muster needs %d processes and threads beside all others of this user; raise that limit", n, tasks)
	}
	return ""
}

// limit returns a soft limit.
func limit(resource int) uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(resource, &l) != nil {
		return math.MaxUint64
	}
	return l.Cur
}
