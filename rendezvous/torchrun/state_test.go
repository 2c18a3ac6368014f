package torchrun

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/test/golden"
)

// fixtures are the states that PyTorch wrote, by file name.
func fixtures(t testing.TB) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, pattern := range []string{"*.bin", "*.txt"} {
		names, err := filepath.Glob("testdata/states/" + pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("no states: %v", err)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if pattern == "*.txt" {
				b = listed(t, string(b))
			}
			all[filepath.Base(name)] = b
		}
	}
	return all
}

// listed takes the pickle out of a listing, and checks that the value in it is the same.
func listed(t testing.TB, text string) []byte {
	t.Helper()
	lines := strings.Split(text, "\n")
	b, err := hex.DecodeString(lines[4])
	if err != nil {
		t.Fatal(err)
	}
	s, err := Unmarshal([]byte(lines[1]))
	if err != nil {
		t.Fatal(err)
	}
	if other, err := Decode(b); err != nil || !reflect.DeepEqual(s, other) {
		t.Fatalf("base64 and hex differ: %v", err)
	}
	return b
}

// show writes a state for people.
func show(s *State) string {
	var b strings.Builder
	fmt.Fprintf(&b, "layout %+v\nround %d complete %v closed %v deadline %v\n", s.Layout, s.Round, s.Complete, s.Closed, s.Deadline)
	for _, d := range sorted(s.Participants) {
		fmt.Fprintf(&b, "participant %v rank %d\n", d, s.Participants[d])
	}
	for _, d := range sorted(s.WaitList) {
		fmt.Fprintf(&b, "waits %v\n", d)
	}
	for _, d := range sorted(s.Redundancy) {
		fmt.Fprintf(&b, "spare %v\n", d)
	}
	for _, d := range sorted(s.Heartbeats) {
		fmt.Fprintf(&b, "heartbeat %v %v\n", d, s.Heartbeats[d])
	}
	return b.String()
}

func TestDecode(t *testing.T) {
	for name, pickle := range fixtures(t) {
		t.Run(name, func(t *testing.T) {
			s, err := Decode(pickle)
			if err != nil {
				t.Fatal(err)
			}
			golden.File(t, "testdata/states/"+name+".want", show(s))
			again, err := Decode(s.Encode())
			if err != nil || !reflect.DeepEqual(again, s) {
				t.Errorf("decode of encode: %v\n%s", err, show(again))
			}
		})
	}
}

// TestSizes: worlds of many nodes in every layout.
func TestSizes(t *testing.T) {
	for _, layout := range []Layout{Torch113, Torch26, {Protocol: 5, Redundancy: true}, {Protocol: 4}} {
		for _, n := range []int{1, 2, 255, 256, 300, 1500} {
			s := newState(layout)
			s.Round, s.Deadline = int32(n), time.Date(2026, 11, 21, 1, 2, 3, 4000, time.UTC)
			for i := range n {
				d := Desc{fmt.Sprintf("host%d.example.com", i), int32(i * 70000 % (1 << 22)), int32(i % 3)}
				s.Participants[d], s.Heartbeats[d] = int32(i), s.Deadline.Add(time.Duration(i)*time.Millisecond)
				s.WaitList[Desc{d.Addr, 1, 0}] = true
			}
			if layout.Redundancy {
				s.Redundancy = maps.Clone(s.WaitList)
			}
			got, err := Unmarshal(s.Marshal())
			if err != nil || !reflect.DeepEqual(got, s) {
				t.Errorf("%+v with %d nodes: %v", layout, n, err)
			}
		}
	}
}

// TestRefuses: whatever a state does not have is an error, so that nothing of it is ever run.
func TestRefuses(t *testing.T) {
	good := func() *State {
		s := newState(Torch26)
		s.Participants[Desc{"a", 1, 0}] = 0
		s.Heartbeats[Desc{"a", 1, 0}] = time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC)
		return s
	}
	swap := func(old, new string) []byte {
		b := good().Encode()
		if !bytes.Contains(b, []byte(old)) {
			t.Fatalf("the pickle has no %q", old)
		}
		return bytes.ReplaceAll(b, []byte(old), []byte(new))
	}
	call := "\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R."
	for name, c := range map[string]struct {
		pickle []byte
		want   string
	}{
		"nothing":                {nil, "too soon"},
		"protocol 3":             {[]byte("\x80\x03N."), "protocol 4 or 5"},
		"os.system":              {[]byte(call), `global "system" of "os"`},
		"old global":             {[]byte("\x80\x04cos\nsystem\n."), "opcode 0x63"},
		"persistent id":          {[]byte("\x80\x04\x8c\x01aQ."), "opcode 0x51"},
		"extension":              {[]byte("\x80\x04\x82\x01."), "opcode 0x82"},
		"another class":          {swap("_NodeDesc", "_NodeDesk"), "_NodeDesk"},
		"another module":         {swap("datetime\x8c\x08datetime", "datetimf\x8c\x08datetime"), "datetimf"},
		"a class that is made":   {[]byte("\x80\x04\x8c\x08datetime\x8c\x08datetime\x93)\x81."), "neither a state nor a node"},
		"a state that is called": {swap(")\x81}(\x8c\x05round", ")R}(\x8c\x05round"), "call of _RendezvousState"},
		"no round":               {swap("\x05round", "\x05roumd"), "round is missing"},
		"no address":             {swap("\x04addr", "\x04attr"), "addr is missing"},
		"number for a truth":     {swap("closed\x89", "closedN"), "closed is not"},
		"no such time":           {swap("\x07\xea\x0b\x15", "\x07\xea\x0d\x15"), "is no time"},
		"end":                    {good().Encode()[:100], "too soon"},
		"bytes after it":         {append(good().Encode(), 'N'), "1 bytes"},
		"stack":                  {[]byte("\x80\x04NN."), "2 values"},
		"long string":            {[]byte("\x80\x04X\xff\xff\xff\xff."), "too soon"},
		"recall":                 {[]byte("\x80\x04h\x00."), "recalls 0 of 0"},
		"no mark":                {[]byte("\x80\x04}u."), "no mark"},
		"odd items":              {[]byte("\x80\x04}(Nu."), "without a value"},
		"itself":                 {[]byte("\x80\x04}\x94h\x00h\x00s."), "not a rendezvous state"},
		"empty stack":            {[]byte("\x80\x04\x94."), "stack is empty"},
	} {
		_, err := Decode(c.pickle)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, value := range []string{"", noState, "not base64", strings.Repeat("A", 32<<20)} {
		if _, err := Unmarshal([]byte(value)); err == nil {
			t.Errorf("a state of %d bytes, %.20q, was read", len(value), value)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, pickle := range fixtures(f) {
		f.Add(pickle)
	}
	f.Fuzz(func(t *testing.T, pickle []byte) {
		s, err := Decode(pickle)
		if err != nil {
			return
		}
		again, err := Decode(s.Encode())
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("decode of encode: %v\n%s\n%s", err, show(s), show(again))
		}
	})
}
