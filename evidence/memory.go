package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A Memory is the memory cgroup of a process. The zero Memory is of a process that has none.
type Memory struct {
	files files
	own   string // directory of the cgroup
	top   string // where its hierarchy is mounted: above that nothing can be seen
}

// files names what a hierarchy keeps where. Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst.
type files struct {
	current, peak, limit string
	kills                string // has a line "oom_kill N"; counts the victims in this cgroup, in v2 also those below it
	struck, strucks      string // file, and line in it, that counts how often the cgroup's own limit left no memory
}

var (
	v1 = files{"memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.limit_in_bytes", "memory.oom_control", "memory.failcnt", ""}
	v2 = files{"memory.current", "memory.peak", "memory.max", "memory.events", "memory.events.local", "oom"}
)

// maxFile bounds what is read of one file, in bytes. A machine with thousands of mounts has a long mountinfo.
const maxFile = 4 << 20

// noLimit is where v1 means none: it has the largest multiple of a page there.
const noLimit = 1 << 62

// OpenMemory finds the memory cgroup of a process, in version 1 or 2, on the host or inside a container. root is that
// of the file system, "/" outside tests. A process without one, or with one that cannot be seen, has the zero Memory.
func OpenMemory(root string, pid int) (Memory, error) {
	groups, err := read(filepath.Join(root, "proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return Memory{}, fmt.Errorf("cgroup of process %d: %w", pid, err)
	}
	mounts, err := read(filepath.Join(root, "proc/self/mountinfo")) // the kernel shows cgroups as seen by the reader
	if err != nil {
		return Memory{}, fmt.Errorf("mounts: %w", err)
	}
	one, two := groupPaths(groups)
	if m := find(root, mounts, "cgroup", one); m.own != "" {
		m.files = v1
		return m, nil
	}
	m := find(root, mounts, "cgroup2", two)
	m.files = v2
	if _, err := os.Stat(filepath.Join(m.own, v2.current)); m.own == "" || err != nil {
		return Memory{}, nil // the root has no such file, nor has a hierarchy without the memory controller
	}
	return m, nil
}

// groupPaths returns the path of a process in the memory hierarchy of version 1 and in that of version 2, "" without
// one, from lines like "4:memory:/docker/1a2b" and "0::/kubepods/pod7".
func groupPaths(text string) (one, two string) {
	for line := range strings.Lines(text) {
		part := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(part) < 3:
		case part[0] == "0" && part[1] == "":
			two = part[2]
		case has(part[1], "memory"):
			one = part[2]
		}
	}
	return one, two
}

// find returns the directories of the cgroup with this path among the mounts of this kind. A container sees its own
// cgroup as the root of the mount, by a bind mount or by a namespace; then the path may mean nothing inside.
func find(root, mounts, kind, path string) Memory {
	if path == "" {
		return Memory{}
	}
	for line := range strings.Lines(mounts) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 || r[0] != kind || kind == "cgroup" && !has(r[2], "memory") {
			continue
		}
		top := filepath.Join(root, unescape(l[4]))
		own := top
		if below, ok := strings.CutPrefix(path+"/", strings.TrimSuffix(unescape(l[3]), "/")+"/"); ok && !strings.HasPrefix(path, "/..") {
			own = filepath.Join(top, below)
		}
		for _, dir := range []string{own, top} {
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				return Memory{own: dir, top: top}
			}
		}
	}
	return Memory{}
}

// has reports whether a list with commas has this word.
func has(list, word string) bool {
	return strings.Contains(","+list+",", ","+word+",")
}

// unescape undoes how mountinfo writes blanks, tabs, newlines and backslashes in a path.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// A Usage is one reading of a memory cgroup.
type Usage struct {
	Known   bool   // there is a cgroup, and it counts kills
	Current uint64 // bytes charged to the cgroup whose limit is the tightest, this one or one above
	Peak    uint64 // the most that it ever had, in bytes; 0: unknown
	Limit   uint64 // of that cgroup, in bytes; 0: none
	Kills   uint64 // processes that the kernel killed for want of memory
	Groups  uint64 // whole cgroups that it killed at once (version 2, memory.oom.group)
	Struck  uint64 // times that the limit left no memory
}

