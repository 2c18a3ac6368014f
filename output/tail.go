package output

import (
	"strings"
	"sync"
)

const (
	tailBytes = 64 << 10
	tailLines = 200
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
		b = b[max(0, len(b)-tailBytes):]
		if len(t.buf)+len(b) > 2*tailBytes {
			t.buf = t.buf[:copy(t.buf, t.buf[len(t.buf)-tailBytes:])]
		}
		t.buf = append(t.buf, b...)
	}
}

// lines returns the last lines, as valid UTF-8.
func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := string(t.buf[max(0, len(t.buf)-tailBytes):])
	text = strings.ToValidUTF8(strings.TrimSuffix(text, "\n"), "\uFFFD")
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	return lines[max(0, len(lines)-tailLines):]
}
