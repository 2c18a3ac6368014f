// Package discovery reads from what the platform left behind which job this is: one file and one line per platform.
package discovery

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// A Finding is what one platform says of the job. Fields that it leaves open are for flags or for the rendezvous.
type Finding struct {
	Rule     string   // the platform's name
	Nodes    int      // 0: not said
	Least    int      // with how many the job may begin; 0: Nodes
	Rank     int      // this node's number; -1: not said
	Host     string   // the master's name or address, as Host spells it; "" when there is none
	Port     int      // 0: not said
	Etcd     []string // members of the etcd in which the nodes meet, as Members spells them; then there is no Host
	NProc    string   // workers per node, as the platform says it: a number, "auto", "gpu", "cpu"; "" when not said
	JobID    string   // "" when not said
	Restarts int      // how often a failed round may be followed by another; -1: not said
	NProcBy  string   // the variable that says NProc
	JobIDBy  string   // the variable that says JobID
	RankZero bool     // Host is where node 0 runs, so that node 0 may know itself by its number
	// Framework is that of the training, where the system runs trainings of one only; FrameworkBy is the variable that tells.
	Framework, FrameworkBy string

	Evidence []string // NAME=VALUE of everything that the finding rests on
	// Problem is what is wrong with the values, nil if nothing is. It matters unless flags settle nodes, rank and
	// endpoint, for flags win over the platform.
	Problem  error
	Warnings []string // values that look meant for us but cannot be used
	// Leftover is evidence of a job of several nodes that no rule made sense of. N silent single trainings are the
	// worst outcome, so a node that finds any must not run alone unless it is told to.
	Leftover []string
}

// A platform knows the traces of one system. A rule fires only when here says so.
type platform struct {
	name string
	here func(r *reader) bool
	find func(r *reader, f *Finding) error
}

// platforms is every platform that muster knows, in the order in which they are tried:
// tell-tale traces first, what any other system may leave as well last.
var platforms = []platform{pet, masterAddr}

// Detect returns what the first platform that left its traces says, or the finding "single" when there are none.
func Detect(h job.Host) Finding {
	for _, p := range platforms {
		r := &reader{host: h}
		if !p.here(r) {
			continue
		}
		f := Finding{Rule: p.name, Rank: -1, Restarts: -1}
		err := p.find(r, &f)
		return f.complete(r, err)
	}
	f := Finding{Rule: "single", Nodes: 1, Rank: -1, Restarts: -1, Leftover: leftover(h)}
	return f.complete(&reader{host: h}, nil)
}

// complete adds what torchrun's own variables say of a job whatever system told the rest, and looks for
// contradictions. err is what the platform's own values have against them.
func (f Finding) complete(r *reader, err error) Finding {
	if err == nil {
		err = addPET(r, &f)
	}
	f.Evidence, f.Warnings = r.evidence, r.warnings
	f.Framework, f.FrameworkBy = trains(r.host)
	if err != nil {
		f.Problem = fmt.Errorf("%s: %w", f.Rule, err)
	} else {
		f.Problem = contradiction(f)
	}
	return f
}

// clusterTraces are variables that count the nodes or processes of a job, by whatever system.
var clusterTraces = []string{
	"WORLD_SIZE", "NNODES", "PET_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
	"AWS_BATCH_JOB_NUM_NODES", "AZUREML_NODE_COUNT", "MLP_WORKER_NUM", "LWS_GROUP_SIZE", "JAX_NUM_PROCESSES",
	"PADDLE_TRAINERS_NUM", "NUM_PROCESSES", "LEPTON_JOB_TOTAL_WORKERS", "BATCH_NODE_COUNT", "HOST_NUM",
}

// leftover returns the traces of a job of several nodes that no platform above made sense of.
func leftover(h job.Host) []string {
	var found []string
	for _, name := range clusterTraces {
		if n, err := strconv.Atoi(strings.TrimSpace(h.Getenv(name))); err == nil && n > 1 {
			found = append(found, fmt.Sprintf("%s=%d", name, n))
		}
	}
	return found
}

// ErrNowhere is the problem of several nodes whose meeting point the platform leaves to flags.
var ErrNowhere = errors.New("but nothing says where they meet")

// contradiction refuses numbers that cannot all be true.
func contradiction(f Finding) error {
	if f.Nodes > 0 && f.Rank >= f.Nodes {
		return fmt.Errorf("%s: this is node %d, but there are only %d nodes, numbered from 0 (%s): "+
			"does one of these count processes? say --nnodes and --node-rank", f.Rule, f.Rank, f.Nodes, strings.Join(f.Evidence, ", "))
	}
	if f.Nodes > 1 && f.Host == "" && len(f.Etcd) == 0 {
		return fmt.Errorf("%s: %d nodes, %w (%s): say --rdzv-endpoint HOST:PORT", f.Rule, f.Nodes, ErrNowhere, strings.Join(f.Evidence, ", "))
	}
	return nil
}

// A reader reads variables and keeps what it saw as evidence.
type reader struct {
	host     job.Host
	evidence []string
	warnings []string
}

// text returns a variable that is set, "" otherwise.
func (r *reader) text(name string) string {
	v := strings.TrimSpace(r.host.Getenv(name))
	if v != "" {
		r.evidence = append(r.evidence, name+"="+v)
	}
	return v
}

var errUnset = errors.New("not set")

// number returns a variable that must be a whole number of at least low when it is set. errUnset says that it is not.
func (r *reader) number(name string, low int) (int, error) {
	v := r.text(name)
	if v == "" {
		return 0, errUnset
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < low {
		return 0, fmt.Errorf("%s=%s is not a whole number from %d on", name, v, low)
	}
	return n, nil
}

// port returns a variable that holds a port, or 0. A Service named "master" makes kubelet set MASTER_PORT=tcp://…,
// which is not meant for us: it counts as unset, with a warning.
func (r *reader) port(name string) (int, error) {
	if v := r.host.Getenv(name); strings.Contains(v, "://") {
		r.warnings = append(r.warnings, fmt.Sprintf("%s=%s is no port; it is left aside", name, v))
		return 0, nil
	}
	n, err := r.number(name, 1)
	if err == nil && n > 65535 {
		return 0, fmt.Errorf("%s=%d is no port: the last is 65535", name, n)
	}
	return optional(n, err, 0)
}

// master reads where node 0 runs, and the port there. In a job of one node nobody is to be met, so that an odd address
// does no harm.
func (r *reader) master(addr, port string, f *Finding) (err error) {
	if f.Port, err = r.port(port); err != nil {
		return err
	}
	v := r.text(addr)
	if f.Host, err = Host(v); err != nil && f.Nodes != 1 {
		return fmt.Errorf("%s=%s %w", addr, v, err)
	}
	f.RankZero = true
	return nil
}

// optional turns an unset number into fallback.
func optional(n int, err error, fallback int) (int, error) {
	if errors.Is(err, errUnset) {
		return fallback, nil
	}
	return n, err
}
