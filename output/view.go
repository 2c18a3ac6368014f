package output

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
)

// A view puts lines into the form in which the console shows them.
type view interface {
	lines(out, b []byte) []byte               // b is whole lines
	line(out, text []byte, how ending) []byte // text is one, without its newline
}

// An ending is how a line ends.
type ending int

const (
	whole ending = iota
	cut          // it was too long, and goes on in the next
	open         // its worker never ended it
)

// flags are the endings for people.
var flags = map[ending]string{cut: " [muster: cut here, the line goes on]", open: " [muster: no newline here]"}

// plain is lines for people, each behind a prefix.
type plain struct {
	prefix []byte
	bare   bool // an open end is not worth a word
}

func (p plain) lines(out, b []byte) []byte {
	if len(p.prefix) == 0 {
		return append(out, b...)
	}
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n') + 1
		out = append(out, p.prefix...)
		out = append(out, b[:i]...)
		b = b[i:]
	}
	return out
}

func (p plain) line(out, text []byte, how ending) []byte {
	out = append(append(out, p.prefix...), text...)
	if how == cut || !p.bare {
		out = append(out, flags[how]...)
	}
	return append(out, '\n')
}

// none shows nothing.
type none struct{}

func (none) lines(out, _ []byte) []byte          { return out }
func (none) line(out, _ []byte, _ ending) []byte { return out }

// nowhere is an outlet for nothing.
type nowhere struct{}

func (nowhere) put(b []byte) []byte { return b }
func (nowhere) flush()              {}

// records are lines for machines: an object each.
type records struct {
	from string // the fields that say whose lines they are
	own  bool   // ours: what is an object already is shown as it is
}

// object is how the lines of the event log begin.
var object = []byte(`{"schema":`)

// recordsOf returns the view of a worker's stream, by its name: "stdout", "stderr".
func recordsOf(l proc.Lines, node, stream string) records {
	return records{fmt.Sprintf(`"rank":%d,"local_rank":%d,"node":%s,"stream":%q,`, l.Rank, l.LocalRank, appendText(nil, []byte(node)), stream), false}
}

// ourRecords is the view of what we say ourselves.
func ourRecords(node string) records {
	return records{fmt.Sprintf(`"node":%s,"stream":"muster",`, appendText(nil, []byte(node))), true}
}

func (r records) lines(out, b []byte) []byte {
	head := r.head()
	for line := range bytes.Lines(b) {
		if r.own && bytes.HasPrefix(line, object) {
			out = append(out, line...)
			continue
		}
		out = append(appendText(append(out, head...), bytes.TrimSuffix(line, newline)), "}\n"...)
	}
	return out
}

func (r records) line(out, text []byte, how ending) []byte {
	out = appendText(append(out, r.head()...), text)
	switch how {
	case cut:
		out = append(out, `,"cut":true`...)
	case open:
		out = append(out, `,"open":true`...)
	}
	return append(out, "}\n"...)
}

// head is everything before the text of a line that has come now.
func (r records) head() []byte {
	head := time.Now().UTC().AppendFormat([]byte(`{"time":"`), "2006-01-02T15:04:05.000000Z")
	return append(append(append(head, `",`...), r.from...), `"line":`...)
}

// appendText appends text as a string of JSON. What is not UTF-8 becomes U+FFFD. (encoding/json is a third as fast, and writes
// <, > and & as numbers.)
func appendText(out, text []byte) []byte {
	out = append(out, '"')
	from := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRune(text[i:])
		if c >= utf8.RuneSelf && (r != utf8.RuneError || size > 1) {
			i += size
			continue
		}
		out = appendEscape(append(out, text[from:i]...), c)
		i++
		from = i
	}
	return append(append(out, text[from:]...), '"')
}

func appendEscape(out []byte, c byte) []byte {
	switch {
	case c >= utf8.RuneSelf:
		return append(out, "\uFFFD"...)
	case c == '"' || c == '\\':
		return append(out, '\\', c)
	case c == '\t':
		return append(out, `\t`...)
	case c == '\r':
		return append(out, `\r`...)
	}
	return fmt.Appendf(out, `\u%04x`, c)
}

// label is "[rank 3] ", in the rank's colour.
func label(rank string, first int, color bool) []byte {
	if !color {
		return []byte("[" + rank + "] ")
	}
	palette := [...]int{36, 33, 35, 32, 34, 96} // no red: that is for errors
	return []byte("\x1b[" + strconv.Itoa(palette[first%len(palette)]) + "m[" + rank + "]\x1b[0m ")
}

// terminal reports whether f is one.
func terminal(f *os.File) bool {
	tty := false
	if raw, err := f.SyscallConn(); err == nil { // Fd would make the descriptor blocking
		_ = raw.Control(func(fd uintptr) {
			_, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
			tty = err == nil
		})
	}
	return tty
}
