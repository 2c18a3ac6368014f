package pid1

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/output"
	"github.com/muster-run/muster/proc"
)

// What the agent and the first process say to each other. The agent asks, the first process answers under the
// same ID; what is told is not answered.
type kind int

const (
	tellHello    kind = iota // agent: I listen, forward the signals that you have
	tellGoodbye              // agent: I am about to end of my own will, with Code
	askStart                 // agent: start Spec; answer: PID, and, if it is to read them, descriptors of stdout and stderr
	askSignal                // agent: send Signal to PIDs[0] in Scope
	askKill                  // agent: kill PIDs with all they started, within Within; answer: Text names survivors
	tellWords                // agent: Text is to be found in the termination log if nothing comes after it
	askOrphans               // agent: how many processes have been adopted and reaped? answer: Count
	askConsole               // agent: open Console in Style on two descriptors, unless it is open
	askTail                  // agent: answer: the last Lines of PIDs[0] so far
	askClose                 // agent: deliver what waits at Console, within Within, and close it; answer: Text says what was lost
	tellLines                // agent: Data, whole lines, is for Stream of Console
	tellKeep                 // agent: Data is for the agent after this one, under the name Text
	tellHold                 // agent: hold these descriptors, under the name Text, in place of those that were
	tellDrop                 // agent: what was kept or held under the name Text is not needed any more
	tellDropOld              // agent: close what agents before it gave to hold, under all names that begin with Text
	askLegacy                // agent: what did the one before leave? answer: Legacy, descriptors in the order of its Files
	askSuccessor             // agent: after my end, which comes at once, start the program of this descriptor in my place
	tellForget               // agent: PIDs have ended, and nobody will ask about them any more
	answer                   // first process
	tellExit                 // first process: Exit of a started process
	tellSignal               // first process: Signal came for the job
	tellTail                 // first process: all output of PIDs[0], which has ended, was read; Lines are its last
	tellLease                // agent: kill all workers unless I say this again within Within; 0: do not
	tellLapse                // first process: the agent has not, and they were killed
	askRhythms               // agent: answer: the Rhythms of the output of PIDs, in their order; Looks says whether their lines are to be looked at
	askCounts                // agent: answer: Counts, of the output at all consoles

	// New ones come here: agent and first process may be of different versions, and who does not know a message drops it.
)

// A message is one frame. Fields that its kind does not name are empty.
type message struct {
	Kind   kind
	ID     uint64
	Spec   *spawnSpec
	PIDs   []int
	Signal syscall.Signal
	Scope  proc.Scope
	Within time.Duration
	Text   string // of words, or the error of an answer
	Code   int    // of an answer: proc.StartError.Code; of a goodbye: the exit code
	Gone   bool   // of an answer: there is no such process any more
	Count  int
	Exit   *wireExit
	// Carried: of an answer to askStart, the first process reads the output.
	Carried bool
	// Lapses: how often a lease ran out, as far as the sender knows. Of an answer to askStart: that is why it was refused.
	Lapses int
	Leases bool          // of a hello: the agent renews leases
	At     time.Duration // of a lease: when it was given, by CLOCK_BOOTTIME

	Console int
	Stream  int
	Style   *output.Style
	Data    []byte
	Lines   []string
	Legacy  *wireLegacy
	Looks   []bool
	Rhythms []output.Rhythm
	Counts  *output.Counts

	files []int            // descriptors that travel with it; the sender's are closed when it is sent
	exit  <-chan proc.Exit // on the agent's side, of an answer to askStart
	tail  <-chan []string  // the same
	// inherited: on the agent's side, of an answer to askLegacy.
	inherited *Legacy
}

