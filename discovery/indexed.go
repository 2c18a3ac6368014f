package discovery

import "strings"

// Kubernetes' own controllers number their pods and tell nobody how many there are.

// indexed is an Indexed Job, whose pods are <job>-<index> in the subdomain of their Service.
var indexed = platform{
	name: "indexed",
	here: func(r *reader) bool { return r.any("JOB_COMPLETION_INDEX") },
	find: func(r *reader, f *Finding) error {
		n, err := r.required("JOB_COMPLETION_INDEX", 0)
		if err != nil {
			return err
		}
		sub, known := r.subdomain()
		size := r.size(f)
		switch {
		case size == nil && f.Nodes == 1, size != nil && known && sub == "":
			return harmless("no Service names this Job's pods, so that none could find another")
		case size != nil:
			f.Index, f.Rank = n, n
			return numbered("how many completions there are", size)
		}
		f.Index, f.Rank = n, n
		if r.placed() { // one of several Jobs
			return findPlaced(r, f)
		}
		base, _, ok := ordinal(first(r.host.Hostname))
		if !ok || sub == "" {
			return nil // where they meet is left to flags
		}
		return r.at("the pod's name", base+"-0."+sub, f)
	},
	over: []string{"ordinal"},
}

// numbered is what is missing where a node knows its number, and not how many there are.
func numbered(what string, err error) error {
	if err != errUnset {
		return err
	}
	return half("nothing says %s: need MUSTER_NNODES (1 for a run of this pod alone)", what)
}

// jobSet is a pod of a JobSet: <set>-<job>-<number of the job>-<index in it>. All of its jobs number their pods from 0, so that an index is
// no rank; they are ranked by their names.
var jobSet = platform{
	name: "jobset",
	here: func(r *reader) bool {
		base, n, ok := ordinal(first(r.host.Hostname))
		_, _, twice := ordinal(base)
		i, is := r.plain("JOB_COMPLETION_INDEX")
		return ok && twice && is && i == n
	},
	find: func(r *reader, f *Finding) error {
		r.text("JOB_COMPLETION_INDEX")
		pod := first(r.host.Hostname)
		base, n, _ := ordinal(pod)
		job, _, _ := ordinal(base)
		sub, known := r.subdomain()
		f.Role, f.Index = replicatedJob(pod, sub), n
		size := r.size(f)
		switch {
		case size == nil && f.Nodes == 1:
			return harmless("MUSTER_NNODES=1")
		case size != nil && known && sub == "":
			return harmless("no Service names this JobSet's pods")
		case size != nil:
			return numbered("how many pods its jobs have, or which of those train", size)
		case r.placed():
			return findPlaced(r, f)
		case sub == "" || !strings.HasPrefix(pod, sub+"-"):
			return nil
		}
		return r.at("the pod's name", job+"-0-0."+sub, f)
	},
	over: []string{"indexed", "ordinal"},
}

// statefulSet is a pod of a StatefulSet in the subdomain of its Service. It is started again whenever it ends. One that is told nothing is
// taken to be alone, for notebooks are made so.
var statefulSet = platform{
	name: "ordinal",
	here: func(r *reader) bool {
		_, _, ok := ordinal(first(r.host.Hostname))
		sub, known := r.subdomain()
		return ok && known && sub != "" && r.inKubernetes()
	},
	find: func(r *reader, f *Finding) error {
		base, n, _ := ordinal(first(r.host.Hostname))
		sub, _ := r.subdomain()
		size := r.size(f)
		switch {
		case size == errUnset:
			r.warn("ordinal", "this pod is number %d of a set, and nothing says of how many: MUSTER_NNODES would", n)
			return harmless("MUSTER_NNODES is not set")
		case size != nil:
			return size
		case f.Nodes == 1:
			return harmless("MUSTER_NNODES=1")
		case r.placed(): // as the second of two sets is
			f.Index, f.Park = n, true
			return findPlaced(r, f)
		}
		r.saw("the pod's name " + r.host.Hostname + "." + sub)
		f.Rank, f.Index, f.Park = n, n, true
		return r.at("the pod's name", base+"-0."+sub, f)
	},
}
