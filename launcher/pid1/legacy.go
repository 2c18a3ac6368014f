package pid1

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
)

// This file is how an agent that died, or makes way for a newer program, is followed by another. The first process has the
// children and their output anyway; beside that it keeps for the next agent what this one leaves with it.

// legacy is what an agent leaves, and how the agents before it fared.
type legacy struct {
	program   string            // what to start as the next one
	successor bool              // the agent asked for that
	blobs     map[string][]byte // by name
	files     map[string]held   // by name
	agents    int               // that there were
	vain      int               // of those, the last that came to nothing
	born      time.Time
	busy      bool // the last one had workers
}

// held is descriptors, and how many agents there were when they were given.
type held struct {
	fds    []int
	agents int
}

// KeptDir and KeptPages are the names under which an agent keeps the paths of directories of its own, which are removed when none is
// left to do it.
const (
	KeptDir   = "dir"
	KeptPages = "pages"
)

// clean removes what agents could not.
func (f *first) clean() {
	for _, name := range []string{KeptDir, KeptPages} {
		if dir := f.legacy.blobs[name]; len(dir) > 0 && !f.goodbye {
			os.RemoveAll(string(dir))
		}
	}
}

// ownProgram is this program, also when its file was replaced.
const ownProgram = "/proc/self/exe"

// programFile is another program, which we hold open.
const programFile = "/proc/self/fd/%d"

const (
	maxBlob  = 8 << 20         // half of a frame
	maxHeld  = 1 << 15         // names of descriptors
	soon     = 2 * time.Second // an agent that dies within that of its start has come to nothing,
	idle     = time.Minute     // and within this, where it had no worker to look after
	mostVain = 5               // and so many in a row: the next one would, too
)

// serveLegacy does what an agent asks for the sake of the next one.
func (f *first) serveLegacy(m message) {
	l := &f.legacy
	switch m.Kind {
	case tellKeep:
		l.blobs[m.Text] = m.Data
	case tellHold:
		closeAll(l.files[m.Text].fds)
		delete(l.files, m.Text)
		if len(l.files) < maxHeld {
			l.files[m.Text], m.files = held{m.files, l.agents}, nil
		}
		closeAll(m.files)
	case tellDrop:
		closeAll(l.files[m.Text].fds)
		delete(l.files, m.Text)
		delete(l.blobs, m.Text)
	case tellDropOld:
		l.drop(m.Text, l.agents-1, true)
	case askLegacy:
		f.tell(f.bequeath(m.ID))
	case askSuccessor:
		if len(m.files) == 1 {
			var old int
			if n, _ := fmt.Sscanf(l.program, programFile, &old); n == 1 {
				unix.Close(old)
			}
			l.program, l.successor = fmt.Sprintf(programFile, m.files[0]), true
		}
		f.tell(message{Kind: answer, ID: m.ID})
	}
}

// drop closes what is held under names that begin so, since there were no more agents than that. Where another one goes on connections are reset: to a peer
// that cannot call at once any other end says that nobody does.
func (l *legacy) drop(prefix string, agents int, goesOn bool) {
	maps.DeleteFunc(l.files, func(name string, h held) bool {
		drop := strings.HasPrefix(name, prefix) && h.agents <= agents
		for _, fd := range h.fds {
			if drop && goesOn {
				_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // of the socket, whoever else has it open
			}
		}
		if drop {
			closeAll(h.fds)
		}
		return drop
	})
}

// succeed reports whether another agent is to follow the one that ended, and prepares for it.
func (f *first) succeed() bool {
	l := &f.legacy
	if f.goodbye || !l.successor && (!f.followable() || f.sent(f.agentEnd.Signal)) {
		return false
	}
	if l.note(time.Since(l.born)); l.vain > mostVain {
		return false
	}
	if !l.successor {
		if l.vain > 1 {
			l.program = ownProgram // a newer one that does not do
		}
		they := "the workers go on"
		if f.workers() == 0 {
			they = "no worker was running"
		}
		f.complain("the agent died (%s); another one takes over, %s", how(f.agentEnd), they)
	}
	close(f.sending)
	for _, m := range f.outbox {
		closeAll(m.files)
	}
	f.outbox = nil
	f.dropQueue()
	f.agent, f.agentEnd, f.hello, l.successor = 0, nil, false, false
	f.repeat()
	return true
}

// note takes in how long an agent lived that ended. Without workers nothing is lost by an end, and whoever started us may have more luck elsewhere.
func (l *legacy) note(lived time.Duration) {
	if lived >= idle || lived >= soon && l.busy {
		l.vain = 0
	}
	l.vain++
}

// followable reports whether another agent could go on: the last one left something, or was killed before it began anything. One
// that failed so early would fail again.
func (f *first) followable() bool {
	return len(f.legacy.blobs) > 0 || f.agentEnd.Signal == unix.SIGKILL && len(f.children) == 0
}

// dropQueue forgets what was still to be started: nobody wants it.
func (f *first) dropQueue() {
	for _, s := range f.queue {
		s.drop()
	}
	f.queue = nil
}

// how says how an agent ended.
func how(e *proc.Exit) string {
	if e.Signal != 0 {
		return fmt.Sprintf("signal %d", int(e.Signal))
	}
	return fmt.Sprintf("exit code %d", e.Code) // a panic is 2
}

// wireLegacy is a Legacy on its way.
type wireLegacy struct {
	Blobs    map[string][]byte
	Children []wireChild
	Files    []string // names of the descriptors
	Lapses   int      // of leases
}

type wireChild struct {
	PID    int
	Tag    string
	Exit   *wireExit // nil: it lives
	Lines  bool      // the first process reads its output
	Read   bool      // to the end
	Tail   []string
	Asked  []syscall.Signal
	Killed bool
}

