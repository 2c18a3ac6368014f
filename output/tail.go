package output

import (
	"bytes"
	"strings"
	"sync"
)

const (
	tailBytes = 64 << 10
	tailLines = 200
	tailLine  = 4 << 10 // of one line, from its beginning: the text of an exception may be longer than all that led to it
)

// tail keeps the last lines of one worker, for the report of its end.
type tail struct {
	mu  sync.Mutex
	buf []byte // up to twice tailBytes; the front half is let go at once
}

// add appends parts, which are whole lines together.
func (t *tail) add(parts ...[]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range parts {
		if end := b[max(0, len(b)-tailBytes):]; short(end) {
			t.keep(end)
			continue
		}
		for line := range bytes.Lines(lastLines(b)) {
			t.keepLine(line)
		}
	}
}

// short reports, at a glance, whether no line is much longer than what is kept of one.
func short(b []byte) bool {
	for ; len(b) > tailLine; b = b[tailLine:] {
		if !bytes.Contains(b[:tailLine], newline) {
			return false
		}
	}
	return true
}

// lastLines returns those lines at the end of b that a tail can keep.
func lastLines(b []byte) []byte {
	start := len(b)
	for n, size := 0, 0; n < tailLines && size < tailBytes && start > 0; n++ {
		end := start
		start = lastNewline(b[:end-1]) + 1
		size += min(end-start, tailLine)
	}
	return b[start:]
}

// lastNewline is bytes.LastIndexByte for lines that may be long: that one looks at a byte at a time.
func lastNewline(b []byte) int {
	for end := len(b); end > 0; end = max(0, end-1024) {
		if block := b[max(0, end-1024):end]; bytes.Contains(block, newline) {
			return end - len(block) + bytes.LastIndexByte(block, '\n')
		}
	}
	return -1
}

// keepLine appends a line, or a part of one, as far as it is kept.
func (t *tail) keepLine(line []byte) {
	head := line[:min(len(line), tailLine)]
	t.keep(head)
	if bytes.HasSuffix(line[len(head):], newline) {
		t.keep(newline)
	}
}

// keep appends at most tailBytes.
func (t *tail) keep(b []byte) {
	if len(t.buf)+len(b) > 2*tailBytes {
		t.buf = t.buf[:copy(t.buf, t.buf[len(t.buf)-tailBytes:])]
	}
	t.buf = append(t.buf, b...)
}

// lines returns the last lines, as valid UTF-8.
func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := string(t.buf)
	if before := len(t.buf) - tailBytes; before > 0 { // what begins in the middle of a line may be the end of a secret
		_, text, _ = strings.Cut(string(t.buf[before-1:]), "\n")
	}
	text = strings.ToValidUTF8(strings.TrimSuffix(text, "\n"), "\uFFFD")
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	return lines[max(0, len(lines)-tailLines):]
}
