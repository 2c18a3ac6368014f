package launcher

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/heartbeat/page"
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
		time.AfterFunc(3*tracePoll, func() { done <- os.WriteFile(page.TraceFile(path), []byte("{}"), 0o600) })
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
