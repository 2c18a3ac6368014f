package output

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"
)

// A Rhythm is what the output of a process tells of its life, so far.
type Rhythm struct {
	Bytes   uint64 // that it wrote
	Matches uint64 // lines that matched Lines.Progress
	Step    uint64 // the number in the last of them, where the expression has a group for it
}

// A rhythm is the Rhythm of one process, while its streams write it.
type rhythm struct {
	bytes, matches, step atomic.Uint64

	progress *regexp.Regexp // nil: lines are not looked at
	idle     atomic.Bool    // nor now
}

// An Expression is a regular expression of RE2's kind.
type Expression string

// maxExpression bounds its length, in bytes.
const maxExpression = 1 << 10

// Set takes an expression that does not match whatever is written.
func (e *Expression) Set(text string) error {
	re, err := regexp.Compile(text[:min(len(text), maxExpression)])
	switch {
	case len(text) > maxExpression:
		return fmt.Errorf("the expression has %d bytes, and may have %d", len(text), maxExpression)
	case err != nil:
		return fmt.Errorf("%w (https://github.com/google/re2/wiki/Syntax)", err)
	case re.MatchString(""):
		return fmt.Errorf("%q matches every line: it would tell of progress whatever is written", text)
	}
	*e = Expression(text)
	return nil
}

// String is empty: nothing is worth showing as a default.
func (e *Expression) String() string { return "" }

// read is the Rhythm so far. From now on lines are looked at if they are to be.
func (r *rhythm) read(look bool) Rhythm {
	r.idle.Store(!look)
	return Rhythm{r.bytes.Load(), r.matches.Load(), r.step.Load()}
}

const (
	lookLine = 4 << 10 // bytes of a line that are looked at
	lookRate = 1 << 20 // bytes a second, and at once
)

// A scanner looks through one stream for lines that tell of progress. It sees what has gone its way, so that it changes and delays
// nothing, and looks at so much in a second that it takes little of a processor: in a flood lines are missed.
type scanner struct {
	*rhythm
	line   []byte // its beginning, as far as it came
	missed bool   // the beginning was not looked at
	credit int    // bytes
	at     time.Time
}

// see takes the next bytes.
func (s *scanner) see(b []byte) {
	if s.rhythm == nil {
		return
	}
	s.bytes.Add(uint64(len(b)))
	if s.progress == nil {
		return
	}
	if s.earn(time.Now()); s.idle.Load() {
		s.credit = 0
	}
	for len(b) > 0 {
		some := b[:min(len(b), lookLine)]
		if s.credit < len(some) {
			s.line, s.missed = s.line[:0], true
			return
		}
		end := bytes.IndexAny(some, "\n\r") // of a bar each state is a line
		if end < 0 {
			s.hold(some)
			b = b[len(some):]
			continue
		}
		s.hold(some[:end])
		s.look()
		b = b[end+1:]
		s.credit--
	}
}

// hold keeps a part of a line.
func (s *scanner) hold(b []byte) {
	s.credit -= len(b)
	s.line = append(s.line, b[:min(len(b), lookLine-len(s.line))]...)
}

// earn adds what may be looked at since the last time.
func (s *scanner) earn(now time.Time) {
	passed := min(now.Sub(s.at), time.Second)
	s.credit, s.at = min(s.credit+int(passed.Seconds()*lookRate), lookRate), now
}

// look looks at a line that is complete.
func (s *scanner) look() {
	line, missed := s.line, s.missed
	s.line, s.missed = s.line[:0], false
	if missed {
		return
	}
	found := s.progress.FindSubmatch(line)
	if found == nil {
		return
	}
	s.matches.Add(1)
	if len(found) > 1 {
		if n, err := strconv.ParseUint(string(found[1]), 10, 62); err == nil {
			s.step.Store(n)
		}
	}
}
