package remote

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// A Key is made of a secret. Whoever has it may run commands wherever one serves who has it, too.
type Key struct {
	From string // what it was made of, for people
	key  [sha256.Size]byte
}

// NewKey makes a key of a secret. The same secret used as something else, a job's token or ssh's key, cannot be told from it.
func NewKey(secret []byte, from string) Key {
	k := Key{From: from}
	made, err := hkdf.Key(sha256.New, secret, nil, "muster remote 1: "+kindOf(secret), len(k.key))
	if err != nil {
		panic(err) // the length is right
	}
	copy(k.key[:], made)
	return k
}

// kindOf keeps a token and a file with a key apart.
func kindOf(secret []byte) string {
	if bytes.HasPrefix(secret, []byte("-----BEGIN ")) {
		return "private key"
	}
	return "token"
}

// names are those under which ssh has private keys, and mpi-operator, Volcano and others mount one that all pods of a job share.
var names = []string{"id_rsa", "id_ecdsa", "id_ed25519"}

// KeysIn makes keys of the private keys of ssh in a directory, those that are there.
func KeysIn(dir string) (keys []Key, err error) {
	for _, name := range names {
		key, keyErr := KeyOf(filepath.Join(dir, name))
		if errors.Is(keyErr, os.ErrNotExist) {
			continue
		}
		if keyErr != nil {
			err = errors.Join(err, keyErr)
			continue
		}
		keys = append(keys, key)
	}
	return keys, err
}

// KeyOf makes a key of ssh's private key in a file. None of its bytes is a secret of ssh's that it gives away.
func KeyOf(path string) (Key, error) {
	text, err := readKey(path)
	if err != nil {
		return Key{}, err
	}
	if kindOf(text) != "private key" {
		return Key{}, fmt.Errorf("%s is no private key", path)
	}
	return NewKey(text, path), nil
}

// Admitted returns an error unless ssh's server would let in the owner of the private key in a file: the public key
// beside it is among those of authorized_keys. A private key that an image has for something else opens nothing.
func Admitted(path string) error {
	public, err := readKey(path + ".pub")
	if err != nil {
		return err
	}
	list := filepath.Join(filepath.Dir(path), "authorized_keys")
	known, err := readKey(list)
	if err != nil {
		return err
	}
	words := bytes.Fields(public)
	if len(words) < 2 {
		return fmt.Errorf("%s.pub is no public key", path)
	}
	for line := range bytes.Lines(known) {
		has := bytes.Fields(line) // options before the key limit what it opens, which is nothing here
		if len(has) > 1 && bytes.Equal(has[0], words[0]) && bytes.Equal(has[1], words[1]) {
			return nil
		}
	}
	return fmt.Errorf("%s does not have %s.pub", list, path)
}

const maxKeyFile = 64 << 10 // bytes

// readKey is a small regular file, without blanks around its text.
func readKey(path string) ([]byte, error) {
	if i, err := os.Stat(path); err != nil {
		return nil, err
	} else if !i.Mode().IsRegular() { // to open a FIFO may take for ever
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err == nil && len(text) > maxKeyFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxKeyFile)
	}
	return bytes.TrimSpace(text), err
}

// proof is what only who has the key can say, about what both sides said before.
func (k Key) proof(role string, about ...[]byte) []byte {
	mac := hmac.New(sha256.New, k.key[:])
	fmt.Fprintf(mac, "%s %s", magic, role)
	for _, part := range about {
		fmt.Fprintf(mac, " %d ", len(part))
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// cipher is the key of one direction of one connection.
func (k Key) cipher(role string, salt []byte) []byte {
	made, err := hkdf.Key(sha256.New, k.key[:], salt, magic+" "+role, 32)
	if err != nil {
		panic(err) // the length is right
	}
	return made
}