func (m *message) fields(c *coder) {
	integer(c, 1, &m.Kind)
	integer(c, 2, &m.ID)
	part(c, 3, &m.Spec, (*spawnSpec).fields)
	integers(c, 4, &m.PIDs)
	integer(c, 5, &m.Signal)
	integer(c, 6, &m.Scope)
	integer(c, 7, &m.Within)
	text(c, 8, &m.Text)
	integer(c, 9, &m.Code)
	boolean(c, 10, &m.Gone)
	integer(c, 11, &m.Count)
	part(c, 12, &m.Exit, (*wireExit).fields)
	boolean(c, 13, &m.Carried)
	integer(c, 14, &m.Lapses)
	boolean(c, 15, &m.Leases)
	integer(c, 16, &m.Console)
	integer(c, 17, &m.Stream)
	part(c, 18, &m.Style, styleFields)
	data(c, 19, &m.Data)
	texts(c, 20, &m.Lines)
	part(c, 21, &m.Legacy, (*wireLegacy).fields)
	booleans(c, 22, &m.Looks)
	parts(c, 23, &m.Rhythms, rhythmFields)
	part(c, 24, &m.Counts, countsFields)
	integer(c, 25, &m.At)
}

// spawnSpec is proc.Spec without its files, which travel beside it.
type spawnSpec struct {
	Argv, Env     []string
	Dir           string
	Stdin, Output bool
	Lines         *proc.Lines
	Tag           string
	Core          bool
	OOM           int
	Binding       proc.Binding
}

func (s *spawnSpec) fields(c *coder) {
	texts(c, 1, &s.Argv)
	texts(c, 2, &s.Env)
	text(c, 3, &s.Dir)
	boolean(c, 4, &s.Stdin)
	boolean(c, 5, &s.Output)
	part(c, 6, &s.Lines, linesFields)
	text(c, 7, &s.Tag)
	boolean(c, 8, &s.Core)
	integer(c, 9, &s.OOM)
	integers(c, 10, &s.Binding.CPUs)
	integers(c, 11, &s.Binding.Memory)
	boolean(c, 12, &s.Binding.Prefer)
}

func linesFields(l *proc.Lines, c *coder) {
	integer(c, 1, &l.Console)
	integer(c, 2, &l.Rank)
	integer(c, 3, &l.LocalRank)
	boolean(c, 4, &l.Bare)
	boolean(c, 5, &l.Raw)
	boolean(c, 6, &l.Shown[0])
	boolean(c, 7, &l.Shown[1])
	text(c, 8, &l.Progress)
	boolean(c, 9, &l.Filed[0])
	boolean(c, 10, &l.Filed[1])
	text(c, 11, &l.Dir)
	integer(c, 12, &l.Quota)
}

func styleFields(s *output.Style, c *coder) {
	boolean(c, 1, &s.JSON)
	boolean(c, 2, &s.Fold)
	boolean(c, 3, &s.Bare)
	boolean(c, 4, &s.Color)
	text(c, 5, &s.Node)
}

func rhythmFields(r *output.Rhythm, c *coder) {
	integer(c, 1, &r.Bytes)
	integer(c, 2, &r.Matches)
	integer(c, 3, &r.Step)
}

func countsFields(n *output.Counts, c *coder) {
	integer(c, 1, &n.Bytes[0])
	integer(c, 2, &n.Bytes[1])
	integer(c, 3, &n.Lines[0])
	integer(c, 4, &n.Lines[1])
	integer(c, 5, &n.Unshown)
	integer(c, 6, &n.Unfiled)
}

// wireExit is proc.Exit with a time that both processes understand: nanoseconds of CLOCK_MONOTONIC.
type wireExit struct {
	proc.Exit
	Clock int64
}

func (e *wireExit) fields(c *coder) {
	integer(c, 1, &e.PID)
	integer(c, 2, &e.Code)
	integer(c, 3, &e.Signal)
	boolean(c, 4, &e.Core)
	integer(c, 5, &e.User)
	integer(c, 6, &e.System)
	integer(c, 7, &e.MaxRSS)
	boolean(c, 8, &e.Lapsed)
	text(c, 9, &e.Lost)
	integer(c, 10, &e.Clock)
}

const (
	headerSize = 5
	maxFrame   = 16 << 20 // the kernel lets arguments and environment have 6 MiB
	maxFiles   = 64       // less than byFields
)

