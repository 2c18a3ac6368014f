package launcher

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/report/events"
)

// lines are those of one judgement, each as the schema has it: none of what people are told is missing, or said twice; no deed that has an event is
// without one, and each end is decided once.
func (w *world) lines(n int, was state, event any, is state, todo []any) []events.Line {
	w.t.Helper()
	p := w.flags(n)
	all := linesOf(p, was, event, is, todo)
	fails := func(format string, args ...any) {
		w.t.Helper()
		w.t.Fatalf("node %d, %T %s: "+format+"\n%s", append(append([]any{n, event, inJSON(event)}, args...), described(all))...)
	}
	said := map[string]int{}
	ends := 0
	for i, l := range all {
		said[l.Message]++
		if slices.ContainsFunc(all[:i], func(before events.Line) bool { return reflect.DeepEqual(l, before) }) {
			fails("%s %s is told twice", l.Event, l.Action)
		}
		if l.Event == events.Decision && (l.Action == events.End || l.Action == events.Leave) {
			ends++
		}
		if why := checked1(l); why != nil {
			fails("%v", why)
		}
		if l.Event == events.Note {
			fails("a sentence belongs to no event: %q", l.Message)
		}
	}
	wanted := 0
	if is.Verdict != nil && was.Verdict == nil || is.Ended && !was.Ended && is.Verdict == nil {
		wanted = 1
	}
	if ends != wanted {
		fails("%d ends are decided, want %d", ends, wanted)
	}
	for _, deed := range todo {
		if s, ok := deed.(say); ok && said[s.Text] == 0 && (was.Order == "" || is.Order != was.Order) {
			fails("%q is in no line", s.Text)
		}
		name := reflect.TypeOf(deed).Name()
		which, known := deedEvents[name]
		if !known {
			fails("deed %s has no event", name)
		}
		if _, again := event.(resumed); again || strings.HasPrefix(which, "-") {
			continue
		}
		if !slices.ContainsFunc(all, func(l events.Line) bool {
			return strings.HasPrefix(which+" ", l.Event+" ") && (l.Action == "" || strings.Contains(which+" ", " "+l.Action+" "))
		}) {
			fails("deed %s is in no line", name)
		}
	}
	return all
}

// checkedLines is how many lines of a kind were held against the schema: after so many of it, no more are, for random worlds have millions.
var checkedLines = struct {
	sync.Mutex
	lines map[[3]string]int
}{lines: map[[3]string]int{}}

const enoughLines = 300

// checked1 holds a line against the schema.
func checked1(l events.Line) error {
	checkedLines.Lock()
	kind := [3]string{l.Event, l.Action, l.Class}
	checkedLines.lines[kind]++
	n := checkedLines.lines[kind]
	checkedLines.Unlock()
	if n > enoughLines {
		return nil
	}
	l.Schema, l.Time, l.Run, l.Seq, l.Host = events.Schema, "2026-11-23T10:00:00.000000000Z", "r", 1, "h"
	switch l.Event { // what the run loop adds
	case events.WorkersStarted:
		l.Ranks = []int{0}
	case events.AgentTookOver:
		l.Life, l.PID, l.Version = 1, 1, "v"
	}
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return events.Check(append(b, '\n'))
}

func described(all []events.Line) string {
	var b strings.Builder
	for _, l := range all {
		b.WriteString(l.Event + " " + l.Action + ": " + l.Message + "\n")
	}
	return b.String()
}

// Whatever the run loop can be told to do has an event, or a reason for none.
func TestDeedsHaveEvents(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "round.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	deeds := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if d, ok := n.(*ast.FuncDecl); ok && d.Name.Name != "do" {
			return false
		}
		if c, ok := n.(*ast.CaseClause); ok {
			for _, kind := range c.List {
				deeds[kind.(*ast.Ident).Name] = true
			}
		}
		return true
	})
	if len(deeds) < 14 {
		t.Fatalf("round.do knows %v", deeds)
	}
	for name := range deeds {
		if deedEvents[name] == "" {
			t.Errorf("deed %s has no event", name)
		}
	}
	for name := range deedEvents {
		if !deeds[name] {
			t.Errorf("%s is no deed", name)
		}
	}
}

