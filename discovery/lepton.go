package discovery

// lepton is a batch job of NVIDIA's DGX Cloud Lepton.
var lepton = platform{
	name: "lepton",
	here: func(r *reader) bool { return r.any("LEPTON_JOB_TOTAL_WORKERS", "LEPTON_JOB_WORKER_INDEX") },
	find: func(r *reader, f *Finding) (err error) {
		if err := r.world(f, "LEPTON_JOB_TOTAL_WORKERS", "LEPTON_JOB_WORKER_INDEX"); err != nil {
			return err
		}
		f.JobID, f.JobIDBy = r.text("LEPTON_JOB_NAME"), "LEPTON_JOB_NAME"
		if f.NProc = r.text("LEPTON_RESOURCE_ACCELERATOR_NUM"); f.NProc == "0" {
			f.NProc = ""
		}
		f.NProcBy = "LEPTON_RESOURCE_ACCELERATOR_NUM"
		if f.Attempt, err = r.maybe("LEPTON_JOB_FAILURE_COUNT", 0, -1); err != nil {
			return err
		}
		prefix, subdomain := r.text("LEPTON_JOB_WORKER_PREFIX"), r.text("LEPTON_SUBDOMAIN")
		if prefix == "" {
			prefix = r.text("LEPTON_JOB_SERVICE_PREFIX")
		}
		switch {
		case prefix == "" && f.Nodes > 1:
			return half("LEPTON_JOB_WORKER_PREFIX is not set")
		case subdomain == "":
			return r.at("LEPTON_JOB_WORKER_PREFIX", prefix+"-0", f)
		}
		return r.at("LEPTON_JOB_WORKER_PREFIX", prefix+"-0."+subdomain, f)
	},
}
