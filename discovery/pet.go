package discovery

import (
	"fmt"
	"strings"

	"github.com/muster-run/muster/job"
)

// pet is torchrun's own environment (torch/distributed/argparse_util.py: PET_ and the flag's name), which
// Kubeflow's operators fill. Here PET_NODE_RANK and PET_NNODES count nodes whatever WORLD_SIZE and RANK count.
var pet = platform{
	name: "pet",
	here: func(r *reader) bool {
		return r.any("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR") || r.get("PET_RDZV_ENDPOINT") != ""
	},
	find: findPET,
	over: []string{"generic"},
}

func findPET(r *reader, f *Finding) (err error) {
	if f.Least, f.Nodes, err = petNodes(r); err != nil {
		return err
	}
	rank, err := r.number("PET_NODE_RANK", 0)
	if f.Rank, err = optional(rank, err, -1); err != nil {
		return err
	}
	if err := petBeside(r, f); err != nil {
		return err
	}
	return petEndpoint(r, f)
}

// petBeside refuses other words for nodes, and for the number of this one, that say something else: nothing settles which of them was meant.
func petBeside(r *reader, f *Finding) error {
	for _, v := range []struct {
		name, pet string
		low, most int // the least that it may say, and what torchrun's own says; below the least: nothing
	}{{"NNODES", "PET_NNODES", 1, f.Nodes}, {"NUM_NODES", "PET_NNODES", 1, f.Nodes}, {"NODE_RANK", "PET_NODE_RANK", 0, f.Rank}} {
		n, ok := r.plain(v.name)
		if ok && n >= v.low && v.most >= v.low && n != v.most {
			return fmt.Errorf("%s=%s, but %s=%d: correct one of them, or say --nnodes, --node-rank and --rdzv-endpoint", v.pet, clip(r.get(v.pet)), v.name, n)
		}
	}
	return nil
}

// addPET reads what torchrun's variables say beside any platform: a container has them from its image or its
// operator, and a job of one node may have nothing else. Those that change a job in a way that muster does not
// know are told.
func addPET(r *reader, f *Finding) error {
	switch v := r.text("PET_RDZV_BACKEND"); v {
	case "", "c10d", "static":
	case "etcd", "etcd-v2":
		if len(f.Etcd) == 0 && f.Nodes != 1 {
			return fmt.Errorf("PET_RDZV_BACKEND=%s, but PET_RDZV_ENDPOINT does not say where that etcd is", v)
		}
	default:
		return fmt.Errorf("PET_RDZV_BACKEND=%s is not in this version, which knows c10d and etcd", v)
	}
	if v := r.text("PET_RDZV_ID"); v != "" && v != "none" { // torchrun's word for no id
		f.JobID, f.JobIDBy = v, "PET_RDZV_ID"
	}
	return petWorkers(r, f)
}

// petWorkers reads what they say of this node's workers.
func petWorkers(r *reader, f *Finding) error {
	if v := r.text("PET_NPROC_PER_NODE"); v != "" {
		f.NProc, f.NProcBy = v, "PET_NPROC_PER_NODE"
	}
	restarts, err := r.number("PET_MAX_RESTARTS", 0)
	if f.Restarts, err = optional(restarts, err, -1); err != nil {
		return err
	}
	for _, name := range petUnknown {
		if v := strings.TrimSpace(r.host.Getenv(name)); v != "" && v != "0" && v != "default" {
			r.warn("not_acted_on", "%s=%s is not acted on: muster takes this from its flags only", name, v)
		}
	}
	return nil
}

// petUnknown are variables by which torchrun does something that muster does by its flags only, or not at all; 0, the
// role "default" and nothing ask for nothing.
var petUnknown = []string{
	"PET_RUN_PATH", "PET_ROLE", "PET_VIRTUAL_LOCAL_RANK",
}

// petNodes reads PET_NNODES, which may be a range; a range of one number is that number.
func petNodes(r *reader) (least, most int, err error) {
	v := r.text("PET_NNODES")
	if v == "" {
		return 0, 0, nil
	}
	least, most, err = job.ParseNodes(v)
	if err != nil {
		return 0, 0, fmt.Errorf("PET_NNODES=%w", err)
	}
	return least, most, nil
}

// petEndpoint prefers the rendezvous endpoint; PET_MASTER_ADDR is where node 0 runs.
func petEndpoint(r *reader, f *Finding) (err error) {
	v := r.text("PET_RDZV_ENDPOINT")
	switch {
	case v != "" && (InEtcd(v) || strings.HasPrefix(r.host.Getenv("PET_RDZV_BACKEND"), "etcd")):
		if f.Etcd, err = Members(v); err != nil && f.Nodes != 1 {
			return fmt.Errorf("PET_RDZV_ENDPOINT=%s %w", v, err)
		}
		return nil
	case v != "":
		if f.Host, f.Port, err = Endpoint(v); err != nil && f.Nodes != 1 { // as torchrun's localhost:0 for a node alone
			return fmt.Errorf("PET_RDZV_ENDPOINT=%s %w", v, err)
		}
		return nil
	case r.host.Getenv("PET_MASTER_ADDR") != "":
		return r.master("PET_MASTER_ADDR", "PET_MASTER_PORT", f)
	case r.host.Getenv("MASTER_ADDR") != "":
		return r.master("MASTER_ADDR", "MASTER_PORT", f)
	}
	return nil
}
