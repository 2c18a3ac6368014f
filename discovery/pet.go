package discovery

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// pet is torchrun's own environment (torch/distributed/argparse_util.py: PET_ and the flag's name), which
// Kubeflow's operators fill. Here PET_NODE_RANK and PET_NNODES count nodes whatever WORLD_SIZE and RANK count.
var pet = platform{
	name: "pet",
	here: func(r *reader) bool {
		return r.host.Getenv("PET_NNODES") != "" || r.host.Getenv("PET_RDZV_ENDPOINT") != "" ||
			r.host.Getenv("PET_NPROC_PER_NODE") != "" && r.host.Getenv("MASTER_ADDR") == "" && len(leftover(r.host)) == 0
	},
	find: findPET,
}

func findPET(r *reader, f *Finding) (err error) {
	if f.Nodes, err = petNodes(r); err != nil {
		return err
	}
	rank, err := r.number("PET_NODE_RANK", 0)
	if f.Rank, err = optional(rank, err, -1); err != nil {
		return err
	}
	f.NProc = r.text("PET_NPROC_PER_NODE")
	f.JobID = r.text("PET_RDZV_ID")
	return petEndpoint(r, f)
}

// petNodes reads PET_NNODES, which may be a range; a range of one number is that number.
func petNodes(r *reader) (int, error) {
	v := r.text("PET_NNODES")
	if v == "" && r.host.Getenv("PET_RDZV_ENDPOINT") == "" {
		return 1, nil // torchrun's default
	}
	if v == "" {
		return 0, nil
	}
	low, high, ranged := strings.Cut(v, ":")
	n, err := strconv.Atoi(low)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("PET_NNODES=%s is not a number of nodes", v)
	}
	if ranged && low != high {
		return 0, fmt.Errorf("PET_NNODES=%s is a range: elastic worlds are not in this version; say --nnodes N", v)
	}
	return n, nil
}

// petEndpoint prefers the rendezvous endpoint; PET_MASTER_ADDR is where node 0 runs.
func petEndpoint(r *reader, f *Finding) error {
	if v := r.text("PET_RDZV_ENDPOINT"); v != "" {
		host, port, err := net.SplitHostPort(v)
		if err != nil {
			f.Host = v
			return nil
		}
		f.Host = host
		if f.Port, err = strconv.Atoi(port); err != nil || f.Port < 1 || f.Port > 65535 {
			return fmt.Errorf("PET_RDZV_ENDPOINT=%s has no port that can be used", v)
		}
		return nil
	}
	if f.Host = r.text("PET_MASTER_ADDR"); f.Host != "" {
		f.Port, f.RankZero = r.port("PET_MASTER_PORT"), true
	} else if f.Host = r.text("MASTER_ADDR"); f.Host != "" {
		f.Port, f.RankZero = r.port("MASTER_PORT"), true
	}
	return nil
}
