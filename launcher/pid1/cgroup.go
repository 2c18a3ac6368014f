package pid1

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Where we may, each worker gets a cgroup of its own, for one reason: to write 1 to its cgroup.kill ends whatever the worker
// started, wherever it went, in one stroke. It limits nothing. Documentation/admin-guide/cgroup-v2.rst, Linux 5.14.

// A cgroup is a worker's. The zero cgroup is none.
type cgroup struct {
	dir string
	fd  int // of dir
}

// cgroups makes them, below the cgroup of this process.
type cgroups struct {
	dir string // "": we may not
}

// openCgroups finds out whether this process may divide its cgroup: as the root of what a container sees, or because systemd has
// handed it over (systemd.resource-control(5), Delegate=). Anybody else's cgroup is not ours to divide. root is where the file
// system begins.
func openCgroups(root string) cgroups {
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	mounts, _ := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	at, top := mountOf(string(mounts), "cgroup2")
	for line := range strings.Lines(string(groups)) {
		path, ours := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ours || at == "" {
			continue
		}
		if rel, err := filepath.Rel(top, path); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			path = rel
		}
		dir := filepath.Join(root, at, path)
		var word [8]byte
		n, err := unix.Getxattr(dir, "user.delegate", word[:])
		if (path == "/" || path == "." || err == nil && string(word[:n]) == "1") && !limited(dir) {
			clean(dir)
			return cgroups{dir: dir}
		}
	}
	return cgroups{}
}

// limited reports whether a cgroup has limits of its own. Some programs (Go's and Java's runtimes) look for them in their own
// cgroup and not above it: they would find none.
func limited(dir string) bool {
	for _, file := range []string{"cpu.max", "memory.max", "memory.high", "cpuset.cpus", "pids.max"} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if text := strings.TrimSpace(string(b)); err == nil && text != "" && !strings.HasPrefix(text, "max") {
			return true
		}
	}
	return false
}

// clean removes the cgroups of a first process that was killed. Those that hold a process stay, and those that are being filled,
// perhaps by a process of another PID namespace.
func clean(dir string) {
	old, _ := filepath.Glob(filepath.Join(dir, "muster-*-*"))
	for _, dir := range old {
		if i, err := os.Stat(dir); err == nil && time.Since(i.ModTime()) > time.Minute {
			os.Remove(dir)
		}
	}
}

// mountOf returns where a file system of a kind is mounted, and what of it. The last may lie over the others. proc(5),
// /proc/pid/mountinfo.
func mountOf(mounts, kind string) (at, top string) {
	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(line, " - ")
		f, is := strings.Fields(before), strings.Fields(after)
		if len(f) >= 5 && len(is) > 0 && is[0] == kind {
			at, top = f[4], f[3]
		}
	}
	return at, top
}

// next makes a cgroup. A file system that is read-only, as containers mostly have it, ends the trying.
func (c *cgroups) next() cgroup {
	if c.dir == "" {
		return cgroup{}
	}
	dir, err := os.MkdirTemp(c.dir, fmt.Sprintf("muster-%d-", os.Getpid()))
	if err != nil {
		c.dir = ""
		return cgroup{}
	}
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Faccessat(fd, "cgroup.kill", unix.W_OK, 0) // the root has none; older kernels neither
	}
	if err != nil {
		c.dir = ""
		os.Remove(dir)
		return cgroup{}
	}
	return cgroup{dir, fd}
}

// kill ends all that is in the cgroup.
func (c cgroup) kill() {
	if c.dir != "" {
		_ = os.WriteFile(filepath.Join(c.dir, "cgroup.kill"), []byte("1"), 0) // the hunt sees whether it did
	}
}

// close ends the use of the cgroup for new processes, and removes it.
func (c cgroup) close() (gone bool) {
	if c.dir == "" {
		return true
	}
	unix.Close(c.fd)
	return c.remove()
}

// remove takes the cgroup away, and what a worker made in it. One that still holds a process stays.
func (c cgroup) remove() (gone bool) {
	var below []string
	_ = filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			below = append(below, path)
		}
		return nil
	})
	for _, dir := range slices.Backward(below) {
		os.Remove(dir)
	}
	_, err := os.Lstat(c.dir)
	return err != nil
}
