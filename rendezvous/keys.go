package rendezvous

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/muster-run/muster/rendezvous/store"
)

// The keys of a job, under muster/<job id>/, and of one meeting, under <incarnation>/<generation>/ below it.
const (
	keyIncarnation = "incarnation" // names this life of the store
	keyGeneration  = "generation"  // of the current meeting, below the incarnation
	keyTickets     = "tickets"     // how many were drawn
	keyUntold      = "untold"      // how many of them perhaps were, whose node was not told which
	keyTicket      = "ticket/"     // + number: record of a node, or void
	keyPresence    = "presence/"   // + number: counts up while the node lives; gone when it left
	keyLeader      = "leader/"     // + epoch: ticket of the node that leads
	keySummary     = "summary"     // the leader's, each second
	keyOutcome     = "outcome"     // how the meeting ended
	keyAlive       = "alive"       // counts up while the world lives
	keyRounds      = "rounds"      // how many rounds of the job are over if it ends without a word
	keyOver        = "over"        // how the world ended
	keyStays       = "stays"       // counts up while agents stay of the job, which ended well with that world
	keyAfter       = "after"       // the generation of the world before, where that is not the one below
)

const (
	void = "void" // in place of a record: too late, draw again
	gone = "-1"   // in place of presence: left; a number, so that a last Add by mistake does no harm
)

// How a change is repeated: with jitter, so that a thousand nodes do not come as one.
const (
	maxTries   = 10 // about four seconds in all
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// jobPath returns the prefix of a job's keys. No two ids share one, however long they are.
func jobPath(id string) string {
	escaped := url.PathEscape(id)
	if len(escaped) > 128 {
		sum := sha256.Sum256([]byte(id))
		escaped = "%sha256-" + hex.EncodeToString(sum[:]) // no escaped id contains "%s"
	}
	return "muster/" + escaped + "/"
}

// random returns 128 bits that nobody can guess, in hex.
func random() string {
	b := make([]byte, 16)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// A shelf is a part of the store: the keys below one prefix.
type shelf struct {
	store.Store
	prefix string
}

// life is the part of a job's keys that belongs to one life of the store.
func (s shelf) life(incarnation []byte) shelf {
	return shelf{s.Store, s.prefix + fmt.Sprintf("%.64s/", incarnation)}
}

// meeting is the part of a job's keys that belongs to one generation.
func (s shelf) meeting(generation int) shelf {
	return shelf{s.Store, s.prefix + strconv.Itoa(generation) + "/"}
}

// above is the part of which s is one, and the name of s in it.
func (s shelf) above() (shelf, string) {
	prefix, last := path.Split(strings.TrimSuffix(s.prefix, "/"))
	return shelf{s.Store, prefix}, last
}

// beside is the part of another generation than this one.
func (s shelf) beside(generation int) shelf {
	lives, _ := s.above()
	return lives.meeting(generation)
}

// once sets key if nothing stands there, and returns what stands there afterwards.
// Doing it twice does no harm, so a broken connection is no failure.
func (s shelf) once(ctx context.Context, key string, value []byte) ([]byte, error) {
	return s.swap(ctx, key, nil, value)
}

// swap is CompareSet, for changes that do no harm when done twice.
func (s shelf) swap(ctx context.Context, key string, old, value []byte) ([]byte, error) {
	got, err := insist(ctx, func() ([]byte, error) { return s.CompareSet(ctx, s.prefix+key, old, value) })
	return got, name(err, "set", key)
}

// peek reads key without waiting: a comparison that cannot succeed returns what stands there.
func (s shelf) peek(ctx context.Context, key string) (value []byte, found bool, err error) {
	probe := []byte("?")
	value, err = s.swap(ctx, key, probe, probe)
	return value, err == nil && !bytes.Equal(value, probe), err
}

// add adds to a counter for which a count too many does no harm.
func (s shelf) add(ctx context.Context, key string, delta int64) (int64, error) {
	sum, _, err := s.addTo(ctx, key, delta)
	return sum, err
}

// addTo is add, and tells how often that was done, perhaps, beside the one time whose sum is known.
func (s shelf) addTo(ctx context.Context, key string, delta int64) (sum int64, untold int, err error) {
	untold = -1
	sum, err = insist(ctx, func() (int64, error) {
		untold++
		return s.Add(ctx, s.prefix+key, delta)
	})
	return sum, untold, name(err, "count", key)
}

// await waits for key until the given time. That it does not come is no error. To read what came may take longer, when a
// thousand others read it too: who gave that up would have to ask for it once more.
func (s shelf) await(ctx context.Context, key string, until time.Time) (value []byte, found bool, err error) {
	slice, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	err = s.Wait(slice, s.prefix+key)
	if err != nil && slice.Err() != nil && ctx.Err() == nil {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, name(err, "wait for", key)
	}
	return s.peek(ctx, key)
}

func (s shelf) put(ctx context.Context, key string, value []byte) error {
	return name(s.Set(ctx, s.prefix+key, value), "set", key)
}

// insist repeats a change whose fate is unknown. A store that closes the connection each time does not like the
// request itself, and one that is overloaded is not helped by haste.
func insist[T any](ctx context.Context, change func() (T, error)) (T, error) {
	pause := firstPause
	for tries := 1; ; tries++ {
		v, err := change()
		if !errors.Is(err, store.ErrUncertain) || tries == maxTries {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, err
		case <-time.After(pause/2 + mathrand.N(pause)):
		}
		pause = min(2*pause, lastPause)
	}
}

func name(err error, verb, key string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", verb, key, err)
}

// number reads a counter or a generation, which others wrote.
func number(key string, b []byte) (int, error) {
	n, err := strconv.Atoi(string(b[:min(len(b), 20)]))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("read %s: %.20q is no count", key, b)
	}
	return n, nil
}

func numbered(key string, n int) string { return key + strconv.Itoa(n) }
