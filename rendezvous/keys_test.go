package rendezvous

import (
	"cmp"
	"context"
	"os"
	"regexp"
	"strings"
	"sync"
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

// emptied loses a job's generation, once, just when a node would move it.
type emptied struct {
	*store.Memory
	once sync.Once
}

func (e *emptied) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	if strings.HasSuffix(key, keyGeneration) && len(expected) > 0 {
		e.once.Do(func() { e.Delete(ctx, key) })
	}
	return e.Memory.CompareSet(ctx, key, expected, desired)
}

// A node that moves the generation of a store which is emptied meanwhile begins anew there.
func TestGenerationIsLost(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	e := &emptied{Memory: new(store.Memory)}
	root := shelf{e, "/job/"}
	if err := e.Set(ctx, root.prefix+keyGeneration, []byte("2")); err != nil {
		t.Fatal(err)
	}
	n := new(node)
	n.seen = 3
	if g, err := n.current(ctx, root); g != 4 || err != nil {
		t.Errorf("current = %d, %v", g, err)
	}
}

// The page for people has every key.
func TestKeysAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/rendezvous.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{keyIncarnation, keyGeneration, keyTickets, keyUntold, keyTicket, keyPresence, keyLeader, keySummary, keyOutcome, keyAlive, keyRounds, keyOver} {
		if !regexp.MustCompile("[`/]" + key + "[`<]").Match(page) {
			t.Errorf("docs/rendezvous.md does not tell of %s", key)
		}
	}
}
