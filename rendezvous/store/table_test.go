package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestParseInt(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "12": 12, "-5": -5, "+7": 7, " \t\n\v\f\r8": 8, "12abc": 12, "0x10": 0, "007": 7, "1 2": 1,
		"9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64, "000000000000000000000001": 1,
	} {
		if n, err := ParseInt([]byte(text)); n != want || err != nil {
			t.Errorf("ParseInt(%q) = %d, %v; want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"", " ", "-", "+", "- 1", "abc", "--1", "9223372036854775808", "-9223372036854775809",
		"18446744073709551616", "184467440737095516150", strings.Repeat("9", 100), strings.Repeat(" ", mostText) + "1"} {
		if n, err := ParseInt([]byte(text)); !errors.Is(err, ErrNotNumber) {
			t.Errorf("ParseInt(%q) = %d, %v", text, n, err)
		}
	}
}

// A plain is the store as a textbook would write it, to compare the table with.
type plain struct {
	keys   map[string]string
	queues map[string][]string
	waits  []*plainWait // oldest first
}

type plainWait struct {
	id      int
	missing []string
}

func (p *plain) present(key string) bool {
	_, ok := p.keys[key]
	return ok || len(p.queues[key]) > 0
}

// come ticks key off every wait and returns who is free. A push frees one at most, whoever lacks nothing else.
func (p *plain) come(key string, push bool) (free []int) {
	p.waits = slices.DeleteFunc(p.waits, func(w *plainWait) bool {
		left := slices.DeleteFunc(slices.Clone(w.missing), func(k string) bool { return k == key })
		if len(left) == 0 && len(w.missing) > 0 && push && len(free) > 0 {
			return false
		}
		w.missing = left
		if len(left) == 0 {
			free = append(free, w.id)
		}
		return len(left) == 0
	})
	return free
}

// TestTableIsPlain does the same random things to a table and to a plain store: replies, wakings and, when all is
// undone, the memory of both must agree.
func TestTableIsPlain(t *testing.T) {
	for seed := range uint64(300) {
		comparePlain(t, rand.New(rand.NewPCG(seed, 1)), seed)
	}
}

func comparePlain(t *testing.T, r *rand.Rand, seed uint64) {
	tab, p := &Table{}, &plain{keys: map[string]string{}, queues: map[string][]string{}}
	var woken []int
	waiters := make([]*Waiter, 6)
	for i := range waiters {
		waiters[i] = &Waiter{Wake: func() { woken = append(woken, i) }}
	}
	names := []string{"a", "b", "c", "d"}
	pick := func() string { return names[r.IntN(len(names))] }
	for step := range 200 {
		woken = nil
		var free []int
		k, v := pick(), fmt.Sprint(r.IntN(3))
		what := r.IntN(9)
		switch what {
		case 0:
			must(t, tab.Set([]byte(k), []byte(v)))
			p.keys[k] = v
			free = p.come(k, false)
		case 1:
			_, was := p.keys[k]
			if tab.Delete([]byte(k)) != was {
				t.Fatalf("seed %d step %d: Delete", seed, step)
			}
			delete(p.keys, k)
		case 2:
			must(t, tab.Push([]byte(k), []byte(v)))
			p.queues[k] = append(p.queues[k], v)
			free = p.come(k, true)
		case 3:
			got, n := tab.Pop([]byte(k))
			if n != len(p.queues[k]) || n > 0 && string(got) != p.queues[k][0] {
				t.Fatalf("seed %d step %d: Pop = %q, %d", seed, step, got, n)
			}
			if n > 0 {
				p.queues[k] = p.queues[k][1:]
			}
		case 4:
			must(t, tab.Append([]byte(k), []byte(v)))
			p.keys[k] += v
			free = p.come(k, false)
		case 5, 6, 7:
			id := r.IntN(len(waiters))
			p.waits = slices.DeleteFunc(p.waits, func(w *plainWait) bool { return w.id == id })
			var keys [][]byte
			w := &plainWait{id: id}
			for range r.IntN(4) {
				k := pick()
				keys = append(keys, []byte(k))
				if !p.present(k) {
					w.missing = append(w.missing, k)
				}
			}
			done, err := tab.Wait(waiters[id], keys)
			must(t, err)
			if done != (len(w.missing) == 0) {
				t.Fatalf("seed %d step %d: Wait = %v", seed, step, done)
			}
			if !done {
				p.waits = append(p.waits, w)
			}
		case 8:
			id := r.IntN(len(waiters))
			was := slices.ContainsFunc(p.waits, func(w *plainWait) bool { return w.id == id })
			if tab.Cancel(waiters[id]) != was {
				t.Fatalf("seed %d step %d: Cancel", seed, step)
			}
			p.waits = slices.DeleteFunc(p.waits, func(w *plainWait) bool { return w.id == id })
		}
		slices.Sort(woken)
		slices.Sort(free)
		if !slices.Equal(woken, free) {
			t.Fatalf("seed %d step %d, kind %d on %s: woken %v, want %v", seed, step, what, k, woken, free)
		}
		if got, _ := tab.Get([]byte(k)); string(got) != p.keys[k] || tab.Len() != len(p.keys) {
			t.Fatalf("seed %d step %d: %q = %q of %d keys, want %q of %d", seed, step, k, got, tab.Len(), p.keys[k], len(p.keys))
		}
	}
	undo(t, tab, waiters, names, seed)
}

func undo(t *testing.T, tab *Table, waiters []*Waiter, names []string, seed uint64) {
	for _, w := range waiters {
		tab.Cancel(w)
	}
	for _, k := range names {
		tab.Delete([]byte(k))
		for n := 1; n > 0; {
			_, n = tab.Pop([]byte(k))
		}
	}
	if tab.Bytes() != 0 || len(tab.slots) != 0 || tab.Len() != 0 {
		t.Fatalf("seed %d: an empty table weighs %d bytes in %d slots, %d keys", seed, tab.Bytes(), len(tab.slots), tab.Len())
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFull refuses each way of growing at the bound, and changes nothing.
func TestFull(t *testing.T) {
	tab := &Table{MaxBytes: 1000}
	must(t, tab.Set([]byte("k"), make([]byte, 300)))
	weight := tab.Bytes()
	w := &Waiter{Wake: func() {}}
	for name, err := range map[string]error{
		"Set":      tab.Set([]byte("k"), make([]byte, 900)),
		"Set new":  tab.Set([]byte("l"), make([]byte, 300)),
		"Append":   tab.Append([]byte("k"), make([]byte, 500)),
		"Push":     tab.Push([]byte("q"), make([]byte, 300)),
		"MultiSet": tab.MultiSet([][]byte{[]byte("x"), []byte("y")}, [][]byte{{1}, {2}}),
		"Wait":     second(tab.Wait(w, [][]byte{[]byte("1"), []byte("2"), []byte("3")})),
		"Watch":    tab.Watch(&Watcher{}, make([]byte, 400)),
	} {
		if !errors.Is(err, ErrFull) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if tab.Bytes() != weight || tab.Len() != 1 || len(tab.slots) != 1 {
		t.Errorf("the table weighs %d, not %d, with %d keys in %d slots", tab.Bytes(), weight, tab.Len(), len(tab.slots))
	}
	if v, _ := tab.Get([]byte("k")); len(v) != 300 {
		t.Errorf("the value has %d bytes", len(v))
	}
}

func second[T any](_ T, err error) error { return err }

// TestAppendKeepsReaders checks that a value that was handed out does not change under its reader.
func TestAppendKeepsReaders(t *testing.T) {
	tab := &Table{}
	var seen [][]byte
	for i := range 100 {
		must(t, tab.Append([]byte("k"), []byte{byte(i)}))
		v, _ := tab.Get([]byte("k"))
		seen = append(seen, v)
	}
	must(t, tab.Set([]byte("k"), nil))
	must(t, tab.Append([]byte("k"), []byte{9}))
	for n, v := range seen {
		for i, b := range v {
			if len(v) != n+1 || int(b) != i {
				t.Fatalf("the value of %d bytes became %v", n+1, v)
			}
		}
	}
}

func TestWatch(t *testing.T) {
	tab := &Table{}
	var told []string
	w := &Watcher{Tell: func(c Change, key string, old, now []byte) {
		told = append(told, fmt.Sprintf("%d %s %q %q", c, key, old, now))
	}}
	must(t, tab.Watch(w, []byte("k")))
	must(t, tab.Watch(w, []byte("k"))) // which changes nothing
	must(t, tab.Set([]byte("k"), []byte("1")))
	_, err := tab.Add([]byte("k"), 1)
	must(t, err)
	_, err = tab.CompareSet([]byte("k"), []byte("no"), []byte("x"))
	must(t, err)
	tab.Delete([]byte("k"))
	tab.Unwatch(w)
	must(t, tab.Set([]byte("k"), []byte("unseen")))
	want := []string{`1 k "" "1"`, `0 k "1" "2"`, `2 k "2" ""`}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	tab.Delete([]byte("k"))
	if tab.Bytes() != 0 {
		t.Errorf("%d bytes are left", tab.Bytes())
	}
}

// TestPoppedIsGivenBack has many values pushed, and all but one popped: what is left weighs as much as it is said to.
func TestPoppedIsGivenBack(t *testing.T) {
	tab := &Table{}
	key := []byte("q")
	for range 100_000 {
		must(t, tab.Push(key, nil))
	}
	for range 99_999 {
		tab.Pop(key)
	}
	if kept := cap(tab.slots["q"].queue.items); kept > 2*fewPopped {
		t.Errorf("one value is left, and places for %d", kept)
	}
	if v, n := tab.Pop(key); v == nil || n != 1 || tab.Bytes() != 0 {
		t.Errorf("%q of %d, %d bytes", v, n, tab.Bytes())
	}
}

// TestPopIsNotLost has a value arrive at the moment when its waiter gives up: it goes to that waiter or stays.
func TestPopIsNotLost(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			m := new(Memory)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			got := make(chan error, 1)
			go func() { _, err := m.Pop(ctx, "q"); got <- err }()
			time.Sleep(time.Second) // of the bubble's clock: the deadline and this end together
			must(t, m.Push(t.Context(), "q", []byte("v")))
			err := <-got
			n, _ := m.QueueLen(t.Context(), "q")
			if (err == nil) == (n == 1) {
				t.Fatalf("Pop: %v, and %d values are left", err, n)
			}
		})
	}
}

// TestGetAndPop wait under one name: each gets what it waits for.
func TestGetAndPop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Memory)
		got := make(chan string, 2)
		go func() { v, _ := m.Get(t.Context(), "x"); got <- "get " + string(v) }()
		synctest.Wait()
		go func() { v, _ := m.Pop(t.Context(), "x"); got <- "pop " + string(v) }()
		synctest.Wait()
		must(t, m.Push(t.Context(), "x", []byte("q")))
		if v := <-got; v != "pop q" {
			t.Error(v)
		}
		must(t, m.Set(t.Context(), "x", []byte("k")))
		if v := <-got; v != "get k" {
			t.Error(v)
		}
	})
}

// TestWaitsLeaveNothing cancels each kind of wait.
func TestWaitsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Memory)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		errs := make(chan error, 4)
		go func() { errs <- m.Wait(ctx, "a", "b") }()
		go func() { errs <- second(m.Get(ctx, "a")) }()
		go func() { errs <- second(m.MultiGet(ctx, "a", "b")) }()
		go func() { errs <- second(m.Pop(ctx, "q")) }()
		for range 4 {
			if err := <-errs; !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		m.Do(func(tab *Table) {
			if tab.Bytes() != 0 {
				t.Errorf("%d bytes are left", tab.Bytes())
			}
		})
	})
}

func BenchmarkTable(b *testing.B) {
	m := new(Memory)
	key, value := []byte("/bench/key"), make([]byte, 64)
	for name, f := range map[string]func(t *Table){
		"set": func(t *Table) { _ = t.Set(key, value) },
		"get": func(t *Table) { t.Get(key) },
		"add": func(t *Table) { _, _ = t.Add([]byte("/bench/n"), 1) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Do(f)
			}
		})
	}
}
