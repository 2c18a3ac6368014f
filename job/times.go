package job

import "time"

// TimesBounds are the upper bounds of the buckets of Times.
var TimesBounds = [...]time.Duration{
	time.Second / 2, time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour,
}

// Times are how long things took that happened once in a while. It only grows.
type Times struct {
	Count   uint64                   `json:"count"`
	Seconds float64                  `json:"seconds"` // in sum
	Within  [len(TimesBounds)]uint64 `json:"within"`  // how many took so long, and longer than the bound before
}

// Add counts one more.
func (t *Times) Add(took time.Duration) {
	took = max(took, 0)
	t.Count++
	t.Seconds += took.Seconds()
	for i, bound := range TimesBounds {
		if took <= bound {
			t.Within[i]++
			return
		}
	}
}

// Turns are how long the turning points of a job took, as one node saw them.
type Turns struct {
	Meetings   Times `json:"meetings"`   // until workers were started
	Detections Times `json:"detections"` // from something that went wrong until all were told to stop
	Recoveries Times `json:"recoveries"` // from the end of training until it was as far as before
}
