package chaos

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-run/muster/test/stage"
)

// A record is what a worker told of itself.
type record struct {
	at                     time.Duration // of the clock that all namespaces share
	machine                string
	rank, size, round, pid int
	what                   string // up, stepped, kept, done
	step                   int
	digest                 string // of its parameters
}

func (r record) String() string {
	return fmt.Sprintf("%.3f %s rank %d of %d, round %d, pid %d: %s %d %s", r.at.Seconds(), r.machine, r.rank, r.size, r.round, r.pid, r.what, r.step, r.digest)
}

// A book has what the workers of a stage told.
type book struct {
	pipe    *os.File
	changed func()
	done    chan struct{} // closed when its reader has ended

	mu     sync.Mutex
	begun  []record       // the first words of each round
	ranks  []record       // the latest step of each rank, in the latest round; what is "" of those that have made none
	steps  []int          // of each rank in the latest round
	kept   map[int]string // digests of checkpoints
	dones  []record
	wrong  []string
	latest int // step of all
}

func openBook(dir string, changed func()) (*book, error) {
	pipe, err := stage.Book(dir)
	if err != nil {
		return nil, err
	}
	b := &book{pipe: pipe, changed: changed, done: make(chan struct{}), kept: map[int]string{}}
	go b.read()
	return b, nil
}

func (b *book) close() {
	b.pipe.Close()
	<-b.done
}

func (b *book) read() {
	defer close(b.done)
	lines := bufio.NewScanner(b.pipe)
	for lines.Scan() {
		var r record
		_, err := fmt.Sscan(lines.Text(), (*int64)(&r.at), &r.machine, &r.rank, &r.size, &r.round, &r.pid, &r.what, &r.step, &r.digest)
		b.mu.Lock()
		if err == nil {
			err = b.add(r)
		}
		if err != nil {
			b.wrong = append(b.wrong, fmt.Sprintf("%v: %s", err, lines.Text()))
		}
		b.mu.Unlock()
		b.changed()
	}
}

// add takes a record in, unless it says what may not be.
func (b *book) add(r record) error {
	if r.rank < 0 || r.rank >= r.size {
		return errors.New("no rank of its world")
	}
	n := len(b.begun)
	if n == 0 || r.round > b.begun[n-1].round {
		b.begun = append(b.begun, r)
		b.ranks, b.steps = make([]record, r.size), make([]int, r.size)
		n++
	}
	switch newest := b.begun[n-1]; {
	case r.round < newest.round && r.at > newest.at:
		return fmt.Errorf("after round %d had begun", newest.round)
	case r.round < newest.round: // written before, and read later
		return nil
	case r.size != newest.size:
		return fmt.Errorf("in a world of %d", newest.size)
	}
	switch mate := b.ranks[r.rank]; {
	case mate.what != "" && (mate.pid != r.pid || mate.machine != r.machine):
		return fmt.Errorf("its rank is that of %v", mate)
	case r.what == "done":
		b.dones = append(b.dones, r)
	case r.what == "kept":
		if digest, known := b.kept[r.step]; known && digest != r.digest {
			return fmt.Errorf("and %s before", digest)
		}
		b.kept[r.step] = r.digest
		return nil
	case r.what == "stepped":
		b.steps[r.rank]++
		b.latest = max(b.latest, r.step)
	}
	b.ranks[r.rank] = r
	return nil
}

// A standing is how a training stands.
type standing struct {
	round int // the latest
	at    time.Duration
	step  int // that any rank ever came to
	least int // steps that each rank has made in it
	pids  []int
}

func (b *book) standing() (s standing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.begun); n > 0 {
		s = standing{round: b.begun[n-1].round, at: b.begun[n-1].at, step: b.latest, least: b.steps[0]}
	}
	for rank, r := range b.ranks {
		s.least = min(s.least, b.steps[rank])
		s.pids = append(s.pids, r.pid)
	}
	return s
}

// The book finds each fault for which it is there.
func TestBook(t *testing.T) {
	step := func(round, rank, pid, at int, what string) record {
		return record{round: round, rank: rank, pid: pid, at: time.Duration(at), what: what, size: 2, step: 10, digest: "a"}
	}
	good := []record{step(0, 0, 5, 1, "up"), step(0, 1, 6, 2, "up"), step(0, 0, 5, 3, "stepped"), step(0, 0, 5, 4, "kept"), step(1, 0, 7, 10, "up")}
	other := step(1, 0, 7, 12, "kept")
	other.digest = "b"
	larger := step(1, 0, 7, 12, "stepped")
	larger.size = 3
	for name, c := range map[string]struct {
		next record
		want string // "": it is right
	}{
		"another step":          {step(1, 0, 7, 12, "stepped"), ""},
		"an older one, late":    {step(0, 1, 6, 9, "stepped"), ""},
		"the same checkpoint":   {step(1, 0, 7, 12, "kept"), ""},
		"a rank that is none":   {step(1, 2, 7, 12, "up"), "no rank of its world"},
		"a step of yesterday":   {step(0, 1, 6, 11, "stepped"), "after round 1 had begun"},
		"two have one rank":     {step(1, 0, 8, 12, "stepped"), "its rank is that of"},
		"two sizes":             {larger, "in a world of 2"},
		"another checkpoint":    {other, "and a before"},
		"a step of a newer one": {step(2, 1, 9, 13, "up"), ""},
	} {
		b := &book{kept: map[int]string{}}
		for _, r := range good {
			if err := b.add(r); err != nil {
				t.Fatal(err)
			}
		}
		err := b.add(c.next)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}
