package evidence

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/lazy"
)

// A Thread is one of a Python process's threads as faulthandler tells it, and the hook in its words.
type Thread struct {
	ID      string  `json:"id"`                // hexadecimal
	Name    string  `json:"name,omitempty"`    // by the hook; by faulthandler from Python 3.14 on
	Current bool    `json:"current,omitempty"` // it handled the signal; that need not be the main one
	Frames  []Frame `json:"frames,omitempty"`  // the innermost first; none: it runs no Python
}

// A Frame is a line of Python code that is being run.
type Frame struct {
	File string `json:"file"`
	Line int    `json:"line"` // 0: not known
	Func string `json:"func"`
}

// Bounds of what Stacks keeps. faulthandler itself stops at 100 threads and at 100 frames of each.
const (
	maxThreads = 1000
	maxFrames  = 200
)

// Lines of Python/traceback.c. The name of a thread stands there since 3.14; a line that is not known is "???".
var (
	threadLine = lazy.Regexp(`^(Current thread|Thread) 0x([0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):$`)
	frameLine  = lazy.Regexp(`^  File (?:"(.*)"|\?\?\?), line (\d+|\?\?\?) in (.*)$`)
)

// Stacks reads what Python's faulthandler wrote of all threads, or the hook. If it wrote several times, the last time counts in which the main
// thread is told of. Lines that are not known are passed over: the text may have been cut off.
func Stacks(text string) []Thread {
	var best, dump []Thread
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if m := threadLine().FindStringSubmatch(line); m != nil {
			t := Thread{ID: m[2], Name: m[3], Current: m[1] != "Thread"}
			if slices.ContainsFunc(dump, func(seen Thread) bool { return seen.ID == t.ID }) {
				best, dump = better(best, dump), nil
			}
			if len(dump) < maxThreads {
				dump = append(dump, t)
			}
		}
		if m := frameLine().FindStringSubmatch(line); m != nil && len(dump) > 0 {
			number, _ := strconv.Atoi(m[2])
			if t := &dump[len(dump)-1]; len(t.Frames) < maxFrames {
				t.Frames = append(t.Frames, Frame{m[1], number, m[3]})
			}
		}
	}
	return better(best, dump)
}

func better(before, now []Thread) []Thread {
	if _, ok := running(now); !ok && len(before) > 0 {
		return before
	}
	return now
}

// Main returns the thread that runs the script, or has run it. It is the oldest and so told of last, if there are no more than 100; a dump is often
// written by another one, for the main thread of a process in state D cannot handle a signal.
func Main(threads []Thread) (Thread, bool) {
	if t, ok := running(threads); ok {
		return t, true
	}
	return last(threads)
}

// running returns the thread that runs the script.
func running(threads []Thread) (Thread, bool) {
	for _, t := range slices.Backward(threads) {
		if len(t.Frames) == 0 {
			continue
		}
		if first := t.Frames[len(t.Frames)-1]; first.Func == "<module>" || first.File == "<frozen runpy>" || strings.HasSuffix(first.File, "/runpy.py") {
			return t, true
		}
	}
	return Thread{}, false
}

// most is how many threads faulthandler tells of.
const most = 100

// last returns the oldest thread, if all are told of and it is none that Python or the hook started: the main one's script is over, and the
// interpreter calls what is to be done at the end.
func last(threads []Thread) (Thread, bool) {
	if len(threads) == 0 || len(threads) >= most {
		return Thread{}, false
	}
	t := threads[len(threads)-1]
	if len(t.Frames) == 0 {
		return t, false
	}
	first := t.Frames[len(t.Frames)-1]
	return t, first.Func != "_bootstrap" && !strings.HasSuffix(first.File, "/_muster_hook.py")
}

// Place says where a Python process is, by its main thread: first the line that tells most, which is the innermost of the user's own
// code, then all from the innermost on, at most as many lines as asked for. Without a main thread it is empty.
func Place(threads []Thread, lines int) (place []string) {
	main, ok := Main(threads)
	if !ok || lines < 1 {
		return nil
	}
	telling := main.Telling()
	if first := main.Frames[len(main.Frames)-1]; first.Func == "_shutdown" && strings.HasSuffix(first.File, "/threading.py") {
		telling = awaited(threads, telling)
	}
	place = append(place, telling.String())
	for _, f := range main.Frames {
		if f != telling && len(place) < lines {
			place = append(place, f.String())
		}
	}
	return place
}

// awaited is where a thread is for which the interpreter may wait before it ends: the oldest in the user's own code, if there is any.
func awaited(threads []Thread, main Frame) Frame {
	for _, t := range slices.Backward(threads) {
		if i := slices.IndexFunc(t.Frames, Frame.own); i >= 0 {
			return t.Frames[i]
		}
	}
	return main
}

// Telling returns the innermost frame of the user's own code; if there is none, of a package that is neither Python's own nor PyTorch;
// else the innermost of all. A thread without frames has none.
func (t Thread) Telling() Frame {
	for _, is := range []func(Frame) bool{Frame.own, func(f Frame) bool { return f.installed() && !f.torch() }, func(Frame) bool { return true }} {
		if i := slices.IndexFunc(t.Frames, is); i >= 0 {
			return t.Frames[i]
		}
	}
	return Frame{}
}

// String is the frame for people: "dataset.py:88 __getitem__"; of a package, "torch/autograd/graph.py:1072 _engine_run_backward".
func (f Frame) String() string {
	file := f.File
	if _, inside, ok := f.library(); ok {
		file = inside
	} else if i := strings.LastIndexByte(file, '/'); i >= 0 {
		file = file[i+1:]
	}
	return fmt.Sprintf("%s:%d %s", file, f.Line, f.Func)
}

var libraries = lazy.Regexp(`^.*/((?:site|dist)-packages|lib(?:64)?/python\d[\d.]*t?|python\d+\.zip)/`)

// library parts the path of a file that was installed: the directory of packages, and the path in it.
func (f Frame) library() (dir, inside string, ok bool) {
	at := libraries().FindStringIndex(f.File)
	if at == nil {
		return "", "", false
	}
	return f.File[:at[1]], f.File[at[1]:], true
}

// own reports whether the code is the user's: neither installed, nor generated, nor muster's hook.
func (f Frame) own() bool {
	_, _, installed := f.library()
	return !installed && f.File != "" && !strings.HasPrefix(f.File, "<") &&
		!strings.Contains(f.File, "/torchinductor_") && !strings.HasSuffix(f.File, "/_muster_hook.py")
}

// installed reports whether the code is of a package that somebody installed, not Python's own.
func (f Frame) installed() bool {
	dir, _, _ := f.library()
	return strings.HasSuffix(dir, "-packages/")
}

func (f Frame) torch() bool {
	_, inside, _ := f.library()
	return strings.HasPrefix(inside, "torch/")
}
