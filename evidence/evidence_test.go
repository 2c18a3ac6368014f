package evidence

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/test/leak"
)

func TestExplain(t *testing.T) {
	const (
		killedLoader = "RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed. "
		busLoader    = "RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error. It is possible"
		peer         = "RuntimeError: [./gloo/transport/tcp/pair.cc:589] Read error [10.0.0.1]:5: Connection reset by peer"
		noSpace      = "OSError: [Errno 28] No space left on device"
	)
	quiet := OOM{Known: true, Limit: 4 << 30}
	struck := OOM{Known: true, Kills: 1, Own: true, Limit: 4 << 30}
	above := OOM{Known: true, Kills: 1, Limit: 4 << 30}
	fullShm := Space{Path: "/dev/shm", Size: 64 << 20}
	bigShm := Space{Path: "/dev/shm", Size: 16 << 30, Free: 15 << 30}
	fullDisk := []Space{{Path: "/tmp", Size: 5 << 30, Files: 9, Unused: 4}}

	for name, c := range map[string]struct {
		exit         job.Exit
		exception    string
		tail         []string
		seen         Seen
		clause, hint string // parts; "": nothing at all
	}{
		"a good end":                          {exit: job.Exit{}, seen: Seen{OOM: struck}},
		"our own kill":                        {exit: job.Exit{Signal: 9, Sent: true}, seen: Seen{OOM: struck}},
		"never started":                       {exit: job.Exit{Code: 127, Err: "no such program"}, seen: Seen{OOM: struck}},
		"an exception that speaks for itself": {exit: job.Exit{Code: 1}, exception: "ValueError: bad seed", seen: Seen{OOM: quiet, Shared: bigShm}},
		"a code that nobody knows":            {exit: job.Exit{Code: 3}},

		"killed for memory":                 {exit: job.Exit{Signal: 9}, seen: Seen{OOM: struck}, clause: "the kernel killed a process of its container for want of memory (limit 4 GiB)", hint: "raise the container's memory limit"},
		"killed for memory, a shell's code": {exit: job.Exit{Code: 137}, seen: Seen{OOM: struck}, clause: "for want of memory (limit 4 GiB)", hint: "raise"},
		"killed for memory, not by its own": {exit: job.Exit{Signal: 9}, seen: Seen{OOM: above}, clause: "the kernel killed a process of its container for want of memory", hint: "a limit above it or the machine itself"},
		"killed by somebody":                {exit: job.Exit{Signal: 9}, tail: []string{peer}, seen: Seen{OOM: quiet}, clause: "counts no kill", hint: "kubectl describe pod"},
		"killed, and nothing to be seen":    {exit: job.Exit{Signal: 9}, clause: "cannot be seen here", hint: "memory limit"},
		"a child was killed for memory":     {exit: job.Exit{Code: 1}, exception: killedLoader, seen: Seen{OOM: struck}, clause: "the kernel killed a process of its container", hint: "data-loader"},
		"a child was killed by somebody":    {exit: job.Exit{Code: 1}, exception: killedLoader, seen: Seen{OOM: quiet}, clause: "a data-loader worker was killed", hint: "memory"},
		"another was killed for memory":     {exit: job.Exit{Code: 1}, exception: "ValueError: x", seen: Seen{OOM: struck}, clause: "meanwhile the kernel killed", hint: "raise"},
		"a peer's death beside it":          {exit: job.Exit{Code: 1}, exception: peer, seen: Seen{OOM: struck}, clause: "another worker had gone first", hint: "failed first"},

		"SIGBUS, shared memory full":       {exit: job.Exit{Signal: 7}, seen: Seen{OOM: quiet, Shared: fullShm}, clause: "/dev/shm is 64 MiB and full", hint: "--shm-size"},
		"SIGBUS, shared memory small":      {exit: job.Exit{Code: 135}, seen: Seen{Shared: Space{Path: "/dev/shm", Size: 64 << 20, Free: 63 << 20}}, clause: "/dev/shm is 64 MiB, with 63 MiB free", hint: "emptyDir"},
		"SIGBUS, a disk full":              {exit: job.Exit{Signal: 7}, seen: Seen{Shared: bigShm, Full: fullDisk}, clause: "/tmp is 5 GiB and full", hint: "checkpoints"},
		"SIGBUS, nothing full":             {exit: job.Exit{Signal: 7}, seen: Seen{Shared: bigShm}, clause: "mapped file", hint: "shorter"},
		"SIGBUS of it and of its loader":   {exit: job.Exit{Signal: 7}, tail: []string{busLoader}, seen: Seen{Shared: bigShm}, clause: "no room in shared memory: /dev/shm is 16 GiB, with 15 GiB free", hint: "--shm-size"},
		"SIGBUS, out of memory":            {exit: job.Exit{Signal: 7}, seen: Seen{Shared: fullShm, OOM: struck}, clause: "meanwhile the kernel killed", hint: "raise"},
		"a loader's SIGBUS":                {exit: job.Exit{Code: 1}, exception: busLoader, seen: Seen{Shared: fullShm}, clause: "no room in shared memory: /dev/shm is 64 MiB and full", hint: "--shm-size"},
		"a loader's SIGBUS, shm not seen":  {exit: job.Exit{Code: 1}, exception: busLoader, clause: "no room in shared memory", hint: "--shm-size"},
		"no space, and where":              {exit: job.Exit{Code: 1}, exception: noSpace, seen: Seen{Full: fullDisk}, clause: "a file system is full: /tmp is 5 GiB and full", hint: "delete"},
		"no space, and nobody knows where": {exit: job.Exit{Code: 1}, exception: noSpace, clause: "a file system is full", hint: "delete"},
		"a full disk and a silent exit":    {exit: job.Exit{Code: 3}, seen: Seen{Full: fullDisk}, clause: "/tmp is 5 GiB and full", hint: "delete"},

		"SIGSEGV":                            {exit: job.Exit{Signal: 11}, clause: "native code", hint: "PYTHONFAULTHANDLER"},
		"SIGABRT with its reason":            {exit: job.Exit{Signal: 6}, tail: []string{"free(): invalid pointer"}, clause: "native code damaged its memory", hint: "extension"},
		"SIGABRT without":                    {exit: job.Exit{Signal: 6}, clause: "gave up", hint: "last lines"},
		"a signal without a row":             {exit: job.Exit{Signal: 35}},
		"the kept tail is the failure's own": {exit: job.Exit{Code: 2}, tail: []string{"t.py: error: unrecognized arguments: -x"}, clause: "refused its arguments", hint: "--help"},
		"the long tail wins":                 {exit: job.Exit{Code: 2}, tail: []string{"nothing"}, seen: Seen{Tail: []string{"t.py: error: unrecognized arguments: -x"}}, clause: "refused its arguments", hint: "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			found, hint := Explain(job.Failure{Exit: c.exit, Exception: c.exception, Tail: c.tail}, c.seen)
			if !strings.Contains(found.Text, c.clause) || !strings.Contains(hint, c.hint) || (c.clause == "") != (found.Text == "") || (found.Kind == "") != (found.Text == "") || (c.hint == "") != (hint == "") {
				t.Errorf("%q; %q", found, hint)
			}
		})
	}
}

