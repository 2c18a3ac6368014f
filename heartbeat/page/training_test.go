package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/muster-run/muster/test/freeport"
)

// A training is one that runs, with a page for each rank.
type training struct {
	pages []*Page
	in    []io.WriteCloser
	out   *bytes.Buffer // of rank 0, when it has ended
	wait  func()        // for the end of all
}

// train starts a training of two ranks.
func train(t testing.TB, which string, argv ...string) training {
	t.Helper()
	return trainOf(t, 2, which, argv...)
}

func trainOf(t testing.TB, ranks int, which string, argv ...string) training {
	t.Helper()
	interpreter, hook, port := python(t, which), unpacked(t), freeport.Take(t)
	var all training
	var ended sync.WaitGroup
	for rank := range ranks {
		p, path := newPage(t)
		cmd := exec.Command(interpreter, argv...)
		cmd.Env = append(os.Environ(), fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", ranks), "MASTER_ADDR=127.0.0.1", fmt.Sprintf("MASTER_PORT=%d", port),
			"USE_LIBUV=0", "OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo")
		for _, v := range Env(hook, path, os.LookupEnv) {
			cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
		}
		out := new(bytes.Buffer)
		cmd.Stdout, cmd.Stderr = out, out
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		ended.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("rank %d: %v\n%s", rank, err, out)
			}
		})
		if rank == 0 {
			all.out = out
		}
		all.pages, all.in = append(all.pages, p), append(all.in, in)
	}
	all.wait = func() {
		for _, in := range all.in {
			in.Close()
		}
		ended.Wait()
	}
	t.Cleanup(all.wait)
	return all
}

// until waits for pages that say so.
func (r training) until(t *testing.T, what string, says func([]Snapshot) bool) []Snapshot {
	t.Helper()
	all := make([]Snapshot, len(r.pages))
	if !soon(func() bool {
		for i, p := range r.pages {
			if s, err := p.Read(); err == nil {
				all[i] = s
			}
		}
		return says(all)
	}) {
		t.Fatalf("never %s:\n%+v", what, all)
	}
	return all
}

// In every PyTorch a rank that is late has entered fewer collectives of its group than the one that waits for it.
func TestTrainings(t *testing.T) {
	for _, c := range []struct {
		python, kind string
		recorder     bool
	}{
		{"debian", "ddp", false},
		{"trixie", "ddp", false},
		{"trixie", "fsdp1", false},
		{"resolute", "ddp", true},
		{"resolute", "fsdp", true},
		{"sid", "fsdp", true},
		{"newest", "ddp", true},
		{"newest", "fsdp", true},
	} {
		t.Run(c.python+"/"+c.kind, func(t *testing.T) {
			t.Parallel()
			train(t, c.python, "testdata/train.py", c.kind).late(t, c.recorder)
		})
	}
}

func (r training) late(t *testing.T, recorder bool) {
	t.Helper()
	all := r.until(t, "waiting", func(all []Snapshot) bool { return waiting(all, recorder) })
	waits, late := all[0].Lanes[0], all[1].Lanes[0]
	if waits.Group != late.Group || waits.Entered <= late.Entered || waits.Members != 2 || waits.Blind == recorder || all[0].Recorder != recorder {
		t.Errorf("waits: %+v\nlate:  %+v", all[0], all[1])
	}
	if recorder && waits.Bytes == 0 {
		t.Errorf("waits: %+v", waits)
	}
	for rank, s := range all {
		if !recorder && !strings.HasSuffix(s.Mute, " has no recorder for gloo") {
			t.Errorf("rank %d: %q", rank, s.Mute)
		}
		if s.Rank != rank || s.World != 2 || s.Limit.Minutes() != 30 || !s.StackReady || s.Hooks == recorder {
			t.Errorf("rank %d: %+v", rank, s)
		}
	}
	t.Logf("waits: %+v %+v %s", waits, all[0].Calls, all[0].Mute)
	t.Logf("late:  %+v %+v %s", late, all[1].Calls, all[1].Mute)
	if _, err := io.WriteString(r.in[1], "\n"); err != nil {
		t.Fatal(err)
	}
	r.until(t, "done", func(all []Snapshot) bool { return all[0].Optimizer == 16 && all[1].Optimizer == 16 })
	r.wait()
	r.until(t, "ended", func(all []Snapshot) bool { return all[0].Exiting && all[1].Exiting })
}

