package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/test/freeport"
	"github.com/muster-run/muster/test/thread"
)

// A way is one way for a job to die: a script, and what must be known of its death, as the script's first comment says.
//
// What is in the verdict, each missing where the verdict has none: code, class, rank (that of the first cause, or any),
// exit or signal, exception, kind (of the evidence). Parts of the sentence: says. What the script needs: flags, python
// (kinds of test/python), around (a shell command that starts a node with "$@"), memory (limit of each node's cgroup), delay (of the way
// between the nodes), after (a shell command that must succeed when all is over). A node without a verdict, because
// its agent was killed: gone, gone code, gone says.
type way struct {
	file string
	keys map[string][]string
}

// keyLine is one expectation.
var keyLine = regexp.MustCompile(`^# ([a-z]+(?: code| says)?): (.+)$`)

var keys = []string{"code", "class", "rank", "exit", "signal", "exception", "kind", "says",
	"flags", "python", "around", "memory", "delay", "after", "gone", "gone code", "gone says"}

func ways(t *testing.T) []way {
	t.Helper()
	files, err := filepath.Glob(abs(t, "testdata/die/*"))
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts: ", err)
	}
	var all []way
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		w := way{file, map[string][]string{}}
		for line := range strings.Lines(string(text)) {
			if m := keyLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
				w.keys[m[1]] = append(w.keys[m[1]], m[2])
			}
		}
		for key := range w.keys {
			if !slices.Contains(keys, key) {
				t.Fatalf("%s: unknown key %q", file, key)
			}
		}
		all = append(all, w)
	}
	return all
}

// one is the value of a key that stands once; "" without it.
func (w way) one(key string) string { return cmp.Or(append(w.keys[key], "")...) }

// known is what the verdict must tell, by the same words as known of the verdict.
func (w way) known() map[string]string {
	known := map[string]string{}
	for _, key := range keys[:slices.Index(keys, "says")] {
		if v := w.one(key); v != "" {
			known[key] = v
		}
	}
	return known
}

// Whatever a job dies of, both nodes know: by their exit code, their last line, their termination log and their verdict.
// Nothing is left of it.
func TestWaysToDie(t *testing.T) {
	t.Parallel()
	exe := map[string]string{"debian": python(t, "debian"), "newest": python(t, "newest")}
	for _, w := range ways(t) {
		for _, kind := range strings.Fields(cmp.Or(w.one("python"), "debian")) {
			name := filepath.Base(w.file)
			if len(strings.Fields(w.one("python"))) > 1 {
				name += " " + kind
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				die(t, w, exe[kind])
			})
		}
	}
}

func die(t *testing.T, w way, exe string) {
	shared := t.TempDir()
	mark := "MARK=" + shared
	endpoint := fmt.Sprintf("127.0.0.1:%d", freeport.Take(t))
	around := [2]string{w.one("around"), w.one("around")}
	vars := []string{mark, "SHARED=" + shared, "PYTHON_EXEC=" + exe, "DIE=" + filepath.Dir(w.file), "GLOO_SOCKET_IFNAME=lo"}
	if delay := w.one("delay"); delay != "" {
		vars = append(vars, fmt.Sprintf("OUTSIDE=/proc/%d/ns/net", os.Getpid()))
		around[1] = "exec nsenter --net=" + farAway(t, endpoint, delay) + ` "$@"`
	}
	var all [2]dying
	for n := range all {
		if limit := w.one("memory"); limit != "" {
			around[n] = "echo $$ >" + container(t, limit) + `/cgroup.procs; exec "$@"`
		}
		all[n] = w.start(t, n, around[n], endpoint, vars)
		if n == 0 && w.one("delay") != "" {
			all[n].p.says("meeting for") // else the end of the line, which is there already, seems to be a stranger
		}
	}
	var verdicts []verdict
	for n, d := range all {
		if w.one("gone") == strconv.Itoa(n) {
			d.p.ends(atoi(t, w.one("gone code")), w.one("gone says"))
			continue
		}
		d.p.ends(atoi(t, w.one("code")))
		verdicts = append(verdicts, d.checks(t, w))
		if left, _ := os.ReadDir(d.tmp); len(left) > 0 {
			t.Errorf("node %d leaves %v in TMPDIR", n, left)
		}
	}
	for _, v := range verdicts[1:] {
		if v.Message != verdicts[0].Message || !reflect.DeepEqual(v.First, verdicts[0].First) {
			t.Errorf("the nodes do not agree:\n%+v\n%+v", v, verdicts[0])
		}
	}
	if left := alive(t, mark); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	for _, after := range w.keys["after"] {
		cmd := exec.Command("sh", "-c", after)
		cmd.Dir = shared
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", after, err, out)
		}
	}
}

