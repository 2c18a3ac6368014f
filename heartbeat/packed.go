package heartbeat

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/muster-run/muster/job"
)

// Beats travel packed, about 60 bytes for a rank that trains, so that one leader can read those of ten thousand nodes each second.
//
// Each rank is a length and so many bytes: the fields of its beat in the order of [packer.beat], numbers and lengths as varints. A later
// version may add fields at the end of a rank, which an earlier one leaves; those that an earlier one does not write are zero.

// Pack is how beats travel.
func Pack(beats []job.Beat) []byte {
	var all []byte
	var p packer
	for i := range beats {
		p.b = p.b[:0]
		p.beat(&beats[i])
		all = append(binary.AppendUvarint(all, uint64(len(p.b))), p.b...)
	}
	return all
}

// An unpacker reads packed beats. It makes few things for many ranks, second after second: most of them say the same words.
type unpacker struct {
	packer
	words  map[string]string
	lanes  shelf[job.Lane]
	sights shelf[job.Sight]
}

// again uses the memory of what was unpacked before once more.
func (u *unpacker) again() {
	u.lanes.clear()
	u.sights.clear()
}

// A shelf is room for things, which is used again when it is cleared.
type shelf[T any] struct {
	boards [][]T
	used   int // boards
	free   []T // of the last of them
}

// atOnce is how many things a board has room for.
const atOnce = 1024

func (s *shelf[T]) clear() { s.used, s.free = 0, nil }

// take is room for so many, which are zero.
func (s *shelf[T]) take(n int) []T {
	for n > len(s.free) {
		if s.used == len(s.boards) {
			s.boards = append(s.boards, make([]T, max(n, atOnce)))
		}
		s.free = s.boards[s.used]
		s.used++
	}
	part := s.free[:n:n]
	s.free = s.free[n:]
	clear(part)
	return part
}

var errPacked = errors.New("packed beats are cut off")

// unpack appends packed beats to others.
func (u *unpacker) unpack(beats []job.Beat, all []byte) ([]job.Beat, error) {
	u.from = u
	for len(all) > 0 {
		n, size := binary.Uvarint(all)
		if size <= 0 || n > uint64(len(all)-size) {
			return beats, errPacked
		}
		u.b, u.bad = all[size:size+int(n)], false
		var b job.Beat
		if u.beat(&b); u.bad {
			return beats, errPacked
		}
		beats, all = append(beats, b), all[size+int(n):]
	}
	return beats, nil
}

// A packer writes fields to its bytes, or, as part of an unpacker, takes them from there: the order of fields stands in one place.
type packer struct {
	b    []byte
	from *unpacker // nil: it writes
	bad  bool      // the bytes are not what they should be
}

func (p *packer) beat(b *job.Beat) {
	number(p, &b.Rank)
	number(p, &b.PID)
	number(p, &b.Local)
	number(p, &b.Sources)
	number(p, &b.Life)
	number(p, &b.Count)
	number(p, &b.Steps)
	p.text(&b.Phase)
	number(p, &b.Left)
	list(p, &b.Lanes, laneSize, p.room, p.lane)
	number(p, &b.Limit)
	p.text(&b.Mute)
	p.sight(&b.Sight)
	list(p, &b.Stack, 1, texts, p.text)
	if s := b.Sight; s != nil {
		number(p, &s.Output)
		number(p, &s.GPUUsual)
		number(p, &s.GPUBusy)
	}
	number(p, &b.Second)
	stores := b.Sight != nil && b.Sight.Stores
	host := slices.ContainsFunc(b.Lanes, func(l job.Lane) bool { return l.Host })
	mark := slices.ContainsFunc(b.Lanes, func(l job.Lane) bool { return l.Mark != 0 })
	told := host || stores || mark || slices.ContainsFunc(b.Lanes, func(l job.Lane) bool { return l.Begun || l.Queued })
	p.marks(b.Lanes, b.Over || told, func(l *job.Lane) *bool { return &l.Mixed })
	if p.from != nil || b.Over || told {
		p.yes(&b.Over)
	}
	p.marks(b.Lanes, told, func(l *job.Lane) *bool { return &l.Begun })
	p.marks(b.Lanes, told, func(l *job.Lane) *bool { return &l.Queued })
	if b.Sight != nil && (p.from != nil || stores || host || mark) {
		p.yes(&b.Sight.Stores)
	}
	p.marks(b.Lanes, mark, func(l *job.Lane) *bool { return &l.Host })
	for i := 0; i < len(b.Lanes) && (p.from != nil || mark); i++ {
		number(p, &b.Lanes[i].Mark)
	}
}

