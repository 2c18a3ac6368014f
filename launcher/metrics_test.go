package launcher

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/report"
	"github.com/muster-run/muster/report/metrics"
)

// leaderOf is the desk of the leader of so many nodes with 8 workers each, in the middle of a round.
func leaderOf(nodes int) *desk {
	s := crowdOf(nodes)
	w := job.World{ID: "j"}
	for n := range nodes {
		w.Members = append(w.Members, job.Member{Node: job.Node{Name: s.Nodes[n].Name, Slots: 8}, First: 8 * n})
	}
	d := &desk{c: Config{First: keeper{}}}
	d.show(standing{phase: report.Running, place: &framework.Place{World: w}, of: &w, state: &s, loop: time.Now()})
	return d
}

// A scrape of a leader is as small as that of any other node.
func TestScrapeOfMany(t *testing.T) {
	size := func(nodes int) int {
		d, answer := leaderOf(nodes), httptest.NewRecorder()
		metrics.Handler(d.status, func() report.Counts { return report.Counts{} }).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		if answer.Code != 200 {
			t.Fatalf("%d: %s", answer.Code, answer.Body)
		}
		return answer.Body.Len()
	}
	if few, many := size(2), size(2000); many > few+1000 {
		t.Errorf("%d bytes of 2 nodes, %d bytes of 2000", few, many)
	}
}

// What a scrape of the leader of 16,000 ranks costs, from the judgement's state to the text.
func BenchmarkScrape16k(b *testing.B) {
	d := leaderOf(2000)
	h := metrics.Handler(d.status, func() report.Counts { return report.Counts{} })
	size := 0
	for b.Loop() {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		size = answer.Body.Len()
	}
	b.ReportMetric(float64(size), "bytes")
}
