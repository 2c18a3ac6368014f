package torchrun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// A global is a class or function by the names of its module and itself.
type global struct{ module, name string }

// The globals that a state is made of.
var (
	stateClass = global{"torch.distributed.elastic.rendezvous.dynamic_rendezvous", "_RendezvousState"}
	descClass  = global{"torch.distributed.elastic.rendezvous.dynamic_rendezvous", "_NodeDesc"}
	datetimeOf = global{"datetime", "datetime"}
	timezoneOf = global{"datetime", "timezone"}
	deltaOf    = global{"datetime", "timedelta"}
)

// What a pickle makes: nil, bool, int32, string, []byte, and these.
type (
	object struct {
		class global
		attrs []pair
	}
	dict     struct{ pairs []pair }
	set      struct{ items []any }
	tuple    []any
	pair     struct{ key, value any }
	delta    struct{ days, seconds, micros int32 }
	utc      struct{}
	datetime struct {
		time.Time
		aware bool
	}
	mark struct{}
)

// maxAttrs bounds the attributes of an object, of which a state has eight. They are searched one by one, and an object
// may be referred to often.
const maxAttrs = 32

// attr returns the attribute that Python would find: the last of the name.
func (o *object) attr(name string) (any, bool) {
	for i := len(o.attrs) - 1; i >= 0; i-- {
		if o.attrs[i].key == name {
			return o.attrs[i].value, true
		}
	}
	return nil, false
}

var errShort = errors.New("it ends too soon")

// A machine runs a pickle. Each opcode adds at most a constant to what it holds, so its memory is bounded by the input.
type machine struct {
	in       []byte
	at       int
	stack    []any
	memo     []any
	protocol byte
}

// run returns the value that the pickle leaves.
func (m *machine) run() (any, error) {
	head, err := m.take(2)
	if err != nil {
		return nil, err
	}
	if head[0] != opProto || head[1] != 4 && head[1] != 5 {
		return nil, fmt.Errorf("it does not begin as a pickle of protocol 4 or 5: % x", head)
	}
	m.protocol = head[1]
	for {
		op, err := m.take(1)
		if err != nil {
			return nil, err
		}
		if op[0] == opStop {
			return m.result()
		}
		do, ok := opcodes[op[0]]
		if !ok {
			return nil, fmt.Errorf("opcode %#02x is not one that a state has", op[0])
		}
		if err := do(m); err != nil {
			return nil, err
		}
	}
}

func (m *machine) result() (any, error) {
	if len(m.stack) != 1 || m.at != len(m.in) {
		return nil, fmt.Errorf("it leaves %d values and %d bytes", len(m.stack), len(m.in)-m.at)
	}
	return m.stack[0], nil
}

// The opcodes of a state's pickle.
const (
	opProto      = 0x80
	opStop       = '.'
	opMark       = '('
	opNone       = 'N'
	opTrue       = 0x88
	opFalse      = 0x89
	opInt1       = 'K'
	opInt2       = 'M'
	opInt4       = 'J'
	opShortStr   = 0x8c
	opStr        = 'X'
	opShortBytes = 'C'
	opEmptyTuple = ')'
	opTuple1     = 0x85
	opTuple2     = 0x86
	opTuple3     = 0x87
	opEmptyDict  = '}'
	opSetItem    = 's'
	opSetItems   = 'u'
	opEmptySet   = 0x8f
	opAddItems   = 0x90
	opGlobal     = 0x93
	opNewObject  = 0x81
	opBuild      = 'b'
	opReduce     = 'R'
	opMemoize    = 0x94
	opGet1       = 'h'
	opGet4       = 'j'
	opFrame      = 0x95
)

