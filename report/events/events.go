// Package events writes what an agent sees and decides as lines of JSON, one for each event: for programs that collect logs.
//
// What an event is called, and what its line holds, stands in [Kinds] alone: docs/events.md and docs/events.schema.json are made from it.
package events

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/muster-run/muster/report"
)

// Schema names the form of a line. Events and fields may be added under it, and none will change its meaning.
const Schema = "muster.event/1"

// MaxLine is how long a line may be, its end included: what a pipe takes as one (PIPE_BUF in pipe(7)), however many agents write to it.
const MaxLine = 4096

// What people may want to be woken for.
const (
	Info  = "info"
	Warn  = "warn"
	Error = "error"
)

// A Line is one event. What all lines hold comes first.
type Line struct {
	Schema     string `json:"schema"`
	Time       string `json:"time"` // UTC, by this node's clock
	Level      string `json:"level"`
	Event      string `json:"event"`   // one of Kinds
	Message    string `json:"message"` // for people
	Job        string `json:"job,omitempty"`
	Run        string `json:"run"` // of this node's part in the job: the same for all agents that follow each other, another one when the node is started again
	Seq        uint64 `json:"seq"` // of the line in the run, from 1
	Host       string `json:"host"`
	Node       *int   `json:"node,omitempty"` // group rank of this node; none before the nodes have met
	Generation int    `json:"generation,omitempty"`
	Round      *int   `json:"round,omitempty"` // rounds before this one

	Action string         `json:"action,omitempty"`
	Reason string         `json:"reason,omitempty"`
	Policy map[string]any `json:"policy,omitempty"`

	OfNode    *int   `json:"of_node,omitempty"`
	OfHost    string `json:"of_host,omitempty"`
	Rank      *int   `json:"rank,omitempty"`
	LocalRank *int   `json:"local_rank,omitempty"`
	PID       int    `json:"pid,omitempty"`
	Ranks     []int  `json:"ranks,omitempty"`
	PIDs      []int  `json:"pids,omitempty"`

	ExitCode   *int     `json:"exit_code,omitempty"`
	Signal     string   `json:"signal,omitempty"`
	CoreDumped bool     `json:"core_dumped,omitempty"`
	ByMuster   bool     `json:"by_muster,omitempty"`
	Error      string   `json:"error,omitempty"`
	Exception  string   `json:"exception,omitempty"`
	Evidence   []string `json:"evidence,omitempty"`
	Step       uint64   `json:"step,omitempty"`

	Class   string `json:"class,omitempty"`
	Origin  string `json:"origin,omitempty"`
	Outcome string `json:"outcome,omitempty"`
	Hint    string `json:"hint,omitempty"`

	Platform  string `json:"platform,omitempty"`
	Framework string `json:"framework,omitempty"`
	Version   string `json:"version,omitempty"`
	Life      int    `json:"life,omitempty"`
	Slots     *int   `json:"slots,omitempty"`
	Nodes     int    `json:"nodes,omitempty"`
	WorldSize int    `json:"world_size,omitempty"`
	Endpoint  string `json:"endpoint,omitempty"`
	Order     string `json:"order,omitempty"`
	Refused   bool   `json:"refused,omitempty"`
	Certain   bool   `json:"certain,omitempty"`
	Result    string `json:"result,omitempty"`
	Kind      string `json:"kind,omitempty"`
	Machine   string `json:"machine,omitempty"`
	Op        string `json:"op,omitempty"`
	Number    uint64 `json:"number,omitempty"`
	Group     string `json:"group,omitempty"`
	Waiting   int    `json:"waiting,omitempty"`
	False     bool   `json:"false_alarm,omitempty"`
	Dropped   uint64 `json:"dropped,omitempty"`

	After  *float64 `json:"after_seconds,omitempty"`
	Within *float64 `json:"within_seconds,omitempty"`
	Quiet  *float64 `json:"quiet_seconds,omitempty"`
	Limit  *float64 `json:"limit_seconds,omitempty"`
	Waited *float64 `json:"waited_seconds,omitempty"`
	Meet   *float64 `json:"meet_seconds,omitempty"`
	Load   *float64 `json:"load_seconds,omitempty"`
	Redo   *float64 `json:"redo_seconds,omitempty"`
	Train  *float64 `json:"train_seconds,omitempty"`
	Detect *float64 `json:"detect_seconds,omitempty"`
	Stop   *float64 `json:"stop_seconds,omitempty"`
	Wall   *float64 `json:"wall_seconds,omitempty"`

	Cut bool `json:"cut,omitempty"` // it was too long, or had several lines
}

// Seconds is a length of time as lines have it.
func Seconds(d time.Duration) *float64 {
	s := d.Round(time.Microsecond).Seconds()
	return &s
}

// Number is a number that may be 0.
func Number(n int) *int { return &n }

// timeLayout sorts as text, too.
const timeLayout = "2006-01-02T15:04:05.000000000Z07:00"

// Most of what a line holds of each text. What a worker printed may be anything.
const (
	maxText  = 1200
	maxShort = 300
	maxName  = 64
	maxList  = 64
)

// bound cuts what may be long, to a line of at most MaxLine bytes.
func (l *Line) bound() []byte {
	cut := func(text *string, most int) {
		first, _, more := strings.Cut(strings.TrimSpace(*text), "\n")
		l.Cut = l.Cut || more || len(report.Plain(first)) > most
		*text = report.Line(*text, most)
	}
	for _, s := range []*string{&l.Job, &l.Host, &l.OfHost, &l.Error, &l.Exception, &l.Hint, &l.Version, &l.Endpoint, &l.Machine, &l.Op, &l.Group, &l.Kind, &l.Platform} {
		cut(s, maxShort)
	}
	for _, s := range []*string{&l.Event, &l.Level, &l.Action, &l.Order, &l.Class, &l.Origin, &l.Outcome, &l.Signal, &l.Framework, &l.Result} { // names, which other nodes say, too
		cut(s, maxName)
	}
	for _, list := range []*[]int{&l.Ranks, &l.PIDs} {
		if len(*list) > maxList {
			*list, l.Cut = (*list)[:maxList], true
		}
	}
	if len(l.Evidence) > 8 {
		l.Evidence, l.Cut = l.Evidence[:8], true
	}
	l.Evidence = slices.Clone(l.Evidence)
	for i := range l.Evidence {
		cut(&l.Evidence[i], maxName)
	}
	for most := maxText; ; most /= 2 {
		cut(&l.Message, most)
		cut(&l.Reason, most)
		line := l.encode()
		if len(line) <= MaxLine {
			return line
		}
		if most == 0 { // no text is left: whatever it is, it is not told
			*l = Line{Schema: l.Schema, Time: l.Time, Level: l.Level, Event: l.Event, Run: l.Run, Seq: l.Seq, Message: "too long", Cut: true}
			return l.encode()
		}
		l.Cut = true
		if most < maxShort { // control characters and the like take six bytes each
			l.PIDs, l.Ranks, l.Evidence, l.Error, l.Exception, l.Hint = nil, nil, nil, "", "", ""
		}
		if most < 8 {
			l.Policy, l.Job, l.Host, l.OfHost, l.Endpoint, l.Op, l.Group = nil, "", "", "", "", "", ""
		}
	}
}

// encode is the line with its end.
func (l *Line) encode() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(l); err != nil {
		panic("events: " + err.Error()) // plain values
	}
	return b.Bytes()
}
