package launcher

import (
	"fmt"
	"slices"

	"github.com/muster-run/muster/heartbeat/page"
)

// This file notices workers that are not in the world that they were given: many trainings of one rank each look like success, and
// are the worst that a launcher can do.

// alone is how many steps a worker may train before it should have taken part in a collective.
const alone = 3

// apart is what was said of that in a round.
type apart struct {
	elsewhere bool // workers meet by another way than PyTorch's, which nobody here sees

	met   []int // PIDs of workers that trained together: who destroys its process group then does not train alone
	sizes []int // ranks whose group has another size
	ways  bool  // all started processes that train in groups of their own
	steps bool  // all have made some, without a collective that is seen
	alone bool
}

// note returns what there is to say of this node's workers, whose pages say what they do. first is the rank of the first of them, size
// the world's.
func (a *apart) note(first, size int, all []page.Snapshot) (said []string) {
	lone, spawned := 0, 0
	for local, s := range all {
		rank := first + local
		if s.Grouped && s.World > 0 && s.World != size && !slices.Contains(a.sizes, rank) {
			a.sizes = append(a.sizes, rank)
			said = append(said, fmt.Sprintf("rank %d (pid %d) is in a process group of %d, but the job has %d ranks: it trains apart from them; "+
				"does the script, or a launcher in it, set WORLD_SIZE or RANK?", rank, s.PID, s.World, size))
		}
		if s.Spawned && !s.Grouped && !s.Met {
			spawned++
		}
		switch {
		case s.PID == 0 || slices.Contains(a.met, s.PID):
		case s.Met || inCollective(s) || s.Optimizer >= alone && !noCollective(s):
			a.met = append(a.met, s.PID)
		case s.Optimizer >= alone:
			lone++
		}
	}
	if spawned > 0 && spawned == len(all) && size > 1 && !a.ways {
		a.ways = true
		said = append(said, fmt.Sprintf("the workers of this node train apart: what rank %d (pid %d) started by torch.multiprocessing is a process group of its own, without the others of the job's %d ranks; "+
			"let the script train in the workers that muster starts, or, if it is to start them itself, say --nproc-per-node 1 on one node", first, all[0].PID, size))
	}
	a.steps = lone > 0 && lone == len(all) && size > 1
	if a.steps && !a.alone && !a.elsewhere {
		a.alone = true
		said = append(said, fmt.Sprintf("the workers of this node train alone: rank %d has made %d steps, and took part in no collective of the job's %d ranks; "+
			"does the script call init_process_group and use it, or does its framework have to be told (accelerate without GPUs: ACCELERATE_USE_CPU=true)?", first, all[0].Optimizer, size))
	}
	return said
}

// noCollective reports whether a worker has entered none: it has no process group, or one that nobody used, as accelerate makes where it finds no
// GPU. Where that cannot be known Mute says why.
func noCollective(s page.Snapshot) bool {
	if !s.Grouped {
		return s.PID != 0
	}
	return !inCollective(s) && (len(s.Lanes) > 0 || s.Mute == "")
}

// inCollective reports whether a worker is seen to have been in one.
func inCollective(s page.Snapshot) bool {
	return slices.ContainsFunc(s.Lanes, func(l page.Lane) bool { return l.Entered > 0 || l.Mixed })
}