// A group that comes and goes between two looks leaves word that it was there, if it was used.
func TestMet(t *testing.T) {
	for which, used := range map[string]bool{"debian": true, "newest": true, "trixie": false} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			use := map[bool]string{true: "dist.all_reduce(torch.ones(1)); "}[used]
			r := train(t, which, "-c", `
import torch, torch.distributed as dist, sys
hook = sys._muster_hook
hook.rest()
dist.init_process_group("gloo"); `+use+`
store = dist.distributed_c10d._get_default_store()  # who leaves the group first would cut off a rank that is about to be in it
store.set("in%d" % dist.get_rank(), "1"); store.wait(["in0", "in1"])
dist.destroy_process_group(group=dist.group.WORLD)
hook.steps = 1
hook.go_on()
sys.stdin.read()`)
			all := r.until(t, "telling", func(all []Snapshot) bool { return all[0].Optimizer == 1 && all[1].Optimizer == 1 })
			for rank, s := range all {
				if s.Met != used || s.Grouped || len(s.Lanes) > 0 {
					t.Errorf("rank %d: %+v", rank, s)
				}
			}
		})
	}
}

// A rank that waits for another to make the process group says so, also where a recorder tells of what comes after.
func TestJoins(t *testing.T) {
	const script = `
import os, sys, torch, torch.distributed as dist
if os.environ["RANK"] == "1": sys.stdin.readline()
dist.init_process_group("gloo")
sys.stdin.read()`
	for which, recorder := range map[string]bool{"debian": false, "newest": true} { // the first waits with Python's lock held
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			all := train(t, which, "-c", script)
			all.until(t, "waiting for each other", func(all []Snapshot) bool {
				waits, late := all[0].Calls, all[1].Calls
				return waits.Op == "init_process_group" && waits.Entered > waits.Completed && all[1].PID > 0 && late.Entered == 0 && all[0].Hooks != recorder
			})
			if _, err := io.WriteString(all.in[1], "\n"); err != nil {
				t.Fatal(err)
			}
			all.until(t, "together", func(all []Snapshot) bool {
				calls := all[0].Calls
				return all[0].Grouped && calls.Entered > 0 && calls.Entered == calls.Completed && all[0].Hooks != recorder
			})
		})
	}
}

// Who is a member of a group says so before it has used it, and who is none does not: nobody waits for that one there.
func TestUnused(t *testing.T) {
	const script = `
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
group, rank = dist.new_group([0, 1]), dist.get_rank()
dist.all_reduce(torch.ones(1))
if rank == 1: sys.stdin.readline()
if rank < 2: dist.all_reduce(torch.ones(1), group=group)
sys.stdin.read()`
	all := trainOf(t, 3, "newest", "-c", script)
	lane := func(s Snapshot, group uint64) (found Lane, known bool) {
		i := slices.IndexFunc(s.Lanes, func(l Lane) bool { return l.Group == group })
		if i < 0 {
			return Lane{}, false
		}
		return s.Lanes[i], true
	}
	all.until(t, "waiting in the group of two", func(all []Snapshot) bool {
		i := slices.IndexFunc(all[0].Lanes, func(l Lane) bool { return l.Members == 2 && l.Entered > l.Completed })
		if i < 0 || len(all[2].Lanes) == 0 {
			return false
		}
		late, known := lane(all[1], all[0].Lanes[i].Group)
		_, other := lane(all[2], all[0].Lanes[i].Group)
		return known && late.Entered == 0 && !other
	})
	io.WriteString(all.in[1], "\n")
}

// PyTorch's launcher is refused in a worker also where a program calls it as a function, unless that is in a process group already, or one of its own.
func TestLauncherCalled(t *testing.T) {
	const script = `
import sys, torch, torch.distributed as dist
if sys.argv[1] == "group": dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=0, world_size=1)
import torch.distributed.run
torch.distributed.run.main(["--standalone", "--nproc_per_node", "1", "-r", "0", "-t", "0", "--no_python", "echo", "started"])`
	const refused = "muster: PyTorch's launcher, which -c calls, in a worker would start workers in each of the job's 2; let muster start the script itself"
	for _, c := range []struct {
		python, kind, vars string
		refused            bool
	}{
		{"debian", "first", "WORLD_SIZE=2", true}, {"newest", "first", "WORLD_SIZE=2", true}, {"newest", "group", "WORLD_SIZE=2", false},
		{"newest", "first", "WORLD_SIZE=1", false}, {"newest", "first", "WORLD_SIZE=2 MUSTER_BYPASS=1", false},
	} {
		t.Run(c.python+"/"+c.kind+"/"+c.vars, func(t *testing.T) {
			t.Parallel()
			_, path := newPage(t)
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), python(t, c.python), "-c", script, c.kind, filepath.Join(dir, "store"))
			cmd.Env = append(append(os.Environ(), "GLOO_SOCKET_IFNAME=lo", "USE_LIBUV=0", "TORCHELASTIC_ERROR_FILE="+filepath.Join(dir, "error.json")), strings.Fields(c.vars)...)
			for _, v := range Env(unpacked(t), path, os.LookupEnv) {
				cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
			}
			out, err := cmd.CombinedOutput()
			_, missing := os.Stat(filepath.Join(dir, "refused.json"))
			if strings.Contains(string(out), refused) != c.refused || strings.Contains(string(out), "started\n") == c.refused || (missing == nil) != c.refused ||
				c.refused && cmd.ProcessState.ExitCode() != 2 {
				t.Errorf("%v, %v: %s", err, missing, out)
			}
		})
	}
}

