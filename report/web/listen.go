package web

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// An Address is where a page is to be served: a host, "" for all of this machine's addresses, and the ports to try. From 0 is any free one.
type Address struct {
	Host     string
	From, To int
}

// maxRange bounds the ports that are tried.
const maxRange = 1024

// ParseAddress reads [HOST]:PORT or [HOST]:FROM-TO.
func ParseAddress(text string) (a Address, err error) {
	host, ports, err := net.SplitHostPort(text)
	if err != nil {
		return a, fmt.Errorf("%.80q is no address: give [HOST]:PORT, [HOST]:FROM-TO, or port 0 for a free one", text)
	}
	low, high, ranged := strings.Cut(ports, "-")
	if !ranged {
		high = low
	}
	a.Host = host
	var err1, err2 error
	a.From, err1 = strconv.Atoi(low)
	a.To, err2 = strconv.Atoi(high)
	if err1 != nil || err2 != nil || a.From < 0 || a.To > 65535 || a.From > a.To || a.To-a.From >= maxRange || ranged && a.From == 0 {
		return a, fmt.Errorf("%.80q is no port, nor a range of at most %d", ports, maxRange)
	}
	return a, nil
}

// Listen opens the first port that is free.
func (a Address) Listen() (net.Listener, error) {
	var first error
	for port := a.From; port <= a.To; port++ {
		ln, err := net.Listen("tcp", net.JoinHostPort(a.Host, strconv.Itoa(port)))
		if err == nil {
			return ln, nil
		}
		if first == nil {
			first = err
		}
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EACCES) {
			return nil, err
		}
	}
	if a.From == a.To {
		return nil, first
	}
	return nil, fmt.Errorf("none of the ports %d to %d is free: %w", a.From, a.To, first)
}

// limited lets in so many at once, and of one address not all of them.
type limited struct {
	net.Listener
	room   chan struct{}
	once   sync.Once
	closed chan struct{}

	mu   sync.Mutex
	from map[string]int // by address
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.room <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			<-l.room
			return nil, err
		}
		if host, _, _ := net.SplitHostPort(conn.RemoteAddr().String()); l.enters(host) {
			return &guest{Conn: conn, leave: sync.OnceFunc(func() { l.leaves(host); <-l.room })}, nil
		}
		conn.Close()
	}
}

func (l *limited) enters(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from[host] >= maxFrom {
		return false
	}
	l.from[host]++
	return true
}

func (l *limited) leaves(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from[host]--; l.from[host] == 0 {
		delete(l.from, host)
	}
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// guest is one of them.
type guest struct {
	net.Conn
	leave func()
}

func (g *guest) Close() error {
	defer g.leave()
	return g.Conn.Close()
}
