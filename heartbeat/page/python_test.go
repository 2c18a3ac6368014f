package page

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/test/golden"
)

// python is the interpreter that test/python knows by this name.
func python(t testing.TB, which string) string {
	t.Helper()
	cmd := exec.Command("../../test/python", which)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("test/python %s: %v", which, err)
	}
	return strings.TrimSpace(string(out))
}

// A scene is a program of a user's that has to run with the hook as it does without.
type scene struct {
	name   string
	files  map[string]string // in its directory, which is in PYTHONPATH
	script string            // main.py
	argv   string            // %py stands for the interpreter; else it runs main.py
	vars   []string
	claims int  // how many processes should have had the page, one after the other
	seen   bool // it looks where PyTorch has not been imported, so the hook's directory is still in PYTHONPATH
	quiet  bool // it may end without an exit of Python's that the hook could see
}

// begin is the beginning of a script: it prints what the interpreter looks like to it, but for the hook's directory, which is
// last, or not there, where the script has come so far.
const begin = `
import os, sys
def look(*more):
    way = [d for d in sys.path if "/hook-" not in d]
    theirs = os.environ.get("PYTHONPATH")
    print(way, theirs, getattr(sys.modules.get("sitecustomize"), "__file__", None), *more, flush=True)
`

// child is a program that imports PyTorch.
const child = "import torch, sys; sys.stdout.write('child')"

