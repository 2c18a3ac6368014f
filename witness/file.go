package witness

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// fileOf is the path that a worker is at just now; if it is at none, that which a process that it started waits for in state D, as a
// data loader does on a dead file system.
func (w *Witness) fileOf(t *tree) string {
	path := w.file(t.main.PID)
	for _, p := range t.below {
		if path == "" && p.State == 'D' {
			path = w.file(p.PID)
		}
	}
	return path
}

// onFiles are the system calls whose first argument is a descriptor that is read from or written to.
var onFiles = map[int]bool{
	unix.SYS_READ: true, unix.SYS_READV: true, unix.SYS_PREAD64: true, unix.SYS_PREADV: true, unix.SYS_PREADV2: true,
	unix.SYS_WRITE: true, unix.SYS_WRITEV: true, unix.SYS_PWRITE64: true, unix.SYS_PWRITEV: true, unix.SYS_PWRITEV2: true,
	unix.SYS_FSYNC: true, unix.SYS_FDATASYNC: true, unix.SYS_SYNC_FILE_RANGE: true, unix.SYS_SYNCFS: true, unix.SYS_FTRUNCATE: true,
	unix.SYS_FSTAT: true, unix.SYS_GETDENTS64: true, unix.SYS_FLOCK: true, unix.SYS_LSEEK: true,
}

// file is the path on which a process is inside a system call just now; "" if there is none, or if it is not told: that asks for
// the rights of a debugger (proc_pid_syscall(5)).
func (w *Witness) file(pid int) string {
	call, fd := w.call(pid)
	if !onFiles[call] {
		return ""
	}
	path, _ := os.Readlink(w.path(pid, "fd", strconv.Itoa(fd)))
	if !strings.HasPrefix(path, "/") { // "socket:[7]", "pipe:[8]"
		return ""
	}
	return path
}

// call is the system call in which a process is, or the thread of it that is in a directory, and its first argument as a descriptor; -1: it is in none,
// or that is not told.
func (w *Witness) call(pid int, in ...string) (call, fd int) {
	f := strings.Fields(w.read(pid, append(in, "syscall")...)) // number, six arguments in hexadecimal, stack and instruction pointer
	if len(f) < 2 {
		return -1, -1
	}
	call, err := strconv.Atoi(f[0])
	first, errFirst := strconv.ParseUint(f[1], 0, 64)
	if err != nil || errFirst != nil {
		return -1, -1
	}
	return call, int(int32(first))
}

// storing are the system calls that wait until a file system has taken what was written before, or is written now. What a FUSE or network file system
// uploads when a file is closed shows nowhere else: the bytes were counted when they were written.
var storing = map[int]bool{
	unix.SYS_CLOSE: true, unix.SYS_FSYNC: true, unix.SYS_FDATASYNC: true, unix.SYS_SYNC_FILE_RANGE: true, unix.SYS_SYNCFS: true, unix.SYS_SYNC: true, unix.SYS_MSYNC: true,
	unix.SYS_FTRUNCATE: true, unix.SYS_FALLOCATE: true, unix.SYS_RENAMEAT: true, unix.SYS_RENAMEAT2: true, unix.SYS_COPY_FILE_RANGE: true,
	unix.SYS_WRITE: true, unix.SYS_WRITEV: true, unix.SYS_PWRITE64: true, unix.SYS_PWRITEV: true, unix.SYS_PWRITEV2: true, unix.SYS_SENDFILE: true,
}

// elsewhere are the beginnings of where in the kernel such a call waits for something else: the reader of a pipe, a peer, a terminal, a lock of the
// process's memory, or to be continued.
var elsewhere = []string{"pipe_", "anon_pipe_", "eventfd_", "sock_", "sk_", "wait_woken", "unix_", "tcp_", "inet_", "n_tty_", "tty_", "rwsem_", "futex_", "do_signal_stop", "ptrace_stop", "do_freezer_trap", "__refrigerator"}

// mostThreads is how many of a worker's threads are looked at.
const mostThreads = 256

// stores reports whether a thread of a worker waits for a file system that is to take what was written, or the main thread of a process that it started does.
func (w *Witness) stores(t *tree) bool {
	for _, p := range t.below {
		if w.storesIn(p.PID) {
			return true
		}
	}
	threads := slices.Sorted(maps.Keys(t.threads)) // the main one first
	for _, thread := range append([]int{t.stored}, threads[:min(len(threads), mostThreads)]...) {
		if thread != 0 && w.storesIn(t.main.PID, "task", strconv.Itoa(thread)) {
			t.stored = thread
			return true
		}
	}
	return false
}

func (w *Witness) storesIn(pid int, in ...string) bool {
	call, _ := w.call(pid, in...)
	at := ""
	if storing[call] {
		at = w.waits(pid, in...)
	}
	return at != "" && !slices.ContainsFunc(elsewhere, func(begin string) bool { return strings.HasPrefix(at, begin) })
}

// frozen reports whether the cgroup of a process is frozen, or one above it. The kernel tells the latter in each cgroup below.
func (w *Witness) frozen(pid int) bool {
	for line := range strings.Lines(w.read(pid, "cgroup")) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(part) < 3:
		case part[0] == "0": // Documentation/admin-guide/cgroup-v2.rst
			if number(w.group("", part[2], "cgroup.events")+w.group("unified", part[2], "cgroup.events"), "frozen ") == 1 {
				return true
			}
		case slices.Contains(strings.Split(part[1], ","), "freezer"): // cgroup-v1/freezer-subsystem.rst
			if state := strings.TrimSpace(w.group("freezer", part[2], "freezer.state")); state != "" && state != "THAWED" {
				return true
			}
		}
	}
	return false
}

// group returns a file of a cgroup. In a container the hierarchy may be mounted from the container's own cgroup on, and the path,
// which begins at the machine's, means nothing there.
func (w *Witness) group(hierarchy, path, file string) string {
	top := filepath.Join(w.root, "sys/fs/cgroup", hierarchy)
	for _, dir := range []string{filepath.Join(top, filepath.Clean("/"+path)), top} {
		if text, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
			return string(text)
		}
	}
	return ""
}
