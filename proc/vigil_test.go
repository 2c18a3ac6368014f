package proc

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// How a process ended is seen as long as nobody has reaped it, and where the kernel says so, when somebody has.
func TestVigil(t *testing.T) {
	for _, c := range []struct {
		script string
		want   Exit
	}{
		{"exit 7", Exit{Code: 7}},
		{"exit 0", Exit{}},
		{"kill -KILL $$", Exit{Signal: syscall.SIGKILL}},
	} {
		for _, reaped := range []bool{false, true} {
			cmd, v := vigil(t, "read line; "+c.script)
			cmd.in.Close()
			if reaped {
				cmd.Wait()
			}
			got, err := v.Wait()
			if !reaped {
				cmd.Wait()
			}
			if reaped && got.Lost != "" && before(6, 15) {
				continue
			}
			c.want.PID, c.want.At = cmd.Process.Pid, got.At
			if err != nil || got != c.want || got.At.IsZero() {
				t.Errorf("%s, reaped %v: %+v, %v", c.script, reaped, got, err)
			}
			v.Close()
		}
	}
}

// before reports whether this kernel is older than that.
func before(major, minor int) bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return true
	}
	a, rest, _ := strings.Cut(unix.ByteSliceToString(name.Release[:]), ".")
	b, _, _ := strings.Cut(rest, ".")
	return number(a) < major || number(a) == major && number(b) < minor
}

func number(digits string) (n int) {
	for _, d := range digits {
		n = n*10 + int(d-'0')
	}
	return n
}

func TestVigilEnds(t *testing.T) {
	cmd, v := vigil(t, "read line")
	ended := make(chan error)
	go func() {
		_, err := v.Wait()
		ended <- err
	}()
	v.Close()
	if err := <-ended; err == nil {
		t.Error("it says that the process has ended")
	}
	cmd.in.Close()
	cmd.Wait()
	if _, err := Root("/proc").Watch(Process{PID: os.Getpid(), Start: 1}); !errors.Is(err, unix.ESRCH) {
		t.Errorf("another process had the PID: %v", err)
	}
}

type child struct {
	*exec.Cmd
	in interface{ Close() error }
}

func vigil(t *testing.T, script string) (child, *Vigil) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := Root("/proc").Process(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	v, err := Root("/proc").Watch(p)
	if err != nil {
		t.Fatal(err)
	}
	return child{cmd, in}, v
}
