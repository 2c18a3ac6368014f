package store

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ErrFull is wrapped by the error of a call that would make the table larger than it may be.
var ErrFull = errors.New("the store is full")

// ErrNotNumber is wrapped by the error of an Add or a Barrier on a value that is no decimal number.
var ErrNotNumber = errors.New("not a decimal number that fits 64 bits")

// DefaultMaxBytes bounds a table whose owner names no bound. The largest honest use known is gloo's addresses:
// 8 bytes for each pair of ranks, 135 MB for 4,096 ranks.
const DefaultMaxBytes = 1 << 30

// What a slot, a seat and a watched key weigh in memory beside their key and value, rounded up.
const (
	slotCost  = 256
	seatCost  = 96
	watchCost = 256 // in a map of the slot and in one of the watcher
)

// A Table is the contents of a store: keys, queues, and those who wait for them. It never blocks and has no lock:
// its owner calls one method at a time, which makes the order of calls the order of everything.
//
// Slices that it returns are the table's own: the caller may keep them, since stored bytes never change, but must
// not write to them. Slices that it is given are copied.
type Table struct {
	MaxBytes int64 // bound on all that is kept, overhead included; 0: DefaultMaxBytes
	bytes    int64 // kept now
	slots    map[string]*slot
	plain    roll
}

// A roll is the slots in which a plain key is present, linked, so that to list them costs nothing for those that are waited for alone.
type roll struct {
	first *slot
	count int
	names int // bytes of all names
}

func (r *roll) enter(s *slot) {
	if s.next = r.first; s.next != nil {
		s.next.prev = s
	}
	r.first = s
	r.count, r.names = r.count+1, r.names+len(s.name)
}

