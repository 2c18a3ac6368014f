package launcher

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/muster-run/muster/heartbeat/page"
)

// A trace is what the flight recorders of a worker hold, or why it did not say. A worker without a recorder has neither.
type trace struct {
	text string
	err  error
}

// Times in which a worker's helper thread answers: it has a turn each second, and PyTorch takes 0.1 s to write down 2000 entries.
const (
	traceTime = 3 * time.Second
	tracePoll = 50 * time.Millisecond
)

// askTraces lets each worker of this node that has a recorder write down what that holds. Who asks second waits for the first: both would
// take the same file.
func (w *watch) askTraces(ctx context.Context) []trace {
	pids, _ := w.living()
	traces := make([]trace, len(pids))
	select {
	case w.asking <- struct{}{}:
		defer func() { <-w.asking }()
	case <-ctx.Done():
		return traces
	}
	ctx, cancel := context.WithTimeoutCause(ctx, traceTime, errors.New("its helper thread does not answer; somebody may hold Python's lock"))
	defer cancel()
	var all sync.WaitGroup
	for local, pid := range pids {
		if s := w.told(local); pid != 0 && s.Recorder && !s.Exiting {
			all.Go(func() { traces[local].text, traces[local].err = traceOf(ctx, w.pages[local].Path()) })
		}
	}
	all.Wait()
	return traces
}

// traceOf asks the worker with a page, and waits for the answer.
func traceOf(ctx context.Context, path string) (string, error) {
	if err := page.AskTrace(path); err != nil {
		return "", err
	}
	for {
		if text, err := page.Trace(path); text != "" || err != nil {
			return text, err
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(tracePoll):
		}
	}
}