var scenes = []scene{
	{name: "imports PyTorch", script: "import torch; look(torch.__spec__.loader, vars(torch.__spec__.loader))", claims: 1},
	{name: "imports an old one", script: "import torch; look()", vars: []string{"FAKE_TORCH=old"}, claims: 1},
	{name: "imports it in a thread", script: "import threading; t = threading.Thread(target=lambda: __import__('torch')); t.start(); t.join(); look()", claims: 1},
	{name: "does not import it", script: "print(sys.argv)", argv: "%py main.py a b"},
	{name: "does not get so far", script: "raise SystemExit(7)"},
	{name: "cannot import it", seen: true, script: "try:\n import torch\nexcept ImportError as e: look(e)", vars: []string{"FAKE_TORCH=broken"}},
	{name: "ends by an exception", script: "import torch; look(); raise ValueError(3)", claims: 1},
	{name: "ends at once", script: "import torch; look(); os._exit(4)", claims: 1, quiet: true},
	{name: "by a shell", argv: "bash -c '%py -c \"print(1)\"; %py main.py; echo $?'", script: "import torch; look()", claims: 1},
	{name: "two, one after the other", argv: "bash -c '%py main.py; %py main.py'", script: "import torch; look()", claims: 2},
	{name: "no environment", argv: "%py -E main.py", script: "sys.path.append(os.environ['FAKE']); import torch; print(sys.path)"},
	{name: "isolated", argv: "%py -I main.py", script: "sys.path.append(os.environ['FAKE']); import torch; print(sys.path)"},
	{name: "no site", argv: "%py -S main.py", script: "import torch; look()", claims: 1},
	{name: "no user's site", argv: "%py -s -B -u -X dev -W error main.py", script: "import torch; look()", claims: 1},
	{name: "a module", argv: "%py -m main", script: "import torch; look()", claims: 1},
	{name: "standard input", argv: "bash -c '%py - <main.py'", script: "import torch; look()", claims: 1},
	{name: "home", argv: "bash -c 'PYTHONHOME=$(%py -c \"import sys; print(sys.base_prefix)\") %py main.py'", script: "import torch; look()", claims: 1},
	{
		// What conda makes: an installation of its own, scripts that are read when it is activated, and a launcher in Python that runs a shell that runs the program.
		name: "conda's layout",
		argv: "%py make.py",
		files: map[string]string{
			"make.py": `import os, shutil, sys
for d in "bin", "lib", "conda-meta", "etc/conda/activate.d": os.makedirs("e/" + d)
shutil.copy(os.path.realpath(sys.executable), "e/bin/python")
std = os.path.dirname(os.__file__)
shutil.copytree(std, "e/lib/" + os.path.basename(std), copy_function=os.symlink, dirs_exist_ok=True)
open("e/etc/conda/activate.d/env.sh", "w").write("export CONDA_PREFIX=e PYTHONNOUSERSITE=1 PYTHONPATH=/channel:$PYTHONPATH")
os.execv("e/bin/python", ["e/bin/python", "run.py"])`,
			"run.py": "import subprocess\nsubprocess.call(['bash', '-c', 'for f in e/etc/conda/activate.d/*.sh; do . $f; done; e/bin/python main.py'])",
		},
		script: "assert os.path.basename(sys.prefix) == 'e'; import torch; look(os.environ['CONDA_PREFIX'])", claims: 1,
	},
	{
		name: "virtual environment", argv: "bash -c '%py -m venv --without-pip v && v/bin/python main.py'", script: "import torch; look(sys.prefix != sys.base_prefix)",
		claims: 1,
	},
	{
		name: "another sitecustomize", seen: true,
		files:  map[string]string{"sitecustomize.py": begin + "look('theirs'); sys.path.insert(0, '/theirs')"},
		script: "import torch, sitecustomize; look(sitecustomize)", claims: 1,
	},
	{name: "one that fails", files: map[string]string{"sitecustomize.py": "import nothing_of_that_name"}, script: "import torch; look()", claims: 1},
	{name: "one that ends it", files: map[string]string{"sitecustomize.py": "raise SystemExit(9)"}, script: "import torch; look()"},
	{name: "one that imports PyTorch", seen: true, files: map[string]string{"sitecustomize.py": begin + "import torch; look()"}, script: "import torch; look()", claims: 1},
	{
		name:   "another tool's bootstrap in front",
		argv:   "bash -c 'PYTHONPATH=$PWD/tool:$PYTHONPATH %py main.py'",
		files:  map[string]string{"sitecustomize.py": "print('theirs')", "tool/sitecustomize.py": bootstrap},
		script: "import torch; look()", claims: 1,
	},
	{
		name:   "another tool's bootstrap behind",
		vars:   []string{"BEHIND=tool"},
		files:  map[string]string{"sitecustomize.py": "print('theirs')", "tool/sitecustomize.py": bootstrap},
		script: "import torch; look()", claims: 1,
	},
	{
		name:   "a finder in front", // as pytest has for the modules whose assertions it rewrites
		script: "class F:\n def find_spec(self, name, path=None, target=None): return None\nsys.meta_path.insert(0, F())\nimport torch; look([type(f) for f in sys.meta_path])", claims: 1,
	},
	{name: "changes the way", script: "os.environ['PYTHONPATH'] = '/mine:' + os.environ['PYTHONPATH'] + ':/last'\nimport torch; look()", claims: 1},
	{name: "clears the way", script: "del os.environ['PYTHONPATH']\nimport torch; look()", claims: 1},
	{name: "starts a program", script: "import torch, subprocess; look(subprocess.check_output([sys.executable, '-c', " + fmt.Sprintf("%q", child) + "]))", claims: 1},
	{
		name: "starts the one that trains", script: "import subprocess; print(subprocess.check_output([sys.executable, '-c', " + fmt.Sprintf("%q", child) + "]))", claims: 1,
	},
	{name: "spawns", script: processes("spawn"), claims: 1},
	{name: "forks", script: processes("fork"), claims: 1},
	{name: "has a fork server", script: processes("forkserver"), claims: 1},
	{
		name: "forks first", seen: true, script: "import multiprocessing as m\ndef f(): import torch\nif __name__ == '__main__':\n p = m.get_context('fork').Process(target=f); p.start(); p.join(); look()",
		claims: 1, quiet: true,
	},
	{
		name:   "its forked child lives on",
		argv:   "bash -c '%py main.py >out & wait $!; cat out; %py -c \"import torch\"; touch over'",
		script: "import torch, time\nif os.fork() == 0:\n while os.path.exists('main.py') and not os.path.exists('over'): time.sleep(0.01)\nelse: look()", claims: 2,
	},
	{name: "replaces itself", script: "import torch; look(len(sys.argv)); len(sys.argv) > 1 or os.execv(sys.executable, [sys.executable, *sys.argv, 'x'])", claims: 2},
	{
		name:   "replaces itself with variables",
		script: "import torch; look(len(sys.argv)); len(sys.argv) > 1 or os.execvpe(sys.executable, [sys.executable, *sys.argv, 'x'], dict(os.environ, A='1'))", claims: 2,
	},
	{
		name:   "replaces itself with others",
		script: "sys.path.append(os.environ['FAKE']); import torch; look(len(sys.argv)); len(sys.argv) > 1 or os.execve(sys.executable, [sys.executable, *sys.argv, 'x'], {'FAKE': os.environ['FAKE']})",
		claims: 1, quiet: true,
	},
	{name: "cannot replace itself", script: "import torch\ntry: os.execv('/none', ['x'])\nexcept OSError as e: look(e)", claims: 1},
	{
		name: "counts threads", argv: "%py -W error main.py", // ours ends before the kernel forks: such hooks run last to first
		script: "def threads(): return len(os.listdir('/proc/self/task'))\ndef count():\n end = time.time() + 1\n while threads() > 1 and time.time() < end: pass\n look(threads())\nimport time; os.register_at_fork(before=count)\nimport threading, torch; look(threading.active_count()); sys.exit(os.fork() and os.wait()[1])",
		claims: 1,
	},
	{name: "closes all files", script: "import torch; os.closerange(3, 100); look(); open('mine', 'w').write('x')", claims: 1},
	{
		name:   "closes all files, and forks with its own", // in the child, what was ours before is left alone
		script: "import torch; os.closerange(3, 100); mine = [open('mine%d' % i, 'w') for i in range(9)]\nif os.fork() == 0:\n for f in mine: look(f.write('x'), f.close())\nelse: look(os.wait()[1])", claims: 1,
	},
	{name: "off", vars: []string{"MUSTER_HOOK=off"}, script: "import torch; look()"},
	{name: "a page that is none", vars: []string{"MUSTER_PAGE=/dev/null"}, script: "import torch; look()"},
	{name: "a page that is not there", vars: []string{"MUSTER_PAGE=/none/of/that"}, script: "import torch; look()"},
	{name: "a page that is a directory", vars: []string{"MUSTER_PAGE=/"}, script: "import torch; look()"},
}

// bootstrap is what tools do that trace programs: out of the way, the others' first, back again.
const bootstrap = `
import os, sys
here = os.path.dirname(os.path.abspath(__file__))
print("tool")
if here in sys.path:
    at = sys.path.index(here)
    del sys.path[at]
    ours = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize
    except ImportError:
        sys.modules["sitecustomize"] = ours
    finally:
        sys.path.insert(at, here)
`

