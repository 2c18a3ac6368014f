package rendezvous

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/muster-run/muster/rendezvous/store"
)

// A shared is a store in memory that counts what it is asked, and whose connections break on demand.
type shared struct {
	*store.Memory
	calls atomic.Int64
	torn  atomic.Int64 // so many of the next changes take effect and report a broken connection
	away  atomic.Bool  // calls fail with lost: the store's host is gone
}

func newShared() *shared { return &shared{Memory: new(store.Memory)} }

func (s *shared) tear(err error) error {
	if err == nil && s.torn.Load() > 0 && s.torn.Add(-1) >= 0 {
		return store.ErrUncertain
	}
	return err
}

func (s *shared) Set(ctx context.Context, key string, value []byte) error {
	s.calls.Add(1)
	return s.Memory.Set(ctx, key, value)
}

func (s *shared) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	s.calls.Add(1)
	got, err := s.Memory.CompareSet(ctx, key, expected, desired)
	return got, s.tear(err)
}

func (s *shared) Add(ctx context.Context, key string, delta int64) (int64, error) {
	s.calls.Add(1)
	if s.away.Load() && strings.HasSuffix(key, keyAlive) {
		return 0, store.ErrClosed
	}
	sum, err := s.Memory.Add(ctx, key, delta)
	return sum, s.tear(err)
}

func (s *shared) Get(ctx context.Context, key string) ([]byte, error) {
	s.calls.Add(2) // a c10d client waits, and then gets
	return s.Memory.Get(ctx, key)
}

func (s *shared) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	s.calls.Add(2)
	return s.Memory.MultiGet(ctx, keys...)
}

// empty makes the store forget everything, as one that was started again.
func (s *shared) empty() {
	keys, _ := s.ListKeys(context.Background())
	for _, k := range keys {
		s.Delete(context.Background(), k)
	}
}

// A standing store answers nobody until some time.
type standing struct {
	store.Store
	until atomic.Pointer[time.Time] // nil: it answers
}

func (s *standing) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	until := s.until.Load()
	if until == nil {
		return s.Store.CompareSet(ctx, key, expected, desired)
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Until(*until)):
		return s.Store.CompareSet(ctx, key, expected, desired)
	}
}

// A mortal is one node's way to a shared store, until it dies: then nothing of it reaches the store any more. While the node stands still, nothing of it does
// either, but comes later.
type mortal struct {
	store.Store
	dead  atomic.Bool
	fuse  atomic.Int64 // so many changes it makes until then; 0: as many as it likes
	until atomic.Int64 // when it goes on, in nanoseconds of Unix time
	snag  *snag        // nil: there is none
}

// A snag makes a node stand still once, amid what it does: when it changes a key of some kind.
type snag struct {
	kind   string
	after  bool // the change was made, and it does not know yet
	lasts  time.Duration
	sprung atomic.Bool
}

// meets lets the node stand still if its snag is here.
func (m *mortal) meets(key string, reads, after bool) {
	if s := m.snag; s != nil && !reads && s.after == after && strings.Contains(key, "/"+s.kind) && s.sprung.CompareAndSwap(false, true) {
		m.until.Store(time.Now().Add(s.lasts).UnixNano())
	}
	m.stands()
}

// dies reports whether it has, before another change.
func (m *mortal) dies() bool {
	if m.fuse.Load() > 0 && m.fuse.Add(-1) == 0 {
		m.dead.Store(true)
	}
	return m.dead.Load()
}

// stands waits until the node goes on.
func (m *mortal) stands() {
	for d := time.Until(time.Unix(0, m.until.Load())); d > 0; d = time.Until(time.Unix(0, m.until.Load())) {
		time.Sleep(d)
	}
}

func (m *mortal) Set(ctx context.Context, key string, value []byte) error {
	m.meets(key, false, false)
	if m.dies() {
		return store.ErrClosed
	}
	err := m.Store.Set(ctx, key, value)
	m.meets(key, false, true)
	return err
}

func (m *mortal) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	reads := bytes.Equal(expected, desired)
	m.meets(key, reads, false)
	if m.dies() {
		return nil, store.ErrClosed
	}
	got, err := m.Store.CompareSet(ctx, key, expected, desired)
	m.meets(key, reads, true)
	return got, err
}

func (m *mortal) Add(ctx context.Context, key string, delta int64) (int64, error) {
	m.meets(key, false, false)
	if m.dies() {
		return 0, store.ErrClosed
	}
	sum, err := m.Store.Add(ctx, key, delta)
	m.meets(key, false, true)
	return sum, err
}

func (m *mortal) Get(ctx context.Context, key string) ([]byte, error) {
	m.stands()
	value, err := m.Store.Get(ctx, key)
	m.stands()
	return value, err
}

func (m *mortal) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	m.stands()
	values, err := m.Store.MultiGet(ctx, keys...)
	m.stands()
	return values, err
}
