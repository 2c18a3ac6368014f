package output

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A testStream is a stream that is fed by hand.
type testStream struct {
	*stream
	queue *queue
}

func newTestStream(to *sink, prefix string, raw bool) testStream {
	form := plain{prefix: []byte(prefix)}
	q := to.newQueue(noteOf(form))
	return testStream{&stream{out: q, form: form, raw: raw, tail: &tail{}, barEvery: time.Hour, bytes: new(atomic.Uint64), lines: new(atomic.Uint64)}, q}
}

func newTestSink(to io.Writer) *sink { return newSink(to, "console", consolePace, new(atomic.Uint64)) }

// carried returns what a console shows of parts, and the tail.
func carried(t *testing.T, prefix string, raw bool, parts ...string) (string, []string) {
	t.Helper()
	var out bytes.Buffer
	to := newTestSink(&out)
	s := newTestStream(to, prefix, raw)
	for _, p := range parts {
		s.feed([]byte(p))
		s.queue.flush() // this console keeps up
	}
	s.finish()
	if err := to.close(t.Context()); err != nil {
		t.Error(err)
	}
	return out.String(), s.tail.lines()
}

const cutMark = " [muster: cut here, the line goes on]\n"

var lineCases = []struct {
	name, in, want string
}{
	{"lines", "one\ntwo\n", "> one\n> two\n"},
	{"empty lines", "\n\na\n\n", "> \n> \n> a\n> \n"},
	{"no newline at the end", "one\ntwo", "> one\n> two [muster: no newline here]\n"},
	{"nothing", "", ""},
	{"characters of several bytes", "größer ✓\n→ ∞\n", "> größer ✓\n> → ∞\n"},
	{"not UTF-8, and zeros", "a\xff\xfe\nb\x00c\n", "> a\xff\xfe\n> b\x00c\n"},
	{"lines of Windows", "one\r\n\r\ntwo\r\n", "> one\n> \n> two\n"},
	{"a bar's last state", "\r 10%\r 20%\r100%\nnext\n", "> 100%\n> next\n"},
	{"a bar that ends with its return", "10%\r20%\r100%\r\nnext\n", "> 100%\n> next\n"},
	{"a bar without newline", "10%\r 20%", ">  20%\n"},
	{"a bar that is wiped out", "10%\r   \rdone\n", "> done\n"},
	{"a bar that is wiped out, then nothing", "x\n10%\r   \r", "> x\n"},
	{"a bar between lines", "a\n1\r2\nb\r\nc\n", "> a\n> 2\n> b\n> c\n"},
}

// A line must not depend on how the pipe cut it: every case in one piece, byte by byte, and cut in two everywhere.
// Intermediate states of bars do depend on it; they are put aside.
func TestLines(t *testing.T) {
	for _, c := range lineCases {
		t.Run(c.name, func(t *testing.T) {
			splits := [][]string{{c.in}, strings.SplitAfter(c.in, "")}
			if !strings.Contains(c.in, "\r") {
				splits[1] = nil
				for i := range c.in {
					splits[1] = append(splits[1], c.in[i:i+1])
					splits = append(splits, []string{c.in[:i], c.in[i:]})
				}
			} else {
				splits = splits[:1]
			}
			for _, parts := range splits {
				if got, _ := carried(t, "> ", false, parts...); got != c.want && strings.Join(parts, "") == c.in {
					t.Errorf("%q: %q, want %q", parts, got, c.want)
				}
				bare, _ := carried(t, "", false, parts...)
				if want := strings.ReplaceAll(c.want, "> ", ""); bare != want && strings.Join(parts, "") == c.in {
					t.Errorf("%q: bare %q, want %q", parts, bare, want)
				}
			}
			if got, _ := carried(t, "", true, c.in); got != c.in {
				t.Errorf("raw: %q", got)
			}
		})
	}
}

func TestLongLines(t *testing.T) {
	for name, line := range map[string]string{
		"10 MiB":        strings.Repeat("0123456789abcdef", 10<<20/16),
		"of characters": strings.Repeat("é✓", 3<<20/5),
		"just fits":     strings.Repeat("x", maxLine),
	} {
		t.Run(name, func(t *testing.T) {
			var parts []string
			for text := line + "\nnext\n"; text != ""; {
				n := min(len(text), 65521)
				parts, text = append(parts, text[:n]), text[n:]
			}
			got, tail := carried(t, "> ", false, parts...)
			lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
			for i, l := range lines {
				if len(l) > len("> ")+maxLine+len(cutMark) || !strings.HasPrefix(l, "> ") || strings.ContainsRune(l, '�') {
					t.Errorf("line %d of %d bytes: %.20q…", i, len(l), l)
				}
			}
			if lines[len(lines)-1] != "> next" || (len(lines) > 2) != (len(line) > maxLine) {
				t.Errorf("%d lines", len(lines))
			}
			whole := strings.ReplaceAll(strings.Join(lines[:len(lines)-1], "\n"), cutMark, "")
			if strings.ReplaceAll(whole, "> ", "") != line {
				t.Error("it is not the same")
			}
			if tail[len(tail)-1] != "next" {
				t.Errorf("tail %.80q", tail)
			}
		})
	}
}