// processes is a script with a process of multiprocessing's that imports PyTorch, too.
func processes(way string) string {
	return `
import multiprocessing, torch
def work(q):
    import torch
    q.put((torch.__name__, os.environ.get("PYTHONPATH")))
if __name__ == "__main__":
    c = multiprocessing.get_context("` + way + `")
    q = c.SimpleQueue()
    p = c.Process(target=work, args=(q,))
    p.start()
    look(q.get())
    p.join()
`
}

// Each scene prints, and ends, as without the hook, and the page was had by whom it should.
func TestScenes(t *testing.T) {
	hook := unpacked(t)
	for _, which := range []string{"debian", "sid"} {
		interpreter := python(t, which)
		for _, s := range scenes {
			t.Run(which+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				p, path := newPage(t)
				want := s.run(t, interpreter, nil)
				got := s.run(t, interpreter, func(given func(string) (string, bool)) []Var { return Env(hook, path, given) })
				if s.seen {
					got = withoutHook(got, hook)
				}
				if got != want {
					t.Errorf("without the hook:\n%s\nwith it:\n%s", want, got)
				}
				said, err := p.Read()
				if err != nil || said.Claims != s.claims || s.claims > 0 && (said.PID == 0 || !s.quiet && !said.Exiting) {
					t.Errorf("%+v, %v; want %d claims", said, err, s.claims)
				}
			})
		}
	}
}

// withoutHook is what was printed of a way, but for the hook's directory in front.
func withoutHook(text, hook string) string { return strings.ReplaceAll(text, hook+":", "") }

func unpacked(t testing.TB) string {
	t.Helper()
	hook, err := Unpack(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return hook
}

// run runs the scene in a directory of its own, which has the same name each time, and returns what it printed, without
// the hook's own lines in the stack of an exception, and how it ended.
func (s scene) run(t *testing.T, interpreter string, hooked func(func(string) (string, bool)) []Var) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "scene")
	files := map[string]string{"main.py": begin + s.script}
	for name, content := range s.files {
		files[name] = content
	}
	for name, content := range files {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	argv := s.argv
	if argv == "" {
		argv = "%py main.py"
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "exec "+strings.ReplaceAll(argv, "%py", interpreter))
	fake, err := filepath.Abs("testdata/fake")
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"PATH": os.Getenv("PATH"), "HOME": "/root", "FAKE": fake, "PYTHONPATH": dir + "::" + fake, "PYTHONDONTWRITEBYTECODE": "1"}
	for _, kv := range s.vars {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
		if name == "BEHIND" {
			vars["PYTHONPATH"] = filepath.Join(dir, value) + ":" + vars["PYTHONPATH"]
		}
	}
	if hooked != nil {
		for _, v := range hooked(func(name string) (string, bool) { v, ok := vars[name]; return v, ok }) {
			if _, theirs := vars[v.Name]; !theirs || v.Name == "PYTHONPATH" {
				vars[v.Name] = v.Value
			}
		}
	}
	cmd.Dir = dir
	for name, value := range vars {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	text := regexp.MustCompile(`0x[0-9a-f]+`).ReplaceAllString(string(out), "0x")
	text = regexp.MustCompile(`  File "[^"]*/hook-[^\n]*\n(    .*\n)*`).ReplaceAllString(text, "")
	return strings.ReplaceAll(text, dir, "DIR") + fmt.Sprint(err)
}

// A worker is a Python that imports PyTorch and then runs each line that it is sent.
type worker struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bytes.Buffer
	page *Page
	path string

	fails bool // as it should
}

func start(t *testing.T, script string) *worker {
	t.Helper()
	return startIn(t, "debian", script)
}

func startIn(t *testing.T, which, script string) *worker {
	t.Helper()
	p, path := newPage(t)
	fake, err := filepath.Abs("testdata/fake")
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{page: p, path: path, out: new(bytes.Buffer), cmd: exec.Command(python(t, which), "-c", script)}
	w.cmd.Env = append(os.Environ(), "PYTHONPATH="+fake)
	for _, v := range Env(unpacked(t), path, func(string) (string, bool) { return fake, true }) {
		w.cmd.Env = append(w.cmd.Env, v.Name+"="+v.Value)
	}
	w.cmd.Stdout, w.cmd.Stderr = w.out, w.out
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.in.Close()
		if err := w.cmd.Wait(); err != nil && !w.fails {
			t.Errorf("%v: %s", err, w.out)
		}
	})
	return w
}

// until waits for a page that says so.
func (w *worker) until(t *testing.T, what string, says func(Snapshot) bool) Snapshot {
	t.Helper()
	var last Snapshot
	if !soon(func() bool {
		s, err := w.page.Read()
		if err == nil {
			last = s
		}
		return err == nil && says(s)
	}) {
		t.Fatalf("never %s: %+v\n%s", what, last, w.out)
	}
	return last
}

// soon asks every few milliseconds, for two minutes: the machine may be busy.
func soon(done func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(2 * time.Minute); !done(); {
		select {
		case <-tick.C:
		case <-end:
			return false
		}
	}
	return true
}

