package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Another program takes this node's agent over; one that is no muster is refused, and one that does not do is left again.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	end := filepath.Join(t.TempDir(), "end")
	all := startNodes(t, 2, []string{"END=" + end}, "--", "sh", "-c",
		`echo "up $RANK"; while [ ! -e $END ]; do sleep 0.01; done; echo "end $RANK"`)
	for rank := range 4 {
		all[rank/2].says(fmt.Sprintf("[rank %d] up %d", rank, rank))
	}
	p := all[0]
	ctl := func(code int, words string, args ...string) {
		t.Helper()
		muster(t, t.TempDir(), []string{"TMPDIR=" + p.tmp}, append([]string{"ctl", "upgrade"}, args...)...).ends(code, words)
	}
	ctl(2, "give one FILE")
	ctl(1, "no such file", "/no/such/file")
	ctl(1, "it is no muster", "/bin/echo")
	ctl(1, `"version" exited with 1`, "/bin/false")
	newer := filepath.Join(t.TempDir(), "newer")
	copyFile(t, newer, "/proc/self/exe")
	for _, version := range []string{"echo muster v99", newer + " version"} { // another one, and the same
		doomed := filepath.Join(t.TempDir(), "doomed")
		if err := os.WriteFile(doomed, []byte("#!/bin/sh\n[ $1 = version ] && "+version+" && exit 0\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		ctl(1, "doomed did not begin", doomed)
		p.says("; another one takes over, the workers go on")
		p.says("took over from an agent that died: round 0, 2 workers of this node")
	}
	q := p.asks("ctl", "upgrade", newer)
	p.says("took over from the agent that made way: round 0, 2 workers of this node")
	q.ends(0, "makes way for muster")
	pid := p.status().PID
	if exe := agentExe(pid); exe != newer {
		t.Errorf("the agent is %s", exe)
	}
	if want := fmt.Sprintf("goes on, pid %d\n", pid); !strings.Contains(q.out.String(), want) {
		t.Errorf("%q does not say %q", q.out.String(), want)
	}
	signalFile(t, end)
	for n, p := range all {
		p.ends(0, fmt.Sprintf("end %d", 2*n), fmt.Sprintf("end %d", 2*n+1))
	}
}

func agentExe(pid int) string {
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return exe
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
