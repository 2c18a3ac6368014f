package heartbeat

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

// fill sets every field to something else.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.String:
		v.SetString(string(rune('a' + *n%26)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8, reflect.Uint16, reflect.Uint64:
		v.SetUint(uint64(*n))
	default:
		v.SetInt(int64(*n))
	}
}

func unpacked(t *testing.T, packed []byte) []job.Beat {
	t.Helper()
	var u unpacker
	beats, err := u.unpack(nil, packed)
	if err != nil {
		t.Fatal(err)
	}
	return beats
}

// Every field travels.
func TestPack(t *testing.T) {
	beats, n := make([]job.Beat, 3), 0
	for i := range beats[:2] {
		fill(reflect.ValueOf(&beats[i]).Elem(), &n)
	}
	beats[2].Lanes = []job.Lane{{Group: 1<<64 - 1, Entered: 5, Completed: 9}} // as no worker should tell it
	beats[2].Left, beats[2].PID = -time.Second, -1
	if got := unpacked(t, Pack(beats)); !reflect.DeepEqual(got, beats) {
		t.Errorf("%+v\n%+v", got, beats)
	}
	if Pack(nil) != nil || unpacked(t, nil) != nil {
		t.Error("something of nothing")
	}
}

// Memory is used again, and nothing is left of what was in it.
func TestUnpackAgain(t *testing.T) {
	var u unpacker
	many, n := make([]job.Beat, 3*atOnce), 0
	for i := range many {
		fill(reflect.ValueOf(&many[i]).Elem(), &n)
	}
	for range 3 {
		u.again()
		if got, err := u.unpack(nil, Pack(many)); err != nil || !reflect.DeepEqual(got, many) {
			t.Fatalf("%v, %d beats", err, len(got))
		}
	}
	if len(u.lanes.boards) > 7 || len(u.sights.boards) > 3 {
		t.Errorf("%d boards of lanes, %d of sights", len(u.lanes.boards), len(u.sights.boards))
	}
	u.again()
	few := []job.Beat{{Rank: 1, Lanes: make([]job.Lane, 1), Sight: &job.Sight{State: 'S'}}}
	packed := Pack(few) // by an earlier version, which knows nothing of the last four fields
	packed = append([]byte{packed[0] - 4}, packed[1:len(packed)-4]...)
	if got, err := u.unpack(nil, packed); err != nil || !reflect.DeepEqual(got, few) {
		t.Errorf("%v, %+v", err, got)
	}
}

// A rank that trains takes about 60 bytes.
func TestPackedSize(t *testing.T) {
	b := job.Beat{
		Rank: 79999, PID: 1234567, Local: 7, Sources: job.FromRecorder | job.FromHooks, Life: 1, Count: 4_000_000, Steps: 10_000, Limit: 10 * time.Minute,
		Lanes: []job.Lane{{Group: 0x9e3779b97f4a7c15, Name: "0", Entered: 1_000_000, Completed: 999_999, Op: "all_reduce", Bytes: 25 << 20, Members: 80000}},
	}
	if n := len(Pack([]job.Beat{b})); n > 63 {
		t.Errorf("%d bytes", n)
	}
}

// A later version may say more of a rank, an earlier one less.
func TestPackOfOtherVersions(t *testing.T) {
	one := []job.Beat{{Rank: 1, PID: 2, Local: 3, Stack: []string{"x"}}}
	packed := Pack(one)
	longer := append(binary.AppendUvarint(nil, uint64(len(packed)-1+6)), packed[1:]...)
	longer = append(longer, 0, 0, 0, 0, 8, 9) // the first ones are marks of lanes, and whether it is over
	got := unpacked(t, append(longer, packed...))
	if want := append(one, one...); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := unpacked(t, []byte{2, 1, 2}); !reflect.DeepEqual(got, []job.Beat{{Rank: 1, PID: 2}}) {
		t.Errorf("%+v", got)
	}
}

func TestUnpackRefuses(t *testing.T) {
	for name, packed := range map[string][]byte{
		"a rank that is cut off":       {5, 1},
		"a length that is cut off":     {0x80},
		"a number that is cut off":     {1, 0x80},
		"a longer text than there is":  {9, 1, 2, 3, 4, 5, 6, 7, 200, 'x'},
		"more lanes than there can be": {12, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0xff, 0xff, 3},
		"a negative number of lanes":   append([]byte{19, 1, 2, 3, 4, 5, 6, 7, 0, 0}, binary.AppendUvarint(nil, 1<<64-1)...),
	} {
		var u unpacker
		if beats, err := u.unpack(nil, packed); err == nil {
			t.Errorf("%s: %+v", name, beats)
		}
	}
}

// The words that all ranks say are kept once, and no more of them than a few thousand.
func TestWordsAreBounded(t *testing.T) {
	var u unpacker
	for i := range 2 * maxWords {
		b := job.Beat{Phase: string(binary.BigEndian.AppendUint32(nil, uint32(i))), Mute: string(make([]byte, 2*maxWord))}
		if got, err := u.unpack(nil, Pack([]job.Beat{b})); err != nil || !reflect.DeepEqual(got, []job.Beat{b}) {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if len(u.words) > maxWords {
		t.Errorf("%d words", len(u.words))
	}
}

func FuzzUnpack(f *testing.F) {
	beats, n := make([]job.Beat, 2), 0
	fill(reflect.ValueOf(&beats[0]).Elem(), &n)
	f.Add(Pack(beats))
	f.Fuzz(func(t *testing.T, packed []byte) {
		var u unpacker
		beats, err := u.unpack(nil, packed)
		if err != nil {
			return
		}
		again := Pack(beats)
		if !bytes.Equal(Pack(unpacked(t, again)), again) {
			t.Errorf("%+v", beats)
		}
	})
}
