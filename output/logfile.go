package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// parts is into how many files the log of one stream is divided. The oldest goes when the newest is full.
const parts = 4

// A logFile is the output of one stream on disk, byte by byte: name, and what was written before it in name.1 to name.3.
// What goes wrong with it is said once and never the worker's problem.
type logFile struct {
	path   string
	part   int64 // size of one file; 0: no limit
	word   *word
	f      *os.File
	size   int64
	last   byte           // that was written
	lost   int            // lines since then
	losses *atomic.Uint64 // lines, of all log files
	spare  []byte
	queue  *queue // the way to it
}

// A word is what the log files of one console have to say to people, each thing once.
type word struct {
	say        func(text string)
	full, fail sync.Once
}

// newLogFile makes dir/name.log and what carries to it. quota is what all of its parts may hold together; 0: no limit.
func newLogFile(dir, name string, quota int64, w *word, losses *atomic.Uint64) *logFile {
	l := &logFile{path: filepath.Join(dir, name+".log"), part: quota / parts, word: w, losses: losses}
	_ = l.create() // else at the first line, and then it is told
	l.queue = newSink(l, "disk", filePace, losses).newQueue(l.note)
	return l
}

func (l *logFile) create() error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	l.f = f
	l.size, err = f.Seek(0, io.SeekEnd)
	return err
}

// put takes what was read. The worker waits for a disk that writes, so that nothing is lost; see pace.
func (l *logFile) put(b []byte) {
	l.spare = l.queue.put(append(l.spare[:0], b...))
}

// close writes what waits. A disk that stands still is given up.
func (l *logFile) close() {
	l.queue.flush()
	_ = l.queue.sink.close(context.Background()) // what was lost is in the file
	select {
	case <-l.queue.sink.done:
		if l.f != nil {
			l.f.Close()
		}
	default: // it hangs in a write
	}
}

// Write is the sink's. It always takes everything: what the disk refuses is counted, and told by the next line that it takes.
func (l *logFile) Write(b []byte) (int, error) {
	err := l.confess()
	done := 0
	for err == nil && done < len(b) {
		var n int
		n, err = l.write(b[done:])
		done += n
	}
	if err != nil {
		lines := max(1, bytes.Count(b[done:], newline))
		l.lost += lines
		l.losses.Add(uint64(lines))
		l.word.fail.Do(func() {
			l.word.say(fmt.Sprintf("a log cannot be written: %v; the workers go on, their lines are missing there", err))
		})
	}
	return len(b), nil
}

// confess says what is missing.
func (l *logFile) confess() error {
	if l.lost == 0 {
		return nil
	}
	note := l.note(nil, fmt.Sprintf("%d lines are missing here, the disk did not take them", l.lost))
	if _, err := l.write(note); err != nil {
		return err
	}
	l.lost = 0
	return nil
}

// write writes as much of b as belongs into this part, or begins the next.
func (l *logFile) write(b []byte) (int, error) {
	if l.f == nil {
		if err := l.create(); err != nil {
			return 0, err
		}
	}
	fits := l.fits(b)
	if fits == 0 {
		return 0, l.rotate()
	}
	n, err := l.f.Write(b[:fits])
	l.size += int64(n)
	if n > 0 {
		l.last = b[n-1]
	}
	return n, err
}

// fits returns how much of b comes before the end of this part: whole lines, and states of progress bars, unless they are
// longer than any line may be.
func (l *logFile) fits(b []byte) int {
	left := l.part - l.size
	if l.part == 0 || int64(len(b)) <= left {
		return len(b)
	}
	if head := b[:max(left, 0)]; bytes.ContainsAny(head, "\r\n") {
		return max(bytes.LastIndexByte(head, '\n'), bytes.LastIndexByte(head, '\r')) + 1
	}
	if l.size > 0 && (l.last == '\n' || l.last == '\r' || -left > maxLine) {
		return 0
	}
	if end := bytes.IndexAny(b, "\r\n") + 1; end > 0 {
		return end // of the line under way
	}
	return len(b)
}

// rotate makes name name.1, that name.2, and so on, and drops the last.
func (l *logFile) rotate() error {
	if _, err := os.Stat(l.numbered(parts - 1)); err == nil {
		l.word.full.Do(func() {
			l.word.say(fmt.Sprintf("the log %s has reached its quota, %d MiB a stream: from now on its oldest part goes when a new one begins", l.path, parts*l.part>>20))
		})
	}
	for i := parts - 1; i > 0; i-- {
		if err := os.Rename(l.numbered(i-1), l.numbered(i)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	l.f.Close()
	l.f = nil
	return l.create()
}

func (l *logFile) numbered(i int) string {
	if i == 0 {
		return l.path
	}
	return fmt.Sprintf("%s.%d", l.path, i)
}

// note appends a line of our own, on a line of its own.
func (l *logFile) note(out []byte, text string) []byte {
	if l.size > 0 && l.last != '\n' {
		out = append(out, '\n')
	}
	return append(append(append(out, "[muster: "...), text...), "]\n"...)
}
