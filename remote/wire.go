package remote

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Every frame is a length, 32 bits big-endian, and that many bytes that are sealed: a kind, and data. Frames are numbered, each
// direction has a key of its own, and the length is sealed with them: none can be left out, repeated or put elsewhere.

// A kind says what a frame is.
type kind byte

const (
	part   kind = 'p' // of a command, from the caller
	run    kind = 'r' // the last part: run it
	input  kind = 'i' // for the command; no data: that was all. The next one is sent when this one was
	taken  kind = 't' // by the command
	out    kind = 'o' // what the command writes
	errput kind = 'e' // what it writes to stderr
	ended  kind = 'x' // with the exit code that follows, one byte
	failed kind = 'f' // it could not be started, and why
)

// A line is a connection on which both have proved who they are.
type line struct {
	net.Conn
	in *bufio.Reader

	sending sync.Mutex
	seal    cipher.AEAD
	sent    uint64

	open cipher.AEAD
	got  uint64
}

func newLine(c net.Conn, in *bufio.Reader, k Key, salt []byte, us, them string) *line {
	return &line{Conn: c, in: in, seal: newCipher(k.cipher(us, salt)), open: newCipher(k.cipher(them, salt))}
}

func newCipher(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the length is right
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return aead
}

// nonce numbers a frame.
func nonce(a cipher.AEAD, number uint64) []byte {
	n := make([]byte, a.NonceSize())
	binary.BigEndian.PutUint64(n[len(n)-8:], number)
	return n
}

// send writes a frame. Several may send at once.
func (l *line) send(k kind, data []byte) error {
	l.sending.Lock()
	defer l.sending.Unlock()
	size := 1 + len(data) + l.seal.Overhead()
	head := binary.BigEndian.AppendUint32(make([]byte, 0, 4+size), uint32(size))
	plain := append([]byte{byte(k)}, data...)
	frame := l.seal.Seal(head, nonce(l.seal, l.sent), plain, head)
	l.sent++
	_, err := l.Write(frame)
	return err
}

// receive reads the next frame.
func (l *line) receive() (kind, []byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(l.in, head); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head)
	if size < 1 || size > uint32(1+maxData+l.open.Overhead()) {
		return 0, nil, fmt.Errorf("a frame of %d bytes", size)
	}
	sealed := make([]byte, size)
	if _, err := io.ReadFull(l.in, sealed); err != nil {
		return 0, nil, io.ErrUnexpectedEOF
	}
	plain, err := l.open.Open(sealed[:0], nonce(l.open, l.got), sealed, head)
	if err != nil || len(plain) == 0 {
		return 0, nil, errors.New("a frame that the other side did not send")
	}
	l.got++
	return kind(plain[0]), plain[1:], nil
}

// sendCommand asks for a command to be run.
func (l *line) sendCommand(c Command) error {
	if n := c.size(); n > maxCommand/2 { // they grow as they are encoded
		return refusal("the command, its variables and files have %d bytes, more than %d", n, maxCommand/2)
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	for len(text) > maxData {
		if err := l.send(part, text[:maxData]); err != nil {
			return err
		}
		text = text[maxData:]
	}
	return l.send(run, text)
}

// receiveCommand reads what is asked for.
func (l *line) receiveCommand() (c Command, err error) {
	var text []byte
	for {
		k, data, err := l.receive()
		switch {
		case err != nil:
			return c, err
		case k != part && k != run:
			return c, fmt.Errorf("a frame %q where a command is due", k)
		case len(text)+len(data) > maxCommand:
			return c, fmt.Errorf("a command of more than %d bytes", maxCommand)
		}
		if text = append(text, data...); k == run {
			return c, json.Unmarshal(text, &c)
		}
	}
}