// marks are the lanes of which something is so, a bit for each of the first 64; nothing, if it is of none and nothing follows.
func (p *packer) marks(lanes []job.Lane, follows bool, of func(l *job.Lane) *bool) {
	var set uint64
	for i := range min(len(lanes), 64) {
		if *of(&lanes[i]) {
			set |= 1 << i
		}
	}
	if p.from == nil && set == 0 && !follows {
		return
	}
	number(p, &set)
	for i := 0; p.from != nil && i < min(len(lanes), 64); i++ {
		*of(&lanes[i]) = set>>i&1 != 0
	}
}

// laneSize is the fewest bytes of a lane.
const laneSize = 7

func (p *packer) lane(l *job.Lane) {
	number(p, &l.Group)
	p.text(&l.Name)
	pending := l.Entered - l.Completed
	number(p, &l.Entered)
	number(p, &pending)
	l.Completed = l.Entered - pending
	p.text(&l.Op)
	number(p, &l.Bytes)
	number(p, &l.Members)
}

func (p *packer) sight(to **job.Sight) {
	there := *to != nil
	p.yes(&there)
	if !there {
		return
	}
	if p.from != nil {
		*to = &p.from.sights.take(1)[0]
	}
	s := *to
	number(p, &s.State)
	number(p, &s.CPU)
	number(p, &s.Disk)
	number(p, &s.Wire)
	list(p, &s.Stuck, 1, texts, p.text)
	p.yes(&s.Traced)
	p.yes(&s.Frozen)
	p.text(&s.Waits)
	p.text(&s.File)
	number(p, &s.Memory)
	number(p, &s.GPU)
	p.yes(&s.Held)
}

// number is a field of any integer type. One that is not there any more is zero.
func number[T ~int | ~int64 | ~uint64 | ~uint8 | ~uint16](p *packer, n *T) {
	if p.from == nil {
		p.b = binary.AppendUvarint(p.b, uint64(*n))
		return
	}
	if len(p.b) == 0 {
		return
	}
	v, size := binary.Uvarint(p.b)
	if size <= 0 {
		p.bad, size = true, len(p.b)
	}
	*n, p.b = T(v), p.b[size:]
}

func (p *packer) yes(is *bool) {
	var n uint8
	if *is {
		n = 1
	}
	number(p, &n)
	*is = n != 0
}

func (p *packer) text(s *string) {
	n := len(*s)
	number(p, &n)
	if p.from == nil {
		p.b = append(p.b, *s...)
		return
	}
	if n < 0 || n > len(p.b) {
		p.bad, n = true, 0
	}
	*s, p.b = p.from.word(p.b[:n]), p.b[n:]
}

// list is a field of many, each of so many bytes at least, for which there is room.
func list[T any](p *packer, all *[]T, least int, room func(int) []T, each func(*T)) {
	n := len(*all)
	number(p, &n)
	if p.from != nil {
		if n < 0 || n > len(p.b)/least {
			p.bad, n = true, 0
		}
		if n > 0 {
			*all = room(n)
		}
	}
	for i := range *all {
		each(&(*all)[i])
	}
}

func texts(n int) []string { return make([]string, n) }

func (p *packer) room(n int) []job.Lane { return p.from.lanes.take(n) }

const (
	maxWords = 4096 // of those that many ranks say, and
	maxWord  = 64   // their bytes
)

// word is a text that may have been said before.
func (u *unpacker) word(b []byte) string {
	if s, known := u.words[string(b)]; known {
		return s
	}
	s := string(b)
	if u.words == nil {
		u.words = map[string]string{}
	}
	if len(s) <= maxWord && len(u.words) < maxWords {
		u.words[s] = s
	}
	return s
}
