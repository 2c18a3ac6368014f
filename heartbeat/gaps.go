package heartbeat

import (
	"math"
	"time"
)

// gaps is what was learned of how long a world takes from one step forward to the next: how often each length was seen, in
// classes of a quarter's width.
type gaps struct {
	n       int
	counts  [96]uint32 // from 100 ms to years
	longest time.Duration
}

const (
	shortest = 100 * time.Millisecond
	ratio    = 1.25
	rare     = 1000 // of so many gaps one may be longer than most
)

func (g *gaps) add(d time.Duration) {
	if d <= 0 {
		return
	}
	g.n++
	g.counts[g.class(d)]++
	g.longest = max(g.longest, d)
}

func (g *gaps) class(d time.Duration) int {
	if d <= shortest {
		return 0
	}
	c := math.Ceil(math.Log(float64(d)/float64(shortest)) / math.Log(ratio))
	return min(int(c), len(g.counts)-1)
}

// most is what 99.9 % of all gaps do not exceed.
func (g *gaps) most() time.Duration {
	left := g.n / rare
	for c := len(g.counts) - 1; c >= 0; c-- {
		if left -= int(g.counts[c]); left < 0 {
			return min(g.longest, time.Duration(float64(shortest)*math.Pow(ratio, float64(c))))
		}
	}
	return 0
}