var opcodes = map[byte]func(*machine) error{
	opMark:       func(m *machine) error { return m.push(mark{}) },
	opNone:       func(m *machine) error { return m.push(nil) },
	opTrue:       func(m *machine) error { return m.push(true) },
	opFalse:      func(m *machine) error { return m.push(false) },
	opInt1:       func(m *machine) error { return m.int(1) },
	opInt2:       func(m *machine) error { return m.int(2) },
	opInt4:       func(m *machine) error { return m.int(4) },
	opShortStr:   func(m *machine) error { return m.string(1) },
	opStr:        func(m *machine) error { return m.string(4) },
	opShortBytes: (*machine).bytes,
	opEmptyTuple: func(m *machine) error { return m.push(tuple{}) },
	opTuple1:     func(m *machine) error { return m.tuple(1) },
	opTuple2:     func(m *machine) error { return m.tuple(2) },
	opTuple3:     func(m *machine) error { return m.tuple(3) },
	opEmptyDict:  func(m *machine) error { return m.push(&dict{}) },
	opSetItem:    (*machine).setItem,
	opSetItems:   (*machine).setItems,
	opEmptySet:   func(m *machine) error { return m.push(&set{}) },
	opAddItems:   (*machine).addItems,
	opGlobal:     (*machine).global,
	opNewObject:  (*machine).newObject,
	opBuild:      (*machine).build,
	opReduce:     (*machine).reduce,
	opMemoize:    (*machine).memoize,
	opGet1:       func(m *machine) error { return m.recall(1) },
	opGet4:       func(m *machine) error { return m.recall(4) },
	opFrame:      (*machine).frame,
}

func (m *machine) push(v any) error {
	m.stack = append(m.stack, v)
	return nil
}

// take returns the next n bytes of input.
func (m *machine) take(n int) ([]byte, error) {
	if n > len(m.in)-m.at {
		return nil, errShort
	}
	m.at += n
	return m.in[m.at-n : m.at], nil
}

// number reads an unsigned number of 1, 2 or 4 bytes.
func (m *machine) number(size int) (uint32, error) {
	b, err := m.take(size)
	if err != nil {
		return 0, err
	}
	var wide [4]byte
	copy(wide[:], b)
	return binary.LittleEndian.Uint32(wide[:]), nil
}

// int pushes a number. That of four bytes is signed.
func (m *machine) int(size int) error {
	n, err := m.number(size)
	if err != nil {
		return err
	}
	return m.push(int32(n))
}

func (m *machine) counted(size int) ([]byte, error) {
	n, err := m.number(size)
	if err != nil {
		return nil, err
	}
	return m.take(int(n))
}

func (m *machine) string(size int) error {
	b, err := m.counted(size)
	if err != nil {
		return err
	}
	if !utf8.Valid(b) {
		return errors.New("a string that is not UTF-8")
	}
	return m.push(string(b))
}

func (m *machine) bytes() error {
	b, err := m.counted(1)
	if err != nil {
		return err
	}
	return m.push(b)
}

// frame says how long a run of opcodes is, which need not be known.
func (m *machine) frame() error {
	_, err := m.take(8)
	return err
}

// pop returns the n topmost values, the last pushed last.
func (m *machine) pop(n int) ([]any, error) {
	if n > len(m.stack) {
		return nil, errors.New("its stack is too short")
	}
	top := m.stack[len(m.stack)-n:]
	m.stack = m.stack[:len(m.stack)-n]
	return top, nil
}

// popMark returns the values above the last mark, and removes the mark.
func (m *machine) popMark() ([]any, error) {
	for i := len(m.stack) - 1; i >= 0; i-- {
		if m.stack[i] == any(mark{}) {
			top := m.stack[i+1:]
			m.stack = m.stack[:i]
			return top, nil
		}
	}
	return nil, errors.New("it has no mark")
}

func (m *machine) tuple(n int) error {
	v, err := m.pop(n)
	if err != nil {
		return err
	}
	return m.push(append(tuple{}, v...))
}

func top[T any](m *machine) (t T, err error) {
	if len(m.stack) == 0 {
		return t, errors.New("its stack is empty")
	}
	t, ok := m.stack[len(m.stack)-1].(T)
	if !ok {
		return t, fmt.Errorf("%T where %T belongs", m.stack[len(m.stack)-1], t)
	}
	return t, nil
}

func (m *machine) setItem() error {
	kv, err := m.pop(2)
	if err != nil {
		return err
	}
	d, err := top[*dict](m)
	if err != nil {
		return err
	}
	d.pairs = append(d.pairs, pair{kv[0], kv[1]})
	return nil
}

func (m *machine) setItems() error {
	items, err := m.popMark()
	if err != nil {
		return err
	}
	d, err := top[*dict](m)
	if err != nil {
		return err
	}
	if len(items)%2 != 0 {
		return errors.New("a key without a value")
	}
	for i := 0; i < len(items); i += 2 {
		d.pairs = append(d.pairs, pair{items[i], items[i+1]})
	}
	return nil
}

func (m *machine) addItems() error {
	items, err := m.popMark()
	if err != nil {
		return err
	}
	s, err := top[*set](m)
	if err != nil {
		return err
	}
	s.items = append(s.items, items...)
	return nil
}

