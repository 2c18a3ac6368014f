package discovery

// googleBatch is a job of Google Cloud's Batch with several nodes to a task.
var googleBatch = platform{
	name: "google-batch",
	here: func(r *reader) bool { return r.any("BATCH_MAIN_NODE_HOSTNAME") },
	find: func(r *reader, f *Finding) (err error) {
		if err := r.world(f, "BATCH_NODE_COUNT", "BATCH_NODE_INDEX"); err != nil {
			return err
		}
		f.JobID, f.JobIDBy = r.text("BATCH_JOB_UID"), "BATCH_JOB_UID"
		if f.Attempt, err = r.maybe("BATCH_TASK_RETRY_ATTEMPT", 0, -1); err != nil {
			return err
		}
		return r.at("BATCH_MAIN_NODE_HOSTNAME", r.text("BATCH_MAIN_NODE_HOSTNAME"), f)
	},
}
