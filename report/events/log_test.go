package events

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// opened is a log in a file of a directory of its own, which has begun.
func opened(t *testing.T, where string, change func(*Options)) *Log {
	t.Helper()
	o := Options{Where: where, Host: "h", Mark: Mark{Run: "run"}}
	if change != nil {
		change(&o)
	}
	l := Open(o)
	l.Begin("job")
	return l
}

func note(text string) Line { return Line{Level: Info, Event: Note, Message: text} }

// read is a file's lines, each of which is valid.
func read(t *testing.T, path string) (all []Line) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		all = append(all, parsed(t, line))
	}
	return all
}

func parsed(t *testing.T, line []byte) (l Line) {
	t.Helper()
	if err := Check(line); err != nil {
		t.Errorf("%v:\n%s", err, line)
	}
	if err := json.Unmarshal(line, &l); err != nil {
		t.Fatal(err)
	}
	return l
}

// Lines come in their order, numbered, also those of before the job was known; a file is appended to, and nobody else's line is torn.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "%h-%j-100%%.jsonl")
	file := filepath.Join(filepath.Dir(path), "h-a_b-100%.jsonl")
	if err := os.WriteFile(file, []byte("torn"), 0o644); err != nil {
		t.Fatal(err)
	}
	l := Open(Options{Where: path, Host: "h", Mark: Mark{Run: "run"}})
	l.Add(time.Now(), note("before"))
	l.Begin("a/b")
	l.Add(time.Now(), note("after"), note("and then"))
	if lost := l.Close(time.Minute); lost != 0 {
		t.Errorf("%d lines are lost", lost)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rest, ok := bytes.CutPrefix(b, []byte("torn\n"))
	if !ok {
		t.Errorf("the file begins with %.20q", b)
	}
	if err := os.WriteFile(file, rest, 0o644); err != nil {
		t.Fatal(err)
	}
	all := read(t, file)
	if len(all) != 3 || all[0].Message != "before" || all[2].Message != "and then" || all[2].Seq != 3 || all[1].Job != "a/b" || all[2].Run != "run" {
		t.Errorf("%+v", all)
	}
}

// A file that was moved away is made anew.
func TestMovedAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	written := make(chan Mark, 8)
	l := opened(t, path, func(o *Options) { o.Keep = func(m Mark) { written <- m } })
	l.Add(time.Now(), note("one"))
	<-written
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	l.Add(time.Now(), note("two"))
	<-written
	l.Close(time.Minute)
	if one, two := read(t, path+".1"), read(t, path); len(one) != 1 || len(two) != 1 || two[0].Message != "two" {
		t.Errorf("%v, %v", one, two)
	}
}

// A pipe that nobody reads holds nobody up: what has no room is counted, and told as soon as there is room, and the verdict comes all the same.
func TestPipeStands(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	l := opened(t, path, nil)
	const all = 3 * maxWaiting
	for i := range all {
		l.Add(time.Now(), note(fmt.Sprint(i)))
	}
	l.Add(time.Now(), Line{Level: Info, Event: Verdict, Message: "v", Outcome: "succeeded", ExitCode: Number(0), Class: "succeeded"})
	r, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	lines := bufio.NewScanner(r)
	seen, dropped := uint64(0), uint64(0)
	for lines.Scan() {
		l := parsed(t, append(lines.Bytes(), '\n'))
		switch l.Event {
		case Note:
			seen++
		case LinesDropped:
			dropped += l.Dropped
		}
		if l.Event == Verdict {
			break
		}
	}
	if seen+dropped != all || dropped == 0 {
		t.Errorf("%d lines were read and %d dropped, of %d", seen, dropped, all)
	}
	if lost := l.Close(time.Minute); lost != dropped {
		t.Errorf("%d are lost at the end, %d were told of", lost, dropped)
	}
}

// Nor does such a pipe hold up the end, whoever has it open and does not read.
func TestPipeStandsAtTheEnd(t *testing.T) {
	for _, opened1 := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if opened1 {
			r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
		}
		l := opened(t, path, nil)
		for range 1000 { // more than a pipe holds
			l.Add(time.Now(), note(strings.Repeat("x", 1000)))
		}
		if lost := l.Close(10 * time.Millisecond); lost == 0 || !opened1 && lost != 1000 {
			t.Errorf("opened %v: %d of 1000 lines are lost", opened1, lost)
		}
	}
}

// patience bounds what is waited for.
const patience = 2 * time.Minute

