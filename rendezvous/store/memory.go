package store

import (
	"bytes"
	"context"
	"sync"
)

// A Queue is what stores with queues and barriers offer beside Store, as PyTorch's does from 2.8 on.
type Queue interface {
	// Push puts value at the end of queue key. Queues and plain keys are two name spaces.
	Push(ctx context.Context, key string, value []byte) error
	// Pop waits until queue key is not empty and removes its head.
	Pop(ctx context.Context, key string) ([]byte, error)
	// TryPop removes the head of queue key, if there is one.
	TryPop(ctx context.Context, key string) (value []byte, ok bool, err error)
	// QueueLen returns the number of values in queue key.
	QueueLen(ctx context.Context, key string) (int64, error)
	// Barrier counts the caller in under key and returns when world callers were counted. A barrier is used once.
	Barrier(ctx context.Context, key string, world int64) error
}

// A Memory is a store in this process: the store of a single node, of tests, and what a tcpstore.Server serves.
// Its zero value is empty and ready. Close ends the use of all its callers.
type Memory struct {
	mu     sync.Mutex
	table  Table
	closed bool
	end    chan struct{} // closed by Close; made by the first call that waits
}

// Do runs f while nobody else uses the table. f must neither block nor call m.
func (m *Memory) Do(f func(t *Table)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.table)
}

// do is Do for the callers of the Store interface, whose contexts and stores may have ended.
func (m *Memory) do(ctx context.Context, f func(t *Table) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	return f(&m.table)
}

// await tries f until it reports that it is done. Each time it is not, it has made the waiter wait for something.
// A waiter that was woken gets its try even when ctx has ended meanwhile: what woke it, such as a value in a queue,
// woke nobody else.
func (m *Memory) await(ctx context.Context, f func(t *Table, w *Waiter) (bool, error)) error {
	stop := ctx.Err()
	for stop == nil {
		come := make(chan struct{})
		w := &Waiter{Wake: func() { close(come) }}
		end, done, err := m.try(w, f)
		if done || err != nil {
			return err
		}
		select {
		case <-come:
			continue
		case <-ctx.Done():
			stop = ctx.Err()
		case <-end:
			stop = ErrClosed
		}
		if m.cancel(w) {
			break
		}
		if done, err := m.last(w, f); done || err != nil {
			return err
		}
	}
	return stop
}

// try is one try of await. end is closed when m is.
func (m *Memory) try(w *Waiter, f func(t *Table, w *Waiter) (bool, error)) (end chan struct{}, done bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, false, ErrClosed
	}
	done, err = f(&m.table, w)
	return m.ending(), done, err
}

// last is the try of a waiter that was woken and does not go on.
func (m *Memory) last(w *Waiter, f func(t *Table, w *Waiter) (bool, error)) (done bool, err error) {
	m.Do(func(t *Table) {
		done, err = f(t, w)
		t.Cancel(w)
	})
	return done, err
}

func (m *Memory) cancel(w *Waiter) (was bool) {
	m.Do(func(t *Table) { was = t.Cancel(w) })
	return was
}

func (m *Memory) ending() chan struct{} {
	if m.end == nil {
		m.end = make(chan struct{})
	}
	return m.end
}

// Set stores value under key.
func (m *Memory) Set(ctx context.Context, key string, value []byte) error {
	return m.do(ctx, func(t *Table) error { return t.Set([]byte(key), value) })
}

// Get waits until key is present and returns its value.
func (m *Memory) Get(ctx context.Context, key string) ([]byte, error) {
	values, err := m.MultiGet(ctx, key)
	if err != nil {
		return nil, err
	}
	return values[0], nil
}

// CompareSet stores desired if key holds expected. See Store.
func (m *Memory) CompareSet(ctx context.Context, key string, expected, desired []byte) (now []byte, err error) {
	err = m.do(ctx, func(t *Table) error {
		v, err := t.CompareSet([]byte(key), expected, desired)
		now = bytes.Clone(v)
		return err
	})
	return now, err
}

// Add adds delta to the decimal number under key and returns the sum.
func (m *Memory) Add(ctx context.Context, key string, delta int64) (sum int64, err error) {
	err = m.do(ctx, func(t *Table) (err error) {
		sum, err = t.Add([]byte(key), delta)
		return err
	})
	return sum, err
}

