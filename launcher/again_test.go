package launcher

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/store"
)

// A late store answers after a pause.
type late struct {
	*store.Memory
	pause time.Duration
}

func (s *late) Check(ctx context.Context, keys ...string) (bool, error) {
	if err := s.wait(ctx); err != nil {
		return false, err
	}
	return s.Memory.Check(ctx, keys...)
}

func (s *late) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Memory.CompareSet(ctx, key, expected, desired)
}

func (s *late) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.pause):
		return nil
	}
}

// Who stands by hears how the job ended, also when the store is on a machine that is busy: else it would begin the job again.
func TestEndInALateStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := &late{Memory: new(store.Memory)}
		spec := func(name string) job.Spec {
			return job.Spec{ID: "job7", Terms: job.Terms{Nodes: 1, Spares: 1}, Self: job.Node{Name: name, Index: -1, Slots: 1, Incarnation: name}}
		}
		session, err := rendezvous.Join(t.Context(), busy, spec("a"), rendezvous.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			again, err := rendezvous.Join(t.Context(), busy.Memory, spec("b"), rendezvous.Options{})
			if err == nil {
				again.Close()
			}
			ended <- err
		}()
		synctest.Wait()
		busy.pause = 700 * time.Millisecond
		r := &round{c: Config{Log: slog.New(slog.DiscardHandler)}}
		r.tellOver(t.Context(), session, rendezvous.Over{Verdict: &job.Verdict{Class: job.Succeeded, Sentence: "all workers ended well"}}, endTime)
		if err := <-ended; err == nil || VerdictOf(err).Class != job.Succeeded {
			t.Errorf("who stood by ended with %v", err)
		}
	})
}
