// Package storetest checks that a store keeps its promises: one suite for every store.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muster-run/muster/rendezvous/store"
)

// patience bounds every call of the suite that should succeed.
const patience = 4 * time.Minute

// short is how long the suite watches a call that must not return.
const short = 50 * time.Millisecond

// Test runs the suite. fresh makes an empty store for one test and returns a function that opens handles on it; the
// handles share their keys. What it needs to clean up it gives to t.
func Test(t *testing.T, fresh func(t *testing.T) (open func() store.Store)) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			open := fresh(t)
			c.run(&suite{T: t, ctx: ctx, open: open, Store: open()})
		})
	}
}

var cases = []struct {
	name string
	run  func(s *suite)
}{
	{"get returns what was set", getSet},
	{"get waits for its key", getWaits},
	{"get waits again for a key that was deleted", getDeleted},
	{"keys and values are any bytes", binary},
	{"large values", large},
	{"compare_set", compareSet},
	{"compare_set lets one of many win", compareSetRace},
	{"compare_set that creates a key ends waits, one that fails does not", compareSetWakes},
	{"add", add},
	{"add reads numbers as strtoll does", addText},
	{"add on text that is no number fails and changes nothing", addNoNumber},
	{"add by many at once counts each", addRace},
	{"append", appendTwice},
	{"check", check},
	{"wait returns when all keys have come", waitAll},
	{"wait is satisfied by keys that went again", waitDeleted},
	{"wait names a key twice", waitTwice},
	{"one set ends all waits for its key", waitMany},
	{"multi_set and multi_get", multi},
	{"multi_get waits for all", multiGetWaits},
	{"delete", deleteKey},
	{"num_keys and list_keys", listKeys},
	{"two handles see the same keys", twoHandles},
	{"a wait ends with its context and leaves no trace", cancelled},
	{"no call begins after its context ended", ended},
	{"close ends a wait and every later call", closed},
	{"close of one handle leaves the other", closedOther},
	{"values are the caller's own", ownValues},
	{"queues are first in, first out", queues},
	{"a push ends one pop", queueWakesOne},
	{"queues and keys are two name spaces", queueNames},
	{"a barrier opens for the last", barrier},
}

// A suite is one test's store, with the checks that all tests share.
type suite struct {
	*testing.T
	store.Store
	ctx  context.Context
	open func() store.Store
}

func (s *suite) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) set(key, value string) {
	s.Helper()
	s.ok(s.Set(s.ctx, key, []byte(value)))
}

func (s *suite) wantGet(key, want string) {
	s.Helper()
	v, err := s.Get(s.ctx, key)
	if err != nil || string(v) != want {
		s.Fatalf("Get(%q) = %q, %v; want %q", key, v, err, want)
	}
}

func (s *suite) wantCheck(want bool, keys ...string) {
	s.Helper()
	got, err := s.Check(s.ctx, keys...)
	if err != nil || got != want {
		s.Fatalf("Check(%q) = %v, %v; want %v", keys, got, err, want)
	}
}

// wantAdd adds and compares.
func (s *suite) wantAdd(key string, delta, want int64) {
	s.Helper()
	n, err := s.Add(s.ctx, key, delta)
	if err != nil || n != want {
		s.Fatalf("Add(%q, %d) = %d, %v; want %d", key, delta, n, err, want)
	}
}

func (s *suite) wantCompareSet(key, expected, desired, want string) {
	s.Helper()
	v, err := s.CompareSet(s.ctx, key, []byte(expected), []byte(desired))
	if err != nil || string(v) != want {
		s.Fatalf("CompareSet(%q, %q, %q) = %q, %v; want %q", key, expected, desired, v, err, want)
	}
}

// behind runs f on a handle of its own and returns where its error will be.
func (s *suite) behind(f func(other store.Store) error) <-chan error {
	other := s.open()
	done := make(chan error, 1)
	go func() { done <- f(other) }()
	return done
}

// waiting runs f as behind does and checks that it waits. That a call does not return can only be seen by watching.
func (s *suite) waiting(f func(other store.Store) error) <-chan error {
	s.Helper()
	done := s.behind(f)
	s.still(done)
	return done
}

func (s *suite) still(done <-chan error) {
	s.Helper()
	select {
	case err := <-done:
		s.Fatalf("the call did not wait: %v", err)
	case <-time.After(short):
	}
}

func (s *suite) ends(done <-chan error) {
	s.Helper()
	select {
	case err := <-done:
		s.ok(err)
	case <-s.ctx.Done():
		s.Fatal("the call did not return")
	}
}

func getSet(s *suite) {
	s.set("k", "v")
	s.wantGet("k", "v")
	s.set("k", "w")
	s.wantGet("k", "w")
	s.set("k", "")
	s.wantGet("k", "")
}

