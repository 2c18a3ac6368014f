package report

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/test/golden"
)

// lost is a job of 8 workers that a hang interrupted, on node 1, and then a node that was lost; the next world had 4.
func lost(began time.Time) Ending {
	one, three := 1, 3
	return Ending{
		Verdict: job.Verdict{Class: job.Succeeded, Sentence: "all well"}, Job: "j1", Host: "bob", Nodes: []string{"bob"}, World: 4, Began: began, Ended: began.Add(time.Hour), Version: "v1",
		Spent: job.Account{Laps: []job.Lap{
			{World: 8, Meet: 2 * time.Second, Load: 58 * time.Second, Train: 20 * time.Minute, Detect: 40 * time.Second, Stop: 5 * time.Second, Over: true, Class: job.Hung, Why: "hang: rank 3 has not entered all_reduce #7", Node: &one, Host: "ann", Rank: &three},
			{Round: 1, World: 8, Meet: time.Second, Load: time.Minute, Redo: 2 * time.Minute, Train: 10 * time.Minute, Detect: 10 * time.Second, Stop: 20 * time.Second, Over: true, Class: job.Lost, Why: "node 1 (ann) was lost", Node: &one, Host: "ann"},
			{Round: 2, World: 4, Meet: 30 * time.Second, Load: time.Minute, Train: 1454 * time.Second, Blind: true, Over: true, Class: job.Succeeded},
		}},
	}
}

