package launcher

import (
	"fmt"
	"time"

	"github.com/muster-run/muster/heartbeat/page"
)

// departing is of which workers, by rank, the program has ended of an exception while Python does not end: it waits for threads, or in handlers of atexit, as JAX's
// does for all other ranks, 300 s at most (jax/_src/distributed.py, shutdown_timeout_seconds). Meanwhile nothing has failed for who looks from outside.
type departing map[int]*depart

type depart struct {
	since time.Time
	told  bool
}

// departTime is how long Python may take to end until that is said.
const departTime = 10 * time.Second

// note takes in a look at a worker's page, and returns what is to be said of it, once.
func (d *departing) note(rank int, s page.Snapshot, now time.Time) string {
	if !s.Over || s.Raised == "" {
		delete(*d, rank)
		return ""
	}
	if *d == nil {
		*d = departing{}
	}
	if (*d)[rank] == nil {
		(*d)[rank] = &depart{since: now}
	}
	w := (*d)[rank]
	if w.told || now.Sub(w.since) < departTime {
		return ""
	}
	w.told = true
	return fmt.Sprintf("rank %d (pid %d) has failed, and its Python does not end since %.0f s: %s; muster ctl dump shows what it waits for", rank, s.PID, now.Sub(w.since).Seconds(), s.Raised)
}
