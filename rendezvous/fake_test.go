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
	draws atomic.Int64 // so many of the next draws of a ticket, too
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
	if err == nil && delta == 1 && strings.HasSuffix(key, keyTickets) && s.draws.Load() > 0 && s.draws.Add(-1) >= 0 {
		return 0, store.ErrUncertain
	}
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
	halt  atomic.Pointer[halt]
	away  atomic.Bool // the node does not reach the store
}

// A halt is for how long a node stands still before it first sets a key of some kind, as a machine may that is stopped at any moment.
type halt struct {
	key  string
	long time.Duration
	late bool // it has set the key then, and does not know
}

// sets makes the node stand still before it sets a key, if it is to. A comparison that cannot succeed sets nothing.
func (m *mortal) sets(key string, probes bool) {
	if h := m.halt.Load(); h != nil && !h.late {
		m.halts(h, key, probes)
	}
	m.stands()
}

// has makes the node stand still after it has set a key, if it is to.
func (m *mortal) has(key string, probes bool) {
	if h := m.halt.Load(); h != nil && h.late {
		m.halts(h, key, probes)
	}
	m.stands()
}

func (m *mortal) halts(h *halt, key string, probes bool) {
	if !probes && strings.Contains(key, "/"+h.key) && m.halt.CompareAndSwap(h, nil) {
		m.stops(h.long)
	}
}

// stops makes the node stand still for so long, or for longer if it does already.
func (m *mortal) stops(d time.Duration) {
	m.until.Store(max(m.until.Load(), time.Now().Add(d).UnixNano()))
}

// dies reports whether it has, before another change, or does not reach the store.
func (m *mortal) dies() bool {
	if m.fuse.Load() > 0 && m.fuse.Add(-1) == 0 {
		m.dead.Store(true)
	}
	return m.dead.Load() || m.away.Load()
}

// stands waits until the node goes on.
func (m *mortal) stands() {
	for d := time.Until(time.Unix(0, m.until.Load())); d > 0; d = time.Until(time.Unix(0, m.until.Load())) {
		time.Sleep(d)
	}
}

func (m *mortal) Set(ctx context.Context, key string, value []byte) error {
	m.sets(key, false)
	if m.dies() {
		return store.ErrClosed
	}
	return m.Store.Set(ctx, key, value)
}

func (m *mortal) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	m.sets(key, bytes.Equal(expected, desired))
	if m.dies() {
		return nil, store.ErrClosed
	}
	got, err := m.Store.CompareSet(ctx, key, expected, desired)
	m.has(key, bytes.Equal(expected, desired))
	return got, err
}

func (m *mortal) Add(ctx context.Context, key string, delta int64) (int64, error) {
	m.sets(key, delta == 0)
	if m.dies() {
		return 0, store.ErrClosed
	}
	sum, err := m.Store.Add(ctx, key, delta)
	m.has(key, delta == 0)
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
