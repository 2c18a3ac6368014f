package heartbeat

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

// A time-out of the framework is told of when it leaves ours, or the job's pauses, too little time.
func TestClashes(t *testing.T) {
	watchdog := []Timeout{{20 * time.Second, "PyTorch ends a rank whose NCCL watchdog does not get on", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "raise it"}}
	for _, tt := range []struct {
		name   string
		own    time.Duration
		limits Limits
		pause  int // seconds, that the job has been seen to stand still
		want   string
	}{
		{"not known", 0, Limits{Ceiling: time.Hour}, 100, ""},
		{"the defaults of both", 10 * time.Minute, Limits{}, 10, ""},
		{"the default of gloo, and a checkpoint", 30 * time.Minute, Limits{}, 500, ""},
		{"too short to be told", 20 * time.Second, Limits{}, 0,
			"PyTorch gives up on a collective after 20s (the default process group's time-out, as rank 1 has it), and no standstill is called a hang before 30s (--hang-floor): " +
				"the job would end with nobody named; give init_process_group a longer timeout, or say a lower --hang-floor"},
		{"enough for a lower floor", 20 * time.Second, Limits{Floor: 5 * time.Second}, 0, ""},
		{"pauses", 2 * time.Minute, Limits{}, 80,
			"and the job has paused for 1m21s: a pause of not twice that would end it, healthy as it is; give init_process_group a longer timeout"},
		{"said", 10 * time.Minute, Limits{Ceiling: time.Hour}, 0, "so that a hang must be told within 9m30s, whatever --hang-timeout 1h0m0s says"},
		{"said of busy ones", 10 * time.Minute, Limits{Busy: 20 * time.Minute}, 0, "so that a rank at work must be blamed within 9m30s, whatever --hang-busy-after 20m0s says"},
		{"the environment's", 0, Limits{Others: watchdog}, 0, "PyTorch ends a rank whose NCCL watchdog does not get on after 20s (TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC), and no standstill"},
	} {
		w := newWorld(3, tt.limits)
		w.beats[2].Limit, w.beats[1].Limit = tt.own, tt.own
		w.train(100).stand(tt.pause, nil).train(2)
		all := w.judge.Clashes()
		switch {
		case len(all) == 0 && tt.want == "":
		case len(all) != 1 || tt.want == "" || !strings.Contains(all[0].Text, tt.want):
			t.Errorf("%s: got  %+v\nwant %q", tt.name, all, tt.want)
		}
	}
}

// A busy culprit is blamed before the framework ends the job, whatever was said of it, but in a group whose time-out is not known.
func TestBusyBeforeTimeout(t *testing.T) {
	for _, tt := range []struct {
		group  string
		busy   time.Duration
		blamed time.Duration
	}{
		{"0", time.Hour, 270 * time.Second}, {"default_pg", time.Hour, 270 * time.Second}, {"", time.Hour, 270 * time.Second},
		{"tp_1", time.Hour, time.Hour}, {"tp_1", 0, 270 * time.Second},
	} {
		w := newWorld(4, Limits{Busy: tt.busy})
		for i := range w.beats {
			w.beats[i].Limit, w.beats[i].Lanes[0].Name = 5*time.Minute, tt.group
		}
		w.train(100).enter(0, 1, 2)
		w.stand(int(tt.blamed.Seconds())-2, func() { w.works(3) })
		if f := w.worst(); f == nil || f.Stage != Slow {
			t.Errorf("group %q, --hang-busy-after %v: too early %+v", tt.group, tt.busy, f)
		}
		w.stand(10, func() { w.works(3) })
		if f := w.worst(); f == nil || f.Stage != Hung {
			t.Errorf("group %q, --hang-busy-after %v: not within %v: %+v", tt.group, tt.busy, tt.blamed, f)
		}
	}
	w := newWorld(4, Limits{Busy: time.Hour}) // some wait in both
	for i := range w.beats {
		w.beats[i].Limit, w.beats[i].Lanes[0].Name = 5*time.Minute, "tp_1"
		w.beats[i].Lanes = append(w.beats[i].Lanes, job.Lane{Group: dp + 1, Name: "0", Entered: 7, Completed: 7})
	}
	w.train(100).enter(0, 1)
	w.beats[2].Lanes[1].Entered++
	w.stand(280, func() { w.works(3) })
	if f := w.worst(); f == nil || f.Stage != Hung {
		t.Errorf("somebody waits in the default group: %+v", f)
	}
}
