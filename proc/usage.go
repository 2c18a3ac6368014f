package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what a process has taken so far.
type Usage struct {
	CPU    time.Duration // of all its threads, in user and kernel mode; not of its children
	Memory int64         // bytes that are resident, shared ones included
}

// tick is the unit of times in /proc (USER_HZ, 100 on every architecture that Go runs on).
const tick = time.Second / 100

// Usage returns what pid has taken (proc_pid_stat(5): utime, stime, rss). That there is no such process is os.ErrNotExist.
func (r Root) Usage(pid int) (Usage, error) {
	b, err := os.ReadFile(r.path(pid, "stat"))
	if err != nil {
		return Usage{}, fmt.Errorf("process %d: %w", pid, err)
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:])) // f[0] is field 3 of the manual
	if len(f) < 22 {
		return Usage{}, fmt.Errorf("process %d: strange line %.80q", pid, b)
	}
	user, errU := strconv.ParseInt(f[11], 10, 64)
	system, errS := strconv.ParseInt(f[12], 10, 64)
	pages, errP := strconv.ParseInt(f[21], 10, 64)
	if errU != nil || errS != nil || errP != nil {
		return Usage{}, fmt.Errorf("process %d: strange line %.80q", pid, b)
	}
	return Usage{CPU: time.Duration(user+system) * tick, Memory: pages * int64(os.Getpagesize())}, nil
}

// Threads returns the processor time of each thread of a process, by its number; of one that is gone, of none.
func (r Root) Threads(pid int) map[int]time.Duration {
	tasks := Root(r.path(pid, "task"))
	threads, _ := tasks.pids()
	used := make(map[int]time.Duration, len(threads))
	for _, thread := range threads {
		if u, err := tasks.Usage(thread); err == nil {
			used[thread] = u.CPU
		}
	}
	return used
}

// Age is how long ago p started, by the clock of Start, which goes on while the machine is suspended.
func (p Process) Age() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // cannot fail with this clock
	return time.Duration(now.Nano()) - time.Duration(p.Start)*tick
}
