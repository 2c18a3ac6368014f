package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options say where a log goes, and what all its lines have alike.
type Options struct {
	Where   string    // a file, in which %h is the host and %j the job; "-": Console; fd:N: a descriptor of Parent's
	Console io.Writer // takes whole lines
	Parent  int       // the process whose descriptors fd:N names
	Host    string
	Mark    Mark              // where an agent before this one had come to
	Keep    func(Mark)        // leaves that for an agent which follows
	Say     func(text string) // tells people, from another goroutine
}

// A Mark is how far a log has been written.
type Mark struct {
	Run  string `json:"run"`
	Seq  uint64 `json:"seq"`            // of the next line
	Told int    `json:"told,omitempty"` // lines of the judgement that are written, or counted as dropped
	Over bool   `json:"over,omitempty"` // the verdict is written
}

// Bounds on lines that wait to be written.
const (
	maxWaiting = 4096
	retryTime  = time.Second
)

// A Log takes lines from many goroutines and writes them in their order, without ever holding anybody up. A nil log takes none.
type Log struct {
	o    Options
	wake chan struct{} // holds one when there is something to do
	done chan struct{} // closed when the writing goroutine has ended
	shut chan struct{} // closed when no more lines come
	end  context.Context
	quit context.CancelFunc // ends it

	mu      sync.Mutex
	path    string // where it is written; "": that is not known yet
	job     string
	place   Line // node, generation and round of the line before
	waiting []entry
	mark    Mark   // of what was added
	dropped uint64 // since the last line that was taken
	lost    uint64 // in all
	closed  bool

	// Of the writing goroutine.
	file   *os.File
	rest   []byte // of a line that was written in part,
	left   int64  // and how long the file was then
	torn   bool   // the file may end in the middle of a line
	failed bool   // it was said that nothing can be written
}

// An entry is a line that waits.
type entry struct {
	text []byte
	mark Mark // when it is written
}

// Open begins a log. Nothing is written before Begin.
func Open(o Options) *Log {
	if o.Where == "" {
		return nil
	}
	l := &Log{o: o, wake: make(chan struct{}, 1), done: make(chan struct{}), shut: make(chan struct{}), mark: o.Mark}
	l.mark.Seq = max(l.mark.Seq, 1)
	l.end, l.quit = context.WithCancel(context.Background())
	go l.write()
	return l
}

// Begin says which job it is about.
func (l *Log) Begin(job string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.job = job
	if l.path == "" {
		l.path = l.o.path(job)
	}
	l.stir()
}

// toConsole is the path of what is no file.
const toConsole = "-"

// path is where lines are written. Only what is neither the console nor a descriptor is the pattern of a path.
func (o Options) path(job string) string {
	number, is := strings.CutPrefix(o.Where, "fd:")
	switch {
	case o.Where == toConsole:
		return toConsole
	case is:
		return fmt.Sprintf("/proc/%d/fd/%s", o.Parent, number)
	}
	path := strings.NewReplacer("%%", "%", "%h", name(o.Host), "%j", name(job)).Replace(o.Where)
	if path == toConsole {
		return "./" + path
	}
	return path
}

// name makes one name in a path of what may hold anything.
func name(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "_")
	}
	return strings.NewReplacer("/", "_", "\x00", "_").Replace(s)
}

// Pattern reports whether a file may be given so.
func Pattern(where string) error {
	if number, is := strings.CutPrefix(where, "fd:"); is {
		if n, err := strconv.ParseUint(number, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("%q names no descriptor: give fd:3", where)
		}
		return nil
	}
	for i := 0; i < len(where); i++ {
		if where[i] != '%' {
			continue
		}
		if i++; i == len(where) || !strings.ContainsRune("%hj", rune(where[i])) {
			return fmt.Errorf("%q: %%h is the host, %%j the job, %%%% a percent sign; no other %% is known", where)
		}
	}
	return nil
}

func (l *Log) stir() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Add takes lines that follow from one thing.
func (l *Log) Add(at time.Time, lines ...Line) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range lines {
		l.add(at, lines[i])
	}
	l.stir()
}

