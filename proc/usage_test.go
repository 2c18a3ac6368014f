package proc

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestUsage(t *testing.T) {
	root := Root(t.TempDir())
	if err := os.Mkdir(filepath.Join(string(root), "7"), 0o700); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]Usage{
		"7 (a ) b) S 1 7 7 0 -1 4194560 1 0 0 0 150 25 9 9 20 0 3 0 12345 1000 256 18446744073709551615": {1750 * time.Millisecond, 256 * int64(os.Getpagesize())},
		"7 (a) S 1 7": {},
		"":            {},
		"7 (a) S 1 7 7 0 -1 4194560 1 0 0 0 x 25 9 9 20 0 3 0 12345 1000 256": {},
	} {
		if err := os.WriteFile(filepath.Join(string(root), "7", "stat"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := root.Usage(7); got != want || (err != nil) != (want == Usage{}) {
			t.Errorf("%q: %+v, %v", line, got, err)
		}
	}
	if me, err := Root("/proc").Usage(os.Getpid()); err != nil || me.Memory < 1<<20 {
		t.Errorf("this process: %+v, %v", me, err)
	}
}

func TestAge(t *testing.T) {
	me, err := Root("/proc").Process(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	old := Process{Start: me.Start - 500}
	if now, then := me.Age(), old.Age(); now < 0 || now > time.Hour || then-now < 5*time.Second {
		t.Errorf("this process is %v old, one that started five seconds before it %v", now, then)
	}
}
