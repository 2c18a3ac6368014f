package launcher

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
)

// fails lets a worker fail after a time, and returns how long it took until the next round began; -1: there was none.
func (w *world) fails(after time.Duration) time.Duration {
	w.now += after
	at := w.now
	w.feed(1, failure(1, 0, job.Exit{Code: 3}))
	w.run()
	if w.began[1] <= at {
		return -1
	}
	return w.began[1] - at
}

// The first restart is at once, further ones take their time, unless rounds run for long between.
func TestBackOff(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.policy.MaxRestarts, w.policy.Backoff = 10, 5*time.Second
	for i, want := range []time.Duration{0, 1, 2, 4, 5} {
		if got := w.fails(time.Second).Truncate(time.Second); got != want*time.Second {
			t.Errorf("after %d failures: %v", i+1, got)
		}
	}
	if got := w.fails(longRound); got > time.Second {
		t.Errorf("after a long round: %v", got)
	}
}

// A round that ran for long forgives the failures before.
func TestRestartWindow(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.policy.MaxRestarts, w.policy.Window = 1, time.Hour
	for i, c := range []struct {
		after time.Duration
		goes  bool
	}{{time.Minute, true}, {2 * time.Hour, true}, {time.Hour, true}, {time.Minute, false}} {
		if got := w.fails(c.after) >= 0; got != c.goes {
			t.Errorf("failure %d: it goes on: %v", i+1, got)
		}
	}
	w.all(3, "after 3 restarts")
}

// So does one that ended by order, and not one that was paused for long.
func TestRestartWindowOfARoundByOrder(t *testing.T) {
	for _, c := range []struct {
		order    string
		ran      time.Duration
		paused   time.Duration
		forgives bool
	}{{orderRestart, 2 * time.Hour, 0, true}, {orderRestart, time.Minute, 0, false}, {orderPause, 2 * time.Hour, 0, true}, {orderPause, time.Minute, 2 * time.Hour, false}} {
		w := newWorld(t, 2).begin()
		w.policy.MaxRestarts, w.policy.Window = 1, time.Hour
		if w.fails(time.Minute) < 0 {
			t.Fatal("the first failure ends the job")
		}
		w.now += c.ran
		w.feed(0, ordered{c.order})
		w.run()
		if c.order == orderPause {
			w.now += c.paused
			w.feed(0, ordered{orderResume})
			w.run()
		}
		if got := w.fails(time.Minute) >= 0; got != c.forgives {
			t.Errorf("%s after %v, and %v: it goes on: %v", c.order, c.ran, c.paused, got)
		}
	}
}

// And one that ended with the loss of the leader.
func TestRestartWindowOfALostLeader(t *testing.T) {
	for ran, forgiven := range map[time.Duration]int{2 * time.Hour: 2, time.Minute: 1} {
		w := elasticWorld(t, 3, 2, 3)
		w.policy.MaxRestarts, w.policy.Window = 1, time.Hour
		if w.fails(time.Minute) < 0 {
			t.Fatal("the first failure ends the job")
		}
		w.now += ran
		w.die(0)
		w.run()
		w.in(2, 1, 2)
		for _, n := range []int{1, 2} {
			if got := w.states[n].Free; got != forgiven {
				t.Errorf("after %v node %d counts %d free rounds of 2", ran, n, got)
			}
		}
	}
}

// Counts outlive the agent; what cannot be read is told, and harms nothing.
func TestLedger(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	l := ledger{dir, "a/../job", "me"}
	for range 2 {
		if got, err := l.read(); err != nil || got != (job.Tally{}) {
			t.Fatal(got, err)
		}
		want := job.Tally{Rounds: 3, Free: 1}
		if err := l.write(want); err != nil {
			t.Fatal(err)
		}
		if got, err := l.read(); err != nil || got != want {
			t.Fatal(got, err)
		}
		if other, err := (ledger{dir, "a/../job2", "me"}).read(); err != nil || other != (job.Tally{}) {
			t.Fatal(other, err)
		}
		if err := l.forget(); err != nil {
			t.Fatal(err)
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("it leaves %v", files)
	}
	for _, bad := range []string{"", "[]", `{"rounds":1,"free":2}`, `{"rounds":-1}`, `{"rounds":9223372036854775807}`, strings.Repeat(" ", 2000) + "{}"} {
		if err := os.WriteFile(l.path(), []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := l.read(); err == nil || !strings.Contains(err.Error(), l.path()) || got != (job.Tally{}) {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
	_ = os.Remove(l.path())
	if err := unix.Mkfifo(l.path(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.read(); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a FIFO: %v", err)
	}
	if got, err := (ledger{}).read(); err != nil || got != (job.Tally{}) || (ledger{}).write(got) != nil || (ledger{}).forget() != nil {
		t.Error("without a directory it does something")
	}
}

// A node on which rounds fail again and again is left out, be it the leader's, if there are enough others; it is told why.
func TestExclude(t *testing.T) {
	for bad := range 3 {
		w := elasticWorld(t, 3, 2, 3)
		w.policy.MaxRestarts, w.policy.Exclude, w.policy.Fewest, w.policy.Rest, w.policy.Yields = 9, 2, 2, time.Hour, true
		other := (bad + 1) % 3
		for _, n := range []int{bad, other, bad} {
			w.now += 2 * longRound
			rank := w.states[n].Self
			w.feed(n, failure(rank, 0, job.Exit{Code: 3}))
			w.aMinute()
		}
		w.in(3, slices.DeleteFunc([]int{0, 1, 2}, func(n int) bool { return n == bad })...)
		w.now += 2 * longRound
		w.feed(other, failure(w.states[other].Self, 0, job.Exit{Code: 3})) // its second, and it cannot be done without
		w.aMinute()
		if got := len(w.members); got != 2 {
			t.Errorf("they met %d times", got)
		}
		w.run()
		if v := w.states[bad].Verdict; v == nil || !strings.Contains(v.Sentence, "2 rounds failed on node") {
			t.Errorf("node %d ends with %+v", bad, v)
		}
	}
}

// aMinute lets one pass.
func (w *world) aMinute() {
	end := w.now + time.Minute
	w.later(-1, time.Minute, checked{})
	for w.now < end {
		w.step()
	}
}
