package discovery

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// sagemakerConfig is written by SageMaker into each container of a training job.
const sagemakerConfig = "/opt/ml/input/config/resourceconfig.json"

// sagemaker is Amazon SageMaker's training: a file, or what its toolkit in the image makes of that (SM_HOSTS, SM_CURRENT_HOST).
// Port 7777 is the one that its own PyTorch image uses.
var sagemaker = platform{
	name: "sagemaker",
	here: func(r *reader) bool { return r.file(sagemakerConfig) != "" || r.any("SM_HOSTS", "SM_CURRENT_HOST") },
	find: func(r *reader, f *Finding) error {
		names, own, by, err := sagemakerHosts(r)
		if err != nil {
			return err
		}
		slices.SortFunc(names, natural)
		if f.Hosts, err = hosts(names); err != nil {
			return fmt.Errorf("%s %w", by, err)
		}
		f.Nodes, f.Rank = len(names), slices.Index(names, own)
		if f.Rank < 0 {
			return fmt.Errorf("%s: this is %q, which is not among its hosts", by, clip(own))
		}
		f.JobID, f.JobIDBy = r.text("TRAINING_JOB_NAME"), "TRAINING_JOB_NAME"
		if f.Port = 0; f.Nodes > 1 {
			f.Port = 7777
		}
		if r.file(sagemakerConfig) != "" {
			f.LastArg = "train"
		}
		return r.at(sagemakerConfig, names[0], f)
	},
}

// sagemakerHosts are all hosts, which of them this is, and who says so.
func sagemakerHosts(r *reader) (names []string, own, by string, err error) {
	if by = sagemakerConfig; r.file(by) == "" {
		by = "SM_HOSTS"
	}
	if text := r.file(sagemakerConfig); text != "" {
		var c struct {
			Current string   `json:"current_host"`
			Hosts   []string `json:"hosts"`
		}
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			return nil, "", by, fmt.Errorf("%s: %w", by, err)
		}
		names, own = c.Hosts, c.Current
		if err := sagemakerToolkit(r, names, own); err != nil {
			return nil, "", by, err
		}
	} else {
		if !r.any("SM_HOSTS") {
			return nil, "", by, half("SM_CURRENT_HOST says which host this is, but nothing says which there are (SM_HOSTS, %s)", sagemakerConfig)
		}
		if err := json.Unmarshal([]byte(r.text("SM_HOSTS")), &names); err != nil {
			return nil, "", by, half("SM_HOSTS is no list of hosts in JSON")
		}
		own = r.text("SM_CURRENT_HOST")
	}
	if len(names) == 0 || own == "" {
		return nil, "", by, half("%s does not say which hosts there are, or which one this is", by)
	}
	return names, own, by, nil
}

// sagemakerToolkit is what the toolkit's variables have against the file that they are made of.
func sagemakerToolkit(r *reader, names []string, own string) error {
	var all []string
	if text := r.get("SM_HOSTS"); json.Unmarshal([]byte(text), &all) == nil && (len(all) != len(names) || !slices.Equal(slices.Sorted(slices.Values(all)), slices.Sorted(slices.Values(names)))) {
		return fmt.Errorf("%s has the hosts %s, but SM_HOSTS=%s: correct one of them, or say --nnodes, --node-rank and --rdzv-endpoint", sagemakerConfig, clip(strings.Join(names, ", ")), clip(text))
	}
	if name := r.get("SM_CURRENT_HOST"); name != "" && name != own {
		return fmt.Errorf("%s says this is %s, but SM_CURRENT_HOST=%s: correct one of them, or say --nnodes, --node-rank and --rdzv-endpoint", sagemakerConfig, clip(own), clip(name))
	}
	return nil
}
