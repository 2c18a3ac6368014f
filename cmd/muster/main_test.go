package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/test/freeport"
	"github.com/muster-run/muster/test/stage"
)

// asMuster makes the test binary be muster: the tests run the real program, both of its processes, and with the
// race detector when they have it themselves.
const asMuster = "TEST_BINARY_IS_MUSTER"

// atOnce keeps the race detector from sleeping for a second at the end of each process.
const atOnce = "GORACE=atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	if os.Getenv(asMuster) != "" || len(os.Args) > 1 && slices.Contains([]string{"store", "pmi", "horovod"}, os.Args[1]) { // muster's own processes have no environment
		os.Exit(start(os.Args))
	}
	stage.Main(m, 4)
}

// patience bounds every wait of a test: a machine may be slow, but what hangs must end.
const patience = 6 * time.Minute

// A program is a running muster.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	tmp  string // its TMPDIR
	out  output
	done chan struct{} // closed when it has ended
}

// output collects what a program says, and tells who waits for a word.
type output struct {
	mu      sync.Mutex
	all     bytes.Buffer
	changed chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all.Write(p)
	close(o.changed)
	o.changed = make(chan struct{})
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// contains waits for a text.
func (p *program) says(text string) {
	p.t.Helper()
	end := time.After(patience)
	for {
		p.out.mu.Lock()
		found, changed := strings.Contains(p.out.all.String(), text), p.out.changed
		p.out.mu.Unlock()
		if found {
			return
		}
		select {
		case <-changed:
		case <-p.done:
			if !strings.Contains(p.out.String(), text) {
				p.t.Fatalf("it ended and never said %q:\n%s", text, p.out.String())
			}
			return
		case <-end:
			p.t.Fatalf("it does not say %q:\n%s", text, p.out.String())
		}
	}
}

// muster starts the program with args in dir, with variables over a small environment.
func muster(t *testing.T, dir string, vars []string, args ...string) *program {
	t.Helper()
	return startProgram(t, dir, vars, append([]string{executable(t)}, args...)...)
}

func executable(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

// startProgram starts a command line, at the end of which stands muster.
func startProgram(t *testing.T, dir string, vars []string, argv ...string) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &program{t: t, cmd: exec.CommandContext(ctx, argv[0], argv[1:]...), tmp: t.TempDir(), done: make(chan struct{})}
	p.out.changed = make(chan struct{})
	p.cmd.Dir = dir
	p.cmd.Env = append([]string{asMuster + "=1", atOnce, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + p.tmp}, vars...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() { cancel(); <-p.done })
	return p
}

// ends waits for the end and checks the exit code and what was said.
func (p *program) ends(code int, words ...string) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.cmd.Process.Signal(syscall.SIGQUIT)
		p.t.Fatalf("%q does not end:\n%s", p.cmd.Args, p.out.String())
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("%q: exit code %d, want %d:\n%s", p.cmd.Args[1:], got, code, p.out.String())
	}
	for _, word := range words {
		if !strings.Contains(p.out.String(), word) {
			p.t.Errorf("%q does not say %q:\n%s", p.cmd.Args[1:], word, p.out.String())
		}
	}
}

// nodes starts one agent per node on this machine, each on a loopback address of its own.
func startNodes(t *testing.T, count int, vars []string, args ...string) []*program {
	t.Helper()
	return startEach(t, slices.Repeat([][]string{vars}, count), args...)
}

// startEach starts a node with each of the environments.
func startEach(t *testing.T, vars [][]string, args ...string) []*program {
	t.Helper()
	endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
	var all []*program
	for n := range vars {
		flags := []string{"run", "--nnodes", strconv.Itoa(len(vars)), "--node-rank", strconv.Itoa(n), "--nproc-per-node", "2",
			"--local-addr", fmt.Sprintf("127.0.0.%d", n+1), "--rdzv-endpoint", endpoint, "--join-timeout", "2m"}
		all = append(all, muster(t, t.TempDir(), vars[n], append(flags, args...)...))
	}
	return all
}

// alive returns the processes whose environment holds the mark, except muster's own.
func alive(t *testing.T, mark string) []string {
	t.Helper()
	var found []string
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		env, _ := os.ReadFile(dir + "/environ")
		if bytes.Contains(env, []byte(mark)) {
			name, _ := os.ReadFile(dir + "/cmdline")
			found = append(found, filepath.Base(dir)+" "+string(bytes.ReplaceAll(name, []byte{0}, []byte{' '})))
		}
	}
	return found
}
