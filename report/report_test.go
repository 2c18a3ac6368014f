package report

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/test/golden"
)

func TestWords(t *testing.T) {
	long := strings.Repeat("é", 2000)
	for _, v := range []job.Verdict{
		{Code: 1, Class: job.Failed, Sentence: "short"},
		{Code: 1, Class: job.Failed, Sentence: long},
		{Code: 127, Class: job.NotStarted, Sentence: long, First: &job.Failure{Node: "ann", Exception: long, Tail: []string{long}, Exit: job.Exit{Code: 127, Err: long}}},
	} {
		words := Words(v)
		lines := strings.Split(words, "\n")
		if len(words) > maxWords || len(lines) != 3 || lines[0] != lines[2] || len(lines[0]) < 5 || !strings.HasPrefix(lines[1], `{"schema":"muster.verdict/1","outcome":"failed","exit_code":`) {
			t.Errorf("%d bytes: %q", len(words), words)
		}
	}
}

// Where nobody knows why a worker failed, last words have its last lines, as many as fit.
func TestWordsOfTheWorker(t *testing.T) {
	f := job.Failure{Node: "ann", Exit: job.Exit{Code: 1}, Tail: []string{strings.Repeat("long", 200), "epoch 3", "no such dataset: \x1b[31mc4"}}
	why := "rank 3 on ann exited with code 1"
	for want, v := range map[string]job.Verdict{
		`"tail":["` + strings.Repeat("long", 63) + `l…","epoch 3","no such dataset: [31mc4"]`: {Sentence: why},
		`"tail":["epoch 3","no such dataset: [31mc4"]`:                                        {Sentence: why + strings.Repeat(", as others", 25)},
		`"exit_code":1}}`: {Sentence: why + strings.Repeat(", as others", 100)},
	} {
		v.Code, v.Class, v.First = 1, job.Failed, &f
		if words := Words(v); len(words) > maxWords || !strings.Contains(words, want) {
			t.Errorf("%d bytes: %s, want %s", len(words), words, want)
		}
	}
	f.Exception = "ValueError: no such dataset"
	if words := Words(job.Verdict{Code: 1, Class: job.Failed, Sentence: why, First: &f}); strings.Contains(words, "tail") {
		t.Errorf("the exception is known: %s", words)
	}
	f.InThread = true
	if words := Words(job.Verdict{Code: 1, Class: job.Failed, Sentence: why, First: &f}); !strings.Contains(words, "tail") {
		t.Errorf("of a thread alone: %s", words)
	}
}

func TestPlain(t *testing.T) {
	if got := Plain("a\rb\x1b[31mc\nd\te\u0085é"); got != "ab[31mc d eé" {
		t.Errorf("%q", got)
	}
}

// The form of a verdict is a promise: docs/verdict.md describes it.
func TestJSON(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	first := job.Failure{
		Node: "ann", Group: 1, Rank: 3, LocalRank: 1, PID: 4711, Exit: job.Exit{Code: 1}, At: at, Ago: time.Second,
		Exception: "ValueError: bad seed", Tail: []string{"Traceback (most recent call last):", "ValueError: bad seed"},
		Evidence: []job.Evidence{{Kind: "disk-full", Text: "/tmp is full"}},
	}
	echo := job.Failure{Node: "bob", Exit: job.Exit{Signal: 6, Core: true}, PID: 12, At: at.Add(time.Second)}
	e := Ending{
		Verdict: job.Verdict{
			Code: 1, Origin: "worker", Class: job.Failed, Sentence: "rank 3 on ann failed", Hint: "free some space",
			First: &first, Consequences: []job.Failure{echo},
			Rounds: []job.Round{{Number: 0, Message: "rank 0 was killed", First: &job.Failure{Node: "bob", Exit: job.Exit{Signal: 9}}}},
		},
		Job: "j1", Host: "ann", Node: 1, Nodes: []string{"bob", "ann"}, World: 4, Began: at, Ended: at.Add(time.Minute), Version: "v1",
		Ranks: []job.Ended{{Rank: 3, LocalRank: 1, Group: 1, PID: 4711, Exit: job.Exit{Code: 1}}, {Rank: 2, Group: 1, PID: 7, Exit: job.Exit{Signal: 15, Sent: true}}},
	}
	golden.File(t, "testdata/failed.json", e.JSON())
	golden.File(t, "testdata/succeeded.json", Ending{Verdict: job.Verdict{Class: job.Succeeded, Sentence: "all well"}, Node: -1}.JSON())
}

func TestOutcome(t *testing.T) {
	for want, v := range map[string]job.Verdict{
		"succeeded": {Class: job.Succeeded}, "stopped": {Code: 143, Class: job.Preempted}, "failed": {Code: 1, Class: job.Failed},
	} {
		if got := Outcome(v); got != want {
			t.Errorf("%+v is %s, want %s", v, got, want)
		}
	}
}