// stacks asks the worker for its stacks until the file has the words.
func (w *worker) stacks(t *testing.T, pid int, words string) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil || !Catches(string(status)) {
		t.Fatalf("%v: the page says that stacks can be had, but there is no handler", err)
	}
	var asked time.Time // as seldom as an agent would: one that comes when the interpreter ends may kill it
	if !soon(func() bool {
		if time.Since(asked) > time.Second {
			if err := unix.Kill(pid, StackSignal); err != nil {
				t.Fatal(err)
			}
			asked = time.Now()
		}
		text, _ := os.ReadFile(StackFile(w.path))
		return strings.Contains(string(text), words)
	}) {
		t.Errorf("%q never came", words)
	}
}

// The signal writes where the program is, as often as it is sent, also when Python's lock is held.
func TestStacks(t *testing.T) {
	w := start(t, "import torch, sys\ndef waits_for_input(): sys.stdin.read()\nwaits_for_input()")
	s := w.until(t, "ready", func(s Snapshot) bool { return s.StackReady })
	w.stacks(t, s.PID, "in waits_for_input")
	for range 300 {
		if err := unix.Kill(s.PID, StackSignal); err != nil {
			t.Fatal(err)
		}
	}
	first := w.until(t, "telling", func(n Snapshot) bool { return n.Helper > s.Helper })
	w.until(t, "still telling", func(n Snapshot) bool { return n.Helper > first.Helper })
}

// Who is asked on its page goes on, though its threads run: of the signal this program dies within a second. The main thread stands last.
func TestAskStacks(t *testing.T) {
	there := filepath.Join(t.TempDir(), "there")
	w := start(t, `import json, threading, torch, sys
def deep(n): return deep(n - 1) if n else json.dumps([{"a": i} for i in range(20)])
def runs():
    while True: deep(200)
def waits_for_input():
    open("`+there+`", "w").close()
    sys.stdin.read()
for name in "one", "Ünl\nucky": threading.Thread(target=runs, name=name, daemon=True).start()
waits_for_input()`)
	w.until(t, "ready", func(s Snapshot) bool {
		_, err := os.Stat(there)
		return s.Tells && err == nil
	})
	for n := range 3 {
		if err := AskStacks(w.path); err != nil {
			t.Fatal(err)
		}
		var text []byte
		if !soon(func() bool {
			text, _ = os.ReadFile(StackFile(w.path))
			return strings.Count(string(text), "in waits_for_input") > n
		}) {
			t.Fatalf("%d answers came: %s\n%s", n, text, w.out)
		}
		for _, words := range []string{" [one] (most recent call first):\n", ` [\xdcnl ucky] (`, "in <module>\n\n"} {
			if !strings.Contains(string(text), words) {
				t.Errorf("no %q in\n%s", words, text)
			}
		}
		if !bytes.Contains(text, []byte("in deep\n")) && !bytes.Contains(text, []byte("in runs\n")) { // of a deep stack only the top is told
			t.Errorf("the threads do not run in\n%s", text)
		}
		if strings.Contains(string(text), "_muster_hook.py") || !strings.HasSuffix(string(text), "in <module>\n\n") {
			t.Errorf("the hook stands in it, or the main thread not last:\n%s", text)
		}
	}
}

// Of many threads, deep in their calls, as many are told of as an agent reads, and the main one last.
func TestAskStacksOfMany(t *testing.T) {
	deep := strings.Repeat("deep", 20)
	w := start(t, `import threading, time, sys
over, there = threading.Event(), []
def `+deep+`(n): return `+deep+`(n - 1) if n else there.append(n) or over.wait()
for _ in range(150): threading.Thread(target=`+deep+`, args=(98,), daemon=True).start()
while len(there) < 150: time.sleep(0.01)
import torch # from now on it tells
sys.stdin.read()`)
	w.until(t, "ready", func(s Snapshot) bool { return s.Tells })
	if err := AskStacks(w.path); err != nil {
		t.Fatal(err)
	}
	var text string
	if !soon(func() bool {
		read, _ := os.ReadFile(StackFile(w.path))
		text = string(read)
		return strings.HasSuffix(text, "in <module>\n\n")
	}) {
		t.Fatalf("the main thread is not the last of %d bytes", len(text))
	}
	if threads := strings.Count(text, "(most recent call first)"); len(text) > 256<<10 || threads < 10 || threads > 100 {
		t.Errorf("%d bytes of %d threads", len(text), threads)
	}
}

// A program that closes all files that it does not know gets no stacks into its own.
func TestStacksAfterClose(t *testing.T) {
	w := start(t, "import torch, sys, os\nos.closerange(3, 100)\nf = open('/dev/null', 'w')\nsys.stdin.read()")
	s := w.until(t, "ready", func(s Snapshot) bool { return s.StackReady })
	w.until(t, "after a turn", func(n Snapshot) bool { return n.Helper > s.Helper })
	w.stacks(t, s.PID, "most recent call first")
}

// A handler of the program's own stays.
func TestStacksTaken(t *testing.T) {
	w := start(t, "import signal, sys, os\nsignal.signal(52, lambda *_: (os.write(1, b'mine'), sys.stdin.close()))\nimport torch\nsys.stdin.read()")
	s := w.until(t, "there", func(s Snapshot) bool { return s.PID > 0 })
	if s.StackReady {
		t.Errorf("%+v", s)
	}
}

