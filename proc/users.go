package proc

import (
	"os"
	"path/filepath"
	"slices"
)

// Users returns the processes that hold one of these files open (proc_pid_fd(5)), as far as this user may see that.
func (r Root) Users(files ...string) ([]Process, error) {
	if len(files) == 0 {
		return nil, nil
	}
	all, err := r.All()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p Process) bool { return !r.holds(p.PID, files) }), nil
}

// holds reports whether pid has one of files open. A process that ends has none.
func (r Root) holds(pid int, files []string) bool {
	dir := r.path(pid, "fd")
	fds, _ := os.ReadDir(dir)
	return slices.ContainsFunc(fds, func(fd os.DirEntry) bool {
		to, _ := os.Readlink(filepath.Join(dir, fd.Name()))
		return slices.Contains(files, to)
	})
}
