package launcher

import "time"

// A reach is for files that the main loop needs, and that may be on a file system that is dead: it does not answer, and nobody can call it off. Once it did
// not for a while, it is not asked again.
type reach struct{ lost bool }

// reachTime is how long the main loop stands still for a file, once: a job that has failed is ended that much later.
const reachTime = 2 * time.Second

// reachFor is what ask comes to. Without an answer ask is left behind, which is to change nothing that is shared. Of a nil reach nothing is remembered.
func reachFor[T any](r *reach, ask func() T) (got T, ok bool) {
	if r != nil && r.lost {
		return got, false
	}
	answer := make(chan T, 1)
	go func() { answer <- ask() }()
	late := time.NewTimer(reachTime)
	defer late.Stop()
	select {
	case got = <-answer:
		return got, true
	case <-late.C:
		if r != nil {
			r.lost = true
		}
		return got, false
	}
}
