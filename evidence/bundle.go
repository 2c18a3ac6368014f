package evidence

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/muster-run/muster/job"
)

// A Scene is what to gather evidence of: the workers of one node when something is wrong with their world.
type Scene struct {
	Root    string // of the file system, "/" outside tests
	Job     string
	Node    string
	Round   int
	At      time.Time
	Why     string    // a sentence
	Workers []Suspect // those that matter most first
	Given   []Given
}

// A Suspect is a worker, with what its agent knows of it already.
type Suspect struct {
	Beat   job.Beat
	Tree   []int    // processes that it started
	Stacks string   // what the hook wrote, or faulthandler
	Output []string // its last lines

	Recorder   string // what PyTorch's flight recorders hold, as JSON
	NoRecorder error  // why that is not known
}

// Given is evidence that others have gathered: an answer of NCCL's watch, counters of links, a dump of PyTorch's flight recorder.
type Given struct {
	Name, What string
	Text       string
	Path       string // of a file that has it, in place of Text
}

// A Bundle is the evidence of one node. It is a plain value; Write lays it out in files.
type Bundle struct {
	Job    string        `json:"job"`
	Node   string        `json:"node"`
	Round  int           `json:"round"`
	At     time.Time     `json:"at"`
	Why    string        `json:"why,omitempty"`
	Took   time.Duration `json:"took"` // to gather
	Ranks  []Whereabouts `json:"ranks,omitempty"`
	Pieces []Piece       `json:"pieces"`
}

// Whereabouts says which directory is which rank's, and where its Python code is, the telling line first.
type Whereabouts struct {
	Rank  int      `json:"rank"`
	Local int      `json:"local"`
	PID   int      `json:"pid"`
	Place []string `json:"place,omitempty"`
}

// A Piece is one text of a Bundle, and a file where that is written.
type Piece struct {
	Name    string        `json:"name"` // "rank-13/status"
	What    string        `json:"what,omitempty"`
	Text    string        `json:"text,omitempty"`
	Cut     int           `json:"cut,omitempty"`     // bytes that were left out, in the middle
	Missing string        `json:"missing,omitempty"` // why there is no text
	Took    time.Duration `json:"took,omitempty"`
}

const (
	gatherLimit = 5 * time.Second
	maxPiece    = 4 << 20  // bytes
	maxBundle   = 64 << 20 // bytes of all pieces
	maxPlace    = 12       // lines
)

// Gather looks at the scene for five seconds at the most. It reads no file that waits for a lock of the process it tells of, as its
// cmdline, environ and maps do; if one does not come all the same, because a driver or a file system is dead, it says so and goes on
// without it. The goroutine that waits for such a file is left behind; it ends with the wait.
func Gather(ctx context.Context, s Scene) Bundle {
	ctx, cancel := context.WithTimeout(ctx, gatherLimit)
	defer cancel()
	began := time.Now()
	b := Bundle{Job: s.Job, Node: s.Node, Round: s.Round, At: s.At, Why: s.Why}
	var groups []<-chan Piece
	all := s.sources()
	for _, sources := range all {
		groups = append(groups, readAll(ctx, sources))
	}
	for i, sources := range all {
		b.Pieces = append(b.Pieces, collect(ctx, sources, groups[i])...)
	}
	for _, w := range s.Workers {
		place := w.Beat.Stack
		if found := Place(Stacks(w.Stacks), maxPlace); found != nil {
			place = found
		}
		b.Ranks = append(b.Ranks, Whereabouts{w.Beat.Rank, w.Beat.Local, w.Beat.PID, place})
	}
	b.Took = time.Since(began)
	return b.bounded()
}

// A source is a piece that has not been read yet. That there is nothing is "".
type source struct {
	name, what string
	read       func() (string, error)
}

