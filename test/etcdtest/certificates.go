package etcdtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificates are files: of an authority, and of pairs that it signed, for 127.0.0.1 and for its clients, one of which has run out.
type Certificates struct{ CA, Cert, Key, OldCert, OldKey string }

func (c Certificates) client() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(c.CA)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}, err
}

// certify writes new ones.
func certify(t testing.TB) Certificates {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	c := Certificates{in("ca"), in("cert"), in("key"), in("old-cert"), in("old-key")}
	authority := template(1)
	authority.IsCA, authority.BasicConstraintsValid, authority.KeyUsage = true, true, x509.KeyUsageCertSign
	signer := sign(t, c.CA, "", authority, authority, nil)
	leaf := template(2)
	leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	sign(t, c.Cert, c.Key, leaf, authority, signer)
	leaf.SerialNumber, leaf.NotAfter = big.NewInt(3), time.Now().Add(-time.Minute)
	sign(t, c.OldCert, c.OldKey, leaf, authority, signer)
	return c
}

func template(serial int64) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{Organization: []string{"muster's tests"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}

// sign makes a key and a certificate for it, and returns the key. by nil: it signs itself.
func sign(t testing.TB, certFile, keyFile string, c, parent *x509.Certificate, by *ecdsa.PrivateKey) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	cert, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	write(t, certFile, "CERTIFICATE", cert)
	if keyFile != "" {
		secret, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		write(t, keyFile, "EC PRIVATE KEY", secret)
	}
	return key
}

func write(t testing.TB, file, kind string, b []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
		t.Fatal(err)
	}
}
