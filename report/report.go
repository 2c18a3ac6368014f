// Package report renders how a job stands and how it ended: for people, and for programs.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/job"
)

// Schema names the form of a verdict; docs/verdict.md describes it. The number grows when a field changes its meaning,
// not when one is added.
const Schema = "muster.verdict/1"

// An Ending is how a job ended, as one of its nodes tells it.
type Ending struct {
	job.Verdict
	Job    string   // its id; "" when it ended before it had one
	Host   string   // this node's name
	Node   int      // this node's group rank; -1 when there was no world
	Nodes  []string // names of the world's nodes; none when there was no world
	World  int      // workers in the world
	Ranks  []job.Ended
	Stalls []Stall // of a job that was only observed

	Stragglers []job.Straggler // of the last round, as far as this node knows
	Spent      job.Account     // where the job's time went, as this node knows it
	Before     []string        // what was found of this machine that may stop or slow a job
	During     []string        // what broke of machines during it

	Began   time.Time // of this agent
	Ended   time.Time
	Version string // of the muster binary
}

// verdict is the file's form.
type verdict struct {
	Schema       string    `json:"schema"`
	Outcome      string    `json:"outcome"`
	ExitCode     int       `json:"exit_code"`
	Origin       string    `json:"origin,omitempty"`
	Class        string    `json:"class"`
	Message      string    `json:"message,omitempty"`
	Hint         string    `json:"hint,omitempty"`
	First        *failure  `json:"first,omitempty"`
	Hang         *job.Hang `json:"hang,omitempty"`
	Consequences []failure `json:"consequences,omitempty"`
	Rounds       []round   `json:"rounds,omitempty"`
	Ranks        []rank    `json:"ranks,omitempty"`
	Stalls       []stall   `json:"standstills,omitempty"`

	Spent      *job.Account    `json:"ledger,omitempty"`
	Stragglers []job.Straggler `json:"stragglers,omitempty"`
	Before     []string        `json:"preflight,omitempty"`
	During     []string        `json:"health,omitempty"`

	Job       string `json:"job,omitempty"`
	Node      *int   `json:"node,omitempty"`
	Host      string `json:"host,omitempty"`
	Nodes     int    `json:"nodes,omitempty"`
	WorldSize int    `json:"world_size,omitempty"`
	Began     string `json:"began_at,omitempty"`
	Ended     string `json:"ended_at,omitempty"`
	Version   string `json:"muster,omitempty"`
}

// A Stall is a time in which no rank advanced.
type Stall struct {
	At      time.Time // when it began
	Stage   string    // the worst that was said of it: suspect, slow, hung
	Message string    // in words
	Hang    job.Hang
	Round   int
	Over    time.Duration // how long it was; 0: it ended with the round, or with the job
	False   bool          // it was called a hang, and was none
}

// stall is that in the file.
type stall struct {
	At      string   `json:"at"`
	Stage   string   `json:"stage"`
	Message string   `json:"message"`
	Hang    job.Hang `json:"hang"`
	Round   int      `json:"round"`
	Over    float64  `json:"over_after_seconds,omitempty"`
	False   bool     `json:"false_alarm,omitempty"`
}

// rank is one worker and how it ended.
type rank struct {
	Rank      int    `json:"rank"`
	LocalRank int    `json:"local_rank"`
	Node      int    `json:"node"`
	Host      string `json:"host,omitempty"`
	PID       int    `json:"pid,omitempty"`
	ExitCode  *int   `json:"exit_code,omitempty"`
	Signal    string `json:"signal,omitempty"`
	ByMuster  bool   `json:"by_muster,omitempty"`
	Error     string `json:"error,omitempty"`
}

// failure is a worker that ended badly.
type failure struct {
	rank
	Core      bool           `json:"core_dumped,omitempty"`
	Exception string         `json:"exception,omitempty"`
	Evidence  []job.Evidence `json:"evidence,omitempty"`
	Tail      []string       `json:"tail,omitempty"`
	At        string         `json:"at,omitempty"`
}

type round struct {
	Round   int      `json:"round"`
	Message string   `json:"message"`
	First   *failure `json:"first,omitempty"`
}

// Outcome is the coarsest word: what became of the job.
func Outcome(v job.Verdict) string {
	switch {
	case v.OK():
		return "succeeded"
	case v.Class == job.Preempted:
		return "stopped"
	}
	return "failed"
}

// JSON is the ending in the form of docs/verdict.md.
func (e Ending) JSON() []byte {
	v := short(e.Verdict)
	v.Message, v.First, v.Hang = e.Sentence, whole(e.First), e.Hang
	for _, f := range e.Consequences {
		v.Consequences = append(v.Consequences, *whole(&f))
	}
	for _, r := range e.Rounds {
		v.Rounds = append(v.Rounds, round{r.Number, r.Message, whole(r.First)})
	}
	for _, s := range e.Stalls {
		v.Stalls = append(v.Stalls, stall{stamp(s.At), s.Stage, s.Message, s.Hang, s.Round, s.Over.Seconds(), s.False})
	}
	v.Ranks, v.Stragglers, v.Before, v.During = e.ranks(), e.Stragglers, e.Before, e.During
	if len(e.Nodes) > 0 {
		v.Node = &e.Node
	}
	if len(e.Spent.Laps) > 0 {
		v.Spent = &e.Spent
	}
	v.Job, v.Host, v.Nodes, v.WorldSize, v.Version = e.Job, e.Host, len(e.Nodes), e.World, e.Version
	v.Began, v.Ended = stamp(e.Began), stamp(e.Ended)
	data, _ := json.MarshalIndent(v, "", "  ") // plain values: cannot fail
	return append(data, '\n')
}