// So does one that is installed later.
func TestStacksTakenLater(t *testing.T) {
	w := start(t, "import torch, signal, sys\nsys.stdin.readline()\nsignal.signal(52, lambda *_: None)\nsys.stdin.read()")
	w.until(t, "ready", func(s Snapshot) bool { return s.StackReady })
	if _, err := io.WriteString(w.in, "\n"); err != nil {
		t.Fatal(err)
	}
	w.until(t, "ready no more", func(s Snapshot) bool { return !s.StackReady })
}

// What is told at once wakes no helper that rests, as it does while the process forks.
func TestTellNow(t *testing.T) {
	w := start(t, "import torch, sys\nhook = sys._muster_hook\nhook.rest()\nhook.tell_now()\nassert hook.running is None\nhook.go_on()\nhook.tell_now()\nassert hook.running")
	w.until(t, "at its end", func(s Snapshot) bool { return s.Exiting })
}

// Python before 3.8 does not know the kernel's number of a thread.
func TestHelperOfOldPython(t *testing.T) {
	w := start(t, "import _thread; del _thread.get_native_id\nimport torch, sys\nsys.stdin.read()")
	s := w.until(t, "there", func(s Snapshot) bool { return s.PID > 0 })
	w.until(t, "telling", func(n Snapshot) bool { return n.Helper > s.Helper })
}

// A thread that waits by the clock on the wall, as many builds of Python do, waits for an hour when that is set back by one. The next step
// of an optimizer wakes it, or, where calls are counted, the next call.
func TestClockSetBack(t *testing.T) {
	w := start(t, setBack+`
optimizer = torch.optim.optimizer.Optimizer()
while not select.select([0], [], [], 0.01)[0]: optimizer.step()`)
	w.until(t, "telling of steps", func(s Snapshot) bool { return s.Optimizer > 100 })
	w = start(t, "import os; os.environ['FAKE_TORCH'] = 'old'"+setBack+"while not select.select([0], [], [], 0.01)[0]: torch.autograd.backward()")
	w.until(t, "telling of calls", func(s Snapshot) bool { return s.Calls.Entered > 100 })
}

const setBack = `
import torch, sys, select
hook = sys._muster_hook
hook.rest()
pause, hour = hook.pause, [3600]
hook.pause = lambda: hour.pop() if hour else pause()
hook.go_on()
`

// What the helper tells of turns stops when the process does, or when Python's lock is not given back.
func TestHelper(t *testing.T) {
	w := start(t, "import torch, sys\nsys.stdin.read()")
	s := w.until(t, "there", func(s Snapshot) bool { return s.PID > 0 })
	s = w.until(t, "telling", func(n Snapshot) bool { return n.Helper > s.Helper })
	now, err := monotonic()
	if err != nil || s.Helper > now || now-s.Helper > 20*time.Second {
		t.Errorf("%v at %v, %v", s.Helper, now, err)
	}
	if s.PID != w.cmd.Process.Pid || s.Start == 0 || s.Mute != "no process group yet" {
		t.Errorf("%+v", s)
	}
}

// Counters are read at the beginnings of seconds by the clock on the wall, so that those of several ranks are of the same moment.
func TestMoments(t *testing.T) {
	w := start(t, "import torch, sys\nsys.stdin.read()")
	var early, late int
	s := w.until(t, "there", func(s Snapshot) bool { return s.PID > 0 })
	for range 6 { // some of which a busy machine makes late
		s = w.until(t, "telling", func(n Snapshot) bool { return n.Helper > s.Helper })
		now, err := monotonic()
		if err != nil {
			t.Fatal(err)
		}
		switch at := time.Now().Add(s.Moment - now).Nanosecond(); {
		case at < 100_000_000:
			early++
		default:
			late++
		}
	}
	if early <= late {
		t.Errorf("%d at the beginning of a second, %d later", early, late)
	}
}

// What a program ends of it says on its page, if Python itself ends it.
func TestRaised(t *testing.T) {
	for script, want := range map[string]string{
		"raise ValueError('of three\\nlines')":                      "ValueError: of three",
		"class Own(Exception): pass\ndef f(): raise Own\nf()":       "Own",
		"import json\njson.loads('x' * 300)":                        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
		"raise OSError('é' * 100)":                                  "OSError: " + strings.Repeat("é", 100), // cut in the middle of one, and put together
		"raise OSError(400 * 'x')":                                  "OSError: " + strings.Repeat("x", 127+2*104-1-9),
		"sys.exit('no exception')":                                  "",
		"try: 1 / 0\nexcept ZeroDivisionError: pass":                "",
		"class Bad(Exception):\n def __str__(self): 1/0\nraise Bad": "",
	} {
		w := start(t, "import torch, sys\n"+script)
		w.fails = true
		s := w.until(t, "at its end", func(s Snapshot) bool { return s.Exiting })
		if s.Raised != want {
			t.Errorf("%s: %q, want %q", script, s.Raised, want)
		}
	}
}

