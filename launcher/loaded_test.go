package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/job"
)

// mapFile gives this process a library of that name.
func mapFile(t *testing.T, name string) {
	f, err := os.Create(filepath.Join(t.TempDir(), name))
	if err == nil {
		err = f.Truncate(1)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := syscall.Mmap(int(f.Fd()), 0, 1, syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(m) })
}

// Workers that have loaded another framework and have no process group are told of once: late, the later where they have PyTorch, too, and at their end.
func TestLoaded(t *testing.T) {
	mapFile(t, "libpaddle.so")
	me, begin := os.Getpid(), time.Now()
	const said = "the workers of this node have loaded paddle, and none is in a process group of PyTorch's: as --framework torch has it, each of the job's 2 ranks is a training of its own"
	open := func(slots int) *watch {
		return &watch{world: job.World{Members: []job.Member{{Node: job.Node{Slots: slots}}}}, began: begin, loaded: loaded{busy: make(chan struct{}, 1)}, over: []exited{{me, true}, {me, true}}}
	}
	ask := func(w *watch, after time.Duration, pages ...page.Snapshot) string {
		text := w.loads(begin.Add(after), []int{me, me}[:len(pages)], pages)
		w.loaded.busy <- struct{}{} // when it has looked
		<-w.loaded.busy
		return text
	}
	none, torch, met := page.Snapshot{}, page.Snapshot{PID: me}, page.Snapshot{PID: me, Met: true}
	w := open(2)
	if text := ask(w, 2*time.Second, none, none) + ask(w, 31*time.Second, none, none); text != "" {
		t.Errorf("too early: %s", text)
	}
	if text := ask(w, 32*time.Second, none, none); !strings.HasPrefix(text, said) || !strings.HasSuffix(text, "is it to be --framework paddle?") {
		t.Errorf("%q", text)
	}
	if text := ask(w, time.Hour, none, none) + w.loadedAlone(); text != "" {
		t.Errorf("twice: %s", text)
	}
	w = open(2)
	if text := ask(w, 2*time.Second, torch, torch) + ask(w, time.Minute, torch, torch); text != "" {
		t.Errorf("PyTorch is there, too, and may make one: %s", text)
	}
	if text := ask(w, time.Hour, torch, torch); !strings.HasPrefix(text, said) {
		t.Errorf("PyTorch is there, too: %q", text)
	}
	w = open(2)
	if text := ask(w, 2*time.Second, none, met) + ask(w, time.Hour, none, none) + w.loadedAlone(); text != "" {
		t.Errorf("one has met others by PyTorch: %s", text)
	}
	w = open(1)
	if text := ask(w, 2*time.Second, none) + ask(w, time.Hour, none) + w.loadedAlone(); text != "" {
		t.Errorf("a world of one: %s", text)
	}
	w = open(2)
	if ask(w, 2*time.Second, none, none); !strings.HasPrefix(w.loadedAlone(), said) {
		t.Error("all have ended well, and nothing is said")
	}
	w = open(2)
	w.over[1].well = false
	if ask(w, 2*time.Second, none, none); w.loadedAlone() != "" {
		t.Error("one has failed, which is told")
	}
	w = open(2)
	w.loaded.busy = nil
	if text := w.loads(begin.Add(2*time.Second), []int{me, me}, []page.Snapshot{none, none}) + w.loadedAlone(); text != "" {
		t.Errorf("it has the contract of another framework: %s", text)
	}
	if one := loadedBy([]int{me, 1 << 22}, []page.Snapshot{none, none}); one != "" {
		t.Errorf("only one has loaded %s", one)
	}
	mapFile(t, "libtorch_python.so")
	if blind, both := loadedBy([]int{me}, []page.Snapshot{none}), loadedBy([]int{me}, []page.Snapshot{torch}); blind != "" || both != "paddle" {
		t.Errorf("of who has PyTorch, too: %q, and %q where it tells of process groups", blind, both)
	}
	if text := (*watch)(nil).loadedAlone(); text != "" {
		t.Error(text)
	}
}
