package matrix

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	machines "github.com/muster-run/muster/test/stage"
)

// A record is what a worker told of itself, or, if what is "gone", what was seen of its end.
type record struct {
	at                time.Duration
	machine           string
	rank, size, round int
	pid, local        int
	what              string
}

func (r record) String() string {
	return fmt.Sprintf("%.3f %s rank %d of %d, round %d, pid %d, slot %d: %s", r.at.Seconds(), r.machine, r.rank, r.size, r.round, r.pid, r.local, r.what)
}

// by reports whether two records are of one worker.
func (r record) by(other record) bool { return r.machine == other.machine && r.pid == other.pid }

// A book has all that the workers of a stage told.
type book struct {
	dir     string
	pipe    *os.File
	changed func()
	readers sync.WaitGroup

	mu  sync.Mutex
	all []record
	bad error
}

func openBook(dir string, changed func()) (*book, error) {
	pipe, err := machines.Book(dir)
	if err != nil {
		return nil, err
	}
	b := &book{dir: dir, pipe: pipe, changed: changed}
	b.readers.Go(b.read)
	return b, nil
}

// close returns when the last worker is gone.
func (b *book) close() {
	if b != nil {
		b.pipe.Close()
		b.readers.Wait()
	}
}

func (b *book) read() {
	lines := bufio.NewScanner(b.pipe)
	for lines.Scan() {
		var r record
		_, err := fmt.Sscan(lines.Text(), (*int64)(&r.at), &r.machine, &r.rank, &r.size, &r.round, &r.pid, &r.local, &r.what)
		if err != nil {
			b.fail(fmt.Errorf("a worker wrote %q: %w", lines.Text(), err))
			continue
		}
		b.add(r)
		if r.what == "up" {
			b.readers.Go(func() { b.watch(r) })
		}
	}
}

// watch waits until a worker is gone: then the kernel gives back its lock, to which all others but it have a right at once.
func (b *book) watch(r record) {
	life, err := os.Open(filepath.Join(b.dir, "alive", fmt.Sprintf("%d.%s.%d.%d", r.round, r.machine, r.local, r.pid)))
	if err != nil {
		b.fail(err)
		return
	}
	defer life.Close()
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(life.Fd()), unix.LOCK_SH)
	}
	if err != nil {
		b.fail(err)
		return
	}
	r.at, r.what = machines.Now(), "gone"
	b.add(r)
}

func (b *book) add(r record) {
	b.mu.Lock()
	b.all = append(b.all, r)
	b.mu.Unlock()
	b.changed()
}

func (b *book) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bad = errors.Join(b.bad, err)
}

// find returns the records of a kind: all, in the order in which they came.
func (b *book) find(is func(record) bool) (found []record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.all {
		if is(r) {
			found = append(found, r)
		}
	}
	return found
}

// last is the end of the book, without the steps that went well.
func (b *book) last(n int) string {
	all := b.find(func(r record) bool { return r.what != "step" && r.what != "stepped" })
	var text strings.Builder
	for _, r := range all[max(0, len(all)-n):] {
		fmt.Fprintln(&text, r)
	}
	return text.String()
}

// world are the first steps of the workers of a world of n, one for each rank, whose workers all came after a time; nil: there is none yet.
func (b *book) world(n int, after time.Duration) []record {
	young := b.find(func(r record) bool { return r.what == "up" && r.at > after })
	firsts := make([]record, n)
	for _, r := range b.find(func(r record) bool { return r.what == "stepped" && r.at > after && r.size == n }) {
		if firsts[r.rank].what == "" && slices.ContainsFunc(young, r.by) {
			firsts[r.rank] = r
		}
	}
	if slices.ContainsFunc(firsts, func(r record) bool { return r.what == "" || r.round != firsts[0].round }) {
		return nil
	}
	return firsts
}

// latest is when the last of them was written.
func latest(all []record) (last time.Duration) {
	for _, r := range all {
		last = max(last, r.at)
	}
	return last
}

// alive are the first words of the workers that were not yet seen to be gone.
func (b *book) alive() (ups []record) {
	gone := b.find(func(r record) bool { return r.what == "gone" })
	return b.find(func(r record) bool { return r.what == "up" && !slices.ContainsFunc(gone, r.by) })
}

// mark writes a record of nobody, before which stands all that was written until now.
func (b *book) mark() error {
	_, err := b.pipe.WriteString("0 - 0 0 0 0 0 mark\n")
	return err
}

// marked reports whether that has been read.
func (b *book) marked() bool {
	return len(b.find(func(r record) bool { return r.what == "mark" })) > 0
}

// workers are all records of workers.
func (b *book) workers() ([]record, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.all), func(r record) bool { return r.what == "mark" }), b.bad
}