// Of a script that is over its page says so, whatever the interpreter does before it ends, and where that is can be had.
func TestOver(t *testing.T) {
	const handler = "def waits_at_its_end(): sys.stdin.read()\n"
	for _, c := range []struct{ name, script, raised string }{
		{"a handler that comes before ours", handler + "import torch\natexit.register(waits_at_its_end)", ""},
		{"one that comes after it", handler + "atexit.register(waits_at_its_end)\nimport torch", ""},
		{"after an exception", handler + "import torch\natexit.register(waits_at_its_end)\nraise ValueError(7)", "ValueError: 7"},
		{"a thread", handler + "import torch, threading\nthreading.Thread(target=waits_at_its_end).start()", ""},
		{"a pool", handler + "import torch\nfrom concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor().submit(waits_at_its_end)", ""},
		{"a destructor", "import torch\nclass C:\n def __del__(self, read=sys.stdin.read): self.waits_at_its_end(read)\n def waits_at_its_end(self, read): read()\nc = C()", ""},
	} {
		for _, which := range []string{"debian", "sid"} {
			t.Run(which+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				w := startIn(t, which, "import atexit, sys\n"+c.script)
				w.fails = c.raised != ""
				s := w.until(t, "over", func(s Snapshot) bool { return s.Over })
				if !s.StackReady || s.Raised != c.raised {
					t.Errorf("%+v", s)
				}
				w.stacks(t, s.PID, "in waits_at_its_end")
			})
		}
	}
}

// A thread that goes on with the training when the main one has ended is no end. Nor is there one where the signal would kill.
func TestNotOver(t *testing.T) {
	w := start(t, `
import torch, sys, threading, select
def trains():
    while not select.select([0], [], [], 0.01)[0]: torch.optim.optimizer.Optimizer().step()
threading.Thread(target=trains).start()`)
	s := w.until(t, "in training", func(s Snapshot) bool { return s.Optimizer > 0 })
	for range 3 {
		s = w.until(t, "telling", func(n Snapshot) bool { return n.Helper > s.Helper })
	}
	if s.Over {
		t.Errorf("%+v", s)
	}
	w = start(t, "import atexit, sys, threading\natexit.register(sys.stdin.read)\nt = threading.Thread(target=lambda: __import__('torch')); t.start(); t.join()")
	if s := w.until(t, "at its end", func(s Snapshot) bool { return s.Exiting }); s.StackReady {
		t.Errorf("%+v", s)
	}
}

// Python's helper beats beside the hook, and from other processes.
func TestHelperBeats(t *testing.T) {
	w := start(t, `
import torch, sys, os, threading, muster_beat
def many():
    for _ in range(500): muster_beat.step(11)
both = [threading.Thread(target=many) for _ in range(2)]
pid = os.fork()
if pid == 0:
    many()
    os._exit(0)
for t in both: t.start()
for t in both: t.join()
os.waitpid(pid, 0)
with muster_beat.phase("evaluation", 60):
    sys.stdin.readline()
with muster_beat.phase("x" * 100): pass
muster_beat.step(-1)
muster_beat.step("a")
muster_beat.step(10)
sys.stdin.readline()
muster_beat.step(12)
muster_beat.step("a")
sys.stdin.read()`)
	s := w.until(t, "in its phase", func(s Snapshot) bool { return s.Phase == "evaluation" })
	now, err := monotonic()
	if err != nil || s.Steps != 11 || s.Beats != 1501 || s.Until < now || s.Until > now+time.Minute || s.PID != w.cmd.Process.Pid {
		t.Errorf("%+v at %v, %v", s, now, err)
	}
	if _, err := io.WriteString(w.in, "\n"); err != nil {
		t.Fatal(err)
	}
	s = w.until(t, "at step 10", func(s Snapshot) bool { return s.Steps == 10 })
	if s.Phase != "" || s.Until != 0 {
		t.Errorf("%+v", s)
	}
	if _, err := io.WriteString(w.in, "\n"); err != nil {
		t.Fatal(err)
	}
	w.until(t, "at step 12", func(s Snapshot) bool { return s.Steps == 12 })
	shell, err := Open(w.path) // what cannot be told has left the page to others
	if err == nil {
		err = shell.Step(13)
	}
	if err != nil || w.until(t, "at step 13", func(s Snapshot) bool { return s.Steps == 13 }).Beats != s.Beats+3 {
		t.Errorf("another program's step: %v", err)
	}
}

// A handler of a signal that comes in the middle of a beat, and a child that is forked then, need not wait for it: nobody would ever end it.
func TestHelperInTheMiddle(t *testing.T) {
	w := start(t, `
import torch, sys, os, signal, time, muster_beat
def beats(*_):
    with muster_beat.phase("handler", 60): pass
signal.signal(signal.SIGALRM, beats)
pack = muster_beat.struct.pack_into
def halfway(form, mem, at, turn):
    pack(form, mem, at, turn)
    muster_beat.struct.pack_into = pack
    os.kill(os.getpid(), signal.SIGALRM)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        time.sleep(0)
        muster_beat.step(1)
        os._exit(3)
    print(os.waitpid(pid, 0)[1] >> 8, flush=True)
    globals()["kept"] = os.fork()
    if kept == 0:
        sys.stdin.close()
        os.read(gate[0], 1)
        os._exit(0)
gate = os.pipe()
muster_beat.struct.pack_into = halfway
muster_beat.step(7)
muster_beat.step(8)
sys.stdin.read()
os.write(gate[1], b"x")
os.waitpid(kept, 0)`)
	if s := w.until(t, "at step 8", func(s Snapshot) bool { return s.Steps == 8 }); s.Phase != "" {
		t.Errorf("%+v", s)
	}
}

