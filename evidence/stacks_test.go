package evidence

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-run/muster/test/golden"
)

// Dumps of real trainings with PyTorch 1.13, 2.6 and 2.14, and of one without.
func TestStacks(t *testing.T) {
	names, err := filepath.Glob("testdata/stacks/*.txt")
	if err != nil || len(names) < 8 {
		t.Fatal(names, err)
	}
	var all strings.Builder
	for _, name := range names {
		threads := Stacks(text(t, name))
		main, ok := Main(threads)
		fmt.Fprintf(&all, "%s: %d threads, main %s %q %v\n", filepath.Base(name), len(threads), main.ID, main.Name, ok)
		for _, line := range Place(threads, 4) {
			fmt.Fprintf(&all, "\t%s\n", line)
		}
		for _, thread := range threads {
			fmt.Fprintf(&all, "\t%q current %v: %d frames, %v\n", thread.Name, thread.Current, len(thread.Frames), thread.Telling())
		}
	}
	golden.File(t, "testdata/stacks/want", all.String())
}

// Several dumps in one file, cut off anywhere: the last one counts that tells of the main thread. That is not the one that handled
// the signal if it sleeps in the kernel.
func TestStacksOfSeveralDumps(t *testing.T) {
	old := text(t, "testdata/stacks/python-3.14-backward.txt")
	now := strings.NewReplacer("Thread 0x00007fc6de0296c0", "Current thread 0x00007fc6de0296c0", "Current thread", "Thread").
		Replace(text(t, "testdata/stacks/python-3.14-dataset.txt"))
	again := strings.NewReplacer("00007fbf", "00007fc6").Replace(old)
	for _, c := range []struct{ text, want string }{
		{old + now, "[dataset.py:10 load]"}, // of another process: none of its threads is there twice
		{now + now, "[dataset.py:10 load]"},
		{now + now[:len(now)/2], "[dataset.py:10 load]"},
		{old + old[:60], "[train.py:14 train]"},
		{again + again[:400], "[train.py:14 train]"},
		{now[:100], "[]"},
		{"Thread 0x1 (most recent call first):\n  File ???, line ??? in ???\n  File \"a.py\", line 3 in <module>\n", "[a.py:3 <module>]"},
		{"  File \"a.py\", line 3 in <module>\n", "[]"},
		{"", "[]"},
	} {
		if got := fmt.Sprint(Place(Stacks(c.text), 1)); got != c.want {
			t.Errorf("%.200q: %s, want %s", c.text, got, c.want)
		}
	}
}

func TestTelling(t *testing.T) {
	frames := func(files ...string) Thread {
		var t Thread
		for i, file := range files {
			t.Frames = append(t.Frames, Frame{file, i + 1, "f"})
		}
		return t
	}
	for _, c := range []struct {
		want  string
		files []string
	}{
		{"dataset.py:3 f", []string{"/usr/lib/python3.11/json/decoder.py", "/v/lib/python3.11/site-packages/PIL/Image.py", "/w/dataset.py", "/w/train.py"}},
		{"train.py:4 f", []string{"/tmp/torchinductor_ann/ab/cab.py", "<eval_with_key>.7", "/run/muster/hook-3f/_muster_hook.py", "/w/train.py"}},
		{"datasets/arrow.py:2 f", []string{"/v/lib/python3.11/site-packages/torch/utils/data/fetch.py", "/v/lib/python3.11/site-packages/datasets/arrow.py", "<frozen runpy>"}},
		{"selectors.py:1 f", []string{"/opt/conda/lib/python3.14t/selectors.py", "/opt/conda/lib/python3.14t/site-packages/torch/x.py", "<frozen runpy>"}},
		{"zipfile.py:1 f", []string{"/usr/lib/python311.zip/zipfile.py"}},
		{":0 ", nil},
	} {
		if got := frames(c.files...).Telling().String(); got != c.want {
			t.Errorf("%q: %s, want %s", c.files, got, c.want)
		}
	}
}

func FuzzStacks(f *testing.F) {
	f.Add("Thread 0x1 [a] (most recent call first):\n  File \"a.py\", line 3 in <module>\n")
	f.Fuzz(func(t *testing.T, text string) {
		threads := Stacks(text)
		if got := Place(threads, 3); len(threads) > maxThreads || len(got) > 3 {
			t.Errorf("%d threads, %q", len(threads), got)
		}
	})
}