// A journal that is judged again has the lines that were written.
func TestLinesOfReplay(t *testing.T) {
	w := newWorld(t, 3)
	w.policy.MaxRestarts = 1
	w.begin()
	w.feed(1, failure(1, 0, job.Exit{Code: 3}))
	w.run()
	w.feed(2, failure(2, 0, job.Exit{Signal: 11}))
	w.run()
	w.replays()
	if got := w.told[0]; !slices.ContainsFunc(got, func(l events.Line) bool { return l.Action == events.Restart }) || !slices.ContainsFunc(got, func(l events.Line) bool { return l.Action == events.End }) {
		t.Errorf("node 0 tells\n%s", described(got))
	}
}

// decisions are those of a node, as they are told, without what each node does to its own workers.
func (w *world) decisions(n int) string {
	var all []string
	for _, l := range w.told[n] {
		if l.Event == events.Decision && l.Action != events.Stop {
			all = append(all, fmt.Sprintf("%s because %s, after %v of %v", l.Action, l.Reason, l.Policy["restarts"], l.Policy["max_restarts"]))
		}
		if l.Event == events.Decision && strings.Contains(l.Reason, "what other nodes said") {
			w.t.Errorf("node %d: why is that?\n%s", n, described([]events.Line{l}))
		}
	}
	return strings.Join(all, "\n")
}

// A member tells each decision of the leader's once, as that does, with its reason and policy.
func TestLinesOfMembers(t *testing.T) {
	w := newWorld(t, 2)
	w.policy.MaxRestarts = 1
	w.begin()
	for _, order := range []string{orderRestart, orderPause, orderResume} {
		w.feed(1, ordered{order})
		w.run()
	}
	w.feed(1, failure(1, 0, job.Exit{Code: 3}))
	w.run()
	w.feed(1, failure(1, 0, job.Exit{Code: 3}))
	w.run()
	w.all(3)
	const orders = "restart because node 1 (host-1) was told to restart by muster ctl, after <nil> of <nil>\npause because node 1 (host-1) was told to pause by muster ctl, after <nil> of <nil>\n" +
		"resume because muster ctl, after <nil> of <nil>\n"
	leader, member := w.decisions(0), w.decisions(1)
	if ends, is := strings.CutPrefix(leader, orders); leader != member || !is || strings.Count(ends, "\n") != 1 || strings.Count(ends, "exited with code 3") != 2 || strings.Count(ends, "after 1 of 1") != 2 {
		t.Errorf("the leader decides\n%s\nand the member\n%s", leader, member)
	}
}

// Who is told to end while the nodes meet has not failed to meet.
func TestLinesOfNoMeeting(t *testing.T) {
	for _, c := range []struct{ class, level string }{{job.Preempted, events.Warn}, {job.Late, events.Error}} {
		was := state{Nodes: []*node{{Name: "a"}}, Meeting: true}
		event := unmet{Verdict: job.Verdict{Code: 143, Class: c.class, Sentence: "no"}}
		is, todo := decide(testPolicy, was, 0, event)
		all := linesOf(testPolicy, was, event, is, todo)
		if failed := slices.ContainsFunc(all, func(l events.Line) bool { return l.Event == events.RendezvousFailed }); failed != (c.level == events.Error) {
			t.Errorf("%s:\n%s", c.class, described(all))
		}
	}
}

