package launcher

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

// crowdOf is the leader of so many nodes in the middle of a round.
func crowdOf(nodes int) state {
	var names, ids []string
	for n := range nodes {
		name := fmt.Sprintf("train-job-worker-%d", n)
		names, ids = append(names, name), append(ids, fmt.Sprintf("%s (node %d)", name, n))
	}
	s, _ := decide(policy{}, state{}, 0, met{Generation: 1, Nodes: names, IDs: ids})
	s, _ = decide(policy{}, s, 0, opened{start{Port: 1}})
	s, _ = decide(policy{}, s, 0, begun{8})
	return s
}

// doneBy is that all workers of a node ended well.
func doneBy(n int) told { return told{n, news{Kind: newsDone, Ranks: make([]job.Ended, 8)}} }

// What one event costs the leader of a world: the first node whose workers are done, one of which only a line is said, and the last but one.
func BenchmarkEvent(b *testing.B) {
	for _, nodes := range []int{10, 1000, 4000} {
		s := crowdOf(nodes)
		b.Run(fmt.Sprintf("decide/%d", nodes), func(b *testing.B) {
			for b.Loop() {
				decide(policy{}, s, time.Second, doneBy(nodes-1))
			}
		})
		b.Run(fmt.Sprintf("notice/%d", nodes), func(b *testing.B) {
			for b.Loop() {
				decide(policy{}, s, time.Second, noticed{Node: nodes - 1, What: "suspect"})
			}
		})
		b.Run(fmt.Sprintf("last/%d", nodes), func(b *testing.B) {
			s := s
			for n := range nodes - 2 {
				s, _ = decide(policy{}, s, time.Second, doneBy(n+2))
			}
			for b.Loop() {
				decide(policy{}, s, time.Second, doneBy(1))
			}
		})
		b.Run(fmt.Sprintf("save/%d", nodes), func(b *testing.B) {
			size := 0
			for b.Loop() {
				text, _ := json.Marshal(moment{State: s})
				size = len(text)
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
