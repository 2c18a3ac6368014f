package launcher

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/proc"
)

// What a worker writes is taken once it is asked for; one that does not answer is not waited for long.
func TestTraceOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page")
	p, err := page.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Remove()
	if err := os.WriteFile(page.TraceFile(path), []byte("of an earlier time"), 0o600); err != nil {
		t.Fatal(err)
	}
	late := errors.New("late")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), traceTime, late)
		defer cancel()
		if text, err := traceOf(ctx, path); text != "" || !errors.Is(err, late) {
			t.Errorf("nobody answers: %q, %v", text, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), traceTime, late)
		defer cancel()
		done := make(chan error, 1)
		time.AfterFunc(3*tracePoll, func() {
			_ = os.WriteFile(path+".new", []byte("{}"), 0o600)
			done <- os.Rename(path+".new", page.TraceFile(path)) // all at once
		})
		if text, err := traceOf(ctx, path); text != "{}" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if _, err := traceOf(t.Context(), path+"-none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a page that is not there: %v", err)
	}
}

// Who asks while somebody else does gets an answer as well.
func TestAskTracesTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page")
	p, err := page.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Remove()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	me, err := proc.Root("/proc").Process(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const asked, hook, recorder = 16, 256, 1 // of the page
	part := binary.LittleEndian.AppendUint32(make([]byte, 8), uint32(me.PID))
	part = binary.LittleEndian.AppendUint32(part, recorder)
	if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(part, me.Start), hook); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := &watch{workers: func() []int { return []int{1} }, pages: pages{p}, over: make([]exited, 1), asking: make(chan struct{}, 1)}
		got := make(chan []trace)
		for range 2 {
			go func() { got <- w.askTraces(t.Context()) }()
		}
		var helper sync.WaitGroup
		defer helper.Wait()
		helper.Go(func() { // a turn each second
			word, last := make([]byte, 8), make([]byte, 8)
			for range 5 {
				if _, err := f.ReadAt(word, asked); err == nil && !bytes.Equal(word, last) {
					copy(last, word)
					_ = os.WriteFile(path+".new", []byte("{}"), 0o600)
					_ = os.Rename(path+".new", page.TraceFile(path)) // all at once
				}
				time.Sleep(time.Second)
			}
		})
		for range 2 {
			if all := <-got; len(all) != 1 || all[0].text != "{}" || all[0].err != nil {
				t.Errorf("%+v", all)
			}
		}
	})
}
