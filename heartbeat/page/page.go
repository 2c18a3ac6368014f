// Package page is the page that a worker writes to say how far it is: its layout, its reader, its writers, and the Python hook
// that fills it from inside PyTorch.
package page

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a reader meets instead of a page that it understands.
var (
	ErrTorn    = errors.New("a writer is in the middle of a write, or ended there")
	ErrForeign = errors.New("it is no page of muster's")
	ErrNewer   = errors.New("it was made by a newer version of muster")
)

// A Page is a worker's page as the agent sees it.
type Page struct {
	name string
	mem  []byte

	mu   sync.Mutex
	last Snapshot
}

// Create makes an empty page, in place of what was there: a process that still has the old one open writes where nobody reads.
// The path should be on a file system in memory. What the hook leaves beside an old page goes with it.
func Create(path string) (*Page, error) {
	next := fmt.Sprintf("%s.%d.new", path, os.Getpid())
	p, err := create(path, next)
	if err != nil {
		os.Remove(next)
		return nil, fmt.Errorf("create page: %w", err)
	}
	return p, nil
}

func create(path, next string) (*Page, error) {
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(next, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Write(empty()); err != nil {
		return nil, err
	}
	for _, file := range beside(path) {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	p, err := read(f, path)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(next, path); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Attach opens a page that another process created, for reading: a new agent finds its workers' pages.
func Attach(path string) (*Page, error) {
	f, err := open(path, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("open page: %w", err)
	}
	defer f.Close()
	p, err := read(f, path)
	if err != nil {
		return nil, fmt.Errorf("open page: %w", err)
	}
	return p, nil
}

// open opens a file that can be mapped as a page: one that is shorter would kill the process that reads behind its end.
func open(path string, flag int) (*os.File, error) { return openRegular(path, flag, Size) }

// openRegular opens a plain file that is at least so long.
func openRegular(path string, flag int, size int64) (*os.File, error) {
	f, err := os.OpenFile(path, flag|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0) // not for ever, if it is a pipe
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() < size) {
		err = &os.PathError{Op: "map", Path: path, Err: ErrForeign}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// read maps f to be read only.
func read(f *os.File, name string) (*Page, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, Size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, &os.PathError{Op: "map", Path: name, Err: err}
	}
	return &Page{name: name, mem: mem}, nil
}

// Close ends the use of the page. The file stays.
func (p *Page) Close() error {
	mem := p.mem
	p.mem = nil
	if mem == nil {
		return nil
	}
	return unix.Munmap(mem)
}

// Remove is Close, and the file goes with what the hook left beside it.
func (p *Page) Remove() {
	_ = p.Close()
	_ = os.Remove(p.name)
	for _, file := range beside(p.name) {
		_ = os.Remove(file)
	}
}

// beside is what there may be beside a page.
func beside(path string) []string {
	return []string{StackFile(path), SocketFile(path), TraceFile(path), TraceFile(path) + ".new", path + ".spawned"}
}

// StackFile is where the worker with the page at path writes its stacks when it gets StackSignal.
func StackFile(path string) string { return path + ".stack" }

// Path is that of its file.
func (p *Page) Path() string { return p.name }

// Read returns what the page says now. It makes no system call and hardly waits. After some attempts it is ErrTorn that a writer is
// in the middle of a write, where a worker may be stopped, or lose Python's lock for good; then what was read before stands in the
// Snapshot for the part that is torn.
func (p *Page) Read() (s Snapshot, err error) {
	if p.mem == nil {
		return Snapshot{}, fmt.Errorf("read page %s: %w", p.name, os.ErrClosed)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil { // the worker cut the file short: there is no memory behind what is mapped
			s, err = Snapshot{}, ErrForeign
		}
		if err != nil {
			err = fmt.Errorf("read page %s: %w", p.name, err)
		}
	}()
	s, err = decode(words(p.mem))
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == ErrTorn {
		s = s.or(p.last)
	}
	p.last = s
	return s, err
}

// or completes what could be read by what was read before. A part that has ever been written has a PID, or has counted a beat.
func (s Snapshot) or(last Snapshot) Snapshot {
	if s.Beats == 0 {
		s.Beats, s.Steps, s.Phase, s.Until = last.Beats, last.Steps, last.Phase, last.Until
	}
	if s.PID == 0 {
		last.Beats, last.Steps, last.Phase, last.Until = s.Beats, s.Steps, s.Phase, s.Until
		return last
	}
	return s
}

// words is a page as the words in which it is read and written, one at a time: another process changes them meanwhile.
func words(mem []byte) *[Size / 8]uint64 {
	return (*[Size / 8]uint64)(unsafe.Pointer(&mem[0])) // a mapping starts at a page of memory
}

// steady copies a part of a page that a writer has not changed meanwhile. Its first word is even when it is whole.
func steady(from []uint64, to []byte) bool {
	for range 1000 {
		before := load(&from[0])
		if before%2 == 1 {
			continue
		}
		for i := range from {
			order.PutUint64(to[8*i:], load(&from[i]))
		}
		if load(&from[0]) == before {
			return true
		}
	}
	return false
}

// load reads a word that is little-endian on every machine.
func load(w *uint64) uint64 {
	v := atomic.LoadUint64(w)
	return order.Uint64((*[8]byte)(unsafe.Pointer(&v))[:])
}

// store writes a word so that it is little-endian on every machine.
func store(w *uint64, v uint64) {
	var raw uint64
	order.PutUint64((*[8]byte)(unsafe.Pointer(&raw))[:], v)
	atomic.StoreUint64(w, raw)
}
