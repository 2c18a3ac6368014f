package install

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

const mark = "path\texample/muster"

// built is a program of that name, as far as anybody looks.
func built(t *testing.T, text string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "built")
	put(t, path, "\x7fELF"+mark+text)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func into(t *testing.T, dir string, program *os.File, links ...string) Done {
	t.Helper()
	done, err := Into(dir, program, mark, links)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// content is a directory's: names, where links lead, and what files have.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if target, err := os.Readlink(path); err == nil {
			all[e.Name()] = "-> " + target
			continue
		}
		all[e.Name()] = ""
		if !e.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(text)
	}
	return all
}

// What is there already stays as it is, another build is replaced, and what a killed one left is swept away.
func TestInto(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	old, program := built(t, "1"), built(t, "2")
	if done := into(t, dir, old, "torchrun"); !done.Fresh || done.Path != filepath.Join(dir, Name) {
		t.Errorf("%+v", done)
	}
	first, err := os.Stat(filepath.Join(dir, Name))
	if err != nil || first.Mode().Perm() != 0o755 {
		t.Fatal(first, err)
	}
	if done := into(t, dir, old, "torchrun"); done.Fresh {
		t.Errorf("again: %+v", done)
	}
	if again, err := os.Stat(filepath.Join(dir, Name)); err != nil || !os.SameFile(first, again) {
		t.Errorf("the program was written once more, %v", err)
	}
	put(t, filepath.Join(dir, partial+"1"), "left")
	if err := os.Symlink("../b/muster", filepath.Join(dir, "sshd")); err != nil {
		t.Fatal(err)
	}
	if done := into(t, dir, program, "torchrun", "sshd"); !done.Fresh {
		t.Errorf("another build: %+v", done)
	}
	want := map[string]string{"muster": "\x7fELF" + mark + "2", "torchrun": "-> muster", "sshd": "-> muster"}
	got := content(t, dir)
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s: %q, want %q", name, got[name], text)
		}
	}
	if len(got) != len(want) {
		t.Errorf("there is %q", got)
	}
}

// A program that cannot be run by all is made anew.
func TestMode(t *testing.T) {
	dir, program := t.TempDir(), built(t, "1")
	into(t, dir, program)
	if err := os.Chmod(filepath.Join(dir, Name), 0o700); err != nil {
		t.Fatal(err)
	}
	if done := into(t, dir, program); !done.Fresh {
		t.Error("it stayed for its owner alone")
	}
}

// Where something of somebody else's stands in the way, nothing is written.
func TestForeign(t *testing.T) {
	for _, c := range []struct {
		what string
		make func(path string) error
	}{
		{"another program", func(path string) error { return os.WriteFile(path, []byte("\x7fELF of others"), 0o755) }},
		{"another program", func(path string) error { return os.WriteFile(path, []byte("#!/bin/sh\n# "+mark), 0o755) }},
		{"another program", func(path string) error { return os.WriteFile(path, nil, 0o644) }},
		{"another program", func(path string) error { return os.Symlink("/bin/sh", path) }},
		{"a directory", func(path string) error { return os.Mkdir(path, 0o755) }},
		{"a link that leads nowhere", func(path string) error { return os.Symlink("/nobody/here", path) }},
		{"no program", func(path string) error { return os.Symlink("/dev/zero", path) }},
		{"no program", func(path string) error { return syscall.Mkfifo(path, 0o644) }},
	} {
		for _, name := range []string{Name, "torchrun"} {
			dir := t.TempDir()
			if err := c.make(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			_, err := Into(dir, built(t, "1"), mark, []string{"accelerate", "torchrun"})
			if foreign := (Foreign{}); !errors.As(err, &foreign) || foreign.What != c.what || foreign.Path != filepath.Join(dir, name) {
				t.Errorf("%s that is %s: %v", name, c.what, err)
			}
			if got := content(t, dir); len(got) != 1 {
				t.Errorf("%s that is %s: there is %q", name, c.what, got)
			}
		}
	}
}

// Many at once come to the same, and who looks meanwhile sees a whole program or none.
func TestAtOnce(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for range 8 {
		program := built(t, strings.Repeat("x", 4<<20))
		all.Go(func() {
			err := ErrBusy
			for errors.Is(err, ErrBusy) {
				_, err = Into(dir, program, mark, []string{"torchrun"})
			}
			if err != nil {
				t.Error(err)
			}
			text, err := os.ReadFile(filepath.Join(dir, "torchrun"))
			if err != nil || !bytes.HasPrefix(text, []byte("\x7fELF")) || len(text) != 4<<20+4+len(mark) {
				t.Errorf("%d bytes, %v", len(text), err)
			}
		})
	}
	all.Wait()
	if got := content(t, dir); len(got) != 2 {
		t.Errorf("there are %d files", len(got))
	}
}

// A file for a directory.
func TestNoDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	put(t, path, "")
	if _, err := Into(path, built(t, "1"), mark, nil); err == nil || !strings.Contains(err.Error(), "is no directory") {
		t.Error(err)
	}
}

// A directory that is made is for containers with other users, whatever the umask; one that is there keeps its rights.
func TestUmask(t *testing.T) {
	top := t.TempDir()
	if err := os.Chmod(top, 0o711); err != nil {
		t.Fatal(err)
	}
	defer syscall.Umask(syscall.Umask(0o077))
	into(t, filepath.Join(top, "a", "b"), built(t, "1"), "torchrun")
	for name, want := range map[string]os.FileMode{".": 0o711, "a": 0o755, "a/b": 0o755, "a/b/muster": 0o755} {
		if info, err := os.Stat(filepath.Join(top, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, want %v; %v", name, info.Mode(), want, err)
		}
	}
}

// What a name of the directory would match as a pattern is left alone, and what a killed one left in it is not.
func TestSweep(t *testing.T) {
	top := t.TempDir()
	dir, other := filepath.Join(top, "[ab]"), filepath.Join(top, "a")
	for _, d := range []string{dir, other} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(d, partial+"1"), "")
	}
	into(t, dir, built(t, "1"))
	if got := content(t, dir); len(got) != 1 {
		t.Errorf("there is %q", got)
	}
	if got := content(t, other); len(got) != 1 {
		t.Errorf("in another directory there is %q", got)
	}
}

// A file that says it is a build of this program, and is as long as no memory, is replaced without being read.
func TestHuge(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, Name)
	put(t, path, "\x7fELF"+mark)
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<43); err != nil { // of which nearly all is a hole
		t.Fatal(err)
	}
	into(t, dir, built(t, "1"))
	if got := content(t, dir)[Name]; got != "\x7fELF"+mark+"1" {
		t.Errorf("there is %.100q", got)
	}
}
