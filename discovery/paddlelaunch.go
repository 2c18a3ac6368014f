package discovery

import (
	"fmt"
	"strings"

	"github.com/muster-run/muster/job"
)

// paddleLaunch is what paddle.distributed.launch reads (python/paddle/distributed/launch/context/args_envs.py), set by hand or by Kubeflow's
// PaddleJob. That numbers no pods: the one where they meet has POD_IP_DUMMY and its own address.
var paddleLaunch = platform{
	name: "paddle-launch-env",
	here: func(r *reader) bool { return r.any("PADDLE_MASTER", "PADDLE_NNODES", "PADDLE_JOB_ID") },
	find: func(r *reader, f *Finding) error {
		nodes, err := r.need("PADDLE_NNODES")
		if err != nil {
			return err
		}
		if f.Least, f.Nodes, err = job.ParseNodes(nodes); err != nil {
			return fmt.Errorf("PADDLE_NNODES=%w", err)
		}
		f.Framework, f.FrameworkBy = "paddle", "PADDLE_NNODES"
		if id := r.text("PADDLE_JOB_ID"); id != "" && id != "default" { // the launcher's own default
			f.JobID, f.JobIDBy = id, "PADDLE_JOB_ID"
		}
		f.NProc, f.NProcBy = r.text("PADDLE_NPROC_PER_NODE"), "PADDLE_NPROC_PER_NODE"
		if f.Rank, err = r.maybe("PADDLE_RANK", 0, -1); err != nil {
			return err
		}
		paddlePod(r, f)
		if r.any("PADDLE_SERVER_NUM", "PADDLE_TRAINER_NUM") { // of this pod: nobody is told of the sum
			r.text("PADDLE_SERVER_NUM")
			r.text("PADDLE_TRAINER_NUM")
			f.Members, f.Nodes, f.Least, f.Taken = f.Nodes, 0, 0, true
		}
		at := strings.TrimPrefix(strings.TrimPrefix(r.text("PADDLE_MASTER"), "http://"), "https://")
		switch {
		case isLink(at) && !InEtcd(at):
			return fmt.Errorf("PADDLE_MASTER=%s is no HOST:PORT", clip(at))
		case InEtcd(at):
			if f.Etcd, err = Members(at); err != nil {
				return fmt.Errorf("PADDLE_MASTER=%s %w", clip(at), err)
			}
			return nil
		case at == "" && f.Nodes != 1:
			return half("PADDLE_MASTER is not set")
		}
		zero := f.RankZero
		err = r.endpoint("PADDLE_MASTER", at, f)
		f.RankZero = zero
		return err
	},
}

// paddlePod numbers a pod of Kubeflow's: by the mark of the one where they meet, or by its name, if that is the job's and not a machine's.
func paddlePod(r *reader, f *Finding) {
	base, role, n, ok := member(first(r.host.Hostname), "worker", "master")
	master, _, _ := strings.Cut(r.get("PADDLE_MASTER"), ":")
	ok = ok && !r.onHost() && (base == r.get("PADDLE_JOB_ID") || first(master) == base+"-worker-0" || first(master) == base+"-master-0")
	if ok {
		f.Role, f.Index = role, n
	}
	switch {
	case r.text("POD_IP_DUMMY") != "" && r.get("PADDLE_SERVER_NUM") == "":
		f.Rank, f.RankZero = 0, true
	case r.get("PADDLE_SERVER_NUM") != "":
		if f.Role == "" {
			f.Role = "master"
		}
		f.Rank, f.Barred = -1, fmt.Errorf("PADDLE_SERVER_NUM=%s: this pod is a parameter server, which does not train", clip(r.get("PADDLE_SERVER_NUM")))
	case ok && role == "worker" && f.Rank < 0:
		f.Rank, f.RankZero = n, true
		r.saw("the pod's name " + r.host.Hostname)
	}
}
