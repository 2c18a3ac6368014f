package discovery

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/muster-run/muster/job"
)

// generic is MASTER_ADDR and its kin, set by hand or by one of many systems. Its WORLD_SIZE and RANK count
// nodes on most of them; NNODES, or NUM_NODES, and NODE_RANK say so beyond doubt and win. LOCAL_WORLD_SIZE tells the other meaning.
var generic = platform{
	name: "generic",
	here: func(r *reader) bool { return r.any("MASTER_ADDR") },
	find: func(r *reader, f *Finding) error {
		if err := byNodes(r, f); err != nil {
			return err
		}
		if f.Nodes == 0 {
			if err := byWorldSize(r, f); err != nil {
				return err
			}
		}
		return r.master("MASTER_ADDR", "MASTER_PORT", f)
	},
}

// counted is the variable that says how many nodes there are: NUM_NODES is RunPod's word, whose WORLD_SIZE counts GPUs.
func (r *reader) counted() string {
	if r.any("NUM_NODES") && !r.any("NNODES") {
		return "NUM_NODES"
	}
	return "NNODES"
}

// placed reports whether somebody numbered this node, one of several, in words that can only mean nodes, and said where they meet. A name
// of a host or a step of one node says less.
func (r *reader) placed() bool {
	n, ok := r.plain(r.counted())
	return ok && n > 1 && r.any("NODE_RANK") && r.any("MASTER_ADDR") ||
		r.petSeveral() && r.any("PET_NODE_RANK") && r.any("PET_MASTER_ADDR", "PET_RDZV_ENDPOINT", "MASTER_ADDR")
}

// petSeveral reports whether torchrun's variable says more nodes than one.
func (r *reader) petSeveral() bool {
	_, most, err := job.ParseNodes(r.get("PET_NNODES"))
	return err == nil && most > 1
}

// findPlaced reads what placed found.
func findPlaced(r *reader, f *Finding) error {
	if r.petSeveral() {
		return findPET(r, f)
	}
	return generic.find(r, f)
}

// byNodes reads the names that can only mean nodes.
func byNodes(r *reader, f *Finding) (err error) {
	if r.any("NUM_NODES") && r.any("NNODES") {
		n, err := r.number("NUM_NODES", 1)
		if err != nil {
			return err
		}
		if r.get("NNODES") != strconv.Itoa(n) {
			return fmt.Errorf("NNODES=%s, but NUM_NODES=%d: correct one of them, or say --nnodes, --node-rank and --rdzv-endpoint", clip(r.get("NNODES")), n)
		}
	}
	if f.Nodes, err = r.maybe(r.counted(), 1, 0); err != nil {
		return err
	}
	f.Rank, err = r.maybe("NODE_RANK", 0, -1)
	return err
}

// byWorldSize reads WORLD_SIZE and RANK: numbers of nodes, or of processes where LOCAL_WORLD_SIZE says how many
// of them a node has.
func byWorldSize(r *reader, f *Finding) error {
	size, err := r.number("WORLD_SIZE", 1)
	if errors.Is(err, errUnset) {
		return nil
	}
	if err != nil {
		return err
	}
	rank, err := r.maybe("RANK", 0, f.Rank)
	if err != nil {
		return err
	}
	local, err := r.maybe("LOCAL_WORLD_SIZE", 1, 1)
	if err != nil {
		return err
	}
	if size%local != 0 {
		return fmt.Errorf("WORLD_SIZE=%d is not a multiple of LOCAL_WORLD_SIZE=%d", size, local)
	}
	f.Nodes, f.counts = size/local, "world_size"
	if f.Rank < 0 {
		f.Rank = rank
	}
	if local > 1 && f.Rank >= f.Nodes { // RANK counts processes here
		f.Rank /= local
	}
	return nil
}
