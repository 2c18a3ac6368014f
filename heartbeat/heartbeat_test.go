package heartbeat

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-run/muster/job"
)

// A world under test: ranks that train in one group, a look a second.
type world struct {
	judge *Judge
	at    time.Duration
	beats []job.Beat
	ended []int
	busy  int // processors that rank 0 uses, where a test says so
	found []Finding
}

const dp = 0xd9

func newWorld(n int, l Limits) *world {
	w := &world{judge: New(l)}
	for r := range n {
		w.beats = append(w.beats, job.Beat{
			Rank: r, PID: 100 + r, Sources: job.FromRecorder,
			Lanes: []job.Lane{{Group: dp, Op: "all_reduce", Bytes: 4096}},
			Sight: &job.Sight{State: 'S'},
		})
	}
	return w
}

// look lets a second pass. Nothing is left of what the judge was given.
func (w *world) look() {
	w.at += time.Second
	beats := make([]job.Beat, len(w.beats))
	for i, b := range w.beats {
		sight := *b.Sight
		b.Sight, b.Lanes = &sight, append([]job.Lane(nil), b.Lanes...)
		beats[i] = b
	}
	w.found = append(w.found, w.judge.Observe(Look{At: w.at, Beats: beats, Ended: w.ended})...)
	for _, b := range beats {
		*b.Sight = job.Sight{}
		clear(b.Lanes)
	}
	clear(beats)
}

// train lets seconds pass in which all ranks do their steps.
func (w *world) train(seconds int) *world {
	for range seconds {
		for i := range w.beats {
			b := &w.beats[i]
			b.Count += 20
			b.Steps += 10
			b.Lanes[0].Entered += 10
			b.Lanes[0].Completed = b.Lanes[0].Entered
			w.works(i)
		}
		w.look()
	}
	return w
}

// works lets a rank use the processor for a second.
func (w *world) works(r int) {
	w.beats[r].Sight.CPU += 700 * time.Millisecond
	w.beats[r].Sight.Wire += 1 << 20
}

// enter lets ranks go into the next collective, for ever.
func (w *world) enter(ranks ...int) {
	for _, r := range ranks {
		w.beats[r].Lanes[0].Entered++
		w.beats[r].Count++
	}
}

// over ends the scripts of ranks, whose processes go on.
func (w *world) over(how string, ranks ...int) {
	for _, r := range ranks {
		w.beats[r].Over, w.beats[r].Mute = true, how
	}
}

// stand lets seconds pass in which each does what meanwhile says.
func (w *world) stand(seconds int, meanwhile func()) *world {
	for range seconds {
		if meanwhile != nil {
			meanwhile()
		}
		w.look()
	}
	return w
}

// hang is the finding that says so; nil: there is none.
func (w *world) worst() *Finding {
	var worst *Finding
	for i, f := range w.found {
		if f.Stage != Resumed && (worst == nil || f.Stage >= worst.Stage) {
			worst = &w.found[i]
		}
	}
	return worst
}

func two() job.World {
	return job.World{Members: []job.Member{{Node: job.Node{Name: "node-0", Slots: 2}}, {Node: job.Node{Name: "node-1", Slots: 2}, First: 2}}}
}

// Of a hang that is found as soon as it is suspected it is said where the culprit is, when that is known, and that it is one if it never is.
func TestPlaceIsWaitedFor(t *testing.T) {
	for after, want := range map[int]string{1: "32 s", 6: "34 s", 100: "39 s"} {
		w := newWorld(4, Limits{Places: true}).train(120)
		w.enter(0, 1, 2)
		w.stand(29, nil)
		asked := 0
		w.stand(20, func() {
			if asked++; asked == after {
				w.beats[3].Stack = []string{"dataset.py:88 __getitem__"}
			}
		})
		said := w.worst().Sentence(two())
		if !strings.Contains(said, " for "+want) || strings.Contains(said, "dataset.py:88") != (after < 100) {
			t.Errorf("told after %d s: %s; want it for %s", after, said, want)
		}
	}
	w := newWorld(4, Limits{Places: true}).train(120)
	w.enter(0, 1, 2)
	w.beats[3].Sight.State = 'T'
	if said := w.stand(45, nil).worst().Sentence(two()); !strings.Contains(said, " for 32 s") {
		t.Errorf("of who is stopped, and cannot tell: %s", said)
	}
}

