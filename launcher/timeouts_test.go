package launcher

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/heartbeat/page"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
)

func TestOwnTimeouts(t *testing.T) {
	for _, c := range []struct {
		environ string
		want    time.Duration // 0: none is known
	}{
		{"", 0},
		{"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=120", 2 * time.Minute},
		{"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=120 TORCH_NCCL_ENABLE_MONITORING=0", 0},
		{"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=soon", 0},
		{"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=99999999999999999999", 0},
	} {
		var got time.Duration
		for _, o := range (Config{Environ: strings.Fields(c.environ)}).ownTimeouts() {
			got += o.After
		}
		if got != c.want {
			t.Errorf("%q: %v, want %v", c.environ, got, c.want)
		}
	}
}

// Of whom the others wait for people hear once; status and the verdict tell of it as long as it is so.
func TestLagging(t *testing.T) {
	w := newWorld(t, 2).begin()
	all := []job.Straggler{{Rank: 3, Node: "node-1", Lost: 0.5, Last: 0.9, Step: time.Second}}
	w.feed(0, lagging{Text: all[0].String(), All: all})
	all[0].Lost = 0.6
	w.feed(0, lagging{All: all})
	w.run()
	if n := strings.Count(strings.Join(w.log, "\n"), "the others wait for rank 3"); n != 1 {
		t.Errorf("it was said %d times: %q", n, w.log)
	}
	shows := func() string {
		var s report.Status
		w.states[0].describe(&s)
		return s.Text(time.Time{})
	}
	const line = "\nstraggler: the others wait for rank 3 (node-1): it comes last in 90 % of all cases, and is behind the others 60 % of the time, 600 ms of each step of 1.0 s\n"
	if text := shows(); !strings.Contains(text, line) {
		t.Errorf("status does not show it: %s", text)
	}
	w.feed(0, lagging{})
	w.run()
	if text := shows(); strings.Contains(text, "straggler") {
		t.Errorf("status still shows it: %s", text)
	}
}

// A round's straggler is told of once, with those of its node, though each of them is the worst now and then.
func TestLags(t *testing.T) {
	one := func(rank int, node string) job.Straggler {
		return job.Straggler{Rank: rank, Node: node, Waits: 0.1, Others: 0.5}
	}
	a, b, c, d := one(4, "node-1"), one(5, "node-1"), one(6, "node-1"), one(1, "node-0")
	const how = "it spends 10 % of its time in collectives, they 50 %"
	var l lags
	for i, look := range []struct {
		found []job.Straggler
		want  string
	}{
		{nil, ""},
		{[]job.Straggler{b, a, d}, "the others wait for rank 5 (node-1): " + how + "; so they do for rank 4 of that node"},
		{[]job.Straggler{a, b, d}, ""},
		{nil, ""},
		{[]job.Straggler{b, a}, ""},
		{[]job.Straggler{d, a}, "the others wait for rank 1 (node-0): " + how},
		{[]job.Straggler{c, d, b, a}, "the others wait for rank 6 (node-1): " + how},
	} {
		if got := l.line(look.found); got != look.want {
			t.Errorf("look %d: %q, want %q", i, got, look.want)
		}
	}
}

// The moment at which a worker's counters were read is that of its own node's clock.
func TestSecond(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 59, 400e6, time.UTC)
	for _, c := range []struct {
		read time.Duration // before now
		end  bool
		want uint8
	}{{400 * time.Millisecond, false, 60}, {360 * time.Millisecond, false, 60}, {340 * time.Millisecond, false, 0}, {1390 * time.Millisecond, false, 59}, {400 * time.Millisecond, true, 0}} {
		s := page.Snapshot{Moment: time.Hour - c.read, Exiting: c.end}
		if got := second(s, time.Hour, now); got != c.want {
			t.Errorf("%v before: %d, want %d", c.read, got, c.want)
		}
	}
	if got := second(page.Snapshot{}, time.Hour, now); got != 0 {
		t.Errorf("of no page: %d", got)
	}
}

// Of time-outs that do not go with each other people hear once, and status shows them, in later rounds, too.
func TestClashing(t *testing.T) {
	w := newWorld(t, 2).begin()
	for range 2 {
		w.feed(0, clashing{"PyTorch gives up after 20s"})
	}
	w.run()
	if n := strings.Count(strings.Join(w.log, "\n"), "PyTorch gives up"); n != 1 {
		t.Errorf("it was said %d times: %q", n, w.log)
	}
	var s report.Status
	w.states[0].describe(&s)
	if text := s.Text(time.Time{}); !strings.Contains(text, "\nmind: PyTorch gives up after 20s\n") {
		t.Errorf("status does not show it: %s", text)
	}
}