func (r *roll) leave(s *slot) {
	if s.prev == nil {
		r.first = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
	r.count, r.names = r.count-1, r.names-len(s.name)
}

// A slot is everything under one name. Plain keys and queues are separate name spaces in one map, so that one
// look-up finds the value, the queue and those who wait for either.
type slot struct {
	name     string
	value    []byte
	present  bool  // value is there; it may be empty
	prev     *slot // on the roll, if it is
	next     *slot
	queue    queue
	line     line
	watchers map[*Watcher]struct{}
}

// A queue is first in, first out.
type queue struct {
	items [][]byte
	head  int
}

func (q *queue) len() int { return len(q.items) - q.head }

func (q *queue) push(v []byte) {
	if q.head > len(q.items)/2 {
		q.shift()
	}
	q.items = append(q.items, v)
}

func (q *queue) pop() []byte {
	v := q.items[q.head]
	q.items[q.head] = nil
	q.head++
	switch {
	case q.head == len(q.items):
		*q = queue{}
	case q.head >= fewPopped && q.head > len(q.items)/2: // what is left may never be popped, and nobody counts the rest
		q.shift()
	}
	return v
}

// fewPopped is how many values' places a queue may keep that are gone.
const fewPopped = 64

// shift gives back the places of what was popped.
func (q *queue) shift() {
	q.items = append([][]byte(nil), q.items[q.head:]...)
	q.head = 0
}

// Bytes returns what the table weighs: keys, values, queues and waiters with their overhead.
func (t *Table) Bytes() int64 { return t.bytes }

// charge accounts for n more bytes, or refuses them.
func (t *Table) charge(n int) error {
	limit := t.MaxBytes
	if limit == 0 {
		limit = DefaultMaxBytes
	}
	if t.bytes+int64(n) > limit {
		return fmt.Errorf("%w: it holds %d of %d bytes", ErrFull, t.bytes, limit)
	}
	t.bytes += int64(n)
	return nil
}

// slot returns the slot of key, made when missing.
func (t *Table) slot(key []byte) (*slot, error) {
	if s := t.slots[string(key)]; s != nil {
		return s, nil
	}
	if err := t.charge(slotCost + len(key)); err != nil {
		return nil, err
	}
	s := &slot{name: string(key)}
	if t.slots == nil {
		t.slots = map[string]*slot{}
	}
	t.slots[s.name] = s
	return s, nil
}

// tidy forgets s when nothing is left in it.
func (t *Table) tidy(s *slot) {
	if s.present || s.queue.len() > 0 || s.line.first != nil || len(s.watchers) > 0 {
		return
	}
	delete(t.slots, s.name)
	t.bytes -= int64(slotCost + len(s.name))
}

// put makes value, which must be fresh memory, the value of key. It wakes nobody.
func (t *Table) put(key, value []byte) (*slot, error) {
	s, err := t.slot(key)
	if err != nil {
		return nil, err
	}
	if err := t.charge(cap(value) - cap(s.value)); err != nil {
		t.tidy(s)
		return nil, err
	}
	kind, old := Updated, s.value
	if !s.present {
		kind = Created
		t.plain.enter(s)
	}
	s.value, s.present = value, true
	s.tell(kind, old, value)
	return s, nil
}

// Set stores value under key and wakes those who wait for it.
func (t *Table) Set(key, value []byte) error {
	s, err := t.put(key, copyOf(value))
	if err == nil {
		t.wakeAll(s)
	}
	return err
}

// Room refuses n more bytes when the table could not take them, so that a call of many parts is done whole or not.
func (t *Table) Room(n int) error {
	err := t.charge(n)
	if err == nil {
		t.bytes -= int64(n)
	}
	return err
}

// MultiSet stores values[i] under keys[i], in order: all of them, or none when they might not fit.
func (t *Table) MultiSet(keys, values [][]byte) error {
	n := 0
	for i := range keys {
		n += slotCost + len(keys[i]) + len(values[i])
	}
	if err := t.Room(n); err != nil {
		return err
	}
	for i := range keys {
		if err := t.Set(keys[i], values[i]); err != nil {
			return err
		}
	}
	return nil
}

// Get returns the value of key and whether key is present.
func (t *Table) Get(key []byte) ([]byte, bool) {
	s := t.slots[string(key)]
	if s == nil || !s.present {
		return nil, false
	}
	return s.value[:len(s.value):len(s.value)], true
}

// CompareSet stores desired if key holds expected, or if key is missing and expected is empty. It returns what key
// holds afterwards, or expected when key is missing and stays so. Waiters are woken only when the key is new.
func (t *Table) CompareSet(key, expected, desired []byte) ([]byte, error) {
	now, present := t.Get(key)
	if !present && len(expected) > 0 {
		return copyOf(expected), nil
	}
	if present && !bytes.Equal(now, expected) {
		return now, nil
	}
	s, err := t.put(key, copyOf(desired))
	if err != nil {
		return nil, err
	}
	if !present {
		t.wakeAll(s)
	}
	return s.value, nil
}

// Add adds delta to the decimal text under key, missing being 0, stores the sum as text and returns it. The sum
// wraps as 64-bit numbers do.
func (t *Table) Add(key []byte, delta int64) (int64, error) {
	s, sum, err := t.count(key, delta)
	if err == nil {
		t.wakeAll(s)
	}
	return sum, err
}

// count is Add without waking.
func (t *Table) count(key []byte, delta int64) (*slot, int64, error) {
	var now int64
	if text, present := t.Get(key); present {
		var err error
		if now, err = ParseInt(text); err != nil {
			return nil, 0, fmt.Errorf("value of key %.80q: %w", key, err)
		}
	}
	sum := now + delta
	var digits [20]byte
	s, err := t.put(key, copyOf(strconv.AppendInt(digits[:0], sum, 10)))
	return s, sum, err
}

// Append extends the value of key, creating it when missing, and wakes those who wait for it.
func (t *Table) Append(key, value []byte) error {
	s, err := t.slot(key)
	if err != nil {
		return err
	}
	if err := t.Room(2*(len(s.value)+len(value)) + 64 - cap(s.value)); err != nil { // as far as append may grow it
		t.tidy(s)
		return err
	}
	// Readers of the old value keep its length; the bytes that append may write lie behind it.
	if s, err = t.put(key, append(s.value[:len(s.value)], value...)); err == nil {
		t.wakeAll(s)
	}
	return err
}

// Has reports whether key would satisfy a wait: it is present, or a queue of that name is not empty.
func (t *Table) Has(key []byte) bool { return t.has(key, wantAny) }

// HasAll reports whether Has is true of all keys.
func (t *Table) HasAll(keys [][]byte) bool {
	for _, k := range keys {
		if !t.Has(k) {
			return false
		}
	}
	return true
}

// Delete removes a plain key and reports whether it was present. Those who have seen it go on as if it stayed.
func (t *Table) Delete(key []byte) bool {
	s := t.slots[string(key)]
	if s == nil || !s.present {
		return false
	}
	old := s.value
	t.bytes -= int64(cap(old))
	t.plain.leave(s)
	s.value, s.present = nil, false
	s.tell(Deleted, old, nil)
	t.tidy(s)
	return true
}

// Len returns the number of plain keys.
func (t *Table) Len() int { return t.plain.count }

// NameBytes returns how many bytes the names of all plain keys have together.
func (t *Table) NameBytes() int { return t.plain.names }

// Keys calls f with the name of each plain key, in no order.
func (t *Table) Keys(f func(name string)) {
	for s := t.plain.first; s != nil; s = s.next {
		f(s.name)
	}
}

// Push puts value at the end of queue key and wakes the oldest waiter that lacked nothing else.
func (t *Table) Push(key, value []byte) error {
	s, err := t.slot(key)
	if err != nil {
		return err
	}
	if err := t.charge(len(value) + 2*seatCost); err != nil {
		t.tidy(s)
		return err
	}
	s.queue.push(copyOf(value))
	t.wakeOne(s)
	return nil
}

// Pop removes the head of queue key. It returns the length before that; with 0 there is no value.
func (t *Table) Pop(key []byte) ([]byte, int) {
	s := t.slots[string(key)]
	if s == nil || s.queue.len() == 0 {
		return nil, 0
	}
	n := s.queue.len()
	v := s.queue.pop()
	t.bytes -= int64(len(v) + 2*seatCost)
	t.tidy(s)
	return v, n
}

// QueueLen returns the number of values in queue key.
func (t *Table) QueueLen(key []byte) int {
	if s := t.slots[string(key)]; s != nil {
		return s.queue.len()
	}
	return 0
}

// copyOf returns a copy that is not nil and whose capacity is its length, so that its weight is known.
func copyOf(b []byte) []byte {
	c := make([]byte, len(b))
	copy(c, b)
	return c
}

// mostText is as much of a value as is searched for a number. A value of megabytes of spaces would hold up all others.
const mostText = 4 << 10

// ParseInt reads a number as C's strtoll does in base 10, which is what PyTorch's servers call: white space and a
// sign may lead, rubbish may trail. No digit in the first 4 KiB, or more than fits, is an error.
func ParseInt(text []byte) (int64, error) {
	text = text[:min(len(text), mostText)]
	i := 0
	for i < len(text) && strings.IndexByte(" \t\n\v\f\r", text[i]) >= 0 {
		i++
	}
	negative := i < len(text) && text[i] == '-'
	if i < len(text) && (text[i] == '-' || text[i] == '+') {
		i++
	}
	var n uint64
	digits := 0
	for ; i < len(text) && '0' <= text[i] && text[i] <= '9'; i, digits = i+1, digits+1 {
		d := uint64(text[i] - '0')
		if n > (math.MaxUint64-d)/10 {
			return 0, fmt.Errorf("%.40q: %w", text, ErrNotNumber)
		}
		n = n*10 + d
	}
	limit := uint64(math.MaxInt64)
	if negative {
		limit++
	}
	if digits == 0 || n > limit {
		return 0, fmt.Errorf("%.40q: %w", text, ErrNotNumber)
	}
	if negative {
		return -int64(n), nil
	}
	return int64(n), nil
}