// A clause ends no sentence and needs no second look: it stands in one, after a semicolon or a colon.
func TestClauses(t *testing.T) {
	check := func(where string, texts ...string) {
		for _, text := range texts {
			if text == "" || strings.HasSuffix(text, ".") || strings.Contains(text, "\n") || len(text) > 220 {
				t.Errorf("%s: %q", where, text)
			}
		}
	}
	for kind, k := range kinds {
		check(kind, k.means, k.do)
	}
	for n, s := range signals {
		check(job.SignalName(n), s.means, s.do)
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1000: "1000 B", 1024: "1 KiB", 64 << 20: "64 MiB", 3 << 29: "1.5 GiB", 1<<30 - 1: "1 GiB", 1<<64 - 1: "16 EiB"} {
		if got := Size(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestSpace(t *testing.T) {
	for _, c := range []struct {
		s    Space
		full bool
		say  string
	}{
		{Space{Path: "/a", Size: 64 << 20}, true, "/a is 64 MiB and full"},
		{Space{Path: "/a", Size: 1 << 40, Free: 1 << 19}, true, "/a is 1 TiB and full"},
		{Space{Path: "/a", Size: 1 << 40, Free: 1 << 21}, false, "/a is 1 TiB, with 2 MiB free"},
		{Space{Path: "/a", Size: 1 << 40, Free: 1 << 39, Files: 100}, true, "/a cannot hold more than its 100 files"},
		{Space{Path: "/a", Size: 1 << 20, Free: 1 << 19}, false, "/a is 1 MiB, with 512 KiB free"},
	} {
		if c.s.Full() != c.full || c.s.String() != c.say {
			t.Errorf("%v %q, want %v %q", c.s.Full(), c.s, c.full, c.say)
		}
	}
	if s := spaceOf("/no/such/place"); s != (Space{}) || s.Full() || s.small() {
		t.Errorf("%+v", s)
	}
	if s := spaceOf("/proc"); s.Full() {
		t.Errorf("a file system without blocks is full: %+v", s)
	}
	if full := Disk("", "/no/such/place", "/proc"); full != nil {
		t.Errorf("%+v", full)
	}
}

// The test binary is also the programs that die in these tests.
func TestMain(m *testing.M) {
	switch os.Getenv("EVIDENCE_ROLE") {
	case "agent":
		agent()
	case "hog":
		hog()
	default:
		leak.Main(m)
	}
}

// role is this binary in another role.
func role(name string, argv ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", argv...)
	cmd.Env = append(os.Environ(), "EVIDENCE_ROLE="+name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(70)
	}
}

// agent lets a worker overflow small file systems of its own mount namespace, and explains.
func agent() {
	check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	check(unix.Mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4m"))
	check(unix.Mount("tmpfs", "/mnt", "tmpfs", 0, "size=2m"))
	out, err := exec.Command("python3", "-c", os.Args[1]).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		check(fmt.Errorf("python3: %w, %s", err, out))
	}
	ws := exit.Sys().(syscall.WaitStatus)
	e := job.Exit{Code: ws.ExitStatus()}
	if ws.Signaled() {
		e = job.Exit{Signal: int(ws.Signal())}
	}
	full := Disk("/", "/mnt", "/mnt")
	if len(full) > 1 {
		check(fmt.Errorf("one file system stands twice: %v", full))
	}
	found, hint := Explain(job.Failure{Exit: e, Tail: tail(string(out))}, Seen{Shared: SharedMemory(), Full: full})
	fmt.Printf("%s: %s; %s\n", e, found.Text, hint)
}

// Real programs on real full file systems.
func TestFull(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"shared memory": {"import mmap\nf = open('/dev/shm/x', 'w+b')\nf.truncate(8 << 20)\nm = mmap.mmap(f.fileno(), 8 << 20)\nfor i in range(0, 8 << 20, 4096): m[i] = 1",
			"was killed by SIGBUS: /dev/shm is 4 MiB and full; give the container more of it"},
		"shared memory, freed by the death": {"import mmap, os\nf = open('/dev/shm/x', 'w+b')\nos.unlink('/dev/shm/x')\nf.truncate(8 << 20)\nm = mmap.mmap(f.fileno(), 8 << 20)\nfor i in range(0, 8 << 20, 4096): m[i] = 1",
			"was killed by SIGBUS: /dev/shm is 4 MiB, with 4 MiB free; give the container more of it"},
		"a disk": {"open('/mnt/x', 'wb').write(b'x' * (3 << 20))",
			"exited with code 1: a file system is full: /mnt is 2 MiB and full; delete old checkpoints"},
		"no disk": {"import no_such_module", "exited with code 1: a Python module is not installed; install it"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := role("agent", c.script)
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), c.want) {
				t.Errorf("%v, %s", err, out)
			}
		})
	}
}

