package discovery

import "fmt"

// modelArts is a training job of Huawei's ModelArts, which is made of a Volcano job.
var modelArts = platform{
	name: "modelarts",
	here: func(r *reader) bool {
		return r.any("MA_VJ_NAME") && r.any("MA_NUM_HOSTS", "VC_TASK_INDEX", "VC_WORKER_HOSTS")
	},
	find: func(r *reader, f *Finding) (err error) {
		f.JobID, f.JobIDBy = r.text("MA_VJ_NAME"), "MA_VJ_NAME"
		f.NProc, f.NProcBy = r.text("MA_NUM_GPUS"), "MA_NUM_GPUS"
		if f.NProc == "0" {
			f.NProc = ""
		}
		if f.Nodes, err = r.maybe("MA_NUM_HOSTS", 1, 0); err != nil {
			return err
		}
		f.Role = r.text("MA_TASK_NAME")
		all := list(r.text("VC_WORKER_HOSTS"))
		if f.Nodes == 1 && len(all) == 0 {
			f.Rank = 0
			return nil
		}
		if f.Rank, err = r.required("VC_TASK_INDEX", 0); err != nil {
			return err
		}
		f.Index = f.Rank
		if len(all) == 0 {
			return half("VC_WORKER_HOSTS is not set")
		}
		if f.Hosts, err = hosts(all); err != nil {
			return fmt.Errorf("VC_WORKER_HOSTS %w", err)
		}
		if f.Nodes != 0 && f.Nodes != len(all) {
			return fmt.Errorf("VC_WORKER_HOSTS has %d hosts, but MA_NUM_HOSTS=%d", len(all), f.Nodes)
		}
		f.Nodes = len(all)
		return r.at("VC_WORKER_HOSTS", all[0], f)
	},
	over: []string{"volcano"},
}
