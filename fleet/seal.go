package fleet

import (
	"bufio"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"slices"
	"syscall"
)

// A job with a token has its line encrypted: TLS 1.3, from the leader's first proof on. Nobody has to hand out certificates. That of the leader is made
// for this world, and is not looked at: the proofs that follow cover the channel's own key (RFC 9266, tls-exporter), so that who stands between the two,
// with a channel to each, has a proof for neither. Both have the token or do not meet, so there is nothing to agree on, and nothing to talk them out of.

// sealedProtocol is the first version in which agents do so.
const sealedProtocol = 2

// A channel is a connection behind its opening.
type channel struct {
	net.Conn
	in  *bufio.Reader
	key string // which nobody else has; "": it is not encrypted
}

// newTLS configures the channels of a fleet with a token.
func newTLS(leads bool) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.X25519}, SessionTicketsDisabled: true,
		InsecureSkipVerify: true, // who it is, the proofs say
	}
	if leads {
		c.Certificates = []tls.Certificate{newCertificate()}
	}
	return c
}

// newCertificate is what TLS asks for, and holds nothing but a key.
func newCertificate() tls.Certificate {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // rand.Reader does not fail
	}
	text := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, text, text, public, private)
	if err != nil {
		panic(err) // it is ours
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

// seal makes c a channel, in the role of tls.Client or tls.Server. So far each side has waited for the other's word.
func (f *Fleet) seal(c net.Conn, in *bufio.Reader, role func(net.Conn, *tls.Config) *tls.Conn) (*channel, error) {
	if f.tls == nil {
		return &channel{Conn: c, in: in}, nil
	}
	if n := in.Buffered(); n > 0 {
		return nil, fmt.Errorf("it sent %d bytes before its turn", n)
	}
	short := &shortOpening{Conn: c, left: maxHandshake}
	t := role(short, f.tls)
	if err := t.Handshake(); err != nil {
		return nil, err
	}
	short.left = 0
	state := t.ConnectionState()
	key, err := state.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, 32)
	if err != nil {
		return nil, err
	}
	s := sealed{t}
	return &channel{Conn: s, in: newReader(s), key: hex.EncodeToString(key)}, nil
}

// maxHandshake is more than agents send each other until a channel is made, in bytes. TLS would take a stranger's 64 KiB.
const maxHandshake = 8 << 10

// A shortOpening is a connection of which no more is read than is left; 0: as much as there is.
type shortOpening struct {
	net.Conn
	left int
}

func (c *shortOpening) NetConn() net.Conn { return c.Conn }

func (c *shortOpening) Read(b []byte) (int, error) {
	if c.left == 0 {
		return c.Conn.Read(b)
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	if c.left -= n; c.left == 0 && err == nil {
		err = fmt.Errorf("it sent %d bytes to open a channel", maxHandshake)
	}
	return n, err
}

// brokeOff reports whether a channel was not made because the other side went away, or took too long.
func brokeOff(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout() || slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE},
		func(way error) bool { return errors.Is(err, way) })
}

// A sealed connection ends as the one below does: at once and without a word, as that of a process does that is killed.
type sealed struct{ *tls.Conn }

func (s sealed) Close() error { return s.NetConn().Close() }

func (s sealed) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if errors.Is(err, io.ErrUnexpectedEOF) { // TLS would have a goodbye
		err = io.EOF
	}
	return n, err
}
