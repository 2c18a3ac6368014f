package discovery

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// vertex is a custom job of Google's Vertex AI: CLUSTER_SPEC, in which pools 0 and 1 train. Pool 2 has parameter or reduction servers, pool
// 3 evaluators.
var vertex = platform{
	name: "vertex",
	here: func(r *reader) bool { return strings.Contains(r.get("CLUSTER_SPEC"), "workerpool") },
	find: func(r *reader, f *Finding) error {
		var c struct {
			Cluster map[string][]string `json:"cluster"`
			Task    struct {
				Type  string `json:"type"`
				Index int    `json:"index"`
				Trial string `json:"trial"`
			} `json:"task"`
		}
		if err := json.Unmarshal([]byte(r.text("CLUSTER_SPEC")), &c); err != nil {
			return fmt.Errorf("CLUSTER_SPEC: %w", err)
		}
		switch pool := c.Cluster[c.Task.Type]; {
		case len(c.Cluster["workerpool0"]) == 0:
			return errors.New("CLUSTER_SPEC: there is no workerpool0 in it, where nodes meet")
		case c.Task.Type == "":
			return errors.New("CLUSTER_SPEC does not say which task this is (task: type, index), and so not which of its nodes")
		case c.Task.Index < 0 || c.Task.Index >= len(pool):
			return fmt.Errorf("CLUSTER_SPEC: this is %s %d, and it has %d of those", clip(c.Task.Type), c.Task.Index, len(pool))
		}
		train := append(c.Cluster["workerpool0"], c.Cluster["workerpool1"]...)
		var err error
		if f.Hosts, err = hosts(train); err != nil {
			return fmt.Errorf("CLUSTER_SPEC %w", err)
		}
		f.Nodes, f.Role, f.Index = len(train), c.Task.Type, c.Task.Index
		switch c.Task.Type {
		case "workerpool0":
			f.Rank = c.Task.Index
		case "workerpool1":
			f.Rank = len(c.Cluster["workerpool0"]) + c.Task.Index
		default:
			f.Barred = errors.New("this node is in " + clip(c.Task.Type) + " of the job, and only pools 0 and 1 train")
		}
		if id := r.text("CLOUD_ML_JOB_ID"); id != "" {
			f.JobID, f.JobIDBy = strings.Trim(id+"/"+c.Task.Trial, "/"), "CLOUD_ML_JOB_ID"
		}
		return r.at("CLUSTER_SPEC", f.Hosts[0], f)
	},
	over: []string{"tf-config"},
}
