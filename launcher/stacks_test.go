package launcher

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/proc"
)

// However often a worker is asked where it is, by two at once as well, all that it writes is had, and its file, which is in memory, does not
// grow for ever.
func TestAskStacksOften(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page")
	p, err := page.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Remove()
	me, err := proc.Root("/proc").Process(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const hook, ready = 256, 4 // of the page
	part := binary.LittleEndian.AppendUint32(make([]byte, 8), uint32(me.PID))
	part = binary.LittleEndian.AppendUint32(part, ready)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(part, me.Start), hook); err != nil {
		t.Fatal(err)
	}
	stacks, err := os.OpenFile(page.StackFile(path), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer stacks.Close()
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.Signal(page.StackSignal))
	defer close(asked)
	defer signal.Stop(asked)
	text := bytes.Repeat([]byte("line\n"), maxStack/10)
	go func() {
		for range asked {
			_, _ = stacks.Write(text) // of which the test hears
		}
	}()
	w := &watch{workers: func() []int { return []int{1} }, pages: pages{p}, over: make([]exited, 1), stacks: make([][]string, 1)}
	for range 8 {
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if got := w.askStacks(t.Context()); !strings.HasSuffix(got[0], string(text)) {
					t.Errorf("%d bytes came of %d", len(got[0]), len(text))
				}
			})
		}
		both.Wait()
		if n := size(page.StackFile(path)); n > 3*maxStack {
			t.Errorf("the file has %d bytes", n)
		}
	}
}
