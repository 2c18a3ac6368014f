package torch

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// verbs are the names and request layouts of the c10d protocol since 2.2, by number: k is a key or a value, n a number of
// eight bytes, u one of four, K a count and that many keys, M a count and that many keys and values.
var verbs = []struct{ name, layout string }{
	{"VALIDATE", "u"}, {"SET", "kk"}, {"COMPARE_SET", "kkk"}, {"GET", "k"}, {"ADD", "kn"}, {"CHECK", "K"}, {"WAIT", "K"},
	{"NUM", ""}, {"DELETE", "k"}, {"APPEND", "kk"}, {"MULTI_GET", "K"}, {"MULTI_SET", "M"}, {"CANCEL_WAIT", ""},
	{"PING", "u"}, {"QUEUE_PUSH", "kk"}, {"QUEUE_POP", "k"}, {"QUEUE_LEN", "k"}, {"LIST", ""}, {"BARRIER", "kn"},
}

// A proxy stands before a store and counts requests by their verb, and connections as "connections".
type proxy struct {
	ln       net.Listener
	upstream string
	legacy   bool // the clients number the verbs as 1.13 does, from SET = 0
	all      sync.WaitGroup

	mu     sync.Mutex
	counts map[string]int
	errs   []error
}

// count starts a proxy before the store at port of this machine.
func count(t *testing.T, port int, legacy bool) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, upstream: fmt.Sprintf("127.0.0.1:%d", port), legacy: legacy, counts: map[string]int{}}
	p.all.Go(p.accept)
	return p
}

func (p *proxy) port() int { return p.ln.Addr().(*net.TCPAddr).Port }

func (p *proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.note("connections")
		p.all.Go(func() { p.serve(client) })
	}
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.upstream)
	if err != nil {
		p.fail(err)
		return
	}
	var replies sync.WaitGroup
	replies.Go(func() { io.Copy(client, server) })
	if err := p.requests(bufio.NewReader(io.TeeReader(client, server))); err != nil {
		p.fail(err)
	}
	server.Close()
	replies.Wait()
}

// requests counts what passes until the client hangs up.
func (p *proxy) requests(r *bufio.Reader) error {
	for {
		b, err := r.ReadByte()
		if err != nil {
			return nil // a client that ends may as well reset
		}
		n := int(b)
		if p.legacy {
			n++
		}
		if n >= len(verbs) {
			return fmt.Errorf("a client sent verb %d", b)
		}
		p.note(verbs[n].name)
		for _, field := range verbs[n].layout {
			if err := skip(r, field); err != nil {
				return fmt.Errorf("%s: %w", verbs[n].name, err)
			}
		}
	}
}

func skip(r *bufio.Reader, field rune) error {
	switch field {
	case 'u':
		_, err := r.Discard(4)
		return err
	case 'k':
		n, err := number(r)
		if err == nil {
			_, err = r.Discard(n)
		}
		return err
	case 'n':
		_, err := number(r)
		return err
	}
	n, err := number(r)
	if field == 'M' {
		n *= 2
	}
	for range n {
		if err == nil {
			err = skip(r, 'k')
		}
	}
	return err
}

func number(r io.Reader) (int, error) {
	var b [8]byte
	_, err := io.ReadFull(r, b[:])
	return int(binary.LittleEndian.Uint64(b[:])), err
}

func (p *proxy) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[what]++
}

func (p *proxy) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errs = append(p.errs, err)
}

// stop ends the proxy, once all clients have gone, and returns what it counted.
func (p *proxy) stop(t *testing.T) map[string]int {
	t.Helper()
	p.ln.Close()
	p.all.Wait()
	for _, err := range p.errs {
		t.Errorf("proxy: %v", err)
	}
	return p.counts
}

func spell(counts map[string]int) string {
	var b strings.Builder
	for _, name := range []string{"connections", "VALIDATE", "PING", "SET", "GET", "WAIT", "ADD", "CHECK", "MULTI_SET", "MULTI_GET"} {
		fmt.Fprintf(&b, "%s %d ", name, counts[name])
	}
	return b.String()
}
