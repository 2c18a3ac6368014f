package witness

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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
	f := strings.Fields(w.read(pid, "syscall")) // number, six arguments in hexadecimal, stack and instruction pointer
	if len(f) < 2 {
		return ""
	}
	call, err := strconv.Atoi(f[0])
	fd, errFD := strconv.ParseUint(f[1], 0, 64)
	if err != nil || errFD != nil || !onFiles[call] {
		return ""
	}
	path, _ := os.Readlink(w.path(pid, filepath.Join("fd", strconv.Itoa(int(int32(fd))))))
	if !strings.HasPrefix(path, "/") { // "socket:[7]", "pipe:[8]"
		return ""
	}
	return path
}

// frozen reports whether the cgroup of a process is frozen, or one above it.
func (w *Witness) frozen(pid int, waits string) bool {
	return waits == "do_freezer_trap" || waits == "__refrigerator"
}
