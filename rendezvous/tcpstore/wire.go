package tcpstore

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A verb is what a request asks for, numbered as PyTorch 2.2 and later do on the wire.
type verb byte

const (
	validate verb = iota
	set
	compareSet
	get
	add
	check
	wait
	numKeys
	deleteKey
	appendKey
	multiGet
	multiSet
	cancelWait
	ping
	queuePush
	queuePop
	queueLen
	listKeys
	barrier
	watchKey // 1.13 only
	numVerbs
)

// A form is what follows a verb's number on the wire, and the verb's name for messages.
type form struct {
	name string
	// fields: k is a key and b a value, both after their length in 8 bytes; i is a number of 8 bytes, u one of 4.
	fields string
	many   bool // a count of 8 bytes goes first, and the fields repeat as often
}

var forms = [numVerbs]form{
	validate:   {name: "VALIDATE", fields: "u"},
	set:        {name: "SET", fields: "kb"},
	compareSet: {name: "COMPARE_SET", fields: "kbb"},
	get:        {name: "GET", fields: "k"},
	add:        {name: "ADD", fields: "ki"},
	check:      {name: "CHECK", fields: "k", many: true},
	wait:       {name: "WAIT", fields: "k", many: true},
	numKeys:    {name: "GETNUMKEYS"},
	deleteKey:  {name: "DELETE_KEY", fields: "k"},
	appendKey:  {name: "APPEND", fields: "kb"},
	multiGet:   {name: "MULTI_GET", fields: "k", many: true},
	multiSet:   {name: "MULTI_SET", fields: "kb", many: true},
	cancelWait: {name: "CANCEL_WAIT"},
	ping:       {name: "PING", fields: "u"},
	queuePush:  {name: "QUEUE_PUSH", fields: "kb"},
	queuePop:   {name: "QUEUE_POP", fields: "k"},
	queueLen:   {name: "QUEUE_LEN", fields: "k"},
	listKeys:   {name: "LIST_KEYS"},
	barrier:    {name: "BARRIER", fields: "ki"},
	watchKey:   {name: "WATCH_KEY", fields: "k"},
}

func (v verb) String() string { return forms[v].name }

// A numbering lists the verbs of a dialect by their numbers.
type numbering []verb

var (
	// numbersA is PyTorch 1.13's and 2.0's numbering, numbersB is 2.1's, numbersV is that of 2.2 and later.
	numbersA = numbering{set, compareSet, get, add, check, wait, numKeys, watchKey, deleteKey}
	numbersB = numbering{set, compareSet, get, add, check, wait, numKeys, deleteKey, appendKey, multiGet, multiSet, cancelWait}
	numbersV = numbering{validate, set, compareSet, get, add, check, wait, numKeys, deleteKey, appendKey, multiGet,
		multiSet, cancelWait, ping, queuePush, queuePop, queueLen, listKeys, barrier}
)

// cancelInB is CANCEL_WAIT's number in numbersB, and none in numbersA: what tells them apart.
const cancelInB = 11

// number returns the number of v and whether the dialect has it.
func (n numbering) number(v verb) (byte, bool) {
	for i, x := range n {
		if x == v {
			return byte(i), true
		}
	}
	return 0, false
}

// magic follows VALIDATE's number. It opens every connection of 2.2 and later.
const magic = 0x3C85F7CE

var hello = []byte{0, 0xce, 0xf7, 0x85, 0x3c}

// Bounds on one request that PyTorch's libuv server has too. It closes the connection beyond them.
const (
	MaxKey   = 8192      // bytes in a key
	MaxCount = 128 << 10 // keys in a CHECK, WAIT, MULTI_GET or MULTI_SET
)

// DefaultMaxValue bounds a value, in bytes, where the server's owner sets no bound. It is libuv's.
const DefaultMaxValue = 8 << 20

// limits are the bounds under which requests are read.
type limits struct {
	value   int // bytes in a value
	request int // bytes in a whole request
}

// errFrame is wrapped by every error of a request that is no request.
var errFrame = errors.New("bad request")

// A request is one decoded request. Its slices are part of the buffer that it was decoded from.
type request struct {
	verb   verb
	key    []byte
	value  []byte // SET, APPEND, QUEUE_PUSH; what COMPARE_SET expects
	other  []byte // what COMPARE_SET desires
	n      int64  // ADD's delta, BARRIER's world size
	nonce  uint32 // PING, VALIDATE
	keys   [][]byte
	values [][]byte
}

// A scan is how far an unfinished request was read, so that what arrives in many pieces is looked at once.
type scan struct {
	pos  int // bytes looked at
	left int // fields to come
	at   int // index of the next field in the form
	need int // bytes without which looking again is of no use
}