// The form of a ledger is a promise: docs/ledger.md describes it. Of a run one account counts, and what is no verdict does not.
func TestLedger(t *testing.T) {
	dir := t.TempDir()
	began := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	other := lost(began.Add(time.Second)) // as another node has it
	other.Node, other.Nodes = 1, []string{"bob", "ann"}
	again := lost(began.Add(2 * time.Hour))
	again.Code, again.Class = 138, job.Lost
	for name, data := range map[string][]byte{
		"a/1.json": other.JSON(), "a/2.json": lost(began).JSON(), "b/later": again.JSON(), "b/other.json": []byte(`{"x": 1}`), "b/empty": nil,
		"b/no-world": Ending{Verdict: job.Verdict{Code: 66}, Node: -1}.JSON(), "c/torn.json": lost(began).JSON()[:600],
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	l, err := ReadLedger(".")
	if err != nil {
		t.Fatal(err)
	}
	sums(t, l)
	t.Chdir(wd)
	golden.File(t, "testdata/ledger.json", l.JSON())
	golden.File(t, "testdata/ledger.txt", []byte(l.Text()))
	if _, err := ReadLedger(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that is not there is read")
	}
}

var wd, _ = os.Getwd()

// sums checks that receipts and useful time are all of the time.
func sums(t *testing.T, l Ledger) {
	t.Helper()
	for _, r := range l.Runs {
		sum := r.Costs.Useful
		for _, c := range r.Receipts {
			sum += c.Ranks
		}
		if r.Costs.Wall == 0 || math.Abs(sum-r.Costs.Wall) > 1e-6*max(1, r.Costs.Wall) {
			t.Errorf("%s: receipts and useful time are %f, and all of the time %f", r.File, sum, r.Costs.Wall)
		}
	}
}

// Of a job of many rounds the receipts, the first of which is for all rounds that are not told of one by one, are all that was lost.
func TestEarlier(t *testing.T) {
	e := lost(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	for _, l := range e.Spent.Laps {
		e.Spent.Older = e.Spent.Older.Add(l)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "v"), e.JSON(), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := ReadLedger(dir)
	if err != nil || len(l.Runs) != 1 || len(l.Runs[0].Receipts) != 3 {
		t.Fatalf("%+v, %v", l, err)
	}
	sums(t, l)
	first := l.Runs[0].Receipts[0]
	if first.Cause != job.Earlier || first.Detect != 50 || first.Stop != 25 || first.Meet != 33+2 || first.Load != 178+58 || first.Redo != 120 || first.Why != "3 rounds before those that are told of" {
		t.Errorf("%+v", first)
	}
}

// Two jobs of one name at the same time are two runs, each with what its own nodes know; and what is of one run is so whatever the clocks of its nodes say.
func TestSameName(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	of := func(mark string, node int, began time.Time) Ending {
		e := lost(began)
		e.Node, e.Nodes, e.Spent.Laps = node, []string{"bob", "ann"}, slices.Clone(e.Spent.Laps)
		for i := range e.Spent.Laps {
			e.Spent.Laps[i].Of = mark + string(rune('0'+i))
			if node == 0 && i == 0 {
				e.Spent.Laps[i].Class, e.Spent.Laps[i].Why = "", ""
			} else if i == 0 {
				e.Spent.Laps[i].Why = mark
			}
		}
		return e
	}
	dir := t.TempDir()
	for name, e := range map[string]Ending{"1": of("a", 0, began), "2": of("b", 0, began), "3": of("b", 1, began), "4": of("a", 1, began.Add(24*time.Hour))} {
		if err := os.WriteFile(filepath.Join(dir, name), e.JSON(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := ReadLedger(dir)
	if err != nil || len(l.Runs) != 2 {
		t.Fatalf("%d runs, %v: %+v", len(l.Runs), err, l.Runs)
	}
	for i, mark := range []string{"a", "b"} {
		if r := l.Runs[i]; r.Node != 0 || len(r.Receipts) != 3 || r.Receipts[1].Why != mark {
			t.Errorf("of job %s: %+v", mark, r)
		}
	}
}

// A node that was told to leave knows nothing of what came then: who stayed does, and who came later does not know what was before.
func TestWhoStayed(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	stayed := lost(began)
	left := lost(began)
	left.Class, left.Code, left.Spent.Laps, left.Ended = job.Preempted, 143, slices.Clone(left.Spent.Laps[:1]), began.Add(20*time.Minute)
	stayed.Spent.Laps[0].Class, stayed.Spent.Laps[0].Why, stayed.Spent.Laps[0].Node, stayed.Spent.Laps[0].Rank = "", "", nil, nil // it was not told
	again := lost(began.Add(30 * time.Minute))                                                                                    // the same machine, in the last round
	again.Spent.Laps, again.Ended = again.Spent.Laps[2:], began.Add(time.Hour)
	for _, order := range [][]Ending{{left, again, stayed}, {stayed, left, again}, {again, stayed, left}} {
		dir := t.TempDir()
		for i, e := range order {
			if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i))), e.JSON(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		l, err := ReadLedger(dir)
		if err != nil || len(l.Runs) != 1 || l.Runs[0].Outcome != "succeeded" || len(l.Runs[0].Receipts) != 3 || l.Total.Wall != l.Runs[0].Costs.Wall {
			t.Fatalf("%+v, %v", l, err)
		}
		sums(t, l)
		if c := l.Runs[0].Receipts[1]; c.Cause != "hung" || c.blamed() != "rank 3 on node 1 (ann)" || l.Total.Ends["hung"] != 1 || l.Total.Ends[""] != 0 {
			t.Errorf("why the first round ended is known to who left: %+v, %v", c, l.Total.Ends)
		}
	}
}

// A clock that is set during a run, forth or back, makes no other run of it, and hides none that follows.
func TestClockSet(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	one, other, next := lost(began), lost(began.Add(time.Second)), lost(began.Add(2*time.Hour))
	one.Ended, other.Ended, other.Node = began.Add(24*time.Hour), began.Add(-time.Hour), 1
	dir := t.TempDir()
	for i, e := range []Ending{one, other, next} {
		if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i))), e.JSON(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if l, err := ReadLedger(dir); err != nil || len(l.Runs) != 2 || l.Runs[0].File != filepath.Join(dir, "a") || l.Runs[1].File != filepath.Join(dir, "c") {
		t.Errorf("%+v, %v", l, err)
	}
}

// Whatever is in a file that calls itself a verdict, the sums are numbers, and none of it reaches the terminal but text.
func TestForeignLedger(t *testing.T) {
	const begin = `{"schema":"muster.verdict/1","node":0,"began_at":"2026-01-02T03:04:05Z","ended_at":"2026-01-02T04:04:05Z","outcome":"\u001b]0;owned\u0007","job":"j","ledger":`
	for name, ledger := range map[string]string{
		"huge":     `{"older":{"rounds":1,"rank_seconds":{"train":1e308,"meet":1e308,"load":1e308},"seconds":{"meet":1e308}},"rounds":[{"world_size":2,"train_seconds":1}]}`,
		"negative": `{"older":{"rounds":-1,"rank_seconds":{"train":-9}},"rounds":[{"world_size":-2,"meet_seconds":-5,"train_seconds":1},{"world_size":1,"train_seconds":3}]}`,
		"unknown":  `{"older":{"rounds":1,"rank_seconds":{"train":1,"sleep":7}},"rounds":[{"world_size":9223372036854775807,"train_seconds":1e300,"class":"\u001b[2J"}]}`,
		"none":     `{"older":{"rounds":2,"rank_seconds":{"meet":4,"train":4}},"rounds":null}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "v.json")
			if err := os.WriteFile(path, []byte(begin+ledger+"}"), 0o644); err != nil {
				t.Fatal(err)
			}
			l, err := ReadLedger(path)
			if err != nil || len(l.Runs) != 1 || !json.Valid(l.JSON()) {
				t.Fatalf("%+v, %v, %s", l, err, l.JSON())
			}
			sums(t, l)
			lost := 0.0
			for _, spent := range l.Total.Lost {
				lost += spent
			}
			if c := l.Total; c.Useful < 0 || c.Ratio < 0 || c.Ratio > 1 || math.Abs(c.Useful+lost-c.Wall) > 1e-6*c.Wall {
				t.Errorf("%+v", c)
			}
			if strings.ContainsAny(l.Text(), "\x1b\x07") {
				t.Errorf("%q", l.Text())
			}
		})
	}
}

// A directory, and a file, may be named by a link; links within are not followed, and nothing waits for a pipe.
func TestLinkedLedger(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "volume")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(dir, 0o755))
	must(os.WriteFile(filepath.Join(dir, "v.json"), lost(time.Unix(0, 0)).JSON(), 0o644))
	must(os.Symlink("v.json", filepath.Join(dir, "latest.json")))
	must(os.Symlink("..", filepath.Join(dir, "up")))
	must(os.Symlink("volume", filepath.Join(top, "logs")))
	must(syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	for _, name := range []string{"volume", "logs", "logs/", "logs/v.json", "logs/latest.json"} {
		l, err := ReadLedger(filepath.Join(top, name))
		if err != nil || len(l.Runs) != 1 || len(l.Others) != 0 {
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
	if l, err := ReadLedger(filepath.Join(dir, "pipe")); err != nil || len(l.Runs) != 0 {
		t.Errorf("a pipe: %+v, %v", l, err)
	}
}
