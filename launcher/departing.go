package launcher

import (
	"fmt"
	"time"

	"github.com/muster-run/muster/heartbeat/page"
)

// departing is since when, by rank, the program of a worker has ended of an exception while Python does not end: it waits for threads, or in handlers of atexit.
// Meanwhile nothing has failed for who looks from outside. The zero time: that was said.
type departing map[int]time.Time

// departTime is how long Python may take to end until that is said.
const departTime = 10 * time.Second

// note takes in a look at a worker's page, and returns what is to be said of it, once.
func (d departing) note(rank int, s page.Snapshot, now time.Time) string {
	since, known := d[rank]
	switch {
	case !s.Over || s.Raised == "":
		delete(d, rank)
	case !known:
		d[rank] = now
	case !since.IsZero() && now.Sub(since) >= departTime:
		d[rank] = time.Time{}
		return fmt.Sprintf("rank %d (pid %d) has failed, and its Python has not ended %.0f s later: %s; muster ctl dump shows what it waits for", rank, s.PID, now.Sub(since).Seconds(), s.Raised)
	}
	return ""
}
