package launcher

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/muster-run/muster/evidence"
)

// A beat is what the other agents have of this one when it is lost: a container that was killed for its memory, with all
// that was in it, leaves nothing else.
type beat struct {
	Memory uint64 `json:"memory,omitempty"` // bytes, charged to the container's cgroup
	Limit  uint64 `json:"limit,omitempty"`  // its limit; 0: none
}

// beats returns what reads this node's.
func beats() func() json.RawMessage {
	memory, _ := evidence.OpenMemory("/", os.Getpid()) // a node without has nothing to tell
	return func() json.RawMessage {
		u, err := memory.Read()
		if err != nil || u.Limit == 0 {
			return nil
		}
		b, _ := json.Marshal(beat{u.Current, u.Limit}) // numbers: cannot fail
		return b
	}
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
