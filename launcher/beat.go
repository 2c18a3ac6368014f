package launcher

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/muster-run/muster/evidence"
	"github.com/muster-run/muster/job"
)

// A beat is what the other agents have of this one: the leader judges by it, once a second, and it is what is left when a container
// was killed for its memory, with all that was in it.
type beat struct {
	Memory uint64 `json:"memory,omitempty"` // bytes, charged to the container's cgroup
	Limit  uint64 `json:"limit,omitempty"`  // its limit; 0: none

	// A member's alone.
	Generation int        `json:"gen,omitempty"`   // of the world, and
	Round      int        `json:"round,omitempty"` // its round, in which these are the workers
	Ranks      []job.Beat `json:"ranks,omitempty"`
	Ended      []int      `json:"ended,omitempty"` // ranks whose work is done
}

// A pulse is this agent's beat, as it is told about once a second.
type pulse struct {
	memory evidence.Memory

	mu   sync.Mutex
	beat beat
}

func newPulse() *pulse {
	memory, _ := evidence.OpenMemory("/", os.Getpid()) // a node without has nothing to tell of it
	return &pulse{memory: memory}
}

// show is what is told of the workers from now on.
func (p *pulse) show(b beat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beat = b
}

// maxBeat is how much of it the fleet takes, with some room.
const maxBeat = 60 << 10

// tell is the beat now; nil: there is nothing to tell.
func (p *pulse) tell() json.RawMessage {
	p.mu.Lock()
	b := p.beat
	p.mu.Unlock()
	if u, err := p.memory.Read(); err == nil && u.Limit != 0 {
		b.Memory, b.Limit = u.Current, u.Limit
	}
	if b.Limit == 0 && b.Ranks == nil && b.Ended == nil {
		return nil
	}
	return b.encode()
}

// encode leaves out what is dear if there is too much, and then what there is no room for at all: whoever is not heard of is not
// judged.
func (b beat) encode() json.RawMessage {
	for _, cut := range []func(*job.Beat){func(*job.Beat) {}, func(r *job.Beat) { r.Stack = nil }, func(r *job.Beat) { r.Lanes = r.Lanes[:min(len(r.Lanes), 4)] }} {
		ranks := append([]job.Beat(nil), b.Ranks...)
		for i := range ranks {
			cut(&ranks[i])
		}
		b.Ranks = ranks
		if text, _ := json.Marshal(b); len(text) <= maxBeat { // plain values: cannot fail
			return text
		}
	}
	text, _ := json.Marshal(beat{Memory: b.Memory, Limit: b.Limit})
	return text
}

// full is the share of its limit from which on a container's memory is a reason for its end.
const full = 0.9

// suspicion is the end of a sentence about a lost agent: what its last beat lets one think.
func suspicion(last json.RawMessage) string {
	var b beat
	if json.Unmarshal(last, &b) != nil || b.Limit == 0 || float64(b.Memory) < full*float64(b.Limit) {
		return ""
	}
	return fmt.Sprintf("; its container had %s of %s memory when it was last heard, and was probably killed for that", evidence.Size(b.Memory), evidence.Size(b.Limit))
}