// Whatever a program says, the helper does not raise; what it understands it tells, and behind a phase the one around it goes on.
func TestHelperTakesAnything(t *testing.T) {
	w := start(t, `
import torch, sys, datetime, muster_beat
class Bad:
    def __str__(self): raise RuntimeError
    __int__ = __bool__ = __str__
with muster_beat.phase("outer", "10m"):
    for name, length in [("inf", float("inf")), ("nan", float("nan")), ("a\udcff", 5), (b"x", None), (Bad(), Bad()), ("x", "soon"), ("x", ""),
                         ("x", datetime.timedelta(minutes=1)), ("x", -10**30), ("é" * 60, 10**30)]:
        with muster_beat.phase(name, length): pass
    try:
        with muster_beat.phase("inner"): 1 / 0
    except ZeroDivisionError:
        muster_beat.step(500.0)
    for n in [Bad(), None, float("nan"), 1 << 64, -10**30, [1]]: muster_beat.step(n)
    sys.stdin.readline()
muster_beat.step(-3)
muster_beat.step(501.5)
sys.stdin.read()`)
	s := w.until(t, "at step 500", func(s Snapshot) bool { return s.Steps == 500 && s.Beats == 25 })
	now, err := monotonic()
	if left := s.Until - now; err != nil || s.Phase != "outer" || left > 10*time.Minute || left < 5*time.Minute {
		t.Errorf("phase %q for %v, %v", s.Phase, left, err)
	}
	if _, err := io.WriteString(w.in, "\n"); err != nil {
		t.Fatal(err)
	}
	if s := w.until(t, "at step 501", func(s Snapshot) bool { return s.Steps == 501 }); s.Phase != "" || s.Until != 0 || s.Beats != 28 {
		t.Errorf("behind all phases: %+v", s)
	}
}

