package discovery

import "errors"

// nested is a worker already: torchrun's (torch/distributed/elastic/agent/server/local_elastic_agent.py), Paddle's, or one of ours. A single
// worker may start a job of its own: no other one does the same.
var nested = platform{
	name: "nested",
	here: func(r *reader) bool {
		size, told := r.plain("WORLD_SIZE")
		if !told {
			size, told = r.plain("PADDLE_TRAINERS_NUM")
		}
		if told && size == 1 {
			return false
		}
		_, local := r.plain("LOCAL_RANK") // a list of them, as Ascend's operator writes, is a node's
		return local && r.all("TORCHELASTIC_RUN_ID", "GROUP_RANK") || r.all("PADDLE_LOCAL_RANK", "PADDLE_GLOBAL_RANK")
	},
	find: func(r *reader, f *Finding) error {
		for _, name := range []string{"TORCHELASTIC_RUN_ID", "GROUP_RANK", "LOCAL_RANK", "PADDLE_GLOBAL_RANK", "PADDLE_LOCAL_RANK"} {
			r.text(name)
		}
		f.Nested = true
		f.Barred = errors.New("another launcher started this process as one of its workers: start the program itself, or give --nnodes 1 for a job of its own")
		r.warn("nested", "this process is a worker of another launcher already")
		return nil
	},
	over: []string{"*"},
}
