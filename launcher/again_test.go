package launcher

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/rendezvous"
	"github.com/muster-run/muster/rendezvous/store"
	"github.com/muster-run/muster/rendezvous/tcpstore"
)

// A late store answers after a pause.
type late struct {
	*store.Memory
	pause atomic.Int64 // nanoseconds
	says  atomic.Value // error, instead
	gone  atomic.Value // func() that hears of it, and there is no answer
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
	if err, ok := s.says.Load().(error); ok {
		return err
	}
	if gone, ok := s.gone.Load().(func()); ok {
		gone()
		<-ctx.Done()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(s.pause.Load())):
		return nil
	}
}

// Who stands by hears how the job ended, also when the store is on a machine that is busy, or away for a while: else it would begin the job again. The
// leader waits for the store no longer than it is needed, or has time.
func TestEndInALateStore(t *testing.T) {
	const gone = -1
	for name, c := range map[string]struct {
		pause time.Duration // of the store, before each of two answers
		known bool          // that somebody waits, to the leader
		etcd  bool          // keeps it
		says  string        // it does, instead
		asked time.Duration // before the end this node was told to stop; 0: it was not
		after time.Duration // the leader ends,
		heard bool          // and who waits knows how the job ended
		said  []string      // by it
	}{
		"busy":               {700 * time.Millisecond, false, false, "", 0, 1400 * time.Millisecond, true, nil},
		"busy, one waits":    {700 * time.Millisecond, true, false, "", 0, 1400 * time.Millisecond, true, nil},
		"away, nobody waits": {8 * time.Second, false, false, "", 0, endTime, false, nil},
		"gone, nobody waits": {gone, false, false, "", 0, 0, false, nil},
		"gone, one waits":    {gone, true, false, "", time.Minute, endTime, false, nil},
		"away, one waits": {8 * time.Second, true, false, "", 0, 16 * time.Second, true, []string{
			"1 node waits to hear how the job ended, and the store at h0:1 is away: no answer; this node tries for 14s more to tell it", "the store answers again, and how the job ended was said there"}},
		"away, one may wait": {8 * time.Second, false, true, "", 0, 16 * time.Second, true, []string{"nodes may wait to hear how the job ended", "the store answers again"}},
		"refuses":            {0, false, true, "authentication failed", 0, endTime, false, []string{"how the job ended was not said in the store at h0:1: rendezvous: end generation 1: set over: etcd: authentication failed; who waits"}},
		"away for long": {12 * time.Second, true, false, "", 0, lateEndTime, false, []string{
			"1 node waits to hear", "how the job ended was not said in the store at h0:1: it is away: no answer; who waits there may begin it again"}},
		"told to stop":          {12 * time.Second, true, false, "", 18 * time.Second, 7 * time.Second, false, []string{"for 1s more", "how the job ended was not said"}},
		"told to stop long ago": {12 * time.Second, true, false, "", time.Minute, endTime, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				busy, told := &late{Memory: new(store.Memory)}, make(said, 10)
				spec := func(name string) job.Spec {
					return job.Spec{ID: "job7", Terms: job.Terms{Nodes: 1, Spares: 1}, Self: job.Node{Name: name, Index: -1, Slots: 1, Incarnation: name}}
				}
				session, err := rendezvous.Join(t.Context(), busy, spec("a"), rendezvous.Options{})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() {
					again, err := rendezvous.Join(ctx, busy.Memory, spec("b"), rendezvous.Options{Lives: func(context.Context, job.Node) bool { return true }})
					if err == nil {
						again.Close()
					}
					ended <- err
				}()
				synctest.Wait()
				if c.known {
					time.Sleep(3 * time.Second) // it looks each second
				}
				busy.pause.Store(int64(c.pause))
				if c.says != "" {
					busy.says.Store(errors.New("etcd: " + c.says))
				}
				r := &round{c: Config{Log: slog.New(slog.NewTextHandler(told, nil))}, session: session, desk: &desk{}, meeting: &meeting{port: "h0:1"},
					policy: policy{Grace: 25 * time.Second}, state: state{Verdict: &job.Verdict{Class: job.Succeeded, Sentence: "all workers ended well"}}}
				if c.etcd {
					r.plan = Plan{Etcd: []string{"h0:1"}, Spec: spec("a")}
				}
				if c.pause == gone {
					busy.gone.Store(func() { r.meeting.missed(tcpstore.Attempt{Err: syscall.ECONNREFUSED}) })
				}
				begun := time.Now()
				if c.asked > 0 {
					r.told = begun.Add(-c.asked)
				}
				if err := r.tellEnd(t.Context()); err != nil {
					t.Error(err)
				}
				if after := time.Since(begun); after != c.after {
					t.Errorf("it took %v, want %v", after, c.after)
				}
				time.AfterFunc(2*time.Second, cancel)
				if err := <-ended; (VerdictOf(err).Class == job.Succeeded) != c.heard {
					t.Errorf("who stood by ended with %v", err)
				}
				close(told)
				var lines []string
				for line := range told {
					lines = append(lines, line)
				}
				if !slices.EqualFunc(lines, c.said, strings.Contains) {
					t.Errorf("it said %q, want %q", lines, c.said)
				}
			})
		})
	}
}
