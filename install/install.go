// Package install puts this program into a directory that others see: a volume that a pod's containers share.
package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Name is the program's in the directory.
const Name = "muster"

// Done is what an installation came to.
type Done struct {
	Path   string // of the program
	Size   int64
	Fresh  bool // something had to be written
	NoExec bool // the directory's file system lets nobody run what is in it, where it is mounted here
}

// A Foreign is a file that stands where something is to be put, and is none of this program's.
type Foreign struct{ Path, What string }

func (f Foreign) Error() string { return fmt.Sprintf("%s is there already, and is %s", f.Path, f.What) }

// ErrBusy says that another one is at work in the directory.
var ErrBusy = errors.New("another muster install is at work there")

// Into puts the program, and links to it of those names, into a directory, which it makes if it is not there. Who looks sees each file whole,
// and of what is there already nothing changes. mark is what every build of the program has in it. Where a file of somebody else's stands in
// the way, nothing is written at all. ErrBusy: the next try may do.
func Into(dir string, program *os.File, mark string, links []string) (done Done, err error) {
	done.Path = filepath.Join(dir, Name)
	if info, err := program.Stat(); err == nil {
		done.Size = info.Size()
	}
	defer func() { err = explained(err, dir, done.Size) }()
	if err = makeAll(dir); err != nil {
		return done, err
	}
	at, err := os.Open(dir)
	if err != nil {
		return done, err
	}
	defer at.Close() // and others may
	switch err := unix.Flock(int(at.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return done, ErrBusy
	case err == nil: // not every file system has locks
		sweep(dir)
	}
	for _, name := range append([]string{Name}, links...) {
		if err = ours(filepath.Join(dir, name), mark); err != nil {
			return done, err
		}
	}
	if done.Fresh, err = write(done.Path, program); err != nil {
		return done, err
	}
	for _, name := range links {
		made, err := link(filepath.Join(dir, name))
		if err != nil {
			return done, err
		}
		done.Fresh = done.Fresh || made
	}
	var is unix.Statfs_t
	done.NoExec = unix.Fstatfs(int(at.Fd()), &is) == nil && is.Flags&unix.ST_NOEXEC != 0
	return done, nil
}

// makeAll makes a directory, and those above it that are not there, for all to read: the umask is for a user's own files, and these are for containers
// with other users.
func makeAll(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(dir, 0o755) // which says what is wrong with it
	}
	if err := makeAll(filepath.Dir(dir)); err != nil {
		return err
	}
	switch err := os.Mkdir(dir, 0o755); {
	case errors.Is(err, fs.ErrExist): // another installation was quicker, or it is a link that leads nowhere
		return os.MkdirAll(dir, 0o755)
	case err != nil:
		return err
	}
	return os.Chmod(dir, 0o755)
}

// partial begins the names of files that are not whole yet.
const partial = ".muster-new-"

// sweep removes what somebody left who was killed. Nobody else is at work here.
func sweep(dir string) {
	all, _ := os.ReadDir(dir)
	for _, e := range all {
		if strings.HasPrefix(e.Name(), partial) {
			_ = os.Remove(filepath.Join(dir, e.Name())) // it only takes room
		}
	}
}

// ours is nil if there is nothing at path, or a build of this program, or a link to one.
func ours(path, mark string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return Foreign{path, "a directory"}
	}
	if target, err := os.Readlink(path); err == nil && target == Name {
		return nil // whose program is made anew
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Foreign{path, "a link that leads nowhere"}
	}
	if info, err = os.Stat(target); err != nil || !info.Mode().IsRegular() {
		return Foreign{path, "no program"}
	}
	has, err := marked(target, mark)
	if err != nil {
		return err
	}
	if !has {
		return Foreign{path, "another program"}
	}
	return nil
}

// biggest bounds what is read of a file that may be anybody's.
const biggest = 64 << 20

// marked reports whether a file is a program with the mark in it.
func marked(path, mark string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4))
	if err != nil || string(text) != "\x7fELF" {
		return false, err
	}
	text, err = io.ReadAll(io.LimitReader(f, biggest))
	return bytes.Contains(text, []byte(mark)), err
}

// write puts the program at path, unless it is there.
func write(path string, program *os.File) (fresh bool, err error) {
	if same(path, program) {
		return false, nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), partial+"*")
	if err != nil {
		return false, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // it takes room
		}
	}()
	defer f.Close()
	if _, err = program.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	if _, err = io.Copy(f, program); err != nil {
		return false, err
	}
	if err = errors.Join(f.Chmod(0o755), f.Sync(), f.Close()); err != nil {
		return false, err
	}
	return true, os.Rename(f.Name(), path)
}

// same reports whether the program is at path, for all to run.
func same(path string, program *os.File) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o555 != 0o555 {
		return false
	}
	if own, err := program.Stat(); err != nil || own.Size() != info.Size() {
		return false
	}
	there, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	here, err := io.ReadAll(io.NewSectionReader(program, 0, biggest))
	return err == nil && bytes.Equal(here, there)
}

// link makes path a link to the program beside it, so that it leads there wherever the volume is mounted.
func link(path string) (fresh bool, err error) {
	if target, err := os.Readlink(path); err == nil && target == Name {
		return false, nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), partial+"*") // a name that nobody has
	if err != nil {
		return false, err
	}
	defer os.Remove(f.Name())
	f.Close()
	made := f.Name() + "-link"
	if err = os.Symlink(Name, made); err != nil {
		return false, err
	}
	if err = os.Rename(made, path); err != nil {
		return false, errors.Join(err, os.Remove(made))
	}
	return true, nil
}

// explained says what to do about an error of the system's.
func explained(err error, dir string, size int64) error {
	is := func(all ...syscall.Errno) bool {
		return slices.ContainsFunc(all, func(e syscall.Errno) bool { return errors.Is(err, e) })
	}
	switch {
	case err == nil:
		return nil
	case is(syscall.ENOSPC, syscall.EDQUOT):
		return fmt.Errorf("%w: muster needs %d MB there, beside another build that it replaces; give the volume more room (an emptyDir's sizeLimit)", err, size>>20+1)
	case is(syscall.EROFS):
		return fmt.Errorf("%w: %s has to be writable where muster is installed; other containers may mount it readOnly", err, dir)
	case is(syscall.EACCES, syscall.EPERM):
		return fmt.Errorf("%w: user %d may not write in %s; let it be the volume's owner, or of its group (a pod's fsGroup)", err, os.Geteuid(), dir)
	case is(syscall.ENOTDIR, syscall.EEXIST):
		return fmt.Errorf("%w: %s is no directory", err, dir)
	}
	return err
}
