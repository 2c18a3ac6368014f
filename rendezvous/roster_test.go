package rendezvous

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
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
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic("a field of kind " + v.Kind().String())
	}
}

func TestOutcomeTravels(t *testing.T) {
	var m job.Member
	full(reflect.ValueOf(&m).Elem(), new(int))
	plain := job.Member{Node: job.Node{Name: "b", Index: -1}, First: 8}
	few := job.World{ID: "a\nb", Nonce: "n", Generation: 3, Members: []job.Member{m, plain}}
	many := few
	many.Members = slices.Repeat(few.Members, 50)
	for _, end := range []*outcome{
		{Moved: 7},
		{Refused: "two\nlines"},
		{World: &world{World: few}},
		{World: &world{World: many}},
		{World: &world{World: many}, Protocol: packing},
	} {
		b, err := encodeOutcome(end)
		if err != nil {
			t.Fatal(err)
		}
		if end.World != nil { // as a node tells it again that has not read all of it
			as, err := decodeOutcome(b)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := encodeOutcome(as); err != nil || !bytes.Equal(again, b) {
				t.Errorf("told again it is\n%s, %v, want\n%s", again, err, b)
			}
		}
		got, err := unpacked(b)
		if err != nil || !reflect.DeepEqual(got, end) {
			t.Errorf("%s\ngot  %+v, %v\nwant %+v", b, got, err, end)
		}
	}
}

func unpacked(b []byte) (*outcome, error) {
	end, err := decodeOutcome(b)
	if err != nil || end.World == nil {
		return end, err
	}
	others, err := end.World.rest.members()
	end.World.Members, end.World.rest = append(end.World.Members, others...), packed{}
	return end, err
}

// cluster is a world of so many nodes that are as those of a cluster.
func cluster(n int) job.World {
	w := job.World{ID: "x", Nonce: "n", Generation: 1}
	for i := range n {
		w.Members = append(w.Members, job.Member{First: 8 * i, Node: job.Node{
			Name: fmt.Sprintf("node%04d.cluster", i), Index: i, Slots: 8, Incarnation: random(), Version: "v0.1.0",
			Addrs: []job.Addr{job.Addr(fmt.Sprintf("10.1.%d.%d:29400", i/256, i%256)), job.Addr(fmt.Sprintf("[fd00::%x]:29400", i))},
		}})
	}
	return w
}

// A node finds its rank without the lines of others, and what all nodes read is a fraction of the table.
func TestPackedWorld(t *testing.T) {
	w := cluster(1000)
	w.Members[700].Incarnation = "with a blank"
	plain, err1 := encodeOutcome(&outcome{World: &world{World: w}})
	b, err2 := encodeOutcome(&outcome{World: &world{World: w}, Protocol: packing})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if len(b) > 55*1000 || len(b) > len(plain)/2 {
		t.Errorf("%d bytes, %d if they are plain", len(b), len(plain))
	}
	end, err := decodeOutcome(b)
	if err != nil || len(end.World.Members) != shown || end.World.size() != 1000 {
		t.Fatalf("%d members of %d, %v", len(end.World.Members), end.World.size(), err)
	}
	for _, rank := range []int{0, shown - 1, shown, 700, 999} {
		if got, ok := end.World.rank(w.Members[rank].Incarnation); got != rank || !ok {
			t.Errorf("member %d has rank %d, %t", rank, got, ok)
		}
	}
	for _, stranger := range []string{"", " ", "blank", w.Members[40].Incarnation[1:], w.Members[40].Incarnation + " " + w.Members[41].Incarnation} {
		if got, ok := end.World.rank(stranger); ok {
			t.Errorf("%q has rank %d", stranger, got)
		}
	}
}

// Who reads worlds as they were before members were packed sees the first ones, and the terms.
func TestPackedWorldInTheEyesOfProtocol1(t *testing.T) {
	w := cluster(100)
	b, err := encodeOutcome(&outcome{World: &world{World: w}, Protocol: packing})
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "\n")
	got, err := readMembers(table)
	if err != nil || !reflect.DeepEqual(got, w.Members[:shown]) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Lines that cannot be packed within bounds travel as they are.
