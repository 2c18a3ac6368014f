package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/test/leak"
)

func TestParseStat(t *testing.T) {
	rest := " 1 0 0 0 0 0 0 0 20 0 %d 0 %d 0 0"
	line := func(head string, threads, start int) string {
		return head + " 34816 12 4194304" + fmt.Sprintf(rest, threads, start)
	}
	for _, c := range []struct {
		line string
		want Process
	}{
		{line("12 (python3) S 1 12 9", 4, 777), Process{PID: 12, Name: "python3", State: 'S', Parent: 1, Group: 12, Session: 9, Threads: 4, Start: 777}},
		{line("13 (a (b) S 1) D 12 12 9", 1, 1), Process{PID: 13, Name: "a (b) S 1", State: 'D', Parent: 12, Group: 12, Session: 9, Threads: 1, Start: 1}},
		{line("14 () Z 0 0 0", 1, 1), Process{PID: 14, State: 'Z', Threads: 1, Start: 1}},
		{line("15 (new\nline) T 1 1 1", 1, 1), Process{PID: 15, Name: "new\nline", State: 'T', Parent: 1, Group: 1, Session: 1, Threads: 1, Start: 1}},
	} {
		if p, err := parseStat(c.line); err != nil || p != c.want {
			t.Errorf("%q: %+v, %v", c.line, p, err)
		}
	}
	good := line("12 (x) S 1 12 9", 4, 777)
	for _, bad := range []string{"", "12", "12 (x)", ")(", "12 (x) S 1", "x" + good, strings.Replace(good, " S ", " SS ", 1), strings.Replace(good, " 777 ", " -1 ", 1)} {
		if p, err := parseStat(bad); err == nil {
			t.Errorf("%q: %+v", bad, p)
		}
	}
}

func TestOurselves(t *testing.T) {
	r := Root("/proc")
	p, err := r.Process(os.Getpid())
	group := unix.Getpgrp()
	if err != nil || p.PID != os.Getpid() || p.Parent != os.Getppid() || p.Group != group || p.Gone() || p.Start == 0 {
		t.Errorf("%+v, %v", p, err)
	}
	all, err := r.All()
	if err != nil || !slices.ContainsFunc(all, func(q Process) bool { return q.PID == p.PID && q.Start == p.Start }) {
		t.Errorf("we are not among %d processes, %v", len(all), err)
	}
	if !slices.IsSortedFunc(all, func(a, b Process) int { return b.PID - a.PID }) {
		t.Error("the newest do not come first")
	}
	if got := r.Getenv(os.Getpid(), "PATH"); got != os.Getenv("PATH") {
		t.Errorf("PATH %q", got)
	}
	if !r.Catches(os.Getpid(), unix.SIGTERM) || r.Catches(os.Getpid(), unix.SIGKILL) || r.Catches(os.Getpid(), 0) {
		t.Error("Go catches TERM and cannot catch KILL")
	}
	if _, err := r.Process(1 << 30); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nobody: %v", err)
	}
	if _, err := Root("/no/such").All(); err == nil {
		t.Error("no /proc, no error")
	}
}

