package evidence

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// deaths returns all samples of deaths that are known, by a name for each, with their kinds.
func deaths(t *testing.T) map[string][2]string {
	t.Helper()
	out := map[string][2]string{}
	paths, err := filepath.Glob("testdata/real/*/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("no samples", err)
	}
	for _, path := range paths {
		out[path] = [2]string{filepath.Base(filepath.Dir(path)), text(t, path)}
	}
	kind := ""
	for line := range strings.Lines(text(t, "testdata/composed.txt")) {
		line = strings.TrimSuffix(line, "\n")
		switch after, heading := strings.CutPrefix(line, "== "); {
		case heading:
			kind = after
		case !strings.HasPrefix(line, "#"):
			out[line] = [2]string{kind, line}
		}
	}
	return out
}

func text(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// tail is what a worker keeps of its last lines.
func tail(text string) []string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	return lines[max(0, len(lines)-200):]
}

func TestRecogniseDeaths(t *testing.T) {
	for name, d := range deaths(t) {
		s, ok := Recognise("", "", tail(d[1]))
		if !ok || s.Kind != d[0] {
			t.Errorf("%s: %q by %q, want %q", name, s.Kind, s.Line, d[0])
		}
		if s.Consequence != kinds[d[0]].consequence || s.Waited != kinds[d[0]].waited || s.Meaning == "" || s.Hint == "" {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A row that no sample shows is a guess.
func TestEveryRowHasASample(t *testing.T) {
	samples := deaths(t)
	for _, r := range signatures {
		if _, ok := kinds[r.kind]; !ok {
			t.Errorf("%q is of no kind: %q", r.text, r.kind)
		}
		if r.source == "" {
			t.Errorf("%q has no source", r.text)
		}
		if !shown(r, samples) {
			t.Errorf("no sample of %q: %q", r.kind, r.text)
		}
	}
}

func shown(r row, samples map[string][2]string) bool {
	for _, d := range samples {
		for _, line := range tail(d[1]) {
			if d[0] == r.kind && fits(rankPrefix().ReplaceAllString(line, ""), r.text) {
				return true
			}
		}
	}
	return false
}

func TestEveryKindHasARow(t *testing.T) {
	rows := map[string]bool{}
	for _, r := range signatures {
		rows[r.kind] = true
	}
	for kind, k := range kinds {
		if !rows[kind] || k.means == "" || k.do == "" || k.waited && !k.consequence {
			t.Errorf("%s: %+v, row %v", kind, k, rows[kind])
		}
	}
}

func TestRecogniseNothingElse(t *testing.T) {
	paths, err := filepath.Glob("testdata/none/*.txt")
	if err != nil || len(paths) < 2 {
		t.Fatal("no samples", err)
	}
	for _, path := range paths {
		if filepath.Base(path) == "lines.txt" {
			continue
		}
		if s, ok := Recognise("", "", tail(text(t, path))); ok {
			t.Errorf("%s: %+v", path, s)
		}
	}
	lines := tail(text(t, "testdata/none/lines.txt"))
	for _, line := range lines {
		if s, ok := Recognise(line, "", []string{line}); ok {
			t.Errorf("%q: %+v", line, s)
		}
	}
	if s, ok := Recognise("", "", lines); ok {
		t.Errorf("all lines: %+v", s)
	}
	if s, ok := Recognise("", "", nil); ok {
		t.Errorf("nothing at all: %+v", s)
	}
}

// What stands where matters as much as what it says.
func TestRecogniseInContext(t *testing.T) {
	const (
		bad  = "Traceback (most recent call last):\n  File \"t.py\", line 7, in <module>\n    raise ValueError(\"CUDA out of memory.\")\nValueError: bad batch"
		peer = "RuntimeError: [./gloo/transport/tcp/pair.cc:589] Read error [10.0.0.1]:54445: Connection reset by peer"
		oom  = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
	)
	for name, c := range map[string]struct{ exception, tail, want string }{
		"exception alone":                      {oom, "", "gpu-memory"},
		"exception of several lines":           {"RuntimeError: NCCL error: unhandled system error\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 10", "", "gpu-twice"},
		"a full GPU that was dealt with":       {"", oom + "\ntrying again with batch size 8\n" + bad, ""},
		"source code is not what happened":     {"", bad, ""},
		"its own error after a peer's end":     {"", "[W] " + peer + "\n" + strings.Repeat("step\n", 9) + bad, ""},
		"its own error, told by its file":      {"ValueError: bad batch", peer + strings.Repeat("\nstep", 9), ""},
		"a peer's end, then an abort":          {"", peer + strings.Repeat("\nframe #1: abc", 30), "peer-gone"},
		"the last traceback counts":            {"", "Traceback (most recent call last):\n" + oom + "\nskipped\n" + "Traceback (most recent call last):\n" + peer, "peer-gone"},
		"a chain of tracebacks has one root":   {"", "Traceback (most recent call last):\n" + oom + "\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n" + peer, "gpu-memory"},
		"what led to it":                       {"", "Traceback (most recent call last):\n" + oom + "\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\nRuntimeError: step 4", "gpu-memory"},
		"torch's prefix":                       {"", "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"t.py\", line 1\n[rank3]: MemoryError", "memory"},
		"one of an exception group":            {"", "  + Exception Group Traceback (most recent call last):\n  |   File \"t.py\", line 1\n  |     raise OSError(\"PytorchStreamWriter failed writing file\")\n  | ExceptionGroup: two (2 sub-exceptions)\n  +-+---------------- 1 ----------------\n    | Traceback (most recent call last):\n    |   File \"t.py\", line 1\n    | MemoryError\n    +---------------- 2 ----------------\n    | Traceback (most recent call last):\n    |   File \"t.py\", line 2\n    | ValueError: a\n    +------------------------------------", "memory"},
		"a wrapper and what it wraps":          {"", "n0:1:2 [0] init.cc:512 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 10\n" + strings.Repeat("x\n", 9) + "Traceback (most recent call last):\nRuntimeError: NCCL error in: x.cpp:1, unhandled cuda error", "gpu-twice"},
		"a wrapper alone":                      {"", "Traceback (most recent call last):\nRuntimeError: NCCL error in: x.cpp:1, unhandled cuda error", "nccl-cuda"},
		"a wrapper of a peer's end":            {"", "Traceback (most recent call last):\nRuntimeError: NCCL error in: x.cpp:1, unhandled system error\nncclSystemError: System call failed.\nLast error:\nsocketProgress: Connection closed by remote peer n1<41670>", "peer-gone"},
		"the watchdog's abort, far up":         {"", "[rank0]:[E1 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)\n" + strings.Repeat("frame #0: c10\n", 40) + "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG ID 0]\n" + strings.Repeat("frame #0: c10\n", 20), "collective-timeout"},
		"a full disk in a helper, long ago":    {"", "Traceback (most recent call last):\nOSError: [Errno 28] No space left on device\ngoing on without a cache\n" + bad, ""},
		"a chained word without a traceback":   {"", "During handling of the above exception, another exception occurred:\n\n" + bad, ""},
		"only the lines next to the end count": {"", "OSError: [Errno 28] No space left on device" + strings.Repeat("\nstep", 5), ""},
	} {
		var lines []string
		if c.tail != "" {
			lines = tail(c.tail)
		}
		if s, _ := Recognise(c.exception, "", lines); s.Kind != c.want {
			t.Errorf("%s: %q by %q, want %q", name, s.Kind, s.Line, c.want)
		}
	}
}

// What a program printed after the exception that ended it, of what became of the others by then, does not explain that exception, unless it says the same itself.
func TestRecogniseAfterItsEnd(t *testing.T) {
	const (
		bug    = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\", line 7\n[rank1]: ValueError: the real bug"
		source = "Traceback (most recent call last):\n  File \"t.py\", line 7, in <module>\n    f()\nValueError: the real bug"
		jax    = "\nE1128 16:00:01.123456  812 coordination_service_agent.cc:410] Polled an error from coordination service (this can be an error from this or another task).\nF1128 16:00:01.123456  812 client.h:80] Terminating process because the JAX distributed service detected fatal errors."
		nccl   = "\n[rank1]:[E1128 16:00:01.1 ProcessGroupNCCL.cpp:607] NCCL communicator was aborted on rank 1."
		spawn  = "Traceback (most recent call last):\n  File \"t.py\", line 7\ntorch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 1 terminated with the following error:\nTraceback (most recent call last):\n  File \"t.py\", line 9\n"
		exit   = "\nException ignored in atexit callback <function destroy>:\nTraceback (most recent call last):\n  File \"t.py\", line 9\nRuntimeError: [./gloo/transport/tcp/pair.cc:589] Connection closed by peer [10.0.0.1]:54445"
		peer   = "Traceback (most recent call last):\n  File \"t.py\", line 7\ntorch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error, NCCL version 2.29\nncclSystemError: System call failed.\nLast error:\nsocketProgress: Connection closed by remote peer n1<41670>"
	)
	for name, c := range map[string]struct{ ended, tail, want string }{
		"the coordination service's abort": {"ValueError: the real bug", bug + jax, ""},
		"and nobody knows what ended it":   {"", bug + jax, "peer-gone"}, // its source was not to be had: it may stand anywhere
		"but the end of its traceback":     {"", source + jax, ""},
		"and went on":                      {"", source + "\nstep 7" + jax, "peer-gone"},
		"and a collective's exception":     {"", strings.Replace(source, "ValueError", "jaxlib.XlaRuntimeError", 1) + jax, "peer-gone"},
		"a communicator's":                 {"ValueError: the real bug", bug + nccl, ""},
		"a handler of atexit":              {"ValueError: the real bug", bug + exit, ""},
		"its line is cut":                  {"ValueError: the re", bug + nccl, ""},
		"its lines are lost":               {"ValueError: the real bug", strings.TrimPrefix(nccl, "\n"), ""},
		"a peer's end in several lines":    {"torch.distributed.DistBackendError: NCCL error in: x.cpp:1", peer + nccl, "peer-gone"},
		"another process's traceback":      {"torch.multiprocessing.spawn.ProcessRaisedException: ", spawn + "RuntimeError: [./gloo/transport/tcp/pair.cc:589] Connection closed by peer [10.0.0.1]:54445", "peer-gone"},
		"and its full GPU":                 {"torch.multiprocessing.spawn.ProcessRaisedException: ", spawn + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "gpu-memory"},
		"a line of another thread's in it": {"torch.distributed.DistBackendError: NCCL error in: x.cpp:1", strings.Replace(peer, "\nLast", "\nn0:12:34 [0] NCCL INFO comm 0x1 rank 0\nLast", 1), "peer-gone"},
		"JAX's, in whatever words":         {"jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to complete all kernels", strings.Replace(source, "ValueError: the real bug", "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to complete all kernels", 1) + jax, "peer-gone"},
		"a TimeoutError, and no page":      {"", strings.Replace(source, "ValueError", "TimeoutError", 1) + jax, "peer-gone"},
		"its RuntimeError":                 {"RuntimeError: the real bug", strings.Replace(bug, "ValueError", "RuntimeError", 1) + jax, ""},
		"without its module":               {"torch.own.Error: the", strings.Replace(bug, "ValueError", "Error", 1) + exit, ""},
		"with a tab":                       {"ValueError: the?real bug?", strings.Replace(bug, "the real", "the\treal", 1) + exit, ""},
		"and a crash in its own":           {"ValueError: the real bug", bug + "\ndouble free or corruption (!prev)", "heap"},
	} {
		if s, _ := Recognise("", c.ended, tail(c.tail)); s.Kind != c.want {
			t.Errorf("%s: %q by %q, want %q", name, s.Kind, s.Line, c.want)
		}
	}
}

func TestFits(t *testing.T) {
	for _, c := range []struct {
		line, text string
		want       bool
	}{
		{"abc", "b", true}, {"abc", "^b", false}, {"abc", "^a…c", true}, {"abc", "c…a", false}, {"aba", "a…a", true}, {"a", "a…a", false}, {"", "a", false},
		{"abc", "^abc$", true}, {"abcd", "^abc$", false},
	} {
		if fits(c.line, c.text) != c.want {
			t.Errorf("%q, %q: not %v", c.line, c.text, c.want)
		}
	}
}

func BenchmarkRecognise(b *testing.B) {
	lines := strings.Split(strings.Repeat("step 12 of 400: loss 1.234, 812 samples per second, all is well\n", 200), "\n")
	for b.Loop() {
		Recognise("ValueError: bad batch", "", lines)
	}
}

// docs/causes.md says what is said.
func TestCausesAreDocumented(t *testing.T) {
	doc := text(t, "../docs/causes.md")
	for kind, k := range kinds {
		if row := "| `" + kind + "` | " + k.means + " | " + k.do + " |\n"; !strings.Contains(doc, row) {
			t.Errorf("docs/causes.md lacks %s", row)
		}
	}
	if rows := strings.Count(doc, "\n| `"); rows != len(kinds) {
		t.Errorf("docs/causes.md has %d kinds, there are %d", rows, len(kinds))
	}
}

// What it says it failed of is in those lines alone.
func TestOwn(t *testing.T) {
	lines := strings.Split("Traceback (most recent call last):\n  a\n[rank0]: ValueError: bad batch\nof two lines\nException ignored in atexit callback:\nTraceback (most recent call last):\n  b\nRuntimeError: y", "\n")
	for ended, want := range map[string]int{"": 8, "ValueError: bad": 4, "ValueError?bad batch?": 4, "KeyError: 1": 8} {
		if own, known := Own(ended, lines); len(own) != want || known != (want == 4) {
			t.Errorf("%q: %q, %v", ended, own, known)
		}
	}
}
