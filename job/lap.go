package job

import (
	"encoding/json"
	"math"
	"time"
)

// A Lap is where the time of one round went on one node, from the end of the round before, or of the agent's begin, until nothing was left
// of its workers. Its parts follow each other and sum up to all of it.
type Lap struct {
	Round int    // rounds before it
	World int    // workers; 0: there was no world
	Of    string // World.Mark; "": there was none, or who wrote this is of a release without it

	Meet   time.Duration // until the workers were started: nodes met, or waited for each other's end
	Load   time.Duration // until the world did its first step; 0 too when nobody tells of steps (Blind)
	Redo   time.Duration // until it had done what the round before had done already; 0 too when nobody tells which step that is
	Train  time.Duration // until something went wrong, or the round's end
	Detect time.Duration // until that was known, and all were told to stop
	Stop   time.Duration // until nothing was left of the workers

	Blind bool   // the workers tell nothing of their progress: what they needed to load counts as Train
	Over  bool   // it has ended
	Class string // of what ended it: a verdict's class, or one below; "": it goes on, or this node was not told
	Why   string // in words
	Node  *int   // to blame, by group rank; nil: none is
	Host  string // its name
	Rank  *int   // to blame; nil: none is
}

// What ends a round beside the classes of verdicts.
const (
	Ordered = "ordered" // by muster ctl
	Grown   = "grown"   // nodes waited to join, and were let in
)

// Parts names a lap's parts, in their order.
var Parts = []string{"meet", "load", "redo", "train", "detect", "stop"}

// Parts are the lap's, in the order of the names.
func (l Lap) Parts() []time.Duration {
	return []time.Duration{l.Meet, l.Load, l.Redo, l.Train, l.Detect, l.Stop}
}

// Wall is how long it took.
func (l Lap) Wall() time.Duration {
	var sum time.Duration
	for _, p := range l.Parts() {
		sum += p
	}
	return sum
}

// lap is its form in JSON: durations are seconds.
type lap struct {
	Round  int     `json:"round"`
	World  int     `json:"world_size"`
	Of     string  `json:"world,omitempty"`
	Meet   float64 `json:"meet_seconds"`
	Load   float64 `json:"load_seconds"`
	Redo   float64 `json:"redo_seconds"`
	Train  float64 `json:"train_seconds"`
	Detect float64 `json:"detect_seconds"`
	Stop   float64 `json:"stop_seconds"`
	Blind  bool    `json:"steps_unknown,omitempty"`
	Over   bool    `json:"over,omitempty"`
	Class  string  `json:"class,omitempty"`
	Why    string  `json:"why,omitempty"`
	Node   *int    `json:"node,omitempty"`
	Host   string  `json:"host,omitempty"`
	Rank   *int    `json:"rank,omitempty"`
}

// MarshalJSON has durations in seconds.
func (l Lap) MarshalJSON() ([]byte, error) {
	s := time.Duration.Seconds
	return json.Marshal(lap{l.Round, l.World, l.Of, s(l.Meet), s(l.Load), s(l.Redo), s(l.Train), s(l.Detect), s(l.Stop), l.Blind, l.Over, l.Class, l.Why, l.Node, l.Host, l.Rank})
}

// UnmarshalJSON reads what MarshalJSON wrote, to the nanosecond for a hundred days.
func (l *Lap) UnmarshalJSON(data []byte) error {
	var in lap
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	d := func(s float64) time.Duration {
		return time.Duration(math.Round(max(0, min(s, maxSeconds)) * float64(time.Second)))
	}
	*l = Lap{in.Round, max(0, min(in.World, maxWorld)), in.Of, d(in.Meet), d(in.Load), d(in.Redo), d(in.Train), d(in.Detect), d(in.Stop), in.Blind, in.Over, in.Class, in.Why, in.Node, in.Host, in.Rank}
	return nil
}

// maxSeconds is a year: no job is longer, and sums of them have room.
const maxSeconds = 365 * 24 * 60 * 60

// maxWorld is more workers than any world has.
const maxWorld = 1 << 24