// A bar is shown at once, then each barEvery its newest state, and in the end its last.
func TestBar(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var out lockedBuffer
	to := newTestSink(&out)
	s := newTestStream(to, "> ", false)
	s.in, s.barEvery = r, 50*time.Millisecond
	s.begin()
	for _, step := range []struct{ write, shown string }{{"\r 1%", ">  1%\n"}, {"\r 2%\r 3%", ">  3%\n"}} { // 3 after a while, though nothing more comes
		if _, err := w.WriteString(step.write); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(2 * time.Minute); !strings.HasSuffix(out.String(), step.shown); {
			if time.Now().After(deadline) {
				t.Fatalf("%q", out.String())
			}
		}
	}
	if _, err := w.WriteString("\r 4%\r 3%\nend\n"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	s.settle()
	s.close()
	s.queue.flush()
	if got := out.String(); got != ">  1%\n>  3%\n> end\n" {
		t.Errorf("%q", got)
	}
	_ = to.close(t.Context())
}

func TestBarRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		to := newTestSink(&out)
		s := newTestStream(to, "> ", false)
		s.barEvery = 5 * time.Second
		for i := range 1000 { // a hundred seconds of tqdm
			s.feed(fmt.Appendf(nil, "\r%3d of 1000", i))
			time.Sleep(100 * time.Millisecond)
		}
		s.feed([]byte("\r1000 of 1000\n"))
		s.finish()
		if err := to.close(t.Context()); err != nil {
			t.Error(err)
		}
		lines := strings.Split(out.String(), "\n")
		if len(lines) != 22 || lines[0] != ">   0 of 1000" || lines[1] != ">  50 of 1000" || lines[20] != "> 1000 of 1000" {
			t.Errorf("%d lines, %q", len(lines), lines)
		}
		if len(s.partial) != 0 || cap(s.partial) > 1000 {
			t.Errorf("%d bytes are kept, in room for %d", len(s.partial), cap(s.partial))
		}
	})
}

func TestTail(t *testing.T) {
	var a tail
	if got := a.lines(); got != nil {
		t.Errorf("%q", got)
	}
	for i := range 1000 {
		a.add(fmt.Appendf(nil, "line %d\n", i))
	}
	if got := a.lines(); len(got) != 200 || got[0] != "line 800" || got[199] != "line 999" {
		t.Errorf("%d lines, %q", len(got), got)
	}
	a.add(bytes.Repeat([]byte("x"), 10*tailBytes), []byte("\xff\nend\n"))
	if got := a.lines(); len(got) != 200 || got[0] != "line 802" || len(got[198]) > tailLine+5 || !strings.HasSuffix(got[198], "x\uFFFD") || got[199] != "end" {
		t.Errorf("%d lines, %.20q", len(got), got)
	}
	a.add([]byte("Traceback\nError: " + strings.Repeat("y", 2*tailBytes) + "\n")) // what such a line follows is kept
	if got := a.lines(); got[198] != "Traceback" || !strings.HasPrefix(got[199], "Error: yyy") || len(got[199]) != tailLine {
		t.Errorf("%d lines, %.20q", len(got), got[198:])
	}
	a.add(bytes.Repeat([]byte(strings.Repeat("z", 10*tailLine)+"\n"), 100))
	if len(a.buf) > 2*tailBytes {
		t.Errorf("%d bytes", len(a.buf))
	}
}

// What is kept begins with a whole line: nobody could tell that the end of a secret is one.
func TestTailBeginsWithALine(t *testing.T) {
	var a tail
	line := "secret" + strings.Repeat("z", 1000) + "\n"
	for range 1000 {
		a.add([]byte(line))
		for _, got := range a.lines() {
			if got+"\n" != line {
				t.Fatalf("%.20q, %d bytes", got, len(got))
			}
		}
	}
	if n := len(a.lines()); n != tailBytes/len(line) {
		t.Errorf("%d lines", n)
	}
}

