package launcher

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
)

// replays asserts that every node's journal leads to the verdict that the node had.
func (w *world) replays() {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "journal")
	for n, s := range w.states {
		if err := w.kept[n].write(path); err != nil {
			w.t.Fatal(err)
		}
		v, err := replayFile(path, func(*Limits) {})
		if got, want := inJSON(v), inJSON(s.Verdict); err != nil || got != want {
			w.t.Fatalf("node %d, replayed: %v, %v; want %v", n, got, err, want)
		}
		if got, want := inJSON(w.kept[n].again(w.t)), inJSON(w.told[n]); w.own == nil && w.kept[n].head.First == 0 && got != want {
			w.t.Fatalf("node %d, replayed, has the lines\n%s\nand had\n%s", n, got, want)
		}
	}
}

func replayFile(path string, change func(*Limits)) (*job.Verdict, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Replay(f, io.Discard, change)
}

// What another policy would have done: with a restart, the same failure is no end.
func TestReplayOtherwise(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.feed(1, failure(1, 0, job.Exit{Code: 3}))
	w.run()
	w.all(3)
	path := filepath.Join(t.TempDir(), "journal")
	if err := w.kept[0].write(path); err != nil {
		t.Fatal(err)
	}
	v, err := replayFile(path, func(l *Limits) { l.MaxRestarts = 1 })
	if err != nil || v != nil {
		t.Errorf("with a restart: %v, %v", v, err)
	}
}

// What one agent kept another one reads, up to the event that its state has seen; what is not whole it does without.
func TestInheritJournal(t *testing.T) {
	w := newWorld(t, 2).begin()
	w.kept[0].most = 300
	w.feed(1, failure(1, 0, job.Exit{Code: 3}))
	w.run()
	kept := w.kept[0]
	head, _ := json.Marshal(kept.head)
	old := &pid1.Legacy{Blobs: map[string][]byte{keptJournal: head}}
	for i, e := range kept.entries {
		old.Blobs[keptEvent+strconv.Itoa(kept.head.First+i)], _ = json.Marshal(e)
	}
	if kept.head.First == 0 || len(kept.entries) < 2 {
		t.Fatalf("%d events from %d on prove nothing", len(kept.entries), kept.head.First)
	}
	for _, c := range []struct {
		until int
		whole bool
		want  int
	}{{kept.next(), true, len(kept.entries)}, {kept.next() - 1, true, len(kept.entries) - 1}, {kept.next() + 1, false, 0}, {0, false, 0}} {
		j := journal{most: kept.most}
		if ok := j.inherit(old, c.until); ok != c.whole || len(j.entries) != c.want {
			t.Errorf("until %d: %v, %d events", c.until, ok, len(j.entries))
		}
		if c.until == kept.next() && !reflect.DeepEqual(j.lines(), kept.lines()) {
			t.Errorf("%s\nis not\n%s", j.lines(), kept.lines())
		}
	}
	old.Blobs[keptEvent+strconv.Itoa(kept.head.First)] = []byte(`{"kind":"news of tomorrow"}`)
	if (&journal{}).inherit(old, kept.next()) {
		t.Error("an event of another version is inherited")
	}
}

// A journal that is full is folded to half at once: what it was before is the state of a whole world.
func TestFullJournal(t *testing.T) {
	j, folds := journal{most: 2000, head: journalHead{State: state{Nodes: []*node{{}}}}}, 0
	for first := 0; j.next() < 5000; first = j.head.First {
		j.add(0, woken{})
		if j.head.First != first {
			folds++
		}
		if j.bytes > j.most || j.head.First > 0 && j.bytes < j.most/2-20 {
			t.Fatalf("event %d: %d bytes are kept of %d", j.next(), j.bytes, j.most)
		}
	}
	if folds == 0 || folds > 10 {
		t.Errorf("folded %d times", folds)
	}
}

// A file that is no journal, or a broken one, is named with its line.
func TestReplayOfNonsense(t *testing.T) {
	head, _ := json.Marshal(journalHead{Form: journalForm, State: state{Nodes: []*node{{}}}})
	for text, want := range map[string]string{
		"":                         "no journal: its first line cannot be read: unexpected EOF",
		"{}\n":                     "line 1: this is no journal",
		string(head[:len(head)-1]): "line 1: this is no journal",
		string(head) + "\n{}\n":    `line 2: event "" is not known`,
		string(head) + "\nx\n":     "line 2: invalid character",
		string(head) + "\n" + `{"kind":"departed","event":{"Node":7}}`: `line 2: event "departed" does not fit the state`,
		strings.Replace(string(head), `"self":0`, `"self":9`, 1):       "line 1: node 9 of 1",
		strings.Replace(string(head), `[{"name":""}]`, `[null]`, 1):    "line 1: node 0 is none",
	} {
		_, err := Replay(strings.NewReader(text), io.Discard, func(*Limits) {})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Every event keeps its value in a journal; a new one without a line in eventTypes is found here.
func TestEventsKeepTheirValues(t *testing.T) {
	f := &job.Failure{Rank: 3, Exit: job.Exit{Signal: 9}}
	for _, e := range []any{
		opened{start{Port: 7, Round: 1}}, begun{2}, unbegun{*f}, finished{job.Ended{Rank: 1}, f}, emptied{}, noticed{1, "x", 3}, departed{2},
		lost{Node: 1, Why: "y", Certain: true}, told{1, news{Kind: "k", Failure: f}}, signalled{15}, settled{}, expired{}, broken{job.Verdict{Code: 3}}, ordered{orderPause}, resumed{}, renewed{1}, lapsed{}, met{Nodes: []string{"a"}}, unmet{}, queued{1}, woken{},
	} {
		var j journal
		j.add(1, e)
		got, err := j.entries[0].value()
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%T: %+v, %v; want %+v", e, got, err, e)
		}
	}
}
