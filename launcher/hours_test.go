package launcher

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-run/muster/heartbeat"
)

// worlds are the seeds of the random worlds that are played, and what part of its time each has. HOURS_WORLDS asks for more of them, for
// all of it; HOURS_SEED is the first.
func worlds(t *testing.T, few int) (seeds []int, part time.Duration) {
	first, n, part := 0, few, time.Duration(3)
	for name, v := range map[string]*int{"HOURS_WORLDS": &n, "HOURS_SEED": &first} {
		if text := os.Getenv(name); text != "" {
			var err error
			if *v, err = strconv.Atoi(text); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			part = 1
		}
	}
	for seed := range n {
		seeds = append(seeds, first+seed)
	}
	return seeds, part
}

// sizes are nodes, workers of each, and how long healthy worlds of that size are watched.
var sizes = []struct {
	nodes, slots int
	long         time.Duration
}{{2, 4, time.Hour}, {1, 8, time.Hour}, {4, 2, time.Hour}, {8, 8, 12 * time.Minute}, {16, 32, 6 * time.Minute}}

// Healthy trainings of hours, with all that they do and all that disturbs their agents: not one is said to hang.
func TestHealthyHours(t *testing.T) {
	seeds, part := worlds(t, 3)
	for _, seed := range seeds {
		size := sizes[seed%len(sizes)]
		t.Run(fmt.Sprintf("seed %d, %d nodes of %d", seed, size.nodes, size.slots), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newToyWorld(t, seed, size.nodes, size.slots)
				h := healthy(w)
				w.limits.GPUs = h.gpus
				w.habits = func() habits { return h }
				if seed%2 == 1 {
					w.silent = time.Minute
				}
				w.live(size.long / part)
				w.judgeHealthy()
			})
		})
	}
}

func (w *toyWorld) judgeHealthy() {
	w.t.Logf("rounds: %d, worlds: %d, said: %v", w.round, w.world.Generation, w.said)
	for _, a := range w.alarms {
		w.t.Errorf("%s", a)
	}
}

// healthy are random habits.
func healthy(w *toyWorld) habits {
	r := w.random
	one := func(n int) bool { return r.IntN(n) == 0 }
	h := habits{
		step: 300*time.Millisecond + w.brief(3*time.Second), spread: r.Float64() / 2, reduces: 1 + r.IntN(3), slow: -1, mute: -1,
		pairs: one(2), old: one(3), limit: 30 * time.Minute, compile: w.brief(10 * time.Minute), prepares: w.brief(4 * time.Minute), steps: 50 + r.IntN(6000), when: -1,
	}
	if h.gpus = !h.old && one(3); h.gpus {
		h.limit = 10 * time.Minute
	}
	if one(3) {
		h.slow, h.from = r.IntN(w.size()), r.IntN(500)
	}
	if one(4) {
		h.graph = 20 + r.IntN(200)
	}
	if one(8) {
		h.mute = r.IntN(w.size())
	}
	saving := []work{saves, uploads, computes, reads}
	h.breaks = append(h.breaks, interlude{every: 50 + r.IntN(200), long: 20 * h.step, work: saving[r.IntN(len(saving))], says: one(4)})
	if one(2) {
		h.breaks = append(h.breaks, interlude{every: 100 + r.IntN(400), long: w.brief(5 * time.Minute), who: r.IntN(2) - 1, work: computes})
	}
	return h
}

// A world in which something goes wrong at a random moment is found to hang within its limit, for the right reason, and the right
// rank is blamed.
func TestFaultyHours(t *testing.T) {
	seeds, _ := worlds(t, kinds)
	for _, seed := range seeds {
		size := sizes[seed/kinds%3]
		f := fault(1 + seed%kinds)
		t.Run(fmt.Sprintf("seed %d, %v, %d nodes of %d", seed, f, size.nodes, size.slots), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newToyWorld(t, seed, size.nodes, size.slots)
				h := faulty(w, f)
				w.limits.GPUs = h.gpus
				w.habits = func() habits { return h }
				w.live(12 * time.Hour)
				w.judgeFaulty(h)
			})
		})
	}
}

// faulty are habits that lead to a fault which can be told from work.
func faulty(w *toyWorld, f fault) habits {
	h := healthy(w)
	h.fault, h.when, h.struckBy = f, 2+w.random.IntN(200), w.random.IntN(w.size())
	h.graph, h.mute, h.steps = 0, -1, max(h.steps, h.when+1)
	if h.from = h.when / 2; h.slow >= 0 { // so that it comes before the world is disturbed too much
		h.step /= 4
	}
	switch f {
	case otherOrder:
		h.pairs, h.old = true, false
	case otherOp:
		h.pairs, h.old = false, false
	case leaves:
		h.old = false
	}
	for i := range h.breaks {
		h.breaks[i].says = false
	}
	return h
}

// classes are what faults may be found as. What a rank that is stopped told last may be of the moment before.
var classes = map[fault][]string{
	sleepsApart: {heartbeat.Absent}, stopsApart: {heartbeat.Absent, heartbeat.Odd}, blocksApart: {heartbeat.Absent}, spinsApart: {heartbeat.Absent},
	leaves: {heartbeat.Absent}, stopsInside: {heartbeat.Odd, heartbeat.Absent}, cutNetwork: {heartbeat.Network}, otherOp: {heartbeat.Desync},
	otherOrder: {heartbeat.Desync}, noInput: {heartbeat.Starved},
}

func (w *toyWorld) judgeFaulty(h habits) {
	w.judgeHealthy()
	f := w.worst
	if f == nil {
		w.t.Fatalf("no verdict; habits %+v", h)
	}
	quiet := w.judged.Sub(w.now.moved)
	if late := quiet - f.Limit - max(0, w.rough.Sub(w.now.moved)); late > 10*time.Second {
		w.t.Errorf("found %v after the last progress, with a limit of %v", quiet, f.Limit)
	}
	if !slices.Contains(classes[h.fault], f.Class) {
		w.t.Errorf("class %s, not %s: %s", f.Class, classes[h.fault], f.Sentence(w.world))
	}
	blamed := slices.ContainsFunc([]fault{cutNetwork, noInput}, func(other fault) bool { return other == h.fault })
	if !blamed && (len(f.Culprits) != 1 || f.Culprits[0].Rank != h.struckBy) {
		w.t.Errorf("rank %d is to blame, not %+v: %s", h.struckBy, f.Culprits, f.Sentence(w.world))
	}
	w.t.Logf("%v after %v (limit %v): %s", h.fault, quiet.Round(time.Second), f.Limit, cmp.Or(f.Sentence(w.world), "?"))
}
