package evidence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
)

var at = time.Date(2026, 11, 22, 0, 15, 2, 0, time.UTC)

func piece(b Bundle, name string) Piece {
	for _, p := range b.Pieces {
		if p.Name == name {
			return p
		}
	}
	return Piece{}
}

// This process and a connection of it, on the real machine.
func TestGatherHere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := Gather(t.Context(), Scene{
		Root: "/", Job: "a", Node: "n", At: at,
		Workers: []Suspect{{
			Beat:   job.Beat{Rank: 3, PID: os.Getpid(), Sight: &job.Sight{State: 'S', File: "/proc/self/status"}},
			Stacks: text(t, "testdata/stacks/python-3.14-dataset.txt"), Output: []string{"step 7", "step 8"},
			NoRecorder: errors.New("it does not answer"),
		}, {
			Beat: job.Beat{Rank: 4, PID: os.Getpid()}, Recorder: `{"gloo": {}}`,
		}},
		Given: []Given{{Name: "ras.json", What: "NCCL's watch", Text: "{}"}, {Name: "flight/rank-3", Path: "testdata/README.md"}, {Name: "gone", Path: "testdata/gone"}},
	})
	for name, want := range map[string]string{
		"rank-3/status":        fmt.Sprintf("\nPid:\t%d\n", os.Getpid()),
		"rank-3/connections":   fmt.Sprintf("ESTABLISHED %v → %v, 0 bytes not acknowledged, 0 not read, 0 retransmissions", c.LocalAddr(), l.Addr()),
		"rank-3/threads":       fmt.Sprintf("%7d ", os.Getpid()),
		"rank-3/descriptors":   "socket:[",
		"rank-3/output.txt":    "step 7\nstep 8",
		"rank-3/beat.json":     `"r": 3`,
		"rank-3/limits":        "Max open files",
		"ras.json":             "{}",
		"rank-4/recorder.json": `{"gloo": {}}`,
		"flight/rank-3":        "# Deaths",
		"mounts":               "rank 3 (pid " + fmt.Sprint(os.Getpid()) + ", state S) is at /proc/self/status",
		"machine/meminfo":      "MemTotal",
		"machine/facts":        "==> proc/version",
	} {
		if got := piece(b, name); !strings.Contains(got.Text, want) || got.Missing != "" {
			t.Errorf("%s: %q and %.300q, want %q", name, got.Missing, got.Text, want)
		}
	}
	if got := piece(b, "rank-3/recorder.json"); got.Missing != "it does not answer" {
		t.Errorf("%+v", got)
	}
	if got := fmt.Sprint(b.Ranks); !strings.Contains(got, "{3 0 "+fmt.Sprint(os.Getpid())+" [dataset.py:10 load dataset.py:7 __getitem__") {
		t.Error(got)
	}
}

// dead puts a file in place of name that nobody ever comes back from, until the test ends.
func dead(t *testing.T, name string) {
	t.Helper()
	os.Remove(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), unix.Mkfifo(name, 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // whoever still waits is let go
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []int{os.O_RDONLY, os.O_WRONLY} {
			if other, err := os.OpenFile(name, mode|unix.O_NONBLOCK, 0); err == nil {
				defer other.Close()
			}
		}
		f.Close()
	})
}

