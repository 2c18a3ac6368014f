package launcher

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/muster-run/muster/fleet"
	"github.com/muster-run/muster/job"
)

// Whatever a member tells, its leader and the members judge it and go on, and so does the log of events; what follows from it can be kept for
// an agent that takes over.
func FuzzNews(f *testing.F) {
	for _, n := range []news{
		{Kind: newsStart, Start: &start{Port: 1, Round: 1}}, {Kind: newsFailed, Failure: &job.Failure{Rank: 2}}, {Kind: newsVerdict, Verdict: &job.Verdict{Sentence: "x"}},
		{Kind: newsDone, Ranks: []job.Ended{{Rank: 2}}}, {Kind: newsEnding, Why: "x"}, {Kind: newsLapsed}, {Kind: newsQuit, Why: "x"}, {Kind: newsClear, Leaves: true},
		{Kind: newsStop, Why: "x", Out: "y", Rest: time.Second}, {Kind: newsOrder, Order: orderPause, Number: 1}, {Kind: newsAnswer, Answer: &reply{}, Number: 1},
		{Kind: newsHere, Machine: &job.Machine{}, Charge: &charge{}}, {Kind: newsMend, Mends: []mend{{}}}, {Kind: newsMeet, Past: &job.Tally{}},
		{Kind: newsStalled, Stalled: &stalled{}}, {Kind: newsHealth, Ailing: []job.Evidence{{Kind: "gpu"}}, Of: 1}, {Kind: newsKill},
	} {
		text, err := json.Marshal(n)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		w := newWorld(t, 3).begin()
		for _, way := range [][2]int{{0, 1}, {1, 0}, {2, 1}} {
			to, from := way[0], way[1]
			event := (&line{}).translate(fleet.Event{Change: fleet.Heard, Peer: from, Message: fleet.Message{Body: body}})
			if event == nil {
				return
			}
			was := w.states[to]
			is, todo := decide(w.policy, was, time.Second, event)
			linesOf(w.policy, was, event, is, todo)
			if _, err := json.Marshal(is); err != nil {
				t.Errorf("node %d cannot keep what it knows: %v", to, err)
			}
		}
	})
}

// A journal may be anybody's file.
func FuzzReplay(f *testing.F) {
	w := newWorld(&testing.T{}, 2).begin()
	w.feed(1, finished{job.Ended{Rank: 2}, &job.Failure{Rank: 2}})
	for i := range w.kept {
		f.Add(w.kept[i].lines())
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = Replay(bytes.NewReader(text), io.Discard, func(*Limits) {}) // an error is as good
	})
}
