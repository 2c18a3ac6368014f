package pid1

import (
	"math/rand/v2"
	"os"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/proc"
)

// filled puts something into all that can travel: also into fields that are new, and that nobody has described yet.
func filled(v reflect.Value, r *rand.Rand) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem(), r)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() && f.Type() != reflect.TypeFor[time.Time]() { // wireExit.Clock is its time
				filled(f, r)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range 3 {
			filled(v.Index(i), r)
		}
	case reflect.Array:
		for i := range v.Len() {
			filled(v.Index(i), r)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 3 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			filled(key, r)
			filled(value, r)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		b := []byte{0, 0xff, byte(r.Uint32()), byte(r.Uint32())} // arguments need not be text
		v.SetString(string(b))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(-1 - r.Int64())
	case reflect.Uint8:
		v.SetUint(uint64(r.Uint32() & 0xff))
	case reflect.Uint64:
		v.SetUint(1<<63 | r.Uint64())
	default:
		panic(v.Type())
	}
}

func full(seed uint64) (m message) {
	filled(reflect.ValueOf(&m).Elem(), rand.New(rand.NewPCG(seed, 1)))
	m.Looks[1] = false
	return m
}

// All that a message has arrives, and what is empty or not there is so where it arrives.
func TestFields(t *testing.T) {
	empty := message{Kind: askRhythms, Legacy: &wireLegacy{Children: make([]wireChild, 2)}, Lines: []string{"", "x", ""}, Spec: &spawnSpec{Lines: &proc.Lines{}}}
	for _, m := range []message{full(1), full(2), empty, {}} {
		var got message
		if err := decode(encode(m.fields), got.fields); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%v\ngot  %+v\nwant %+v", err, got, m)
		}
	}
}

// A field that a newer release has is passed over, and one that it has no more is empty.
func TestUnknownFields(t *testing.T) {
	var got message
	newer := encode(func(c *coder) {
		c.put(1, []byte{2})
		c.put(1000, []byte("news"))
		text := "words"
		c.put(8, []byte(text))
	})
	if err := decode(newer, got.fields); err != nil || !reflect.DeepEqual(got, message{Kind: 1, Text: "words"}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// What ends too early, or is no number, is an error and no message.
func TestBrokenFields(t *testing.T) {
	m := full(3)
	whole := encode(m.fields)
	ends := map[int]bool{0: true}
	for c, rest := (&coder{}), whole; len(rest) > 0; ends[len(whole)-len(rest)] = true {
		_, _, rest = c.next(rest)
	}
	for n := range whole {
		var got message
		if err := decode(whole[:n], got.fields); (err == nil) != ends[n] { // between two fields the frame's length is what tells
			t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	for _, b := range [][]byte{{1, 1, 0x80}, {1, 0}, {3, 2, 9, 1}, {0x80}, {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}} {
		var got message
		if err := decode(b, got.fields); err == nil {
			t.Errorf("%v: %+v", b, got)
		}
	}
}

func FuzzFields(f *testing.F) {
	m := full(4)
	f.Add(encode(m.fields))
	f.Add([]byte{3, 2, 9, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m, again message
		if decode(b, m.fields) != nil {
			return
		}
		if err := decode(encode(m.fields), again.fields); err != nil || !reflect.DeepEqual(m, again) {
			t.Errorf("%v\n%+v\n%+v", err, m, again)
		}
	})
}

// linked are the two ends of a link: of a first process, and of an agent, which may be of an older release.
func linked(tb testing.TB, older bool) (first, agent *link) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		tb.Fatal(err)
	}
	for i, l := range []**link{&first, &agent} {
		if *l, err = newLink(pair[i]); err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { (*l).conn.Close() })
	}
	agent.settle(older)
	return first, agent
}

// A first process speaks as its agent does; what it has to say before waits for that. Descriptors travel in both.
func TestBothReleases(t *testing.T) {
	for _, older := range []bool{false, true} {
		first, agent := linked(t, older)
		told := make(chan error)
		m := full(5)
		go func() { told <- first.send(m) }()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := agent.send(message{Kind: tellHello, files: duplicates([]int{int(w.Fd())})}); err != nil {
			t.Fatal(err)
		}
		w.Close()
		hello, err := first.receive()
		if err != nil || hello.Kind != tellHello || len(hello.files) != 1 {
			t.Fatalf("older %v: %+v, %v", older, hello, err)
		}
		closeAll(hello.files)
		if err := <-told; err != nil {
			t.Fatal(err)
		}
		if got, err := agent.receive(); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("older %v: %v\ngot  %+v\nwant %+v", older, err, got, m)
		}
	}
}

// Who waits to tell an agent something, and does not know how, is not left waiting when that dies.
func TestAgentWithoutAWord(t *testing.T) {
	first, agent := linked(t, false)
	told := make(chan error)
	go func() { told <- first.send(message{Kind: tellExit}) }()
	agent.conn.Close()
	if m, err := first.receive(); err == nil {
		t.Errorf("%+v", m)
	}
	if err := <-told; err == nil {
		t.Error("told, to nobody")
	}
}

// BenchmarkFirstMessage is the hello of an agent that has just begun: of this release, and of an older one.
func BenchmarkFirstMessage(b *testing.B) {
	for name, older := range map[string]bool{"fields": false, "gob": true} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				first, agent := linked(b, older)
				if err := agent.send(message{Kind: tellHello}); err != nil {
					b.Fatal(err)
				}
				if _, err := first.receive(); err != nil {
					b.Fatal(err)
				}
				first.conn.Close()
				agent.conn.Close()
			}
		})
	}
}