// A worker whose processes, started by torch.multiprocessing, are a process group that they alone are tells so, once they train; not one whose processes
// are in a group with another's, or in none. They see nothing of it.
func TestSpawned(t *testing.T) {
	const script = `
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
def work(i, kind, file):
    assert "hook-" not in os.environ.get("PYTHONPATH", "") and "MUSTER_SPAWNED" not in os.environ
    rank = int(os.environ["RANK"])
    if kind == "apart": dist.init_process_group("gloo", init_method="file://" + file, rank=i, world_size=2)
    if kind == "together": dist.init_process_group("gloo", rank=2 * rank + i, world_size=4)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.ones(1, 2)).sum().backward()
        if dist.is_initialized(): dist.all_reduce(model.weight.grad)
        optimizer.step()
if __name__ == "__main__":
    file = "%s-%s" % (sys.argv[2], os.environ["RANK"])
    if sys.argv[1] == "apart":
        context = mp.start_processes(work, args=(sys.argv[1], file), nprocs=2, join=False, start_method="spawn")
        while not context.join(): pass
    else:
        assert mp.spawn(work, (sys.argv[1], file), 2) is None
    assert "hook-" not in os.environ.get("PYTHONPATH", "") and "MUSTER_SPAWNED" not in os.environ
    sys._muster_hook.steps = 99
    sys.stdin.read()
`
	for _, c := range []struct {
		python, kind string
		apart        bool
	}{{"debian", "apart", true}, {"newest", "apart", true}, {"newest", "together", false}, {"debian", "alone", false}} {
		t.Run(c.python+"/"+c.kind, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "main.py")
			if err := os.WriteFile(file, []byte(script), 0o644); err != nil {
				t.Fatal(err)
			}
			r := train(t, c.python, file, c.kind, filepath.Join(dir, "store"))
			for rank, s := range r.until(t, "telling", func(all []Snapshot) bool { return all[0].Optimizer == 99 && all[1].Optimizer == 99 }) {
				if s.Spawned != c.apart || s.Grouped {
					t.Errorf("rank %d: %+v", rank, s)
				}
			}
		})
	}
}

// waiting reports whether two ranks tell that the first is in a collective, and the second between two. Lanes are told of in turns: a rank's
// optimizer may be further than they are.
func waiting(all []Snapshot, recorder bool) bool {
	if all[0].Optimizer != 8 || all[1].Optimizer != 8 || len(all[0].Lanes) == 0 || len(all[1].Lanes) == 0 {
		return false
	}
	waits, late := all[0].Lanes[0], all[1].Lanes[0]
	if recorder { // gloo's threads write to it in whatever order, so that the last but one may be the last that is said to be complete
		return waits.Op != "" && waits.Completed+2 >= waits.Entered && waits.Completed < waits.Entered && late.Completed+1 >= late.Entered && waits.Entered > late.Entered
	}
	waits, late = all[0].Calls, all[1].Calls
	return waits.Op != "" && waits.Completed == waits.Entered-1 && late.Completed == late.Entered && all[0].Lanes[0].Entered > all[1].Lanes[0].Entered
}

