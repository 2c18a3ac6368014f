package fleet

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/muster-run/muster/job"
)

// Answers reports whether an agent lives behind one of addrs, without being of its world: the leader says that it does, a member,
// which expects nobody, closes the connection. A listener without an agent, or with one that stands still, is silent. ctx
// bounds the wait. dial connects; nil: by TCP.
func Answers(ctx context.Context, addrs []job.Addr, dial func(ctx context.Context, network, addr string) (net.Conn, error)) bool {
	if dial == nil {
		dial = dialTCP(time.Second)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan bool)
	for _, addr := range addrs {
		go func() { answers <- answersAt(ctx, string(addr), dial) }()
	}
	alive := false
	for range addrs {
		if <-answers {
			alive = true
			cancel()
		}
	}
	return alive
}

func answersAt(ctx context.Context, addr string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) bool {
	c, err := dial(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if _, err := c.Write(appendFrame([]byte(Magic), hello{Protocol: Protocol, Asks: true})); err != nil {
		return closed(err)
	}
	var w welcome
	err = readFrame(bufio.NewReader(c), &w, maxHello)
	return err == nil || closed(err)
}

// closed reports whether the other side ended a connection.
func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
