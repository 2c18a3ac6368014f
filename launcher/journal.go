package launcher

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/muster-run/muster/job"
)

// A journal keeps every event that the judgement saw, the latest half a megabyte of them at least, so that it can be repeated elsewhere.
// What is dropped is not lost for that: the state that it led to is kept.
type journal struct {
	head    journalHead
	most    int // bytes of entries; 0: maxJournal
	entries []journalEntry
	bytes   int
	told    int // lines of the event log that all events so far came to
}

// journalForm names the form of the file.
const journalForm = "muster.journal/1"

const maxJournal = 1 << 20

// journalHead is the first line of the file.
type journalHead struct {
	Form    string `json:"form"`
	Version string `json:"muster"`
	Job     string `json:"job"`
	Host    string `json:"host"`
	Policy  policy `json:"policy"`
	State   state  `json:"state"`          // before the first entry
	First   int    `json:"first"`          // its number, which is also how many were dropped
	Told    int    `json:"told,omitempty"` // lines of the event log that those came to
}

// journalEntry is each other line: an event and its time since the run loop began.
type journalEntry struct {
	At    time.Duration   `json:"at"`
	Kind  string          `json:"kind"`
	Event json.RawMessage `json:"event"`
	lines int             // of the event log that it came to
}

// add keeps an event. Of those that there is no room for, only what they led to is kept.
func (j *journal) add(at time.Duration, event any) {
	data, err := json.Marshal(event)
	if err != nil {
		panic(fmt.Sprintf("journal: %T: %v", event, err)) // events are plain values
	}
	j.entries = append(j.entries, journalEntry{At: at, Kind: reflect.TypeOf(event).Name(), Event: data})
	most := cmp.Or(j.most, maxJournal)
	if j.bytes += len(data); j.bytes <= most {
		return
	}
	for j.bytes > most/2 && len(j.entries) > 1 { // at once, for the state before them is large in a large world
		j.head.State, _, err = j.entries[0].decide(j.head.Policy, j.head.State)
		if err != nil {
			panic("journal: " + err.Error()) // we wrote it
		}
		j.bytes -= len(j.entries[0].Event)
		j.head.Told += j.entries[0].lines
		j.entries = j.entries[1:]
		j.head.First++
	}
}

// tells notes how many lines of the event log the last event came to, and returns how many there were before it.
func (j *journal) tells(lines int) (before int) {
	before = j.told
	j.told += lines
	j.entries[len(j.entries)-1].lines = lines
	return before
}

// next is the number of the event that comes next.
func (j *journal) next() int { return j.head.First + len(j.entries) }

// decide repeats the judgement of one event.
func (e journalEntry) decide(p policy, s state) (state, []any, error) {
	event, err := e.value()
	if err != nil {
		return s, nil, err
	}
	s, todo := decide(p, s, e.At, event)
	return s, todo, nil
}

// eventTypes is every event by its kind.
var eventTypes = sync.OnceValue(func() map[string]reflect.Type {
	kinds := map[string]reflect.Type{}
	for _, e := range []any{
		opened{}, begun{}, unbegun{}, finished{}, emptied{}, noticed{}, departed{}, lost{}, told{}, signalled{}, resumed{}, renewed{}, settled{}, expired{}, broken{}, ordered{},
		met{}, unmet{}, queued{}, away{}, lapsed{}, woken{}, stalled{}, lagging{}, ailing{}, clashing{}, reached{},
	} {
		kinds[reflect.TypeOf(e).Name()] = reflect.TypeOf(e)
	}
	return kinds
})

func (e journalEntry) value() (any, error) {
	t, known := eventTypes()[e.Kind]
	if !known {
		return nil, fmt.Errorf("event %q is not known to this version", e.Kind)
	}
	v := reflect.New(t)
	if err := json.Unmarshal(e.Event, v.Interface()); err != nil {
		return nil, fmt.Errorf("event %q: %w", e.Kind, err)
	}
	return v.Elem().Interface(), nil
}

