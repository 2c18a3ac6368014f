package torch

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/muster-run/muster/test/freeport"
)

// A build is one PyTorch under test.
type build struct {
	name    string // of the oldest release that it stands for
	python  string // argument of test/python
	noLibuv bool   // built without libuv, as Debian does
	modern  bool   // dialect of 2.2 and later
}

var builds = []build{
	{name: "1.13", python: "debian"},
	{name: "2.6", python: "trixie", modern: true, noLibuv: true},
	{name: "2.9", python: "resolute", modern: true},
	{name: "2.14", python: "sid", modern: true, noLibuv: true},
	{name: "2.15", python: "newest", modern: true},
}

// stores are the kinds of TCPStore server in b.
func (b build) stores() []string {
	if b.noLibuv || !b.modern {
		return []string{"classic"}
	}
	return []string{"classic", "libuv"}
}

// env is what this build needs in its environment with any launcher and with none.
func (b build) env() map[string]string {
	env := map[string]string{"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
	if b.noLibuv {
		env["USE_LIBUV"] = "0"
	}
	return env
}

// command is the Python that runs b.
func (b build) command(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("../python", b.python)
	var says strings.Builder
	cmd.Stderr = &says
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("test/python %s: %v\n%s", b.python, err, says.String())
	}
	return strings.TrimSpace(string(out))
}

// A stage is a Python of one build that runs worlds, one at a time. See stage.py.
type stage struct {
	build
	mu  sync.Mutex
	in  io.WriteCloser
	out *bufio.Scanner
}

// open starts a stage; it ends with the test.
func open(t *testing.T, b build) *stage {
	t.Helper()
	cmd := exec.Command(b.command(t), abs(t, "stage.py"))
	s := &stage{build: b}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.in, s.out = in, bufio.NewScanner(out)
	s.out.Buffer(nil, 16<<20)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	var hello struct{ Torch string }
	s.read(t, &hello)
	if !strings.HasPrefix(hello.Torch, strings.SplitAfter(b.name, ".")[0]) {
		t.Fatalf("test/python %s has PyTorch %s, not %s or later", b.python, hello.Torch, b.name)
	}
	t.Logf("%s: PyTorch %s", b.name, hello.Torch)
	return s
}

func (s *stage) read(t *testing.T, into any) {
	t.Helper()
	if !s.out.Scan() {
		t.Fatalf("PyTorch %s: the stage ended: %v", s.name, s.out.Err())
	}
	if err := json.Unmarshal(s.out.Bytes(), into); err != nil {
		t.Fatalf("PyTorch %s: the stage says %q: %v", s.name, s.out.Bytes(), err)
	}
}

// A world is a script and the environments of its ranks.
type world struct {
	Script  string              `json:"script"`
	Args    []string            `json:"args"`
	Envs    []map[string]string `json:"envs"`
	Seconds int                 `json:"seconds"`
}

// An outcome is how each rank ended, "ok" or what went wrong, and what all of them wrote.
type outcome struct {
	Ends   []string `json:"ends"`
	Output string   `json:"output"`
}

func (o outcome) ok() bool {
	return !slices.ContainsFunc(o.Ends, func(e string) bool { return e != "ok" })
}

// run runs a world to its end.
func (s *stage) run(t *testing.T, w world) outcome {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Script = abs(t, filepath.Join("scripts", w.Script))
	if w.Seconds == 0 {
		w.Seconds = 200 // for a machine that has other things to do; a hang is no shorter
	}
	for i, env := range w.Envs {
		all := s.env()
		maps.Copy(all, env)
		w.Envs[i] = all
	}
	if err := json.NewEncoder(s.in).Encode(w); err != nil {
		t.Fatalf("PyTorch %s: %v", s.name, err)
	}
	var o outcome
	s.read(t, &o)
	return o
}

// must runs a world in which every rank is to succeed, and returns what they wrote.
func (s *stage) must(t *testing.T, w world) string {
	t.Helper()
	o := s.run(t, w)
	if !o.ok() {
		t.Errorf("PyTorch %s: %s %v ended %q\n%s", s.name, w.Script, w.Args, o.Ends, o.Output)
	}
	return o.Output
}

// ranks are the environments of n workers that meet at port, with more laid over each.
func ranks(n, port int, more map[string]string) []map[string]string {
	envs := make([]map[string]string, n)
	for r := range envs {
		envs[r] = map[string]string{
			"RANK": strconv.Itoa(r), "LOCAL_RANK": strconv.Itoa(r), "MASTER_PORT": strconv.Itoa(port),
			"WORLD_SIZE": strconv.Itoa(n), "LOCAL_WORLD_SIZE": strconv.Itoa(n),
		}
		maps.Copy(envs[r], more)
	}
	return envs
}

// agentHosted is what workers see whose store an agent hosts.
func agentHosted(attempt int) map[string]string {
	return map[string]string{"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": strconv.Itoa(attempt)}
}

// freePorts returns ports that were free a moment ago, below those that the kernel gives to others in between.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		ports[i] = freeport.Take(t)
	}
	return ports
}

func strs(ints []int) []string {
	s := make([]string, len(ints))
	for i, n := range ints {
		s[i] = strconv.Itoa(n)
	}
	return s
}

func abs(t *testing.T, path string) string {
	t.Helper()
	p, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
