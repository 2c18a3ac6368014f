package remote

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"slices"
	"testing"
)

// says is a connection on which somebody says so much and hangs up. What is written to it is thrown away.
type says struct {
	net.Conn
	io.Reader
}

func saying(t *testing.T, text []byte) says {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return says{ours, bytes.NewReader(text)}
}

func (s says) Read(p []byte) (int, error)  { return s.Reader.Read(p) }
func (s says) Write(p []byte) (int, error) { return len(p), nil }

// Nobody is let in who does not have the secret, whatever he says.
func FuzzAdmit(f *testing.F) {
	k := key("sesame sesame 12")
	hello := slices.Concat([]byte(magic), make([]byte, saltSize), []byte{1})
	named := slices.Concat(hello, k.proof("name", make([]byte, saltSize)))
	f.Add([]byte("SSH-2.0-OpenSSH_9.2\r\n"))
	f.Add(slices.Concat([]byte(magic), make([]byte, saltSize), []byte{255}))
	f.Add(slices.Concat(hello, make([]byte, proofSize)))
	f.Add(slices.Concat(named, make([]byte, proofSize)))
	f.Fuzz(func(t *testing.T, text []byte) {
		if l, err := admit(saying(t, text), []Key{k}); err == nil {
			t.Errorf("%q lets in %v", text, l)
		}
	})
}

// Who has the secret may send what he likes: it is a command, or is refused, and what was sealed by nobody is neither.
func FuzzCommand(f *testing.F) {
	f.Add(byte(run), []byte(`{"line":"ZWNobw==","environ":["A=b"]}`), []byte{})
	f.Add(byte(part), []byte(`{"line":"ZWNobw=="}`), []byte{})
	f.Add(byte(part), []byte(`{"line":`), []byte{0, 0, 0, 17})
	f.Add(byte(run), []byte(`[]`), []byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, k byte, text, raw []byte) {
		var sent bytes.Buffer
		caller := newLine(into{nil, &sent}, nil, key("sesame sesame 12"), nil, "caller", "server")
		if len(text) > maxData {
			return
		}
		if err := caller.send(kind(k), text); err != nil {
			t.Fatal(err)
		}
		if c, err := lineOf(t, slices.Concat(sent.Bytes(), raw)).receiveCommand(); err == nil && kind(k) != run {
			t.Errorf("a frame of kind %q is the command %v", k, c)
		}
		if _, _, err := lineOf(t, raw).receive(); err == nil {
			t.Errorf("%q is a frame", raw)
		}
	})
}

// lineOf is the server's end of a line on which so much comes.
func lineOf(t *testing.T, text []byte) *line {
	c := saying(t, text)
	return newLine(c, bufio.NewReader(c), key("sesame sesame 12"), nil, "server", "caller")
}

// into is a connection that keeps what is written to it.
type into struct {
	net.Conn
	io.Writer
}

func (i into) Write(p []byte) (int, error) { return i.Writer.Write(p) }
