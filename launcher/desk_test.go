package launcher

import (
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
)

// While nodes meet again, which may take half a minute, the status has what ended the round before.
func TestStatusOfAMeeting(t *testing.T) {
	d := &desk{c: Config{First: keeper{}}, last: standing{phase: report.Starting}}
	if s := d.status(); s.Spent != nil || len(s.Rounds) > 0 {
		t.Errorf("before the first: %+v", s)
	}
	clear := time.Minute
	d.show(standing{phase: report.Stopping, loop: time.Now(), state: &state{
		Round: 2, Nodes: []*node{{Name: "h0"}}, Past: []job.Round{{Number: 2, Message: "node 1 was lost"}}, Marks: marks{Clear: &clear, Why: "node 1 was lost"},
	}})
	d.meets("meeting for j")
	d.meets("meeting for j: 1 of 2 nodes here")
	s := d.status()
	if _, said, _ := s.Recovery(); said != "round 3 is on its way" || s.Round != 2 || len(s.Rounds) != 1 || s.Rounds[0].Message != "node 1 was lost" {
		t.Errorf("%q of %+v", said, s)
	}
	if len(d.view().Past) != 1 {
		t.Errorf("%+v", d.view())
	}
}

// A parked agent shows the account of the job that is over; without one there is none that goes on, for its time would be that since the year 1.
func TestStatusWhenParked(t *testing.T) {
	d := &desk{c: Config{First: keeper{}}}
	d.show(standing{phase: report.Parked, state: parked(report.Ending{Verdict: job.Verdict{Sentence: "all workers ended well"}})})
	if s := d.status(); s.Spent != nil || s.Message != "all workers ended well" {
		t.Errorf("%+v", s.Spent)
	}
	d.show(standing{phase: report.Parked, state: d.now().state, spent: &job.Account{Laps: []job.Lap{{Train: time.Minute}}}})
	if s := d.status(); s.Spent == nil || s.Spent.Laps[0].Train != time.Minute {
		t.Errorf("%+v", s.Spent)
	}
}
