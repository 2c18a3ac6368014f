package events

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/test/golden"
)

// field finds the field of a line by its name in JSON.
func field(name string) (reflect.StructField, bool) {
	t := reflect.TypeFor[Line]()
	for i := range t.NumField() {
		if tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); tag == name {
			return t.Field(i), true
		}
	}
	return reflect.StructField{}, false
}

// Each field that the table names is one of a line, and each field of a line is named; no event or action has two rows.
func TestKinds(t *testing.T) {
	named, names := map[string]bool{}, map[string]bool{}
	for _, k := range Kinds {
		if names[k.Name] {
			t.Errorf("%s has two rows", k.Name)
		}
		names[k.Name] = true
		for _, name := range slices.Concat(Common, Shared, k.Always, k.Maybe) {
			if _, ok := field(name); !ok {
				t.Errorf("event %s: a line has no field %q", k.Name, name)
			}
			named[name] = true
		}
		for _, level := range k.Levels {
			if !slices.Contains([]string{Info, Warn, Error}, level) {
				t.Errorf("event %s: level %q", k.Name, level)
			}
		}
	}
	lines := reflect.TypeFor[Line]()
	for i := range lines.NumField() {
		if name, _, _ := strings.Cut(lines.Field(i).Tag.Get("json"), ","); !named[name] {
			t.Errorf("no event has the field %s", name)
		}
	}
	for i, a := range Actions {
		if slices.ContainsFunc(Actions[:i], func(b struct{ Name, Doc string }) bool { return a.Name == b.Name }) {
			t.Errorf("action %s has two rows", a.Name)
		}
	}
}

// docs/events.schema.json is the table as JSON Schema.
func TestGoldenSchema(t *testing.T) {
	properties := map[string]any{}
	lines := reflect.TypeFor[Line]()
	for i := range lines.NumField() {
		name, _, _ := strings.Cut(lines.Field(i).Tag.Get("json"), ",")
		properties[name] = typeOf(lines.Field(i).Type)
	}
	var names, actions []string
	for _, a := range Actions {
		actions = append(actions, a.Name)
	}
	var each []any
	for _, k := range Kinds {
		names = append(names, k.Name)
		holds := map[string]any{
			"properties":    map[string]any{"level": map[string]any{"enum": k.Levels}},
			"propertyNames": map[string]any{"enum": slices.Concat(Common, Shared, k.Always, k.Maybe)},
		}
		if k.Always != nil {
			holds["anyOf"] = []any{map[string]any{"required": k.Always}, map[string]any{"required": []string{"cut"}}}
		}
		each = append(each, map[string]any{"description": k.Doc, "if": map[string]any{"properties": map[string]any{"event": map[string]any{"const": k.Name}}}, "then": holds})
	}
	properties["schema"] = map[string]any{"const": Schema}
	properties["time"] = map[string]any{"type": "string", "format": "date-time"}
	properties["level"] = map[string]any{"enum": []string{Info, Warn, Error}}
	properties["event"] = map[string]any{"enum": names}
	properties["action"] = map[string]any{"enum": actions}
	schema := map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A line of muster run --events", "type": "object",
		"required": Common, "properties": properties, "additionalProperties": false, "allOf": each,
	}
	b, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.File(t, "../../docs/events.schema.json", string(b)+"\n")
}

