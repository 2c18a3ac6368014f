package launcher

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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
	if b.Rank != 5 || b.PID != 7 || b.Life != 3 || b.Count != 1+2+2+9+3 || b.Steps != 2 || b.Left != 40*time.Second {
		t.Errorf("%+v", b)
	}
	if b.Sources != job.FromRecorder|job.FromBeats || len(b.Lanes) != 2 || !b.Lanes[0].Waits() || b.Lanes[1].Waits() || b.Lanes[0].Members != 4 {
		t.Errorf("%+v", b)
	}
	for what, c := range map[string]struct {
		page page.Snapshot
		src  job.Source
		over bool
		mute string
	}{
		"who trains alone":               {page.Snapshot{Optimizer: 1, Mute: "no process group yet"}, job.FromHooks, false, "no process group yet"},
		"who has just begun":             {page.Snapshot{PID: 7, Mute: "no process group yet"}, job.Ready, false, "no process group yet"},
		"who has entered nothing so far": {page.Snapshot{PID: 7, Grouped: true}, job.Ready, false, ""},
		"of a backend that tells nothing": {page.Snapshot{PID: 7, Grouped: true, Mute: "group 0 (ucc) has no recorder"}, 0, false,
			"group 0 (ucc) has no recorder"},
		"who has destroyed its groups":   {page.Snapshot{Optimizer: 1, Met: true, Mute: "no process group yet"}, job.Ready, false, "in no process group any more"},
		"a script that is over":          {page.Snapshot{Over: true, Mute: "no process group yet"}, 0, true, "its script is over"},
		"one that failed":                {page.Snapshot{Over: true, Raised: "ValueError: 7"}, 0, true, "its script failed: ValueError: 7"},
		"a page that nobody has written": {},
	} {
		if b := beatOf(0, 0, 0, c.page, 0); b.Sources != c.src || b.Over != c.over || b.Mute != c.mute {
			t.Errorf("%s: %+v", what, b)
		}
	}
	if b := beatOf(5, 1, 6, page.Snapshot{}, 0); b.PID != 6 || b.Sources != 0 || b.Count != 0 {
		t.Errorf("of an empty page: %+v", b)
	}
}

// Of who is about to end nobody knows of which kind the last was that it takes for complete.
func TestLaneAtTheEnd(t *testing.T) {
	l := page.Lane{Group: 1, Entered: 6, Completed: 5, Mark: 77}
	if got := laneOf(l, false); got.Completed != 5 || got.Mark != 77 {
		t.Errorf("%+v", got)
	}
	if got := laneOf(l, true); got.Completed != 6 || got.Mark != 0 {
		t.Errorf("%+v", got)
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

// Workers whose PyTorch has no recorder say so: in the status of each, and once in the log, when it has had time to come.
func TestRecorderless(t *testing.T) {
	var said bytes.Buffer
	began := time.Now()
	w := &watch{c: Config{Log: slog.New(slog.NewTextHandler(&said, nil))}, began: began}
	calls := job.Beat{Rank: 3, Sources: job.FromHooks, Mute: "PyTorch 1.13.0 has no recorder for gloo"}
	sends := job.Beat{Sources: job.FromHooks}
	recorded := job.Beat{Sources: job.FromRecorder, Mute: "40 process groups, of which the page holds 32"}
	w.mention([]job.Beat{calls}, began.Add(fewerBy-1))
	over := calls
	over.Over = true
	w.mention([]job.Beat{sends, recorded, over}, began.Add(fewerBy))
	if said.Len() > 0 {
		t.Errorf("said %s", &said)
	}
	for range 2 {
		w.mention([]job.Beat{recorded, calls, calls}, began.Add(fewerBy))
	}
	if n := strings.Count(said.String(), "rank 3 has heartbeats of calls alone, so of a hang less will be known: PyTorch 1.13.0 has no recorder for gloo"); n != 1 {
		t.Errorf("said %d times: %s", n, &said)
	}
	for _, c := range []struct {
		beat job.Beat
		want string
	}{{calls, "hooks; PyTorch 1.13.0 has no recorder for gloo"}, {sends, "hooks"}, {recorded, "recorder"}} {
		if got := sources(c.beat); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// A run's directory without room for the hook is no reason to go without: it is beside the pages then.
func TestHookElsewhere(t *testing.T) {
	pages, full := t.TempDir(), filepath.Join(t.TempDir(), "full")
	if err := os.WriteFile(full, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if dir, err := unpackHook(full, pages)(); err != nil || filepath.Dir(dir) != pages {
		t.Errorf("%q, %v", dir, err)
	}
	if _, err := unpackHook(full, full)(); err == nil || !strings.Contains(err.Error(), full) {
		t.Errorf("without any room: %v", err)
	}
}
