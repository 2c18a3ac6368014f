package launcher

import (
	"context"
	"slices"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/output"
)

// This file is what the workers' output tells of them: lines that match --progress-regex are heartbeats of those who have no better ones,
// and that anything is written at all is a sign of life of those who stand still.

const (
	rhythmTime = 500 * time.Millisecond // that the first process has to answer
	maxDeaf    = 3                      // times in a row that it does not, until it is taken for one that cannot
)

// listen asks for what the workers' output tells, by local rank, if that is wanted; nil: it is not, or cannot be had.
func (w *watch) listen(quiet bool) []output.Rhythm {
	if w.rhythms == nil || w.c.Output.Progress == "" && !quiet || w.deaf >= maxDeaf {
		return nil
	}
	ctx, cancel := context.WithTimeout(w.ctx, rhythmTime)
	defer cancel()
	all, err := w.rhythms(ctx, w.unsaid)
	if err != nil {
		w.deaf++
		return nil
	}
	w.deaf = 0
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = slices.Clone(all)
	return all
}

// heardOf adds to a beat what the worker's output tells: its progress, if nothing better tells of that. It reports whether its lines are
// worth looking at.
func heardOf(b *job.Beat, r output.Rhythm) bool {
	if b.Sources != 0 {
		return false
	}
	if r.Matches > 0 {
		b.Sources, b.Count, b.Steps = job.FromOutput, r.Matches+r.Step, r.Step
	}
	return true
}