// An agent that takes over tells what is not written of its journal, once: also the rest of what was written in part, and how many lines are gone
// with events that the journal has no room for.
func TestTellRest(t *testing.T) {
	w := newWorld(t, 2)
	w.policy.MaxRestarts = 1
	w.begin()
	w.feed(1, failure(1, 0, job.Exit{Code: 3}))
	w.run()
	w.finish()
	var written []int // lines of each event
	r := &round{journal: journal{head: journalHead{State: newWorld(t, 2).states[0]}}}
	for _, e := range w.kept[0].entries {
		was := r.journal.head.State
		event, _ := e.value()
		is, todo := decide(w.policy, was, e.At, event)
		r.journal.head.State = is
		written = append(written, len(linesOf(w.policy, was, event, is, todo)))
	}
	all := w.told[0]
	for _, most := range []int{0, 600} {
		whole := journal{head: journalHead{Policy: w.policy, State: newWorld(t, 2).states[0]}, most: most}
		for i, e := range w.kept[0].entries {
			event, _ := e.value()
			whole.add(e.At, event)
			whole.tells(written[i])
		}
		if whole.told != len(all) || (whole.head.First > 0) != (most > 0) || len(whole.entries) < 2 {
			t.Fatalf("%d events from %d on with %d lines prove nothing", len(whole.entries), whole.head.First, whole.told)
		}
		for told := range len(all) + 1 {
			file := filepath.Join(t.TempDir(), "events")
			log := events.Open(events.Options{Where: file, Host: "h", Mark: events.Mark{Run: "r", Seq: uint64(told + 1), Told: told}})
			log.Begin("j")
			next := &round{c: Config{events: log}, policy: w.policy, journal: whole}
			next.journal.told = 0
			next.tellRest()
			log.Close(time.Minute)
			text, _ := os.ReadFile(file)
			seq, dropped := told, 0
			for line := range bytes.Lines(text) {
				var l events.Line
				if err := json.Unmarshal(line, &l); err != nil {
					t.Fatal(err)
				}
				if l.Event == events.LinesDropped {
					dropped, seq = int(l.Dropped), seq+int(l.Dropped)
					told += dropped
					continue // it is one more line
				}
				if want := all[told]; l.Event != want.Event || l.Message != want.Message || l.Action != want.Action {
					t.Fatalf("line %d is %s %q, not %s %q", told, l.Event, l.Message, want.Event, want.Message)
				}
				told++
			}
			if told != len(all) || (dropped > 0) != (seq-dropped < whole.head.Told) || next.journal.told != len(all) {
				t.Errorf("%d lines are told of %d, %d are told as dropped of %d", told, len(all), dropped, whole.head.Told)
			}
		}
	}
}

// So does one that comes when all has ended but what was to be told of it.
func TestTellLast(t *testing.T) {
	w := newWorld(t, 1).begin()
	w.finish()
	kept, all := w.kept[0], w.told[0]
	blob := func(v any) []byte { b, _ := json.Marshal(v); return b }
	old := &pid1.Legacy{Blobs: map[string][]byte{keptState: blob(moment{State: w.states[0], Events: kept.next(), Told: len(all)}), keptJournal: blob(kept.head)}}
	for i, e := range kept.entries {
		old.Blobs[keptEvent+strconv.Itoa(kept.head.First+i)] = blob(e)
	}
	file := filepath.Join(t.TempDir(), "events")
	c := Config{events: events.Open(events.Options{Where: file, Host: "h", Mark: events.Mark{Run: "r", Seq: 3, Told: 2}})}
	c.events.Begin("j")
	c.tellLast(&heritage{Policy: w.policy, World: &job.World{Members: []job.Member{{Node: job.Node{Slots: 2}}}}}, old)
	c.events.Close(time.Minute)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	told := 2
	for line := range bytes.Lines(text) {
		var l events.Line
		if err := json.Unmarshal(line, &l); err != nil || l.Message != all[told].Message || l.Seq != uint64(told+1) {
			t.Errorf("%v: line %d is %d %q, not %q", err, told+1, l.Seq, l.Message, all[told].Message)
		}
		told++
	}
	if told != len(all) || !slices.ContainsFunc(all[2:], func(l events.Line) bool { return l.Action == events.End }) {
		t.Errorf("%d of %d lines are told", told, len(all))
	}
}

// again are the lines of a journal.
func (j *journal) again(t *testing.T) (all []events.Line) {
	t.Helper()
	s := j.head.State
	for _, e := range j.entries {
		event, err := e.value()
		if err != nil {
			t.Fatal(err)
		}
		is, todo := decide(j.head.Policy, s, e.At, event)
		all = append(all, linesOf(j.head.Policy, s, event, is, todo)...)
		s = is
	}
	return all
}
