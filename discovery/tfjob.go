package discovery

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// tfJob is TF_CONFIG, which Kubeflow's TFJob and others write: who listens where, by role, and which of them this is. The ports are
// TensorFlow's own.
var tfJob = platform{
	name: "tf-config",
	here: func(r *reader) bool { return r.get("TF_CONFIG") != "" && !tfNobody(r.host) },
	find: func(r *reader, f *Finding) error {
		c, err := parseTFConfig(r.text("TF_CONFIG"))
		if err != nil {
			return half("TF_CONFIG %v", err)
		}
		f.Framework, f.FrameworkBy = "tensorflow", "TF_CONFIG"
		return c.fill(f)
	},
}

// tfNobody reports whether there is a TF_CONFIG that names neither a cluster nor a task: empty, {}, {"cluster": {}}. TensorFlow, too, takes it for none.
func tfNobody(h job.Host) bool {
	text := strings.TrimSpace(h.Getenv("TF_CONFIG"))
	if text == "" {
		return slices.ContainsFunc(h.Environ, func(v string) bool { return strings.HasPrefix(v, "TF_CONFIG=") })
	}
	c, err := parseTFConfig(text)
	return errors.Is(err, errNoCluster) && c.Task.Type == ""
}

// A tfConfig is TF_CONFIG. With enableDynamicWorker a node is told of the parameter servers and of itself only; the older operator calls
// that sparseCluster.
type tfConfig struct {
	Cluster map[string]tfHosts `json:"cluster"`
	Sparse  map[string]tfHosts `json:"sparseCluster"`
	Task    struct {
		Type  string  `json:"type"`
		Index tfIndex `json:"index"`
	} `json:"task"`
}

// tfHosts is a list of endpoints, or in a sparse cluster an object of them by their numbers.
type tfHosts struct {
	list   []string
	sparse bool
	only   map[string]string
}

func (h *tfHosts) UnmarshalJSON(b []byte) error {
	if h.sparse = strings.HasPrefix(strings.TrimSpace(string(b)), "{"); h.sparse {
		return json.Unmarshal(b, &h.only)
	}
	return json.Unmarshal(b, &h.list)
}

// tfIndex is a number, in quotes or not.
type tfIndex int

func (i *tfIndex) UnmarshalJSON(b []byte) error {
	n, err := whole(strings.Trim(string(b), `"`))
	*i = tfIndex(n)
	return err
}

var errNoCluster = errors.New("has no cluster")

func parseTFConfig(text string) (c tfConfig, err error) {
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return c, fmt.Errorf("is not what TensorFlow understands: %w", err)
	}
	if len(c.Cluster) == 0 && len(c.Sparse) == 0 {
		return c, errNoCluster
	}
	if c.Task.Type == "" {
		return c, errors.New("does not say which task this is")
	}
	return c, nil
}

// fill says what the cluster means for this node: chief and workers train, in this order.
func (c tfConfig) fill(f *Finding) (err error) {
	f.Role, f.Index = strings.ToLower(c.Task.Type), int(c.Task.Index)
	f.Taken = true
	cluster, sparse := c.Cluster, len(c.Sparse) > 0
	if sparse {
		cluster = c.Sparse
	}
	sparse = sparse || cluster["worker"].sparse
	if sparse {
		return fillSparse(cluster, f)
	}
	lead := "chief"
	if len(cluster[lead].list) == 0 {
		lead = "master"
	}
	train := slices.Concat(cluster[lead].list, cluster["worker"].list)
	own := cluster[f.Role].list
	switch {
	case len(train) == 0:
		return errors.New("TF_CONFIG: nobody trains in this cluster")
	case f.Index >= len(own) && f.Role != "evaluator": // which may stand outside the cluster
		return fmt.Errorf("TF_CONFIG: this is %s %d, and the cluster has %d", clip(f.Role), f.Index, len(own))
	}
	if f.Hosts, err = hosts(train); err != nil {
		return fmt.Errorf("TF_CONFIG %w", err)
	}
	f.Nodes, f.Servers = len(train), len(cluster["ps"].list)
	switch f.Role {
	case lead:
		f.Rank = f.Index
	case "worker":
		f.Rank = len(cluster[lead].list) + f.Index
	case "ps":
		f.Serves = true
	case "evaluator": // it reads checkpoints
		f.Outside = true
	default:
		f.Barred = fmt.Errorf("this node is %s %d of the job, which does not train", f.Role, f.Index)
	}
	f.Decider, f.RankZero = f.Rank == 0, true
	if f.Host, f.Port, err = Endpoint(train[0]); err != nil && f.Nodes > 1 {
		return fmt.Errorf("TF_CONFIG has %s, which %w", clip(train[0]), err)
	}
	return nil
}

// fillSparse is for a node that is told of nobody but itself and the parameter servers.
func fillSparse(cluster map[string]tfHosts, f *Finding) error {
	f.Sparse, f.Servers = true, 0
	own := cluster[f.Role]
	endpoint := own.only[strconv.Itoa(f.Index)]
	if f.Role == "worker" {
		f.Rank = f.Index
		f.Barred = errors.New("TF_CONFIG is that of a job with enableDynamicWorker: it names this worker and the parameter servers alone, and nothing tells of the other workers; " +
			"take enableDynamicWorker out of the manifest, or say --nnodes and --rdzv-endpoint")
	} else {
		f.Barred = fmt.Errorf("this node is %s %d of the job, which does not train", clip(f.Role), f.Index)
	}
	if endpoint == "" && f.Index < len(own.list) {
		endpoint = own.list[f.Index]
	} else if endpoint == "" && len(own.list) > 0 {
		endpoint = own.list[0]
	}
	_, f.Port, _ = Endpoint(endpoint) // where nobody else meets it
	return nil
}
