package discovery

import "errors"

// dlrover is an ElasticJob of DLRover. DLROVER_MASTER_ADDR is its controller's, which is no node of the job; MASTER_ADDR is worker 0's.
var dlrover = platform{
	name: "dlrover",
	here: func(r *reader) bool { return r.any("DLROVER_MASTER_ADDR") },
	find: func(r *reader, f *Finding) error {
		r.text("DLROVER_MASTER_ADDR")
		if err := r.world(f, "NODE_NUM", "NODE_RANK"); err != nil {
			return err
		}
		f.JobID, f.JobIDBy = r.text("ELASTIC_JOB_NAME"), "ELASTIC_JOB_NAME"
		if uid := r.text("JOB_UID"); uid != "" {
			f.JobID, f.JobIDBy = uid, "JOB_UID"
		}
		if f.Role = r.text("NODE_TYPE"); f.Role == "ps" || f.Role == "evaluator" {
			f.Index, f.Rank = f.Rank, -1
			f.Barred = errors.New("NODE_TYPE=" + f.Role + " does not train")
		}
		if r.get("MASTER_ADDR") == "" {
			return nil
		}
		return r.master("MASTER_ADDR", "MASTER_PORT", f)
	},
	over: []string{"generic", "pytorchjob", "pet"},
}
