package suspects

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
)

var gpu7 = job.Machine{Name: "gpu07"}

func finding(m job.Machine, ago time.Duration, why string) Finding {
	return Finding{Time: time.Now().Add(-ago), Machine: m, Kind: "lost", Why: why, Job: "job7", By: "host0"}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What several nodes wrote all read, the newest counts, and old findings do not.
func TestFindings(t *testing.T) {
	d := Dir(filepath.Join(t.TempDir(), "not there yet"))
	if all, err := d.Read(time.Time{}); len(all) > 0 || err != nil {
		t.Fatal(all, err)
	}
	for by, f := range map[string]Finding{
		"host0": finding(gpu7, time.Hour, "older"), "host1": finding(gpu7, time.Minute, "newer"), "host2": finding(job.Machine{Name: "gpu08"}, 50*time.Hour, "long ago"),
	} {
		if err := d.Add(job.Machine{Name: by}, f); err != nil {
			t.Fatal(err)
		}
	}
	all, err := d.Read(time.Now().Add(-24 * time.Hour))
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	if f, ok := About(all, gpu7); !ok || f.Why != "newer" {
		t.Errorf("%+v, %v", f, ok)
	}
	if f, ok := About(all, job.Machine{Name: "gpu08"}); ok {
		t.Errorf("%+v", f)
	}
}

// Agents of one machine append to one file at once, and no line is lost.
func TestAddAtOnce(t *testing.T) {
	d := Dir(t.TempDir())
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			if err := d.Add(gpu7, finding(gpu7, 0, strings.Repeat(fmt.Sprint(i), 400))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := d.Read(time.Time{}); len(got) != 50 || err != nil {
		t.Errorf("%d findings, %v", len(got), err)
	}
}

// What is no finding is named and skipped: a torn line, rubbish, lines of tomorrow, without a machine, or too long.
func TestBadLines(t *testing.T) {
	d := Dir(t.TempDir())
	path := d.file(gpu7)
	write(t, path, "rubbish\n\n"+`{"time":"9999-01-01T00:00:00Z","machine":{"name":"gpu07"}}`+"\n"+`{"time":"2026-01-01T00:00:00Z"}`+"\n"+
		`{"machine":{"name":"`+strings.Repeat("x", maxLine)+`"}}`+"\n"+`{"torn":`)
	if err := d.Add(gpu7, finding(gpu7, 0, "good")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(string(d), "notes.txt"), "somebody's own")
	all, err := d.Read(time.Now().Add(-time.Hour))
	if len(all) != 1 || all[0].Why != "good" || err == nil || !strings.Contains(err.Error(), path+": 5 lines are no findings") {
		t.Errorf("%+v, %v", all, err)
	}
}

// Of a large file the end is read.
func TestLargeFile(t *testing.T) {
	d := Dir(t.TempDir())
	write(t, d.file(gpu7), strings.Repeat(strings.Repeat("x", 999)+"\n", 5000))
	if err := d.Add(gpu7, finding(gpu7, 0, "good")); err != nil {
		t.Fatal(err)
	}
	if all, err := d.Read(time.Time{}); len(all) != 1 || err == nil || !strings.Contains(err.Error(), ": 65 lines") {
		t.Errorf("%+v, %v", all, err)
	}
}

// A directory that cannot be used is an error, and a folder in it too.
func TestNoDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	if err := Dir(file).Add(gpu7, finding(gpu7, 0, "")); err == nil || !strings.Contains(err.Error(), "keep a finding about gpu07: ") {
		t.Error(err)
	}
	if _, err := Dir(file).Read(time.Time{}); err == nil {
		t.Error("a file is read as a directory")
	}
	d := Dir(t.TempDir())
	if err := os.Mkdir(d.file(gpu7), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Read(time.Time{}); err == nil || !strings.Contains(err.Error(), "is no file") {
		t.Error(err)
	}
}

// Where everybody may write, what another user put there under a machine's name is not written to.
func TestNotThroughLinks(t *testing.T) {
	d := Dir(t.TempDir())
	mine := filepath.Join(t.TempDir(), "mine")
	write(t, mine, "mine")
	for name, put := range map[string]func(at string) error{
		"a link": func(at string) error { return os.Symlink(mine, at) },
		"a pipe": func(at string) error { return unix.Mkfifo(at, 0o666) },
	} {
		if err := put(d.file(job.Machine{Name: name})); err != nil {
			t.Fatal(err)
		}
		if err := d.Add(job.Machine{Name: name}, finding(gpu7, 0, "why")); err == nil {
			t.Errorf("%s was written to", name)
		}
	}
	if text, err := os.ReadFile(mine); err != nil || string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
}
