package fleet

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// Small talk is read by a shorter way than JSON, to the same.
func TestTalk(t *testing.T) {
	beat := json.RawMessage(`{"a":[1,"}"]}`)
	for _, f := range []frame{
		{}, {Ack: 7}, {Ping: 1}, {Pong: 999999999999999999}, {Ack: 1, Ping: 2, Pong: 3}, {Beat: beat}, {Ack: 1, Ping: 2, Beat: beat}, {Ping: 7, Beat: json.RawMessage(`{"a":[1]}`)}, {Pong: 5, Beat: json.RawMessage("1")},
	} {
		text, _ := json.Marshal(f)
		if short := appendTalk([]byte("before"), f); string(short[10:]) != string(text) || int(binary.BigEndian.Uint32(short[6:])) != len(text) {
			t.Errorf("%q, not %s", short, text)
		}
		got, ok := talk(text)
		if !ok || !reflect.DeepEqual(got, f) {
			t.Errorf("%s: %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		``, `{`, `}`, `null`, `{"ack":}`, `{"ack":-1}`, `{"ack":9999999999999999999}`, `{"ack":1.5}`, `{"ping":2,"new":3}`, `{"seq":1,"msg":{"kind":"x"}}`, `{"beat":}`, `{"beat"`,
		`{"beat":{},"new":3}`, `{"beat":{}}}`, `{"ack":1}{"ack":2}`, ` {"ack":1}`,
	} {
		if f, ok := talk([]byte(text)); ok {
			t.Errorf("%s: %+v", text, f)
		}
	}
}

func FuzzTalk(f *testing.F) {
	f.Add([]byte(`{"ack":7,"ping":123,"pong":5,"beat":{"a":"b"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		short, ok := talk(text)
		var long frame
		if !ok || json.Unmarshal(text, &long) != nil { // a number with zeros in front, or a comma too many, is no JSON
			return
		}
		if long.Beat = bytes.TrimSpace(long.Beat); !reflect.DeepEqual(short, long) && string(short.Beat) != "null" && len(bytes.TrimSpace(short.Beat)) == len(short.Beat) {
			t.Errorf("%s: %+v, %+v", text, short, long)
		}
	})
}

// Frames of any size follow each other, whatever the reader has room for.
func TestFramesOfAllSizes(t *testing.T) {
	var all []byte
	sizes := []int{0, 1, readAhead - 40, readAhead, 10 * readAhead, 3}
	for i, n := range sizes {
		all = appendFrame(all, frame{Seq: uint64(i), Message: &message{Kind: strings.Repeat("x", n)}})
	}
	in := bufio.NewReaderSize(bytes.NewReader(all), readAhead)
	for i, n := range sizes {
		f, err := nextFrame(in)
		if err != nil || f.Seq != uint64(i) || len(f.Message.Kind) != n {
			t.Fatalf("%d: %v, %+v", i, err, f)
		}
	}
	if _, err := nextFrame(in); err == nil {
		t.Error("there is one more")
	}
}

// What a leader keeps of ten thousand members is no more than what they said.
func TestOver(t *testing.T) {
	short, long := json.RawMessage(strings.Repeat("1", 700)), json.RawMessage(strings.Repeat("2", 1030))
	kept := over(over(nil, short), long)
	if string(kept) != string(long) || cap(kept) > 1152 { // the next size in which memory is given out
		t.Errorf("%d bytes are kept in room for %d", len(kept), cap(kept))
	}
	if again := over(kept, short); string(again) != string(short) || &again[0] != &kept[0] {
		t.Error("a shorter beat does not go where the longer one was")
	}
}
