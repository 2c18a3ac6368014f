package discovery

import "strings"

// lws is a group of a LeaderWorkerSet (sigs.k8s.io/lws): each group is a job of its own, named by its leader. Its pods are started again
// whenever they end, all of them, also after success.
var lws = platform{
	name: "lws",
	here: func(r *reader) bool { return r.any("LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX") },
	find: func(r *reader, f *Finding) error {
		leader, err := r.need("LWS_LEADER_ADDRESS")
		if err != nil {
			return err
		}
		if f.Nodes, err = r.required("LWS_GROUP_SIZE", 1); err != nil {
			return err
		}
		if f.Rank, err = lwsIndex(r, first(leader)); err != nil {
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

// lwsIndex is this pod's number in its group. Older releases leave it in the pod's name only: the leader's, and a number behind it.
func lwsIndex(r *reader, leader string) (int, error) {
	own := strings.ToLower(first(r.host.Hostname))
	base, n, ok := ordinal(own)
	switch {
	case r.any("LWS_WORKER_INDEX"):
	case own == strings.ToLower(leader):
		return 0, nil
	case ok && base == strings.ToLower(leader):
		r.saw("the pod's name " + own)
		return n, nil
	}
	return r.required("LWS_WORKER_INDEX", 0)
}