// ranks are the workers of the last round in their order.
func (e Ending) ranks() (all []rank) {
	for _, w := range e.Ranks {
		host := ""
		if w.Group >= 0 && w.Group < len(e.Nodes) { // another agent may have said it
			host = e.Nodes[w.Group]
		}
		all = append(all, one(w.Rank, w.LocalRank, w.Group, host, w.PID, w.Exit))
	}
	slices.SortFunc(all, func(a, b rank) int { return a.Rank - b.Rank })
	return all
}

// short is what fits into last words, without the sentence.
func short(v job.Verdict) verdict {
	return verdict{Schema: Schema, Outcome: Outcome(v), ExitCode: v.Code, Origin: v.Origin, Class: v.Class, Hint: v.Hint, First: brief(v.First)}
}

// brief is a failure without what the sentence says.
func brief(f *job.Failure) *failure {
	if f == nil {
		return nil
	}
	b := *whole(f)
	b.Tail, b.Exception, b.Evidence, b.Error = nil, "", nil, ""
	return &b
}

func whole(f *job.Failure) *failure {
	if f == nil {
		return nil
	}
	return &failure{
		rank: one(f.Rank, f.LocalRank, f.Group, f.Node, f.PID, f.Exit), Core: f.Exit.Core,
		Exception: f.Exception, Evidence: f.Evidence, Tail: f.Tail, At: stamp(f.At),
	}
}

func one(global, local, node int, host string, pid int, e job.Exit) rank {
	r := rank{Rank: global, LocalRank: local, Node: node, Host: host, PID: pid, ByMuster: e.Sent, Error: e.Err}
	if e.Signal != 0 {
		r.Signal = e.SignalName()
	} else {
		r.ExitCode = &e.Code
	}
	return r
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// Write leaves the ending in a file.
func (e Ending) Write(path string) error {
	if err := write(path, e.JSON()); err != nil {
		return fmt.Errorf("write the verdict: %w", err)
	}
	return nil
}

// write leaves data in a file, whole or not at all, also where the nodes of a job share the file system. What is no file is
// written to as it is, and so is our own output under whatever name: /dev/stderr is often a file, and has lines before these.
func write(path string, data []byte) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if info, err := os.Stat(path); err == nil {
		if own := ours(info); own != nil {
			_, err := own.Write(data)
			return err
		}
		if !info.Mode().IsRegular() {
			return pour(path, data)
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err // what is there of it is none
	}
	return os.Rename(f.Name(), path)
}

// pourTime is for how long somebody may read nothing of what he is to be told at the end of a job.
const pourTime = 5 * time.Second

// pour writes data to what is no file. A pipe without a reader must not keep the job from its end.
func pour(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("nobody reads %s: %w", path, err)
	}
	if err != nil {
		return err
	}
	_ = f.SetWriteDeadline(time.Now().Add(pourTime)) // what knows of none never waits
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// ours is our own output, if that is where a file leads; nil: it is none of ours.
func ours(info os.FileInfo) *os.File {
	for _, f := range []*os.File{os.Stderr, os.Stdout} {
		if own, err := f.Stat(); err == nil && os.SameFile(own, info) {
			return f
		}
	}
	return nil
}

// maxWords is what Kubernetes leaves one of twelve containers of a pod for a termination log, in bytes.
const maxWords = 1024

// Words is a verdict as last words: the sentence, the same for machines, and the sentence again, because kubelet
// keeps the end of what is too long.
func Words(v job.Verdict) string {
	s := short(v)
	data, _ := json.Marshal(s) // plain values: cannot fail
	sentence := Line(v.Sentence, max((maxWords-len(data)-16)/2, 0))
	for tail, n := unexplained(v.First), 1; n <= len(tail); n++ {
		s.First.Tail = tail[len(tail)-n:]
		longer, _ := json.Marshal(s)
		if len(longer)+2*len(sentence)+2 > maxWords {
			break
		}
		data = longer
	}
	return fmt.Sprintf("%s\n%s\n%s", sentence, data, sentence)
}

// mostOfLine is how much of a line of output last words have, in bytes.
const mostOfLine = 256

// unexplained are the last lines of a failure of which nobody knows why: one of them may say it.
func unexplained(f *job.Failure) (lines []string) {
	if f == nil || f.Exception != "" && !f.Caught && !f.InThread || len(f.Evidence) > 0 {
		return nil
	}
	for _, line := range f.Tail {
		lines = append(lines, Line(line, mostOfLine))
	}
	return lines
}
