// Package witness looks at workers from outside: /proc, the bytes of their sockets, links, and NCCL's own watch (RAS). It imports
// proc for the table of processes, by which it finds what a worker started.
package witness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
)

// Chatter is the traffic, in bytes a second, below which a worker's Sight.Wire and Disk tell nothing: about as much as a worker that
// hangs still exchanges with its store, its own threads and whoever watches it.
const Chatter = 4 << 10

// A Witness looks at the workers of one node. It remembers what it saw, so that its sums go on growing when a socket is closed or a
// child ends. One goroutine uses it.
type Witness struct {
	// Apart are ports of the job's own book-keeping, such as that of its store: what workers exchange with them is left out of
	// Sight.Wire.
	Apart []uint16

	root string
	seen map[int]*record // of the workers at the last look, by PID
	told map[string]bool // what has been said of what cannot be seen
}

// New returns a Witness. root is that of the file system, "/" outside tests.
func New(root string) *Witness { return &Witness{root: root, told: map[string]bool{}} }

// A record is what is remembered of one worker.
type record struct {
	start           uint64 // of the process; another one with its PID is another worker
	cpu, disk, wire growth
	threads         map[int]time.Duration // of the processor, that each had used at the last look,
	looped          time.Duration         // and what loops took
	worked          time.Duration         // what all but they did, as far as it was seen
	stored          int                   // the thread that waited last for a file system
}

// A growth is the sum of counters that come and go, as far as it was seen.
type growth struct {
	sum  uint64
	last map[uint64]uint64 // by process or socket
}

// add takes the counters as they are now and returns the sum. One that is smaller than before belongs to somebody new.
func (g *growth) add(now map[uint64]uint64) uint64 {
	for key, value := range now {
		if before := g.last[key]; before <= value {
			value -= before
		}
		g.sum += value
	}
	g.last = now
	return g.sum
}

// Look returns what can be seen of each of these workers now, in their order; of one that is gone, nothing. What their processes
// started is found by their parents. The error says what cannot be seen on this machine, and why; each reason is told once. What
// one may not look at for want of rights is left empty.
func (w *Witness) Look(pids []int) ([]job.Sight, error) {
	sights := make([]job.Sight, len(pids))
	all, err := w.proc().All()
	if err != nil {
		return sights, w.once(err)
	}
	trees := w.trees(pids, all)
	sockets := map[uint64]socket{}
	for _, t := range trees {
		for _, inode := range t.sockets {
			sockets[inode] = socket{}
		}
	}
	if err = readSockets(sockets); err != nil {
		err, sockets = w.once(fmt.Errorf("bytes of TCP connections: %w", err)), nil
	}
	for i, pid := range pids {
		if t := trees[pid]; t != nil {
			sights[i] = w.look(t, sockets)
		}
	}
	return sights, err
}

// A tree is a worker's process with all that it started.
type tree struct {
	*record
	main    proc.Process
	below   []proc.Process
	pids    []int    // of all
	sockets []uint64 // that they have open, by inode, each once: children may hold their parent's
}

// trees finds those of the workers that live, by PID, and forgets what was remembered of others.
func (w *Witness) trees(pids []int, all []proc.Process) map[int]*tree {
	found, seen := map[int]*tree{}, map[int]*record{}
	for _, pid := range pids {
		i := slices.IndexFunc(all, func(p proc.Process) bool { return p.PID == pid })
		if i < 0 {
			continue
		}
		r := w.seen[pid]
		if r == nil || r.start != all[i].Start {
			r = &record{start: all[i].Start}
		}
		t := &tree{record: r, main: all[i], below: proc.Below(all, pid), pids: []int{pid}}
		for _, p := range t.below {
			t.pids = append(t.pids, p.PID)
		}
		for _, pid := range t.pids {
			t.sockets = append(t.sockets, w.inodes(pid)...)
		}
		slices.Sort(t.sockets)
		t.sockets = slices.Compact(t.sockets)
		found[pid], seen[pid] = t, r
	}
	w.seen = seen
	return found
}

// look is what can be seen of one worker; sockets is nil where those cannot be seen.
func (w *Witness) look(t *tree, sockets map[uint64]socket) job.Sight {
	pid := t.main.PID
	s := job.Sight{
		State: t.main.State, Waits: w.waits(pid), Traced: w.traced(pid), Frozen: w.frozen(pid), File: w.fileOf(t),
		CPU: w.worked(t), Stores: w.stores(t),
		Disk: t.disk.add(each(t.pids, w.disk)),
	}
	if u, err := w.proc().Usage(pid); err == nil {
		s.Memory = uint64(u.Memory)
	}
	s.Wire = t.wire.sum
	if sockets != nil {
		moved, stuck := w.wireOf(t, sockets)
		s.Wire, s.Stuck = t.wire.add(moved), stuck
	}
	return s
}

// each reads a counter of each process.
func each(pids []int, read func(pid int) uint64) map[uint64]uint64 {
	values := make(map[uint64]uint64, len(pids))
	for _, pid := range pids {
		values[uint64(pid)] = read(pid)
	}
	return values
}

// worked is the processor time of a worker's processes, but for its loops'.
func (w *Witness) worked(t *tree) time.Duration {
	looped := w.loops(t.main.PID, t.record)
	t.worked = max(t.worked, time.Duration(t.cpu.add(each(t.pids, w.cpu)))-looped) // the kernel counts the whole and its parts in ticks, at different moments
	return t.worked
}

func (w *Witness) cpu(pid int) uint64 {
	u, _ := w.proc().Usage(pid)
	return uint64(u.CPU)
}

// disk is what a process read and wrote (proc_pid_io(5)), by calls and by the kernel's block layer. Only the calls show a FUSE or network
// file system, and only the latter shows files that are mapped into memory; most bytes count twice.
func (w *Witness) disk(pid int) (sum uint64) {
	io := w.read(pid, "io")
	for _, name := range []string{"rchar:", "wchar:", "read_bytes:", "write_bytes:"} {
		sum += number(io, name)
	}
	return sum
}

// traced reports whether a debugger holds a process.
func (w *Witness) traced(pid int) bool { return number(w.read(pid, "status"), "TracerPid:") != 0 }

// waits is the function of the kernel in which a process sleeps, or the thread of it that is in a directory; "" while it runs, or where that is not told.
func (w *Witness) waits(pid int, in ...string) string {
	if at := strings.TrimSpace(w.read(pid, append(in, "wchan")...)); at != "0" {
		return at
	}
	return ""
}

// number returns the number behind a name at the beginning of a line, 0 if there is none.
func number(text, name string) uint64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
			return n
		}
	}
	return 0
}

func (w *Witness) proc() proc.Root { return proc.Root(filepath.Join(w.root, "proc")) }

func (w *Witness) path(pid int, name ...string) string {
	return filepath.Join(w.root, "proc", strconv.Itoa(pid), filepath.Join(name...))
}

// read returns a file of a process, "" if it cannot be read. None of those that are read here waits for the process's own locks, as
// cmdline, environ and maps do: they would not come back while it hangs in a dead file system.
func (w *Witness) read(pid int, name ...string) string {
	text, _ := os.ReadFile(w.path(pid, name...))
	return string(text)
}

// once returns an error the first time that it is met, nil later.
func (w *Witness) once(err error) error {
	if w.told[err.Error()] {
		return nil
	}
	w.told[err.Error()] = true
	return err
}