func getWaits(s *suite) {
	done := s.waiting(func(other store.Store) error {
		v, err := other.Get(s.ctx, "k")
		if err == nil && string(v) != "v" {
			err = fmt.Errorf("got %q", v)
		}
		return err
	})
	s.set("other", "x")
	s.still(done)
	s.set("k", "v")
	s.ends(done)
}

func getDeleted(s *suite) {
	s.set("k", "old")
	_, err := s.Delete(s.ctx, "k")
	s.ok(err)
	done := s.waiting(func(other store.Store) error {
		_, err := other.Get(s.ctx, "k")
		return err
	})
	s.set("k", "new")
	s.ends(done)
}

func binary(s *suite) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, key := range []string{"", "/", "//", "a/b", "\x00", "\xff\xfe", string(all), "日本"} {
		s.set(key, string(all)+key)
	}
	for _, key := range []string{"", "/", "//", "a/b", "\x00", "\xff\xfe", string(all), "日本"} {
		s.wantGet(key, string(all)+key)
	}
}

func large(s *suite) {
	for _, n := range []int{1, 1439, 1440, 1441, 65535, 65536, 1 << 20} {
		v := bytes.Repeat([]byte{byte(n)}, n)
		s.ok(s.Set(s.ctx, fmt.Sprint(n), v))
		got, err := s.Get(s.ctx, fmt.Sprint(n))
		if err != nil || !bytes.Equal(got, v) {
			s.Fatalf("a value of %d bytes came back with %d: %v", n, len(got), err)
		}
	}
}

func compareSet(s *suite) {
	s.wantCompareSet("missing", "e", "x", "e")
	s.wantCheck(false, "missing")
	s.wantCompareSet("k", "", "x", "x")
	s.wantGet("k", "x")
	s.wantCompareSet("k", "y", "z", "x")
	s.wantCompareSet("k", "", "z", "x")
	s.wantCompareSet("k", "x", "z", "z")
	s.wantGet("k", "z")
	s.set("empty", "")
	s.wantCompareSet("empty", "", "x", "x")
}

func compareSetRace(s *suite) {
	const n = 16
	won := make(chan string, n)
	var all sync.WaitGroup
	for i := range n {
		other, mine := s.open(), fmt.Sprint(i)
		all.Go(func() {
			v, err := other.CompareSet(s.ctx, "seat", nil, []byte(mine))
			if err != nil {
				s.Error(err)
			}
			won <- string(v)
		})
	}
	all.Wait()
	winner, err := s.Get(s.ctx, "seat")
	s.ok(err)
	for range n {
		if v := <-won; v != string(winner) {
			s.Errorf("one was told that %q holds the seat, which has %q", v, winner)
		}
	}
}

func compareSetWakes(s *suite) {
	done := s.waiting(func(other store.Store) error { return other.Wait(s.ctx, "k") })
	s.wantCompareSet("k", "not there", "x", "not there")
	s.still(done)
	s.wantCompareSet("k", "", "x", "x")
	s.ends(done)
}

func add(s *suite) {
	s.wantAdd("n", 0, 0)
	s.wantGet("n", "0")
	s.wantAdd("n", 5, 5)
	s.wantAdd("n", -7, -2)
	s.wantGet("n", "-2")
	s.set("m", "12")
	s.wantAdd("m", 1, 13)
	s.wantAdd("max", math.MaxInt64, math.MaxInt64)
	s.wantAdd("max", 1, math.MinInt64)
	s.wantGet("max", "-9223372036854775808")
}

func addText(s *suite) {
	for text, want := range map[string]int64{"12abc": 13, " 7": 8, "+7": 8, "0x10": 1, "-1": 0, "\t\n 3 4": 4, "007": 8} {
		s.set("n", text)
		s.wantAdd("n", 1, want)
	}
}

func addNoNumber(s *suite) {
	for _, text := range []string{"", "xyz", " ", "-", "99999999999999999999", "-9223372036854775809"} {
		s.set("n", text)
		if n, err := s.Add(s.ctx, "n", 1); err == nil {
			s.Errorf("Add on %q = %d", text, n)
		}
		s.wantGet("n", text)
	}
}

func addRace(s *suite) {
	const handles, each = 8, 50
	var all sync.WaitGroup
	for range handles {
		other := s.open()
		all.Go(func() {
			for range each {
				if _, err := other.Add(s.ctx, "n", 1); err != nil {
					s.Error(err)
				}
			}
		})
	}
	all.Wait()
	s.wantAdd("n", 0, handles*each)
}

