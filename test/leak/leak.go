// Package leak runs a package's tests and looks at what they leave: no goroutine, and no descriptor, that was not there before.
//
// A test that fails may leave anything. What ends soon of itself is waited for; who waits is not told by the clock, but by what is left.
package leak

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// Main runs tests, and ends the process: with an error also if they leave something.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main for who has to clear up after the tests. Everything that is there when it is called, may be there afterwards.
func Run(m *testing.M) (code int) {
	before := look()
	if code = m.Run(); code != 0 || fuzzes() {
		return code
	}
	if left := before.wait(patience); left != "" {
		fmt.Printf("the tests left behind, in %s:\n%s", os.Args[0], left)
		return 1
	}
	return code
}

// fuzzes reports whether the fuzzing engine ran, which leaves its own.
func fuzzes() bool {
	for _, name := range []string{"test.fuzz", "test.fuzzworker"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" && f.Value.String() != "false" {
			return true
		}
	}
	return false
}

// patience is for what is about to end on a busy machine. Only who leaks waits so long.
const patience = time.Minute

// A state is what there is, by what it is known by: goroutines by their numbers, with their stacks; descriptors by theirs and what they are of.
type state map[string]string

func look() state {
	if r, w, err := os.Pipe(); err == nil { // Go's poller has descriptors from the first use on
		r.Close()
		w.Close()
	}
	all := state{}
	all.goroutines()
	all.descriptors()
	return all
}

// own are goroutines that the process has for good when it had them once.
var own = []string{"os/signal.loop(", "os/signal.signal_recv("}

// goroutines adds all but this one.
func (s state) goroutines() {
	stacks := make([]byte, 1<<20)
	n := runtime.Stack(stacks, true)
	for n == len(stacks) {
		stacks = make([]byte, 2*len(stacks))
		n = runtime.Stack(stacks, true)
	}
	for _, stack := range strings.Split(strings.TrimSpace(string(stacks[:n])), "\n\n")[1:] { // the first is this one
		number, _, _ := strings.Cut(stack, " [")
		if !slices.ContainsFunc(own, func(f string) bool { return strings.Contains(stack, f) }) {
			s[number] = stack + "\n"
		}
	}
}

// descriptors adds all but the one by which they are read.
func (s state) descriptors() {
	const dir = "/proc/self/fd"
	names, _ := filepath.Glob(dir + "/*")
	for _, name := range names {
		if target, err := os.Readlink(name); err == nil {
			d := "descriptor " + filepath.Base(name) + ": " + target
			s[d] = d
		}
	}
}

// wait returns what is there now and was not before, after it had that much time to go.
func (before state) wait(patience time.Duration) string {
	end, pause := time.Now().Add(patience), time.Millisecond
	for {
		left := before.left()
		if left == "" || time.Now().After(end) {
			return left
		}
		time.Sleep(pause)
		pause = min(2*pause, 100*time.Millisecond)
	}
}

func (before state) left() string {
	now := look()
	maps.DeleteFunc(now, func(known, _ string) bool { return before[known] != "" })
	var b strings.Builder
	for _, known := range slices.Sorted(maps.Keys(now)) {
		fmt.Fprintln(&b, now[known])
	}
	return b.String()
}
