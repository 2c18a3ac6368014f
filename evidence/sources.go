package evidence

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	maxTold      = 1024 // threads, descriptors, processes, connections in a table
	maxProcesses = 64   // whose connections are told
)

// sources are all that there is to read, in groups that are read side by side: what hangs in one of them holds up no other.
func (s Scene) sources() (groups [][]source) {
	for _, w := range s.Workers {
		groups = append(groups, s.ofWorker(w))
	}
	groups = append(groups, s.ofSystem())
	for _, g := range s.Given {
		get := func() (string, error) { return g.Text, nil }
		if g.Path != "" {
			get = func() (string, error) { return read(g.Path) }
		}
		groups = append(groups, []source{{g.Name, g.What, get}})
	}
	return append(groups, []source{{"machine/facts", "what the kernel and its drivers say of the machine", s.machine}})
}

// ofWorker is what is known of a worker, and what /proc tells of it.
func (s Scene) ofWorker(w Suspect) []source {
	p := process{filepath.Join(s.Root, "proc"), w.Beat.PID}
	known := func(text string) func() (string, error) {
		return func() (string, error) { return text, nil }
	}
	list := []source{
		{"stacks.txt", "the Python stacks of all its threads", known(w.Stacks)},
		{"beat.json", "how far it said it was, and how it looked from outside", func() (string, error) {
			text, err := json.MarshalIndent(w.Beat, "", "  ")
			return string(text), err
		}},
		{"recorder.json", "what PyTorch's flight recorders hold, by backend: the last collectives of each group, the newest last", func() (string, error) { return w.Recorder, w.NoRecorder }},
		{"output.txt", "its last lines", known(strings.Join(w.Output, "\n"))},
		{"status", "proc_pid_status(5)", p.file("status")},
		{"wchan", "where in the kernel its main thread sleeps", p.file("wchan")},
		{"syscall", "the system call that its main thread is in: number, arguments, stack, instruction", p.file("syscall")},
		{"kernel-stack", "the kernel's stack of its main thread", p.file("stack")},
		{"io", "proc_pid_io(5)", p.file("io")},
		{"limits", "ulimit", p.file("limits")},
		{"cgroup", "its cgroups", p.file("cgroup")},
		{"threads", "number, state, name, place in the kernel and system call of each thread", p.threads},
		{"processes", "the same of what it started", func() (string, error) { return p.table(w.Tree, p.of), nil }},
		{"descriptors", "what its file descriptors are", p.descriptors},
		{"connections", "TCP connections of it and of what it started", func() (string, error) { return p.connections(w.Tree) }},
	}
	for i := range list {
		list[i].name = fmt.Sprintf("rank-%d/%s", w.Beat.Rank, list[i].name)
	}
	return list
}

// ofSystem is how the machine is.
func (s Scene) ofSystem() []source {
	list := []source{{"mounts", "file systems of other machines or processes, and who waits for them", s.mounts}}
	for _, f := range []string{"loadavg", "meminfo", "vmstat", "net/dev", "net/sockstat", "net/snmp", "net/netstat"} {
		list = append(list, source{"machine/" + filepath.Base(f), "/proc/" + f, func() (string, error) { return read(filepath.Join(s.Root, "proc", f)) }})
	}
	return append(list, source{"machine/pressure", "how long tasks wait for processor, memory and disks (PSI)", func() (text string, err error) {
		for _, f := range []string{"cpu", "memory", "io"} {
			lines, err := read(filepath.Join(s.Root, "proc/pressure", f))
			if err != nil {
				return "", err
			}
			text += f + "\n" + lines
		}
		return text, nil
	}})
}

// machine is what Facts finds, with the first worker's cgroup, in one text.
func (s Scene) machine() (string, error) {
	pid := os.Getpid()
	if len(s.Workers) > 0 {
		pid = s.Workers[0].Beat.PID
	}
	var text strings.Builder
	for _, f := range Facts(s.Root, pid) {
		fmt.Fprintf(&text, "==> %s\n%s\n", f.Path, strings.TrimSuffix(f.Text, "\n"))
	}
	return text.String(), nil
}

// A process is one of those that proc, the directory, shows.
type process struct {
	proc string
	pid  int
}

func (p process) path(name string) string { return filepath.Join(p.proc, strconv.Itoa(p.pid), name) }

func (p process) file(name string) func() (string, error) {
	return func() (string, error) { return read(p.path(name)) }
}

// threads is a table of the process's threads.
func (p process) threads() (string, error) {
	names, err := names(p.path("task"))
	if err != nil {
		return "", err
	}
	return p.table(names, func(tid int) process { return process{p.path("task"), tid} }), nil
}

func (p process) of(pid int) process { return process{p.proc, pid} }

// table is a line for each process or thread.
func (p process) table(ids []int, of func(id int) process) string {
	var text strings.Builder
	for _, id := range ids[:min(len(ids), maxTold)] {
		one := of(id)
		stat, _ := read(one.path("stat"))
		first, last := strings.IndexByte(stat, '('), strings.LastIndex(stat, ") ")
		if first < 0 || last < first || len(stat) < last+3 {
			continue // it has ended
		}
		wchan, _ := read(one.path("wchan"))
		call, _ := read(one.path("syscall"))
		fmt.Fprintf(&text, "%7d %c %-16s %-24s %s\n", id, stat[last+2], stat[first+1:last], wchan, strings.TrimSpace(call))
	}
	return text.String()
}

