package heartbeat

import (
	"reflect"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

// What nodes tell becomes a look: each speaks for its own ranks, in this round, and who was not heard is not judged.
func TestRoll(t *testing.T) {
	w := job.World{Generation: 3}
	for i, version := range []string{"v2", "v2", "v2", "v2", "v1", "v1"} {
		w.Members = append(w.Members, job.Member{Node: job.Node{Slots: 2, Version: version}, First: 2 * i})
	}
	beats := func(ranks ...int) (all []job.Beat) {
		for _, r := range ranks {
			all = append(all, job.Beat{Rank: r, PID: 100 + r, Lanes: []job.Lane{{Group: 1, Entered: uint64(r)}}})
		}
		return all
	}
	report := func(ended []int, ranks ...int) Report {
		return Report{Generation: 3, Round: 7, Ranks: Pack(beats(ranks...)), Ended: ended}
	}
	r := NewRoll(w, 7, "v2")
	for at := range atOnce { // no look knows anything of those before, nor leaves anything
		r.Begin(time.Duration(at) * time.Second)
		r.Own(0, beats(1), []int{0})
		r.Told(1, report([]int{3, 0}, 2, 5)) // of which 0 and 5 are not its own
		late := report(nil, 4, 5)
		late.Round = 6
		r.Told(2, late)
		r.Told(3, report(nil, 6, 7, 6)) // more than it has
		r.Told(4, report(nil, 8, 9))
		r.Told(6, report(nil, 12))
		r.Told(-1, report(nil, 0))
		want := Look{At: time.Duration(at) * time.Second, Beats: append(beats(1, 2, 8, 9),
			job.Beat{Rank: 10, Mute: "muster v1 runs it"}, job.Beat{Rank: 11, Mute: "muster v1 runs it"}), Unheard: []int{4, 5, 6, 7}, Ended: []int{0, 3}}
		if got := r.Look(); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v\n%+v", got, want)
		}
	}
	if n := len(r.lanes.boards); n != 1 {
		t.Errorf("room for the lanes of %d looks", n)
	}
}

// What is cut off on its way counts for nothing.
func TestRollLeavesWhatIsCutOff(t *testing.T) {
	w := job.World{Members: []job.Member{{Node: job.Node{Slots: 1}}, {Node: job.Node{Slots: 1}, First: 1}}}
	r := NewRoll(w, 0, "")
	r.Begin(0)
	r.Own(0, nil, nil)
	packed := Pack([]job.Beat{{Rank: 1, Mute: "x"}})
	r.Told(1, Report{Ranks: packed[:len(packed)-1]})
	if got := r.Look(); len(got.Beats) != 0 || !reflect.DeepEqual(got.Unheard, []int{1}) {
		t.Errorf("%+v", got)
	}
}
