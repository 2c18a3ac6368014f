package report

import (
	"fmt"
	"time"

	"github.com/muster-run/muster/job"
)

// Recovery says how soon the job went on after the round that ended last. It reports false if none has ended, as far as this node knows.
func (s Status) Recovery() (was job.Lap, said string, had bool) {
	if s.Spent == nil || len(s.Spent.Laps) == 0 {
		return was, "", false
	}
	n := len(s.Spent.Laps)
	if was = s.Spent.Laps[n-1]; was.Over && s.Message == "" {
		return was, fmt.Sprintf("round %d is on its way", was.Round+1), true
	}
	if n < 2 {
		return was, "", false
	}
	was, is := s.Spent.Laps[n-2], s.Spent.Laps[n-1]
	lost := was.Detect + was.Stop + is.Meet
	switch {
	case is.Load+is.Redo+is.Train == 0: // its workers are not started yet
		said = fmt.Sprintf("round %d is on its way", is.Round)
	case is.Blind:
		said = fmt.Sprintf("round %d runs: all workers were started again %s after it", is.Round, Span(lost))
	case is.Train+is.Redo == 0:
		said = fmt.Sprintf("round %d runs: all workers were started again %s after it, and no step is done yet", is.Round, Span(lost))
	default:
		said = fmt.Sprintf("round %d trains: all workers were started again %s after it, and the first step was done after %s", is.Round, Span(lost), Span(lost+is.Load))
	}
	return was, said, true
}

// Span is a length of time in two figures or units.
func Span(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
	case d < 10*time.Second && d%time.Second != 0:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d m %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d m", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}