// measure looks for the end of a request of form f in b, going on where s stopped; s begins as zero. It returns
// true when the end is at s.pos.
func measure(b []byte, f *form, lim limits, s *scan) (bool, error) {
	if s.pos == 0 {
		if ok, err := s.begin(b, f); !ok {
			return false, err
		}
	}
	for s.left > 0 {
		n, err := s.field(b, f.fields[s.at], lim)
		if n == 0 {
			return false, err
		}
		s.pos += n
		s.left--
		if s.at++; s.at == len(f.fields) {
			s.at = 0
		}
	}
	return true, nil
}

// begin reads the number of the verb, which the caller knows, and the count where the form has one.
func (s *scan) begin(b []byte, f *form) (bool, error) {
	if !f.many {
		s.pos, s.left = 1, len(f.fields)
		return true, nil
	}
	if s.need = 9; len(b) < 9 {
		return false, nil
	}
	n := binary.LittleEndian.Uint64(b[1:])
	if n > MaxCount {
		return false, fmt.Errorf("%w: %s of %d keys; %d is the most", errFrame, f.name, n, MaxCount)
	}
	s.pos, s.left = 9, int(n)*len(f.fields)
	return true, nil
}

// field returns the size of the next field, or 0 when more bytes are needed to know it or have it.
func (s *scan) field(b []byte, kind byte, lim limits) (int, error) {
	size := 8
	if kind == 'u' {
		size = 4
	}
	if s.need = s.pos + size; len(b) < s.need {
		return 0, nil
	}
	if kind == 'i' || kind == 'u' {
		return size, nil
	}
	n, most := binary.LittleEndian.Uint64(b[s.pos:]), uint64(MaxKey)
	if kind == 'b' {
		most = uint64(lim.value)
	}
	if n > most {
		return 0, fmt.Errorf("%w: %s of %d bytes; %d is the most", errFrame, nameOf[kind], n, most)
	}
	size += int(n)
	if s.need = s.pos + size; s.need > lim.request {
		return 0, fmt.Errorf("%w: a request of more than %d bytes", errFrame, lim.request)
	}
	if len(b) < s.need {
		return 0, nil
	}
	return size, nil
}

var nameOf = map[byte]string{'k': "a key", 'b': "a value"}

// cut takes the measured request b of verb v apart.
func (r *request) cut(b []byte, v verb) {
	f := &forms[v]
	*r = request{verb: v, keys: r.keys[:0], values: r.values[:0]}
	b = b[1:]
	if f.many {
		r.cutMany(b[8:], f)
		return
	}
	for i := range len(f.fields) {
		switch f.fields[i] {
		case 'k':
			r.key, b = cutBytes(b)
		case 'b':
			if r.value == nil {
				r.value, b = cutBytes(b)
			} else {
				r.other, b = cutBytes(b)
			}
		case 'i':
			r.n, b = int64(binary.LittleEndian.Uint64(b)), b[8:]
		case 'u':
			r.nonce, b = binary.LittleEndian.Uint32(b), b[4:]
		}
	}
}

func (r *request) cutMany(b []byte, f *form) {
	for len(b) > 0 {
		var field []byte
		field, b = cutBytes(b)
		r.keys = append(r.keys, field)
		if len(f.fields) > 1 {
			field, b = cutBytes(b)
			r.values = append(r.values, field)
		}
	}
}

func cutBytes(b []byte) (field, rest []byte) {
	n := 8 + int(binary.LittleEndian.Uint64(b))
	return b[8:n:n], b[n:]
}

// encode appends r as the dialect writes it. The dialect must have the verb.
func (r *request) encode(b []byte, n numbering) []byte {
	code, _ := n.number(r.verb)
	b = append(b, code)
	f := &forms[r.verb]
	if f.many {
		b = appendInt(b, int64(len(r.keys)))
		for i := range r.keys {
			b = appendBytes(b, r.keys[i])
			if len(f.fields) > 1 {
				b = appendBytes(b, r.values[i])
			}
		}
		return b
	}
	value := r.value
	for i := range len(f.fields) {
		switch f.fields[i] {
		case 'k':
			b = appendBytes(b, r.key)
		case 'b':
			b = appendBytes(b, value)
			value = r.other
		case 'i':
			b = appendInt(b, r.n)
		case 'u':
			b = binary.LittleEndian.AppendUint32(b, r.nonce)
		}
	}
	return b
}

func appendInt(b []byte, n int64) []byte { return binary.LittleEndian.AppendUint64(b, uint64(n)) }

func appendBytes(b, field []byte) []byte {
	return append(appendInt(b, int64(len(field))), field...)
}