// Who waits in a send or receive is told from who is in none, also in a program that does nothing else: recorders know nothing of those.
func TestTransfers(t *testing.T) {
	for _, c := range []struct{ python, kind, op string }{
		{"debian", "pipe", "send"}, // which waits for who receives
		{"debian", "batch", "isend/irecv"},
		{"newest", "pipe", "send"},
		{"newest", "batch", "isend/irecv"},
	} {
		t.Run(c.python+"/"+c.kind, func(t *testing.T) {
			t.Parallel()
			r := train(t, c.python, "testdata/train.py", c.kind)
			all := r.until(t, "waiting", func(all []Snapshot) bool {
				waits, late := all[0].Calls, all[1].Calls
				return all[0].Optimizer == 8 && all[1].Optimizer == 8 && len(all[0].Lanes) > 0 && len(all[1].Lanes) > 0 &&
					waits.Op == c.op && waits.Completed == waits.Entered-1 && late.Completed == late.Entered && late.Entered >= 16
			})
			for rank, s := range all {
				if l := s.Lanes[0]; s.Recorder || !s.Hooks || !l.Mixed || !l.Blind || l.Members != 2 || l.Group != all[0].Lanes[0].Group {
					t.Errorf("rank %d: %+v", rank, s)
				}
			}
			if _, err := io.WriteString(r.in[1], "\n"); err != nil {
				t.Fatal(err)
			}
			r.until(t, "done", func(all []Snapshot) bool { return all[0].Optimizer == 16 && all[1].Optimizer == 16 })
		})
	}
}

// What the recorder holds comes when it is asked for, each time, while the training's own thread waits.
func TestTrace(t *testing.T) {
	for _, which := range []string{"resolute", "newest"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			r := train(t, which, "testdata/train.py", "ddp")
			r.until(t, "waiting", func(all []Snapshot) bool {
				return len(all[0].Lanes) > 0 && all[0].Lanes[0].Entered > all[0].Lanes[0].Completed && all[0].Optimizer == 8
			})
			for range 2 {
				r.trace(t)
			}
			r.traceFails(t)
			r.trace(t)
		})
	}
}

// traceFails has rank 0 fail to answer: the rest that it tells stays as it is.
func (r training) traceFails(t *testing.T) {
	t.Helper()
	path := r.pages[0].name
	if err := os.Mkdir(TraceFile(path)+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := AskTrace(path); err != nil {
		t.Fatal(err)
	}
	began, turns := Snapshot{}, 0
	r.until(t, "two more turns", func(all []Snapshot) bool {
		if all[0].Helper != began.Helper {
			began, turns = all[0], turns+1
		}
		return turns > 3
	})
	if began.Mute != "" {
		t.Errorf("%q: one answer failed", began.Mute)
	}
	if err := os.Remove(TraceFile(path) + ".new"); err != nil {
		t.Fatal(err)
	}
}

// trace asks rank 0, which waits for the other.
func (r training) trace(t *testing.T) {
	t.Helper()
	path, text := r.pages[0].name, ""
	if err := AskTrace(path); err != nil {
		t.Fatal(err)
	}
	if !soon(func() (here bool) {
		var err error
		text, err = Trace(path)
		return err != nil || text != ""
	}) {
		t.Fatal("no answer")
	}
	var held map[string]struct {
		Entries []struct {
			Number int    `json:"collective_seq_id"`
			Name   string `json:"profiling_name"`
		} `json:"entries"`
		Status map[string]struct {
			Entered string `json:"last_enqueued_collective"`
		} `json:"pg_status"`
	}
	if err := json.Unmarshal([]byte(text), &held); err != nil {
		t.Fatalf("%v: %.200s", err, text)
	}
	gloo := held["gloo"]
	if n := len(gloo.Entries); n == 0 || !strings.Contains(gloo.Entries[n-1].Name, "gloo:all") || gloo.Status["0"].Entered != fmt.Sprint(gloo.Entries[n-1].Number) {
		t.Errorf("%+v", gloo)
	}
	if again, err := Trace(path); again != "" || err != nil {
		t.Errorf("what was read is still there: %.80q, %v", again, err)
	}
}

// Of a recording that is too long, the newest entries are left, and it stays JSON.
func TestTraceShortened(t *testing.T) {
	const script = `
import json, sys
sys.path.insert(0, sys.argv[1])
import _muster_hook as h
raw = json.dumps({"entries": [{"collective_seq_id": i, "profiling_name": "x" * 90} for i in range(900)], "pg_status": {"0": 1}}).encode()
for size in (len(raw), 40000, 4000, 60):
    text = h.Recorder("gloo", lambda *_: raw, True).text(size)
    all = json.loads(text) if size > 60 else {}
    ids = [e["collective_seq_id"] for e in all.get("entries", [])]
    print(len(text) <= size, len(ids) + all.get("left_out", 0), ids[-1:], all.get("pg_status"))
`
	out, err := exec.Command(python(t, "debian"), "-c", script, unpacked(t)).CombinedOutput()
	want := "True 900 [899] {'0': 1}\nTrue 900 [899] {'0': 1}\nTrue 900 [899] {'0': 1}\nTrue 0 [] None\n"
	if err != nil || string(out) != want {
		t.Errorf("%v\ngot:\n%s\nwant:\n%s", err, out, want)
	}
}

// What the compiler reads stays in one piece, and is compiled once, with the hook as without.
func TestCompiled(t *testing.T) {
	const script = `
import torch, torch.distributed as dist, os, tempfile
dist.init_process_group("gloo", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
reads = []
def backend(graph, inputs):
    reads.append(len(list(graph.graph.nodes)))
    return graph.forward
@torch.compile(backend=backend)
def step(): optimizer.step()
@torch.compile(backend=backend, fullgraph=True)
def reduce(x):
    dist.all_reduce(x)
    return x * 2
for _ in range(12):
    step()
    reduce(torch.ones(3))
print(reads)
`
	for _, which := range []string{"trixie", "newest"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			out := sameWithHook(t, t.TempDir(), python(t, which), "-c", script)
			t.Log(out)
		})
	}
}

