package rendezvous

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/muster-run/muster/job"
)

// A world is what nodes agreed on. Its Members are the first few, and the rest, until it is unpacked.
type world struct {
	job.World
	rest packed
}

// packed are members beyond the first few, as they travel. The zero value is none.
type packed struct {
	lives []byte // the incarnation of each, between blanks
	lines []byte // their lines without it: DEFLATE (RFC 1951) in base64
}

// maxLine bounds a packed line, on average: what was compressed by a stranger could be anything.
const maxLine = 1 << 10

// pack leaves the first members as they are, and all where lines are too long to be packed.
func pack(members []job.Member) ([]job.Member, packed) {
	first, others := members[:shown], members[shown:]
	lives, table := []byte{' '}, []byte(nil)
	for i, m := range others {
		lives = append(append(lives, mark.Replace(m.Incarnation)...), ' ')
		if i > 0 {
			table = append(table, '\n')
		}
		m.Incarnation = ""
		table = appendOptional(appendMember(table, m), m)
	}
	if len(table) > maxLine*len(others) {
		return members, packed{}
	}
	return first, packed{lives, deflate(table)}
}

// deflate cannot fail, as it writes to memory.
func deflate(table []byte) []byte {
	var b bytes.Buffer
	text := base64.NewEncoder(base64.RawStdEncoding, &b)
	w, _ := flate.NewWriter(text, flate.DefaultCompression)
	_, _ = w.Write(table)
	_ = w.Close()
	_ = text.Close()
	return b.Bytes()
}

// append adds the fields of packed members to a line, if there are any.
func (p packed) append(b []byte) []byte {
	if p.lives == nil {
		return b
	}
	b = append(append(b, '\t'), p.lives...)
	return append(append(b, '\t'), p.lines...)
}

// unhook takes the fields of packed members off the first line of a table.
func unhook(table []byte) ([]byte, packed) {
	tab, newline := []byte{'\t'}, []byte{'\n'}
	first, others, more := bytes.Cut(table, newline)
	words := bytes.Split(first, tab)
	if len(words) < fields+2 || !bytes.HasPrefix(words[fields], []byte{' '}) {
		return table, packed{}
	}
	plain := bytes.Join(slices.Concat(words[:fields], words[fields+2:]), tab)
	if more {
		plain = append(append(plain, '\n'), others...)
	}
	return plain, packed{words[fields], words[fields+1]}
}

func (p packed) count() int { return max(bytes.Count(p.lives, []byte{' '})-1, 0) }

// find returns which of the packed members has an incarnation; -1: none.
func (p packed) find(incarnation string) int {
	incarnation = mark.Replace(incarnation)
	life, lives := []byte(nil), bytes.TrimPrefix(p.lives, []byte{' '})
	for i := 0; len(lives) > 0; i++ {
		if life, lives, _ = bytes.Cut(lives, []byte{' '}); string(life) == incarnation {
			return i
		}
	}
	return -1
}

// members reads what is packed.
func (p packed) members() ([]job.Member, error) {
	if p.lives == nil {
		return nil, nil
	}
	table, err := p.inflate()
	if err != nil {
		return nil, err
	}
	members, err := readMembers(table)
	if err != nil {
		return nil, err
	}
	lives := strings.Split(strings.TrimSuffix(string(p.lives[1:]), " "), " ")
	if len(lives) != len(members) {
		return nil, fmt.Errorf("%d packed members have %d incarnations", len(members), len(lives))
	}
	for i := range members {
		members[i].Incarnation = unmark.Replace(lives[i])
	}
	return members, nil
}

func (p packed) inflate() (string, error) {
	limit := int64(maxLine) * int64(p.count())
	var table strings.Builder
	in := flate.NewReader(base64.NewDecoder(base64.RawStdEncoding, bytes.NewReader(p.lines)))
	n, err := io.Copy(&table, io.LimitReader(in, limit+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("unpack members: %w", err)
	case n > limit:
		return "", fmt.Errorf("%d packed members have more than %d bytes", p.count(), limit)
	}
	return table.String(), nil
}

// size is how many members there are.
func (w *world) size() int { return len(w.Members) + w.rest.count() }

// rank returns the group rank of the node with an incarnation, and whether it is a member.
func (w *world) rank(incarnation string) (int, bool) {
	if rank, ok := w.GroupRank(incarnation); ok {
		return rank, true
	}
	i := w.rest.find(incarnation)
	return len(w.Members) + i, i >= 0
}

// unpack completes Members.
func (w *world) unpack() error {
	others, err := w.rest.members()
	if err == nil {
		err = checkAll(others)
	}
	if err != nil {
		return name(err, "read", keyOutcome)
	}
	w.Members, w.rest = append(w.Members, others...), packed{}
	return nil
}
