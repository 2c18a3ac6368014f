package launcher

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/control"
)

// This file is what becomes of directories in memory whose processes were all killed: the machine's next agent removes them. Such memory outlives a
// container, and is as large as its pod may be.

// ownerFile is in a directory, locked: it is somebody's.
const ownerFile = control.Owner

// heldOwner is the name under which the first process has it open, too, for who takes over from this agent.
const heldOwner = "owner"

// ownPages shows that the pages are this run's, and removes those that others left in memory.
func (h *heritage) ownPages(c Config) {
	if old := c.First.Legacy(); old != nil && old.Files[heldOwner] != nil {
		return // it stays open with this agent
	}
	tidy(memory)
	var err error
	if h.owner, err = own(h.Pages); err == nil {
		err = c.First.Hold(heldOwner, h.owner)
	}
	if err != nil {
		c.Log.Debug(err.Error())
	}
}

// own locks a file in dir. The kernel lets go of it when no process has it any more, however they ended: a PID would say nothing to who is in
// another namespace. The file has its name only once it is locked.
func own(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, ownerFile+"-")
	if err != nil {
		return nil, err
	}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, ownerFile))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// tidy removes from place what is this user's, and whose owner is gone. Where no owner was ever noted there is no telling.
func tidy(place string) {
	all, _ := filepath.Glob(filepath.Join(place, runPrefix+"*"))
	for _, dir := range all {
		if orphaned(dir) {
			removeRun(dir)
		}
	}
}

func orphaned(dir string) bool {
	var info unix.Stat_t
	if unix.Lstat(dir, &info) != nil || info.Mode&unix.S_IFMT != unix.S_IFDIR || int(info.Uid) != os.Geteuid() {
		return false
	}
	f, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}