// lockedBuffer is a console for tests that look at it meanwhile.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// writerFunc is a console with a behaviour.
type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// A console that stands still holds nobody up; what does not fit is dropped, the oldest first, and counted.
func TestStandingConsole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		goOn := make(chan struct{})
		to := newTestSink(writerFunc(func(b []byte) (int, error) { <-goOn; return out.Write(b) }))
		a, b := newTestStream(to, "[rank 0] ", false), newTestStream(to, "[rank 1] ", false)
		line := func(i int) string { return fmt.Sprintf("%7d %s\n", i, strings.Repeat(".", 91)) }
		const n = 160000 // 16 MB, twice the queue
		began := time.Now()
		for i := range n {
			a.feed([]byte(line(i)))
		}
		b.feed([]byte("b is not touched\n"))
		if took := time.Since(began); took > consolePace.still {
			t.Errorf("the worker waited %v", took)
		}
		if a.queue.size > queueSize {
			t.Errorf("%d bytes wait", a.queue.size)
		}
		close(goOn)
		a.queue.flush()
		b.queue.flush()
		text := out.String()
		got := strings.Count(text, "[rank 0]  ")
		var dropped int
		_, note, _ := strings.Cut(text, "[rank 0] [muster: ")
		if _, err := fmt.Sscanf(note, "%d lines dropped here, the console did not keep up]\n", &dropped); err != nil {
			t.Errorf("%v in %.80q", err, note)
		}
		if got+dropped != n || !strings.Contains(text, "[rank 0] "+line(n-1)) || !strings.Contains(text, "[rank 1] b is not touched\n") {
			t.Errorf("%d lines came, %d were dropped, of %d", got, dropped, n)
		}
		if err := to.close(t.Context()); err == nil || err.Error() != fmt.Sprintf("console: %d lines were lost", dropped) {
			t.Errorf("close: %v", err)
		}
	})
}

// readAt is a console that is read at a rate, so many bytes at once.
func readAt(bytesPerSecond *atomic.Int64, gulp int64) writerFunc {
	var unread int64
	return func(b []byte) (int, error) {
		unread += int64(len(b))
		if unread >= gulp {
			time.Sleep(time.Duration(unread * int64(time.Second) / bytesPerSecond.Load()))
			unread = 0
		}
		return len(b), nil
	}
}

func lost(s *sink) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// A console that stands still, or is read too slowly, holds up no worker of a usual rate, not for a moment.
func TestNobodyWaits(t *testing.T) {
	for name, c := range map[string]struct{ rate, gulp int64 }{"stands still": {1, 1}, "1 MB/s": {1 << 20, 1}, "1 MB/s in gulps": {1 << 20, 1 << 20}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var bytesPerSecond atomic.Int64
				bytesPerSecond.Store(c.rate)
				to := newTestSink(readAt(&bytesPerSecond, c.gulp))
				s := newTestStream(to, "[rank 0] ", false)
				line := []byte(strings.Repeat("x", 999) + "\n")
				for range 100000 { // 5 MB/s for 20 s
					began := time.Now()
					s.feed(line)
					if d := time.Since(began); d > 0 {
						t.Fatalf("it waited %v", d)
					}
					time.Sleep(200 * time.Microsecond)
				}
				if lost(to) == 0 {
					t.Error("nothing was lost?")
				}
				bytesPerSecond.Store(1 << 40)
				_ = to.close(t.Context())
				<-to.done
			})
		})
	}
}

// A console that was behind and is read quickly again is waited for again.
func TestConsoleCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bytesPerSecond atomic.Int64
		bytesPerSecond.Store(1 << 20)
		to := newTestSink(readAt(&bytesPerSecond, 1))
		s := newTestStream(to, "", false)
		block := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 600)
		for range 400 {
			s.feed(block)
		}
		if lost(to) == 0 {
			t.Fatal("nothing was lost?")
		}
		bytesPerSecond.Store(100 << 20)
		s.queue.flush()
		before := lost(to)
		for range 200 {
			s.feed(block)
		}
		s.queue.flush()
		if now := lost(to); now != before {
			t.Errorf("%d lines were lost", now-before)
		}
		_ = to.close(t.Context())
	})
}

// A console that is slow, but reads, slows the workers down and loses nothing.
func TestSlowConsole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		to := newTestSink(writerFunc(func(b []byte) (int, error) {
			time.Sleep(time.Duration(len(b)) * time.Second / (100 << 20)) // 100 MB/s
			return out.Write(b)
		}))
		var streams []testStream
		for i := range 8 {
			streams = append(streams, newTestStream(to, fmt.Sprintf("[rank %d] ", i), false))
		}
		block := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 600)
		var all sync.WaitGroup
		for _, s := range streams {
			all.Go(func() {
				for range 60 {
					s.feed(block)
				}
				s.queue.flush()
			})
		}
		all.Wait()
		if err := to.close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := strings.Count(out.String(), "\n"); n != 8*60*600 {
			t.Errorf("%d lines", n)
		}
	})
}

