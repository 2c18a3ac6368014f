// Package pmi serves the simple PMI protocol, version 1.1, to the MPI processes of one node: MPICH, and what has its process manager's
// protocol, as Intel MPI and MVAPICH. By it processes that mpiexec did not start become a world, and tell each other where they listen.
//
// A process finds a connection in the descriptor that PMI_FD names, its rank in PMI_RANK, the world's size in PMI_SIZE. It asks, one line
// at a time, and waits for the answer. The messages (MPICH, src/pmi/maint/pmi-1.1.txt, src/pmi/src/pmi_v1.c, src/pmi/src/pmi_wire.c):
//
//	cmd=init pmi_version=1 pmi_subversion=1        cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
//	cmd=get_maxes                                  cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024
//	cmd=get_universe_size                          cmd=universe_size size=4
//	cmd=get_appnum                                 cmd=appnum appnum=0
//	cmd=get_my_kvsname                             cmd=my_kvsname kvsname=NAME
//	cmd=put kvsname=NAME key=K value=V             cmd=put_result rc=0 msg=success
//	cmd=get kvsname=NAME key=K                     cmd=get_result rc=0 msg=success value=V, or rc=-1
//	cmd=barrier_in                                 cmd=barrier_out, when all processes of all nodes are there
//	cmd=finalize                                   cmd=finalize_ack
//	cmd=abort exitcode=7                           nothing: the process waits to be killed
//	cmd=publish_name service=S port=P              cmd=publish_result rc=-1, and so for lookup_name and unpublish_name
//	mcmd=spawn, lines of key=value, endcmd         cmd=spawn_result rc=-1: a world does not grow
//
// What was put before a barrier can be got after it, on all nodes. There is one key that nobody puts: PMI_process_mapping, by which
// processes know who shares a machine with them. Version 1.2 has barriers of groups; MPICH does without where it is told 1.1.
package pmi

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Stage is how far a process has come.
type Stage byte

const (
	Silent   Stage = 0   // it has said nothing
	Began    Stage = 'i' // MPI_Init
	Finished Stage = 'f' // MPI_Finalize
	Aborted  Stage = 'a' // MPI_Abort
)

// A Record is what a server writes down of a process, so that it can be known when that has ended.
type Record struct {
	Stage Stage
	Code  byte // of MPI_Abort, as an exit code
}

// recordSize is that of a record in a file, in which they stand by local rank.
const recordSize = 2

// Write writes it into a file.
func (r Record) Write(f io.WriterAt, local int) error {
	_, err := f.WriteAt([]byte{byte(r.Stage), r.Code}, int64(local)*recordSize)
	return err
}

// RecordOf reads what was written of a process: nothing, where it said nothing.
func RecordOf(file []byte, local int) (r Record) {
	if at := local * recordSize; at >= 0 && at+recordSize <= len(file) {
		r.Stage, r.Code = Stage(file[at]), file[at+1]
	}
	return r
}

// A World says how many processes each node has, in the order of ranks: runs of nodes that have the same number.
type World []Run

// A Run is a number of nodes, one after the other, with so many processes each.
type Run struct{ Nodes, Procs int }

// NewWorld is the world in which the i-th node has procs[i] processes.
func NewWorld(procs []int) (w World) {
	for _, n := range procs {
		if last := len(w) - 1; last >= 0 && w[last].Procs == n {
			w[last].Nodes++
			continue
		}
		w = append(w, Run{1, n})
	}
	return w
}

// String is the world as PMI_process_mapping has it: "(vector,(0,2,8))" is two nodes with eight processes each.
func (w World) String() string {
	var b strings.Builder
	first := 0
	b.WriteString("(vector")
	for _, r := range w {
		fmt.Fprintf(&b, ",(%d,%d,%d)", first, r.Nodes, r.Procs)
		first += r.Nodes
	}
	return b.String() + ")"
}

// maxCount bounds nodes and processes, so that no sum of a few runs overflows.
const maxCount = 1 << 24

