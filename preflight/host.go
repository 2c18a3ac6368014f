package preflight

import (
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/topology"
)

// A Host is what checks look at: a machine, the files below its root, and what no file says.
type Host struct {
	Machine topology.Machine
	Root    topology.Root
	Kernel  string                                              // its release: 5.15.0-91-generic
	Space   func(dir string) (Space, error)                     // nil: this is another machine's tree
	Errors  []Record                                            // of the kernel's log; nil with
	NoLog   string                                              // why it cannot be read
	Resolve func() (name string, addresses []string, err error) // this machine's own name; nil: another machine's
	Getenv  func(name string) string                            // of this container; nil: another machine's
}

// A Space is a file system.
type Space struct {
	Type       int64 // f_type: 0x01021994 is tmpfs (statfs(2))
	Size, Free int64 // in bytes; Free is what this user may take
	ReadOnly   bool
}

// A Record is a line of the kernel's log.
type Record struct {
	Age  time.Duration
	Text string
}

// Measure looks at the machine under root. What only a live machine has is measured if root is "/".
func Measure(root topology.Root, m topology.Machine) Host {
	h := Host{Machine: m, Root: root, Kernel: root.Line("proc/sys/kernel/osrelease"), NoLog: "this is another machine's tree"}
	if root == "/" {
		h.Space, h.Resolve, h.Getenv = space, resolve, os.Getenv
		h.Errors, h.NoLog = kernelLog(h.uptime())
	}
	return h
}

// uptime is since when the machine runs.
func (h Host) uptime() time.Duration {
	words := strings.Fields(h.Root.Line("proc/uptime"))
	if len(words) == 0 {
		return 0
	}
	s, _ := strconv.ParseFloat(words[0], 64)
	return time.Duration(s * float64(time.Second))
}

// space asks a file system; a directory that is to be made is on that of the one above.
func space(dir string) (Space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return Space{}, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return Space{Type: int64(s.Type), Size: int64(s.Blocks) * int64(s.Bsize), Free: int64(s.Bavail) * int64(s.Bsize), ReadOnly: s.Flags&unix.ST_RDONLY != 0}, nil
}

func resolve() (string, []string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", nil, err
	}
	addresses, err := net.LookupHost(name)
	return name, addresses, err
}

// A limit is a line of /proc/self/limits; -1 is unlimited.
type limit struct{ soft, hard int64 }

// limit reads one by its name (fs/proc/base.c, lnames).
func (h Host) limit(name string) (limit, bool) {
	for line := range strings.Lines(h.Root.Text("proc/self/limits")) {
		rest, ok := strings.CutPrefix(line, name+" ")
		words := strings.Fields(rest)
		if !ok || len(words) < 2 {
			continue
		}
		soft, ok1 := amount(words[0])
		hard, ok2 := amount(words[1])
		return limit{soft, hard}, ok1 && ok2
	}
	return limit{}, false
}

func amount(text string) (int64, bool) {
	if text == "unlimited" {
		return -1, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0
}

// capable reports whether this process has a capability, by its number in include/uapi/linux/capability.h.
func (h Host) capable(number int) bool {
	for line := range strings.Lines(h.Root.Text("proc/self/status")) {
		if text, ok := strings.CutPrefix(line, "CapEff:"); ok {
			mask, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
			return err == nil && mask>>number&1 == 1
		}
	}
	return false
}

const ipcLock = 14 // CAP_IPC_LOCK

// atLeast reports whether the kernel is of a release or a newer one, and whether that is known.
func (h Host) atLeast(major, minor int) (newer, known bool) {
	x, rest, _ := strings.Cut(h.Kernel, ".")
	y, _, _ := strings.Cut(rest, ".")
	a, err1 := strconv.Atoi(x)
	b, err2 := strconv.Atoi(strings.TrimRightFunc(y, func(r rune) bool { return r < '0' || r > '9' }))
	return a > major || a == major && b >= minor, err1 == nil && err2 == nil
}

const (
	maxRecords = 1 << 15
	maxRecord  = 8 << 10 // one may have no more (include/linux/printk.h, CONSOLE_EXT_LOG_MAX)
)

// kernelLog reads /dev/kmsg as far as it is written, and keeps what drivers of GPUs say. Documentation/ABI/testing/dev-kmsg.
func kernelLog(uptime time.Duration) (records []Record, why string) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "/dev/kmsg: " + err.Error()
	}
	defer unix.Close(fd)
	b := make([]byte, maxRecord)
	for range maxRecords {
		n, err := unix.Read(fd, b)
		switch {
		case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EINTR): // overwritten while we read: go on behind it
			continue
		case errors.Is(err, syscall.EAGAIN):
			return records, ""
		case err != nil:
			return records, "/dev/kmsg: " + err.Error()
		}
		if r, ok := parseRecord(string(b[:n]), uptime); ok {
			records = append(records, r)
		}
	}
	return records, ""
}

// gpuWords are in what drivers of GPUs say.
var gpuWords = []string{"NVRM:", "nvidia-", "SXid", "amdgpu"}

// parseRecord reads "6,1234,98765432,-;NVRM: Xid …" if it is of interest; the third number is microseconds since the machine started.
func parseRecord(text string, uptime time.Duration) (Record, bool) {
	head, line, ok := strings.Cut(text, ";")
	numbers := strings.Split(head, ",")
	if !ok || len(numbers) < 3 || !slices.ContainsFunc(gpuWords, func(w string) bool { return strings.Contains(line, w) }) {
		return Record{}, false
	}
	us, err := strconv.ParseInt(numbers[2], 10, 64)
	line, _, _ = strings.Cut(line, "\n")
	return Record{Age: uptime - time.Duration(us)*time.Microsecond, Text: line}, err == nil
}