func TestBrokenConsole(t *testing.T) {
	to := newTestSink(writerFunc(func(b []byte) (int, error) { return 0, syscall.EPIPE }))
	s := newTestStream(to, "> ", false)
	for range 1000 {
		s.feed([]byte("nobody reads this\n"))
	}
	s.queue.flush()
	if err := to.close(t.Context()); err == nil || err.Error() != "console: 1000 lines were lost" {
		t.Errorf("close: %v", err)
	}
}

// A console that hangs does not keep the agent from ending.
func TestHangingConsole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		to := newTestSink(writerFunc(func(b []byte) (int, error) { <-goOn; return len(b), nil }))
		s := newTestStream(to, "> ", false)
		s.feed([]byte("a line\n"))
		began := time.Now()
		s.queue.flush()
		if took := time.Since(began); took < flushTime || took > flushMax {
			t.Errorf("flush took %v", took)
		}
		began = time.Now()
		_ = to.close(t.Context())
		if took := time.Since(began); took > flushTime {
			t.Errorf("close took %v", took)
		}
		close(goOn)
	})
}

// Somebody makes our standard output non-blocking while we use it: nothing is lost.
func TestConsoleMadeNonBlocking(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w := os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	defer r.Close()
	if err := unix.SetNonblock(fds[1], true); err != nil { // after Go has looked
		t.Fatal(err)
	}
	c := NewConsole(w, w, Style{})
	s := newTestStream(c.out.sink, "> ", false)
	const n = 20000 // 2 MB, the pipe has 64 KiB
	for range n {
		s.feed([]byte(strings.Repeat("x", 99) + "\n"))
	}
	read := make(chan int)
	go func() {
		b, _ := io.ReadAll(r)
		read <- bytes.Count(b, newline)
	}()
	s.queue.flush()
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	w.Close()
	if got := <-read; got != n {
		t.Errorf("%d of %d lines", got, n)
	}
}

// A console that is a file on a disk is waited for as a disk is.
func TestConsoleIsFile(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := NewConsole(f, w, Style{})
	if c.out.pace != filePace || c.err.pace != consolePace {
		t.Errorf("%v, %v", c.out.pace, c.err.pace)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Standard output goes away: standard error says so, once.
func TestStandardOutputGoesAway(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	errR, errW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := NewConsole(w, errW, Style{})
	for range 3 {
		fmt.Fprintln(c.Stdout(), "nobody reads this")
	}
	if err := c.Close(t.Context()); err == nil || err.Error() != "console: 3 lines were lost" {
		t.Error(err)
	}
	errW.Close()
	text, _ := io.ReadAll(errR)
	if got := string(text); got != "muster: nobody reads standard output any more (write |1: broken pipe): what goes there is lost\n" {
		t.Errorf("%q", got)
	}
}

// A disk under standard output that is full: standard error says so, once, nobody waits, and what is missing is said where it is missing once there is room.
func TestConsoleOnFullDisk(t *testing.T) {
	dir, ballast := smallDisk(t)
	f, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	errR, errW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := NewConsole(f, errW, Style{})
	line, out := strings.Repeat("x", 98)+"\n", c.Stdout()
	for range 1000 {
		io.WriteString(out, line)
	}
	out.(lines).q.flush()
	os.Remove(ballast)
	fmt.Fprintln(out, "again")
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	errW.Close()
	said, _ := io.ReadAll(errR)
	if got := string(said); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "muster: there is no room for standard output (write ") || !strings.Contains(got, syscall.ENOSPC.Error()) {
		t.Errorf("it said %q", got)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	came := strings.Count(string(b), line)
	var missing int
	_, note, _ := strings.Cut(string(b), "\n[muster: ")
	if _, err := fmt.Sscanf(note, "%d lines are missing here", &missing); err != nil || !strings.HasSuffix(note, "]\nagain\n") {
		t.Fatalf("%v in %q", err, note)
	}
	if came+missing != 1000 || uint64(missing) != c.Counts().Unshown {
		t.Errorf("%d lines came and %d are missing, %d by the count", came, missing, c.Counts().Unshown)
	}
}

func TestConsoleWriters(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := NewConsole(w, w, Style{})
	if c.out != c.err {
		t.Error("one pipe, two writers to it")
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				fmt.Fprintln(c.Stderr(), "time=12:00 level=INFO msg=hello")
			}
		})
	}
	all.Wait()
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	w.Close()
	var out bytes.Buffer
	_, _ = out.ReadFrom(r)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 800 || slices.ContainsFunc(lines, func(l string) bool { return l != "time=12:00 level=INFO msg=hello" }) {
		t.Errorf("%d lines", len(lines))
	}
	if _, err := fmt.Fprintln(c.Stdout(), "too late"); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}
