package discovery

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// determinedInfo is what Determined's own first step of a trial leaves for the entrypoint.
const determinedInfo = "/run/determined/info/rendezvous.json"

// determined is a trial of Determined AI, or of HPE's Machine Learning Development Environment.
var determined = platform{
	name: "determined",
	here: func(r *reader) bool { return r.any("DET_ALLOCATION_ID", "DET_TRIAL_ID", "DET_TRIAL_RUN_ID") },
	find: func(r *reader, f *Finding) (err error) {
		text := r.file(determinedInfo)
		switch {
		case text == "" && !r.any("DET_TRIAL_ID", "DET_TRIAL_RUN_ID"):
			return harmless("DET_ALLOCATION_ID is a task's that is no trial")
		case text == "":
			r.text("DET_TRIAL_ID")
			return half("%s is not there: start muster by the entrypoint of the experiment, not in the place of Determined's own", determinedInfo)
		}
		var c struct {
			Addrs []string `json:"container_addrs"`
			Rank  int      `json:"container_rank"`
			Slots []int    `json:"container_slot_counts"`
		}
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			return fmt.Errorf("%s: %w", determinedInfo, err)
		}
		if len(c.Addrs) == 0 || c.Rank < 0 || c.Rank >= len(c.Addrs) {
			return fmt.Errorf("%s: container %d of %d cannot be", determinedInfo, c.Rank, len(c.Addrs))
		}
		f.Nodes, f.Rank = len(c.Addrs), c.Rank
		if f.Hosts, err = hosts(c.Addrs); err != nil {
			return fmt.Errorf("%s %w", determinedInfo, err)
		}
		if c.Rank < len(c.Slots) && c.Slots[c.Rank] > 0 {
			f.NProc, f.NProcBy = strconv.Itoa(c.Slots[c.Rank]), determinedInfo
		}
		f.JobID, f.JobIDBy = r.text("DET_TRIAL_ID"), "DET_TRIAL_ID"
		if err := r.attempt("DET_TRIAL_RUN_ID", f); err != nil {
			return err
		}
		return r.at(determinedInfo, c.Addrs[0], f)
	},
}
