package launcher

import (
	"encoding/binary"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/proc"
)

// asked is this process as a worker whose page has flags, and a helper thread that had a turn when turns says; signals are what it gets.
func asked(t *testing.T, flags uint32, turn time.Duration) (w *watch, path string, signals chan os.Signal) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "page")
	p, err := page.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Remove)
	me, err := proc.Root("/proc").Process(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const hook, helper = 256, 304 // of the page
	part := binary.LittleEndian.AppendUint32(make([]byte, 8), uint32(me.PID))
	part = binary.LittleEndian.AppendUint32(part, flags)
	put(t, path, hook, binary.LittleEndian.AppendUint64(part, me.Start))
	put(t, path, helper, binary.LittleEndian.AppendUint64(nil, uint64(turn)))
	signals = make(chan os.Signal, 10)
	signal.Notify(signals, syscall.Signal(page.StackSignal))
	t.Cleanup(func() { signal.Stop(signals) })
	return &watch{workers: func() []int { return []int{1} }, pages: []*page.Page{p}, over: make([]exited, 1), stacks: make([][]string, 1)}, path, signals
}

// Flags of a page.
const ready, tells = 4, 256

func put(t *testing.T, path string, at int64, part []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(part, at); err != nil {
		t.Fatal(err)
	}
}

// replies appends a text to the file of stacks for each that comes, until the test ends.
func replies[T any](t *testing.T, path, text string, each <-chan T) {
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	all.Go(func() {
		for {
			select {
			case <-each:
			case <-t.Context().Done():
				return
			}
			f, err := os.OpenFile(page.StackFile(path), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := f.WriteString(text); err != nil {
				t.Error(err)
			}
			f.Close()
		}
	})
}

// wordsAt sends whenever another word stands on a page, and takes its time as a helper thread does.
func wordsAt(t *testing.T, path string, at int64) <-chan [8]byte {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { all.Wait(); f.Close() })
	c, tick := make(chan [8]byte), time.NewTicker(10*stackPoll)
	all.Go(func() {
		defer tick.Stop()
		for last := [8]byte{}; ; {
			var now [8]byte
			if _, err := f.ReadAt(now[:], at); err != nil {
				t.Error(err)
				return
			}
			if now == last {
				select {
				case <-tick.C:
					continue
				case <-t.Context().Done():
					return
				}
			}
			select {
			case c <- now:
			case <-t.Context().Done():
				return
			}
			last = now
		}
	})
	return c
}

// Of the signal Python may die while threads run: who has turns is asked on its page alone.
func TestAskStacksOfWhoHasTurns(t *testing.T) {
	w, path, signals := asked(t, ready|tells, monotonic()+time.Hour)
	replies(t, path, "line\n", wordsAt(t, path, 24))
	for n := range 3 {
		if got := w.askStacks(t.Context()); got[0] != "line\n" {
			t.Errorf("answer %d: %q", n, got[0])
		}
	}
	if len(signals) > 0 {
		t.Errorf("it got %d signals", len(signals))
	}
}

// Where somebody keeps Python's lock the helper thread has no turn, and nobody runs who could be harmed.
func TestAskStacksOfWhoIsStuck(t *testing.T) {
	w, path, signals := asked(t, ready|tells, 0)
	replies(t, path, "line\n", signals)
	if got := w.askStacks(t.Context()); !strings.HasPrefix(got[0], "line\n") { // more when it was asked twice
		t.Errorf("%q", got[0])
	}
}

// A process that is stopped would answer when it goes on.
func TestWhoIsStoppedIsNotAsked(t *testing.T) {
	cat := exec.Command("cat")
	in, err := cat.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); _ = cat.Wait() }()
	pid := cat.Process.Pid
	p, err := proc.Root("/proc").Process(pid)
	if err != nil {
		t.Fatal(err)
	}
	s := page.Snapshot{PID: pid, Start: p.Start}
	if !moves(s) {
		t.Error("it runs")
	}
	if moves(page.Snapshot{PID: pid, Start: p.Start + 1}) {
		t.Error("it is another process")
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(pid, nil, syscall.WUNTRACED, nil); err != nil {
		t.Fatal(err)
	}
	if moves(s) {
		t.Error("it is stopped")
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !moves(s) {
		t.Error("it goes on")
	}
}

// However often a worker is asked where it is, by two at once as well, all that it writes is had, and its file, which is in memory, does not
// grow for ever.
func TestAskStacksOften(t *testing.T) {
	w, path, signals := asked(t, ready, 0)
	text := strings.Repeat("line\n", maxStack/10)
	replies(t, path, text, signals)
	for range 8 {
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if got := w.askStacks(t.Context()); !strings.HasSuffix(got[0], text) {
					t.Errorf("%d bytes came of %d", len(got[0]), len(text))
				}
			})
		}
		both.Wait()
		if n := size(page.StackFile(path)); n > 5*maxStack {
			t.Errorf("the file has %d bytes", n)
		}
	}
}

// An interpreter that is taking itself apart may die of being asked; one that has been about to end for long stands still.
func TestWhoEndsIsNotAsked(t *testing.T) {
	for what, c := range map[string]struct {
		page page.Snapshot
		want bool
	}{
		"it runs":               {page.Snapshot{Helper: time.Minute}, true},
		"its script is over":    {page.Snapshot{Helper: time.Minute, Over: true}, true},
		"it ends just now":      {page.Snapshot{Helper: time.Minute - lingering, Over: true, Exiting: true}, false},
		"it has ended for long": {page.Snapshot{Helper: time.Minute - lingering - 1, Over: true, Exiting: true}, true},
	} {
		if got := lingers(c.page, time.Minute); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// The signal is for a helper thread that had no turn for long, and none since it was asked.
func TestStuck(t *testing.T) {
	const now = time.Minute
	old := page.Snapshot{PID: 7, Tells: true, Helper: now - turnTime - 1}
	for what, c := range map[string]struct {
		then, is page.Snapshot
		asked    time.Duration
		want     bool
	}{
		"no turn since long":          {old, old, now - sinceAsk - 1, true},
		"it was just asked":           {old, old, now - sinceAsk, false},
		"a turn since":                {old, page.Snapshot{PID: 7, Tells: true, Helper: now - turnTime}, now - sinceAsk - 1, false},
		"the page is another one's":   {old, page.Snapshot{PID: 8, Tells: true, Helper: old.Helper}, now - sinceAsk - 1, false},
		"the page cannot be read":     {old, page.Snapshot{}, now - sinceAsk - 1, false},
		"an older hook":               {page.Snapshot{PID: 7}, page.Snapshot{PID: 7}, now, true},
		"the helper has ended before": {page.Snapshot{PID: 7, Tells: true, Exiting: true}, old, now, true},
	} {
		if got := stuck(c.then, c.is, c.asked, now); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