// Append extends the value of key.
func (m *Memory) Append(ctx context.Context, key string, value []byte) error {
	return m.do(ctx, func(t *Table) error { return t.Append([]byte(key), value) })
}

// Check reports whether all keys are present.
func (m *Memory) Check(ctx context.Context, keys ...string) (all bool, err error) {
	err = m.do(ctx, func(t *Table) error {
		all = t.HasAll(names(keys))
		return nil
	})
	return all, err
}

// Wait returns when each of keys has been present.
func (m *Memory) Wait(ctx context.Context, keys ...string) error {
	begun := false
	return m.await(ctx, func(t *Table, w *Waiter) (bool, error) {
		if begun { // woken: each has been there, whatever is there now
			return true, nil
		}
		begun = true
		return t.Wait(w, names(keys))
	})
}

// MultiGet waits until all keys are present and returns their values in order.
func (m *Memory) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	values := make([][]byte, len(keys))
	err := m.await(ctx, func(t *Table, w *Waiter) (bool, error) {
		for i, k := range keys {
			v, present := t.Get([]byte(k))
			if !present {
				return t.wait(w, names(keys), wantKey)
			}
			values[i] = copyOf(v)
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	return values, nil
}

// MultiSet stores values[i] under keys[i].
func (m *Memory) MultiSet(ctx context.Context, keys []string, values [][]byte) error {
	if err := Pairs(keys, values); err != nil {
		return err
	}
	return m.do(ctx, func(t *Table) error { return t.MultiSet(names(keys), values) })
}

// Delete removes key and reports whether it was present.
func (m *Memory) Delete(ctx context.Context, key string) (was bool, err error) {
	err = m.do(ctx, func(t *Table) error {
		was = t.Delete([]byte(key))
		return nil
	})
	return was, err
}

// NumKeys returns the number of keys.
func (m *Memory) NumKeys(ctx context.Context) (n int64, err error) {
	err = m.do(ctx, func(t *Table) error {
		n = int64(t.Len())
		return nil
	})
	return n, err
}

// ListKeys returns the names of all keys, in no order.
func (m *Memory) ListKeys(ctx context.Context) (list []string, err error) {
	err = m.do(ctx, func(t *Table) error {
		t.Keys(func(name string) { list = append(list, name) })
		return nil
	})
	return list, err
}

// Push puts value at the end of queue key.
func (m *Memory) Push(ctx context.Context, key string, value []byte) error {
	return m.do(ctx, func(t *Table) error { return t.Push([]byte(key), value) })
}

// Pop waits until queue key is not empty and removes its head.
func (m *Memory) Pop(ctx context.Context, key string) (value []byte, err error) {
	err = m.await(ctx, func(t *Table, w *Waiter) (bool, error) {
		v, n := t.Pop([]byte(key))
		if n == 0 {
			return t.wait(w, [][]byte{[]byte(key)}, wantQueue)
		}
		value = bytes.Clone(v)
		return true, nil
	})
	return value, err
}

// TryPop removes the head of queue key, if there is one.
func (m *Memory) TryPop(ctx context.Context, key string) (value []byte, ok bool, err error) {
	err = m.do(ctx, func(t *Table) error {
		v, n := t.Pop([]byte(key))
		value, ok = bytes.Clone(v), n > 0
		return nil
	})
	return value, ok, err
}

// QueueLen returns the number of values in queue key.
func (m *Memory) QueueLen(ctx context.Context, key string) (n int64, err error) {
	err = m.do(ctx, func(t *Table) error {
		n = int64(t.QueueLen([]byte(key)))
		return nil
	})
	return n, err
}

// Barrier counts the caller in under key and returns when world callers were counted.
func (m *Memory) Barrier(ctx context.Context, key string, world int64) error {
	begun := false
	return m.await(ctx, func(t *Table, w *Waiter) (bool, error) {
		if begun {
			return true, nil
		}
		begun = true
		return t.Barrier(w, []byte(key), world)
	})
}

// Close ends the use of m: every call, waiting or to come, returns ErrClosed.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		close(m.ending())
	}
	return nil
}

func names(keys []string) [][]byte {
	b := make([][]byte, len(keys))
	for i, k := range keys {
		b[i] = []byte(k)
	}
	return b
}
