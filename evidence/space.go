package evidence

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A Space is the room in the file system that holds a path. The zero Space is of a path that is not there.
type Space struct {
	Path   string
	Size   uint64 // bytes
	Free   uint64 // bytes that a process without privileges can still write
	Files  uint64 // files that it can hold; 0: it does not count them
	Unused uint64 // of these
}

// spare is what is left in a file system that counts as full: less than the writers of training data and checkpoints
// write at a time.
const spare = 1 << 20

// dockerShm is the size of /dev/shm that container runtimes choose when nobody asks for more.
const dockerShm = 64 << 20

// SharedMemory returns the room in /dev/shm, where data loaders and NCCL keep what processes share.
func SharedMemory() Space { return spaceOf("/dev/shm") }

// Disk returns those of the file systems below paths that are full, each once. Paths that are empty or not there are
// passed over.
func Disk(paths ...string) []Space {
	var full []Space
	seen := map[uint64]bool{}
	for _, path := range paths {
		var st unix.Stat_t
		if path == "" || unix.Stat(path, &st) != nil || seen[st.Dev] {
			continue
		}
		seen[st.Dev] = true
		if s := spaceOf(path); s.Full() {
			full = append(full, s)
		}
	}
	return full
}

// spaceOf is the room at path.
func spaceOf(path string) Space {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Space{}
	}
	block := uint64(st.Bsize)
	if st.Frsize > 0 { // where both are given, the counts are in this one: FUSE tells them apart
		block = uint64(st.Frsize)
	}
	return Space{Path: path, Size: st.Blocks * block, Free: st.Bavail * block, Files: st.Files, Unused: st.Ffree}
}

// Full reports whether nothing worth while can be written any more.
func (s Space) Full() bool {
	return s.Size > 0 && s.Free < min(spare, s.Size/16) || s.Files > 0 && s.Unused == 0
}

func (s Space) small() bool { return s.Size > 0 && s.Size <= dockerShm }

// String is the state of the file system as a clause.
func (s Space) String() string {
	switch {
	case s.Files > 0 && s.Unused == 0:
		return fmt.Sprintf("%s cannot hold more than its %d files", s.Path, s.Files)
	case s.Full():
		return fmt.Sprintf("%s is %s and full", s.Path, Size(s.Size))
	}
	return fmt.Sprintf("%s is %s, with %s free", s.Path, Size(s.Size), Size(s.Free))
}
