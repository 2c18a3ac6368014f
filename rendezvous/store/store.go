// Package store defines the key-value store on which nodes meet, with the verbs of PyTorch's c10d store.
// It knows no wire format and no rank.
package store

import (
	"context"
	"errors"
	"fmt"
)

// ErrClosed is returned by every call on a store that was closed.
var ErrClosed = errors.New("store is closed")

// ErrUncertain is wrapped by the error of a call that may or may not have taken effect: the connection broke
// between request and reply, and repeating the request could apply it twice (Add, CompareSet, Append).
var ErrUncertain = errors.New("the connection broke before the reply, so the call may have taken effect")

// A Store is shared by all who open it under one address and prefix. Keys are any bytes; values too.
// Calls that wait end with ctx's error when ctx ends first, and leave nothing behind.
// A Store may be used by several goroutines at once, but a call that waits may hold up the others.
type Store interface {
	// Set stores value under key.
	Set(ctx context.Context, key string, value []byte) error
	// Get waits until key is present and returns its value.
	Get(ctx context.Context, key string) ([]byte, error)
	// CompareSet stores desired if key holds expected, or if key is missing and expected is empty.
	// It returns what key holds afterwards; a missing key that stays missing returns expected.
	// Success is judged by comparing the result with desired, so desired should be unique to the caller.
	CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error)
	// Add adds delta to the decimal number under key, missing being 0, and returns the sum.
	Add(ctx context.Context, key string, delta int64) (int64, error)
	// Append extends the value of key, creating it when missing.
	Append(ctx context.Context, key string, value []byte) error
	// Check reports, without waiting, whether all keys are present.
	Check(ctx context.Context, keys ...string) (bool, error)
	// Wait returns when each of keys has been present.
	Wait(ctx context.Context, keys ...string) error
	// MultiGet waits until all keys are present and returns their values in order.
	MultiGet(ctx context.Context, keys ...string) ([][]byte, error)
	// MultiSet stores values[i] under keys[i].
	MultiSet(ctx context.Context, keys []string, values [][]byte) error
	// Delete removes key and reports whether it was present.
	Delete(ctx context.Context, key string) (bool, error)
	// NumKeys returns the number of keys.
	NumKeys(ctx context.Context) (int64, error)
	// ListKeys returns the names of all keys, in no order.
	ListKeys(ctx context.Context) ([]string, error)
	// Close ends the caller's use of the store; waiting calls return ErrClosed.
	Close() error
}

// Pairs refuses a MultiSet whose keys and values do not pair up.
func Pairs(keys []string, values [][]byte) error {
	if len(keys) != len(values) {
		return fmt.Errorf("%d keys and %d values do not pair up", len(keys), len(values))
	}
	return nil
}
