package launcher

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/job"
)

// What a page says becomes a beat. Which programs filled it, one after the other, counts apart: it is no progress.
func TestBeatOf(t *testing.T) {
	s := page.Snapshot{
		PID: 7, Claims: 3, Recorder: true, Optimizer: 2, Steps: 1, Beats: 1, Until: time.Minute, Phase: "checkpoint",
		Lanes: []page.Lane{{Group: 9, Entered: 5, Completed: 4, Op: "all_reduce", Members: 4}, {Group: 8, Entered: 3, Blind: true}},
		Calls: page.Lane{Entered: 1, Completed: 1},
	}
	b := beatOf(5, 1, 6, s, 20*time.Second)
	if b.Rank != 5 || b.PID != 7 || b.Life != 3 || b.Count != 1+1+2+2+9+3 || b.Steps != 2 || b.Left != 40*time.Second {
		t.Errorf("%+v", b)
	}
	if b.Sources != job.FromRecorder|job.FromBeats || len(b.Lanes) != 2 || !b.Lanes[0].Waits() || b.Lanes[1].Waits() || b.Lanes[0].Members != 4 {
		t.Errorf("%+v", b)
	}
	if b := beatOf(5, 1, 6, page.Snapshot{}, 0); b.PID != 6 || b.Sources != 0 || b.Count != 0 {
		t.Errorf("of an empty page: %+v", b)
	}
}

// A finding about all ranks of a large world is still a message.
func TestFindingsAreBounded(t *testing.T) {
	var f heartbeat.Finding
	for rank := range 80_000 {
		stack := []string{"dataset.py:88 __getitem__", "loader.py:1 next", "train.py:3 <module>"}
		f.Culprits = append(f.Culprits, job.Culprit{Rank: rank, PID: 1 << 20, Looks: "asleep in futex_do_wait", Stack: stack})
		f.Stuck = append(f.Stuck, "10.0.0.3:41234, 7 retransmissions")
	}
	text, err := json.Marshal(news{Kind: newsStalled, Stalled: &stalled{Finding: bounded(f)}})
	if err != nil || len(text) > fleet.MaxMessage/8 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if len(f.Culprits[4].Stack) == 0 {
		t.Error("what was found itself is changed")
	}
}
