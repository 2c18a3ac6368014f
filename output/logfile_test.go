package output

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A heard is what log files had to say.
type heard []string

func (h *heard) word() *word { return &word{say: func(text string) { *h = append(*h, text) }} }

// kept returns the parts of a log, the oldest first.
func kept(t *testing.T, path string) (all []string) {
	t.Helper()
	for _, name := range []string{path + ".3", path + ".2", path + ".1", path} {
		b, err := os.ReadFile(name)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err == nil {
			all = append(all, string(b))
		}
	}
	return all
}

// Whatever is written, in whatever pieces: the parts together are it, as long as they hold it, and no line is in two of them.
func TestLogParts(t *testing.T) {
	for _, size := range []int{1, 100, 3000, 20000, 200000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			var said heard
			const quota = 40000
			l := newLogFile(t.TempDir(), "stdout", quota, said.word(), new(atomic.Uint64))
			random := rand.New(rand.NewPCG(1, uint64(size)))
			var all bytes.Buffer
			for all.Len() < size {
				fmt.Fprintf(&all, "%d %s%c", all.Len(), strings.Repeat("→", random.IntN(200)), "\n\n\r"[random.IntN(3)])
			}
			all.WriteByte('\n')
			for rest := all.Bytes(); len(rest) > 0; {
				n := min(len(rest), 1+random.IntN(5000))
				l.put(rest[:n])
				rest = rest[n:]
			}
			l.close()
			files := kept(t, l.path)
			text := strings.Join(files, "")
			if !strings.HasSuffix(all.String(), text) || len(text) < min(size, quota-quota/parts-2000) || len(text) > quota {
				t.Errorf("%d of %d bytes are kept, in %d files", len(text), all.Len(), len(files))
			}
			for i, f := range files {
				if !strings.HasSuffix(f, "\n") && !strings.HasSuffix(f, "\r") {
					t.Errorf("file %d ends in a line: %q", i, f[len(f)-10:])
				}
			}
			if (len(said) == 1) != (size > quota) {
				t.Errorf("it said %q", said)
			}
		})
	}
}

// What never ends its line does not grow without end.
func TestLogWithoutLines(t *testing.T) {
	var said heard
	l := newLogFile(t.TempDir(), "stderr", 1<<20, said.word(), new(atomic.Uint64))
	block := bytes.Repeat([]byte("x"), 64<<10)
	for range 160 {
		l.put(block)
	}
	l.close()
	for _, f := range kept(t, l.path) {
		if len(f) > 1<<20/parts+maxLine+readSize {
			t.Errorf("a part of %d bytes", len(f))
		}
	}
	if len(said) != 1 {
		t.Errorf("it said %q", said)
	}
}

// A file that is there already is added to: an agent that takes over goes on where the last one stopped.
func TestLogGoesOn(t *testing.T) {
	dir := t.TempDir()
	for i := range 2 {
		l := newLogFile(dir, "stdout", 0, (&heard{}).word(), new(atomic.Uint64))
		l.put(fmt.Appendf(nil, "%d\n", i))
		l.close()
	}
	if got := kept(t, filepath.Join(dir, "stdout.log")); len(got) != 1 || got[0] != "0\n1\n" {
		t.Errorf("%q", got)
	}
}

// smallDisk is a directory on a disk of 64 KiB, which a file there fills but for 16..
func smallDisk(t *testing.T) (dir, ballast string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("a small disk to fill: %v (this test needs to be root)", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	ballast = filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 48<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, ballast
}

// A disk that is full: one word, nobody waits, and what is missing is said where it is missing once there is room.
func TestFullDisk(t *testing.T) {
	dir, ballast := smallDisk(t)
	var said heard
	w := said.word()
	a, b := newLogFile(dir, "stdout", 0, w, new(atomic.Uint64)), newLogFile(dir, "stderr", 0, w, new(atomic.Uint64))
	line := []byte(strings.Repeat("x", 99) + "\n")
	for range 1000 {
		a.put(line)
		b.put(line)
	}
	a.queue.flush()
	b.queue.flush()
	if len(said) != 1 || !strings.Contains(said[0], syscall.ENOSPC.Error()) {
		t.Errorf("it said %q", said)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	a.put([]byte("again\n"))
	a.close()
	b.close()
	text := kept(t, a.path)[0]
	came := strings.Count(text, string(line))
	var missing int
	_, note, _ := strings.Cut(text, "[muster: ")
	if _, err := fmt.Sscanf(note, "%d lines are missing here", &missing); err != nil || !strings.HasSuffix(text, "]\nagain\n") {
		t.Fatalf("%v in %q", err, note)
	}
	if came+missing != 1000 {
		t.Errorf("%d lines came and %d are missing", came, missing)
	}
}

// A directory that does not exist and cannot be made.
func TestNoLog(t *testing.T) {
	var said heard
	w := said.word()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l := newLogFile(file, "stdout", 0, w, new(atomic.Uint64))
		l.put([]byte("x\n"))
		l.close()
	}
	if len(said) != 1 || !strings.Contains(said[0], "not a directory") {
		t.Errorf("it said %q", said)
	}
}

// A disk that hangs is waited for, but not for ever; one that is slow is waited for, and loses nothing.
func TestDiskPace(t *testing.T) {
	block := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 1000)
	for _, c := range []struct {
		name        string
		write       time.Duration
		lost        bool
		least, most time.Duration
	}{
		{"slow", 200 * time.Millisecond, false, 10 * time.Second, time.Minute}, // 0.5 MB/s
		{"hangs", time.Hour, true, filePace.still, filePace.still},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := newSink(writerFunc(func(b []byte) (int, error) { time.Sleep(c.write); return len(b), nil }), "disk", filePace, new(atomic.Uint64))
				q := to.newQueue(noteOf(plain{}))
				began := time.Now()
				for range 200 { // 20 MB
					q.put(bytes.Clone(block))
				}
				if d := time.Since(began); d < c.least || d > c.most {
					t.Errorf("the worker waited %v", d)
				}
				if n := lost(to); n > 0 != c.lost {
					t.Errorf("%d lines were lost", n)
				}
				_ = to.close(t.Context())
				<-to.done
			})
		})
	}
}