// hog enters the cgroup that it is told, says so, and takes memory once its standard input ends.
func hog() {
	check(os.WriteFile(filepath.Join(os.Args[1], "cgroup.procs"), []byte("0"), 0))
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	check(err)
	if len(os.Args) > 2 {
		select {}
	}
	var hoard [][]byte
	for range 256 {
		hoard = append(hoard, bytes.Repeat([]byte{1}, 1<<20))
	}
	fmt.Println("not killed", len(hoard))
}

// cgroup makes a memory cgroup below our own with a limit of 32 MiB.
func cgroup(t *testing.T) string {
	t.Helper()
	m, err := OpenMemory("/", os.Getpid())
	if err != nil || m.own == "" {
		t.Fatal("this machine has no memory cgroup", err)
	}
	dir := filepath.Join(m.top, fmt.Sprintf("muster-evidence-%d-%s", os.Getpid(), filepath.Base(t.Name())))
	if m.files == v2 {
		if err := os.WriteFile(filepath.Join(m.top, "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Rmdir(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, m.files.limit), []byte("33554432"), 0); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The kernel's own killing, and somebody else's, told apart by a live cgroup.
func TestKilled(t *testing.T) {
	for name, c := range map[string]struct {
		argv []string
		want string
	}{
		"by-the-kernel": {nil, "was killed by SIGKILL, which muster did not send: the kernel killed a process of its container for want of memory (limit 32 MiB); raise"},
		"by-somebody":   {[]string{"wait"}, "was killed by SIGKILL, which muster did not send: its container counts no kill for want of memory; look for"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := cgroup(t)
			cmd := role("hog", append([]string{dir}, c.argv...)...)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
				t.Fatal(line, err)
			}
			m, err := OpenMemory("/", cmd.Process.Pid)
			if err != nil || m.own != dir {
				t.Fatalf("%+v, %v; want %s", m, err, dir)
			}
			before, err := m.Read()
			if err != nil || !before.Known || before.Limit != 32<<20 || before.Kills != 0 || before.Current == 0 {
				t.Fatalf("%+v, %v", before, err)
			}
			if c.argv != nil {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if err := in.Close(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed
			after, err := m.Read()
			if err != nil {
				t.Fatal(err)
			}
			e := job.Exit{Signal: int(cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())}
			found, hint := Explain(job.Failure{Exit: e}, Seen{OOM: after.Since(before)})
			if got := fmt.Sprintf("%s: %s; %s", e, found.Text, hint); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s\n%+v\n%+v", got, before, after)
			}
		})
	}
}

// What the dynamic linker says of a program whose libraries are not there.
func TestLinker(t *testing.T) {
	for from, c := range map[string]struct{ to, kind string }{
		"libc.so.6\x00": {"libq.so.6\x00", "shared-library"},
		"GLIBC_2.34":    {"GLIBC_9.99", "libc-version"},
	} {
		program, err := os.ReadFile("/bin/cat")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "cat")
		if err := os.WriteFile(path, bytes.ReplaceAll(program, []byte(from), []byte(c.to)), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(path, "/dev/null").CombinedOutput()
		if s, _ := Recognise("", "", tail(string(out))); err == nil || s.Kind != c.kind {
			t.Errorf("%s: %v, %s: %+v", c.kind, err, out, s)
		}
	}
}
