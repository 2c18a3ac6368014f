package output

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/proc"
)

// Routes say where the workers' lines go, in torchrun's words. The zero value is everything to the console.
type Routes struct {
	Dir        string     // of this run's log files: Dir/attempt_0/<local rank>/stdout.log; "": there are none
	Quota      int64      // bytes that the files of one stream may hold; 0: no limit
	Redirects  Streams    // go to files and not to the console
	Tee        Streams    // go to both
	Ranks      Ranks      // global ranks whose lines the console shows
	LocalRanks Ranks      // local ranks, the same
	Stdin      Ranks      // get our standard input; nil: none
	Progress   Expression // lines that match it tell of progress, and its first group of the step; "": none does
}

// Streams says which streams of which local ranks: torchrun's value of --redirects and --tee
// (torch/distributed/elastic/multiprocessing/api.py).
type Streams struct {
	every int
	some  map[int]int // local rank → streams; nil: every for all
}

// The streams, as torchrun adds them up.
const (
	stdout = 1
	stderr = 2
)

var streamNames = map[int]string{stdout: "stdout", stderr: "stderr"}

// AllStreams is both streams of all ranks.
var AllStreams = Streams{every: stdout | stderr}

// Set reads "0" (none), "1" (stdout), "2" (stderr), "3" (both), or those by local rank: "0:3,12:1", none for the rest.
func (s *Streams) Set(text string) error {
	if n, ok := digit(text); ok {
		*s = Streams{every: n}
		return nil
	}
	some := map[int]int{}
	for part := range strings.SplitSeq(text, ",") {
		rank, streams, _ := strings.Cut(part, ":")
		n, ok := digit(streams)
		local, err := rankNumber(rank)
		if !ok || err != nil {
			return fmt.Errorf("%q is none of 0 (no stream), 1 (stdout), 2 (stderr), 3 (both), nor such by local rank, as 0:3,1:2", text)
		}
		some[local] = n
	}
	*s = Streams{some: some}
	return nil
}

// String is empty: nothing is worth showing as a default.
func (s *Streams) String() string { return "" }

func digit(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && len(text) == 1 && n >= 0 && n <= stdout|stderr
}

func rankNumber(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 24)
	return int(n), err
}

// Any reports whether any stream is meant.
func (s Streams) Any() bool {
	for _, n := range s.some {
		if n != 0 {
			return true
		}
	}
	return s.every != 0
}

// MaxLocal returns the highest local rank that s names, -1 if none.
func (s Streams) MaxLocal() int {
	last := -1
	for local := range s.some {
		last = max(last, local)
	}
	return last
}

func (s Streams) has(local, stream int) bool {
	if s.some != nil {
		return s.some[local]&stream != 0
	}
	return s.every&stream != 0
}

// Ranks is a set of ranks; nil: all of them.
type Ranks []span

type span struct{ first, last int }

// Set reads "0,7" and "0-3,8".
func (r *Ranks) Set(text string) error {
	var all Ranks
	for part := range strings.SplitSeq(text, ",") {
		low, high, ranged := strings.Cut(part, "-")
		if !ranged {
			high = low
		}
		first, err1 := rankNumber(low)
		last, err2 := rankNumber(high)
		if err1 != nil || err2 != nil || first > last {
			return fmt.Errorf("%q names no ranks: give 0,7 or 0-3,8", text)
		}
		all = append(all, span{first, last})
	}
	*r = all
	return nil
}

// String is empty: nothing is worth showing as a default.
func (r *Ranks) String() string { return "" }

// Has reports whether rank is one of r.
func (r Ranks) Has(rank int) bool {
	for _, s := range r {
		if s.first <= rank && rank <= s.last {
			return true
		}
	}
	return r == nil
}

// Beyond returns the first rank that r names and a world of this size does not have; -1 if there is none. A range may end where it likes.
func (r Ranks) Beyond(size int) int {
	for _, s := range r {
		if s.first >= size {
			return s.first
		}
	}
	return -1
}

// filed reports whether a stream goes to a file, shown whether the console shows it.
func (o Routes) filed(t job.Task, stream int) bool {
	return o.Dir != "" && (o.Redirects.has(t.LocalRank, stream) || o.Tee.has(t.LocalRank, stream))
}

func (o Routes) shown(t job.Task, stream int) bool {
	redirected := o.Dir != "" && o.Redirects.has(t.LocalRank, stream) && !o.Tee.has(t.LocalRank, stream)
	return !redirected && o.Ranks.Has(t.Rank) && o.LocalRanks.Has(t.LocalRank)
}

// Reads reports whether a worker gets our standard input.
func (o Routes) Reads(t job.Task) bool { return o.Stdin != nil && o.Stdin.Has(t.Rank) }

// Lines is what becomes of the output of one worker, in one attempt.
func (o Routes) Lines(t job.Task, attempt int) *proc.Lines {
	return &proc.Lines{
		Rank: t.Rank, LocalRank: t.LocalRank,
		Shown: [2]bool{o.shown(t, stdout), o.shown(t, stderr)}, Filed: [2]bool{o.filed(t, stdout), o.filed(t, stderr)},
		Dir: o.dirOf(t, attempt), Quota: o.Quota, Progress: string(o.Progress),
	}
}

// dirOf is where a worker's files are in one attempt.
func (o Routes) dirOf(t job.Task, attempt int) string {
	return filepath.Join(o.Attempt(attempt), strconv.Itoa(t.LocalRank))
}

// Attempt is the directory of the log files of one attempt.
func (o Routes) Attempt(number int) string {
	return filepath.Join(o.Dir, fmt.Sprintf("attempt_%d", number))
}