func (m *machine) global() error {
	v, err := m.pop(2)
	if err != nil {
		return err
	}
	module, ok1 := v[0].(string)
	name, ok2 := v[1].(string)
	g := global{module, name}
	switch {
	case !ok1 || !ok2:
		return errors.New("a global whose names are not strings")
	case g != stateClass && g != descClass && g != datetimeOf && g != timezoneOf && g != deltaOf:
		return fmt.Errorf("global %q of %q is not one that a state has", g.name, g.module)
	}
	return m.push(g)
}

func (m *machine) newObject() error {
	v, err := m.pop(2)
	if err != nil {
		return err
	}
	class, ok1 := v[0].(global)
	args, ok2 := v[1].(tuple)
	if !ok1 || !ok2 || len(args) != 0 || class != stateClass && class != descClass {
		return errors.New("a new object that is neither a state nor a node")
	}
	return m.push(&object{class: class})
}

func (m *machine) build() error {
	v, err := m.pop(1)
	if err != nil {
		return err
	}
	o, err := top[*object](m)
	if err != nil {
		return err
	}
	d, ok := v[0].(*dict)
	if !ok || len(o.attrs)+len(d.pairs) > maxAttrs {
		return errors.New("attributes that an object of a state does not have")
	}
	o.attrs = append(o.attrs, d.pairs...)
	return nil
}

func (m *machine) memoize() error {
	v, err := top[any](m)
	if len(m.stack) == 0 {
		return err
	}
	m.memo = append(m.memo, v)
	return nil
}

func (m *machine) recall(size int) error {
	i, err := m.number(size)
	if err != nil {
		return err
	}
	if uint64(i) >= uint64(len(m.memo)) {
		return fmt.Errorf("it recalls %d of %d", i, len(m.memo))
	}
	return m.push(m.memo[i])
}

// reduce is where a pickle calls a function. Ours knows three and calls none.
func (m *machine) reduce() error {
	v, err := m.pop(2)
	if err != nil {
		return err
	}
	function, ok1 := v[0].(global)
	args, ok2 := v[1].(tuple)
	if !ok1 || !ok2 {
		return errors.New("a call that is not one of a function")
	}
	made, err := call(function, args)
	if err != nil {
		return err
	}
	return m.push(made)
}

func call(function global, args tuple) (any, error) {
	switch function {
	case deltaOf:
		if len(args) == 3 {
			d, ok1 := args[0].(int32)
			s, ok2 := args[1].(int32)
			u, ok3 := args[2].(int32)
			if ok1 && ok2 && ok3 {
				return delta{d, s, u}, nil
			}
		}
	case timezoneOf:
		if len(args) == 1 && args[0] == any(delta{}) {
			return utc{}, nil
		}
	case datetimeOf:
		if len(args) == 1 || len(args) == 2 && args[1] == any(utc{}) {
			if b, ok := args[0].([]byte); ok {
				return datetimeFrom(b, len(args) == 2)
			}
		}
	}
	return nil, fmt.Errorf("a call of %s with arguments that a state does not have", function.name)
}

// datetimeFrom reads Python's form of a time: year (2 bytes), month, day, hour, minute, second, microsecond (3), the
// highest byte first.
func datetimeFrom(b []byte, aware bool) (datetime, error) {
	if len(b) != 10 {
		return datetime{}, fmt.Errorf("a time of %d bytes", len(b))
	}
	year, micro := int(b[0])<<8|int(b[1]), int(b[7])<<16|int(b[8])<<8|int(b[9])
	t := time.Date(year, time.Month(b[2]), int(b[3]), int(b[4]), int(b[5]), int(b[6]), micro*1000, time.UTC)
	d := datetime{t, aware}
	if year < 1970 || year > 9999 || string(d.payload()) != string(b) {
		return datetime{}, fmt.Errorf("% x is no time", b)
	}
	return d, nil
}

// payload is the inverse of datetimeFrom.
func (d datetime) payload() []byte {
	t := d.UTC()
	year, micro := t.Year(), t.Nanosecond()/1000
	return []byte{
		byte(year >> 8), byte(year), byte(t.Month()), byte(t.Day()), byte(t.Hour()), byte(t.Minute()), byte(t.Second()),
		byte(micro >> 16), byte(micro >> 8), byte(micro),
	}
}
