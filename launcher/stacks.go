package launcher

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/muster-run/muster/evidence"
	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/proc"
)

// Times in which a worker writes where its threads are.
const (
	turnTime  = 3 * time.Second // in which a helper thread has a turn that can have one; it has one each second
	sinceAsk  = 2 * time.Second // of that, from when it is asked: it may have been the process that had no turn
	stackTime = 5 * time.Second // for the answer to the signal, on a machine that is busy, too
	stackAsk  = time.Second / 2 // until it is sent once more
	stackPoll = 20 * time.Millisecond
	maxStack  = 256 << 10 // bytes that are read of them
	maxLines  = 8         // of the telling thread that are kept
)

// askStacks lets each worker of this node that can write where its threads are, and keeps the telling lines.
func (w *watch) askStacks(ctx context.Context) []string {
	pids, _ := w.living()
	texts := make([]string, len(pids))
	w.dropStacks()
	w.stacking.RLock()
	defer w.stacking.RUnlock()
	var all sync.WaitGroup
	for local, pid := range pids {
		if pid == 0 {
			continue
		}
		all.Go(func() {
			texts[local] = w.stack(ctx, local)
			lines := evidence.Place(evidence.Stacks(texts[local]), maxLines)
			if texts[local] == "" { // what it said before still tells most
				return
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.stacks[local] = lines
		})
	}
	all.Wait()
	return texts
}

// dropStacks empties the files of those who were asked often, for they are in memory, unless somebody reads one just now.
func (w *watch) dropStacks() {
	if !w.stacking.TryLock() {
		return
	}
	defer w.stacking.Unlock()
	for _, p := range w.pages {
		if p != nil && size(page.StackFile(p.Path())) > maxStack {
			_ = page.DropStacks(p.Path())
		}
	}
}

// stack is what a worker writes of its threads; "": it cannot, or does not in time. Its helper thread writes it without harm. The signal, of
// which Python may die while threads run, is for who keeps Python's lock, so that the helper gets no turn, and nobody else runs either.
func (w *watch) stack(ctx context.Context, local int) string {
	s := w.read(local)
	if !s.StackReady && !s.Tells || !lingers(s, monotonic()) || !moves(s) {
		return ""
	}
	file := page.StackFile(w.pages[local].Path())
	before := size(file)
	if s.Tells {
		_ = page.AskStacks(w.pages[local].Path()) // else the helper does not answer
	}
	asked, limit, sent, next := monotonic(), time.After(turnTime+stackTime), 0, time.Duration(0)
	for last := before; ; {
		select {
		case <-ctx.Done():
			return ""
		case <-limit:
			return tail(file, before)
		case <-time.After(stackPoll):
		}
		size, now := size(file), monotonic()
		if size > before && size == last || !moves(s) {
			return tail(file, before)
		}
		// A main thread in state D keeps the signal and does not handle it; a second one goes to another thread.
		if size == before && sent < 2 && now >= next && stuck(s, w.read(local), asked, now) && catches(s) && syscall.Kill(s.PID, page.StackSignal) == nil {
			sent, next = sent+1, now+stackAsk
		}
		last = size
	}
}

// stuck reports whether a worker's helper thread, which was asked a while ago, has had no turn since, nor long before, as where somebody keeps Python's
// lock; or cannot be asked.
func stuck(then, is page.Snapshot, asked, now time.Duration) bool {
	return !then.Tells || then.Exiting || is.PID == then.PID && is.Helper == then.Helper && now-is.Helper > turnTime && now-asked > sinceAsk
}

// lingering is how long an interpreter has been about to end that does not end just now.
const lingering = 5 * time.Second

// lingers reports whether a process can be asked without harm: an interpreter that takes itself apart may die of the question.
func lingers(s page.Snapshot, now time.Duration) bool { return !s.Exiting || now-s.Helper > lingering }

// moves reports whether the process that wrote a page lives, and is not stopped: the signal would wait for it to be continued, when all its
// threads run at once.
func moves(s page.Snapshot) bool {
	p, err := proc.Root("/proc").Process(s.PID)
	return err == nil && p.Start == s.Start && !strings.ContainsRune("TtZX", rune(p.State))
}

// catches reports whether the process that wrote a page does not die of the signal.
func catches(s page.Snapshot) bool {
	if !s.StackReady || !moves(s) {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID))
	return err == nil && page.Catches(string(status))
}

func size(file string) int64 {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return info.Size()
}

// tail is what stands in a file behind an offset, as far as it is read.
func tail(file string, from int64) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	buf := make([]byte, maxStack)
	n, _ := f.ReadAt(buf, from)
	return string(buf[:n])
}
