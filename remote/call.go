package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
	"unicode"
)

// A Conn is a connection to a node on which one command can be run.
type Conn struct{ line *line }

// alive finds out within half a minute that the other machine is gone.
var alive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// Dial connects to host:port, once, and proves that it has one of the keys, as the other side must.
// Its error is a [Refusal] if trying again is of no use.
func Dial(ctx context.Context, addr string, keys []Key) (*Conn, error) {
	d := net.Dialer{Timeout: helloTime, KeepAliveConfig: alive}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, cause(err)
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	l, err := greet(c, keys)
	if err != nil {
		c.Close()
		return nil, err
	}
	return &Conn{l}, nil
}

// cause leaves out of a network's error what is said anyway: the address.
func cause(err error) error {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &dns):
		return errors.New(dns.Err)
	case errors.As(err, &op):
		return op.Err
	}
	return err
}

// Reach dials until somebody answers, for a node's name and its server come when its container does: until ctx ends.
// Each new reason to wait is told.
func Reach(ctx context.Context, addr string, keys []Key, waits func(why error)) (*Conn, error) {
	said := ""
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		c, err := Dial(ctx, addr, keys)
		var no *Refusal
		if err == nil || errors.As(err, &no) {
			return c, err
		}
		if why := err.Error(); ctx.Err() == nil && why != said {
			said = why
			waits(err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("nobody answers (%s): %w", said, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// Close ends the connection, and with it what runs there.
func (c *Conn) Close() error { return c.line.Close() }

// Streams are a command's. In may be nil: it has no input.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Run runs a command, and returns its exit code, 128+n if signal n ended it. When ctx ends, or the connection, the command
// does, too. A read from s.In that has begun is not waited for: nobody can break it off.
func (c *Conn) Run(ctx context.Context, cmd Command, s Streams) (code int, err error) {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := c.line.sendCommand(cmd); err != nil {
		return 0, err
	}
	took := make(chan struct{}, 1)
	defer close(took)
	go c.feed(s.In, took) // until the command has ended, and the read that is under way
	for {
		k, data, err := c.line.receive()
		if err != nil {
			return 0, fmt.Errorf("the connection was lost: %w", err)
		}
		switch k {
		case out:
			_, err = s.Out.Write(data)
		case errput:
			_, err = s.Err.Write(data)
		case taken:
			select {
			case took <- struct{}{}:
			default: // nothing was sent that could have been taken
			}
		case failed:
			return 0, refusal("%s", printable(data))
		case ended:
			if len(data) == 1 {
				return int(data[0]), nil
			}
		}
		if err != nil {
			return 0, fmt.Errorf("pass on what the command writes: %w", err)
		}
	}
}

// feed sends what in has, one piece after the other, each when the one before it was taken.
func (c *Conn) feed(in io.Reader, took <-chan struct{}) {
	if in != nil {
		buffer := make([]byte, maxData)
		for {
			n, err := in.Read(buffer)
			if n > 0 && c.line.send(input, buffer[:n]) != nil {
				return
			}
			if n > 0 {
				if _, more := <-took; !more {
					return
				}
			}
			if err != nil {
				break
			}
		}
	}
	_ = c.line.send(input, nil)
}

// printable is a text of the other side's fit for a terminal.
func printable(text []byte) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(text[:min(len(text), maxText)]), ""))
}