func typeOf(t reflect.Type) any {
	switch t.Kind() {
	case reflect.Pointer:
		return typeOf(t.Elem())
	case reflect.Slice:
		return map[string]any{"type": "array", "items": typeOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	}
	return map[string]any{"type": "integer"}
}

// The tables of docs/events.md are made of ours.
func TestGoldenTables(t *testing.T) {
	const page = "../../docs/events.md"
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var events, actions strings.Builder
	events.WriteString("| event | level | | fields |\n|---|---|---|---|\n")
	for _, k := range Kinds {
		var fields []string
		for _, f := range k.Always {
			fields = append(fields, "`"+f+"`")
		}
		fields = append(fields, k.Maybe...)
		fmt.Fprintf(&events, "| `%s` | %s | %s | %s |\n", k.Name, strings.Join(k.Levels, ", "), k.Doc, strings.Join(fields, " "))
	}
	actions.WriteString("| action | |\n|---|---|\n")
	for _, a := range Actions {
		fmt.Fprintf(&actions, "| `%s` | %s |\n", a.Name, a.Doc)
	}
	text := string(b)
	for name, table := range map[string]string{"events": events.String(), "actions": actions.String()} {
		begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
		before, rest, ok := strings.Cut(text, begin)
		_, after, ok1 := strings.Cut(rest, end)
		if !ok || !ok1 {
			t.Fatalf("%s has no %s", page, begin)
		}
		text = before + begin + "\n" + table + "\n" + end + after
	}
	golden.File(t, page, text)
}

// What is no line is told apart, each by what is wrong with it.
func TestCheck(t *testing.T) {
	good := Line{Schema: Schema, Time: "2026-11-23T10:00:00.000000001Z", Level: Info, Event: SignalReceived, Message: "m", Run: "r", Seq: 1, Host: "h", Signal: "SIGTERM"}
	encode := func(change func(*Line)) []byte {
		l := good
		change(&l)
		return l.encode()
	}
	if err := Check(encode(func(*Line) {})); err != nil {
		t.Fatal(err)
	}
	for want, line := range map[string][]byte{
		`event "x" is in no table`:                  encode(func(l *Line) { l.Event = "x" }),
		`action "x" is in no table`:                 encode(func(l *Line) { l.Event, l.Action, l.Reason, l.Signal = Decision, "x", "y", "" }),
		"event signal-received has no field order":  encode(func(l *Line) { l.Order = "stop" }),
		"event signal-received lacks signal":        encode(func(l *Line) { l.Signal = "" }),
		`event signal-received has no level "error`: encode(func(l *Line) { l.Level = Error }),
		`time "yesterday"`:                          encode(func(l *Line) { l.Time = "yesterday" }),
		`seq 0`:                                     encode(func(l *Line) { l.Seq = 0 }),
		`unknown field "new"`:                       []byte(`{"new":1}` + "\n"),
		"more than one object":                      append(encode(func(*Line) {})[:len(encode(func(*Line) {}))-1], "{}\n"...),
		"no end within":                             []byte(`{}`),
	} {
		if err := Check(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

// What is left out of a text is said to be, and what goes to nowhere else is not.
func TestCut(t *testing.T) {
	for text, cut := range map[string]bool{"one": false, "one\n": false, "one\ntwo": true, "\ttab": false, strings.Repeat("x", maxText): false, strings.Repeat("x", maxText) + "\x1b": false, strings.Repeat("x", maxText+1): true} {
		l := Line{Message: text}
		if l.bound(); l.Cut != cut {
			t.Errorf("%.20q… of %d bytes: cut %v", text, len(text), l.Cut)
		}
	}
}

// However much there is to say, a line is one that a pipe takes whole, and valid.
func TestBound(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 1<<20), strings.Repeat("\x00\\\"", 1<<16), strings.Repeat("ä", 1<<16), strings.Repeat("\xff", 1<<16), "two\nlines"} {
		l := Line{
			Schema: Schema, Time: time.Now().UTC().Format(timeLayout), Level: Error, Event: WorkerEnded, Run: "r", Seq: 1, Host: text, Job: text, Message: text, OfHost: text,
			Rank: Number(0), Error: text, Exception: text, Hint: text, Evidence: slices.Repeat([]string{"oom"}, 100),
		}
		line := l.bound()
		if err := Check(line); err != nil {
			t.Errorf("%.20q: %v\n%s", text, err, line)
		}
		if strings.Count(string(line), "\n") != 1 {
			t.Errorf("%.20q: more than one line", text)
		}
	}
}

// Whatever is long, be it a name that another node says, the line is short.
func TestBoundOfAnything(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 1<<20), strings.Repeat("\x00\\\"", 1<<16)} {
		l := Line{Run: "r", Seq: 1, Evidence: slices.Repeat([]string{text}, 100)}
		for v, i := reflect.ValueOf(&l).Elem(), 0; i < v.NumField(); i++ {
			if f := v.Field(i); f.Kind() == reflect.String && f.String() == "" {
				f.SetString(text)
			}
		}
		l.Schema, l.Time = Schema, time.Now().UTC().Format(timeLayout)
		if line := l.bound(); len(line) > MaxLine || !json.Valid(line) {
			t.Errorf("%d bytes: %.200s", len(line), line)
		}
	}
}