func appendTwice(s *suite) {
	done := s.waiting(func(other store.Store) error { return other.Wait(s.ctx, "k") })
	for _, part := range []string{"ab", "", "cd"} {
		s.ok(s.Append(s.ctx, "k", []byte(part)))
	}
	s.wantGet("k", "abcd")
	s.ends(done)
}

func check(s *suite) {
	s.set("k", "v")
	s.set("empty", "")
	s.wantCheck(true)
	s.wantCheck(true, "k", "empty", "k")
	s.wantCheck(false, "k", "nope")
	s.wantCheck(false, "nope")
}

func waitAll(s *suite) {
	s.ok(s.Wait(s.ctx))
	s.set("a", "")
	s.ok(s.Wait(s.ctx, "a"))
	done := s.waiting(func(other store.Store) error { return other.Wait(s.ctx, "a", "b", "c") })
	s.set("b", "")
	s.still(done)
	s.wantAdd("c", 1, 1)
	s.ends(done)
}

func waitDeleted(s *suite) {
	done := s.waiting(func(other store.Store) error { return other.Wait(s.ctx, "x", "y") })
	s.set("x", "")
	_, err := s.Delete(s.ctx, "x")
	s.ok(err)
	s.set("y", "")
	s.ends(done)
}

func waitTwice(s *suite) {
	done := s.waiting(func(other store.Store) error { return other.Wait(s.ctx, "d", "d") })
	s.set("d", "")
	s.ends(done)
}

func waitMany(s *suite) {
	var all []<-chan error
	for range 8 {
		all = append(all, s.waiting(func(other store.Store) error { return other.Wait(s.ctx, "k") }))
	}
	s.set("k", "")
	for _, done := range all {
		s.ends(done)
	}
}

func multi(s *suite) {
	s.ok(s.MultiSet(s.ctx, []string{"a", "b", "e"}, [][]byte{[]byte("A"), []byte("BB"), {}}))
	s.ok(s.MultiSet(s.ctx, nil, nil))
	got, err := s.MultiGet(s.ctx, "b", "e", "a", "b")
	s.ok(err)
	if want := [][]byte{[]byte("BB"), {}, []byte("A"), []byte("BB")}; !slices.EqualFunc(got, want, bytes.Equal) {
		s.Fatalf("MultiGet = %q, want %q", got, want)
	}
	if got, err := s.MultiGet(s.ctx); len(got) != 0 || err != nil {
		s.Fatalf("MultiGet of nothing = %q, %v", got, err)
	}
	if err := s.MultiSet(s.ctx, []string{"a"}, nil); err == nil {
		s.Fatal("MultiSet took a key without a value")
	}
}

func multiGetWaits(s *suite) {
	s.set("a", "1")
	done := s.waiting(func(other store.Store) error {
		v, err := other.MultiGet(s.ctx, "a", "b")
		if err == nil && string(v[0])+string(v[1]) != "12" {
			err = fmt.Errorf("got %q", v)
		}
		return err
	})
	s.set("b", "2")
	s.ends(done)
}

func deleteKey(s *suite) {
	s.set("k", "v")
	for _, want := range []bool{true, false} {
		if was, err := s.Delete(s.ctx, "k"); was != want || err != nil {
			s.Fatalf("Delete = %v, %v; want %v", was, err, want)
		}
	}
	s.wantCheck(false, "k")
}

func listKeys(s *suite) {
	before, err := s.NumKeys(s.ctx)
	s.ok(err)
	for _, k := range []string{"a", "b/c", "d"} {
		s.set(k, "")
	}
	n, err := s.NumKeys(s.ctx)
	s.ok(err)
	if n != before+3 {
		s.Errorf("NumKeys = %d after %d and three more", n, before)
	}
	list, err := s.ListKeys(s.ctx)
	s.ok(err)
	slices.Sort(list)
	if !slices.Equal(list, []string{"a", "b/c", "d"}) {
		s.Errorf("ListKeys = %q", list)
	}
}

func twoHandles(s *suite) {
	other := s.open()
	s.set("k", "v")
	v, err := other.Get(s.ctx, "k")
	s.ok(err)
	if string(v) != "v" {
		s.Fatalf("the other handle reads %q", v)
	}
	s.ok(other.Set(s.ctx, "k", []byte("w")))
	s.wantGet("k", "w")
}

func cancelled(s *suite) {
	for name, call := range map[string]func(ctx context.Context) error{
		"Wait":     func(ctx context.Context) error { return s.Wait(ctx, "k", "l") },
		"Get":      func(ctx context.Context) error { _, err := s.Get(ctx, "k"); return err },
		"MultiGet": func(ctx context.Context) error { _, err := s.MultiGet(ctx, "k", "l"); return err },
	} {
		ctx, cancel := context.WithTimeout(s.ctx, short)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("%s = %v; want the context's error", name, err)
		}
		cancel()
		// The store is in step: what comes next gets its own reply, before and after the key comes.
		s.wantAdd("n", 3, 3)
		s.set("k", "")
		s.set("l", "")
		s.wantAdd("n", -3, 0)
		for _, k := range []string{"k", "l"} {
			_, err := s.Delete(s.ctx, k)
			s.ok(err)
		}
	}
}