func (l *wireLegacy) fields(c *coder) {
	byName(c, 1, &l.Blobs)
	parts(c, 2, &l.Children, (*wireChild).fields)
	texts(c, 3, &l.Files)
	integer(c, 4, &l.Lapses)
}

func (w *wireChild) fields(c *coder) {
	integer(c, 1, &w.PID)
	text(c, 2, &w.Tag)
	part(c, 3, &w.Exit, (*wireExit).fields)
	boolean(c, 4, &w.Lines)
	boolean(c, 5, &w.Read)
	texts(c, 6, &w.Tail)
	integers(c, 7, &w.Asked)
	boolean(c, 8, &w.Killed)
}

// bequeath answers askLegacy. Only as many descriptors go with it as one message takes: each name's first, and of names below others the last.
func (f *first) bequeath(id uint64) message {
	l := &wireLegacy{Blobs: f.legacy.blobs, Lapses: f.lease.lapses}
	for _, pid := range slices.Sorted(maps.Keys(f.children)) {
		c := f.children[pid]
		l.Children = append(l.Children, wireChild{
			PID: pid, Tag: c.tag, Exit: c.end, Lines: c.lines != nil, Read: c.read, Tail: c.tail, Asked: c.asked, Killed: c.killed,
		})
	}
	m := message{Kind: answer, ID: id, Legacy: l}
	for _, name := range slices.SortedFunc(maps.Keys(f.legacy.files), inherits) {
		if fds := f.legacy.files[name].fds; len(fds) == 1 && len(m.files) < maxFiles {
			l.Files = append(l.Files, name)
			m.files = append(m.files, duplicates(fds)...)
		}
	}
	return m
}

// inherits orders names: a listener counts for more than connections, of which there may be thousands.
func inherits(a, b string) int {
	return cmp.Or(strings.Count(a, "/")-strings.Count(b, "/"), strings.Compare(a, b))
}

// A Legacy is what the agent before this one left with the first process.
type Legacy struct {
	Blobs    map[string][]byte   // by [Client.Keep]
	Files    map[string]*os.File // by [Client.Hold], for the receiver to close
	Children []Inherited         // those that live, and workers that ended
}

// An Inherited is a child that an agent before this one started.
type Inherited struct {
	*proc.Child
	Tag    string
	Asked  []syscall.Signal // what it was sent
	Killed bool             // while it lived
}

// Legacy returns what an agent before this one left: nil if this is the first.
func (c *Client) Legacy() *Legacy { return c.legacy }

// Life returns how many agents there were before this one.
func (c *Client) Life() int { return c.life }

// Keep leaves data under a name, for an agent that follows this one.
func (c *Client) Keep(name string, data []byte) error {
	if len(data) > maxBlob {
		return fmt.Errorf("keep %s for another agent: %d bytes, at most %d are possible", name, len(data), maxBlob)
	}
	return c.send(message{Kind: tellKeep, Text: name, Data: data})
}

// Hold makes the first process hold a file open under a name, until Drop, or for an agent that follows this one. A peer of a
// connection then does not see that this agent died.
func (c *Client) Hold(name string, f syscall.Conn) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("hold %s: %w", name, err)
	}
	var fds []int
	if err := raw.Control(func(fd uintptr) { fds = duplicates([]int{int(fd)}) }); err != nil || len(fds) == 0 {
		return fmt.Errorf("hold %s: %w", name, errors.Join(err, unix.EMFILE))
	}
	return c.send(message{Kind: tellHold, Text: name, files: fds})
}

// Drop ends Hold and Keep.
func (c *Client) Drop(name string) error { return c.send(message{Kind: tellDrop, Text: name}) }

// DropOld ends what agents before this one held under names that begin so.
func (c *Client) DropOld(prefix string) error {
	return c.send(message{Kind: tellDropOld, Text: prefix})
}

// Succeed makes another program this agent's successor: it is started when this process has ended, which it must at once and
// without Close. Should it not begin, this program is.
func (c *Client) Succeed(program *os.File) error {
	fds, err := descriptors([]*os.File{program})
	if err != nil {
		return fmt.Errorf("%s: %w", program.Name(), err)
	}
	_, err = c.ask(context.Background(), message{Kind: askSuccessor, files: fds})
	return err
}

// inherit turns an answer to askLegacy into what it means here. It is called with mu held.
func (c *Client) inherit(m message) *Legacy {
	l := &Legacy{Blobs: m.Legacy.Blobs, Files: map[string]*os.File{}}
	c.lapses = m.Legacy.Lapses
	for i, name := range m.Legacy.Files[:min(len(m.Legacy.Files), len(m.files))] {
		l.Files[name] = os.NewFile(uintptr(m.files[i]), name)
	}
	for _, w := range m.Legacy.Children {
		l.Children = append(l.Children, Inherited{c.adopt(w), w.Tag, w.Asked, w.Killed})
	}
	return l
}

// adopt makes a child of an agent before us one of ours. It is called with mu held.
func (c *Client) adopt(w wireChild) *proc.Child {
	exit, tail := make(chan proc.Exit, 1), make(chan []string, 1)
	child := &proc.Child{PID: w.PID, Exit: exit}
	c.tags[w.PID] = w.Tag
	if w.Exit != nil {
		exit <- w.Exit.local()
	} else {
		c.children[w.PID] = exit
	}
	if w.Lines {
		child.Tail = tail
	}
	if w.Read {
		tail <- w.Tail
	} else {
		c.tails[w.PID] = tail
	}
	return child
}

// local is the exit with the time of this process's clock.
func (w *wireExit) local() proc.Exit {
	e := w.Exit
	e.At = time.Now().Add(-time.Duration(clock() - w.Clock))
	return e
}
