// Package proc finds and kills a process with all it started.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Root is where the kernel shows its processes: "/proc", or a copy of it in a test.
type Root string

// A Process is one line of the process table (proc_pid_stat(5)).
type Process struct {
	PID     int
	Name    string // the kernel's short name, at most 15 bytes
	State   byte   // R, S, D, Z, T, …
	Parent  int    // 0: it has none in this PID namespace, it was put here from outside
	Group   int
	Session int
	Threads int
	Start   uint64 // clock ticks since boot; tells two users of one PID apart
}

// Gone reports whether p has ended and only waits to be reaped.
// A leader that has ended while other threads of it run shows as a zombie and is alive.
func (p Process) Gone() bool {
	return p.State == 'X' || p.State == 'Z' && p.Threads <= 1
}

// Process returns what /proc says of pid. That there is no such process is os.ErrNotExist.
func (r Root) Process(pid int) (Process, error) {
	var line [1024]byte // room for a long name and the 22 fields that count
	n, err := read(r.path(pid, "stat"), line[:])
	if errors.Is(err, unix.ESRCH) {
		err = os.ErrNotExist // it ended between open and read
	}
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return parseStat(string(line[:n]))
}

// read reads the beginning of a file in three system calls. Package os takes ten, for it tries whether the file can be
// waited for; and the whole table is read again and again while workers are stopped.
func read(name string, into []byte) (n int, err error) {
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	if n, err = ignoringEINTR(func() (int, error) { return unix.Read(fd, into) }); err != nil {
		return 0, &os.PathError{Op: "read", Path: name, Err: err}
	}
	return n, nil
}

func ignoringEINTR(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); err != unix.EINTR {
			return n, err
		}
	}
}

// All returns every process, the highest PID first: those come and go most quickly. One that ends meanwhile is left out.
func (r Root) All() ([]Process, error) {
	pids, err := r.pids()
	if err != nil {
		return nil, err
	}
	all := make([]Process, 0, len(pids))
	for _, pid := range pids {
		if p, err := r.Process(pid); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// pids lists the processes, the highest number first.
func (r Root) pids() ([]int, error) {
	d, err := os.Open(string(r))
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.SortFunc(pids, func(a, b int) int { return b - a })
	return pids, nil
}

// Children returns the PIDs whose parent is pid. It costs less than All, and asks for a kernel with
// CONFIG_PROC_CHILDREN; without that the error is os.ErrNotExist.
func (r Root) Children(pid int) ([]int, error) {
	tasks := Root(r.path(pid, "task"))
	threads, err := tasks.pids()
	if err != nil {
		return nil, fmt.Errorf("children of process %d: %w", pid, err)
	}
	var pids []int
	known := false
	for _, thread := range threads {
		b, err := os.ReadFile(tasks.path(thread, "children"))
		if err != nil {
			continue // a thread that ended; the kernel gave its children to another one
		}
		known = true
		for _, field := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	if !known {
		return nil, fmt.Errorf("children of process %d: %w", pid, os.ErrNotExist)
	}
	return pids, nil
}

// maxEnviron bounds what is read of one process's environment. The kernel allows about 6 MiB.
const maxEnviron = 8 << 20

// Getenv returns a variable of the environment that pid was started with, "" if it cannot be read:
// the process is another user's, has ended, or has written over it (as setproctitle does).
func (r Root) Getenv(pid int, name string) string {
	f, err := os.Open(r.path(pid, "environ"))
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxEnviron))
	if err != nil {
		return ""
	}
	for kv := range bytes.SplitSeq(b, []byte{0}) {
		if value, ok := bytes.CutPrefix(kv, []byte(name+"=")); ok {
			return string(value)
		}
	}
	return ""
}

// Why describes p for a message on its refusal to die: "pid 12 (python3) is in state D in nfs_wait_bit", and, if it is
// another user's, "pid 13 (sudo) of user 0 (root) is in state S".
func (r Root) Why(p Process) string {
	text := fmt.Sprintf("pid %d (%s)", p.PID, p.Name)
	if uid, ok := r.owner(p.PID); ok && uid != os.Getuid() {
		text += " of " + userName(uid)
	}
	text += fmt.Sprintf(" is in state %c", p.State)
	wchan, _ := os.ReadFile(r.path(p.PID, "wchan"))
	if w := strings.TrimSpace(string(wchan)); w != "" && w != "0" {
		text += " in " + w
	}
	return text
}

// owner returns the user that pid was started by. (The owner of its files is root where it may not be dumped, proc_pid(5).)
func (r Root) owner(pid int) (uid int, ok bool) {
	status, err := os.ReadFile(r.path(pid, "status"))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok { // real, effective, saved, of the file system
			n, err := fmt.Sscan(ids, &uid)
			return uid, n == 1 && err == nil
		}
	}
	return 0, false
}

// userName is a user for people: "user 1000 (ann)", "user 1001" where nobody knows a name.
func userName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return fmt.Sprintf("user %s (%s)", id, u.Username)
	}
	return "user " + id
}

func (r Root) path(pid int, file string) string {
	return string(r) + "/" + strconv.Itoa(pid) + "/" + file
}

// parseStat reads a line such as "12 (a (b) c) S 1 12 9 …". The name may hold anything, ") S" included,
// so the fields are counted from the last parenthesis.
func parseStat(line string) (Process, error) {
	bad := func() (Process, error) { return Process{}, fmt.Errorf("process table: strange line %.80q", line) }
	first, last := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if first < 0 || last < first {
		return bad()
	}
	f := strings.SplitN(strings.TrimSpace(line[last+1:]), " ", 21) // f[0] is field 3 of the manual, f[20] all that are not looked at
	if len(f) < 20 || len(f[0]) != 1 {
		return bad()
	}
	p := Process{Name: line[first+1 : last], State: f[0][0]}
	var errs [6]error
	p.PID, errs[0] = strconv.Atoi(strings.TrimSpace(line[:first]))
	p.Parent, errs[1] = strconv.Atoi(f[1])
	p.Group, errs[2] = strconv.Atoi(f[2])
	p.Session, errs[3] = strconv.Atoi(f[3])
	p.Threads, errs[4] = strconv.Atoi(f[17])
	p.Start, errs[5] = strconv.ParseUint(f[19], 10, 64)
	if slices.ContainsFunc(errs[:], func(err error) bool { return err != nil }) {
		return bad()
	}
	return p, nil
}

// Catches reports whether pid has a handler for the signal. One that has none would, for most signals, be killed by it.
func (r Root) Catches(pid int, sig syscall.Signal) bool {
	status, err := os.ReadFile(r.path(pid, "status"))
	if err != nil || sig < 1 {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if hex, ok := strings.CutPrefix(line, "SigCgt:"); ok {
			set, _ := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return set>>(sig-1)&1 == 1
		}
	}
	return false
}
