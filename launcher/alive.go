package launcher

import (
	"fmt"
	"sync/atomic"
	"time"
)

// This file says whether this agent lives: not that somebody answers for it, but that its main loop moves. One that stands still hears no signal and no
// worker's end, and is of no use to anybody.

// loopTime is how long the main loop may take between two turns. It moves each second; starting workers on a busy machine may take a while.
const loopTime = time.Minute

// A turn is by when a main loop moves again, on clock.
type turn struct{ due atomic.Int64 }

// within is the main loop's: it comes by again within this time.
func (t *turn) within(again time.Duration) {
	t.due.Store(clock() + int64(min(again, 30*24*time.Hour))) // a limit may be years
}

// late reports that a main loop should have moved; nil: it need not have. whose says who it is.
func (t *turn) late(whose string) error {
	if late := time.Duration(clock() - t.due.Load()); late > 0 {
		return fmt.Errorf("the %s's main loop stands still, and should have moved %v ago", whose, late.Round(time.Second))
	}
	return nil
}

// moves is the main loop's: it comes by again within this time.
func (d *desk) moves(again time.Duration) {
	if d != nil {
		d.turn.within(again)
	}
}

// alive reports what is wrong with the main loop; nil: nothing.
func (d *desk) alive() error { return d.turn.late("agent") }

// alive is the same of an observer.
func (o *observer) alive() error { return o.turns.late("observer") }

// listened reports whether an agent before this one listened for others: its sockets are open all the time.
func (c Config) listened() bool {
	old := c.First.Legacy()
	return c.takesOver() || old != nil && (old.Files[heldStore] != nil || old.Files[heldDoor] != nil)
}
