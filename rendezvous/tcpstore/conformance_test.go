package tcpstore

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/muster-run/muster/rendezvous/store"
)

// TestConformance plays each case against a server with one loop, and one with several, where waiters and those who
// wake them meet across loops.
func TestConformance(t *testing.T) {
	for _, s := range readScripts(t, "testdata/conformance.txt") {
		for _, loops := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, loops %d", s.title, loops), func(t *testing.T) {
				t.Parallel()
				play(t, s, &Server{Loops: loops})
			})
		}
	}
}

// differs lists where our replies to the captured clients are not those of the captured servers, by file and call.
var differs = map[string]string{
	// The wait had timed out and the client had gone on. The server of 1.13 released it all the same, into the
	// middle of the client's stream: its add and num_keys returned 768 and 2048. Ours takes SET for a cancellation.
	"client-ops-1.13.txt: SERVER-SIDE set('late') -> None": "00",
}

var captured = regexp.MustCompile(`^ +(conn\d+) +([<>]?) ?(\S+)`)

// TestCaptured sends what clients of PyTorch 1.13 to 2.14 sent, call by call, and expects what their servers replied.
func TestCaptured(t *testing.T) {
	files, err := filepath.Glob("testdata/ops/*.txt")
	if err != nil || len(files) != 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { replay(t, file) })
	}
}

func replay(t *testing.T, file string) {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := new(store.Memory)
	st := &stage{T: t, addr: serve(t, &Server{Store: m, Loops: 1}), conns: map[string]net.Conn{}}
	call, calls := "", 0
	in := bufio.NewScanner(bytes.NewReader(b))
	for in.Scan() {
		if text, ok := strings.CutPrefix(in.Text(), "## "); ok {
			if strings.HasPrefix(text, "set big") { // its bytes were cut off in the capture; what follows is the server's end
				break
			}
			call = text
			calls++
			if strings.HasPrefix(call, "SERVER-SIDE set('late')") {
				if err := errors.Join(m.Wait(t.Context(), "/k9"), m.Set(t.Context(), "/late", nil)); err != nil {
					t.Fatal(err)
				}
			}
			continue
		}
		f := captured.FindStringSubmatch(in.Text())
		if f == nil || f[2] == "<" && differs[filepath.Base(file)+": "+call] == f[3] {
			continue
		}
		if err := st.replay(f[1], f[2], f[3], call); err != nil {
			t.Fatalf("%s: %s: %v", call, in.Text(), err)
		}
	}
	if calls < 20 {
		t.Fatalf("only %d calls found", calls)
	}
}

// replay does one line of a capture. Connections are named r..., since the hello is in the capture.
func (s *stage) replay(name, direction, what, call string) error {
	c, err := s.conn("r" + name)
	if err != nil {
		return err
	}
	if what == "eof" && direction == "<" {
		return nil // the answer to the client's end
	}
	if what == "eof" {
		return c.Close()
	}
	b, err := hex.DecodeString(what)
	switch {
	case direction == "":
		return nil // connected
	case err != nil:
		return err
	case direction == ">":
		_, err := c.Write(b)
		return err
	case strings.HasPrefix(call, "list_keys"):
		return expectList(c, toScript(b[8:]))
	}
	return expect(c, b)
}

// toScript writes a row of strings as parseBytes reads it.
func toScript(b []byte) string { return hex.EncodeToString(b) }
