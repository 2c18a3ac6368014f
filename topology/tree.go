package topology

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"
)

// A Root is where a machine's /dev, /proc and /sys begin: "/" for the one that we run on.
type Root string

// A tree reads the files below a root. What is absent is "", and so is what cannot be read; the latter leaves a note.
type tree struct {
	root  Root
	bytes func(name string, limit int) ([]byte, error) // the beginning of a file; a test puts errors of the kernel here
	notes *[]string
}

// tree begins to read below r.
func (r Root) tree() tree {
	return tree{root: r, bytes: readBytes, notes: new([]string)}
}

const (
	maxLine  = 4 << 10 // of a file with one value; sysfs gives no more than a page
	maxText  = 1 << 20 // of a file with many lines
	maxNames = 1 << 14 // in a directory: every bus of a PCI domain full of virtual functions has fewer
	maxNotes = 32
)

func (t tree) path(name string) string { return filepath.Join(string(t.root), name) }

// note keeps why something is not known.
func (t tree) note(format string, args ...any) {
	switch text := fmt.Sprintf(format, args...); {
	case len(*t.notes) < maxNotes && !slices.Contains(*t.notes, text):
		*t.notes = append(*t.notes, text)
	case len(*t.notes) == maxNotes:
		*t.notes = append(*t.notes, "and more")
	}
}

// expected reports whether an error is an ordinary answer of sysfs: no such attribute, none for this device, a GID of
// another network namespace (EINVAL), a device that went away or is being reset.
func expected(err error) bool {
	for _, e := range []error{fs.ErrNotExist, syscall.ENOTDIR, syscall.EOPNOTSUPP, syscall.EINVAL, syscall.ENODEV, syscall.ENXIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// text is a file of many lines, without what is no UTF-8.
func (t tree) text(name string) string { return t.upTo(name, maxText) }

// line is a file with one value.
func (t tree) line(name string) string { return strings.TrimSpace(t.upTo(name, maxLine)) }

func (t tree) upTo(name string, limit int) string {
	b, err := t.bytes(t.path(name), limit+1)
	switch {
	case err != nil && !expected(err):
		t.note("%s: %v", name, cause(err))
	case len(b) > limit:
		t.note("%s has more than %d bytes, and is not read", name, limit)
		return ""
	}
	if err != nil {
		return ""
	}
	return clean(b)
}

// head is the beginning of a file that may be long.
func (t tree) head(name string, limit int) string {
	b, err := t.bytes(t.path(name), limit)
	if err != nil && !expected(err) {
		t.note("%s: %v", name, cause(err))
	}
	return clean(b)
}

// clean takes out what is no text: bytes that are no UTF-8 become U+FFFD, control characters go.
func clean(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(b), string(unicode.ReplacementChar)))
}

// cause is an error without the path that the note has.
func cause(err error) error {
	if p := new(fs.PathError); errors.As(err, &p) {
		return p.Err
	}
	return err
}

// number is a decimal or 0x value, and whether there is one.
func (t tree) number(name string) (int, bool) { return parseNumber(t.line(name)) }

func parseNumber(text string) (int, bool) {
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil { // sysfs writes no leading zeros but in hexadecimal
		return 0, false
	}
	return int(n), true
}

// node is a NUMA node; -1: the kernel does not say.
func (t tree) node(name string) int {
	n, ok := t.number(name)
	if !ok || n < 0 || n >= maxNodes {
		return -1
	}
	return n
}

// cpus is a list of CPUs.
func (t tree) cpus(name string) CPUs {
	text := t.line(name)
	set, err := ParseCPUs(text)
	if err != nil {
		t.note("%s: %v", name, err)
	}
	return set
}

