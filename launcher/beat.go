package launcher

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/muster-run/muster/evidence"
	"github.com/muster-run/muster/heartbeat"
	"github.com/muster-run/muster/job"
)

// A beat is what the other agents have of this one: the leader judges by it, once a second, and it is what is left when a container
// was killed for its memory, with all that was in it.
type beat struct {
	Memory uint64 `json:"memory,omitempty"` // bytes, charged to the container's cgroup
	Limit  uint64 `json:"limit,omitempty"`  // its limit; 0: none

	heartbeat.Report // a member's alone
}

// A pulse is this agent's beat, as it is told about once a second.
type pulse struct {
	memory evidence.Memory

	mu     sync.Mutex
	report heartbeat.Report
}

func newPulse() *pulse {
	memory, _ := evidence.OpenMemory("/", os.Getpid()) // a node without has nothing to tell of it
	return &pulse{memory: memory}
}

// show is what is told of the workers from now on: of a round of a world's generation, the ranks that live and those whose work is done.
func (p *pulse) show(generation, round int, ranks []job.Beat, ended []int) {
	report := heartbeat.Report{}
	if packed, ok := pack(ranks); ok {
		report = heartbeat.Report{Generation: generation, Round: round, Ranks: packed, Ended: ended}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report = report
}

// hush has nothing told of the workers any more.
func (p *pulse) hush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report = heartbeat.Report{}
}

// maxRanks is how many bytes of packed ranks the fleet takes, in text, with some room.
const maxRanks = 44 << 10

// pack leaves out what is dear if there is too much. If there is no room for them at all it reports false: whoever is not heard of is not
// judged.
func pack(ranks []job.Beat) ([]byte, bool) {
	for _, cut := range []func(*job.Beat){func(*job.Beat) {}, func(r *job.Beat) { r.Stack = nil }, func(r *job.Beat) { r.Lanes = r.Lanes[:min(len(r.Lanes), 4)] }} {
		ranks = append([]job.Beat(nil), ranks...)
		for i := range ranks {
			cut(&ranks[i])
		}
		if packed := heartbeat.Pack(ranks); len(packed) <= maxRanks {
			return packed, true
		}
	}
	return nil, false
}

// tell is the beat now; nil: there is nothing to tell.
func (p *pulse) tell() json.RawMessage {
	p.mu.Lock()
	b := beat{Report: p.report}
	p.mu.Unlock()
	if u, err := p.memory.Read(); err == nil && u.Limit != 0 {
		b.Memory, b.Limit = u.Current, u.Limit
	}
	if b.Limit == 0 && b.Ranks == nil && b.Ended == nil {
		return nil
	}
	text, _ := json.Marshal(b) // plain values: cannot fail
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
