package pid1

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
)

// reapAtOnce bounds one turn of reaping, so that a storm of orphans does not keep the loop from all else.
const reapAtOnce = 1000

// reap takes every process that has ended: our children, and orphans that the kernel gave us. It returns how many there were.
func (f *first) reap() int {
	for n := range reapAtOnce {
		e, err := wait()
		if err != nil || e.PID == 0 {
			return n
		}
		f.ended(e)
	}
	return reapAtOnce
}

// wait reaps one process, whatever it is. PID is 0 when none has ended; the error is ECHILD when there is none at all.
// Stopped processes are not waited for: a stop is not an end.
func wait() (proc.Exit, error) {
	var status unix.WaitStatus
	var usage unix.Rusage
	pid, err := unix.Wait4(-1, &status, unix.WNOHANG, &usage)
	for errors.Is(err, unix.EINTR) {
		pid, err = unix.Wait4(-1, &status, unix.WNOHANG, &usage)
	}
	if err != nil || pid == 0 {
		return proc.Exit{}, err
	}
	e := proc.Exit{
		PID: pid, Core: status.CoreDump(), At: time.Now(),
		User: time.Duration(usage.Utime.Nano()), System: time.Duration(usage.Stime.Nano()),
		MaxRSS: usage.Maxrss << 10,
	}
	if status.Signaled() {
		e.Signal = syscall.Signal(status.Signal())
	} else {
		e.Code = status.ExitStatus()
	}
	return e, nil
}

// dead reports whether our child pid has ended and waits to be reaped. A leader with other threads alive has not.
func dead(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

// childless reports whether we have no children at all, and so no descendants: orphans below us become our children.
func childless() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return errors.Is(err, unix.ECHILD)
}
