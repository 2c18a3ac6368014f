package discovery

import (
	"fmt"
	"strings"
)

// awsBatch is a multi-node parallel job of AWS Batch. Its main node, whose end is the job's, need not be number 0, and is the only one that
// is not told its address.
var awsBatch = platform{
	name: "aws-batch-mnp",
	here: func(r *reader) bool {
		return r.any("AWS_BATCH_JOB_NUM_NODES", "AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_MAIN_NODE_INDEX")
	},
	find: func(r *reader, f *Finding) (err error) {
		if f.Nodes, err = r.required("AWS_BATCH_JOB_NUM_NODES", 1); err != nil {
			return err
		}
		index, err := r.required("AWS_BATCH_JOB_NODE_INDEX", 0)
		if err != nil {
			return err
		}
		main, err := r.required("AWS_BATCH_JOB_MAIN_NODE_INDEX", 0)
		if err != nil {
			return err
		}
		if main >= f.Nodes || index >= f.Nodes {
			return fmt.Errorf("node %d with main node %d, but AWS_BATCH_JOB_NUM_NODES=%d", index, main, f.Nodes)
		}
		f.Decider = index == main
		f.Rank = (index - main + f.Nodes) % f.Nodes
		f.JobID, _, _ = strings.Cut(r.text("AWS_BATCH_JOB_ID"), "#")
		f.JobIDBy = "AWS_BATCH_JOB_ID"
		if err := r.attempt("AWS_BATCH_JOB_ATTEMPT", f); err != nil {
			return err
		}
		const address = "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"
		ip := r.text(address)
		switch {
		case ip == "" && f.Decider:
			r.itself(f)
			return nil
		case ip == "":
			return half("%s is not set", address)
		}
		return r.at(address, ip, f)
	},
	over: []string{"mpirun"},
}
