package output

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A source is the read end of a worker's pipe. Close ends a Read under way.
type source interface {
	io.ReadCloser
	SetReadDeadline(time.Time) error
}

// A quietPipe is a source of which Go's poller hears only while somebody waits for it. It is woken by every write otherwise:
// of a worker that writes line by line that takes more CPU time than all else, on both sides. So an epoll instance stands
// between, which is told each time that one event is wanted (EPOLLONESHOT, epoll(7)).
type quietPipe struct {
	fd     int             // the pipe
	ready  *os.File        // the epoll instance: readable when the pipe is
	await  syscall.RawConn // ready's
	closed atomic.Bool

	reading sync.Mutex // held during Read
}

// newSource takes a pipe over.
func newSource(f *os.File) source {
	p, err := newQuietPipe(f)
	if err != nil { // too many open files, perhaps: it costs more, and works
		return f
	}
	f.Close()
	return p
}

func newQuietPipe(f *os.File) (*quietPipe, error) {
	fd, err := duplicate(f)
	if err != nil {
		return nil, err
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	_ = unix.SetNonblock(epoll, true) // so that Go polls it
	p := &quietPipe{fd: fd, ready: os.NewFile(uintptr(epoll), "epoll")}
	p.await, err = p.ready.SyscallConn()
	err = errors.Join(err, unix.SetNonblock(fd, true), unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{}),
		p.ready.SetReadDeadline(time.Time{})) // fails if Go does not poll it
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// duplicate returns a descriptor of f that Go's poller does not know.
func duplicate(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		return -1, e
	}
	return fd, err
}

// Read is io.Reader's.
func (p *quietPipe) Read(b []byte) (int, error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	for !p.closed.Load() {
		n, err := unix.Read(p.fd, b)
		switch {
		case err == nil && n == 0:
			return 0, io.EOF
		case err == nil:
			return n, nil
		case err == unix.EAGAIN:
			if err := p.wait(); err != nil {
				return 0, err
			}
		case err != unix.EINTR:
			return 0, err
		}
	}
	return 0, os.ErrClosed
}

// wait returns when the pipe holds something, or the deadline has passed.
func (p *quietPipe) wait() error {
	asked := false
	return p.await.Read(func(epoll uintptr) bool {
		if !asked {
			asked = true
			_ = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_MOD, p.fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT})
		}
		var event [1]unix.EpollEvent
		n, _ := unix.EpollWait(int(epoll), event[:], 0)
		return n > 0
	})
}

// SetReadDeadline ends a wait at t.
func (p *quietPipe) SetReadDeadline(t time.Time) error { return p.ready.SetReadDeadline(t) }

// Close ends a Read under way, and is not to be called twice.
func (p *quietPipe) Close() error {
	p.closed.Store(true)
	err := p.ready.Close()
	p.reading.Lock()
	defer p.reading.Unlock()
	return errors.Join(err, unix.Close(p.fd))
}
