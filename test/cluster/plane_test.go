package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An authority signs for all in the cluster.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, dir string) *authority {
	a := &authority{t: t, dir: dir}
	a.cert, a.key = a.sign("ca", &x509.Certificate{Subject: pkix.Name{CommonName: "cluster"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature})
	return a
}

// sign leaves NAME.crt and NAME.key.
func (a *authority) sign(name string, c *x509.Certificate, addresses ...string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	a.must(err)
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, address := range addresses {
		if ip := net.ParseIP(address); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, address)
		}
	}
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	a.must(err)
	c, err = x509.ParseCertificate(der)
	a.must(err)
	private, err := x509.MarshalECPrivateKey(key)
	a.must(err)
	a.write(name+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	a.write(name+".key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
	return c, key
}

// user makes NAME.conf, by which somebody is known to the server.
func (a *authority) user(name, who, group string) {
	a.t.Helper()
	a.sign(name, &x509.Certificate{Subject: pkix.Name{CommonName: who, Organization: []string{group}}})
	text := func(file string) string {
		b, err := os.ReadFile(filepath.Join(a.dir, file))
		a.must(err)
		return base64.StdEncoding.EncodeToString(b)
	}
	a.write(name+".conf", fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://10.77.0.1:6443", certificate-authority-data: %s}}]
users: [{name: u, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`, text("ca.crt"), text(name+".crt"), text(name+".key")))
}

func (a *authority) write(name string, b []byte) {
	a.t.Helper()
	a.must(os.WriteFile(filepath.Join(a.dir, name), b, 0o600))
}

func (a *authority) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// names has pods and Services by name.
const names = `.:53 {
    errors
    kubernetes cluster.local in-addr.arpa {
        kubeconfig %s
        ttl 5
    }
}
`

// control starts the control plane, on a machine of its own.
func (c *cluster) control() {
	c.t.Helper()
	c.plane = c.stage.Add("plane", "plane")
	d := c.plane.Dir
	a := newAuthority(c.t, d)
	a.sign("server", &x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver"}}, "10.77.0.1", "10.96.0.1", "127.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
	a.sign("accounts", &x509.Certificate{Subject: pkix.Name{CommonName: "accounts"}})
	a.user("admin", "admin", "system:masters")
	a.write("Corefile", fmt.Appendf(nil, names, d+"/admin.conf"))
	for i := range 2 {
		name := fmt.Sprintf("node-%d", i+1)
		a.user(name, "system:node:"+name, "system:nodes")
	}
	for i := range 2 { // pods' addresses, for the server that calls operators' webhooks
		defer c.plane.Network("ip", fmt.Sprintf("route add 10.244.%d.0/24 via 10.77.0.%d\n", i+1, i+2))
	}

	log := func(name string) []string { return []string{"LOG=" + filepath.Join(d, name+".log")} }
	if out, err := c.plane.Command("-m", "mount", "-m", "-t", "tmpfs", "-o", "mode=0700", "tmpfs", d+"/etcd").CombinedOutput(); err != nil { // a busy disk makes all wait
		c.t.Fatalf("%v: %s", err, out)
	}
	c.run(c.plane, log("etcd"), "etcd", "--data-dir", d+"/etcd", "--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380")
	c.run(c.plane, log("kube-apiserver"), "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--advertise-address=10.77.0.1", "--secure-port=6443", "--service-cluster-ip-range=10.96.0.0/16",
		"--cert-dir="+d, "--tls-cert-file="+d+"/server.crt", "--tls-private-key-file="+d+"/server.key", "--client-ca-file="+d+"/ca.crt",
		"--service-account-key-file="+d+"/accounts.key", "--service-account-signing-key-file="+d+"/accounts.key", "--service-account-issuer=https://kubernetes.default.svc",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--kubelet-client-certificate="+d+"/admin.crt", "--kubelet-client-key="+d+"/admin.key",
		"--kubelet-preferred-address-types=InternalIP", "--enable-aggregator-routing", "--allow-privileged")
	c.run(c.plane, log("kube-controller-manager"), "kube-controller-manager", "--kubeconfig="+d+"/admin.conf", "--root-ca-file="+d+"/ca.crt", "--service-account-private-key-file="+d+"/accounts.key", "--leader-elect=false", "--cert-dir="+d)
	c.run(c.plane, log("kube-scheduler"), "kube-scheduler", "--kubeconfig="+d+"/admin.conf", "--leader-elect=false", "--cert-dir="+d)
	c.run(c.plane, log("coredns"), "coredns", "-conf", d+"/Corefile")
	c.until("the server answers", func() bool { _, err := c.kubectl("get", "--raw", "/readyz"); return err == nil })
}