// A file is whole or as it was; what is no file is written to as it is.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	e := Ending{Verdict: job.Verdict{Code: 3, Class: job.Failed}}
	path := filepath.Join(dir, "verdict.json")
	for range 2 {
		if err := e.Write(path); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(e.JSON()) {
		t.Errorf("%s, %v", got, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	if err := e.Write("/dev/null"); err != nil {
		t.Error(err)
	}
	if err := e.Write(filepath.Join(dir, "no", "such", "directory")); err == nil {
		t.Error("a directory that is not there is no error")
	}
}

// A disk that takes a part of a verdict keeps the one before, and no part of this.
func TestWriteInPart(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=32k"); err != nil {
		t.Fatalf("a small disk to fill: %v (this test needs to be root)", err)
	}
	defer unix.Unmount(dir, 0)
	path := filepath.Join(dir, "verdict.json")
	before := Ending{Verdict: job.Verdict{Code: 3, Class: job.Failed}}
	if err := before.Write(path); err != nil {
		t.Fatal(err)
	}
	large := Ending{Verdict: job.Verdict{Sentence: strings.Repeat("x", 64<<10)}}
	if err := large.Write(path); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(before.JSON()) {
		t.Errorf("%.200s, %v", got, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// A pipe is written to while somebody reads it, and waited for no longer.
func TestWriteToPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	large := Ending{Verdict: job.Verdict{Sentence: strings.Repeat("x", 1<<20)}}
	if err := large.Write(path); !errors.Is(err, unix.ENXIO) {
		t.Errorf("nobody reads it: %v", err)
	}
	reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := large.Write(path); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("who opened it reads nothing: %v", err)
	}
	reader.Close()
	if reader, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	got := make([]byte, len(large.JSON()))
	read := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(reader, got)
		read <- err
	}()
	if err := large.Write(path); err != nil {
		t.Error(err)
	}
	if err := <-read; err != nil || string(got) != string(large.JSON()) {
		t.Errorf("%v: %.200s", err, got)
	}
}

// The form of a status is a promise: docs/control.md describes it. What people read is short, also of a large world.
func TestStatus(t *testing.T) {
	at, node := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 1
	s := Status{
		Schema: StatusSchema, Job: "j1", Host: "ann", PID: 12, Version: "v1", Began: at, Phase: Stopping, Since: at.Add(time.Minute),
		Waits: "the workers of node 0 (bob) to end", Node: &node, World: 4, Round: 2, MaxRestarts: 3,
		Nodes: []StatusNode{{Name: "bob"}, {Name: "ann", Done: true, Clear: true}},
		Workers: []StatusWorker{
			{Rank: 2, PID: 20, State: "running", CPU: 61.25, Memory: 3 << 20},
			{Rank: 3, LocalRank: 1, PID: 21, State: "exited with code 0", Exit: &job.Exit{}},
		},
		Causes: []string{"rank 0 on bob exited with code 3: \x1b[31mred"}, Rounds: []StatusRound{{0, "rank 1 on bob was killed"}, {1, "told to restart"}},
		HTTP: "http://ann:8080/", Ranks: []StatusRank{{Rank: 0, State: RankFailed, Note: "exited with code 3"}, {Rank: 1, State: RankStops, Step: 7}, {Rank: 2, Node: 1, State: RankStopped}, {Rank: 3, Node: 1, State: RankStopped}},
		Stragglers: []job.Straggler{{Rank: 1, Node: "bob", Lost: 0.6, Last: 0.957, Step: 118 * time.Millisecond, Waits: 0.031, Others: 0.62}},
	}
	golden.File(t, "testdata/status.json", s.JSON())
	s.Spent = &job.Account{Laps: []job.Lap{{Detect: time.Millisecond, Stop: 120 * time.Millisecond}, {Round: 1, Meet: 11 * time.Millisecond, Load: 6 * time.Second, Train: time.Hour}}}
	text := s.Text(at.Add(2 * time.Minute))
	text += "----\n" + Status{Job: "j2", Phase: Meeting, Since: at, Waits: "1 of 2 nodes here"}.Text(at.Add(time.Second))
	big := Status{Job: "j3", Phase: Running, Since: at, Node: &node, World: 2000, Nodes: make([]StatusNode, 1000)}
	big.Nodes[1].Name, big.Nodes[7] = "me", StatusNode{Name: "seven", Gone: true}
	for rank := range 2000 {
		big.Ranks = append(big.Ranks, StatusRank{Rank: rank, Node: rank / 2, State: RankBlocked})
	}
	big.Ranks[77].State = RankHung
	golden.File(t, "testdata/status.txt", []byte(text+"----\n"+big.Text(at)))
}

// The form of torchrun's error file is torch's promise.
func TestErrorFile(t *testing.T) {
	at := time.Unix(1700000000, 0)
	path := filepath.Join(t.TempDir(), "error.json")
	for want, e := range map[string]Ending{
		`{"message":{"message":"ValueError: x","errorCode":3,"extraInfo":{"py_callstack":"Traceback:\nValueError: x","timestamp":"1700000000"}}}` + "\n": {
			Verdict: job.Verdict{Code: 3, Sentence: "rank 0 failed", First: &job.Failure{Exception: "ValueError: x", Tail: []string{"Traceback:", "ValueError: x"}, At: at}}},
		`{"message":{"message":"node 1 was lost","errorCode":138,"extraInfo":{"py_callstack":"","timestamp":"1700000000"}}}` + "\n": {
			Verdict: job.Verdict{Code: 138, Sentence: "node 1 was lost"}, Ended: at},
	} {
		if err := e.WriteError(path); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if err := (Ending{}).WriteError("/no/such/dir/x"); err == nil || !strings.Contains(err.Error(), "write the error file") {
		t.Error(err)
	}
}
