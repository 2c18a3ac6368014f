package launcher

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-run/muster/heartbeat/page"
)

// told is a page of a rank in a group of so many.
func toldOf(at time.Duration, members int, entered, completed uint64) page.Snapshot {
	return page.Snapshot{Recorder: true, Helper: at, Lanes: []page.Lane{{Group: 1, Members: members, Entered: entered, Completed: completed}}}
}

func TestTogether(t *testing.T) {
	for _, c := range []struct {
		name         string
		pages        []page.Snapshot
		sure, likely time.Duration
	}{
		{"nothing yet", []page.Snapshot{toldOf(1, 8, 0, 0)}, 0, 0},
		{"advances", []page.Snapshot{toldOf(1, 8, 100, 100), toldOf(2, 8, 110, 110), toldOf(3, 8, 120, 120)}, 2, 3},
		{"stands still", []page.Snapshot{toldOf(1, 8, 100, 100), toldOf(2, 8, 110, 109), toldOf(3, 8, 110, 109), toldOf(9, 8, 110, 109)}, 1, 2},
		{"what the others had sent is counted late", []page.Snapshot{toldOf(1, 8, 100, 100), toldOf(2, 8, 110, 110), toldOf(9, 8, 111, 110), toldOf(10, 8, 111, 111)}, 1, 10},
		{"its program runs ahead of what is complete", []page.Snapshot{toldOf(1, 8, 100, 90), toldOf(2, 8, 110, 100), toldOf(3, 8, 120, 110)}, 1, 3},
		{"its hook did not get to look", []page.Snapshot{toldOf(1, 8, 100, 100), toldOf(1, 8, 100, 100), toldOf(9, 8, 300, 300)}, 1, 9},
		{"a group of fewer", []page.Snapshot{toldOf(1, 4, 100, 100), toldOf(2, 4, 110, 110)}, 0, 0},
		{"what is complete is not known", []page.Snapshot{{Recorder: true, Helper: 1, Lanes: []page.Lane{{Members: 8, Blind: true, Entered: 1}}}, {Recorder: true, Helper: 2, Lanes: []page.Lane{{Members: 8, Blind: true, Entered: 100}}}}, 0, 0},
		{"no recorder", []page.Snapshot{{Helper: 1, Lanes: []page.Lane{{Members: 8}}}, {Helper: 2, Lanes: []page.Lane{{Members: 8, Entered: 9, Completed: 9}}}}, 0, 0},
		{"another program", []page.Snapshot{toldOf(1, 8, 100, 100), {Claims: 1, Recorder: true, Helper: 5, Lanes: []page.Lane{{Group: 1, Members: 8, Entered: 200, Completed: 200}}}}, 0, 5},
	} {
		var does together
		does.begin(8)
		for _, s := range c.pages {
			does.note(0, s)
		}
		if does.sure != c.sure || does.likely != c.likely {
			t.Errorf("%s: surely %d, likely %d, want %d and %d", c.name, does.sure, does.likely, c.sure, c.likely)
		}
	}
}

// Whatever the ranks of two nodes do and whenever they are looked at: what the one takes for sure, the other takes for likely.
func TestTogetherAgrees(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		var a, b together
		a.begin(2)
		b.begin(2)
		sides := [2]*together{&a, &b}
		var entered, completed [2]uint64
		underWay := 1 + seed%3
		alone := depth - underWay         // of so many collectives one is of both: the others are broadcasts by the first, which waits for nobody
		mayComplete := func(i int) bool { // all_gather is the worst: what the other sent is enough
			broadcast := seed/3%2 == 0 && completed[i]%alone != 0
			return completed[i] < entered[i] && (completed[i] < entered[1-i] || broadcast && i == 0)
		}
		for now := time.Duration(1); now < 400; now++ {
			i := r.IntN(2)
			switch {
			case mayComplete(i) && r.IntN(2) == 0:
				completed[i]++
			case entered[i]-completed[i] < underWay:
				entered[i]++
			}
			if r.IntN(3) == 0 {
				i = r.IntN(2)
				sides[i].note(0, toldOf(now, 2, entered[i], completed[i]))
			}
			if now%40 == 39 {
				for i := range sides { // hooks that get to look, before anybody decides
					sides[i].note(0, toldOf(now, 2, entered[i], completed[i]))
				}
				if a.sure > b.likely || b.sure > a.likely {
					t.Fatalf("seed %d: at %d one is sure of %d and %d, and it is likely until %d and %d", seed, now, a.sure, b.sure, a.likely, b.likely)
				}
			}
		}
		if a.sure == 0 || b.sure == 0 {
			t.Fatalf("seed %d: nobody was ever sure", seed)
		}
	}
}

// A worker that ends may have got something done since its hook last looked, unless it stood still by then.
func TestTogetherEnds(t *testing.T) {
	second := uint64(time.Second)
	for _, c := range []struct {
		name  string
		pages []page.Snapshot
		late  bool
	}{
		{"it stood still", []page.Snapshot{toldOf(time.Duration(second), 8, 10, 10), toldOf(time.Duration(2*second), 8, 12, 11), toldOf(time.Duration(7*second), 8, 12, 11)}, false},
		{"it advanced", []page.Snapshot{toldOf(time.Duration(second), 8, 10, 10), toldOf(time.Duration(2*second), 8, 12, 11)}, true},
	} {
		for how, end := range map[string]func(*together){
			"ends":            func(does *together) { does.ended(0) },
			"says so":         func(does *together) { does.note(0, page.Snapshot{Exiting: true}) },
			"is another":      func(does *together) { does.note(0, page.Snapshot{Claims: 1, Recorder: true}) },
			"ends with round": func(does *together) { does.begin(0) },
		} {
			var does together
			does.begin(8)
			for _, s := range c.pages {
				does.note(0, s)
			}
			end(&does)
			if late := does.likely > time.Duration(2*second); late != c.late || len(does.lanes) > 0 {
				t.Errorf("%s, and the worker %s: likely at %v, %d lanes", c.name, how, does.likely, len(does.lanes))
			}
		}
	}
}
