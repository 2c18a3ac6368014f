package page

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A Writer is a program's own way to its page: it beats.
type Writer struct {
	file *os.File
	mem  []byte
}

// Open opens the page that the agent made, for a program that says itself how far it is. Several may have it open.
func Open(path string) (*Writer, error) {
	w, err := openWriter(path)
	if err != nil {
		return nil, fmt.Errorf("open page: %w", err)
	}
	return w, nil
}

func openWriter(path string) (*Writer, error) {
	f, err := open(path, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "map", Path: path, Err: err}
	}
	w := &Writer{f, mem}
	p := words(mem)
	if err := known([2]uint64{load(&p[0]), load(&p[1])}); err != nil {
		w.Close()
		return nil, &os.PathError{Op: "map", Path: path, Err: err}
	}
	return w, nil
}

// Close ends the use of the page. What was said stays.
func (w *Writer) Close() error {
	return errors.Join(unix.Munmap(w.mem), w.file.Close())
}

// Beat says that the program advances.
func (w *Writer) Beat() error { return w.write(func([]byte) {}) }

// Step says that training has come to step n.
func (w *Writer) Step(n uint64) error {
	return w.write(func(b []byte) { order.PutUint64(b[beatSteps:], n) })
}

// Phase says that the program does something else for a while than to train, and for how long at most; 0 leaves that open.
// An empty name ends it.
func (w *Writer) Phase(name string, long time.Duration) error {
	var until time.Duration
	if name != "" && long > 0 {
		now, err := monotonic()
		if err != nil {
			return err
		}
		until = now + long
	}
	return w.write(func(b []byte) {
		putText(b[beatPhase:beatSize], name)
		order.PutUint64(b[beatUntil:], uint64(until))
	})
}

// monotonic is CLOCK_MONOTONIC, which a page's times are told in: the same in all processes.
func monotonic() (time.Duration, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano()), err
}

// write changes the part that the program's beats stand in, so that a reader sees all of it or nothing.
func (w *Writer) write(change func([]byte)) error {
	if err := w.lock(unix.F_WRLCK); err != nil {
		return fmt.Errorf("lock page: %w", err)
	}
	defer w.lock(unix.F_UNLCK) //nolint:errcheck // closing it does so, too
	p := words(w.mem)[beatsAt/8 : (beatsAt+beatSize)/8]
	var b [beatSize]byte
	for i := range p {
		order.PutUint64(b[8*i:], load(&p[i]))
	}
	change(b[:])
	order.PutUint64(b[beatCount:], order.Uint64(b[beatCount:])+1)
	open := load(&p[0]) | 1 // of a writer that died, it is odd already
	store(&p[0], open)
	for i := 1; i < len(p); i++ {
		store(&p[i], order.Uint64(b[8*i:]))
	}
	store(&p[0], open+1)
	return nil
}

// lock keeps other writers of this part out for the few instructions that a write takes. It waits for them, but not for one
// that was stopped in the middle.
func (w *Writer) lock(kind int16) error {
	l := unix.Flock_t{Type: kind, Start: beatsAt, Len: 1}
	for try := 0; ; try++ {
		err := unix.FcntlFlock(w.file.Fd(), unix.F_OFD_SETLK, &l)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EINTR) || try == 100 {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}