// TestClasses plays each kind of standstill after two minutes of training.
func TestClasses(t *testing.T) {
	for _, tt := range []struct {
		name string
		play func(w *world)
		want string // stage and sentence; "": nothing is said
	}{
		{"nobody stands still", func(w *world) { w.train(100) }, ""},
		{"a rank sleeps in data code", func(w *world) {
			w.enter(0, 1, 2)
			w.stand(45, nil)
		}, "hung: rank 3 (node-1, local 1, pid 103) has not entered all_reduce #1201 for 32 s; 3 others wait in it; it is asleep"},
		{"a rank sleeps, and its stack is known", func(w *world) {
			w.enter(0, 1, 2)
			w.beats[3].Stack = []string{"dataset.py:88 __getitem__"}
			w.beats[3].Sight.File, w.beats[3].Sight.State = "/mnt/data", 'D'
			w.stand(45, nil)
		}, "hung: rank 3 (node-1, local 1, pid 103) has not entered all_reduce #1201 for 32 s; 3 others wait in it; it is in dataset.py:88 __getitem__ at /mnt/data (in the kernel, state D)"},
		{"two ranks sleep", func(w *world) {
			w.enter(0, 1)
			w.stand(45, nil)
		}, "hung: rank 2 (node-1, local 0, pid 102) and rank 3 (node-1, local 1, pid 103) have not entered all_reduce #1201 for 32 s; 2 others wait in it; rank 2 is asleep"},
		{"a rank computes", func(w *world) {
			w.enter(0, 1, 2)
			w.stand(100, func() { w.works(3) })
		}, "slow: rank 3 (node-1, local 1, pid 103) has not entered all_reduce #1201 for 30 s; 3 others wait in it; it is using the processor"},
		{"a rank writes output", func(w *world) {
			w.enter(0, 1, 2)
			w.stand(100, func() { w.beats[3].Sight.Output += 9 })
		}, "slow: rank 3 (node-1, local 1, pid 103) has not entered all_reduce #1201 for 30 s; 3 others wait in it; it is writing output"},
		{"what a rank wrote gets known", func(w *world) {
			w.enter(0, 1, 2)
			w.stand(25, nil)
			w.beats[3].Sight.Output = 9000
			w.stand(20, nil)
		}, "hung: rank 3 (node-1, local 1, pid 103) has not entered all_reduce #1201 for 32 s; 3 others wait in it; it is asleep"},
		{"a rank's GPU computes", func(w *world) {
			w.enter(0, 1, 2)
			w.beats[3].Sight.GPU, w.beats[3].Sight.GPUUsual, w.beats[3].Sight.GPUBusy = 380, 410, 100
			w.stand(100, nil)
		}, "slow: rank 3 (node-1, local 1, pid 103) has not entered all_reduce #1201 for 30 s; 3 others wait in it; it is computing on its accelerator"},
		{"a rank's GPU does nothing", func(w *world) {
			w.enter(0, 1, 2)
			w.beats[3].Sight.GPU, w.beats[3].Sight.GPUUsual, w.beats[3].Sight.GPUBusy = 71, 410, 0
			for i := range 3 { // they spin in their collective
				w.beats[i].Sight.GPU, w.beats[i].Sight.GPUUsual, w.beats[i].Sight.GPUBusy = 140, 410, 100
			}
			w.stand(45, nil)
		}, "hung: rank 3 (node-1, local 1, pid 103) has not entered all_reduce #1201 for 32 s; 3 others wait in it; it is asleep, its GPU at 71 W of 410 W"},
		{"a rank in state D wrote output before", func(w *world) {
			w.enter(0, 1, 2)
			w.stand(5, func() { w.beats[3].Sight.Output += 9 })
			w.beats[3].Sight.State = 'D'
			w.stand(45, nil)
		}, "hung: rank 3 (node-1, local 1, pid 103) has not entered all_reduce #1201 for 32 s; 3 others wait in it; it is in the kernel, state D"},
		{"all write output, and nobody advances", func(w *world) {
			w.enter(0, 1, 2, 3)
			w.stand(45, func() {
				for i := range w.beats {
					w.beats[i].Sight.Output += 100
				}
			})
		}, "hung: all ranks have been in all_reduce #1201 for 32 s, and all of them run: the network between them, or the communication library, does not get on"},
		{"a rank computes for ever", func(w *world) {
			w.enter(0, 1, 2)
			w.stand(605, func() { w.works(3) })
		}, "hung: rank 3 (node-1, local 1, pid 103) has not entered all_reduce #1201 for 602 s; 3 others wait in it; it is using the processor"},
		{"a rank writes a checkpoint", func(w *world) {
			w.enter(1, 2, 3)
			w.stand(100, func() { w.beats[0].Sight.Disk += 100 << 20 })
		}, "slow: rank 0 (node-0, local 0, pid 100) has not entered all_reduce #1201 for 30 s; 3 others wait in it; it is reading or writing its disk"},
		{"a rank has announced a checkpoint", func(w *world) {
			w.enter(1, 2, 3)
			w.beats[0].Phase = "checkpoint"
			left := 500
			w.stand(400, func() { left--; w.beats[0].Left = time.Duration(left) * time.Second })
		}, ""},
		{"a rank is stopped in a collective", func(w *world) {
			w.enter(0, 1, 2, 3)
			w.beats[2].Sight.State = 'T'
			w.stand(45, nil)
		}, "hung: rank 2 (node-1, local 0, pid 102) has been in all_reduce #1201 for 32 s, and does not go on; 3 others wait for it; it is stopped, state T"},
		{"the network is cut", func(w *world) {
			w.enter(0, 1, 2, 3)
			w.beats[1].Sight.Stuck = []string{"10.0.0.3:41234, 7 retransmissions"}
			w.stand(45, nil)
		}, "hung: all ranks have been in all_reduce #1201 for 32 s, and all of them run: the network between them, or the communication library, does not get on; rank 1 to 10.0.0.3:41234, 7 retransmissions"},
		{"a kernel does not end", func(w *world) {
			w.enter(0, 1, 2, 3)
			for i := range w.beats {
				w.beats[i].Lanes[0].Queued, w.beats[i].Lanes[0].Begun = i == 2, i != 2
			}
			w.enter(0, 0, 1, 3)
			w.stand(45, nil)
		}, "slow: rank 2 (node-1, local 0, pid 102) has been in all_reduce #1201 for 30 s, behind a kernel that does not end on its GPU; 3 others wait for it; it is asleep"},
		{"a kernel never ends", func(w *world) {
			w.enter(0, 1, 2, 3)
			for i := range w.beats {
				w.beats[i].Lanes[0].Queued, w.beats[i].Lanes[0].Begun = i > 1, i < 2
			}
			w.stand(605, nil)
		}, "hung: rank 2 (node-1, local 0, pid 102) and rank 3 (node-1, local 1, pid 103) have been in all_reduce #1201 for 602 s, behind a kernel that does not end on their GPU; 2 others wait for it; rank 2 is asleep"},
		{"kernels of all", func(w *world) {
			w.judge.limits.GPUs = true
			w.enter(0, 1, 2, 3)
			for i := range w.beats {
				w.beats[i].Lanes[0].Queued = true
			}
			w.stand(605, nil)
		}, "hung: all ranks have been in all_reduce #1201 for 602 s, and all of them run: the network between them, the communication library, or a kernel before it on one of their GPUs, does not get on"},
		{"a collective behind another one", func(w *world) {
			for r := range 2 {
				w.beats[r].Lanes = append(w.beats[r].Lanes, job.Lane{Group: 0x77, Name: "tp", Op: "all_gather", Members: 2, Entered: 5000, Completed: 4999, Begun: true})
			}
			w.look()
			w.enter(0, 1, 2, 3)
			for i := range w.beats {
				w.beats[i].Lanes[0].Queued, w.beats[i].Lanes[0].Begun = i < 2, i > 1
			}
			w.stand(45, nil)
		}, "hung: all ranks have been in all_reduce #1201 for 32 s, and all of them run: the network between them, or the communication library, does not get on"},
		{"numbers of sends and receives", func(w *world) {
			w.enter(0, 1, 2, 3)
			for i := range w.beats {
				w.beats[i].Lanes[0].Queued, w.beats[i].Lanes[0].Begun, w.beats[i].Lanes[0].Mixed = i == 2, i != 2, true
			}
			w.stand(45, nil)
		}, "hung: all ranks have been in all_reduce for 32 s, and all of them run: the script takes them different ways, or the network between them, or the communication library, does not get on"},
		{"all make a group, on machines with GPUs", func(w *world) {
			w.judge.limits.GPUs = true
			for i := range w.beats {
				w.beats[i].Lanes = append(w.beats[i].Lanes, job.Lane{Entered: 5, Completed: 4, Op: "new_group"})
			}
			w.stand(605, nil)
		}, "hung: all ranks have been in new_group for 602 s, and all of them run: the script takes them different ways, or the network between them, or the communication library, does not get on"},
		{"the network, as all GPUs have begun", func(w *world) {
			w.judge.limits.GPUs = true
			w.enter(0, 1, 2, 3)
			for i := range w.beats {
				w.beats[i].Lanes[0].Begun = true
			}
			w.stand(605, nil)
		}, "hung: all ranks have been in all_reduce #1201 for 602 s, and all of them run: the network between them, or the communication library, does not get on"},
		{"all are in a collective, and bytes move", func(w *world) {
			w.enter(0, 1, 2, 3)
			w.stand(1000, func() { w.beats[0].Sight.Wire += 1 << 20 })
		}, "unclear: no rank has told of progress for 30 s; 4 ranks are in all_reduce #1201, and rank 0 still sends or receives"},
		{"different operations", func(w *world) {
			w.enter(0, 1, 2, 3)
			w.beats[1].Lanes[0].Op = "broadcast"
			w.stand(45, nil)
		}, "hung: the ranks have waited for each other in different collectives for 32 s: rank 1 in broadcast #1201; ranks 0, 2, 3 in all_reduce of 4096 bytes #1201; that is an error in the script, and no restart mends it; rank 1 is asleep"},
		{"different operations, and who is alone runs ahead", func(w *world) {
			w.enter(0, 1, 2, 3)
			w.beats[1].Lanes[0].Op = "broadcast"
			w.enter(1, 1)
			w.stand(45, nil)
		}, "hung: the ranks have waited for each other in different collectives for 32 s: rank 1 in broadcast #1201; ranks 0, 2, 3 in all_reduce of 4096 bytes #1201; that is an error in the script, and no restart mends it; rank 1 is asleep"},
		{"different sizes", func(w *world) {
			w.enter(0, 1, 2, 3)
			w.beats[3].Lanes[0].Bytes = 8192
			w.stand(45, nil)
		}, "hung: the ranks have waited for each other in different collectives for 32 s: rank 3 in all_reduce of 8192 bytes #1201; ranks 0, 1, 2 in all_reduce of 4096 bytes #1201; that is an error in the script, and no restart mends it; rank 3 is asleep"},
		{"two groups in another order", func(w *world) {
			for r := range w.beats {
				w.beats[r].Lanes = append(w.beats[r].Lanes, job.Lane{Group: 0x77, Name: "tp", Op: "all_gather", Entered: 5, Completed: 5})
			}
			w.look()
			w.enter(0, 1)
			for _, r := range []int{2, 3} {
				w.beats[r].Lanes[1].Entered++
				w.beats[r].Count++
			}
			w.stand(45, nil)
		}, "hung: the ranks have waited for each other in different collectives for 32 s: ranks 0, 1 in all_reduce #1201; ranks 2, 3 in all_gather #6 of group tp; that is an error in the script, and no restart mends it"},
		{"all wait for input", func(w *world) {
			w.stand(45, nil)
		}, "hung: no rank has been in a collective, nor at work, for 32 s: all of them wait for something else, such as input; rank 0 is asleep"},
		{"a pipeline's stage sleeps in data code", func(w *world) {
			for r := range w.beats {
				w.beats[r].Stack = []string{"pipe.py:12 <module>", "torch/distributed/distributed_c10d.py:3697 recv"}
			}
			w.beats[2].Stack = []string{"pipe.py:8 data"}
			w.stand(45, nil)
		}, "hung: rank 2 (node-1, local 0, pid 102) has not entered a collective for 32 s; 3 others wait in it; it is in pipe.py:8 data (asleep)"},
		{"all stages of a pipeline receive", func(w *world) {
			for r := range w.beats {
				w.beats[r].Stack = []string{"pipe.py:12 <module>", "torch/distributed/distributed_c10d.py:3697 recv"}
			}
			w.stand(45, nil)
		}, "hung: all ranks have been in a collective for 32 s, and all of them run: the script takes them different ways, or the network between them, or the communication library, does not get on"},
		{"a pipeline's stage sleeps, and the others receive", func(w *world) {
			w.transfers(0, 1, 3)
			w.stand(45, nil)
		}, "hung: rank 2 (node-1, local 0, pid 102) has sent and received nothing for 32 s; 3 others wait in recv; it is asleep"},
		{"all stages receive, and number apart", func(w *world) {
			w.transfers(0, 1, 2, 3)
			w.stand(45, nil)
		}, "hung: all ranks have been in recv for 32 s, and all of them run: the network between them does not get on, or what they send and receive does not match"},
		{"two stages receive, and the others wait for them", func(w *world) {
			w.transfers(0, 1)
			w.enter(2, 3)
			w.beats[3].Lanes[0].Op = "barrier"
			w.stand(45, nil)
		}, "hung: 2 ranks have been in recv for 32 s, and all of them run: ranks 0, 1 in recv; rank 2 in all_reduce; rank 3 in barrier: the network between them does not get on, or what they send and receive does not match"},
		{"one receives, and all others are in a collective", func(w *world) {
			w.receives(1)
			w.enter(0, 2, 3)
			w.stand(45, nil)
		}, "hung: rank 1 (node-0, local 1, pid 101) has not entered all_reduce #1201 for 32 s; 3 others wait in it; it is asleep"},
		{"one receives, and a group's network does not get on", func(w *world) {
			w.receives(1)
			for r := range w.beats {
				w.beats[r].Lanes = append(w.beats[r].Lanes, job.Lane{Group: uint64(0xa0 + r%2), Name: "dp", Op: "all_reduce", Members: 2, Entered: 7, Completed: 7})
			}
			for _, r := range []int{0, 2, 3} {
				w.beats[r].Lanes[2].Entered++
			}
			w.stand(45, nil)
		}, "hung: 2 ranks have been in all_reduce #8 of group dp for 32 s, and all of them run: the network between them, or the communication library, does not get on"},
		{"one has no recorder, and is in what the others are in", func(w *world) {
			w.receives(3)
			w.beats[3].Sources, w.beats[3].Lanes = job.FromHooks, w.beats[3].Lanes[1:]
			w.beats[3].Lanes[0].Op = "all_reduce"
			w.enter(0, 1, 2)
			w.stand(45, nil)
		}, "hung: 1 rank has been in all_reduce for 32 s, and all ranks run: ranks 0, 1, 2 in all_reduce #1201; rank 3 in all_reduce: the script takes them different ways, or the network between them, or the communication library, does not get on"},
		{"half of them receive, and the others are in a collective", func(w *world) {
			w.receives(1, 3)
			w.enter(0, 2)
			w.stand(45, nil)
		}, "hung: 2 ranks have been in recv for 32 s, and all of them run: ranks 0, 2 in all_reduce #1201; ranks 1, 3 in recv: the network between them does not get on, or what they send and receive does not match"},
		{"one receives from a network that holds data back", func(w *world) {
			w.receives(1)
			w.enter(0, 2, 3)
			w.stand(45, func() { w.beats[0].Sight.Stuck = []string{"10.0.0.7:4000"} })
		}, "hung: 1 rank has been in recv for 32 s, and all ranks run: ranks 0, 2, 3 in all_reduce #1201; rank 1 in recv: the network between them does not get on, or what they send and receive does not match; rank 0 to 10.0.0.7:4000"},
		{"stages wait in a collective under numbers of their own", func(w *world) {
			w.transfers()
			w.enter(0, 1, 2, 3)
			w.beats[3].Lanes[0].Op = "barrier"
			w.stand(45, nil)
		}, "hung: all ranks have been in all_reduce for 32 s, and all of them run: the script takes them different ways, or the network between them, or the communication library, does not get on"},
		{"a group's network is cut, and the others idle", func(w *world) {
			for r := range 2 {
				w.beats[r].Lanes = append(w.beats[r].Lanes, job.Lane{Group: 0x77, Name: "tp", Op: "all_gather", Entered: 6, Completed: 5, Members: 2})
				w.beats[r].Count += 11
			}
			w.stand(45, nil)
		}, "hung: 2 ranks have been in all_gather #6 of group tp for 32 s, and all of them run: the network between them, or the communication library, does not get on"},
		{"counters freeze and bytes move", func(w *world) {
			w.stand(4000, func() { w.beats[2].Sight.Wire += 1 << 20 })
		}, "unclear: no rank has told of progress for 30 s; no rank is in a collective, and rank 2 is sending or receiving"},
		{"all evaluate", func(w *world) {
			w.stand(4000, func() { w.works(0); w.works(1) })
		}, "unclear: no rank has told of progress for 30 s; no rank is in a collective, and rank 0 is using the processor"},
		{"a rank has ended", func(w *world) {
			w.enter(0, 1, 2)
			w.beats, w.ended = w.beats[:3], []int{3}
			w.stand(45, nil)
		}, "hung: rank 3 (node-1, local 1) has not entered all_reduce #1201 for 32 s; 3 others wait in it; it has ended with code 0"},
		{"a rank takes long to end", func(w *world) {
			w.over("its script is over", 3)
			w.beats, w.ended = w.beats[3:], []int{0, 1, 2}
			w.stand(595, nil)
		}, ""},
		{"a rank takes long to end, and works", func(w *world) {
			w.over("its script is over", 3)
			w.beats, w.ended = w.beats[3:], []int{0, 1, 2}
			w.stand(4000, func() { w.works(0) })
		}, ""},
		{"a rank does not end", func(w *world) {
			w.over("its script is over", 3)
			w.beats[3].Sources, w.beats[3].Lanes = 0, nil // it has destroyed its groups
			w.beats[3].Stack = []string{"ddtrace/writer.py:88 flush"}
			w.beats, w.ended = w.beats[3:], []int{0, 1, 2}
			w.stand(605, nil)
		}, "hung: rank 3 (node-1, local 1, pid 103) has not ended for 602 s, though its script is over; it is in ddtrace/writer.py:88 flush (asleep)"},
		{"no rank ends", func(w *world) {
			w.over("its script is over", 0, 1, 2, 3)
			w.stand(605, nil)
		}, "hung: rank 0 (node-0, local 0, pid 100) and rank 1 (node-0, local 1, pid 101) and rank 2 (node-1, local 0, pid 102) and 1 more have not ended for 602 s, though their scripts have; rank 0 is asleep"},
		{"a rank that failed takes long to end, and the others wait for it", func(w *world) {
			w.enter(0, 1, 2)
			w.over("its script failed: ValueError: 7", 3)
			w.stand(25, nil)
			if len(w.found) > 0 {
				w.found = append(w.found, Finding{Stage: Hung}) // it was too soon
			}
			w.stand(500, nil)
		}, "slow: rank 3 (node-1, local 1, pid 103) has not entered all_reduce #1201 for 30 s; 3 others wait in it; its script failed: ValueError: 7; it is asleep"},
		{"a rank is stopped at its end, and the others wait for it", func(w *world) {
			w.enter(0, 1, 2)
			w.over("its script is over", 3)
			w.beats[3].Sight.State = 'T'
			w.stand(45, nil)
		}, "hung: rank 3 (node-1, local 1, pid 103) has not entered all_reduce #1201 for 32 s; 3 others wait in it; its script is over; it is stopped, state T"},
		{"a rank sleeps when the others have ended", func(w *world) {
			w.beats, w.ended = w.beats[3:], []int{0, 1, 2}
			w.stand(605, nil)
		}, "hung: rank 3 (node-1, local 1, pid 103) has not ended for 602 s, nor done anything; 3 of the ranks have ended; it is asleep"},
		{"a rank waits for input, and another takes long to end", func(w *world) {
			w.over("its script is over", 0)
			w.stand(605, nil)
		}, "hung: no rank has been in a collective, nor at work, for 602 s: all of them wait for something else, such as input; rank 1 is asleep"},
		{"a rank has ended, and it is known how many there were", func(w *world) {
			for r := range w.beats {
				w.beats[r].Lanes[0].Members = 4
			}
			w.enter(0, 1, 2)
			w.beats, w.ended = w.beats[:3], []int{3}
			w.stand(45, nil)
		}, "hung: rank 3 (node-1, local 1) has not entered all_reduce #1201 for 32 s; 3 others wait in it; it has ended with code 0"},
		{"a rank has ended, and one waits for it for which the others wait", func(w *world) {
			for r := range w.beats {
				w.beats[r].Lanes[0].Members = 4
				w.beats[r].Lanes = append(w.beats[r].Lanes, job.Lane{Group: uint64(0x70 + r/2), Name: "pair", Op: "all_gather", Entered: 5, Completed: 5, Members: 2})
			}
			w.look()
			w.enter(0, 1)
			w.beats[2].Lanes[1].Entered++
			w.beats[2].Count++
			w.beats, w.ended = w.beats[:3], []int{3}
			w.stand(45, nil)
		}, "hung: rank 3 (node-1, local 1) has not entered all_gather #6 of group pair for 32 s; 3 others wait in it; it has ended with code 0"},
		{"a rank that tells nothing may be to blame", func(w *world) {
			w.beats[3].Sources, w.beats[3].Mute = 0, "python runs with -I"
			w.enter(0, 1, 2)
			w.stand(4000, nil)
		}, "unclear: no rank has told of progress for 30 s; rank 3, which has no heartbeats, may be the one that is waited for: python runs with -I"},
		{"another rank than the one that tells nothing", func(w *world) {
			w.beats[3].Sources = 0
			w.enter(0, 1)
			w.stand(45, nil)
		}, "hung: rank 2 (node-1, local 0, pid 102) has not entered all_reduce #1201 for 32 s; 2 others wait in it; it is asleep"},
		{"calls, and one is outside", func(w *world) {
			w.calls()
			for _, r := range []int{0, 1, 3} {
				w.beats[r].Lanes[0].Entered++
				w.beats[r].Count++
			}
			w.stand(45, nil)
		}, "hung: rank 2 (node-1, local 0, pid 102) has not entered backward for 32 s; 3 others wait in it; it is asleep"},
		{"calls, in which somebody computes", func(w *world) {
			w.calls()
			for _, r := range []int{0, 1, 3} {
				w.beats[r].Lanes[0].Entered++
				w.beats[r].Count++
			}
			w.stand(4000, func() { w.works(1) })
		}, "unclear: no rank has told of progress for 30 s; 3 ranks are in backward, and rank 1 is at work"},
		{"different calls", func(w *world) {
			w.calls()
			for r := range w.beats {
				w.beats[r].Lanes[0].Entered++
				w.beats[r].Count++
			}
			w.beats[2].Lanes[0].Op = "barrier"
			w.stand(45, nil)
		}, "hung: all ranks have been in backward or barrier for 32 s, and all of them run: ranks 0, 1, 3 in backward; rank 2 in barrier: the script takes them different ways, or the network between them, or the communication library, does not get on"},
		{"a debugger holds one", func(w *world) {
			w.enter(0, 1, 2)
			w.beats[3].Sight.Traced = true
			w.stand(80, nil)
		}, "suspect: rank 3 (node-1, local 1, pid 103) has not entered all_reduce #1201 for 10 s; 3 others wait in it; it is asleep"},
		{"not looked at from outside", func(w *world) {
			w.enter(0, 1, 2)
			for range 100 {
				w.at += time.Second
				beats := append([]job.Beat(nil), w.beats...)
				for i := range beats {
					beats[i].Sight = nil
				}
				w.found = append(w.found, w.judge.Observe(Look{At: w.at, Beats: beats})...)
			}
		}, "slow: rank 3 (node-1, local 1, pid 103) has not entered all_reduce #1201 for 30 s; 3 others wait in it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(4, Limits{}).train(120)
			tt.play(w)
			got := ""
			if f := w.worst(); f != nil {
				got = f.Stage.String() + ": " + f.Sentence(two())
			}
			if got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// TestNumbersApart shows that nobody says "all ranks are in it" of a world in which some are in nothing, whatever they have counted: of
// pipelines the middle stages count more than the others.
func TestNumbersApart(t *testing.T) {
	const seed = 5
	random := rand.New(rand.NewPCG(seed, 0))
	for n := range 100 {
		w := newWorld(2+random.IntN(7), Limits{})
		for r := range w.beats {
			w.beats[r].Lanes[0].Entered += uint64(r * random.IntN(50))
			if w.beats[r].Lanes[0].Members = len(w.beats); random.IntN(2) == 0 {
				w.beats[r].Lanes[0].Op = ""
			}
		}
		w.train(120)
		outside := random.IntN(len(w.beats))
		for r := range w.beats {
			if r != outside && (len(w.beats) == 2 || r == (outside+1)%len(w.beats) || random.IntN(3) > 0) {
				w.enter(r)
			}
		}
		for r := range w.beats { // who is in nothing has counted more
			if l := &w.beats[r].Lanes[0]; !l.Waits() {
				l.Entered += 500
				l.Completed = l.Entered
			}
		}
		w.stand(45, nil)
		f := w.worst()
		if f == nil || f.Stage != Hung || f.Class != Absent || f.Number != 0 || !blames(f, outside) {
			t.Fatalf("seed %d, world %d: rank %d is outside: %+v", seed, n, outside, f)
		}
		if got := f.Sentence(two()); !strings.Contains(got, " not entered a collective for ") {
			t.Fatalf("seed %d, world %d: %s", seed, n, got)
		}
	}
}

func blames(f *Finding, rank int) bool {
	return slices.ContainsFunc(f.Culprits, func(c job.Culprit) bool { return c.Rank == rank })
}

// transfers makes the world a pipeline's, whose ranks number their sends and receives among the collectives; some of them wait to receive.
func (w *world) transfers(waiting ...int) {
	for r := range w.beats {
		b := &w.beats[r]
		b.Lanes[0].Mixed, b.Lanes[0].Members = r > 0, len(w.beats)
		b.Lanes[0].Entered += uint64(r * 100)
		b.Lanes[0].Completed = b.Lanes[0].Entered
		b.Lanes = append(b.Lanes, job.Lane{Entered: 50, Completed: 50})
		if slices.Contains(waiting, r) {
			b.Lanes[1].Entered, b.Lanes[1].Op = 51, "recv"
		}
		b.Count += 300
	}
	w.look()
}

// receives lets ranks wait to receive, in a world whose backend does not number that.
func (w *world) receives(waiting ...int) {
	for r := range w.beats {
		w.beats[r].Lanes[0].Members = len(w.beats)
		w.beats[r].Lanes = append(w.beats[r].Lanes, job.Lane{Entered: 50, Completed: 50})
		w.beats[r].Count += 50
	}
	for _, r := range waiting {
		w.beats[r].Lanes[1].Entered, w.beats[r].Lanes[1].Op = 51, "recv"
	}
	w.look()
}

// calls gives the ranks calls instead of collectives.
func (w *world) calls() {
	for r := range w.beats {
		w.beats[r].Sources = job.FromHooks
		w.beats[r].Lanes = []job.Lane{{Op: "backward", Entered: 50, Completed: 50}}
	}
}

// TestNotAllRun shows that nobody is accused of an error in the script while a rank that the others wait for does not run at all.
func TestNotAllRun(t *testing.T) {
	w := newWorld(4, Limits{}).train(120)
	for r := range w.beats {
		w.beats[r].Lanes[0].Members = 4
	}
	w.enter(0, 1, 2)
	w.beats = w.beats[:3] // it failed, and is to be started again
	w.stand(700, nil)
	if f := w.worst(); f == nil || f.Stage != Unclear {
		t.Errorf("%+v", f)
	}
}

// TestLearns shows that a world which often pauses is given more time, and one that does not is not.
func TestLearns(t *testing.T) {
	w := newWorld(4, Limits{})
	for range 20 {
		w.train(60).stand(40, nil)
	}
	w.found = nil
	if got, want := w.judge.Limit(), 200*time.Second; got < want || got > 220*time.Second {
		t.Errorf("after pauses of 40 s the limit is %v, not about %v", got, want)
	}
	w.enter(0, 1, 2)
	w.stand(190, nil)
	if f := w.worst(); f == nil || f.Stage != Suspect {
		t.Errorf("before the limit: %+v", f)
	}
	w.stand(30, nil)
	if f := w.worst(); f == nil || f.Stage != Hung {
		t.Errorf("after the limit: %+v", f)
	}
}

// TestBeginning shows that a world which has not trained yet has more time.
func TestBeginning(t *testing.T) {
	w := newWorld(4, Limits{}).train(1)
	w.enter(0, 1, 2)
	w.stand(590, nil)
	if f := w.worst(); f != nil {
		t.Errorf("in the first steps: %+v", f)
	}
	w.stand(615, nil)
	if f := w.worst(); f == nil || f.Stage != Hung || len(f.Culprits) != 1 || f.Culprits[0].Rank != 3 {
		t.Errorf("after twenty minutes: %+v", f)
	}
}

// A world whose steps are short trains as soon as it has done enough of them, not only after so many looks; and one of which another judge saw that it does
// need not show it again.
func TestTrainsSoon(t *testing.T) {
	for name, c := range map[string]struct {
		trained bool
		looks   int
		hung    bool
	}{"after 30 steps": {looks: 3, hung: true}, "after 20": {looks: 2}, "begun": {looks: 1}, "another judge's": {looks: 1, trained: true, hung: true}} {
		w := newWorld(4, Limits{Trained: c.trained})
		if c.trained {
			for i := range w.beats {
				w.beats[i].Count, w.beats[i].Steps = 400, 200
			}
		}
		w.train(c.looks).enter(0, 1, 2)
		w.stand(60, nil)
		if f := w.worst(); (f != nil && f.Stage == Hung && blames(f, 3)) != c.hung {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// What another judge has learned of a world's pauses counts for the one that takes over.
func TestLearnedByAnother(t *testing.T) {
	w := newWorld(4, Limits{})
	for range 20 {
		w.train(60).stand(60, nil)
	}
	var l Limits
	l.Trained, l.Learned = w.judge.Learned()
	if !l.Trained || l.Learned < 300*time.Second {
		t.Fatalf("%+v", l)
	}
	w.judge, w.found = New(l), nil
	w.enter(0, 1, 2)
	if w.stand(int(l.Learned.Seconds())-5, nil); w.worst() != nil && w.worst().Stage == Hung {
		t.Errorf("too early: %+v", w.worst())
	}
	if f := w.stand(15, nil).worst(); f == nil || f.Stage != Hung || !blames(f, 3) {
		t.Errorf("%+v", f)
	}
}

// Who waits in the collective of all is told of before the framework gives up also before the world trains.
func TestOwnTimeOutAtTheBeginning(t *testing.T) {
	for own, want := range map[time.Duration]time.Duration{20 * time.Second: floor, time.Minute: 45 * time.Second, 10 * time.Minute: 570 * time.Second, time.Hour: 20 * time.Minute, 0: 20 * time.Minute} {
		w := newWorld(4, Limits{})
		for i := range w.beats {
			w.beats[i].Limit = own
		}
		w.train(1).enter(0, 1, 2)
		if w.stand(int(want.Seconds()), nil); w.worst() != nil && w.worst().Stage == Hung {
			t.Errorf("%v: too early: %+v", own, w.worst())
		}
		if f := w.stand(4, nil).worst(); f == nil || f.Stage != Hung || !blames(f, 3) {
			t.Errorf("%v: %+v", own, f)
		}
	}
}

// What ends because the framework gave up on a hang is no pause of the job's.
func TestHangIsNoPause(t *testing.T) {
	w := newWorld(4, Limits{})
	for i := range w.beats {
		w.beats[i].Limit = time.Minute
	}
	w.train(100).enter(0, 1, 2)
	w.stand(60, nil)
	w.beats = w.beats[1:]
	w.look()
	if all := w.judge.Clashes(); len(all) > 0 {
		t.Errorf("%+v", all)
	}
}

// TestOwnTimeOut shows that a verdict comes before the framework ends the job and names nobody.
func TestOwnTimeOut(t *testing.T) {
	w := newWorld(2, Limits{})
	for i := range w.beats {
		w.beats[i].Limit = 2 * time.Minute
	}
	for range 20 {
		w.train(60).stand(40, nil)
	}
	if got := w.judge.Limit(); got != 90*time.Second {
		t.Errorf("the limit is %v, not half a minute less than the framework's 2m", got)
	}
}

// TestGuards shows that time during which nothing could be seen is nobody's fault.
func TestGuards(t *testing.T) {
	t.Run("the judge stood still", func(t *testing.T) {
		w := newWorld(4, Limits{}).train(120)
		w.enter(0, 1, 2)
		w.stand(5, nil)
		w.at += time.Hour
		w.stand(3, nil)
		if f := w.worst(); f != nil {
			t.Errorf("after an hour that nobody saw: %+v", f)
		}
	})
	t.Run("a clock that goes back", func(t *testing.T) {
		w := newWorld(4, Limits{}).train(120)
		w.at -= time.Hour
		w.train(10).stand(5, nil)
		if f := w.worst(); f != nil {
			t.Errorf("%+v", f)
		}
	})
	t.Run("a node is silent", func(t *testing.T) {
		w := newWorld(4, Limits{}).train(120)
		for range 600 {
			w.at += time.Second
			w.found = append(w.found, w.judge.Observe(Look{At: w.at, Beats: w.beats[:2], Unheard: []int{2, 3}})...)
		}
		if f := w.worst(); f != nil {
			t.Errorf("while half of the world is not heard: %+v", f)
		}
		w.enter(0, 1, 2)
		w.stand(45, nil)
		if f := w.worst(); f == nil || f.Stage != Hung {
			t.Errorf("after it is heard again: %+v", f)
		}
	})
	t.Run("steps that count down", func(t *testing.T) {
		w := newWorld(1, Limits{}).train(120)
		w.stand(600, func() { w.beats[0].Steps-- }) // and the count of beats has it that the sum stays
		if f := w.worst(); f != nil {
			t.Errorf("%+v", f)
		}
	})
	for name, c := range map[string]struct {
		n    uint64
		step func(i uint64) uint64
	}{
		"steps that count down to the standstill":      {20, func(i uint64) uint64 { return 20 - i }},
		"steps that begin anew with each epoch":        {20, func(i uint64) uint64 { return i % 4 }},
		"steps that count down, and fall below zero":   {45, func(i uint64) uint64 { return 10 - min(i, 10) }},
		"steps of which each hundredth is reported":    {20, func(i uint64) uint64 { return 100 * min(i, 8) }},
		"beats of a program that counts nothing":       {45, func(uint64) uint64 { return 0 }},
		"steps that are in the thousands at the start": {20, func(i uint64) uint64 { return 5000 + i }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(2, Limits{})
			for i := range c.n {
				for r := range w.beats {
					b := &w.beats[r]
					b.Sources, b.Count, b.Steps = job.FromBeats, i+1, c.step(i)
				}
				w.look()
			}
			w.stand(60, nil)
			if f := w.worst(); f == nil || f.Stage != Hung {
				t.Errorf("of a standstill it says %+v", f)
			}
		})
	}
	t.Run("three steps, and then an evaluation", func(t *testing.T) {
		w := newWorld(2, Limits{})
		for i := range uint64(3) {
			for r := range w.beats {
				w.beats[r].Sources, w.beats[r].Count, w.beats[r].Steps = job.FromBeats|job.FromHooks, 20*(i+1), i+1
			}
			w.look()
		}
		for range 8 { // what an evaluation calls
			for r := range w.beats {
				w.beats[r].Count++
			}
			w.look()
		}
		w.stand(300, nil)
		if f := w.worst(); f != nil && f.Stage >= Suspect {
			t.Errorf("%+v", f)
		}
	})
	t.Run("another process", func(t *testing.T) {
		w := newWorld(4, Limits{}).train(120)
		w.enter(0, 1, 2)
		w.stand(25, nil)
		w.beats[3].PID, w.beats[3].Count = 900, 0
		w.stand(8, nil)
		if f := w.worst(); f == nil || f.Stage != Suspect {
			t.Errorf("eight seconds after a rank was started again: %+v", f)
		}
	})
}

// TestFalseAlarm shows that a verdict which progress contradicts is taken back, and learned from.
func TestFalseAlarm(t *testing.T) {
	w := newWorld(4, Limits{}).train(120)
	w.enter(0, 1, 2)
	w.stand(50, nil)
	w.enter(3)
	w.train(10)
	last := w.found[len(w.found)-1]
	if last.Stage != Resumed || !last.False {
		t.Errorf("the last finding is %+v", last)
	}
	if got := last.Sentence(two()); got != "training goes on after 50 s: it was no hang, which counts as a false alarm" {
		t.Error(got)
	}
	if got := w.judge.Limit(); got < 150*time.Second {
		t.Errorf("the limit is still %v", got)
	}
}

// TestSaysOnce shows that a standstill is told in few words.
func TestSaysOnce(t *testing.T) {
	w := newWorld(4, Limits{}).train(120)
	w.enter(0, 1, 2)
	w.stand(300, nil)
	var stages []string
	for _, f := range w.found {
		stages = append(stages, f.Stage.String())
	}
	if got := strings.Join(stages, " "); got != "suspect hung" {
		t.Error(got)
	}
}

// TestRandomWorlds holds the first promise against worlds that do anything: nothing is said against anybody while any rank's counter
// advances. And a rank that hangs after that is found within the limit.
func TestRandomWorlds(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(2+random.IntN(6), Limits{GPUs: seed%3 == 0}).train(30)
		w.various(random)
		for range 300 {
			w.anything(random)
			before := w.counted()
			found := len(w.found)
			w.look()
			for _, f := range w.found[found:] {
				if f.Stage != Resumed && w.counted() != before {
					t.Fatalf("seed %d: %v while a rank advances", seed, f.Stage)
				}
			}
		}
		w.train(2)
		guilty, done := random.IntN(len(w.beats)), w.beats[0].Lanes[0].Entered
		for r := range w.beats {
			b := &w.beats[r]
			b.Sources = job.FromRecorder
			b.Lanes = []job.Lane{{Group: dp, Op: "all_reduce", Entered: done, Completed: done}}
			b.Sight.State = 'S'
			if r != guilty {
				w.enter(r)
			}
		}
		w.found = nil
		limit := w.judge.Limit()
		w.stand(int(limit.Seconds())+8, nil)
		f := w.worst()
		if f == nil || f.Stage != Hung || f.Class != Absent || len(f.Culprits) != 1 || f.Culprits[0].Rank != guilty {
			t.Fatalf("seed %d: rank %d hangs for longer than %v, and the judge says %+v", seed, guilty, limit, f)
		}
	}
}

// counted is the sum of all that ranks count.
func (w *world) counted() (n uint64) {
	for _, b := range w.beats {
		n += b.Count + b.Steps
	}
	return n
}

// various gives some ranks another group, and some only calls, or nothing, to tell of.
func (w *world) various(random *rand.Rand) {
	for r := range w.beats {
		switch random.IntN(6) {
		case 0:
			w.beats[r].Sources, w.beats[r].Lanes = job.FromHooks, []job.Lane{{Op: "backward"}}
		case 1:
			w.beats[r].Sources = 0
		default:
			w.beats[r].Lanes = append(w.beats[r].Lanes, job.Lane{Group: uint64(0x70 + random.IntN(2)), Name: "tp", Op: "all_gather"})
		}
	}
}

// TestNothingMoves holds the second promise: wherever ranks are that tell of themselves and do nothing, and whether they can run or not,
// there is a verdict as soon as the limit is over.
func TestNothingMoves(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 2))
		w := newWorld(2+random.IntN(7), Limits{}).train(30)
		calls := seed%4 == 0 // a world has one PyTorch
		if calls {
			w.calls()
		}
		w.groups(calls)
		if seed%4 == 1 {
			w.pipes(random)
		}
		w.train(3)
		for r := range w.beats {
			w.settles(random, r)
		}
		w.look()
		w.found = nil
		began, limit := w.at, w.judge.Limit()
		for !w.hung() && w.at-began < time.Hour {
			w.look()
		}
		if took := w.at - began; took > limit+again+2*time.Second {
			t.Fatalf("seed %d: a verdict after %v, with a limit of %v: %+v\n%+v", seed, took, limit, w.worst(), w.beats)
		}
	}
}

func (w *world) hung() bool {
	f := w.worst()
	return f != nil && f.Stage == Hung
}

// groups gives the ranks more groups to be in: neighbours, and those that are as far apart as it goes.
func (w *world) groups(calls bool) {
	n := len(w.beats)
	for r := range w.beats {
		if calls {
			return
		}
		w.beats[r].Lanes[0].Members = n
		for i, g := range []int{r / 2, r % 2} {
			size := []int{min(2, n-2*(r/2)), (n + 1 - r%2) / 2}[i]
			w.beats[r].Lanes = append(w.beats[r].Lanes, job.Lane{Group: uint64(0x100*(i+1) + g), Name: fmt.Sprint("g", i), Op: "all_gather", Members: size,
				Entered: 7, Completed: 7})
		}
	}
}

// pipes has ranks send and receive, too, which groups number among their collectives, each rank as it goes.
func (w *world) pipes(random *rand.Rand) {
	for r := range w.beats {
		b := &w.beats[r]
		for i := range b.Lanes {
			l := &b.Lanes[i]
			if l.Mixed = random.IntN(2) == 0; l.Mixed {
				l.Entered += uint64(random.IntN(50))
				l.Completed = l.Entered
			}
		}
		if random.IntN(4) > 0 {
			b.Lanes = append(b.Lanes, job.Lane{Op: "recv", Entered: 50, Completed: 50})
		}
	}
}

// settles lets a rank come to rest somewhere.
func (w *world) settles(random *rand.Rand, r int) {
	b := &w.beats[r]
	b.Count++
	lane := &b.Lanes[random.IntN(len(b.Lanes))]
	lane.Entered += uint64(random.IntN(2))
	b.Sight.State = "SSSSSDTt"[random.IntN(8)]
	b.Sight.Held = random.IntN(10) == 0
	if random.IntN(10) == 0 {
		lane.Op = "broadcast"
	}
}

// anything lets each rank do something, or nothing.
func (w *world) anything(random *rand.Rand) {
	if random.IntN(20) > 0 { // now and then nobody moves for a while
		r := random.IntN(len(w.beats))
		b := &w.beats[r]
		b.Count++
		if lane := &b.Lanes[0]; lane.Waits() {
			lane.Completed++
		} else {
			lane.Entered++
		}
	}
	w.works(random.IntN(len(w.beats)))
	states := "RSSSSDT"
	w.beats[random.IntN(len(w.beats))].Sight.State = states[random.IntN(len(states))]
	if random.IntN(40) == 0 {
		w.stand(random.IntN(20), nil)
	}
}

func TestStragglers(t *testing.T) {
	w := newWorld(4, Limits{})
	for i := range 300 {
		for r := range w.beats {
			b := &w.beats[r]
			b.Count++
			b.Lanes[0].Entered = uint64(10 * i)
			b.Lanes[0].Completed = b.Lanes[0].Entered
			if r != 2 && i%2 == 0 {
				b.Lanes[0].Entered++
			}
		}
		w.look()
	}
	got := fmt.Sprint(w.judge.Stragglers())
	if got != "[the others wait for rank 2: it spends 0 % of its time in collectives, they 50 %]" {
		t.Error(got)
	}
}

// TestFirstWords shows that what is first said of a straggler is whole, also where the order of ranks is known before their times in
// collectives are, and that these are not waited for forever.
func TestFirstWords(t *testing.T) {
	for every, want := range map[int]string{
		2:  "[the others wait for rank 2: it comes last in 100 % of all cases, and is behind the others 100 % of the time, 2.0 s of each step of 2.0 s; it spends 0 % of its time in collectives, they 100 %]",
		10: "[the others wait for rank 2: it comes last in 100 % of all cases, and is behind the others 100 % of the time, 10 s of each step of 10 s]",
	} {
		w, said := newWorld(4, Limits{}), ""
		for i := 0; i < 400 && said == ""; i++ {
			for r := range w.beats {
				b := &w.beats[r]
				b.Second = uint8(1 + i%60)
				n := uint64(1 + i/every) // at the looks between it nobody advances
				b.Count, b.Steps, b.Lanes[0] = n, n, job.Lane{Group: dp, Members: 4, Entered: 10 + n, Completed: 9 + n}
				if r == 2 {
					b.Lanes[0].Entered--
				}
			}
			w.look()
			if found := w.judge.Stragglers(); len(found) > 0 {
				said = fmt.Sprint(found)
			}
		}
		if said != want {
			t.Errorf("where one of %d looks sees an advance: %s, want %s", every, said, want)
		}
	}
}

// TestStragglerStays shows that what was said is not taken back when a rank goes on as another process, of which less is known.
func TestStragglerStays(t *testing.T) {
	w, said := newWorld(4, Limits{}), false
	for i := range 600 {
		for r := range w.beats {
			b := &w.beats[r]
			n := uint64(1 + i)
			b.Second, b.Count, b.Steps = uint8(1+i%60), n, n
			b.Lanes[0] = job.Lane{Group: dp, Members: 4, Entered: 10 + n, Completed: 9 + n}
			if r == 2 {
				b.Lanes[0].Entered--
			}
			if r == 0 && i == 100 {
				b.PID += 1000
			}
		}
		w.look()
		is := len(w.judge.Stragglers()) == 1
		if said && !is {
			t.Fatalf("at %d s it is taken back", i)
		}
		said = said || is
	}
	if !said {
		t.Error("it is never said")
	}
}

// TestNoMember shows that nobody is waited for in a group of others: who is a member says so before it has used it.
func TestNoMember(t *testing.T) {
	w := newWorld(4, Limits{}).train(120)
	for r := range 2 {
		w.beats[2+r].Lanes = append(w.beats[2+r].Lanes, job.Lane{Group: 0x77, Name: "2", Members: 2, Op: "all_reduce"})
	}
	w.beats[2].Lanes[1].Entered++
	w.stand(60, nil)
	if f := w.worst(); f == nil || f.Stage != Hung || f.Class != Absent || len(f.Culprits) != 1 || f.Culprits[0].Rank != 3 || f.Number != 1 {
		t.Errorf("%+v", f)
	}
}

// TestStores shows that who waits for a file system that is to take what it wrote is slow, and hangs only after as long as one at work may take: a checkpoint
// that is uploaded when it is closed looks like one on a dead file system.
func TestStores(t *testing.T) {
	for name, c := range map[string]struct {
		state byte
		ranks []int // that store
		class string
		looks string
	}{
		"asleep":         {'S', []int{0}, Absent, "writing to its storage in request_wait_answer"},
		"in the kernel":  {'D', []int{0}, Absent, "in the kernel, state D in request_wait_answer"},
		"all of them do": {'S', []int{0, 1, 2, 3}, Starved, "writing to its storage in request_wait_answer"},
	} {
		w := newWorld(4, Limits{Busy: 5 * time.Minute}).train(120)
		if len(c.ranks) < 4 {
			w.enter(1, 2, 3)
		}
		stores := func() {
			for _, r := range c.ranks {
				w.beats[r].Sight = &job.Sight{State: c.state, Stores: true, Waits: "request_wait_answer"}
			}
		}
		w.stand(200, stores)
		if f := w.worst(); f == nil || f.Stage != Slow || f.Class != c.class || f.Culprits[0].Rank != 0 || f.Culprits[0].Looks != c.looks {
			t.Errorf("%s, after a while: %+v", name, f)
		}
		w.stand(110, stores)
		if f := w.worst(); f == nil || f.Stage != Hung || f.Class != c.class || f.Culprits[0].Halted != (c.state == 'D') {
			t.Errorf("%s, at last: %+v", name, f)
		}
	}

	w := newWorld(4, Limits{Busy: 5 * time.Minute}).train(120)
	w.stand(400, func() {
		for r := range w.beats {
			w.works(r)
			w.beats[r].Sight.State, w.beats[r].Sight.Stores = 'S', true
		}
	})
	if f := w.worst(); f == nil || f.Stage != Unclear {
		t.Errorf("a thread of each does, and the others evaluate: %+v", f)
	}

	w = newWorld(4, Limits{Busy: 5 * time.Minute}).train(120)
	w.enter(1, 2, 3)
	w.stand(60, func() { w.beats[0].Sight = &job.Sight{State: 'T', Stores: true} })
	if f := w.worst(); f == nil || f.Stage != Hung || !f.Culprits[0].Halted {
		t.Errorf("stopped as it wrote: %+v", f)
	}
}

// commanded is a world of which all ranks but the first have a thread that waits for the next command, which comes in a group of its own.
func commanded(ranks int, l Limits) *world {
	w := newWorld(ranks, l)
	for r := range w.beats {
		b := &w.beats[r]
		b.Lanes[0].Members = ranks
		b.Lanes = append(b.Lanes, job.Lane{Group: 0x77, Name: "command", Op: "broadcast", Members: ranks, Entered: 3, Completed: 3, Host: true})
		if r > 0 {
			b.Lanes[1].Entered++
		}
	}
	return w.train(120)
}

// TestBeside shows that who goes on beside a collective, which another of its threads waits in, is waited for like any other, and that it is no hang
// while it works; and that of those that wait in nothing else the wait counts.
func TestBeside(t *testing.T) {
	w := commanded(4, Limits{Busy: 5 * time.Minute})
	w.enter(0, 1, 3)
	w.stand(60, nil)
	if f := w.worst(); f == nil || f.Stage != Hung || f.Class != Absent || len(f.Culprits) != 1 || f.Culprits[0].Rank != 2 || f.Waiting != 3 {
		t.Errorf("one that sleeps: %+v", f)
	}

	w = commanded(4, Limits{Busy: 5 * time.Minute})
	w.enter(0, 1, 3)
	w.stand(120, func() { w.works(2) })
	if f := w.worst(); f == nil || f.Stage != Slow || f.Culprits[0].Rank != 2 {
		t.Errorf("one that evaluates: %+v", f)
	}

	w = commanded(4, Limits{})
	w.stand(60, nil)
	if f := w.worst(); f == nil || f.Stage != Hung || f.Class != Absent || len(f.Culprits) != 1 || f.Culprits[0].Rank != 0 || f.Op != "broadcast" {
		t.Errorf("one that gives no command: %+v", f)
	}
}

// TestBesideIsNoStraggler shows that nobody is waited for in a thread beside the training.
func TestBesideIsNoStraggler(t *testing.T) {
	w := commanded(4, Limits{}).train(200)
	if got := w.judge.Stragglers(); len(got) > 0 {
		t.Error(got)
	}
}

// TestNotBeside shows that who has only issued something early waits for it, whatever it does or tells meanwhile.
func TestNotBeside(t *testing.T) {
	for name, c := range map[string]struct {
		lane  job.Lane // that is pending on rank 0
		goes  func(b *job.Beat)
		class string
	}{
		"between two steps":                               {job.Lane{Group: 0x77, Members: 4, Host: true}, func(b *job.Beat) { b.Lanes[0].Entered += 50; b.Lanes[0].Completed += 50 }, Network},
		"a step later, with few others":                   {job.Lane{Group: 0x77, Members: 4, Host: true}, func(b *job.Beat) { b.Steps++; b.Lanes[0].Entered++; b.Lanes[0].Completed++ }, Network},
		"on an accelerator, of which the host runs ahead": {job.Lane{Group: 0x77, Members: 4}, func(b *job.Beat) { b.Steps += 9; b.Lanes[0].Entered += 50; b.Lanes[0].Completed += 50 }, Network},
		"a report that stands for many steps":             {job.Lane{Group: 0x77, Members: 4, Host: true}, func(b *job.Beat) { b.Sources |= job.FromBeats; b.Steps += 100 }, Network},
		"more lanes than are shown": {job.Lane{Group: 0x77, Members: 4, Host: true}, func(b *job.Beat) {
			b.Steps++
			for i := range uint64(mostShown) {
				b.Lanes = append(b.Lanes, job.Lane{Group: 0x100 + i, Members: 2, Entered: 5000, Completed: 5000})
			}
		}, Network},
	} {
		w := newWorld(4, Limits{})
		for r := range w.beats {
			c.lane.Entered, c.lane.Completed = 9, 9
			w.beats[r].Lanes = append(w.beats[r].Lanes, c.lane)
		}
		w.train(120)
		for r := range w.beats {
			w.beats[r].Lanes[1].Entered++
			w.beats[r].Count++
		}
		w.look()
		w.beats[0].Count++
		c.goes(&w.beats[0])
		w.stand(60, nil)
		if f := w.worst(); f == nil || f.Stage != Hung || f.Class != c.class || len(f.Culprits) > 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestDesyncAtWork shows that nobody's script is blamed where one that waits works in another thread, as a judge sees it that has just begun.
func TestDesyncAtWork(t *testing.T) {
	w := newWorld(4, Limits{Busy: 5 * time.Minute, Trained: true})
	for r := range w.beats {
		w.beats[r].Lanes[0].Members, w.beats[r].Lanes[0].Entered, w.beats[r].Lanes[0].Completed, w.beats[r].Count = 4, 50, 50, 50
		w.beats[r].Lanes = append(w.beats[r].Lanes, job.Lane{Group: 0x77, Members: 4, Op: "broadcast", Host: true})
	}
	w.beats[2].Lanes[1].Entered++
	w.enter(0, 1, 3)
	w.stand(120, func() { w.works(2) })
	if f := w.worst(); f == nil || f.Stage != Slow || f.Class != Desync {
		t.Errorf("%+v", f)
	}
}

// TestUneven shows that an all_reduce of another size, through which who moves less has come, is an error in the script, and of nobody else's if the sizes are alike.
func TestUneven(t *testing.T) {
	small, large := kind{"all_reduce", 16}, kind{"all_reduce", 32}
	for name, c := range map[string]struct {
		in    []int // who does not come out of it
		was   kind
		class string
		rank  int // to blame; -1: nobody
		says  string
	}{
		"one moves more": {[]int{1}, small, Desync, 1, "rank 1 in all_reduce of 32 bytes #1201; ranks 0, 2, 3 through with #1201, of another kind or size there; that is an error in the script"},
		"one moves less": {[]int{0, 1, 3}, small, Desync, 2, "rank 2 through with #1201, of another kind or size there; ranks 0, 1, 3 in all_reduce of 32 bytes #1201; that"},
		"all are alike":  {[]int{1}, large, Network, -1, "1 rank has been in all_reduce #1201 for 32 s, and all ranks run: rank 1 in it, ranks 0, 2, 3 through with it: the network between them"},
		"nobody knows":   {[]int{1}, kind{}, Network, -1, "through with it"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(4, Limits{}).train(120)
			w.enter(0, 1, 2, 3)
			for r := range w.beats {
				l := &w.beats[r].Lanes[0]
				l.Members, l.Host, l.Op, l.Bytes = 4, true, large.op, large.bytes
				if !slices.Contains(c.in, r) {
					l.Completed, l.Entered, l.Op, l.Bytes = l.Entered, l.Entered+1, "barrier", 0
					if c.was != (kind{}) {
						l.Mark = c.was.mark()
					}
				}
			}
			w.stand(45, nil)
			f := w.worst()
			if f == nil || f.Stage != Hung || f.Class != c.class || len(f.Culprits) > 0 != (c.rank >= 0) || c.rank >= 0 && (len(f.Culprits) != 1 || !blames(f, c.rank)) {
				t.Fatalf("%+v", f)
			}
			if got := f.Sentence(two()); !strings.Contains(got, c.says) {
				t.Error(got)
			}
		})
	}
}

// TestMarks shows that the hook marks a kind as the judge does, who knows only so much of its name as a page holds.
func TestMarks(t *testing.T) {
	const script = "import _muster_hook as h; print(h.mark_of('all_reduce', 32), h.mark_of('barrier', 8), h.mark_of('all_gather_into_tensor_coalesced', 8))"
	hook := exec.CommandContext(t.Context(), "python3", "-B", "-c", script)
	hook.Dir = "page/hook"
	out, err := hook.Output()
	want := fmt.Sprintln(kind{"all_reduce", 32}.mark(), kind{op: "barrier"}.mark(), kind{op: "all_gather_into_tensor_coalesced"[:31]}.mark())
	if err != nil || string(out) != want {
		t.Errorf("%q, want %q (%v)", out, want, err)
	}
}

// TestThrough shows what is said of who has come through a collective in which the others are, and is in nothing.
func TestThrough(t *testing.T) {
	for name, c := range map[string]struct {
		play  func(b *job.Beat)
		stage Stage
		class string
	}{
		"it sleeps":          {nil, Hung, Network},
		"it works":           {func(b *job.Beat) { b.Sight.CPU += 700 * time.Millisecond }, Slow, Network},
		"it stands still":    {func(b *job.Beat) { b.Sight.State = 'T' }, Hung, Absent},
		"its script is over": {func(b *job.Beat) { b.Over = true }, Slow, Absent},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(4, Limits{Busy: 5 * time.Minute}).train(120)
			w.enter(0, 1, 2, 3)
			for r := range w.beats {
				w.beats[r].Lanes[0].Members = 4
			}
			w.beats[1].Lanes[0].Completed++
			w.stand(60, func() {
				if c.play != nil {
					c.play(&w.beats[1])
				}
			})
			if f := w.worst(); f == nil || f.Stage != c.stage || f.Class != c.class {
				t.Errorf("%+v", f)
			}
		})
	}
}