// Sends and receives that the compiler reads are compiled as without the hook, whether or not it makes them a part of its graphs.
func TestCompiledTransfers(t *testing.T) {
	const script = `
import re, sys
import torch, torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
import torch._dynamo.config as config
config.enable_p2p_compilation = sys.argv[1] == "whole"
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
reads = []
def backend(graph, inputs):
    reads.append([re.sub(" at 0x[0-9a-f]+", "", str(n.target)) for n in graph.graph.nodes if n.op == "call_function"])
    return graph.forward
@torch.compile(backend=backend)
def batch(x):
    y = torch.empty_like(x)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1), dist.P2POp(dist.irecv, y, 1)]):
        work.wait()
    return x + y
@torch.compile(backend=backend)
def one(x):
    dist.isend(x * 2, 1).wait()
    return x * 3
for _ in range(4):
    batch(torch.ones(3))
    one(torch.ones(3))
print(reads)
`
	for _, how := range []string{"whole", "broken"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			out := sameWithHook(t, t.TempDir(), python(t, "newest"), "-c", script, how)
			if !strings.Contains(out, "mul") || strings.Contains(out, "isend") != (how == "whole") {
				t.Errorf("it compiled %s", out)
			}
		})
	}
}

// What people have besides a training loop runs as it did, with the real PyTorch: data loaders' processes, forked and spawned, and pytest.
func TestRealPrograms(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		argv   []string
	}{
		"data loaders": {script: `
import torch.utils.data as data
def squares(i): return i * i
class Squares(data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return squares(i)
if __name__ == "__main__":
    for way in "fork", "spawn":
        loader = data.DataLoader(Squares(), batch_size=2, num_workers=2, multiprocessing_context=way)
        print([batch.tolist() for _ in range(2) for batch in loader])
`, argv: []string{"main.py"}},
		"pytest": {script: `
import os, torch
def test_way(): assert "hook" not in os.environ.get("PYTHONPATH", ""), os.environ["PYTHONPATH"]
def test_good(): assert torch.ones(2).sum() == 2
def test_bad():
    x = torch.ones(2)
    assert x.sum() == 3, "twice one is two"
def test_out(capfd):
    os.system("echo out; echo err >&2")
    assert capfd.readouterr() == ("out\n", "err\n")
`, argv: []string{"-m", "pytest", "-q", "-p", "no:cacheprovider", "main.py"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "main.py"), []byte(c.script), 0o644); err != nil {
				t.Fatal(err)
			}
			t.Log(sameWithHook(t, dir, append([]string{python(t, "debian")}, c.argv...)...))
		})
	}
}

// sameWithHook runs a program without the hook and with it, and returns what it printed both times, but for addresses and how long it took.
func sameWithHook(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	hook := unpacked(t)
	p, path := newPage(t)
	differ := regexp.MustCompile(` in [0-9.]+s|0x[0-9a-f]+`)
	var outs []string
	for _, hooked := range []bool{false, true} {
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo", "PYTHONDONTWRITEBYTECODE=1")
		for _, v := range Env(hook, path, os.LookupEnv) {
			if hooked {
				cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
			}
		}
		cmd.Stderr = t.Output()
		out, err := cmd.Output()
		outs = append(outs, differ.ReplaceAllString(fmt.Sprintf("%s%v", out, err), ""))
	}
	if s, err := p.Read(); outs[0] != outs[1] || err != nil || s.Claims != 1 {
		t.Errorf("without: %s\nwith:    %s\n%+v, %v", outs[0], outs[1], s, err)
	}
	return outs[1]
}