// lines is the journal as lines of JSON.
func (j *journal) lines() []byte {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	_ = lines.Encode(j.head) // plain values into memory: cannot fail
	for _, e := range j.entries {
		_ = lines.Encode(e)
	}
	return b.Bytes()
}

// write leaves the journal in a file.
func (j *journal) write(path string) error {
	if err := os.WriteFile(path, j.lines(), 0o600); err != nil { // it holds lines of the workers' output
		return fmt.Errorf("write the journal: %w", err)
	}
	return nil
}

// Replay repeats the judgement of a journal, or makes another one: change may alter what the user had decided. It writes
// each event and what followed from it, and returns the verdict; nil when there is none. Where another judgement parts
// from the one that was made it ends, for the later events are what followed from that one.
func Replay(r io.Reader, w io.Writer, change func(*Limits)) (*job.Verdict, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 2*maxJournal)
	var head journalHead
	if err := firstLine(lines, &head); err != nil {
		return nil, err
	}
	was := replayed{policy: head.Policy, state: head.State}
	change((*Limits)(&head.Policy))
	is := replayed{policy: head.Policy, state: head.State}
	fmt.Fprintf(w, "job %s, node %d (%s), muster %s\n", head.Job, head.State.Self, head.Host, head.Version)
	for n := 2; lines.Scan(); n++ {
		var e journalEntry
		err := json.Unmarshal(lines.Bytes(), &e)
		if err == nil {
			err = cmp.Or(was.see(e), is.see(e))
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		is.tell(w, e)
		if !slices.EqualFunc(was.todo, is.todo, sameKind) {
			fmt.Fprintf(w, "%14sfrom here on all would have been otherwise; what was done then:\n", "")
			was.tell(w, e)
			break
		}
	}
	return is.state.Verdict, lines.Err()
}

// Limits are what Replay can change of a run's policy.
type Limits policy

func firstLine(lines *bufio.Scanner, head *journalHead) error {
	if !lines.Scan() {
		return fmt.Errorf("no journal: its first line cannot be read: %w", cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
	}
	if err := json.Unmarshal(lines.Bytes(), head); err != nil || head.Form != journalForm {
		return fmt.Errorf("line 1: this is no journal of the form %s", journalForm)
	}
	if self := head.State.Self; self < 0 || len(head.State.Nodes) > 0 && self >= len(head.State.Nodes) {
		return fmt.Errorf("line 1: node %d of %d", self, len(head.State.Nodes))
	}
	if i := slices.Index(head.State.Nodes, nil); i >= 0 {
		return fmt.Errorf("line 1: node %d is none", i)
	}
	return nil
}

// replayed is a judgement that is repeated.
type replayed struct {
	policy policy
	state  state
	before *job.Verdict // before the last event
	todo   []any        // that followed from it
}

// sameKind reports whether two deeds differ in their values at most, such as how long workers may take to stop.
func sameKind(a, b any) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }

// see repeats one event. A file may say what no run loop would.
func (r *replayed) see(e journalEntry) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("event %q does not fit the state: %v", e.Kind, p)
		}
	}()
	r.before = r.state.Verdict
	r.state, r.todo, err = e.decide(r.policy, r.state)
	return err
}

// tell writes the event and what followed from it.
func (r *replayed) tell(w io.Writer, e journalEntry) {
	fmt.Fprintf(w, "%10.3f s  %s %s\n", e.At.Seconds(), e.Kind, clipped(e.Event))
	for _, deed := range r.todo {
		fmt.Fprintf(w, "%14s%s %s\n", "", reflect.TypeOf(deed).Name(), inJSON(deed))
	}
	if v := r.state.Verdict; r.before == nil && v != nil {
		fmt.Fprintf(w, "%14s==> %s; exit %d\n", "", v.Sentence, v.Code)
	}
}

func inJSON(v any) string {
	data, _ := json.Marshal(v)
	return clipped(data)
}

// clipped keeps a line readable.
func clipped(data []byte) string {
	const most = 300
	if len(data) > most {
		return string(data[:most]) + "…"
	}
	return string(data)
}
