package discovery

import "github.com/muster-run/muster/lazy"

// dlcMaster is the first pod of a job of Alibaba's PAI-DLC.
var dlcMaster = lazy.Regexp(`^dlc[a-z0-9]+-master-0$`)

// dlc is Alibaba's PAI-DLC, or Baidu's AIHC: a PyTorchJob's variables, all of nodes, with the GPUs of each beside them.
var dlc = platform{
	name: "pai-dlc",
	here: func(r *reader) bool {
		own := dlcMaster().MatchString(r.get("MASTER_ADDR")) || r.any("AIHC_JOB_NAME")
		return hasMaster(r) && (own || r.any("NPROC_PER_NODE") && !r.any("PET_NODE_RANK"))
	},
	find: func(r *reader, f *Finding) error {
		if r.any("AIHC_JOB_NAME") {
			f.Rule = "aihc"
			r.text("AIHC_JOB_NAME")
		}
		if err := findPyTorchJob(r, f); err != nil {
			return err
		}
		if n, ok := r.plain("NPROC_PER_NODE"); ok && n > 0 {
			f.NProc, f.NProcBy = r.text("NPROC_PER_NODE"), "NPROC_PER_NODE"
		}
		return nil
	},
	over: []string{"pytorchjob", "pet", "generic", "tf-config", "ordinal"},
}