// dying is a node of such a job.
type dying struct {
	p                 *program
	tmp, log, verdict string
}

// start starts a node with a copy of the script in a working directory of its own.
func (w way) start(t *testing.T, n int, around, endpoint string, vars []string) dying {
	t.Helper()
	dir := t.TempDir()
	d := dying{tmp: t.TempDir(), log: filepath.Join(dir, "termination-log"), verdict: filepath.Join(dir, "verdict.json")}
	script := filepath.Base(w.file)
	text, err := os.ReadFile(w.file)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, script), text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := []string{"sh", "-c", cmp.Or(around, `exec "$@"`), "sh", self, "run", "--nnodes", "2", "--node-rank", strconv.Itoa(n), "--nproc-per-node", "2",
		"--local-addr", fmt.Sprintf("127.0.0.%d", n+1), "--rdzv-endpoint", endpoint, "--join-timeout", "2m", "--verdict", d.verdict}
	argv = append(append(argv, strings.Fields(w.one("flags"))...), "--", "./"+script)
	vars = append(slices.Clone(vars), fmt.Sprintf("NODE=%d", n), "TMPDIR="+d.tmp, "MUSTER_TERMINATION_LOG="+d.log)
	d.p = startProgram(t, dir, vars, argv...)
	return d
}

// verdict is the part of docs/verdict.md that tells what happened.
type verdict struct {
	Schema, Outcome, Class, Message string
	ExitCode                        int `json:"exit_code"`
	First                           *struct {
		Rank, Node, PID int
		LocalRank       int    `json:"local_rank"`
		ExitCode        *int   `json:"exit_code"`
		Host, Signal    string `json:",omitempty"`
		Exception       string
		Evidence        []job.Evidence
		Tail            []string
		At              string
	}
}

// known is what the verdict tells, in the words of a way.
func (v verdict) known() map[string]string {
	known := map[string]string{"code": strconv.Itoa(v.ExitCode), "class": v.Class}
	f := v.First
	if f == nil {
		return known
	}
	known["rank"], known["signal"], known["exception"] = strconv.Itoa(f.Rank), f.Signal, f.Exception
	if f.ExitCode != nil {
		known["exit"] = strconv.Itoa(*f.ExitCode)
	}
	for _, e := range f.Evidence {
		known["kind"] += e.Kind
	}
	maps.DeleteFunc(known, func(_, v string) bool { return v == "" })
	return known
}

