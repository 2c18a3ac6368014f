package etcdstore

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"
)

// Files are how an etcd is spoken to that speaks TLS: those of the authorities that may vouch for it ("": the system's), and of the certificate and key with which we show
// who we are ("": we need not).
type Files struct{ Authorities, Cert, Key string }

// Config is what they have in them now. The certificate is read again for each connection, as whoever rotates it writes another one; where that cannot be read, the one
// before is shown.
func (f Files) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.Authorities != "" {
		pem, err := os.ReadFile(f.Authorities)
		if err != nil {
			return nil, fmt.Errorf("authorities: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", f.Authorities)
		}
	}
	switch {
	case f.Cert == "" && f.Key == "":
		return c, nil
	case f.Key == "":
		return nil, fmt.Errorf("certificate %q without its key", f.Cert)
	case f.Cert == "":
		return nil, fmt.Errorf("key %q without its certificate", f.Key)
	}
	pair, err := f.pair()
	if err != nil {
		return nil, err
	}
	var last atomic.Pointer[tls.Certificate]
	last.Store(pair)
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if pair, err := f.pair(); err == nil {
			last.Store(pair)
		}
		return last.Load(), nil
	}
	return c, nil
}

func (f Files) pair() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %q and its key %q: %w", f.Cert, f.Key, err)
	}
	return &pair, nil
}
