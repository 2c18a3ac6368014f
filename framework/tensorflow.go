package framework

import (
	"encoding/json"
	"strings"

	"github.com/muster-run/muster/job"
)

// tensorflow is TF_CONFIG, which tf.distribute reads (tensorflow/python/distribute/cluster_resolver/tfconfig_cluster_resolver.py): without
// parameter servers that of MultiWorkerMirroredStrategy, all of whose processes are workers; with them rank 0 is the chief, which drives
// the others. Those never end by themselves.
var tensorflow = Framework{
	Name:    "tensorflow",
	Doc:     "TensorFlow: TF_CONFIG for MultiWorkerMirroredStrategy, or with --ps for ParameterServerStrategy; one process a node",
	Whole:   true,
	Listens: true,
	Calls:   true,
	Imports: "tensorflow",
	Beside:  true,
	Perhaps: "keras", // whose workers find each other by this one alone
	Library: "libtensorflow_framework.so",
	Servers: true,
	Success: "rank0",
	env:     tensorflowEnv,
}

func tensorflowEnv(p Place, local int, given func(string) (string, bool)) job.Env {
	e := append(p.ranks(local), p.meeting()...)
	config := tfConfig(p, local)
	e = append(e, job.Var{Name: "TF_CONFIG", Value: config.String(), Why: "where all listen, by role, and which of them this is"})
	if p.Servers > 0 {
		e = append(e, unset(given, job.Var{Name: "GRPC_FAIL_FAST", Value: "use_caller", Why: "calls wait for those who start later"})...)
	}
	if config.Task.Type == "ps" {
		e = append(e, job.Var{Name: "CUDA_VISIBLE_DEVICES", Value: "", Why: "a parameter server takes no GPU from those who train"})
	} else if _, locals := p.Local(local); p.GPUs > 0 && locals > 1 && !p.Own {
		e = append(e, unset(given, job.Var{Name: "TF_FORCE_GPU_ALLOW_GROWTH", Value: "true", Why: "several workers share the GPUs of this node"})...)
	}
	e = append(e, p.direct(given)...)
	return append(e, unset(given, unbuffered)...)
}

// A tfCluster is TF_CONFIG.
type tfCluster struct {
	Cluster struct {
		Chief  []string `json:"chief,omitempty"`
		Worker []string `json:"worker,omitempty"`
		PS     []string `json:"ps,omitempty"`
	} `json:"cluster"`
	Task struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	} `json:"task"`
}

// String is JSON, as it is written for people, too.
func (c tfCluster) String() string {
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	_ = e.Encode(c) // strings and numbers, to memory
	return strings.TrimSpace(text.String())
}

func tfConfig(p Place, local int) (c tfCluster) {
	rank := p.World.Members[p.Group].First + local
	workers, all := p.endpoints(0, p.trainers()), p.endpoints(0, len(p.World.Members))
	c.Cluster.Worker, c.Cluster.PS = workers, all[len(workers):]
	c.Task.Type, c.Task.Index = "worker", rank
	if p.Servers == 0 {
		return c
	}
	c.Cluster.Chief, c.Cluster.Worker = workers[:1], workers[1:]
	switch {
	case rank >= len(workers):
		c.Task.Type, c.Task.Index = "ps", rank-len(workers)
	case rank == 0:
		c.Task.Type = "chief"
	default:
		c.Task.Index = rank - 1
	}
	return c
}
