package discovery

import "strings"

// lws is a group of a LeaderWorkerSet (sigs.k8s.io/lws): each group is a job of its own, named by its leader. Its pods are started again
// whenever they end, all of them, also after success.
var lws = platform{
	name: "lws",
	here: func(r *reader) bool { return r.any("LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX") },
	find: func(r *reader, f *Finding) error {
		if err := r.world(f, "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"); err != nil {
			return err
		}
		leader, err := r.need("LWS_LEADER_ADDRESS")
		if err != nil {
			return err
		}
		f.Park, f.JobID, f.JobIDBy = true, strings.ToLower(leader), "LWS_LEADER_ADDRESS"
		if _, n, ok := ordinal(first(leader)); ok {
			f.Group = n
		}
		if f.Role = "worker"; f.Rank == 0 {
			f.Role = "leader"
		}
		return r.at("LWS_LEADER_ADDRESS", leader, f)
	},
	over: []string{"ordinal", "indexed", "jobset"},
}
