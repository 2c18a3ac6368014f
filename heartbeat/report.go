package heartbeat

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
)

// A Report is what a node tells of its ranks, each second. The zero Report tells nothing.
type Report struct {
	Generation int    `json:"gen,omitempty"`   // of the world, and
	Round      int    `json:"round,omitempty"` // its round, in which these are the workers
	Ranks      []byte `json:"packed,omitempty"`
	Ended      []int  `json:"ended,omitempty"` // ranks whose work is done
}

// A reader reads reports into memory that it uses again.
type reader struct {
	packed []byte
	ended  []int
}

// Read reads a report from JSON that may say more. It is valid until the next one is read.
func (u *reader) Read(text []byte) (r Report, ok bool) {
	if r, ok = u.plain(text); !ok {
		ok = json.Unmarshal(text, &r) == nil
	}
	return r, ok
}

// plain reads a report as nodes write it; of any other form it knows nothing. The leader of ten thousand reads as many each second.
func (u *reader) plain(text []byte) (r Report, ok bool) {
	rest, more := bytes.CutPrefix(text, []byte("{"))
	for more {
		var name, value []byte
		if name, value, rest, ok = cutField(rest); !ok || !u.set(&r, string(name), value) {
			return Report{}, false
		}
		rest, more = bytes.CutPrefix(rest, []byte(","))
	}
	return r, ok && string(rest) == "}"
}

// cutField takes a name and its value off the beginning of some fields.
func cutField(fields []byte) (name, value, rest []byte, ok bool) {
	name, value, ok = bytes.Cut(fields, []byte(":"))
	n := extent(value)
	if !ok || n == 0 || len(name) < 2 || name[0] != '"' || name[len(name)-1] != '"' {
		return nil, nil, nil, false
	}
	return name[1 : len(name)-1], value[:n], value[n:], true
}

// extent is the length of the text, list or number at the beginning of some text; 0: there is none.
func extent(text []byte) int {
	if len(text) == 0 {
		return 0
	}
	switch text[0] {
	case '"':
		if n := bytes.IndexByte(text[1:], '"'); n >= 0 {
			return n + 2
		}
		return 0
	case '[':
		return bytes.IndexByte(text, ']') + 1
	}
	return max(bytes.IndexAny(text, ",}"), 0)
}

// set notes the value of a field, and passes over numbers that others want.
func (u *reader) set(r *Report, name string, value []byte) (ok bool) {
	switch name {
	case "gen":
		return integer(value, &r.Generation)
	case "round":
		return integer(value, &r.Round)
	case "packed":
		r.Ranks, ok = u.bytes(value)
	case "ended":
		r.Ended, ok = u.list(value)
	default:
		var other int
		return lower(name) && integer(value, &other)
	}
	return ok
}

func integer(digits []byte, to *int) bool {
	n, err := strconv.Atoi(string(digits))
	*to = n
	return err == nil
}

// lower reports whether a name can be no other one in disguise: JSON knows escapes, and takes capitals for small letters.
func lower(name string) bool {
	for _, c := range []byte(name) {
		if c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}

func (u *reader) bytes(value []byte) ([]byte, bool) {
	text, quoted := bytes.CutPrefix(value, []byte(`"`))
	text, _ = bytes.CutSuffix(text, []byte(`"`))
	var err error
	u.packed, err = base64.StdEncoding.AppendDecode(u.packed[:0], text)
	return u.packed, quoted && err == nil
}

func (u *reader) list(value []byte) ([]int, bool) {
	items, listed := bytes.CutPrefix(value, []byte("["))
	items, _ = bytes.CutSuffix(items, []byte("]"))
	u.ended = u.ended[:0]
	for item := range bytes.SplitSeq(items, []byte(",")) {
		var n int
		if !integer(item, &n) {
			return nil, false
		}
		u.ended = append(u.ended, n)
	}
	return u.ended, listed
}
