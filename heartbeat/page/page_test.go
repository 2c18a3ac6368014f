package page

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// create makes a page that is there until the test ends.
func newPage(t testing.TB) (*Page, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page")
	p, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, path
}

// writer opens the page at path to write beats, until the test ends.
func writer(t testing.TB, path string) *Writer {
	t.Helper()
	w, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func TestEmpty(t *testing.T) {
	p, path := newPage(t)
	s, err := p.Read()
	if err != nil || !reflect.DeepEqual(s, Snapshot{}) {
		t.Errorf("a new page says %+v, %v", s, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() != Size || info.Mode() != 0o600 {
		t.Errorf("%v %v, %v", info.Size(), info.Mode(), err)
	}
}

func TestBeats(t *testing.T) {
	p, path := newPage(t)
	w := writer(t, path)
	before, err := monotonic()
	if err != nil {
		t.Fatal(err)
	}
	long := "évaluation " + strings.Repeat("é", 60)
	for _, err := range []error{w.Step(7), w.Phase(long, time.Minute), writer(t, path).Step(8)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := p.Read()
	if err != nil || s.Steps != 8 || s.Beats != 3 || s.Phase != long[:62] {
		t.Errorf("%+v, %v", s, err)
	}
	if in := s.Until - before; in < time.Minute || in > 2*time.Minute {
		t.Errorf("the phase ends in %v", in)
	}
	if err := w.Phase("", time.Minute); err != nil {
		t.Fatal(err)
	}
	if s, err := p.Read(); err != nil || s.Phase != "" || s.Until != 0 || s.Steps != 8 || s.Beats != 4 {
		t.Errorf("after its end: %+v, %v", s, err)
	}
}

// A process that has the old page open writes where nobody reads.
func TestCreateAgain(t *testing.T) {
	_, path := newPage(t)
	old := writer(t, path)
	if err := os.WriteFile(StackFile(path), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := old.Step(5); err != nil {
		t.Fatal(err)
	}
	if s, err := p.Read(); err != nil || s.Steps != 0 {
		t.Errorf("the new page says %+v, %v", s, err)
	}
	if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
		t.Errorf("%v beside the page, %v", names, err)
	}
}

func TestNotOurs(t *testing.T) {
	dir := t.TempDir()
	newer := empty()
	order.PutUint32(newer[8:], version+1)
	for _, c := range []struct {
		name, content string
		want          error
	}{
		{"short", string(empty()[:Size-1]), ErrForeign},
		{"zeros", strings.Repeat("\x00", Size), ErrForeign},
		{"newer", string(newer), ErrNewer},
	} {
		path := filepath.Join(dir, c.name)
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); !errors.Is(err, c.want) {
			t.Errorf("%s, for writing: %v", c.name, err)
		}
		p, err := Attach(path)
		if err == nil {
			_, err = p.Read()
			p.Close()
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s, for reading: %v", c.name, err)
		}
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A worker may do to its file what it likes.
func TestCutShort(t *testing.T) {
	p, path := newPage(t)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Read(); !errors.Is(err, ErrForeign) {
		t.Error(err)
	}
}

// What is torn says so, and does not hide the rest, nor what was there before.
func TestTorn(t *testing.T) {
	p, path := newPage(t)
	w := writer(t, path)
	if err := w.Step(3); err != nil {
		t.Fatal(err)
	}
	pid := &words(w.mem)[(hookAt+hookPID)/8]
	store(pid, 812)
	if s, err := p.Read(); err != nil || s.PID != 812 {
		t.Errorf("%+v, %v", s, err)
	}
	store(&words(w.mem)[hookAt/8], 1)
	store(pid, 7)
	if s, err := p.Read(); !errors.Is(err, ErrTorn) || s.Steps != 3 || s.PID != 812 {
		t.Errorf("%+v, %v", s, err)
	}
	store(&words(w.mem)[beatsAt/8], 7) // its writer died; the next one repairs it
	if s, err := p.Read(); !errors.Is(err, ErrTorn) || s.Steps != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	store(&words(w.mem)[hookAt/8], 2)
	if err := w.Step(4); err != nil {
		t.Fatal(err)
	}
	if s, err := p.Read(); err != nil || s.Steps != 4 {
		t.Errorf("%+v, %v", s, err)
	}
}

// Readers see whole beats while they are written.
func TestWhole(t *testing.T) {
	p, path := newPage(t)
	w := writer(t, path)
	done := make(chan error)
	go func() {
		var err error
		for n := uint64(1); n <= 20000 && err == nil; n++ {
			err = w.write(func(b []byte) {
				order.PutUint64(b[beatSteps:], n)
				order.PutUint64(b[beatUntil:], n)
			})
		}
		done <- err
	}()
	for last := uint64(0); last < 20000; {
		s, err := p.Read()
		if errors.Is(err, ErrTorn) {
			continue
		}
		if err != nil || s.Steps < last || uint64(s.Until) != s.Steps || s.Beats != s.Steps {
			t.Fatalf("after %d: %+v, %v", last, s, err)
		}
		last = s.Steps
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Any bytes are read without harm.
func FuzzPage(f *testing.F) {
	f.Add(empty())
	full := empty()
	for i := 16; i < Size; i++ {
		full[i] = 0xfe
	}
	f.Add(full)
	f.Fuzz(func(t *testing.T, content []byte) {
		var p [Size / 8]uint64
		for i := range p {
			var word [8]byte
			if 8*i < len(content) {
				copy(word[:], content[8*i:])
			}
			store(&p[i], order.Uint64(word[:]))
		}
		s, err := decode(&p)
		if err != nil && !errors.Is(err, ErrTorn) && !reflect.DeepEqual(s, Snapshot{}) {
			t.Errorf("%+v beside %v", s, err)
		}
		if len(s.Lanes) > maxLane || s.Rank < 0 || s.Rank > 0 && s.Rank >= s.World || s.PID < 0 || s.Until < 0 || s.Helper < 0 {
			t.Errorf("%+v", s)
		}
		for _, l := range append(s.Lanes, s.Calls, Lane{Name: s.Phase, Op: s.Mute}) {
			if strings.ContainsAny(l.Name+l.Op, "\n\r\x1b\x00") {
				t.Errorf("%+v", l)
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	p, path := newPage(b)
	w := writer(b, path)
	order.PutUint32(w.mem[hookAt+hookPID:], 1)
	order.PutUint32(w.mem[hookAt+hookLanes:], 4)
	b.ReportAllocs()
	for b.Loop() {
		if s, err := p.Read(); err != nil || len(s.Lanes) != 4 {
			b.Fatal(s, err)
		}
	}
}

func BenchmarkStep(b *testing.B) {
	_, path := newPage(b)
	w := writer(b, path)
	for b.Loop() {
		if err := w.Step(1); err != nil {
			b.Fatal(err)
		}
	}
}