// Where nobody reads a pipe any more, that is told, and lines wait for the next who does: none is missing.
func TestPipeReaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	said, written := make(chan string, 8), make(chan bool, 8)
	l := opened(t, path, func(o *Options) {
		o.Say = func(text string) { said <- text }
		o.Keep = func(Mark) { written <- true }
	})
	says := func(want string) {
		t.Helper()
		select {
		case got := <-said:
			if !strings.Contains(got, want) {
				t.Errorf("it says %q, not %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("it never says %q", want)
		}
	}
	reads := func(messages ...string) {
		t.Helper()
		r, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		lines := bufio.NewReader(r)
		for _, want := range messages {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				t.Fatal(err)
			}
			if got := parsed(t, line); got.Message != want {
				t.Errorf("%q is read, not %q", got.Message, want)
			}
		}
	}
	l.Add(time.Now(), note("one"))
	says(path + ": nobody reads it; the job goes on")
	reads("one")
	says("written again")
	<-written
	l.Add(time.Now(), note("two"))
	says("nobody reads it")
	l.Add(time.Now(), note("three"))
	reads("two", "three")
	l.Close(time.Minute)
}

// A full disk is told of once, and so is its end; no line is missing then.
func TestFullDisk(t *testing.T) {
	var mu sync.Mutex
	var said []string
	path := filepath.Join(t.TempDir(), "log")
	if err := os.Symlink("/dev/full", path); err != nil {
		t.Fatal(err)
	}
	failed, written := make(chan bool, 8), make(chan bool, 8)
	l := opened(t, path, func(o *Options) {
		o.Say = func(text string) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, text)
			failed <- true
		}
		o.Keep = func(Mark) { written <- true }
	})
	l.Add(time.Now(), note("one"), note("two"))
	<-failed
	if err := os.Remove(path); err != nil { // as when there is room again
		t.Fatal(err)
	}
	<-written
	<-written
	l.Close(time.Minute)
	if len(said) != 2 || !strings.Contains(said[0], "no space left on device") || !strings.Contains(said[1], "written again") {
		t.Errorf("%q", said)
	}
	if all := read(t, path); len(all) != 2 || all[1].Message != "two" {
		t.Errorf("%+v", all)
	}
}

// An agent that takes over goes on where the lines of the one before it ended, also between the lines of one event; and what none of them wrote, and
// is not known any more, it counts.
func TestMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	var marks []Mark
	l := opened(t, path, func(o *Options) { o.Keep = func(m Mark) { marks = append(marks, m) } })
	l.AddJudged(time.Now(), 0, note("1"), note("2"), note("3"))
	l.Add(time.Now(), note("of another thing"))
	l.AddJudged(time.Now(), 3) // what has no lines needs none
	l.Close(time.Minute)
	if m := marks[len(marks)-1]; m.Told != 3 || m.Seq != 5 || m.Run != "run" || m.Over {
		t.Fatalf("%+v", m)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	again := opened(t, path, func(o *Options) { o.Mark = marks[0] }) // the first died when it had written one of three
	again.AddJudged(time.Now(), 0, note("1"), note("2"), note("3"))
	again.AddJudged(time.Now(), 7, note("8"))
	again.AddJudged(time.Now(), 8, note("9"))
	if lost := again.Close(time.Minute); lost != 4 {
		t.Errorf("%d are lost", lost)
	}
	var got []string
	for _, l := range read(t, path) {
		got = append(got, fmt.Sprintf("%d %s %d", l.Seq, l.Event, l.Dropped))
		if l.Event == Note {
			got[len(got)-1] = fmt.Sprintf("%d %s", l.Seq, l.Message)
		}
	}
	if want := "2 2, 3 3, 8 lines-dropped 4, 9 8, 10 9"; strings.Join(got, ", ") != want {
		t.Errorf("the next writes %s, not %s", strings.Join(got, ", "), want)
	}
}

// Where somebody else wrote behind the beginning of a line, for which a disk had no more room, or begun one himself, each whole line stands alone.
func TestBegunLine(t *testing.T) {
	for begun, want := range map[string]string{"": "half\nwhole\n", "other\n": "halfother\nwhole\n", "oth": "halfoth\nwhole\n", "-": "half of it\n"} {
		path := filepath.Join(t.TempDir(), "log")
		l := &Log{path: path, o: Options{Where: path}}
		if err := l.reopen(); err != nil {
			t.Fatal(err)
		}
		l.file.WriteString("half")
		line := []byte("whole\n")
		switch l.torn = true; begun {
		case "": // nothing of ours
		case "-": // a line of ours, and nobody else came
			l.rest, l.left, line = []byte(" of it\n"), 4, []byte("half of it\n")
		default:
			l.rest, l.left = []byte(" of it\n"), 4
			l.file.WriteString(begun)
		}
		if err := l.append(line); err != nil {
			t.Fatal(err)
		}
		l.file.Close()
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Errorf("%q: the file is %q, not %q", begun, got, want)
		}
	}
}