// names lists the entries of a directory whose names are numbers, the lowest first.
func names(dir string) (numbers []int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// descriptors is a line for each file descriptor. The links are read, not followed: what they lead to may be dead.
func (p process) descriptors() (string, error) {
	fds, err := names(p.path("fd"))
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, fd := range fds[:min(len(fds), maxTold)] {
		to, _ := os.Readlink(p.path("fd/" + strconv.Itoa(fd)))
		fmt.Fprintf(&text, "%5d %s\n", fd, to)
	}
	return text.String(), nil
}

// connections is a line for each TCP connection of the process and of others.
func (p process) connections(others []int) (string, error) {
	ours := map[string]bool{}
	for _, pid := range append([]int{p.pid}, others[:min(len(others), maxProcesses)]...) {
		one := p.of(pid)
		fds, _ := names(one.path("fd"))
		for _, fd := range fds {
			to, _ := os.Readlink(one.path("fd/" + strconv.Itoa(fd)))
			if inode, ok := strings.CutPrefix(to, "socket:["); ok {
				ours[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	var text strings.Builder
	told := 0
	for _, file := range []string{"net/tcp", "net/tcp6"} {
		table, err := read(p.path(file))
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(table) {
			f := strings.Fields(line)
			if len(f) < 10 || !ours[f[9]] || told == maxTold {
				continue
			}
			told++
			fmt.Fprintln(&text, connection(f))
		}
	}
	return text.String(), nil
}

// tcpStates are named as in include/net/tcp_states.h.
var tcpStates = map[string]string{
	"01": "ESTABLISHED", "02": "SYN_SENT", "03": "SYN_RECV", "04": "FIN_WAIT1", "05": "FIN_WAIT2", "06": "TIME_WAIT", "07": "CLOSE",
	"08": "CLOSE_WAIT", "09": "LAST_ACK", "0A": "LISTEN", "0B": "CLOSING",
}

// connection is a line of /proc/net/tcp for people (Documentation/networking/proc_net_tcp.rst).
func connection(f []string) string {
	out, in, _ := strings.Cut(f[4], ":")
	return fmt.Sprintf("%-11s %v → %v, %d bytes not acknowledged, %d not read, %d retransmissions, inode %s",
		tcpStates[f[3]], endpoint(f[1]), endpoint(f[2]), number16(out), number16(in), number16(f[6]), f[9])
}

func number16(text string) uint64 {
	n, _ := strconv.ParseUint(text, 16, 64)
	return n
}

// endpoint reads "0100007F:1F90": an address in words of the machine's byte order, and a port.
func endpoint(text string) netip.AddrPort {
	addr, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(addr)
	if err != nil || len(b)%4 != 0 {
		return netip.AddrPort{}
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(number16(port)))
}

// remote are the kinds of file systems that can die without this machine.
func remote(kind string) bool {
	kind, _, _ = strings.Cut(kind, ".") // fuse.sshfs
	return slices.Contains([]string{"nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse", "fuseblk", "lustre", "gpfs", "beegfs", "ceph", "afs", "wekafs", "panfs", "orangefs"}, kind)
}

// mounts is a line for each file system that can die by itself, and for each other one that holds the file of a worker that
// waits.
func (s Scene) mounts() (string, error) {
	table, err := read(filepath.Join(s.Root, "proc/self/mountinfo"))
	if err != nil {
		return "", err
	}
	type mount struct{ at, kind, from string }
	var all []mount
	for line := range strings.Lines(table) {
		left, right, _ := strings.Cut(line, " - ")
		if l, r := strings.Fields(left), strings.Fields(right); len(l) > 4 && len(r) > 1 {
			all = append(all, mount{unescape(l[4]), r[0], r[1]})
		}
	}
	who := map[int][]string{} // waits for the file system with this number
	for _, w := range s.Workers {
		if w.Beat.Sight == nil || w.Beat.Sight.File == "" {
			continue
		}
		best := -1
		for i, m := range all { // the last one of a path lies over the others
			if below(w.Beat.Sight.File, m.at) && (best < 0 || len(m.at) >= len(all[best].at)) {
				best = i
			}
		}
		who[best] = append(who[best], fmt.Sprintf("rank %d (pid %d, state %c) is at %s", w.Beat.Rank, w.Beat.PID, w.Beat.Sight.State, w.Beat.Sight.File))
	}
	var text strings.Builder
	for i, m := range all {
		if remote(m.kind) || who[i] != nil {
			fmt.Fprintf(&text, "%s %s %s\n", m.at, m.kind, m.from)
			for _, line := range who[i] {
				fmt.Fprintf(&text, "\t%s\n", line)
			}
		}
	}
	return text.String(), nil
}

// below reports whether a path is at or below another one.
func below(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}
