package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	ossignal "os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
)

const (
	barOnTerminal = time.Second     // how often a progress bar is shown to somebody who looks at it
	barInLog      = 5 * time.Second // and to somebody who reads it later
)

// A Style is how a console shows lines.
type Style struct {
	JSON  bool   // an object for each line, for machines
	Fold  bool   // equal lines of several ranks become one; not with JSON
	Bare  bool   // lines are as the worker wrote them, without its rank; not with JSON
	Color bool   // ranks have colours, on a terminal
	Node  string // this host's name, for JSON
}

// A Console is our standard output and error with many writers, of whom none ever waits long: who reads slowly, or not at
// all, loses lines, the oldest first, and is told how many.
type Console struct {
	out, err *screen
	words    word // about log files
	counts   counters
}

// NewConsole starts carrying to stdout and stderr, which may be the same file. Nothing else should write to them.
func NewConsole(stdout, stderr *os.File, style Style) *Console {
	// A write to a closed pipe at descriptor 1 or 2 is Go's one deadly error, unless somebody wants the signal.
	ossignal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	c := &Console{}
	c.out = newScreen(stdout, style, &c.counts)
	c.err, c.words.say = c.out, c.complain
	if !same(stdout, stderr) { // lines of two writers to one pipe would mix
		c.err = newScreen(stderr, style, &c.counts)
		ours := c.Stderr()
		c.out.died = func(err error) {
			fmt.Fprintf(ours, "muster: nobody reads standard output any more (%v): what goes there is lost\n", err)
		}
		c.out.file.full = func(err error) {
			fmt.Fprintf(ours, "muster: there is no room for standard output (%v): the workers go on, their lines are missing there\n", err)
		}
	}
	return c
}

// Stdout returns a writer for lines of our own among the workers'. Each Write should be whole lines.
func (c *Console) Stdout() io.Writer { return c.out.ours() }

// Stderr is Stdout for standard error.
func (c *Console) Stderr() io.Writer { return c.err.ours() }

// complain says something to people.
func (c *Console) complain(text string) { fmt.Fprintf(c.Stderr(), "muster: %s\n", text) }

func (c *Console) screen(stream int) *screen {
	if stream == stdout {
		return c.out
	}
	return c.err
}

// Close delivers what waits and ends. A console that stands still, or ctx, ends it earlier; the error says how many lines
// were lost in all. Nothing may be written any more.
func (c *Console) Close(ctx context.Context) error {
	err := c.out.close(ctx)
	if c.err != c.out {
		err = errors.Join(err, c.err.close(ctx))
	}
	return err
}

func same(a, b *os.File) bool {
	x, errX := a.Stat()
	y, errY := b.Stat()
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// patient is a file that is written to completely. Our standard output may be made non-blocking by whoever shares it, at any
// time (a terminal's programs do that); then we wait here for its reader.
type patient struct{ *os.File }

func (p patient) Write(b []byte) (n int, err error) {
	for n < len(b) {
		var some int
		some, err = p.File.Write(b[n:])
		n += some
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
		if err != nil {
			p.wait()
		}
	}
	return n, nil
}

func (p patient) wait() {
	if raw, err := p.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(time.Second/time.Millisecond))
		})
	}
}

// A screen is one file of a console.
type screen struct {
	*sink
	file     *disk
	style    Style
	folds    map[string]*folder // by stream; nil: lines are shown as they come
	barEvery time.Duration
	own      view // of our own lines
}

func newScreen(f *os.File, style Style, counts *counters) *screen {
	tty, pace := terminal(f), consolePace
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		pace = filePace // it has no reader
	}
	style.Color = style.Color && tty && !style.JSON
	var own view = plain{}
	if style.JSON {
		own = ourRecords(style.Node)
	}
	file := &disk{patient: patient{f}, note: noteOf(own), losses: &counts.unshown, full: func(error) {}}
	s := &screen{sink: newSink(file, "console", pace, &counts.unshown), file: file, style: style, barEvery: barInLog, own: own}
	if tty {
		s.barEvery = barOnTerminal
	}
	if style.Fold {
		s.folds = map[string]*folder{}
		for _, stream := range streamNames {
			s.folds[stream] = newFolder(s.newQueue(noteOf(plain{})), style.Color)
		}
	}
	return s
}

func (s *screen) close(ctx context.Context) error {
	for _, f := range s.folds {
		f.close()
	}
	return s.sink.close(ctx)
}

// An outlet carries chunks of whole lines on.
type outlet interface {
	put(b []byte) []byte // takes b and returns a buffer for the next
	flush()              // returns when all of it was written, or cannot be
}

// open returns the way of a worker's stream to the screen, and the form of its lines.
func (s *screen) open(l proc.Lines, stream string) (outlet, view) {
	switch {
	case s.style.JSON:
		r := recordsOf(l, s.style.Node, stream)
		return s.newQueue(noteOf(r)), r
	case l.Bare:
		return s.newQueue(noteOf(plain{})), plain{bare: true}
	case s.folds != nil:
		return s.folds[stream].voice(l.Rank), plain{}
	}
	p := plain{}
	if !s.style.Bare {
		p.prefix = label(fmt.Sprintf("rank %d", l.Rank), l.Rank, s.style.Color)
	}
	return s.newQueue(noteOf(p)), p
}

// ours is the way of our own lines to the screen.
func (s *screen) ours() io.Writer {
	q := s.newQueue(noteOf(s.own))
	q.hasty = true
	return lines{q, s.own}
}

type lines struct {
	q    *queue
	form view
}

func (l lines) Write(b []byte) (int, error) {
	l.q.put(l.form.lines(nil, b))
	return len(b), nil
}

// noteOf returns what appends a line of our own, in place of lines that are missing.
func noteOf(form view) func([]byte, string) []byte {
	return func(out []byte, text string) []byte { return form.line(out, []byte("[muster: "+text+"]"), whole) }
}