// AddJudged takes lines of the judgement, which are counted, for another agent can judge again: before was the number of those that came before
// these. What an agent before this one has written is left out, and what none wrote, and is not known any more, counts as dropped.
func (l *Log) AddJudged(at time.Time, before int, lines ...Line) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := before - l.mark.Told; n > 0 {
		l.drop(n)
		l.mark.Told = before
	}
	for i := range lines {
		if before+i < l.mark.Told {
			continue
		}
		l.mark.Told++
		l.add(at, lines[i])
	}
	l.stir()
}

// drop is called with mu held.
func (l *Log) drop(lines int) {
	n := uint64(lines)
	l.mark.Seq, l.dropped, l.lost = l.mark.Seq+n, l.dropped+n, l.lost+n
}

// add is called with mu held.
func (l *Log) add(at time.Time, line Line) {
	if line.Node != nil {
		l.place = Line{Node: line.Node, Generation: line.Generation, Round: line.Round}
	} else {
		line.Node, line.Generation, line.Round = l.place.Node, l.place.Generation, l.place.Round
	}
	if l.closed || len(l.waiting) >= maxWaiting && line.Event != Verdict {
		l.drop(1)
		return
	}
	if l.dropped > 0 {
		missing := Line{Level: Error, Event: LinesDropped, Message: fmt.Sprintf("%d lines are missing here: what they are written to did not keep up", l.dropped), Dropped: l.dropped}
		missing.Node, missing.Generation, missing.Round = line.Node, line.Generation, line.Round
		l.dropped = 0
		l.put(at, missing)
	}
	l.put(at, line)
}

// put numbers a line and lets it wait.
func (l *Log) put(at time.Time, line Line) {
	line.Schema, line.Time, line.Run, line.Seq, line.Job, line.Host = Schema, at.UTC().Format(timeLayout), l.mark.Run, l.mark.Seq, l.job, l.o.Host
	l.mark.Seq++
	l.mark.Over = l.mark.Over || line.Event == Verdict
	l.waiting = append(l.waiting, entry{line.bound(), l.mark})
}

// Over reports whether the last line was written, or waits to be: an agent before this one may have come to it.
func (l *Log) Over() bool {
	if l == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mark.Over
}

// Mark is how far lines were added.
func (l *Log) Mark() Mark {
	if l == nil {
		return Mark{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mark
}

// Close writes what waits, within a time, and returns how many lines were lost.
func (l *Log) Close(within time.Duration) (lost uint64) {
	if l == nil {
		return 0
	}
	l.Begin(l.job) // if it has not been
	l.mu.Lock()
	if !l.closed {
		close(l.shut)
	}
	l.closed = true
	l.stir()
	l.mu.Unlock()
	late := time.AfterFunc(within, func() {
		l.quit()
		l.unblock()
	})
	defer late.Stop()
	select {
	case <-l.done:
	case <-time.After(within + retryTime): // a disk that hangs does not let go
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost + uint64(len(l.waiting))
}

// unblock ends a write to a pipe that nobody reads.
func (l *Log) unblock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.SetWriteDeadline(time.Now()) // only what can be waited for has one
	}
}

// write is the writing goroutine.
func (l *Log) write() {
	defer close(l.done)
	defer l.quit()
	for {
		e, more := l.next()
		if !more {
			return
		}
		last := l.over()
		err := l.one(e.text)
		if err == nil {
			l.wrote(e.mark)
			continue
		}
		if !l.failed && l.o.Say != nil {
			l.o.Say(fmt.Sprintf("events: %v; the job goes on, and lines wait until this is over, %d at most", err, maxWaiting))
		}
		l.failed = true
		var shut chan struct{}
		if errors.Is(err, errUnread) { // at the end, nobody is waited for who is not there
			if shut = l.shut; last {
				return
			}
		}
		select {
		case <-l.end.Done():
			return
		case <-shut: // perhaps somebody has come by now
		case <-time.After(retryTime):
		}
	}
}

// over reports whether no more lines come.
func (l *Log) over() bool {
	select {
	case <-l.shut:
		return true
	default:
		return false
	}
}

// next waits for a line that can be written; more: there may be one.
func (l *Log) next() (e entry, more bool) {
	for {
		l.mu.Lock()
		ready, over := l.path != "" && len(l.waiting) > 0, l.closed && len(l.waiting) == 0
		if ready {
			e = l.waiting[0]
		}
		l.mu.Unlock()
		switch {
		case l.end.Err() != nil:
			return e, false
		case ready:
			return e, true
		case over:
			return e, false
		}
		select {
		case <-l.wake:
		case <-l.end.Done():
		}
	}
}

// wrote notes that a line is where it belongs.
func (l *Log) wrote(m Mark) {
	l.mu.Lock()
	l.waiting = l.waiting[1:]
	l.mu.Unlock()
	if l.failed && l.o.Say != nil {
		l.o.Say("events: lines are written again")
	}
	l.failed = false
	if l.o.Keep != nil {
		l.o.Keep(m)
	}
}

// errUnread is a pipe that nobody reads. What stands in it stays there while it is open.
var errUnread = errors.New("nobody reads it")

// errSocket is what Linux lets nobody open by a path.
var errSocket = errors.New("it is a socket; give a file or a pipe")

// one writes a line, after what is left of one that was begun.
func (l *Log) one(line []byte) error {
	if l.path == toConsole {
		_, err := l.o.Console.Write(line)
		return err
	}
	err := l.reopen()
	if err == nil {
		err = l.append(line)
	}
	path := new(fs.PathError)
	switch {
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ENXIO) && is(l.path, fs.ModeNamedPipe):
		return fmt.Errorf("%s: %w", l.o.Where, errUnread)
	case errors.Is(err, syscall.ENXIO) && is(l.path, fs.ModeSocket):
		return fmt.Errorf("%s: %w", l.o.Where, errSocket)
	case errors.As(err, &path) && strings.HasPrefix(l.o.Where, "fd:"):
		return fmt.Errorf("%s: %w", l.o.Where, path.Err)
	}
	return err
}

