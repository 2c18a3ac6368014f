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
	t := role(c, f.tls)
	if err := t.Handshake(); err != nil {
		return nil, ended(err)
	}
	state := t.ConnectionState()
	key, err := state.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, 32)
	if err != nil {
		return nil, err
	}
	s := sealed{t}
	return &channel{Conn: s, in: newReader(s), key: hex.EncodeToString(key)}, nil
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
