package store

// A Waiter waits for keys of a Table: at most one set of them at a time. Its zero value, with Wake set, is ready.
type Waiter struct {
	// Wake is called once for each wait, from inside the call on the table that brought the last key. It must not
	// call the table.
	Wake func()

	seats []seat // one for each key that was missing when the wait began
	left  int    // how many of them still are
	cost  int
}

// A seat is one waiter's place in the line of one slot. Lines are linked, so that ten thousand waiters for one
// key cost one allocation each and leave from the middle at once.
type seat struct {
	w          *Waiter
	slot       *slot // nil: not in line
	prev, next *seat
	want       want
	several    bool // the wait began with other missing keys too
}

// A want is which name space satisfies a wait.
type want byte

const (
	wantAny   want = iota // c10d's WAIT: a key is there, or a queue of that name is not empty
	wantKey               // a plain key
	wantQueue             // a value in a queue
	wantNews              // the next change of a plain key, which may be there: an open barrier
)

func (s *slot) has(x want) bool {
	key, queue := s.present, s.queue.len() > 0
	return x == wantAny && (key || queue) || x == wantKey && key || x == wantQueue && queue
}

func (t *Table) has(key []byte, x want) bool {
	s := t.slots[string(key)]
	return s != nil && s.has(x)
}

// A line is those who wait for one slot, the oldest first.
type line struct {
	first, last *seat
	several     int // seats of waits for several keys
}

func (s *slot) join(e *seat) {
	e.slot, e.prev, e.next = s, s.line.last, nil
	if s.line.last == nil {
		s.line.first = e
	} else {
		s.line.last.next = e
	}
	s.line.last = e
	if e.several {
		s.line.several++
	}
}

// leave takes e out of its line. It keeps e.next, so that a walk along the line goes on.
func (e *seat) leave() {
	l := &e.slot.line
	if e.prev == nil {
		l.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	if e.several {
		l.several--
	}
	e.slot = nil
}

// Waiting reports whether a wait of w is pending.
func (w *Waiter) Waiting() bool { return w.left > 0 }

// Wait returns true when all keys have what Has asks for. Otherwise w waits for the missing ones, each of which
// needs to come only once and may go again; what w waited for before is forgotten.
func (t *Table) Wait(w *Waiter, keys [][]byte) (bool, error) { return t.wait(w, keys, wantAny) }

func (t *Table) wait(w *Waiter, keys [][]byte, x want) (bool, error) {
	t.Cancel(w)
	missing := 0
	for _, k := range keys {
		if !t.has(k, x) {
			missing++
		}
	}
	if missing == 0 {
		return true, nil
	}
	return false, t.seat(w, keys, x, missing)
}

// seat puts w into the lines of the n keys that it misses, or into none of them when they are too many to keep.
func (t *Table) seat(w *Waiter, keys [][]byte, x want, n int) error {
	if err := t.charge(n * seatCost); err != nil {
		return err
	}
	w.cost = n * seatCost
	if n != 1 || cap(w.seats) != 1 { // most waits are for one key and reuse its seat
		w.seats = make([]seat, 0, n)
	}
	for _, k := range keys {
		if t.has(k, x) {
			continue
		}
		s, err := t.slot(k)
		if err != nil {
			t.Cancel(w)
			return err
		}
		w.seats = append(w.seats, seat{w: w, want: x, several: n > 1}) // never beyond the capacity: seats do not move
		s.join(&w.seats[len(w.seats)-1])
		w.left++
	}
	return nil
}

// Cancel ends the wait of w and reports whether one was pending. Wake will not be called for it any more.
func (t *Table) Cancel(w *Waiter) bool {
	if w.cost == 0 {
		return false
	}
	for i := range w.seats {
		e := &w.seats[i]
		if s := e.slot; s != nil {
			e.leave()
			t.tidy(s)
		}
	}
	t.rise(w)
	return true
}

// rise ends a wait whose seats are all left.
func (t *Table) rise(w *Waiter) {
	t.bytes -= int64(w.cost)
	w.cost, w.left = 0, 0
	if cap(w.seats) != 1 {
		w.seats = nil
	}
	w.seats = w.seats[:0]
}

// came ends the wait at seat e, and wakes its waiter when that was the last.
func (t *Table) came(e *seat) {
	w := e.w
	e.leave()
	w.left--
	if w.left == 0 {
		t.rise(w)
		w.Wake()
	}
}

// wakeAll tells everyone in the line of s that its key has come.
func (t *Table) wakeAll(s *slot) {
	for e := s.line.first; e != nil; {
		next := e.next
		if e.want != wantQueue {
			t.came(e)
		}
		e = next
	}
}

// wakeOne tells the line of s that its queue got one value. One waiter can have it: the oldest that lacks nothing
// else. Those who lack more have now seen the queue filled; otherwise one who waits for a queue and a key could
// sleep on beside both.
func (t *Table) wakeOne(s *slot) {
	woken := false
	for e := s.line.first; e != nil && (!woken || s.line.several > 0); {
		next := e.next
		switch {
		case e.want == wantKey || e.want == wantNews:
		case e.w.left > 1:
			t.came(e)
		case !woken:
			woken = true
			t.came(e)
		}
		e = next
	}
}

// Barrier counts one more arrival at the barrier key, in decimal text like Add. With world or more it returns true
// and wakes everyone who waits for key. Otherwise w waits for key. A barrier is used once: the count stays, and a
// cancelled wait does not lower it.
func (t *Table) Barrier(w *Waiter, key []byte, world int64) (bool, error) {
	t.Cancel(w)
	s, n, err := t.count(key, 1)
	if err != nil {
		return false, err
	}
	if n >= world {
		t.wakeAll(s)
		return true, nil
	}
	return false, t.seat(w, [][]byte{key}, wantNews, 1)
}

// A Change is what happened to a watched key, numbered as PyTorch 1.13 tells it.
type Change byte

// The changes that a Watcher is told.
const (
	Updated Change = iota
	Created
	Deleted
)

// A Watcher is told every change of the keys that it watches.
type Watcher struct {
	// Tell is called from inside the call on the table that made the change, before whoever waits is woken. It must not call the
	// table, but to watch another key.
	Tell  func(c Change, key string, old, now []byte)
	slots map[*slot]struct{}
}

// Watch makes w watch key. Who watches it already is told no change twice.
func (t *Table) Watch(w *Watcher, key []byte) error {
	s, err := t.slot(key)
	if err != nil {
		return err
	}
	if _, already := w.slots[s]; already {
		return nil
	}
	if err := t.charge(watchCost); err != nil {
		t.tidy(s)
		return err
	}
	if s.watchers == nil {
		s.watchers = map[*Watcher]struct{}{}
	}
	if w.slots == nil {
		w.slots = map[*slot]struct{}{}
	}
	s.watchers[w], w.slots[s] = struct{}{}, struct{}{}
	return nil
}

// Unwatch ends all watching of w.
func (t *Table) Unwatch(w *Watcher) {
	for s := range w.slots {
		delete(s.watchers, w)
		t.bytes -= watchCost
		t.tidy(s)
	}
	w.slots = nil
}

func (s *slot) tell(c Change, old, now []byte) {
	for w := range s.watchers {
		w.Tell(c, s.name, old, now)
	}
}
