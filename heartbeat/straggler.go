package heartbeat

import (
	"fmt"
	"slices"

	"github.com/muster-run/muster/job"
)

const (
	fade   = 0.997 // of what was seen counts less at each look: half after four minutes
	enough = 60    // looks, until anything is said
	behind = 0.3   // of all looks: so much less than the others a straggler waits
)

// A Straggler is a rank for which the others wait: it spends less of its time in collectives than they do.
type Straggler struct {
	Rank   int     `json:"rank"`
	Waits  float64 `json:"waits"`  // its share of time in collectives, 0 to 1
	Others float64 `json:"others"` // the others' median
}

// Stragglers are the ranks for which the others wait most, the worst first. Each rank's share of time is seen at its own node, so
// it does not matter that nodes do not look at the same moment.
func (j *Judge) Stragglers() []Straggler {
	var shares []float64
	for _, t := range j.ranks {
		if t.sources&job.FromRecorder == 0 || t.looks < enough {
			return nil
		}
		shares = append(shares, t.share())
	}
	if len(shares) < 2 {
		return nil
	}
	slices.Sort(shares)
	median := shares[len(shares)/2]
	var out []Straggler
	for _, rank := range j.sorted() {
		if share := j.ranks[rank].share(); median-share > behind {
			out = append(out, Straggler{rank, share, median})
		}
	}
	slices.SortStableFunc(out, func(a, b Straggler) int {
		switch {
		case a.Waits < b.Waits:
			return -1
		case a.Waits > b.Waits:
			return 1
		}
		return 0
	})
	return out
}

// share is that of the rank's time in collectives.
func (t *track) share() float64 { return float64(t.waits / t.looks) }

func (s Straggler) String() string {
	return fmt.Sprintf("the others wait for rank %d: it spends %.0f %% of its time in collectives, they %.0f %%", s.Rank, 100*s.Waits, 100*s.Others)
}
