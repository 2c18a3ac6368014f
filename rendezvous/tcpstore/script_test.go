package tcpstore

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A script is a case of testdata/conformance.txt.
type script struct {
	title string
	line  int
	steps []step
}

type step struct {
	line int
	text string
}

func readScripts(t *testing.T, file string) []script {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []script
	for i, text := range strings.Split(string(b), "\n") {
		text = strings.TrimSpace(text)
		switch {
		case text == "" || text[0] == '#':
		case strings.HasPrefix(text, "case"):
			all = append(all, script{title: text, line: i + 1})
		default:
			last := &all[len(all)-1]
			last.steps = append(last.steps, step{i + 1, text})
		}
	}
	return all
}

// A stage is a server and the connections of one script to it.
type stage struct {
	*testing.T
	addr  string
	conns map[string]net.Conn
}

func play(t *testing.T, s script, srv *Server) {
	for len(s.steps) > 0 && strings.HasPrefix(s.steps[0].text, "legacy ") {
		srv.Legacy = map[string]Legacy{"a": LegacyA, "b": LegacyB, "none": LegacyNone}[strings.Fields(s.steps[0].text)[1]]
		s.steps = s.steps[1:]
	}
	st := &stage{T: t, addr: serve(t, srv), conns: map[string]net.Conn{}}
	for _, step := range s.steps {
		if err := st.do(step.text); err != nil {
			t.Fatalf("line %d: %s: %v", step.line, step.text, err)
		}
	}
	for _, c := range st.conns {
		c.Close()
	}
}

func (s *stage) do(text string) error {
	name, rest, _ := strings.Cut(text, " ")
	verb, arg, _ := strings.Cut(rest, " ")
	c, err := s.conn(name)
	if err != nil {
		return err
	}
	switch verb {
	case ">":
		b, err := parseBytes(arg)
		if err == nil {
			_, err = c.Write(b)
		}
		if err != nil && len(b) > 1<<20 {
			return nil // the server may close before it has read all of a large request
		}
		return err
	case "<":
		if names, ok := strings.CutPrefix(arg, "list "); ok {
			return expectList(c, names)
		}
		b, err := parseBytes(arg)
		if err != nil {
			return err
		}
		return expect(c, b)
	case "sync":
		return inStep(c, name)
	case "still":
		return still(c, name)
	case "eof":
		return expectEOF(c)
	case "closes":
		delete(s.conns, name)
		return c.Close()
	}
	return fmt.Errorf("unknown step %q", verb)
}

func (s *stage) conn(name string) (net.Conn, error) {
	if c := s.conns[name]; c != nil {
		return c, nil
	}
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		return nil, err
	}
	s.Cleanup(func() { c.Close() })
	s.conns[name] = c
	_ = c.SetDeadline(time.Now().Add(4 * time.Minute))
	if name[0] == 'v' {
		_, err = c.Write(hello)
	}
	return c, err
}

func expect(c io.Reader, want []byte) error {
	got := make([]byte, len(want))
	n, err := io.ReadFull(c, got)
	if !bytes.Equal(got[:n], want[:n]) || err != nil {
		return fmt.Errorf("got %.200x, want %.200x: %v", got[:n], want, err)
	}
	return nil
}

func expectList(c io.Reader, text string) error {
	want, err := parseBytes(text)
	if err != nil {
		return err
	}
	got := make([]byte, 8+len(want))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	a, b := cutAll(got[8:]), cutAll(want)
	if !slices.Equal(a, b) || got[0] != byte(len(b)) {
		return fmt.Errorf("got %q, want %q", a, b)
	}
	return nil
}

// cutAll takes a row of strings apart and sorts them.
func cutAll(b []byte) (all []string) {
	for len(b) > 0 {
		var field []byte
		field, b = cutBytes(b)
		all = append(all, string(field))
	}
	slices.Sort(all)
	return all
}

// inStep returns when the server has executed what c sent. Only what came before may have come: nothing.
func inStep(c net.Conn, name string) error {
	ask, reply := []byte{0x0d, 1, 2, 3, 4}, []byte{1, 2, 3, 4}
	if name[0] == 'l' {
		ask, reply = []byte{4, 0, 0, 0, 0, 0, 0, 0, 0}, []byte{0}
	}
	if _, err := c.Write(ask); err != nil {
		return err
	}
	return expect(c, reply)
}

// still checks that nothing came. News for a waiter is delivered after what the loop is at: the first PING may still
// overtake it, the second cannot. A legacy connection would cancel its wait by asking, so it is watched.
func still(c net.Conn, name string) error {
	if name[0] != 'l' {
		return errors.Join(inStep(c, name), inStep(c, name))
	}
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	defer c.SetReadDeadline(time.Now().Add(4 * time.Minute))
	var b [1]byte
	if n, err := c.Read(b[:]); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("got %x, %v; want nothing", b[:n], err)
	}
	return nil
}

func expectEOF(c net.Conn) error {
	var b [1]byte
	n, err := c.Read(b[:])
	if n > 0 || errors.Is(err, os.ErrDeadlineExceeded) || err == nil {
		return fmt.Errorf("got %x, %v; want the end", b[:n], err)
	}
	return nil
}

var token = regexp.MustCompile(`^(?:(s|i|r|n)\(([^)]*)\)|("(?:[^"\\]|\\.)*")|((?:[0-9a-fA-F]{2})+))\s*`)

// parseBytes reads the notation that testdata/conformance.txt explains.
func parseBytes(text string) ([]byte, error) {
	var out []byte
	for text = strings.TrimSpace(text); text != ""; {
		m := token.FindStringSubmatch(text)
		if m == nil {
			return nil, fmt.Errorf("cannot read %q", text)
		}
		b, err := tokenBytes(m)
		if err != nil {
			return nil, err
		}
		out = append(out, b...)
		text = text[len(m[0]):]
	}
	return out, nil
}

func tokenBytes(m []string) ([]byte, error) {
	switch {
	case m[3] != "":
		s, err := strconv.Unquote(m[3])
		return []byte(s), err
	case m[4] != "":
		return hex.DecodeString(m[4])
	case m[1] == "s":
		s, err := strconv.Unquote(m[2])
		return appendBytes(nil, []byte(s)), err
	case m[1] == "i":
		n, err := strconv.ParseInt(m[2], 10, 64)
		return appendInt(nil, n), err
	case m[1] == "n":
		n, err := strconv.Atoi(m[2])
		var b []byte
		for i := range n {
			b = appendBytes(b, fmt.Appendf(nil, "/%d", i))
		}
		return b, err
	}
	count, what, _ := strings.Cut(m[2], ", ")
	n, err := strconv.Atoi(count)
	b, err2 := hex.DecodeString(what)
	return bytes.Repeat(b, n), errors.Join(err, err2)
}