// readAll reads one source after the other, until ctx is done.
func readAll(ctx context.Context, sources []source) <-chan Piece {
	pieces := make(chan Piece, len(sources)) // so that nobody need listen any more
	go func() {
		for _, s := range sources {
			if ctx.Err() != nil {
				return
			}
			began := time.Now()
			text, err := s.read()
			p := Piece{Name: s.name, What: s.what, Text: text, Took: time.Since(began)}
			if err != nil {
				p.Text, p.Missing = "", err.Error()
			}
			pieces <- p
		}
	}()
	return pieces
}

// collect takes what comes until ctx is done, and says what did not.
func collect(ctx context.Context, sources []source, pieces <-chan Piece) (all []Piece) {
	for i, s := range sources {
		p, ok := next(ctx, pieces)
		if !ok {
			return append(all, missing(ctx, s, sources[i+1:])...)
		}
		if p.Text != "" || p.Missing != "" {
			all = append(all, p)
		}
	}
	return all
}

// next is the next piece if it is there before ctx is done; or is there already, while another group was waited for.
func next(ctx context.Context, pieces <-chan Piece) (Piece, bool) {
	select {
	case p := <-pieces:
		return p, true
	default:
	}
	select {
	case p := <-pieces:
		return p, true
	case <-ctx.Done():
		return Piece{}, false
	}
}

// missing says of one that did not come, and of those that were to be read after it, why they are not there.
func missing(ctx context.Context, s source, later []source) []Piece {
	all := []Piece{{Name: s.name, What: s.what, Missing: "it did not come in time: " + context.Cause(ctx).Error()}}
	for _, l := range later {
		all = append(all, Piece{Name: l.name, What: l.what, Missing: "not tried, for " + s.name + " did not come"})
	}
	return all
}

// bounded cuts what is too long.
func (b Bundle) bounded() Bundle {
	left := maxBundle
	for i := range b.Pieces {
		b.Pieces[i] = b.Pieces[i].within(max(0, min(maxPiece, left)))
		left -= len(b.Pieces[i].Text)
	}
	return b
}

// within returns p with at most so many bytes of its text: its beginning and its end. Stacks have the main thread at the end.
func (p Piece) within(size int) Piece {
	if len(p.Text) <= size {
		return p
	}
	half := size / 2
	head, tail := p.Text[:half], p.Text[len(p.Text)-half:]
	cut := len(p.Text) - 2*half
	p.Cut += cut
	p.Text = head + fmt.Sprintf("\n… %d bytes are left out here …\n", cut) + tail
	return p
}

// essential are the pieces that tell most, the most telling first; in Essence none is longer than essentialPiece.
var essential = []string{
	"stacks.txt", "beat.json", "status", "threads", "ras", "connections", "output.txt", "links", "gpus", "mounts", "recorder", "processes", "syscall", "wchan",
	"pressure", "meminfo", "loadavg", "io", "descriptors",
}

const essentialPiece = 32 << 10

// Essence is what of b is worth a journey: the most telling texts, shortened, so that it takes at most so many bytes as JSON. Workers
// that stand first come first. What is no text is left out.
func (b Bundle) Essence(size int) Bundle {
	pieces := b.Pieces
	b.Pieces = nil
	left := size - encoded(b)
	for _, want := range essential {
		for _, p := range pieces {
			base := path.Base(p.Name)
			if base != want && strings.TrimSuffix(base, path.Ext(base)) != want || p.Text == "" || !utf8.ValidString(p.Text) {
				continue
			}
			p = p.within(essentialPiece)
			p.Text = strings.ToValidUTF8(p.Text, "�") // it may have been cut inside a letter
			if n := encoded(p) + 1; n <= left {
				b.Pieces = append(b.Pieces, p)
				left -= n
			}
		}
	}
	if left < 0 {
		b.Ranks, b.Why = slices.Clone(b.Ranks[:0]), ""
	}
	return b
}

// encoded is the size of a value as JSON.
func encoded(v any) int {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain values can be encoded
	}
	return len(text)
}
