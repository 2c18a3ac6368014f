// Package etcdtest runs real etcd servers for tests, which can be killed and started again with what they had.
package etcdtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/test/freeport"
	"github.com/muster-run/muster/test/halt"
)

const (
	patience = 4 * time.Minute       // for what is to come
	pause    = 20 * time.Millisecond // between two looks
)

// A Cluster is a few servers that are one etcd.
type Cluster struct {
	Members []*Member
	t       testing.TB
	http    *http.Client
}

// A Member is one of them.
type Member struct {
	Endpoint string // HOST:PORT
	t        testing.TB
	argv     []string
	data     string // directory
	log      *os.File
	cmd      *exec.Cmd
}

// Start starts as many servers on this machine. They end with the test.
func Start(t testing.TB, members int) *Cluster {
	t.Helper()
	return start(t, "127.0.0.1", "http", members)
}

// StartOn starts one server at an address, by a command line at whose end the server's is put: ip netns exec ...
func StartOn(t testing.TB, host string, by ...string) *Cluster {
	t.Helper()
	return start(t, host, "http", 1, by...)
}

// StartTLS starts one server that speaks TLS with those who have a certificate for it.
func StartTLS(t testing.TB) (*Cluster, Certificates) {
	t.Helper()
	certs := certify(t)
	c := start(t, "127.0.0.1", "https", 1, "env", "ETCD_CERT_FILE="+certs.Cert, "ETCD_KEY_FILE="+certs.Key,
		"ETCD_TRUSTED_CA_FILE="+certs.CA, "ETCD_CLIENT_CERT_AUTH=true")
	conf, err := certs.client()
	if err != nil {
		t.Fatal(err)
	}
	c.http.Transport = &http.Transport{TLSClientConfig: conf}
	return c, certs
}

func start(t testing.TB, host, scheme string, members int, by ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t, http: &http.Client{Timeout: patience}}
	var peers, all []string
	for i := range members {
		peers = append(peers, fmt.Sprintf("http://127.0.0.1:%d", freeport.Take(t)))
		all = append(all, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	for i, peer := range peers {
		m := &Member{t: t, Endpoint: net.JoinHostPort(host, strconv.Itoa(freeport.Take(t)))}
		url, dir := scheme+"://"+m.Endpoint, t.TempDir()
		m.data = filepath.Join(dir, "data")
		m.argv = append(by, "etcd", "--name", fmt.Sprintf("m%d", i), "--data-dir", m.data,
			"--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer,
			"--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(all, ","))
		var err error
		if m.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
			t.Fatal(err)
		}
		m.Start()
		t.Cleanup(m.clean)
		c.Members = append(c.Members, m)
	}
	return c
}

// Start starts a server that was killed.
func (m *Member) Start() {
	m.t.Helper()
	m.cmd = exec.Command(m.argv[0], m.argv[1:]...)
	m.cmd.Stdout, m.cmd.Stderr = m.log, m.log
	if err := m.cmd.Start(); err != nil {
		m.t.Fatalf("%v; make prepare installs it", err)
	}
}

// Kill kills a server.
func (m *Member) Kill() {
	m.cmd.Process.Kill()
	m.cmd.Wait()
}

// Forget starts a server again without what it had.
func (m *Member) Forget() {
	m.t.Helper()
	m.Kill()
	if err := os.RemoveAll(m.data); err != nil {
		m.t.Fatal(err)
	}
	m.Start()
}

// Stop has a server stand still until Continue.
func (m *Member) Stop() {
	m.t.Helper()
	halt.Stop(m.t, m.cmd.Process.Pid)
}

// Continue has a server go on that was stopped.
func (m *Member) Continue() {
	m.t.Helper()
	if err := m.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		m.t.Fatal(err)
	}
}

func (m *Member) clean() {
	m.Kill()
	m.log.Close()
	if m.t.Failed() {
		b, _ := os.ReadFile(m.log.Name())
		m.t.Logf("etcd: %s", b[max(0, len(b)-4096):])
	}
}

