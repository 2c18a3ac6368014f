package discovery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-run/muster/job"
)

// paddleRoles are paddle-operator's names for them, and ours.
var paddleRoles = map[string]string{"PSERVER": "ps", "TRAINER": "worker", "HETER": "heter"}

// paddleOperator is PaddleFlow's (controllers/paddlejob_helper.go). PADDLE_TRAINER_ID counts within the role; the list of endpoints is the
// truth about ports, for PADDLE_PORT is not that of a Service.
var paddleOperator = platform{
	name: "paddle-operator",
	here: func(r *reader) bool {
		return paddleRoles[r.get("TRAINING_ROLE")] != "" && r.any("PADDLE_TRAINER_ID") ||
			r.any("PADDLE_TRAINER_ENDPOINTS", "PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_ELASTIC_JOB_ID")
	},
	find: func(r *reader, f *Finding) (err error) {
		if f.Role = paddleRoles[r.text("TRAINING_ROLE")]; f.Role == "" {
			return half("TRAINING_ROLE is none of PSERVER, TRAINER, HETER")
		}
		if f.Index, err = r.required("PADDLE_TRAINER_ID", 0); err != nil {
			return err
		}
		f.Framework, f.FrameworkBy = "paddle", "PADDLE_TRAINER_ID"
		if f.Role == "worker" {
			f.Rank = f.Index
		} else {
			f.Barred = fmt.Errorf("TRAINING_ROLE=%s does not train", r.get("TRAINING_ROLE"))
		}
		if r.any("PADDLE_ELASTIC_JOB_ID", "PADDLE_ELASTIC_NP") {
			return paddleElastic(r, f)
		}
		return paddleEndpoints(r, f)
	},
}

// paddleElastic is a job that is told of no addresses: pods are found by their names.
func paddleElastic(r *reader, f *Finding) (err error) {
	f.JobID, f.JobIDBy = r.text("PADDLE_ELASTIC_JOB_ID"), "PADDLE_ELASTIC_JOB_ID"
	np, err := r.need("PADDLE_ELASTIC_NP")
	if err != nil {
		return err
	}
	if f.Least, f.Nodes, err = job.ParseNodes(np); err != nil {
		return fmt.Errorf("PADDLE_ELASTIC_NP=%w", err)
	}
	base, _, _, ok := member(first(r.host.Hostname), "worker", "ps", "heter")
	if !ok {
		return nil // on the host's network
	}
	return r.at("the pod's name", base+"-worker-0", f)
}

func paddleEndpoints(r *reader, f *Finding) (err error) {
	if f.Nodes, err = r.required("PADDLE_TRAINERS_NUM", 1); err != nil {
		return err
	}
	f.FrameworkBy = "PADDLE_TRAINERS_NUM"
	text, err := r.need("PADDLE_TRAINER_ENDPOINTS")
	if err != nil {
		return err
	}
	all := list(text)
	if len(all) != f.Nodes {
		return fmt.Errorf("PADDLE_TRAINER_ENDPOINTS has %d trainers, but PADDLE_TRAINERS_NUM=%d", len(all), f.Nodes)
	}
	if f.Hosts, err = hosts(all); err != nil {
		return fmt.Errorf("PADDLE_TRAINER_ENDPOINTS %w", err)
	}
	f.Servers = len(list(r.text("PADDLE_PSERVERS_IP_PORT_LIST")))
	f.Taken = f.Servers > 0 // by Paddle's own servers, in each role
	if f.Role == "ps" && f.Index < f.Servers {
		f.Serves, f.Barred = true, nil
	}
	if err := r.endpoint("PADDLE_TRAINER_ENDPOINTS", all[0], f); err != nil {
		return err
	}
	if port, ok := r.plain("PADDLE_PORT"); ok && port != f.Port {
		f.FixPort = f.Port
		r.text("PADDLE_PORT")
	}
	if own := strings.ToLower(r.text("POD_IP")); f.Rank >= 0 && own != "" && f.Rank < len(f.Hosts) && f.Hosts[f.Rank] != own && !slices.Contains(f.Hosts, own) {
		r.warn("stale_address", "POD_IP=%s is not in PADDLE_TRAINER_ENDPOINTS=%s: this pod was made again, and the operator never corrects that list; "+
			"with intranet: Service names stay right", clip(own), clip(text))
	}
	return nil
}