// checks compares what a node that has ended left behind with what the way says.
func (d dying) checks(t *testing.T, w way) verdict {
	t.Helper()
	var v, brief verdict
	decode(t, d.verdict, read(t, d.verdict), &v)
	got, want := v.known(), w.known()
	if want["rank"] == "any" {
		want["rank"] = got["rank"]
	}
	if !maps.Equal(got, want) {
		t.Errorf("verdict: %v\nwant     %v\n%s", got, want, d.p.out.String())
	}
	if f := v.First; f != nil && (f.Node != f.Rank/2 || f.LocalRank != f.Rank%2) {
		t.Errorf("rank %d stands on node %d as %d", f.Rank, f.Node, f.LocalRank)
	}
	outcome := map[string]string{job.Succeeded: "succeeded", job.Preempted: "stopped"}
	if v.Schema != "muster.verdict/1" || v.Outcome != cmp.Or(outcome[v.Class], "failed") {
		t.Errorf("%s, outcome %s", v.Schema, v.Outcome)
	}
	sentence := v.Message
	if v.ExitCode != 0 {
		sentence += fmt.Sprintf("; exit %d", v.ExitCode)
		if lines := strings.Split(strings.TrimSuffix(d.p.out.String(), "\n"), "\n"); lines[len(lines)-1] != "muster: "+sentence {
			t.Errorf("the last line is %q, want %q", lines[len(lines)-1], sentence)
		}
	}
	for _, text := range w.keys["says"] {
		if !strings.Contains(sentence, text) {
			t.Errorf("%q does not say %q", sentence, text)
		}
	}
	log := read(t, d.log)
	words := strings.Split(log, "\n")
	if len(words) != 4 || words[0] != words[2] || words[3] != "" || len(log) > 1024 ||
		words[0] != v.Message && !strings.HasPrefix(v.Message, strings.TrimSuffix(words[0], "…")) {
		t.Fatalf("last words of %d bytes: %s", len(log), log)
	}
	decode(t, d.log, words[1], &brief)
	if brief.ExitCode != v.ExitCode || brief.Class != v.Class || brief.Outcome != v.Outcome || brief.known()["rank"] != got["rank"] {
		t.Errorf("last words: %s", log)
	}
	return v
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func decode(t *testing.T, name, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, text)
	}
}

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// container makes a memory cgroup with a limit in MiB, as a container runtime does: below our own where each controller
// has a hierarchy of its own, below the root of version 2, whose other groups may not have processes and groups both.
func container(t *testing.T, limit string) string {
	t.Helper()
	parent, file := "/sys/fs/cgroup", "memory.max"
	if _, err := os.Stat(parent + "/memory"); err == nil {
		own := regexp.MustCompile(`(?m)^\d+:memory:(.*)$`).FindStringSubmatch(read(t, "/proc/self/cgroup"))
		parent, file = parent+"/memory"+own[1], "memory.limit_in_bytes"
	}
	dir, err := os.MkdirTemp(parent, "muster-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // runs before that of the node, which has ended unless the test failed
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	size := atoi(t, strings.TrimSuffix(limit, " MiB")) << 20
	if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(size)), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// farAway makes a network namespace in which endpoint leads to the same address outside, over a line that takes a
// while each way, and returns its path. The kernel's own means (netem) is not in every kernel.
func farAway(t *testing.T, endpoint, delay string) string {
	t.Helper()
	took, err := time.ParseDuration(delay)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("mfar%d", atoi(t, endpoint[strings.LastIndex(endpoint, ":")+1:]))
	ip(t, "netns add "+name)
	t.Cleanup(func() { ip(t, "netns del "+name) })
	ip(t, "-n "+name+" link set lo up")
	path := "/run/netns/" + name
	ln, err := listenIn(path, endpoint)
	if err != nil {
		t.Fatal(err)
	}
	var lines sync.WaitGroup
	lines.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			lines.Go(func() { longLine(near, endpoint, took) })
		}
	})
	t.Cleanup(func() { ln.Close(); lines.Wait() })
	return path
}

// listenIn opens a listener in a network namespace.
func listenIn(path, addr string) (net.Listener, error) {
	var ln net.Listener
	var err error
	thread.Own(func() {
		var ns *os.File
		if ns, err = os.Open(path); err != nil {
			return
		}
		defer ns.Close()
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err == nil {
			ln, err = net.Listen("tcp", addr)
		}
	})
	return ln, err
}

// longLine carries what is said between a connection and addr, each byte after a while, until one of them hangs up.
func longLine(near net.Conn, addr string, took time.Duration) {
	defer near.Close()
	far, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer far.Close()
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{far, near}, {near, far}} {
		ways.Go(func() {
			late(way[0], way[1], took)
			near.Close()
			far.Close()
		})
	}
	ways.Wait()
}

// late copies from in to out until in ends. Up to a thousand pieces are under way at once.
func late(out, in net.Conn, took time.Duration) {
	type piece struct {
		data []byte
		due  time.Time
	}
	way := make(chan piece, 1000)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(way)
		for {
			buf := make([]byte, 16<<10)
			n, err := in.Read(buf)
			way <- piece{buf[:n], time.Now().Add(took)}
			if err != nil {
				return
			}
		}
	})
	for p := range way {
		<-time.After(time.Until(p.due))
		out.Write(p.data) // one that hung up hears no more
	}
	reader.Wait()
}

// A worker's error file that cannot be read to its end, as on a file system that is dead, keeps nobody: what the worker printed tells of its end.
func TestDeadErrorFile(t *testing.T) {
	t.Parallel()
	python := "Traceback (most recent call last):\n  File \"train.py\", line 1, in <module>\nValueError: what it printed"
	p := muster(t, t.TempDir(), nil, "run", "--nproc-per-node", "2", "--framework", "torch", "--", "sh", "-c", `mkfifo "$TORCHELASTIC_ERROR_FILE"; echo "$0" >&2; exit 3`, python)
	p.ends(3, "ValueError: what it printed")
}
