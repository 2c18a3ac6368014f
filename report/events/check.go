package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// Check reports what of a line is not as docs/events.schema.json has it; nil: all is.
func Check(line []byte) error {
	if len(line) > MaxLine || !bytes.HasSuffix(line, []byte("\n")) {
		return fmt.Errorf("%d bytes, and no end within %d", len(line), MaxLine)
	}
	var l Line
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one object")
	}
	i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Name == l.Event })
	if i < 0 {
		return fmt.Errorf("event %q is in no table", l.Event)
	}
	k := Kinds[i]
	var has map[string]json.RawMessage
	if err := json.Unmarshal(line, &has); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if !slices.Contains(slices.Concat(Common, Shared, k.Always, k.Maybe), name) {
			return fmt.Errorf("event %s has no field %s", k.Name, name)
		}
	}
	for _, name := range slices.Concat(Common, k.Always) {
		if has[name] == nil && !(l.Cut && name != "event") {
			return fmt.Errorf("event %s lacks %s", k.Name, name)
		}
	}
	known := func(a struct{ Name, Doc string }) bool { return a.Name == l.Action }
	switch at, err := time.Parse(time.RFC3339Nano, l.Time); {
	case err != nil || at.Location() != time.UTC:
		return fmt.Errorf("time %q", l.Time)
	case l.Schema != Schema || l.Seq == 0 || l.Message == "":
		return fmt.Errorf("schema %q, seq %d, message %q", l.Schema, l.Seq, l.Message)
	case !slices.Contains(k.Levels, l.Level):
		return fmt.Errorf("event %s has no level %q", k.Name, l.Level)
	case l.Action != "" && !slices.ContainsFunc(Actions, known):
		return fmt.Errorf("action %q is in no table", l.Action)
	}
	return nil
}