// A link carries messages over a stream socket: the length in four bytes, the number of descriptors in one, with byFields, and the
// fields. Not JSON: arguments and environments are bytes, not text. One goroutine may send, another receive.
type link struct {
	conn *net.UnixConn
	in   bytes.Buffer

	settled chan struct{} // closed when it is known of which release the peer is: the agent speaks first
	older   *gobs         // one that has no fields; nil: it has
}

// byFields is set in a header whose message is in fields, as a coder writes them.
const byFields = 0x80

// newLink takes fd over.
func newLink(fd int) (*link, error) {
	f := os.NewFile(uintptr(fd), "first process")
	defer f.Close() // FileConn has its own
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("not a unix socket")
	}
	return &link{conn: u, settled: make(chan struct{})}, nil
}

// settle says of which release the peer is, if it is not known yet. Only who receives calls it, or who made the link.
func (l *link) settle(older bool) {
	select {
	case <-l.settled:
		return
	default:
	}
	if older {
		l.older = newGobs()
	}
	close(l.settled)
}

// send writes m. The descriptors go with the first byte, so they are there when its reader has the header.
func (l *link) send(m message) error {
	defer closeAll(m.files)
	<-l.settled
	form, b := byFields, []byte(nil)
	if l.older == nil {
		b = encode(m.fields)
	} else {
		var err error
		if form, b, err = l.older.encode(m); err != nil {
			return err
		}
	}
	var header [headerSize]byte
	binary.LittleEndian.PutUint32(header[:], uint32(len(b)))
	header[4] = byte(form | len(m.files))
	var rights []byte
	if len(m.files) > 0 {
		rights = unix.UnixRights(m.files...)
	}
	if n, _, err := l.conn.WriteMsgUnix(header[:], rights, nil); err != nil || n < headerSize {
		return errors.Join(err, io.ErrShortWrite)
	}
	_, err := l.conn.Write(b)
	return err
}

// receive waits for the next message. Its files are the receiver's to close.
func (l *link) receive() (m message, err error) {
	var header [headerSize]byte
	defer l.settle(false) // who waits to send to a peer that is gone
	n, files, err := l.receiveHeader(header[:])
	if err != nil {
		return message{}, err
	}
	if n < headerSize {
		if _, err := io.ReadFull(l.conn, header[n:]); err != nil {
			closeAll(files)
			return message{}, err
		}
	}
	size, count := int64(binary.LittleEndian.Uint32(header[:])), int(header[4]&^byFields)
	if size > maxFrame || count != len(files) {
		closeAll(files)
		return message{}, fmt.Errorf("a frame of %d bytes and %d of %d descriptors", size, len(files), count)
	}
	l.settle(header[4]&byFields == 0)
	l.in.Reset()
	if _, err = io.CopyN(&l.in, l.conn, size); err == nil {
		if l.older == nil {
			err = decode(l.in.Bytes(), m.fields)
		} else {
			err = l.older.decode(l.in.Bytes(), &m)
		}
	}
	if err != nil {
		closeAll(files)
		return message{}, err
	}
	m.files = files
	return m, nil
}

func (l *link) receiveHeader(header []byte) (int, []int, error) {
	oob := make([]byte, unix.CmsgSpace(maxFiles*4))
	n, oobn, flags, _, err := l.conn.ReadMsgUnix(header, oob)
	if err != nil {
		return 0, nil, err
	}
	files, err := parseRights(oob[:oobn])
	switch {
	case err != nil:
		return 0, nil, err
	case flags&unix.MSG_CTRUNC != 0:
		closeAll(files)
		return 0, nil, errors.New("descriptors were lost: too many open files")
	case n == 0:
		closeAll(files)
		return 0, nil, io.EOF
	}
	return n, files, nil
}

func parseRights(oob []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []int
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return files, err
		}
		files = append(files, fds...)
	}
	return files, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// clock reads CLOCK_MONOTONIC, which all processes of a machine share.
func clock() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail with this clock
	return t.Nano()
}
