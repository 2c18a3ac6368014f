package tcpstore

import "time"

// lull is for how long a loop looks on for the next request before it sleeps. To fall asleep and to be woken costs the server as much CPU time and,
// which is worse, it costs the client as much of its time again (docs/performance.md, the store with one client).
const lull = 50 * time.Microsecond

// A lookout tells whether to look on. It is worth it while clients ask one thing after the other, as one that starts does: each answer brings the next
// request within some microseconds. It is not when they are further away than a lull, or share the CPU that looking takes. So it takes some requests in
// a row that came soon, and twice as many after each look in vain.
type lookout struct {
	soon  int // requests in a row that came within a lull of falling asleep
	takes int // of them, for a look; 0: fewestSoon
}

// fewestSoon and mostSoon bound how many requests must have come soon before the loop looks on.
const (
	fewestSoon = 4
	mostSoon   = 1 << 12
)

// worth reports whether the next request is likely to come within a lull.
func (o *lookout) worth() bool { return o.soon >= max(fewestSoon, o.takes) }

// seen notes that looking was worth it.
func (o *lookout) seen() { o.takes = fewestSoon }

// vain notes that nothing came.
func (o *lookout) vain() { o.soon, o.takes = 0, min(2*max(fewestSoon, o.takes), mostSoon) }

// woken notes how long the loop then slept. A sleep of two lulls may have been one, and the rest of it the waking.
func (o *lookout) woken(slept time.Duration) {
	if slept > 2*lull {
		o.soon = 0
		return
	}
	o.soon++
}
