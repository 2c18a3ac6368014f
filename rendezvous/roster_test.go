package rendezvous

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
)

// full sets every field of v, however deep, to something, so that no later field of job.Node is forgotten.
func full(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			full(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			full(v.Index(i), n)
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("a %d\t\\s\nend\\", *n))
	case reflect.Int:
		v.SetInt(int64(*n))
	default:
		panic("a field of kind " + v.Kind().String())
	}
}

func TestOutcomeTravels(t *testing.T) {
	var m job.Member
	full(reflect.ValueOf(&m).Elem(), new(int))
	plain := job.Member{Node: job.Node{Name: "b", Index: -1}, First: 8}
	for _, end := range []*outcome{
		{Moved: 7},
		{Refused: "two\nlines"},
		{World: &job.World{ID: "a\nb", Nonce: "n", Generation: 3, Members: []job.Member{m, plain}}},
	} {
		b, err := encodeOutcome(end)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeOutcome(b)
		if err != nil || !reflect.DeepEqual(got, end) {
			t.Errorf("%s\ngot  %+v, %v\nwant %+v", b, got, err, end)
		}
	}
}

func TestOutcomeOfAnother(t *testing.T) {
	const world = `{"world":{"id":"x","later":1},"later":{}}` + "\n"
	for _, c := range []struct{ text, want string }{
		{"", "unexpected end"},
		{"\x80\x04", "invalid character"},
		{world, "member 0: 1 fields, want 11"},
		{world + "0\t0\t1\tn\ti\tv\t\t\t\t", "member 0: 10 fields, want 11"},
		{world + "0\t0\tx\tn\ti\tv\t\t\t\t\t", "member 0: strconv.Atoi"},
		{world + "-1\t0\t1\tn\ti\tv\t\t\t\t\t", "member 0: a negative rank"},
		{world + "0\t0\t1\tn\ti\tv\t\t\t\t\ta:1\tlater", ""},
	} {
		_, err := decodeOutcome([]byte(c.text))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: got %v, want %q", c.text, err, c.want)
		}
	}
}

func FuzzOutcome(f *testing.F) {
	f.Add([]byte(`{"world":{"id":"x"}}` + "\n0\t0\t1\tn\ti\tv\t\t\t\t\ta:1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		end, err := decodeOutcome(b)
		if err != nil || end.World == nil {
			return
		}
		again, err := encodeOutcome(end)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeOutcome(again); err != nil || !reflect.DeepEqual(got, end) {
			t.Errorf("%+v\nbecame %+v, %v", end.World, got.World, err)
		}
	})
}

// BenchmarkOutcome is what each node of a thousand reads.
func BenchmarkOutcome(b *testing.B) {
	w := &job.World{ID: "x", Nonce: "n", Generation: 1}
	for i := range 1000 {
		w.Members = append(w.Members, job.Member{First: 8 * i, Node: job.Node{
			Name: fmt.Sprintf("node%04d.cluster", i), Index: i, Slots: 8, Incarnation: random(), Version: "v0.1.0",
			Addrs: []job.Addr{job.Addr(fmt.Sprintf("10.1.%d.%d:29400", i/256, i%256)), job.Addr(fmt.Sprintf("[fd00::%x]:29400", i))},
		}})
	}
	text, err := encodeOutcome(&outcome{World: w})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	n := new(node)
	for b.Loop() {
		if _, err := n.read(text); err != nil {
			b.Fatal(err)
		}
	}
}