// What never comes is named, with what was to be read after it; all else is there.
func TestGatherFromTheDead(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"proc/7/status": "Pid:\t7\n", "proc/7/limits": "Max", "proc/8/status": "Pid:\t8\n", "proc/meminfo": "MemTotal"})
	dead(t, filepath.Join(root, "proc/7/wchan"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // in which the others come on a busy machine, too
	defer cancel()
	b := Gather(ctx, Scene{Root: root, Workers: []Suspect{{Beat: job.Beat{Rank: 0, PID: 7}}, {Beat: job.Beat{Rank: 1, PID: 8}}}})
	for name, want := range map[string]string{
		"rank-0/status": "Pid:\t7\n", "rank-0/wchan": "it did not come in time: context deadline exceeded",
		"rank-0/limits": "not tried, for rank-0/wchan did not come", "rank-1/status": "Pid:\t8\n", "machine/meminfo": "MemTotal",
	} {
		if got := piece(b, name); got.Text+got.Missing != want {
			t.Errorf("%s: %q %q, want %q", name, got.Text, got.Missing, want)
		}
	}
}

func TestMounts(t *testing.T) {
	root := tree(t, map[string]string{"proc/self/mountinfo": "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" +
		"30 22 0:40 / /mnt/my\\040data rw - nfs4 server:/data rw\n31 22 0:41 / /mnt/other rw - fuse.sshfs b: rw\n32 22 0:42 / /proc rw - proc proc rw\n" +
		"33 30 0:43 / /mnt/my\\040data/local rw - ext4 /dev/sdb rw\n34 22 0:44 / /mnt rw - tmpfs none rw\n"})
	at := func(rank int, file string) Suspect {
		return Suspect{Beat: job.Beat{Rank: rank, PID: 100 + rank, Sight: &job.Sight{State: 'D', File: file}}}
	}
	s := Scene{Root: root, Workers: []Suspect{at(0, "/mnt/my data/x"), at(1, "/mnt/my data/local/x"), at(2, ""), {}}}
	got, err := s.mounts()
	want := "/mnt/my data nfs4 server:/data\n\trank 0 (pid 100, state D) is at /mnt/my data/x\n/mnt/other fuse.sshfs b:\n" +
		"/mnt/my data/local ext4 /dev/sdb\n\trank 1 (pid 101, state D) is at /mnt/my data/local/x\n"
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestConnection(t *testing.T) {
	for line, want := range map[string]string{
		"0: 0100007F:1F90 0300000A:A112 01 00000400:00000007 01:00000014 00000007 0 0 77 1":                 "ESTABLISHED 127.0.0.1:8080 → 10.0.0.3:41234, 1024 bytes not acknowledged, 7 not read, 7 retransmissions, inode 77",
		"1: 00000000000000000000000001000000:0016 0000000000000000FFFF00000300000A:A112 02 0:0 0 0 0 0 5 1": "SYN_SENT    [::1]:22 → 10.0.0.3:41234, 0 bytes not acknowledged, 0 not read, 0 retransmissions, inode 5",
	} {
		if got := connection(strings.Fields(line)); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", line, got, want)
		}
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	b := Bundle{Job: "../a/b", Node: "..", Round: 2, At: at, Why: "rank 3 sleeps", Ranks: []Whereabouts{{Rank: 3, PID: 7}}, Pieces: []Piece{
		{Name: "rank-3/status", What: "how it is", Text: "Pid: 7"}, {Name: "rank-3/io", Missing: "permission denied"}, {Name: "../../x", Text: "no"},
	}}
	to, err := b.Write(t.Context(), dir)
	if want := filepath.Join(dir, ".._a_b/round-2-20261122T001502Z/_.."); err != nil || to != want {
		t.Fatalf("%s, %v, want %s", to, err, want)
	}
	if got := text(t, filepath.Join(to, "rank-3/status")); got != "Pid: 7" {
		t.Error(got)
	}
	if got := text(t, filepath.Join(to, "_../_../x")); got != "no" {
		t.Error(got)
	}
	var index struct {
		Job, Why string
		Ranks    []Whereabouts
		Pieces   []struct {
			Name, What, Missing string
			Text                *string
			Bytes               int
		}
	}
	if err := json.Unmarshal([]byte(text(t, filepath.Join(to, "index.json"))), &index); err != nil {
		t.Fatal(err)
	}
	if p := index.Pieces; len(p) != 3 || p[0].Name != "rank-3/status" || p[0].Bytes != 6 || p[0].Text != nil || p[1].Missing == "" || p[2].Name != "_../_../x" || index.Ranks[0].PID != 7 {
		t.Errorf("%+v", index)
	}
}

// What a node has written stays, though somebody who has the same directory would write less of it.
func TestWriteTwice(t *testing.T) {
	dir := t.TempDir()
	b := Bundle{Job: "a", Node: "n", At: at, Pieces: []Piece{{Name: "x", Text: "all of it"}}}
	to, err := b.Write(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	b.Pieces = []Piece{{Name: "x", Text: "some"}}
	if _, err := b.Write(t.Context(), dir); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	files, err := os.ReadDir(to)
	if got := text(t, filepath.Join(to, "x")); err != nil || got != "all of it" || len(files) != 2 {
		t.Errorf("%q, %v, %v", got, files, err)
	}
}

// A link that somebody planted in a directory that others share leads nowhere: neither one in the place of a directory, nor one in the place of a
// file.
func TestWriteBesideLinks(t *testing.T) {
	b := Bundle{Job: "a", Node: "n", At: at, Pieces: []Piece{{Name: "x", Text: "evidence"}}}
	const place = "a/round-0-20261122T001502Z/n"
	for _, planted := range []string{"a", "a/round-0-20261122T001502Z", place, place + "/x"} {
		dir, theirs := t.TempDir(), t.TempDir()
		target := theirs
		if planted == place+"/x" {
			target = filepath.Join(theirs, "x")
			if err := os.WriteFile(target, []byte("theirs"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, planted)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(dir, planted)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Write(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "escapes") || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", planted, err)
		}
		files, err := os.ReadDir(theirs)
		if err != nil || len(files) > 0 && (target == theirs || len(files) > 1 || text(t, target) != "theirs") {
			t.Errorf("%s: %v, %v", planted, files, err)
		}
	}
	linked := filepath.Join(t.TempDir(), "link") // what the user named may be one
	if err := os.Symlink(t.TempDir(), linked); err != nil {
		t.Fatal(err)
	}
	if to, err := b.Write(t.Context(), linked); err != nil || text(t, filepath.Join(to, "x")) != "evidence" {
		t.Error(to, err)
	}
}

// The evidence is to be kept where the job's data is, and that file system is dead.
func TestWriteToTheDead(t *testing.T) {
	dir := t.TempDir()
	var done <-chan error
	t.Cleanup(func() {
		if done != nil {
			<-done // what was given up is let go, and writes no more
		}
	})
	dead(t, filepath.Join(dir, "a/round-0-20261122T001502Z/n/x"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var to string
	to, done = Bundle{Job: "a", Node: "n", At: at, Pieces: []Piece{{Name: "x", Text: "y"}}}.begin(ctx, dir)
	if err := await(ctx, to, done); err == nil || !strings.Contains(err.Error(), "the file system may be dead") {
		t.Error(err)
	}
	if _, err := (Bundle{Job: "a"}).Write(t.Context(), "/proc/no"); err == nil || !strings.HasPrefix(err.Error(), "write evidence: mkdir /proc/no") {
		t.Error(err)
	}
}

// The essence of a great deal fits, and has what tells most: of the first worker, and from both ends.
func TestEssence(t *testing.T) {
	b := Bundle{Job: "a", Node: "n", At: at, Why: "why"}
	for rank := range 64 {
		for _, name := range []string{"descriptors", "threads", "status", "stacks.txt"} {
			b.Pieces = append(b.Pieces, Piece{Name: fmt.Sprintf("rank-%d/%s", rank, name), Text: "begins" + strings.Repeat("é\n", 50<<10) + "ends"})
		}
	}
	b.Pieces = append(b.Pieces, Piece{Name: "flight/stacks", Text: "\xff"}, Piece{Name: "ras.json", Text: "{}"})
	e := b.Essence(256 << 10)
	if n := encoded(e); n > 256<<10 || n < 200<<10 {
		t.Errorf("%d bytes", n)
	}
	first := e.Pieces[0]
	if first.Name != "rank-0/stacks.txt" || !strings.HasPrefix(first.Text, "begins") || !strings.HasSuffix(first.Text, "ends") || first.Cut == 0 {
		t.Errorf("%s %.20q %d", first.Name, first.Text, first.Cut)
	}
	if piece(e, "ras.json").Text != "{}" || piece(e, "flight/stacks").Text != "" {
		t.Error("the small one is left out, or the one that is no text is not")
	}
	if len(b.Pieces) != 64*4+2 || b.Pieces[0].Cut != 0 {
		t.Error("the bundle itself has changed")
	}
}

func TestBounded(t *testing.T) {
	b := Bundle{}
	for range 20 {
		b.Pieces = append(b.Pieces, Piece{Text: strings.Repeat("x", maxPiece+1)})
	}
	total := 0
	for _, p := range b.bounded().Pieces {
		total += len(p.Text)
	}
	if total > maxBundle+20*100 || total < maxBundle {
		t.Errorf("%d bytes", total)
	}
}