// names lists a directory, as people count. Names that could not be shown are left out.
func (t tree) names(dir string) []string {
	f, err := os.OpenFile(t.path(dir), os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		if !expected(err) {
			t.note("%s: %v", dir, cause(err))
		}
		return nil
	}
	defer f.Close()
	all, err := f.Readdirnames(maxNames + 1)
	if err != nil && !errors.Is(err, io.EOF) && !expected(err) {
		t.note("%s: %v", dir, cause(err))
	}
	if len(all) > maxNames {
		t.note("%s has more than %d entries; the others are not read", dir, maxNames)
		all = all[:maxNames]
	}
	names := slices.DeleteFunc(all, func(name string) bool {
		odd := name != clean([]byte(name)) || strings.ContainsAny(name, " \t\n")
		if odd {
			t.note("%s has an entry %.80q, which is no name of a device", dir, name)
		}
		return odd
	})
	slices.SortFunc(names, natural)
	return names
}

// numbered lists the entries of dir that are prefix and a number, by number.
func (t tree) numbered(dir, prefix string) (numbers []int) {
	for _, name := range t.names(dir) {
		rest, ok := strings.CutPrefix(name, prefix)
		n, err := strconv.Atoi(rest)
		if ok && err == nil && n >= 0 && n <= maxMinor && strconv.Itoa(n) == rest {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// maxMinor bounds numbers of devices: a minor number has 20 bits (include/linux/kdev_t.h).
const maxMinor = 1<<20 - 1

// link is where a symbolic link leads, from the root. It is not followed further: sysfs needs one step, and nothing outside the root is read.
func (t tree) link(name string) string {
	target, err := os.Readlink(t.path(name))
	if err != nil {
		return ""
	}
	if !path.IsAbs(target) {
		target = path.Join(path.Dir(name), target)
	}
	return strings.TrimPrefix(path.Clean("/"+target), "/")
}

// exists reports whether there is such a file.
func (t tree) exists(name string) bool {
	_, err := os.Stat(t.path(name))
	return err == nil
}

// device opens a device node as a worker would. "" is an answer, else why not: a node may stand in /dev, and the cgroup of
// this container forbid it.
func (t tree) device(name string) (why string) {
	info, err := os.Stat(t.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return "no /" + name + " in this container"
	}
	if err == nil && info.Mode()&fs.ModeCharDevice != 0 {
		var fd int
		// Without waiting: NVIDIA's driver would else set a GPU up that sleeps.
		fd, err = retry(func() (int, error) {
			return syscall.Open(t.path(name), syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC|syscall.O_NOCTTY, 0)
		})
		if err == nil {
			_ = syscall.Close(fd) // nothing was written
		}
		if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EAGAIN) {
			return "" // in use, so it can be used
		}
	}
	if err != nil {
		return fmt.Sprintf("/%s cannot be opened: %v", name, cause(err))
	}
	return ""
}

// readBytes is the beginning of a file. It does not wait: a pipe in the place of a file is empty. Nor does it go by os.File,
// which would poll for ever where a driver answers EAGAIN (prometheus/node_exporter, PR 728).
func readBytes(name string, limit int) ([]byte, error) {
	fd, err := retry(func() (int, error) {
		return syscall.Open(name, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC|syscall.O_NOCTTY, 0)
	})
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	b := make([]byte, 0, min(limit, 512))
	for len(b) < limit {
		b = slices.Grow(b, min(limit-len(b), max(512, len(b))))
		n, err := retry(func() (int, error) { return syscall.Read(fd, b[len(b):min(cap(b), limit)]) })
		if err != nil {
			return b, err
		}
		if n == 0 {
			break
		}
		b = b[:len(b)+n]
	}
	return b, nil
}

// retry repeats a system call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// natural orders names as people count: mlx5_2 before mlx5_10.
func natural(a, b string) int {
	for a != "" && b != "" {
		n, m := digits(a), digits(b)
		if n > 0 && m > 0 {
			x, y := strings.TrimLeft(a[:n], "0"), strings.TrimLeft(b[:m], "0")
			if len(x) != len(y) {
				return len(x) - len(y)
			}
			if x != y {
				return strings.Compare(x, y)
			}
			a, b = a[n:], b[m:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

// digits is how many digits s begins with.
func digits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}
