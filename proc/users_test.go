package proc

import (
	"os"
	"slices"
	"testing"
)

func TestUsers(t *testing.T) {
	path := t.TempDir() + "/nvidia0"
	me := func() bool {
		t.Helper()
		users, err := Root("/proc").Users("/dev/nvidia7", path)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(users, func(p Process) bool { return p.PID == os.Getpid() })
	}
	if me() {
		t.Error("nobody can have it open")
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if !me() {
		t.Error("we have it open")
	}
	f.Close()
	if me() {
		t.Error("we closed it")
	}
	if users, err := Root("/proc").Users(); users != nil || err != nil {
		t.Errorf("%v, %v", users, err)
	}
}
