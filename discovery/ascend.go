package discovery

import (
	"errors"
	"fmt"
	"strconv"
)

// ascend is a job of Huawei's Ascend operator (MindCluster): WORLD_SIZE counts NPUs, RANK nodes, and LOCAL_RANK is the list of a node's.
// MindSpore's variables say the same. The address is a Service's, through which MASTER_PORT alone is reached.
var ascend = platform{
	name: "ascend",
	here: func(r *reader) bool {
		return r.any("MINDX_TASK_ID", "MINDX_SERVER_IP") && r.any("WORLD_SIZE", "RANK", "MS_SCHED_HOST") || r.any("MS_WORKER_NUM", "MS_SCHED_HOST") && r.any("MS_NODE_RANK", "MS_ROLE")
	},
	find: func(r *reader, f *Finding) error {
		f.JobID, f.JobIDBy = r.text("MINDX_TASK_ID"), "MINDX_TASK_ID"
		v := struct{ size, local, rank, host, port string }{"WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT"}
		if r.get(v.size) == "" || r.get(v.host) == "" {
			v = struct{ size, local, rank, host, port string }{"MS_WORKER_NUM", "MS_LOCAL_WORKER", "MS_NODE_RANK", "MS_SCHED_HOST", "MS_SCHED_PORT"}
		}
		if r.text("MS_ROLE") == "MS_SCHED" {
			f.Role, f.Barred = "scheduler", errors.New("MS_ROLE=MS_SCHED does not train")
		}
		size, err := r.required(v.size, 1)
		if err != nil {
			return err
		}
		local, err := r.required(v.local, 1)
		if isHalf(err) && size > 1 && f.JobID != "" { // others would take them for nodes
			return fmt.Errorf("%s=%d counts NPUs, and %s does not say how many of them a node has", v.size, size, v.local)
		}
		if err != nil {
			return err
		}
		if size%local != 0 {
			return fmt.Errorf("%s=%d is not a multiple of %s=%d", v.size, size, v.local, local)
		}
		f.Nodes, f.NProc, f.NProcBy = size/local, strconv.Itoa(local), v.local
		if f.Barred == nil {
			if f.Rank, err = r.required(v.rank, 0); err != nil {
				return err
			}
		}
		if _, err := r.need(v.host); err != nil && f.Nodes > 1 {
			return err
		}
		return r.master(v.host, v.port, f)
	},
	over: []string{"generic", "pytorchjob", "pet", "volcano"},
}
