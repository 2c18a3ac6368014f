package rendezvous

import (
	"bytes"
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/muster-run/muster/rendezvous/store"
)

// A shared is a store in memory, with the verbs that a meeting uses. It counts what it is asked.
type shared struct {
	store.Store // the verbs that are not used
	mu          sync.Mutex
	keys        map[string][]byte
	changed     chan struct{}
	calls       atomic.Int64
	torn        atomic.Int64 // so many of the next changes take effect and report a broken connection
}

func newShared() *shared {
	return &shared{keys: map[string][]byte{}, changed: make(chan struct{})}
}

func (s *shared) update(change func()) {
	s.calls.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *shared) tear() error {
	if s.torn.Add(-1) >= 0 {
		return store.ErrUncertain
	}
	s.torn.Store(0)
	return nil
}

func (s *shared) Set(ctx context.Context, key string, value []byte) error {
	s.update(func() { s.keys[key] = value })
	return nil
}

func (s *shared) CompareSet(ctx context.Context, key string, expected, desired []byte) (got []byte, err error) {
	s.calls.Add(1)
	s.mu.Lock()
	have, found := s.keys[key]
	s.mu.Unlock()
	if found && !bytes.Equal(have, expected) {
		return have, ctx.Err()
	}
	if !found && len(expected) > 0 {
		return expected, ctx.Err()
	}
	s.update(func() {
		if now, found := s.keys[key]; !found || bytes.Equal(now, expected) {
			s.keys[key] = desired
		}
		got = s.keys[key]
	})
	return got, s.tear()
}

func (s *shared) Add(ctx context.Context, key string, delta int64) (sum int64, err error) {
	s.update(func() {
		sum, _ = strconv.ParseInt(string(s.keys[key]), 10, 64)
		sum += delta
		s.keys[key] = strconv.AppendInt(nil, sum, 10)
	})
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return sum, s.tear()
}

func (s *shared) Get(ctx context.Context, key string) ([]byte, error) {
	values, err := s.MultiGet(ctx, key)
	if err != nil {
		return nil, err
	}
	return values[0], nil
}

func (s *shared) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	s.calls.Add(1)
	for {
		s.mu.Lock()
		values, changed := s.find(keys), s.changed
		s.mu.Unlock()
		if values != nil {
			return values, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *shared) find(keys []string) [][]byte {
	values := make([][]byte, len(keys))
	for i, k := range keys {
		v, found := s.keys[k]
		if !found {
			return nil
		}
		values[i] = v
	}
	return values
}