// The helper is to be copied into projects: thirty lines that do nothing there outside a job, and know nothing else of muster's.
func TestHelperCopied(t *testing.T) {
	text, err := os.ReadFile("hook/muster_beat.py")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > 30 {
		t.Errorf("it has %d lines", n)
	}
	cmd := exec.Command(python(t, "any"), "-I", "-c", string(text)+"\nstep(1)\nwith phase('a', 1): print('in it')")
	cmd.Env = []string{"MUSTER_PAGE=/dev/null/no"}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "in it\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// What becomes of PyTorch's records: groups of two backends and of one without a recorder, one that was destroyed and made again,
// one whose number in the recorder is not known yet, and more than the page holds.
func TestGroups(t *testing.T) {
	w := start(t, `
import torch, sys, types, json
c10d = sys.modules["torch.distributed.distributed_c10d"] = types.SimpleNamespace(_pg_map={}, _pg_names={}, _pg_group_ranks={})
class Group:
    def __init__(self, name, backend, ranks, number=0):
        self.number = number
        c10d._pg_map[self], c10d._pg_names[self], c10d._pg_group_ranks[self] = (backend, None), name, {r: i for i, r in enumerate(ranks)}
    def rank(self): return 1
    def size(self): return 4
    def _get_backend(self, device): return self
    def _get_sequence_number_for_group(self):
        if self.number < 0: raise RuntimeError("not supported")
        return self.number
def entry(id, name, seq, op): return {"pg_id": id, "process_group": [name, ""], "collective_seq_id": seq, "is_p2p": False,
    "profiling_name": "nccl:" + op, "input_sizes": [[4, 5], []], "input_dtypes": ["BFloat16", "Float"]}
def status(e, c, s=-1): return {"last_enqueued_collective": str(e), "last_started_collective": str(s), "last_completed_collective": str(c)}
def nccl(entries, active):
    all = {"pg_status": {"0": status(9, 9), "2": status(7, 5, 5), "10": status(3, 3), "11": status(-1, -1), "12": status(4, 4, 4), "13": status(8, 8), "14": status(6, 5, 6)}}
    if entries: all["entries"] = [entry(0, "0", 9, "all_gather"), entry(2, "a", 7, "all_reduce"), entry(2, "a", 6, "broadcast"), entry(10, "0", 3, "all_gather"),
        entry(12, "e", 4, "all_reduce"), entry(13, "f", 8, "all_reduce"), entry(14, "g", 6, "barrier")]
    if entries and not active: all["entries"] += [entry(12, "e", 5, "all_to_all")]  # not enqueued
    return json.dumps(all).encode()
torch.device = str
torch._lib._dump_nccl_trace_json = nccl
sys._muster_hook.groups.sources += [type(sys._muster_hook.groups.sources[0])("nccl", nccl, True)]
groups = [Group("0", "cpu:gloo,cuda:nccl", range(4)), Group("a", "nccl", [1, 3]), Group("b", "other", [1, 2], 77), Group("c", "other", [1], -1), Group("d", "nccl", [1]),
    Group("e", "nccl", [1, 2], 5), Group("f", "nccl", [0, 1], 10), Group("g", "nccl", [0, 1], 6), Group("h", "nccl", [1, 3], 1)]
exec(compile("def within(): return sys.stdin.readline()", "/lib/torch/distributed/distributed_c10d.py", "exec"))
while within():
    groups += [Group("more%d" % i, "other", [0, 1], i) for i in range(40)]
`)
	s := w.until(t, "named what waits", func(s Snapshot) bool {
		named := 0
		for _, l := range s.Lanes {
			if l.Op != "" {
				named++
			}
		}
		return len(s.Lanes) == 7 && named == 3 && s.Lanes[4].Entered == s.Lanes[4].Completed
	})
	got := map[string]Lane{}
	for _, l := range s.Lanes {
		if l.Group == 0 {
			t.Errorf("%+v", l)
		}
		l.Group = 0
		got[l.Name] = l
	}
	want := map[string]Lane{
		"0": {Name: "0", Members: 4, Entered: 3, Completed: 3},
		"a": {Name: "a", Members: 2, Entered: 7, Completed: 5, Op: "broadcast", Bytes: 44, Queued: true},
		"e": {Name: "e", Members: 2, Entered: 5, Completed: 4, Op: "all_to_all", Bytes: 44, Mark: 18412}, // of "all_reduce 44"
		"f": {Name: "f", Members: 2, Entered: 8, Completed: 8},                                           // two numbers were left out
		"g": {Name: "g", Members: 2, Entered: 6, Completed: 5, Op: "barrier", Bytes: 44, Begun: true},
		"h": {Name: "h", Members: 2, Entered: 1}, // NCCL makes connections
		"b": {Name: "b", Members: 2, Entered: 77, Blind: true},
	}
	first := func(s Snapshot) bool { // who waits
		return !slices.ContainsFunc(s.Lanes[:4], func(l Lane) bool { return !strings.Contains("aegh", l.Name) })
	}
	if !reflect.DeepEqual(got, want) || !first(s) || s.Rank != 1 || s.World != 4 || !s.Recorder || s.Mute != "group c (other) has no recorder and no sequence number" {
		t.Errorf("%+v", s)
	}
	if _, err := io.WriteString(w.in, "\n"); err != nil {
		t.Fatal(err)
	}
	s = w.until(t, "full", func(s Snapshot) bool { return len(s.Lanes) == maxLane })
	if !first(s) || s.Mute != "47 process groups, of which the page holds 32" {
		t.Errorf("%+v", s)
	}
}

// What the hook makes of a recorder of NCCL's, a scene a line: a rank that waits inside NCCL has entered the collective, and what a CUDA graph has captured,
// or who is unknown as yet, is not taken for that.
func TestNCCL(t *testing.T) {
	out, err := exec.Command(python(t, "debian"), "testdata/nccl.py", "hook").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	golden.File(t, "testdata/nccl.txt", string(out))
}

// What PyTorch knows by a newer name it does not warn of by the older one, which an older PyTorch needs; what the user gave another value stays.
func TestOldNames(t *testing.T) {
	_, path := newPage(t)
	hook := unpacked(t)
	const names = "TORCH_NCCL_ASYNC_ERROR_HANDLING NCCL_ASYNC_ERROR_HANDLING TORCH_FR_BUFFER_SIZE TORCH_NCCL_TRACE_BUFFER_SIZE"
	for _, c := range []struct{ vars, want string }{
		{"TORCH_NCCL_ASYNC_ERROR_HANDLING=1 NCCL_ASYNC_ERROR_HANDLING=1", "1 None 2000 2000"}, // of 2.8
		{"TORCH_NCCL_ASYNC_ERROR_HANDLING=1 NCCL_ASYNC_ERROR_HANDLING=3", "1 3 2000 2000"},
		{"NCCL_ASYNC_ERROR_HANDLING=1", "None 1 2000 2000"},
		{"TORCH_NCCL_ASYNC_ERROR_HANDLING=1 NCCL_ASYNC_ERROR_HANDLING=1 FAKE_TORCH=old", "1 1 2000 2000"},
	} {
		got := scene{vars: strings.Fields(c.vars), script: `
import torch
print(*[os.environ.get(n) for n in "` + names + `".split()])
`}.run(t, python(t, "debian"), func(given func(string) (string, bool)) []Var { return Env(hook, path, given) })
		if !strings.HasPrefix(got, c.want+"\n") {
			t.Errorf("%s: %s", c.vars, got)
		}
	}
}

// What fails is told until it works again, each cause once, and mutes nothing else.
func TestMute(t *testing.T) {
	_, path := newPage(t)
	hook := unpacked(t)
	got := scene{script: `
import torch
hook = sys._muster_hook
hook.rest()
def told():
    hook.turn()
    size = hook.page.mem[512]
    print(hook.page.mem[513 : 513 + size].decode())
def fails(name, why):
    def part(): raise why
    part.__name__ = name
    return part
look, again = hook.groups.look, hook.listen_again
told()
hook.groups.look, hook.listen_again = fails("look", KeyError(1)), fails("listen_again", OSError(2))
told()
hook.groups.look = fails("look", ValueError(3))
told()
hook.groups.look, hook.listen_again = look, again
told()
`}.run(t, python(t, "debian"), func(given func(string) (string, bool)) []Var { return Env(hook, path, given) })
	const want = "no process group yet\n" +
		"the hook failed to look: KeyError(1); the hook failed to listen again: OSError(2); no process group yet\n" +
		"the hook failed to look: ValueError(3); the hook failed to listen again: OSError(2); no process group yet\n" +
		"no process group yet\n"
	if !strings.HasPrefix(got, want) {
		t.Errorf("told:\n%s\nwant:\n%s", got, want)
	}
}