// Endpoints are those of all members.
func (c *Cluster) Endpoints() (all []string) {
	for _, m := range c.Members {
		all = append(all, m.Endpoint)
	}
	return all
}

// Keys are all keys that it has.
func (c *Cluster) Keys() (keys []string) {
	c.t.Helper()
	var found struct{ Kvs []struct{ Key string } }
	c.Post("kv/range", `{"key":"AA==","range_end":"AA==","keys_only":true}`, &found)
	for _, kv := range found.Kvs {
		key, err := base64.StdEncoding.DecodeString(kv.Key)
		if err != nil {
			c.t.Fatal(err)
		}
		keys = append(keys, string(key))
	}
	return keys
}

// Empties waits until it has no keys.
func (c *Cluster) Empties() {
	c.t.Helper()
	c.until("none left", func(keys []string) bool { return len(keys) == 0 })
}

// Gets waits until it has a key.
func (c *Cluster) Gets(key string) {
	c.t.Helper()
	c.until(key, func(keys []string) bool { return slices.Contains(keys, key) })
}

// Loses waits until it does not have a key any more.
func (c *Cluster) Loses(key string) {
	c.t.Helper()
	c.until("not "+key, func(keys []string) bool { return !slices.Contains(keys, key) })
}

func (c *Cluster) until(want string, ok func(keys []string) bool) {
	c.t.Helper()
	end := time.After(patience)
	for keys := c.Keys(); !ok(keys); keys = c.Keys() {
		select {
		case <-end:
			c.t.Fatalf("keys: %q; want %s", keys, want)
		case <-time.After(pause):
		}
	}
}

// MakeRoom drops what was deleted, or replaced, and has it take in more again where it was full: etcdctl compact, defrag, alarm disarm. Who asked for room
// just before may raise the alarm just after.
func (c *Cluster) MakeRoom() {
	c.t.Helper()
	var now struct{ Header struct{ Revision string } }
	c.Post("kv/range", `{"key":"AA=="}`, &now)
	c.Post("kv/compaction", fmt.Sprintf(`{"revision":%q,"physical":true}`, now.Header.Revision), nil)
	c.Post("maintenance/defragment", `{}`, nil)
	var on struct{ Alarms []struct{ MemberID string } }
	c.Post("maintenance/alarm", `{"action":"GET"}`, &on)
	for _, a := range on.Alarms {
		c.Post("maintenance/alarm", fmt.Sprintf(`{"action":"DEACTIVATE","memberID":%q,"alarm":"NOSPACE"}`, a.MemberID), nil)
	}
}

// Lock makes it ask for a password, which the user root has, and others, who may do nothing.
func (c *Cluster) Lock(password string, others ...string) {
	c.t.Helper()
	for _, name := range append(others, "root") {
		c.Post("auth/user/add", fmt.Sprintf(`{"name":%q,"password":%q}`, name, password), nil)
	}
	c.Post("auth/role/add", `{"name":"root"}`, nil)
	c.Post("auth/user/grant", `{"user":"root","role":"root"}`, nil)
	c.Post("auth/enable", `{}`, nil)
}

// Post asks the first member for something by its gateway for JSON, and waits until it answers. answer nil: any will do.
func (c *Cluster) Post(what, request string, answer any) {
	c.t.Helper()
	scheme := "http"
	if c.http.Transport != nil {
		scheme = "https"
	}
	url := fmt.Sprintf("%s://%s/v3/%s", scheme, c.Members[0].Endpoint, what)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		body, err := c.post(ctx, url, request)
		switch {
		case err == nil && answer == nil:
			return
		case err == nil:
			err = json.Unmarshal(body, answer)
		}
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			c.t.Fatalf("%s %s: %v", url, request, err)
		case <-time.After(pause):
		}
	}
}

func (c *Cluster) post(ctx context.Context, url, request string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte(request)))
	if err != nil {
		return nil, err
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	return body, err
}