// fake makes a /proc of lines "pid (name) state parent group session threads start [tag]".
func fake(t *testing.T, table string) Root {
	t.Helper()
	dir := t.TempDir()
	for line := range strings.Lines(strings.TrimSpace(table)) {
		f := strings.Fields(line)
		stat := fmt.Sprintf("%s %s %s %s %s %s 0 0 0 0 0 0 0 0 0 0 0 0 0 %s 0 %s 0", f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7])
		environ := "PATH=/bin\x00"
		if len(f) > 8 {
			environ += TagName + "=" + f[8] + "\x00"
		}
		for name, text := range map[string]string{"stat": stat, "environ": environ, "wchan": "nfs_wait_bit"} {
			path := filepath.Join(dir, f[0], name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"self", "version", "12x"} { // not processes
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return Root(dir)
}

// PIDs far above what the kernel gives (2^22), so that nobody real is ever signalled.
const tree = `
8000001 (init)    S 0       8000001 8000001 1 1
8000002 (shell)   S 0       8000002 8000002 1 500 job/0
8000010 (leader)  S 8000001 8000010 8000001 9 100 job/0
8000011 (loader)  S 8000010 8000010 8000001 1 110
8000012 (setpgid) S 8000010 8000012 8000001 1 111
8000013 (setsid)  S 8000010 8000013 8000013 1 112
8000014 (below)   S 8000013 8000013 8000013 1 113
8000015 (group)   S 8000001 8000010 8000001 1 114
8000016 (daemon)  S 8000001 8000016 8000016 1 115 job/0
8000017 (child)   S 8000016 8000017 8000017 1 116
8000018 (older)   S 8000001 8000018 8000018 1 50  job/0
8000019 (ghost)   Z 8000001 8000019 8000019 1 117 job/0
8000020 (other)   S 8000001 8000020 8000001 1 101 job/1
8000021 (otherkid) S 8000020 8000020 8000001 1 120 job/1
`

func pidsOf(all []Process) []int {
	var pids []int
	for _, p := range all {
		pids = append(pids, p.PID-8000000)
	}
	slices.Sort(pids)
	return pids
}

func TestTree(t *testing.T) {
	r := fake(t, tree)
	all, err := r.All()
	if err != nil || len(all) != 14 {
		t.Fatalf("%d processes, %v", len(all), err)
	}
	for _, c := range []struct {
		name    string
		targets []Target
		want    []int
	}{
		{"leader with tag", []Target{{8000010, 100, "job/0"}}, []int{10, 11, 12, 13, 14, 15, 16, 17}},
		{"leader without tag", []Target{{8000010, 100, ""}}, []int{10, 11, 12, 13, 14, 15}},
		{"another has its number now", []Target{{8000010, 99, "job/0"}}, []int{10, 11, 12, 13, 14, 16, 17}},
		{"the same, without tag", []Target{{8000010, 99, ""}}, nil},
		{"the leader's start is unknown", []Target{{8000009, 0, "job/0"}}, []int{10, 11, 12, 13, 14, 16, 17, 18}},
		{"two", []Target{{8000010, 100, "job/0"}, {8000020, 101, "job/1"}}, []int{10, 11, 12, 13, 14, 15, 16, 17, 20, 21}},
		{"no tag is not everybody without one", []Target{{8000099, 1, ""}}, nil},
		{"none", nil, nil},
	} {
		if got := pidsOf(r.Tree(all, c.targets...)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := pidsOf(Below(all, 8000016)); !slices.Equal(got, []int{17}) {
		t.Errorf("below the daemon: %v", got)
	}
}

// A process that does not die: Kill gives up when it should and says who.
func TestKillUnkillable(t *testing.T) {
	r := fake(t, "8000010 (python3) D 8000001 8000010 8000001 1 100\n8000011 (python3) Z 8000010 8000010 8000001 3 100\n8000012 (x) Z 8000010 8000010 8000001 1 100")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	left, err := r.Kill(ctx, Hunt{Find: func(all []Process) []Process { return all }})
	if err != nil || !slices.Equal(pidsOf(left), []int{10, 11}) { // the second is a leader that ended before its threads
		t.Fatalf("%+v, %v", left, err)
	}
	if got := r.Why(left[1]); got != "pid 8000010 (python3) is in state D in nfs_wait_bit" {
		t.Errorf("%q", got)
	}
	if left, err := r.Kill(t.Context(), Hunt{Find: func([]Process) []Process { return nil }}); left != nil || err != nil {
		t.Errorf("%v, %v", left, err)
	}
}

// Three quiet looks in a row, and an end meanwhile is not quiet.
func TestKillWaitsForQuiet(t *testing.T) {
	r := fake(t, "8000010 (python3) S 8000001 8000010 8000001 1 100")
	looks, ends := 0, int64(0)
	_, err := r.Kill(t.Context(), Hunt{
		Find: func(all []Process) []Process {
			looks++
			if looks < 4 {
				ends++
			}
			if looks == 6 {
				return all
			}
			return nil
		},
		Ended: func() int64 { return ends },
	})
	if err != nil || looks != 9 { // 3 restless, 2 quiet, 1 with somebody, 3 quiet
		t.Errorf("%d looks, %v", looks, err)
	}
}

// On a machine that is never quiet, and after that with somebody who does not die, Kill does not look all the time.
func TestKillPauses(t *testing.T) {
	r := fake(t, "8000010 (python3) D 8000001 8000010 8000001 1 100")
	for name, dies := range map[string]bool{"never quiet": true, "never dies": false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			looks, ends, begun := 0, int64(0), time.Now()
			_, err := r.Kill(ctx, Hunt{
				Find: func(all []Process) []Process {
					if looks++; looks > 1000 {
						cancel() // it would be for ever
					}
					ends++
					if dies || looks < 3 {
						return nil
					}
					return all
				},
				Ended: func() int64 { return ends },
			})
			if d := time.Since(begun); err != nil || looks > 300 || dies && (d < restless || d > restless+time.Second) {
				t.Errorf("%s: %d looks in %v, %v", name, looks, d, err)
			}
		})
	}
}

// Nobody older than we was started by us, whatever tag he has; his environment need not be read.
func TestTreeIsYoungerThanWe(t *testing.T) {
	r := fake(t, tree+fmt.Sprintf("%d (muster) S 8000001 8000001 8000001 1 60\n", os.Getpid()))
	all, err := r.All()
	if err != nil {
		t.Fatal(err)
	}
	if got := pidsOf(r.Tree(all, Target{8000009, 0, "job/0"})); slices.Contains(got, 18) || !slices.Contains(got, 16) {
		t.Errorf("%v", got)
	}
}

// A PID with a new owner is left alone.
func TestSignalsOnlyWhomItSaw(t *testing.T) {
	p, err := Root("/proc").Process(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p.Start++
	if err := Root("/proc").signal(p, unix.SIGKILL); err != nil { // else this test ends here
		t.Error(err)
	}
}

// Another user's process cannot be killed: it is named, with its owner, and not waited for, while the others die.
func TestKillRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("to have another user's process to be refused by, this test needs to be root")
	}
	theirs := exec.Command("sleep", "1000")
	if err := theirs.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { theirs.Process.Kill(); theirs.Wait() }()
	self, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	hunter := exec.Command("/proc/self/fd/3")
	hunter.ExtraFiles = []*os.File{self} // its directory may not be open to everybody
	hunter.Dir = "/"
	hunter.Env = []string{"PATH=" + os.Getenv("PATH"), "PROC_TEST_HUNT=" + strconv.Itoa(theirs.Process.Pid)}
	hunter.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	began := time.Now()
	out, err := hunter.CombinedOutput()
	want := fmt.Sprintf("pid %d (sleep) of user 0 (root) is in state S", theirs.Process.Pid)
	if err != nil || !strings.HasPrefix(string(out), want) || strings.Contains(string(out), "\n") {
		t.Errorf("%v, %q, want %q", err, out, want)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// hunt is TestKillRefused's program: it kills a child of its own, and tries to kill pid.
func hunt(pid int) {
	ours := exec.Command("sleep", "1000")
	if err := ours.Start(); err != nil {
		panic(err)
	}
	dead := make(chan error, 1)
	go func() { dead <- ours.Wait() }()
	r := Root("/proc")
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	left, err := r.Kill(ctx, Hunt{Find: func(all []Process) []Process {
		return slices.DeleteFunc(all, func(p Process) bool { return p.PID != pid && p.PID != ours.Process.Pid })
	}})
	if err != nil {
		panic(err)
	}
	<-dead
	var names []string
	for _, p := range left {
		names = append(names, r.Why(p))
	}
	fmt.Print(strings.Join(names, "\n"))
}

func TestMain(m *testing.M) {
	if pid, err := strconv.Atoi(os.Getenv("PROC_TEST_HUNT")); err == nil {
		hunt(pid)
		return
	}
	leak.Main(m)
}
