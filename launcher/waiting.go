package launcher

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// waiting tells a person what this node waits for: at once when that changes, and then more and more rarely,
// for a log that fills with the same line is not read.
type waiting struct {
	log   *slog.Logger
	desk  *desk // for those who ask
	what  string
	began time.Time

	mu    sync.Mutex
	last  string
	rest  string // of the last state, without times
	next  time.Time
	pause time.Duration
	told  bool
}

// firstTold is how long a wait must last to be worth a line.
const firstTold = time.Second

func newWaiting(log *slog.Logger, d *desk, what string) *waiting {
	d.meets(what)
	return &waiting{log: log, desk: d, what: what, began: time.Now()}
}

// tick says what the state is now; it may be called often.
func (w *waiting) tick(state string) { w.turn(state, state) }

// turn is tick for a state in which time passes: it has changed when the rest of it has.
func (w *waiting) turn(state, rest string) {
	w.desk.meets(w.what + ": " + state)
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if rest != w.rest {
		w.rest, w.next, w.pause = rest, now, firstTold
	}
	w.last = state
	if now.Before(w.next) || now.Sub(w.began) < firstTold {
		return
	}
	w.told = true
	w.log.Info(fmt.Sprintf("%s, %d s: %s", w.what, int(now.Sub(w.began).Seconds()), state))
	w.pause = min(2*w.pause, 30*time.Second)
	w.next = now.Add(w.pause)
}

// state is what it was told last.
func (w *waiting) state() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// cutShort adds to the reason for which we wait no longer what was still waited for: who is missing.
func (w *waiting) cutShort(cause error) error {
	var why *Error
	if !errors.As(cause, &why) || w.last == "" {
		return cause
	}
	return fail(why.Code, "", "%w; %s: %s", why, w.what, w.last)
}