// Read returns the present figures. Absent files are no error, for kernels differ: their figures are zero.
func (m Memory) Read() (Usage, error) {
	if m.own == "" {
		return Usage{}, nil
	}
	var u Usage
	kills, err := read(filepath.Join(m.own, m.files.kills))
	if err != nil {
		return Usage{}, fmt.Errorf("count of memory kills: %w", err)
	}
	u.Kills, u.Known = field(kills, "oom_kill")
	u.Groups, _ = field(kills, "oom_group_kill")
	tight, limit := m.tightest()
	u.Limit = limit
	u.Current = number(filepath.Join(tight, m.files.current))
	u.Peak = number(filepath.Join(tight, m.files.peak))
	u.Struck = m.struck(tight)
	return u, nil
}

// tightest returns the cgroup with the smallest limit from this one up, and that limit, 0 for none.
func (m Memory) tightest() (dir string, limit uint64) {
	dir = m.own
	for d := m.own; ; d = filepath.Dir(d) {
		if n := number(filepath.Join(d, m.files.limit)); n > 0 && n < noLimit && (limit == 0 || n < limit) {
			dir, limit = d, n
		}
		if d == m.top || len(d) <= len(m.top) {
			return dir, limit
		}
	}
}

func (m Memory) struck(dir string) uint64 {
	if m.files.strucks == "" {
		return number(filepath.Join(dir, m.files.struck))
	}
	text, err := read(filepath.Join(dir, m.files.struck))
	if err != nil || text == "" { // memory.events.local came with Linux 5.2
		text, _ = read(filepath.Join(dir, m.files.kills))
	}
	n, _ := field(text, m.files.strucks)
	return n
}

// field returns the number in the line "name N".
func field(text, name string) (uint64, bool) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// number reads a file with one number; 0 for "max", and when there is none.
func number(path string) uint64 {
	text, _ := read(path)
	n, _ := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	return n
}

// read reads a small file of the kernel. That there is none is an answer: "".
func read(path string) (string, error) {
	f, err := os.Open(path)
	if absent(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	var b bytes.Buffer
	_, err = io.Copy(&b, io.LimitReader(f, maxFile))
	if absent(err) { // the process or the cgroup went away between the two calls
		return "", nil
	}
	return b.String(), err
}

func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EOPNOTSUPP)
}

// An OOM is what the kernel did for want of memory between two readings.
type OOM struct {
	Known bool   // both readings counted kills
	Kills uint64 // processes killed; which ones the counters do not say
	Group bool   // the cgroup was killed as a whole
	Own   bool   // the limit that can be seen was struck; else one above it, or the machine's memory ran out
	Limit uint64 // bytes; 0: none can be seen
	Peak  uint64 // bytes; 0: unknown
}

// Since compares a reading with an earlier one. The kernel counts a kill before it sends the signal, so a reading
// made after the end of a worker has its kill.
func (u Usage) Since(before Usage) OOM {
	o := OOM{Known: u.Known && before.Known, Limit: u.Limit, Peak: u.Peak}
	if o.Known && u.Kills > before.Kills { // fewer: the cgroup was made anew
		o.Kills = u.Kills - before.Kills
		o.Group = u.Groups > before.Groups
		o.Own = u.Limit > 0 && u.Struck > before.Struck
	}
	return o
}

// clause says what happened, as far as it is known.
func (o OOM) clause() string {
	what := "a process"
	switch {
	case o.Group:
		what = "all processes"
	case o.Kills > 1:
		what = fmt.Sprintf("%d processes", o.Kills)
	}
	limit := ""
	if o.Own {
		limit = fmt.Sprintf(" (limit %s)", Size(o.Limit))
	}
	return "the kernel killed " + what + " of its container for want of memory" + limit
}
