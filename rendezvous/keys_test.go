package rendezvous

import (
	"cmp"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/rendezvous/store"
)

// A busy store has so many to answer that a value takes long.
type busy struct {
	*store.Memory
	each time.Duration
}

func (b *busy) Get(ctx context.Context, key string) ([]byte, error) {
	value, err := b.Memory.Get(ctx, key)
	return value, cmp.Or(err, b.work(ctx))
}

func (b *busy) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	value, err := b.Memory.CompareSet(ctx, key, expected, desired)
	return value, cmp.Or(err, b.work(ctx))
}

func (b *busy) work(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(b.each):
		return nil
	}
}

// What came in time is read, however long that takes: thousands who gave up and asked again would only make it take longer.
func TestAwaitReadsWhatCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &busy{new(store.Memory), 3 * beat}
		s := shelf{Store: b}
		if _, found, err := s.await(t.Context(), "key", time.Now().Add(beat)); found || err != nil {
			t.Errorf("before it is there: found %v, %v", found, err)
		}
		if err := b.Set(t.Context(), "key", []byte("value")); err != nil {
			t.Fatal(err)
		}
		value, found, err := s.await(t.Context(), "key", time.Now().Add(beat))
		if string(value) != "value" || !found || err != nil {
			t.Errorf("%q, found %v, %v", value, found, err)
		}
	})
}