func TestWorldOfLongLines(t *testing.T) {
	w := cluster(40)
	for i := range w.Members {
		w.Members[i].Addrs = slices.Repeat(w.Members[i].Addrs, 40)
	}
	b, err := encodeOutcome(&outcome{World: &world{World: w}, Protocol: packing})
	if err != nil {
		t.Fatal(err)
	}
	end, err := decodeOutcome(b)
	if err != nil || !reflect.DeepEqual(end.World.World, w) {
		t.Errorf("%+v, %v", end, err)
	}
}

// What a stranger packed is bounded, and made sense of as anything else.
func TestPackedByAnother(t *testing.T) {
	const line = "8\t1\t8\tn\t\tv\t\t\t\t\t"
	for _, c := range []struct {
		lives, lines []byte
		want         string
	}{
		{[]byte(" a b "), deflate([]byte(line + "\n" + line)), ""},
		{[]byte(" a "), deflate([]byte(line + "\n" + line)), "2 packed members have 1 incarnations"},
		{[]byte(" "), deflate([]byte(line)), "more than 0 bytes"},
		{[]byte(" a "), deflate(make([]byte, 16<<20)), "1 packed members have more than 1024 bytes"},
		{[]byte(" a "), []byte("!"), "illegal base64"},
		{[]byte(" a "), nil, "unexpected EOF"},
		{[]byte(" a "), deflate(nil), "member 0: 1 fields, want 11"},
		{[]byte(" \033 "), deflate([]byte(line)), "cannot be shown"},
		{[]byte(" a "), deflate([]byte(line + "\t65536")), "n (node 1) has 65536 for a port"},
		{[]byte(" a "), deflate([]byte("8\t1\t8\t\033\t\tv\t\t\t\t\t")), "cannot be shown"},
	} {
		err := (&world{rest: packed{c.lives, c.lines}}).unpack()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: got %v, want %q", c.lives, err, c.want)
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
		{world + "0\t0\t1\tn\ti\tv\t\t\t\t\ta:1\t\tlater", ""},
		{world + "0\t0\t1\tn\ti\tv\t\t\t\t\ta:1\t23457,23458\tlater", ""},
		{world + "0\t0\t1\tn\ti\tv\t\t\t\t\ta:1\t23457,", "member 0: strconv.Atoi"},
		{world + "0\t0\t1\tn\ti\tv\t\t\t\t\ta:1\t1" + strings.Repeat(",1", maxPorts), "member 0: 4097 ports, more than 4096"},
		{world + "0\t0\t1\tn\ti\tv\t\t\t\t\ta:1\t\t=mlx5_0 0000:18:00.0/1", "member 0: 2 words are not those of 256 rails at the most"},
		{world + "0\t0\t1\tn\ti\tv\t\t\t\t\ta:1\t\t=" + strings.Repeat("a b c ", maxRails) + "a b c", "member 0: 771 words are not those of 256 rails at the most"},
	} {
		_, err := decodeOutcome([]byte(c.text))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: got %v, want %q", c.text, err, c.want)
		}
	}
}

func FuzzOutcome(f *testing.F) {
	f.Add([]byte(`{"world":{"id":"x"}}` + "\n0\t0\t1\tn\ti\tv\t\t\t\t\ta:1"))
	if b, err := encodeOutcome(&outcome{World: &world{World: cluster(34)}, Protocol: packing}); err == nil {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		end, err := unpacked(b)
		if err != nil || end.World == nil {
			return
		}
		again, err := encodeOutcome(end)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := unpacked(again); err != nil || !reflect.DeepEqual(got, end) {
			t.Errorf("%+v\nbecame %+v, %v", end.World, got.World, err)
		}
	})
}

// BenchmarkOutcome is what each node of a world reads to find its rank, and then, if it must know all members.
func BenchmarkOutcome(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		w := cluster(n)
		text, err := encodeOutcome(&outcome{World: &world{World: w}, Protocol: packing})
		if err != nil {
			b.Fatal(err)
		}
		for name, read := range map[string]func() error{
			"rank": func() error {
				end, err := new(node).read(text)
				if _, ok := end.World.rank(w.Members[n-1].Incarnation); err == nil && !ok {
					err = errors.New("no member")
				}
				return err
			},
			"all": func() error { _, err := unpacked(text); return err },
			"write": func() error {
				_, err := encodeOutcome(&outcome{World: &world{World: w}, Protocol: packing})
				return err
			},
		} {
			b.Run(fmt.Sprintf("nodes=%d/%s", n, name), func(b *testing.B) {
				b.ReportMetric(float64(len(text))/float64(n), "B/node")
				for b.Loop() {
					if err := read(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