// TestParted shows that who has left its groups for good is blamed by those who wait there, and by nobody else.
func TestParted(t *testing.T) {
	w := newWorld(4, Limits{}).train(120)
	for r := range w.beats {
		w.beats[r].Lanes[0].Members = 4
	}
	w.enter(0, 2, 3)
	w.beats[1].Sources, w.beats[1].Lanes, w.beats[1].Mute = job.Ready, nil, job.Parted
	w.stand(45, nil)
	f := w.worst()
	if f == nil || f.Stage != Hung || f.Class != Absent || len(f.Culprits) != 1 || !blames(f, 1) {
		t.Fatalf("%+v", f)
	}
	if got := f.Sentence(two()); !strings.Contains(got, "has not entered all_reduce #1201 for ") || !strings.HasSuffix(got, "it is asleep; in no process group any more") {
		t.Error(got)
	}
	w = newWorld(4, Limits{}).train(120)
	for r := range w.beats {
		w.beats[r].Sources, w.beats[r].Lanes, w.beats[r].Mute = job.Ready, nil, job.Parted
	}
	w.stand(900, nil)
	if f := w.worst(); f != nil && f.Stage > Unclear {
		t.Errorf("%+v", f)
	}
}

// TestStandstillIsNoStraggler shows that a standstill counts for a hang, and not for a straggler, whether it is suspected or nobody judges it.
func TestStandstillIsNoStraggler(t *testing.T) {
	for name, left := range map[string]time.Duration{"judged": 0, "not judged": time.Minute} {
		w := newWorld(4, Limits{})
		for i := range 180 {
			for r := range w.beats {
				b := &w.beats[r]
				b.Sources, b.Second = job.FromHooks, uint8(1+i%60)
				n := uint64(min(i, 90)) // then nobody advances
				b.Count, b.Steps, b.Left = 1+n, n, 0
				if i > 90 {
					b.Left = left
				}
				b.Lanes[0] = job.Lane{Group: dp, Members: 4, Entered: 10 + n}
				if i >= 90 && r == 2 {
					b.Lanes[0].Entered--
				}
			}
			w.look()
		}
		if got := w.judge.Stragglers(); len(got) > 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestPipeline shows that nobody is a straggler where ranks count apart, and that one is found where they do so no more.
func TestPipeline(t *testing.T) {
	w := newWorld(4, Limits{})
	for i := range 800 {
		for r := range w.beats {
			b := &w.beats[r]
			b.Count, b.Steps, b.Sources, b.Second = uint64(1+i), uint64(2*i), job.FromHooks, uint8(1+i%60)
			n := uint64(16 * i)
			if i < 400 && r == 0 { // the first stage
				n -= uint64(8 * i)
			}
			if i >= 400 && r == 2 {
				n--
			}
			b.Lanes[0] = job.Lane{Group: dp, Members: 4, Entered: n, Completed: n}
		}
		w.look()
		if got := w.judge.Stragglers(); i < 400 && len(got) > 0 {
			t.Fatalf("after %d s: %v", i, got)
		}
	}
	if got := w.judge.Stragglers(); len(got) != 1 || got[0].Rank != 2 {
		t.Error(got)
	}
}

// TestPace shows that a step's length is told right though a program goes on from a checkpoint, or jumps back and forth.
func TestPace(t *testing.T) {
	for name, jumps := range map[string]map[int]uint64{"at the beginning": {1: 500_000}, "later": {50: 500_000}, "never": nil} {
		o, at := order{moments: enough, waited: 1, last: map[int]float64{3: enough}}, uint64(1)
		for i := range 100 {
			at += 2 + jumps[i]
			o.pace(at, time.Duration(i)*time.Second)
		}
		if _, _, step := o.of(3); step < 450*time.Millisecond || step > 550*time.Millisecond {
			t.Errorf("%s: a step of %v", name, step)
		}
	}
}

// TestMomentsAnew shows that what was read before a pause does not keep out what is read behind it, and that no second is behind 60.
func TestMomentsAnew(t *testing.T) {
	var o order
	beat := func(rank int, second uint8, at time.Duration) {
		o.note(&job.Beat{Rank: rank, Second: second, Lanes: []job.Lane{{Group: dp, Members: 2, Entered: 5}}}, at)
	}
	both := func(second uint8, at time.Duration) { beat(0, second, at); beat(1, second, at) }
	both(1, time.Second)
	for i := range 8 { // 44 seconds later, which looks like 16 before
		both(uint8(45+i), time.Duration(45+i)*time.Second)
		both(200, time.Duration(45+i)*time.Second)
	}
	if o.moments < 3.5 { // of those that are over
		t.Errorf("%v moments count", o.moments)
	}
}

// TestLast tells who comes last, how often, and by how much, from what ranks had entered at the same moments. What is read of a moment
// comes in late, and twice, and in any order.
func TestLast(t *testing.T) {
	const all = job.FromHooks // such as of PyTorch 1.13: when collectives are completed is not seen
	for _, c := range []struct {
		name    string
		sources job.Source
		entered func(second, rank int) uint64 // beside what all have
		moment  func(second, rank int) uint8  // nil: each begin of a second
		waits   func(second, rank int) bool
		lanes   func(second, rank int, lane job.Lane) []job.Lane // nil: one
		want    string
	}{
		{name: "one", sources: all, entered: func(s, r int) uint64 { return aheadOf(r != 2 && s%5 > 0) },
			want: "[the others wait for rank 2: it comes last in 100 % of all cases, and is behind the others 80 % of the time, 399 ms of each step of 500 ms]"},
		{name: "one, in one of two groups of all", sources: all, entered: func(_, r int) uint64 { return aheadOf(r != 2) },
			lanes: func(s, r int, l job.Lane) []job.Lane {
				other := job.Lane{Group: 0x77, Members: 4, Entered: uint64(100 * s)}
				if (s+r)%2 == 0 { // the one that was used last comes first
					return []job.Lane{other, l}
				}
				return []job.Lane{l, other}
			},
			want: "[the others wait for rank 2: it comes last in 100 % of all cases, and is behind the others 100 % of the time, 500 ms of each step of 500 ms]"},
		{name: "one, where the group of all is used at the start alone", sources: all, entered: func(_, r int) uint64 { return aheadOf(r != 2) },
			lanes: func(s, r int, l job.Lane) []job.Lane {
				l.Group, l.Members = uint64(0x70+r/2), 2
				return []job.Lane{{Group: dp, Members: 4, Entered: 3}, l}
			},
			want: "[the others wait for rank 2: it comes last in 100 % of all cases, and is behind the others 100 % of the time, 500 ms of each step of 500 ms]"},
		{name: "two in turns", sources: all, entered: func(s, r int) uint64 { return aheadOf(r != 1+s%2) },
			want: "[the others wait for rank 2: it comes last in 50 % of all cases, and is behind the others 50 % of the time, 250 ms of each step of 500 ms the others wait for rank 1: it comes last in 50 % of all cases, and is behind the others 50 % of the time, 250 ms of each step of 500 ms]"},
		{name: "anybody", sources: all, entered: func(s, r int) uint64 { return aheadOf(r != s%4) }, want: "[]"},
		{name: "half of them, ahead", sources: all, entered: func(_, r int) uint64 { return aheadOf(r == 0) }, want: "[]"},
		{name: "nobody", sources: all, entered: func(s, r int) uint64 { return 0 }, want: "[]"},
		{name: "read at another moment", sources: all, entered: func(s, r int) uint64 { return aheadOf(r != 2) },
			moment: func(s, r int) uint8 { return uint8(min(r, 1) * (1 + s%60)) }, want: "[]"},
		{name: "a clock that is wrong", sources: job.FromRecorder, entered: func(s, r int) uint64 { return aheadOf(r != 2) },
			waits: func(s, r int) bool { return s%2 == 0 }, want: "[]"},
		{name: "a recorder says so, too", sources: job.FromRecorder, entered: func(s, r int) uint64 { return aheadOf(r != 2 && s%2 == 0) },
			waits: func(s, r int) bool { return r != 2 && s%2 == 0 },
			want:  "[the others wait for rank 2: it comes last in 100 % of all cases, and is behind the others 50 % of the time, 250 ms of each step of 500 ms; it spends 0 % of its time in collectives, they 50 %]"},
	} {
		w := newWorld(4, Limits{})
		for i := range 1200 {
			for r := range w.beats {
				b := &w.beats[r]
				s := (i - r/2) // node 1 is heard a second later
				b.Count, b.Steps, b.Sources, b.Second = uint64(1+i), uint64(2*i), c.sources, uint8(1+(s+60)%60)
				if c.moment != nil {
					b.Second = c.moment(s, r)
				}
				b.Lanes[0] = job.Lane{Group: dp, Members: 4, Entered: uint64(10+10*s) + c.entered(s, r)}
				b.Lanes[0].Completed = b.Lanes[0].Entered
				if c.waits != nil && c.waits(s, r) {
					b.Lanes[0].Completed--
				}
				if c.lanes != nil {
					b.Lanes = c.lanes(s, r, b.Lanes[0])
				}
			}
			w.look()
			w.at -= time.Second - time.Millisecond // all is told twice
			w.look()
			w.at -= time.Millisecond
		}
		if got := fmt.Sprint(w.judge.Stragglers()); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func aheadOf(is bool) uint64 {
	if is {
		return 1
	}
	return 0
}

// BenchmarkObserve is one look at the beats of 10,000 nodes of 8 ranks.
func BenchmarkObserve(b *testing.B) {
	for _, ranks := range []int{8, 1000, 80_000} {
		for name, play := range map[string]func(*world){"trains": func(w *world) { w.enter(0) }, "stands": func(*world) {}} {
			b.Run(fmt.Sprintf("%s/ranks=%d", name, ranks), func(b *testing.B) {
				w := newWorld(ranks, Limits{}).train(30)
				for r := range ranks - 1 {
					w.enter(r)
				}
				w.stand(10, nil)
				b.ReportAllocs()
				for b.Loop() {
					play(w)
					w.at += time.Second
					w.judge.Observe(Look{At: w.at, Beats: w.beats})
				}
			})
		}
	}
}

// TestMemory bounds what a judge remembers of each rank while a world stands still, for it may have a hundred thousand.
func TestMemory(t *testing.T) {
	const ranks, most = 20_000, 580 // bytes
	before := inUse()
	w := newWorld(ranks, Limits{}).train(1).stand(15, nil)
	w.beats, w.found = nil, nil
	if each := (inUse() - before) / ranks; each > most {
		t.Errorf("%d bytes for each rank, more than %d", each, most)
	}
	runtime.KeepAlive(w)
}

func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Of calls, which cannot be matched, it is said who is in which, before the network is blamed.
func TestCallsApart(t *testing.T) {
	w := newWorld(4, Limits{})
	for r := range w.beats {
		w.beats[r].Lanes[0].Group, w.beats[r].Lanes[0].Op = 0, "backward"
	}
	w.train(120)
	w.beats[2].Lanes[0].Op = "barrier"
	w.enter(0, 1, 2, 3)
	w.stand(60, nil)
	f := w.worst()
	if f == nil || f.Class != Network || !strings.Contains(f.Sentence(two()), "all of them run: ranks 0, 1, 3 in backward; rank 2 in barrier: the script takes them different ways, or the network") {
		t.Errorf("%+v", f)
	}
}

// Who has told of nothing so far is waited for where others make a group with him, or are in the first collective of one.
func TestBeforeAnythingIsCounted(t *testing.T) {
	for _, c := range []struct {
		name, want string
		play       func(w *world)
	}{
		{"a rank does not come to make a group", "hung: rank 3 (node-1, local 1, pid 103) has not entered init_process_group for 1202 s; 3 others wait in it; it is asleep", func(w *world) {
			for r := range 3 {
				w.beats[r].Lanes = []job.Lane{{Op: "init_process_group", Entered: 1}}
			}
			w.busy = 1
		}},
		{"a rank does not come to the first collective", "hung: rank 3 (node-1, local 1, pid 103) has not entered all_reduce #1 for 1202 s; 3 others wait in it; it is asleep", func(w *world) {
			for r := range 3 {
				w.beats[r].Sources, w.beats[r].Lanes = job.FromRecorder, []job.Lane{{Group: dp, Name: "0", Op: "all_reduce", Entered: 1, Members: 4}}
			}
		}},
		{"a rank has ended, and does not come to make a group", "hung: rank 3 (node-1, local 1) has not entered init_process_group for 62 s; 3 others wait in it; it has ended with code 0", func(w *world) {
			w.await("init_process_group", job.Lane{})
		}},
		{"two have ended, and do not come to make another group", "hung: rank 2 (node-1, local 0) and rank 3 (node-1, local 1) have not entered new_group for 62 s; 2 others wait in it; rank 2 has ended with code 0", func(w *world) {
			w.await("new_group", job.Lane{})
			w.beats, w.ended = w.beats[:2], []int{2, 3}
		}},
		{"a rank has ended, and does not come to the first collective", "hung: rank 3 (node-1, local 1) has not entered all_reduce #1 for 62 s; 3 others wait in it; it has ended with code 0", func(w *world) {
			w.await("all_reduce", job.Lane{Group: dp, Name: "0", Members: 4})
		}},
		{"a rank has ended, and little time was asked for", "hung: rank 3 (node-1, local 1) has not entered init_process_group for 42 s; 3 others wait in it; it has ended with code 0", func(w *world) {
			w.judge.limits.Start = 40 * time.Second
			w.await("init_process_group", job.Lane{})
		}},
		{"a rank of another launcher has ended", "hung: rank 3 (node-1, local 1) has not entered init_process_group for 62 s; 3 others wait in it; it has done its work and ended", func(w *world) {
			w.judge.limits.Foreign = true
			w.await("init_process_group", job.Lane{})
		}},
		{"a rank has ended, and the others may do without it", "hung: rank 3 (node-1, local 1) has not entered backward for 1202 s; 3 others wait in it; it has ended with code 0", func(w *world) {
			w.await("backward", job.Lane{})
			w.busy = 1
		}},
		{"a rank is still ending", "hung: rank 3 (node-1, local 1, pid 103) has not entered init_process_group for 1202 s; 4 others wait in it; its script failed: ValueError: 7; it is asleep", func(w *world) {
			w.await("init_process_group", job.Lane{})
			w.beats = w.beats[:4]
			w.beats[3].Lanes = w.beats[2].Lanes
			w.over("its script failed: ValueError: 7", 3)
		}},
		{"all do something else", "unclear: no rank has told of progress for 1200 s; no rank has heartbeats", func(*world) {}},
		{"a rank stands beside", "unclear: no rank has told of progress for 1200 s; rank 3, which has no heartbeats, may be the one that is waited for", func(w *world) {
			for r := range 3 {
				w.beats[r].Sources, w.beats[r].Lanes = job.FromHooks, []job.Lane{{Op: "recv", Entered: 1}}
			}
		}},
	} {
		w := newWorld(4, Limits{})
		for i := range w.beats {
			w.beats[i].Sources, w.beats[i].Lanes = job.Ready, nil
		}
		c.play(w)
		w.stand(1205, func() { w.beats[0].Sight.CPU += time.Duration(w.busy) * time.Second })
		if f := w.worst(); f == nil || f.Stage.String()+": "+f.Sentence(two()) != c.want {
			t.Errorf("%s: %+v; want %s", c.name, f, c.want)
		}
	}
	w := newWorld(4, Limits{})
	w.beats[3].Sources, w.beats[3].Lanes = job.Ready, nil
	for range 120 {
		for r := range 3 {
			w.beats[r].Count += 20
			w.beats[r].Lanes[0].Entered += 10
			w.beats[r].Lanes[0].Completed += 10
		}
		w.look()
	}
	if !w.judge.trains() {
		t.Error("a rank that only stands beside keeps the others from training")
	}
}

// await lets the last rank end, before it has counted anything, and the others wait in what the lane has of a group.
func (w *world) await(op string, in job.Lane) {
	n := len(w.beats) - 1
	w.beats, w.ended = w.beats[:n], []int{n}
	in.Op, in.Entered = op, 1
	for r := range w.beats {
		w.beats[r].Lanes = []job.Lane{in}
		if in.Group != 0 {
			w.beats[r].Sources = job.FromRecorder
		}
	}
}

// A limit that is shorter than the usual floor is meant.
func TestShortCeiling(t *testing.T) {
	for _, c := range []struct{ given, want Limits }{
		{Limits{}, Limits{Floor: 30 * time.Second, Ceiling: 10 * time.Minute}},
		{Limits{Ceiling: 20 * time.Second}, Limits{Floor: 20 * time.Second, Ceiling: 20 * time.Second}},
		{Limits{Ceiling: time.Minute}, Limits{Floor: 30 * time.Second, Ceiling: time.Minute}},
		{Limits{Ceiling: 20 * time.Second, Floor: 25 * time.Second}, Limits{Floor: 25 * time.Second, Ceiling: 25 * time.Second}},
	} {
		if got := c.given.withDefaults(); got.Floor != c.want.Floor || got.Ceiling != c.want.Ceiling {
			t.Errorf("%v and %v of %v and %v", got.Floor, got.Ceiling, c.given.Floor, c.given.Ceiling)
		}
	}
}

// Ranks that come to the beginning one after another do not train by that: one that reads its data for minutes before it comes does not hang.
func TestComesLate(t *testing.T) {
	w := newWorld(8, Limits{})
	for i := range w.beats {
		w.beats[i].Sources, w.beats[i].Lanes = job.Ready, nil
	}
	for i := range w.beats[:7] {
		w.beats[i].Count, w.beats[i].Lanes = 1, []job.Lane{{Op: "init_process_group", Entered: 1}}
		w.stand(3, nil)
	}
	w.stand(500, nil)
	if f := w.worst(); f != nil {
		t.Errorf("%v: %s", f.Stage, f.Sentence(job.World{}))
	}
}
