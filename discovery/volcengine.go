package discovery

import (
	"errors"
	"fmt"
	"strings"
)

// volcengine is a task of Volcengine's (BytePlus') machine learning platform.
var volcengine = platform{
	name: "volcengine",
	here: func(r *reader) bool {
		return r.any("MLP_ROLE", "MLP_ROLE_INDEX", "MLP_WORKER_NUM", "MLP_WORKER_0_HOST")
	},
	find: func(r *reader, f *Finding) error {
		role, err := r.need("MLP_ROLE")
		if err != nil {
			return err
		}
		if err := r.world(f, "MLP_WORKER_NUM", "MLP_ROLE_INDEX"); err != nil {
			return err
		}
		f.Role, f.Index = strings.ToLower(role), f.Rank
		if f.Role != "worker" {
			f.Rank = -1
			f.Barred = errors.New("MLP_ROLE=" + clip(role) + " does not train")
		}
		f.JobID, f.JobIDBy = r.text("MLP_TASK_ID"), "MLP_TASK_ID"
		f.NProc, f.NProcBy = r.text("MLP_WORKER_GPU"), "MLP_WORKER_GPU"
		if f.NProc == "0" {
			f.NProc = ""
		}
		if all := list(r.text("MLP_WORKER_ALL_HOSTS")); len(all) > 0 {
			if f.Hosts, err = hosts(all); err != nil {
				return fmt.Errorf("MLP_WORKER_ALL_HOSTS %w", err)
			}
			if len(all) != f.Nodes {
				return fmt.Errorf("MLP_WORKER_ALL_HOSTS has %d hosts, but MLP_WORKER_NUM=%d", len(all), f.Nodes)
			}
		}
		if _, err := r.need("MLP_WORKER_0_HOST"); err != nil && f.Nodes > 1 {
			return err
		}
		return r.master("MLP_WORKER_0_HOST", "MLP_WORKER_0_PORT", f)
	},
}
