package pmi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A Message is one request or answer.
type Message struct {
	Cmd  string
	Args []Arg // in the order of the line
}

// An Arg is one word of a message. Values stay as they are on the line: newer clients put a backslash before what is no part of a word,
// and take it away again.
type Arg struct{ Key, Value string }

// Get is the value of an argument; "" if there is none.
func (m Message) Get(key string) string {
	for _, a := range m.Args {
		if a.Key == key {
			return a.Value
		}
	}
	return ""
}

// String is the message as a line.
func (m Message) String() string {
	var b strings.Builder
	b.WriteString("cmd=" + m.Cmd)
	for _, a := range m.Args {
		b.WriteString(" " + a.Key + "=" + a.Value)
	}
	return b.String() + "\n"
}

const (
	maxLine  = 4096 // a put has at most 256+64+1024 bytes of values
	maxArgs  = 16
	maxLines = 4096 // of a request to spawn
)

// errLine is a line that no client of MPICH writes.
var errLine = errors.New("not a message of PMI 1")

// A reader reads messages.
type reader struct{ lines *bufio.Reader }

func newReader(r io.Reader) reader { return reader{bufio.NewReaderSize(r, maxLine)} }

// next reads a message. The end of the connection between two is io.EOF.
func (r reader) next() (Message, error) {
	line, err := r.line()
	if err != nil {
		return Message{}, err
	}
	if line == "mcmd=spawn" {
		return r.spawn()
	}
	return parse(line)
}

func (r reader) line() (string, error) {
	b, err := r.lines.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", fmt.Errorf("%w: a line of more than %d bytes", errLine, maxLine)
	case errors.Is(err, io.EOF) && len(b) > 0:
		return "", io.ErrUnexpectedEOF
	case err != nil:
		return "", err
	}
	return string(b[:len(b)-1]), nil
}

// spawn reads the rest of a request that has many lines. Nothing of it counts but which of several it is.
func (r reader) spawn() (Message, error) {
	m := Message{Cmd: "spawn"}
	for range maxLines {
		line, err := r.line()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil || line == "endcmd" {
			return m, err
		}
		if key, value, _ := strings.Cut(line, "="); key == "totspawns" || key == "spawnssofar" {
			m.Args = append(m.Args[:min(len(m.Args), maxArgs)], Arg{key, value[:wordEnd(value)]}) // a number
		}
	}
	return m, fmt.Errorf("%w: a request to spawn has no end", errLine)
}

// parse reads a line of words, the first of which is the command. What follows is as free as clients write it: the message of an
// abort is a sentence. Words beyond maxArgs are left out.
func parse(line string) (m Message, err error) {
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		end := wordEnd(line)
		key, value, _ := strings.Cut(line[:end], "=")
		line = line[end:]
		switch {
		case m.Cmd == "" && (key != "cmd" || value == ""):
			return Message{}, fmt.Errorf("%w: at %.40q", errLine, key)
		case m.Cmd == "":
			m.Cmd = value
		case len(m.Args) < maxArgs:
			m.Args = append(m.Args, Arg{key, value})
		}
	}
	if m.Cmd == "" {
		return Message{}, fmt.Errorf("%w: an empty line", errLine)
	}
	return m, nil
}

// wordEnd is where the first word of a line ends: at a blank that has no backslash before it.
func wordEnd(line string) int {
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case ' ':
			return i
		}
	}
	return len(line)
}
