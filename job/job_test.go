package job

import (
	"cmp"
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

func TestExitStatus(t *testing.T) {
	for _, c := range []struct {
		exit Exit
		want int
		text string
	}{
		{Exit{}, 0, "exited with code 0"},
		{Exit{Code: 3}, 3, "exited with code 3"},
		{Exit{Code: 125}, 125, "exited with code 125"},
		{Exit{Code: 126}, 126, "exited with code 126"},
		{Exit{Code: 127}, 127, "exited with code 127"},
		{Exit{Code: 128}, 1, "exited with code 128"},
		{Exit{Code: 255}, 1, "exited with code 255"},
		{Exit{Code: 137}, 137, "exited with code 137 (a shell's word for SIGKILL)"},
		{Exit{Code: 139}, 122, "exited with code 139 (a shell's word for SIGSEGV)"},
		{Exit{Signal: 9}, 137, "was killed by SIGKILL, which muster did not send"},
		{Exit{Signal: 15}, 143, "was killed by SIGTERM, which muster did not send"},
		{Exit{Signal: 15, Sent: true}, 143, "was killed by SIGTERM from muster"},
		{Exit{Signal: 11, Core: true}, 122, "was killed by SIGSEGV (core dumped)"},
		{Exit{Signal: 6}, 119, "was killed by SIGABRT"},
		{Exit{Signal: 7}, 120, "was killed by SIGBUS"},
		{Exit{Signal: 10}, 124, "was killed by SIGUSR1"},
		{Exit{Signal: 35}, 124, "was killed by signal 35"},
		{Exit{Err: "the first process is gone"}, ExitInternal, "ended, nobody knows how: the first process is gone"},
		{Exit{Code: 127, Err: "no such program"}, 127, "could not be started: no such program"},
	} {
		if got := c.exit.Status(); got != c.want {
			t.Errorf("%+v: status %d, want %d", c.exit, got, c.want)
		}
		if got := c.exit.String(); got != c.text {
			t.Errorf("%+v: %q, want %q", c.exit, got, c.text)
		}
	}
}

// No code of a signal may be retried by an operator that retries from 128 on, but for those that mean preemption,
// and none may be one of the shell's or of Python's own.
func TestSignalCodesArePermanent(t *testing.T) {
	for s, code := range signalCodes {
		if s != 9 && s != 15 && (code < 114 || code > 124) {
			t.Errorf("%s has code %d, outside 114 to 124", SignalName(s), code)
		}
	}
}

func TestEnvOver(t *testing.T) {
	env := Env{{Name: "B", Value: "1"}, {Name: "C", Value: "2"}, {Name: "B", Value: "3"}}
	got := env.Over([]string{"A=a", "B=old", "Z=z=z", "B=older", "A=twice"})
	if want := []string{"A=a", "Z=z=z", "B=3", "C=2"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if v, ok := env.Lookup("B"); v != "3" || !ok {
		t.Errorf("Lookup(B) = %q, %v", v, ok)
	}
	if v, ok := env.Lookup("A"); v != "" || ok {
		t.Errorf("Lookup(A) = %q, %v", v, ok)
	}
}

func TestWorld(t *testing.T) {
	w := World{Members: []Member{
		{Node: Node{Incarnation: "x", Slots: 2}, First: 0},
		{Node: Node{Incarnation: "y", Slots: 3}, First: 2},
	}}
	if w.Size() != 5 {
		t.Errorf("size %d", w.Size())
	}
	if g, ok := w.GroupRank("y"); g != 1 || !ok {
		t.Errorf("group rank %d, %v", g, ok)
	}
	if _, ok := w.GroupRank("z"); ok {
		t.Error("z is no member")
	}
	for rank, want := range []int{0, 0, 1, 1, 1} {
		if g, ok := w.MemberOf(rank); g != want || !ok {
			t.Errorf("rank %d on member %d, %v", rank, g, ok)
		}
	}
	if _, ok := w.MemberOf(5); ok {
		t.Error("rank 5 does not exist")
	}
}

// What stands in a store is nobody's word for it: a time-out that no node can be given is none.
func TestNodeTimeout(t *testing.T) {
	for _, c := range []struct {
		rules         *Rules
		timeout, hold time.Duration
	}{
		{&Rules{}, NodeTimeout, 0},
		{&Rules{Timeout: time.Minute, Fence: 69 * time.Second}, time.Minute, 69 * time.Second},
		{&Rules{Timeout: time.Minute, Fence: time.Hour}, time.Minute, 80 * time.Second},
		{&Rules{Timeout: 1, Fence: time.Hour}, MinNodeTimeout, 25 * time.Second},
		{&Rules{Timeout: -1}, MinNodeTimeout, 0},
		{&Rules{Timeout: 1 << 62}, MaxNodeTimeout, 0},
	} {
		if timeout, hold := c.rules.NodeTimeout(), c.rules.Hold(); timeout != c.timeout || hold != c.hold {
			t.Errorf("%+v: %v, %v", c.rules, timeout, hold)
		}
	}
	if (*Rules)(nil).NodeTimeout() != NodeTimeout {
		t.Error("where nobody tells it is another")
	}
}

// Commands are told apart, also those whose words differ in where they end, and JSON keeps what tells them, also through a reader that knows floating point only. Who
// knows of no command does not say so.
func TestProgram(t *testing.T) {
	seen := map[uint64][]string{}
	for _, argv := range [][]string{{"train.py"}, {"train.py", "--lr", "1"}, {"train.py", "--lr 1"}, {"train.py--lr", "1"}, {"train.py", "--lr", "1", ""}} {
		p := ProgramOf(argv)
		if p == 0 || p >= Various || seen[p] != nil {
			t.Errorf("%q: %d, as of %q", argv, p, seen[p])
		}
		seen[p] = argv
	}
	if got := ProgramOf([]string{"train.py", "--lr", "1"}); got != 0xeed1f3d8cea1 {
		t.Errorf("of other releases it is another one: %#x", got)
	}
	for _, p := range []uint64{0, 1, Various - 1, Various} {
		var loose map[string]any
		var again Terms
		b, err := json.Marshal(Terms{Nodes: 2, Program: p})
		if err == nil {
			err = json.Unmarshal(b, &loose)
		}
		if _, told := loose["program"]; told != (p != 0) {
			t.Errorf("%s", b)
		}
		b, _ = json.Marshal(loose)
		if err := cmp.Or(err, json.Unmarshal(b, &again)); err != nil || again.Program != p {
			t.Errorf("%d became %d, %v: %s", p, again.Program, err, b)
		}
	}
}
