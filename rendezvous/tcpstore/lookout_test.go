package tcpstore

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Whether to look on follows from what came: a few requests in a row that came soon, and after each look in vain twice as many.
func TestLookout(t *testing.T) {
	var o lookout
	after := func(sleeps ...time.Duration) {
		for _, slept := range sleeps {
			o.woken(slept)
		}
	}
	soon, late := lull, 3*lull
	if o.worth() {
		t.Error("a new loop looks on")
	}
	if after(soon, soon, soon); o.worth() {
		t.Error("three requests in a row are enough")
	}
	if after(late, soon, soon, soon); o.worth() {
		t.Error("requests on both sides of a long sleep are in a row")
	}
	if after(soon); !o.worth() {
		t.Error("four in a row are not enough")
	}
	for want := 2 * fewestSoon; want <= mostSoon; want *= 2 {
		if o.vain(); o.worth() {
			t.Fatal("looks on after a look in vain")
		}
		needs := 0
		for !o.worth() {
			after(soon)
			needs++
		}
		if needs != want {
			t.Fatalf("looks on after %d requests, want %d", needs, want)
		}
	}
	o.vain()
	if after(make([]time.Duration, mostSoon)...); !o.worth() {
		t.Errorf("more than %d in a row are asked for", mostSoon)
	}
	if o.seen(); !o.worth() {
		t.Error("does not look on although it was worth it")
	}
	o.vain()
	if after(make([]time.Duration, 2*fewestSoon)...); !o.worth() {
		t.Error("what was in vain before a look that was worth it still counts")
	}
}

// A look ends with mail, which is no reason to look less; when nothing comes for a lull it was in vain.
func TestLook(t *testing.T) {
	l, err := newLoop(&Server{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.closeFiles()
	events := make([]unix.EpollEvent, 1)
	l.watch.soon = mostSoon
	if n := l.look(events); n != 0 || l.watch.worth() {
		t.Errorf("%d of nothing, and again: %v", n, l.watch.worth())
	}
	l.watch = lookout{soon: mostSoon}
	l.post(letter{stop: true})
	if n := l.look(events); n != 0 || !l.watch.worth() {
		t.Errorf("%d with mail, and again: %v", n, l.watch.worth())
	}
	if _, err := unix.Write(l.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if n := l.look(events); n != 1 || int(events[0].Fd) != l.bell {
		t.Errorf("%d of one that is ready", n)
	}
}

// With one processor no loop looks on: Go would not come to serve the connections that are its own.
func TestNoLookAlone(t *testing.T) {
	for _, processors := range []int{1, 2} {
		had := runtime.GOMAXPROCS(processors)
		l, err := newLoop(&Server{})
		runtime.GOMAXPROCS(had)
		if err != nil {
			t.Fatal(err)
		}
		defer l.closeFiles()
		l.watch = lookout{soon: mostSoon}
		if _, err := unix.Write(l.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
		l.sleep(make([]unix.EpollEvent, 1))
		if looked := l.watch.soon == mostSoon; looked != (processors > 1) {
			t.Errorf("%d processors: looked on %v", processors, looked)
		}
	}
}