// append writes a line, or what is left of it, to the file. Where that ends in the middle of another one, which an agent had begun that died, or one
// for which a disk had no room, ours begins anew: else it is a part of that.
func (l *Log) append(line []byte) error {
	if l.rest != nil && l.left != l.size() { // somebody else wrote behind it
		l.rest = nil
	}
	if l.rest == nil {
		if l.rest = line; l.torn && torn(l.path, l.file) {
			l.rest = append([]byte("\n"), line...)
		}
	}
	n, err := l.file.Write(l.rest)
	if err != nil {
		l.torn = true
		if l.rest, l.left = l.rest[n:], l.size(); n == 0 && len(l.rest) >= len(line) {
			l.rest = nil // nothing was begun
		}
		return err
	}
	l.rest, l.torn = nil, false
	return nil
}

// size is how long the file is; 0: it is none.
func (l *Log) size() int64 {
	info, err := l.file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}

// reopen opens the file, or the one that has come into its place: logs are moved away (logrotate).
func (l *Log) reopen() error {
	mode := fs.FileMode(ownMode)
	if l.file != nil {
		is, err := os.Stat(l.path)
		was, err1 := l.file.Stat()
		if err == nil && err1 == nil && os.SameFile(is, was) || err != nil && !errors.Is(err, fs.ErrNotExist) || strings.HasPrefix(l.o.Where, "fd:") {
			return nil
		}
		if err1 == nil && was.Mode().IsRegular() {
			mode = was.Mode().Perm()
		}
		l.set(nil)
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK|syscall.O_CLOEXEC, mode) // what waits can be ended, and nobody need read a pipe
	if err != nil {
		return err
	}
	l.set(f)
	return nil
}

// ownMode is for files that we make: lines have what workers said as they failed. A file that is there keeps its own, and hands it on.
const ownMode = 0o600

func (l *Log) set(f *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close()
		l.rest = nil // what was begun stays where it is
	}
	l.file, l.torn = f, true
}

// is reports what a path leads to.
func is(path string, kind fs.FileMode) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == kind
}

// torn reports whether a file ends in the middle of a line.
func torn(path string, f *os.File) bool {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	r, err := os.Open(path)
	if err != nil {
		return false
	}
	defer r.Close()
	var last [1]byte
	_, err = r.ReadAt(last[:], info.Size()-1)
	return err == nil && !bytes.Equal(last[:], []byte("\n"))
}