// A file that is made is its owner's alone; one that is there keeps its rights, and the one that comes into its place has the same.
func TestMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	writes := func(want os.FileMode, move bool) {
		t.Helper()
		written := make(chan Mark, 8)
		l := opened(t, path, func(o *Options) { o.Keep = func(m Mark) { written <- m } })
		l.Add(time.Now(), note("one"))
		<-written
		if move {
			if err := os.Rename(path, path+".1"); err != nil {
				t.Fatal(err)
			}
			l.Add(time.Now(), note("two"))
			<-written
		}
		l.Close(time.Minute)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%v, %v; want %v", info.Mode(), err, want)
		}
	}
	writes(0o600, false)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	writes(0o640, false)
	writes(0o640, true)
}

// What a host or a job is called is one name in a path, and is never taken for the console or a descriptor.
func TestPath(t *testing.T) {
	for _, c := range []struct{ where, job, want string }{
		{"-", "a", "-"},
		{"fd:3", "a", "/proc/7/fd/3"},
		{"%j", "-", "./-"},
		{"%j", "fd:3", "fd:3"},
		{"/a/%j/b", "..", "/a/__/b"},
		{"/a/%j", ".", "/a/_"},
		{"%h/%j.100%%", "a/../b", "h/a_.._b.100%"},
		{"%%h", "a", "%h"},
	} {
		if got := (Options{Where: c.where, Host: "h", Parent: 7}).path(c.job); got != c.want {
			t.Errorf("%s of job %s is %s, not %s", c.where, c.job, got, c.want)
		}
	}
	dir := t.TempDir()
	t.Chdir(dir)
	for _, job := range []string{"-", "fd:3"} { // and it is that file which is written
		l := Open(Options{Where: "%j", Mark: Mark{Run: "run"}, Parent: os.Getpid()})
		l.Begin(job)
		l.Add(time.Now(), note("one"))
		l.Close(time.Minute)
		if all := read(t, filepath.Join(dir, job)); len(all) != 1 {
			t.Errorf("%s: %v", job, all)
		}
	}
}

// A descriptor of another process is one that it was given, whoever writes.
func TestDescriptor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l := opened(t, fmt.Sprintf("fd:%d", f.Fd()), func(o *Options) { o.Parent = os.Getpid() })
	l.Add(time.Now(), note("one"))
	l.Close(time.Minute)
	if all := read(t, path); len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

// Neither a socket nor the descriptor of one can be written to by its path: that is what is said, and not that there is no such device.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	f, err := ln.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, where := range []string{path, fmt.Sprintf("fd:%d", f.Fd())} {
		said := make(chan string, 1)
		l := opened(t, where, func(o *Options) { o.Parent, o.Say = os.Getpid(), func(text string) { said <- text } })
		l.Add(time.Now(), note("one"))
		if got := <-said; !strings.Contains(got, where+": it is a socket; give a file or a pipe") {
			t.Errorf("of %s it says %q", where, got)
		}
		l.Close(0)
	}
}

func TestPattern(t *testing.T) {
	for _, good := range []string{"-", "/a/b", "%h-%j.jsonl", "100%%", "fd:3"} {
		if err := Pattern(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"%x", "a%", "fd:", "fd:0", "fd:-1", "fd:x"} {
		if err := Pattern(bad); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", bad)) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// What is written to the console is retried a second later, and lines wait for it.
func TestConsoleFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &flaky{fails: 2}
		l := opened(t, "-", func(o *Options) { o.Console = w })
		began := time.Now()
		l.Add(began, note("one"), note("two"))
		if lost := l.Close(time.Minute); lost != 0 || time.Since(began) != 2*retryTime {
			t.Errorf("%d are lost, after %v", lost, time.Since(began))
		}
		if n := strings.Count(w.b.String(), "\n"); n != 2 {
			t.Errorf("%d lines", n)
		}
	})
}

// A flaky writer fails some times.
type flaky struct {
	b     bytes.Buffer
	fails int
}

func (f *flaky) Write(p []byte) (int, error) {
	if f.fails--; f.fails >= 0 {
		return 0, syscall.EIO
	}
	return f.b.Write(p)
}
