package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A Handler answers a request. It is called from many goroutines at once, and gives up when ctx ends.
type Handler func(ctx context.Context, r Request) (any, error)

// A Server listens at a socket.
type Server struct {
	ln     *net.UnixListener
	handle Handler
	log    *slog.Logger
	ctx    context.Context
	stop   context.CancelFunc
	all    sync.WaitGroup
	wait   chan struct{} // has an element for each client that waits
}

// Listen opens the socket in dir, which belongs to this process alone, and serves it. What an agent left there that
// is gone is removed.
func Listen(dir string, h Handler, log *slog.Logger) (*Server, error) {
	path := filepath.Join(dir, Socket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ln, err := Named(path, func(at *net.UnixAddr) (*net.UnixListener, error) { return net.ListenUnix("unix", at) })
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false) // the name may lead nowhere by then; it goes with its directory
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, err
	}
	s := &Server{ln: ln, handle: h, log: log, wait: make(chan struct{}, maxWaiters)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.all.Go(s.serve)
	return s, nil
}

// Close ends the service. Nobody is being answered when it returns.
func (s *Server) Close() {
	if s == nil {
		return
	}
	s.stop()
	s.ln.Close()
	s.all.Wait()
}

// serve takes connections while there is room.
func (s *Server) serve() {
	room := make(chan struct{}, maxClients)
	for {
		select {
		case room <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		conn, err := s.ln.AcceptUnix()
		if err != nil {
			if s.refused(err) {
				return
			}
			<-room
			continue
		}
		s.all.Go(func() {
			leave := sync.OnceFunc(func() { <-room })
			defer leave()
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(allTime))
			conn.SetReadDeadline(time.Now().Add(readTime))
			defer context.AfterFunc(s.ctx, func() { conn.SetDeadline(time.Now().Add(lastTime)) })()
			s.serveOne(conn, leave)
		})
	}
}

// refused waits a moment after an error, most often of too many open files, and reports whether it is the end.
func (s *Server) refused(err error) bool {
	if !errors.Is(err, net.ErrClosed) {
		s.log.Debug("control socket", "err", err)
	}
	select {
	case <-s.ctx.Done():
		return true
	case <-time.After(100 * time.Millisecond):
		return errors.Is(err, net.ErrClosed)
	}
}

// serveOne answers the request of one connection. Strangers and those who say nothing are hung up on. Who waits is not in the others' way.
func (s *Server) serveOne(conn *net.UnixConn, leave func()) {
	if uid, err := userOf(conn); err != nil || uid != os.Getuid() && uid != 0 {
		return
	}
	line, err := bufio.NewReader(io.LimitReader(conn, maxRequest)).ReadBytes('\n')
	if err == io.EOF && len(line) == 0 {
		return // it only wanted to know whether anybody listens
	}
	var r Request
	if err == nil {
		err = json.Unmarshal(line, &r)
	}
	var data []byte
	switch {
	case err != nil:
		data = inJSON(nil, fmt.Errorf("a request is one line of JSON of at most %d bytes: %w", maxRequest, err))
	case r.Wait:
		data = s.await(conn, r, leave)
	default:
		data = inJSON(s.handle(s.ctx, r))
	}
	if _, err := conn.Write(append(data, '\n')); err != nil {
		s.log.Debug("control socket", "err", err)
	}
}

// await answers when what the client waits for has come to pass, or gives up when it hangs up.
func (s *Server) await(conn *net.UnixConn, r Request, leave func()) []byte {
	select {
	case s.wait <- struct{}{}:
		defer func() { <-s.wait }()
	default:
		return inJSON(nil, fmt.Errorf("%d others wait already", maxWaiters))
	}
	leave()
	if _, err := conn.Write([]byte("{}\n")); err != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	if s.ctx.Err() == nil {
		conn.SetDeadline(time.Time{})
	}
	s.all.Go(func() {
		conn.Read(make([]byte, 1)) // it has no more to say
		cancel()
	})
	result, err := s.handle(ctx, r)
	conn.SetReadDeadline(time.Now())
	conn.SetWriteDeadline(time.Now().Add(lastTime))
	return inJSON(result, err)
}

// inJSON is the answer as a line, without its end.
func inJSON(result any, err error) []byte {
	var a answer
	if err == nil {
		a.Result, err = json.Marshal(result)
	}
	if err != nil {
		a.Error = err.Error()
	}
	data, _ := json.Marshal(a) // text and what was marshalled: cannot fail
	return data
}