// ParseWorld reads what String writes.
func ParseWorld(text string) (w World, err error) {
	inner, ok := strings.CutPrefix(text, "(vector,(")
	inner, ok2 := strings.CutSuffix(inner, "))")
	if !ok || !ok2 {
		return nil, fmt.Errorf("%.60q is no mapping: it has the form (vector,(0,NODES,PROCESSES))", text)
	}
	for run := range strings.SplitSeq(inner, "),(") {
		first, r := 0, Run{}
		if n, err := fmt.Sscanf(run, "%d,%d,%d", &first, &r.Nodes, &r.Procs); err != nil || n != 3 || first != w.Nodes() ||
			r.Nodes < 1 || r.Procs < 1 || r.Nodes > maxCount || r.Procs > maxCount || w.Size()+r.Nodes*r.Procs > maxCount {
			return nil, fmt.Errorf("%.60q is no mapping: %.40q", text, run)
		}
		w = append(w, r)
	}
	if w.String() != text {
		return nil, fmt.Errorf("%.60q is no mapping: it would be %.60q", text, w)
	}
	return w, nil
}

// Size is the number of processes.
func (w World) Size() (n int) {
	for _, r := range w {
		n += r.Nodes * r.Procs
	}
	return n
}

// Nodes is the number of nodes.
func (w World) Nodes() (n int) {
	for _, r := range w {
		n += r.Nodes
	}
	return n
}

// Procs is the number of processes on a node; 0 if there is no such node.
func (w World) Procs(node int) int {
	for _, r := range w {
		if node < r.Nodes {
			return r.Procs
		}
		node -= r.Nodes
	}
	return 0
}

// A Watcher is an agent's connection to a server, by which it hears who is to be killed.
type Watcher struct {
	conn net.Conn
	in   reader
}

// Watch connects to the server that listens at a unix socket's path.
func Watch(path string) (*Watcher, error) {
	conn, err := net.Dial("unix", path)
	if err == nil {
		_, err = io.WriteString(conn, Message{greeting, []Arg{{"agent", "1"}}}.String())
	}
	if err != nil {
		return nil, fmt.Errorf("pmi: %w", err)
	}
	return &Watcher{conn, newReader(conn)}, nil
}

// An Event is what an agent is told of a world.
type Event struct {
	Began bool // one of its processes has called MPI_Init: the first of this node or, after Await, of any
	Local int  // else: the local rank of who has called MPI_Abort
}

// Next waits for an event. What was before Watch is told, too.
func (w *Watcher) Next() (e Event, err error) {
	m, err := w.in.next()
	if err == nil && m.Cmd == aborted {
		e.Local, err = strconv.Atoi(m.Get("local"))
	}
	e.Began = err == nil && m.Cmd == began
	return e, err
}

// Await asks for the beginning of a world on other nodes, too: that all processes of one of them wait in a barrier, and for this node's, some of which
// have ended.
func (w *Watcher) Await() { _, _ = io.WriteString(w.conn, Message{await, nil}.String()) }

// Close ends it, and a call that waits.
func (w *Watcher) Close() error { return w.conn.Close() }

// Connect makes the connection that the process with this local rank inherits, to a server that listens at a unix socket's path. Who may
// connect is whoever may use that path.
func Connect(path string, local int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("pmi: %w", err)
	}
	f := os.NewFile(uintptr(fd), path)
	for err = unix.EINTR; errors.Is(err, unix.EINTR); { // it waits while the server's queue is full
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		_, err = f.WriteString(Message{greeting, []Arg{{"local", strconv.Itoa(local)}}}.String())
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("pmi: connect to the server at %s: %w", path, err)
	}
	return f, nil
}

// greeting is muster's own message, the first of a connection: whose it is. PMI has none for that on an inherited descriptor.
const greeting = "muster"

// What is said on an agent's connection after that.
const (
	aborted = "aborted"
	began   = "began"
	await   = "await"
)
