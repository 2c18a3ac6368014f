package report

import (
	"time"

	"github.com/muster-run/muster/job"
)

// Counts are what a node has counted, for /metrics alone (docs/metrics.md). What they say has grown never gets less, whichever agent says it.
type Counts struct {
	Store  *StoreCounts  // of the store that this node hosts; nil: it never did
	Output *OutputCounts // nil: nobody says

	Preflight []FindingCount // what was found before the job
	Broke     []FindingCount // and during it, on this node

	Meters  job.Meters // nothing where nobody looks at the machine
	Beating []BeatAge  // by local rank, of those that are known
}

// StoreCounts are of the meeting point's store.
type StoreCounts struct {
	Clients  int // connections now
	Keys     int // now
	Crowded  int // connections that were closed for want of room
	Commands map[string]Times
}

// Times are how often something was done, and how long it took.
type Times struct {
	Count   uint64
	Seconds float64            // in sum
	Within  map[float64]uint64 // how many took so many seconds at most
}

// OutputCounts are of what this node's workers wrote.
type OutputCounts struct {
	Bytes, Lines [2]uint64 // of standard output and standard error
	Unshown      uint64    // lines that the console did not take
	Unfiled      uint64    // lines that log files did not
}

// FindingCount is how often a check found something so bad.
type FindingCount struct {
	Check, Result string
	Count         int
}

// BeatAge is when a worker's heartbeat came last: when the thread that fills its page had a turn.
type BeatAge struct {
	Rank, LocalRank int
	Age             time.Duration
}

// Upto is times by their bounds, each with all that were shorter, as histograms are told.
func Upto(bounds []time.Duration, within []uint64) map[float64]uint64 {
	all, sum := map[float64]uint64{}, uint64(0)
	for i, b := range bounds {
		sum += within[i]
		all[b.Seconds()] = sum
	}
	return all
}
