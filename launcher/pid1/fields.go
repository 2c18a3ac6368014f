package pid1

import (
	"encoding/binary"
	"fmt"
	"iter"
)

// A coder writes the fields of a message, or reads them, as whoever describes a type wants it: the same description does both, each field by a
// number of its own. A field is its number and its length (unsigned varints) and its value; one with the zero value is left out, of a list each
// element is a field, and one whose number nobody knows is passed over. So versions understand each other, and no time is spent on looking at
// types: of package gob's that is half a millisecond until a process has told its first message, and heard one.
type coder struct {
	reads bool
	b     []byte // what was written, or is read
	err   error  // of what is read
}

// encode writes what fields describes.
func encode(fields func(*coder)) []byte {
	c := coder{}
	fields(&c)
	return c.b
}

// decode reads what fields describes. What is kept of b is copied.
func decode(b []byte, fields func(*coder)) error {
	c := coder{reads: true, b: b}
	for rest := b; len(rest) > 0 && c.err == nil; {
		_, _, rest = c.next(rest)
	}
	if c.err == nil { // each of them finds what is whole
		fields(&c)
	}
	return c.err
}

func (c *coder) put(key int, value []byte) {
	c.b = binary.AppendUvarint(c.b, uint64(key))
	c.b = binary.AppendUvarint(c.b, uint64(len(value)))
	c.b = append(c.b, value...)
}

// next takes one field from the front of what is left.
func (c *coder) next(b []byte) (key uint64, value, rest []byte) {
	key, n := binary.Uvarint(b)
	if n > 0 {
		size, m := binary.Uvarint(b[n:])
		if m > 0 && size <= uint64(len(b)-n-m) {
			at := n + m
			return key, b[at : at+int(size)], b[at+int(size):]
		}
	}
	c.err = fmt.Errorf("a message ends within a field, %d bytes before its end", len(b))
	return 0, nil, nil
}

// each are the values under a number.
func (c *coder) each(key int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for rest := c.b; len(rest) > 0; {
			k, value, left := c.next(rest)
			if rest = left; k == uint64(key) && !yield(value) {
				return
			}
		}
	}
}

func integer[T ~int | ~int64 | ~uint64](c *coder, key int, v *T) {
	if !c.reads {
		if *v != 0 {
			c.put(key, binary.AppendVarint(make([]byte, 0, binary.MaxVarintLen64), int64(*v)))
		}
		return
	}
	for b := range c.each(key) {
		*v = T(c.integer(key, b))
	}
}

func (c *coder) integer(key int, b []byte) int64 {
	n, size := binary.Varint(b)
	if size <= 0 || size != len(b) {
		c.err = fmt.Errorf("field %d is no number: %q", key, b[:min(len(b), 16)])
	}
	return n
}

func integers[T ~int | ~int64 | ~uint64](c *coder, key int, v *[]T) {
	if !c.reads {
		for _, n := range *v {
			c.put(key, binary.AppendVarint(make([]byte, 0, binary.MaxVarintLen64), int64(n)))
		}
		return
	}
	for b := range c.each(key) {
		*v = append(*v, T(c.integer(key, b)))
	}
}

func boolean(c *coder, key int, v *bool) {
	if !c.reads {
		if *v {
			c.put(key, nil)
		}
		return
	}
	for range c.each(key) {
		*v = true
	}
}

func booleans(c *coder, key int, v *[]bool) {
	all := make([]byte, len(*v))
	for i, f := range *v {
		if f {
			all[i] = 1
		}
	}
	data(c, key, &all)
	if c.reads {
		for _, f := range all {
			*v = append(*v, f != 0)
		}
	}
}

func data(c *coder, key int, v *[]byte) {
	if !c.reads {
		if len(*v) > 0 {
			c.put(key, *v)
		}
		return
	}
	for b := range c.each(key) {
		*v = append([]byte(nil), b...)
	}
}

func text(c *coder, key int, v *string) {
	if !c.reads {
		if *v != "" {
			c.put(key, []byte(*v))
		}
		return
	}
	for b := range c.each(key) {
		*v = string(b)
	}
}

func texts(c *coder, key int, v *[]string) {
	if !c.reads {
		for _, s := range *v {
			c.put(key, []byte(s))
		}
		return
	}
	for b := range c.each(key) {
		*v = append(*v, string(b))
	}
}

// part is a structure within another one; nil, if there is none.
func part[T any](c *coder, key int, v **T, fields func(*T, *coder)) {
	if !c.reads {
		if *v != nil {
			c.put(key, encode(func(c *coder) { fields(*v, c) }))
		}
		return
	}
	for b := range c.each(key) {
		*v = new(T)
		c.within(key, b, func(c *coder) { fields(*v, c) })
	}
}

func parts[T any](c *coder, key int, v *[]T, fields func(*T, *coder)) {
	if !c.reads {
		for i := range *v {
			c.put(key, encode(func(c *coder) { fields(&(*v)[i], c) }))
		}
		return
	}
	for b := range c.each(key) {
		var one T
		c.within(key, b, func(c *coder) { fields(&one, c) })
		*v = append(*v, one)
	}
}

// within reads a part.
func (c *coder) within(key int, b []byte, fields func(*coder)) {
	if err := decode(b, fields); err != nil && c.err == nil {
		c.err = fmt.Errorf("field %d: %w", key, err)
	}
}

// named is a value under a name.
type named struct {
	name  string
	value []byte
}

func (n *named) fields(c *coder) {
	text(c, 1, &n.name)
	data(c, 2, &n.value)
}

func byName(c *coder, key int, v *map[string][]byte) {
	var all []named
	for name, value := range *v {
		all = append(all, named{name, value})
	}
	parts(c, key, &all, (*named).fields)
	if c.reads && len(all) > 0 {
		*v = make(map[string][]byte, len(all))
		for _, n := range all {
			(*v)[n.name] = n.value
		}
	}
}
