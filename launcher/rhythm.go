package launcher

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/output"
)

// This file is what the workers' output tells of them: lines that match --progress-regex are heartbeats of those who have no better ones,
// and that anything is written at all is a sign of life of those who stand still.

const (
	rhythmTime = 500 * time.Millisecond // that the first process has to answer
	maxDeaf    = 3                      // times in a row that it does not, until it is asked less often; one that never did cannot
	deafAsk    = 10 * time.Second       // until then
)

const noRhythm = "the agent's first process does not say what the workers write"

// listen asks for what the workers' output tells, by local rank, if that is wanted; without an answer, what it told last. nil: it is not
// wanted, or was never told.
func (w *watch) listen(quiet bool) []output.Rhythm {
	if w.rhythms == nil {
		return nil
	}
	if w.c.Output.Progress == "" && !quiet {
		return w.hear(nil) // or what is written by now would be told at the next standstill as if it were written in it
	}
	if w.deaf >= maxDeaf && (w.heard.IsZero() || time.Since(w.asked) < deafAsk) {
		return w.said
	}
	ctx, cancel := context.WithTimeout(w.ctx, rhythmTime)
	defer cancel()
	all, err := w.rhythms(ctx, w.unsaid)
	w.asked = time.Now()
	if err != nil {
		w.deaf++
		w.complain(err)
		return w.said
	}
	w.deaf, w.heard = 0, w.asked
	return w.hear(all)
}

// hear keeps what the output tells, for others to read.
func (w *watch) hear(all []output.Rhythm) []output.Rhythm {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = slices.Clone(all)
	return all
}

// complain says once that progress cannot be had from the output.
func (w *watch) complain(err error) {
	if w.deaf < maxDeaf || w.complained || w.c.Output.Progress == "" {
		return
	}
	w.complained = true
	w.c.Log.Warn(fmt.Sprintf("--progress-regex: %s; until it does, workers without other heartbeats have none: %v", noRhythm, err))
}

// deafen makes a beat that lives by the output alone tell nothing, while that cannot be had: nobody knows whether the worker advances.
// Its count stays, for one that sank and rose would be taken for progress.
func (w *watch) deafen(b *job.Beat) {
	if w.deaf >= maxDeaf && b.Sources == job.FromOutput {
		b.Sources, b.Mute = 0, noRhythm
	}
}

// heardOf adds to a beat what the worker's output tells: its progress, if nothing better tells of that. It reports whether its lines are
// worth looking at.
func heardOf(b *job.Beat, r output.Rhythm) bool {
	if b.Sources&^job.Ready != 0 {
		return false
	}
	if r.Matches > 0 {
		b.Sources, b.Count, b.Steps = job.FromOutput, r.Matches, r.Step
	}
	return true
}