func ended(s *suite) {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if err := s.Set(ctx, "k", nil); !errors.Is(err, context.Canceled) {
		s.Errorf("Set = %v", err)
	}
	if _, err := s.Get(ctx, "k"); !errors.Is(err, context.Canceled) {
		s.Errorf("Get = %v", err)
	}
	if _, err := s.Add(ctx, "k", 1); !errors.Is(err, context.Canceled) {
		s.Errorf("Add = %v", err)
	}
	s.wantCheck(false, "k")
}

func closed(s *suite) {
	done := make(chan error, 1)
	go func() { done <- s.Wait(s.ctx, "never") }()
	s.still(done)
	s.ok(s.Close())
	if err := <-done; !errors.Is(err, store.ErrClosed) {
		s.Errorf("a wait that Close ended returned %v", err)
	}
	if err := s.Set(s.ctx, "k", nil); !errors.Is(err, store.ErrClosed) {
		s.Errorf("Set after Close = %v", err)
	}
	if _, err := s.Get(s.ctx, "k"); !errors.Is(err, store.ErrClosed) {
		s.Errorf("Get after Close = %v", err)
	}
	s.ok(s.Close())
}

func closedOther(s *suite) {
	other := s.open()
	if other == s.Store {
		return // a store with one handle for all, such as Memory
	}
	s.set("k", "v")
	s.ok(other.Close())
	s.wantGet("k", "v")
}

func ownValues(s *suite) {
	v := []byte("abc")
	s.ok(s.Set(s.ctx, "k", v))
	v[0] = 'x'
	s.wantGet("k", "abc")
	got, err := s.Get(s.ctx, "k")
	s.ok(err)
	got[0] = 'y'
	s.wantGet("k", "abc")
}

// queue returns the store's queues; nil when it has none.
func (s *suite) queue() store.Queue {
	q, _ := s.Store.(store.Queue)
	return q
}

func queues(s *suite) {
	q := s.queue()
	if q == nil {
		return
	}
	if _, ok, err := q.TryPop(s.ctx, "q"); ok || err != nil {
		s.Fatalf("TryPop of nothing = %v, %v", ok, err)
	}
	for _, v := range []string{"A", "B", ""} {
		s.ok(q.Push(s.ctx, "q", []byte(v)))
	}
	if n, err := q.QueueLen(s.ctx, "q"); n != 3 || err != nil {
		s.Fatalf("QueueLen = %d, %v", n, err)
	}
	for _, want := range []string{"A", "B", ""} {
		if v, err := q.Pop(s.ctx, "q"); string(v) != want || err != nil {
			s.Fatalf("Pop = %q, %v; want %q", v, err, want)
		}
	}
	if n, err := q.QueueLen(s.ctx, "q"); n != 0 || err != nil {
		s.Fatalf("QueueLen = %d, %v", n, err)
	}
}

func queueWakesOne(s *suite) {
	q := s.queue()
	if q == nil {
		return
	}
	var pops []<-chan error
	for range 3 {
		pops = append(pops, s.waiting(func(other store.Store) error {
			_, err := other.(store.Queue).Pop(s.ctx, "q")
			return err
		}))
	}
	for range pops {
		s.ok(q.Push(s.ctx, "q", []byte("x")))
	}
	for _, done := range pops {
		s.ends(done)
	}
}

func queueNames(s *suite) {
	q := s.queue()
	if q == nil {
		return
	}
	s.ok(q.Push(s.ctx, "same", []byte("x")))
	s.wantCheck(true, "same")
	if was, err := s.Delete(s.ctx, "same"); was || err != nil {
		s.Fatalf("Delete of a queue = %v, %v", was, err)
	}
	s.set("same", "key")
	s.wantGet("same", "key")
	if v, err := q.Pop(s.ctx, "same"); string(v) != "x" || err != nil {
		s.Fatalf("Pop = %q, %v", v, err)
	}
}

func barrier(s *suite) {
	q := s.queue()
	if q == nil {
		return
	}
	var all []<-chan error
	for range 3 {
		all = append(all, s.waiting(func(other store.Store) error { return other.(store.Queue).Barrier(s.ctx, "b", 4) }))
	}
	s.ok(q.Barrier(s.ctx, "b", 4))
	for _, done := range all {
		s.ends(done)
	}
	s.ok(q.Barrier(s.ctx, "b", 4))
	s.wantGet("b", "5")
}
