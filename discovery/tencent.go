package discovery

import (
	"fmt"
	"slices"
)

// tencent is Tencent's Taiji. NODE_NUM counts GPUs there, whatever its name says.
var tencent = platform{
	name: "tencent",
	here: func(r *reader) bool { return r.any("CHIEF_IP") && r.any("HOST_NUM", "NODE_IP_LIST") },
	find: func(r *reader, f *Finding) error {
		if err := r.world(f, "HOST_NUM", "INDEX"); err != nil {
			return err
		}
		if _, err := r.need("NODE_IP_LIST"); err != nil {
			return err
		}
		own, err := r.need("LOCAL_IP")
		if err != nil {
			return err
		}
		if f.Hosts, err = hosts(list(r.get("NODE_IP_LIST"))); err != nil {
			return fmt.Errorf("NODE_IP_LIST %w", err)
		}
		switch {
		case !slices.Contains(f.Hosts, own):
			return fmt.Errorf("LOCAL_IP=%s is not in NODE_IP_LIST=%s", clip(own), clip(r.get("NODE_IP_LIST")))
		case len(f.Hosts) != f.Nodes:
			return fmt.Errorf("NODE_IP_LIST has %d nodes, but HOST_NUM=%d", len(f.Hosts), f.Nodes)
		}
		f.NProc, f.NProcBy = r.text("HOST_GPU_NUM"), "HOST_GPU_NUM"
		return r.at("CHIEF_IP", r.text("CHIEF_IP"), f)
	},
}
