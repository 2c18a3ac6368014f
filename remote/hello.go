package remote

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// The opening of a connection. Both sides prove that they have a key, for these two salts, and neither gives it away.
//
//	caller: magic, salt, number of its keys, and for each a name that only who has the key, too, can tell
//	server: 1 and which of them, salt, proof; or 0, for none
//	caller: proof
//
// Nothing else is read of a caller who has not proved it. What follows is sealed (wire.go), so that nobody between the two can
// read it, change it, or play it again.

const (
	magic     = "muster remote 1\n"
	helloTime = 10 * time.Second // for the whole opening
	proofSize = sha256.Size
	saltSize  = 32
)

// A Refusal is an error that trying again does not mend.
type Refusal struct{ why string }

func (r *Refusal) Error() string { return r.why }

func refusal(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// errSilent is a connection that was closed before anything was said on it, as probes of a port do.
var errSilent = errors.New("it said nothing")

func newSalt() []byte {
	b := make([]byte, saltSize)
	rand.Read(b)
	return b
}

// greet opens c on the caller's side.
func greet(c net.Conn, keys []Key) (*line, error) {
	_ = c.SetDeadline(time.Now().Add(helloTime))
	keys = keys[:min(len(keys), maxKeys)]
	salt := newSalt()
	hello := slices.Concat([]byte(magic), salt, []byte{byte(len(keys))})
	for _, k := range keys {
		hello = append(hello, k.proof("name", salt)...)
	}
	if _, err := c.Write(hello); err != nil {
		return nil, err
	}
	in := bufio.NewReader(c)
	which, answer, err := readAnswer(in, len(keys))
	if err != nil {
		return nil, err
	}
	key, theirs := keys[which], answer[:saltSize]
	if !hmac.Equal(answer[saltSize:], key.proof("server", hello, theirs)) {
		return nil, refusal("who answers there does not have the secret of %s", key.From)
	}
	if _, err := c.Write(key.proof("caller", hello, theirs)); err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Time{})
	return newLine(c, in, key, slices.Concat(salt, theirs), "caller", "server"), nil
}

// readAnswer reads which of the caller's keys the server has, its salt and its proof.
func readAnswer(in *bufio.Reader, keys int) (which int, rest []byte, err error) {
	first, err := in.ReadByte()
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("it does not answer: %w", err)
	case first == 'S':
		return 0, nil, refusal("an ssh server answers there, not muster: in its image, too, sshd is to be a link to muster")
	case first == 0:
		return 0, nil, refusal("it has none of the secrets that are here")
	case first != 1:
		return 0, nil, refusal("what answers there is not muster's sshd")
	}
	rest = make([]byte, 1+saltSize+proofSize)
	if _, err := io.ReadFull(in, rest); err != nil {
		return 0, nil, fmt.Errorf("it broke off: %w", err)
	}
	if which = int(rest[0]); which >= keys {
		return 0, nil, refusal("what answers there is not muster's sshd")
	}
	return which, rest[1:], nil
}

// admit opens c on the server's side.
func admit(c net.Conn, keys []Key) (*line, error) {
	_ = c.SetDeadline(time.Now().Add(helloTime))
	in := bufio.NewReader(c)
	hello, err := readHello(in)
	if err != nil {
		return nil, err
	}
	key, which, ok := shared(keys, hello)
	if !ok {
		_, _ = c.Write([]byte{0}) // perhaps it listens
		return nil, errors.New("it has none of the secrets that are here")
	}
	ours := newSalt()
	if _, err := c.Write(slices.Concat([]byte{1, byte(which)}, ours, key.proof("server", hello, ours))); err != nil {
		return nil, err
	}
	proof := make([]byte, proofSize)
	if _, err := io.ReadFull(in, proof); err != nil {
		return nil, fmt.Errorf("it broke off: %w", err)
	}
	if !hmac.Equal(proof, key.proof("caller", hello, ours)) {
		return nil, errors.New("it does not prove that it has the secret of " + key.From)
	}
	_ = c.SetDeadline(time.Time{})
	return newLine(c, in, key, slices.Concat(saltOf(hello), ours), "server", "caller"), nil
}

// readHello reads all that a caller says first.
func readHello(in *bufio.Reader) ([]byte, error) {
	hello := make([]byte, len(magic)+saltSize+1)
	if _, err := in.Peek(1); err != nil {
		return nil, errSilent
	}
	start, err := in.Peek(len(magic))
	if bytes.HasPrefix(start, []byte("SSH-")) {
		return nil, errors.New("that is ssh's own client: in its image, too, ssh is to be a link to muster")
	}
	if err != nil || string(start) != magic {
		return nil, fmt.Errorf("it opened with %.20q", start)
	}
	if _, err := io.ReadFull(in, hello); err != nil {
		return nil, fmt.Errorf("it broke off: %w", err)
	}
	count := int(hello[len(hello)-1])
	if count > maxKeys {
		return nil, fmt.Errorf("it says it has %d secrets; %d can be", count, maxKeys)
	}
	names := make([]byte, count*proofSize)
	if _, err := io.ReadFull(in, names); err != nil {
		return nil, fmt.Errorf("it broke off: %w", err)
	}
	return append(hello, names...), nil
}

func saltOf(hello []byte) []byte { return hello[len(magic):][:saltSize] }

// shared finds the first key of the caller's that is here, too.
func shared(keys []Key, hello []byte) (key Key, which int, ok bool) {
	names := hello[len(magic)+saltSize+1:]
	for which := 0; len(names) > 0; which, names = which+1, names[proofSize:] {
		for _, k := range keys {
			if hmac.Equal(names[:proofSize], k.proof("name", saltOf(hello))) {
				return k, which, true
			}
		}
	}
	return Key{}, 0, false
}
