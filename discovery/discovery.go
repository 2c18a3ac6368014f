// Package discovery reads from what the platform left behind which job this is: one file and one line per platform.
package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-run/muster/job"
)

// A Finding is what one platform says of the job. Fields that it leaves open are for flags or for the rendezvous.
type Finding struct {
	Rule     string   // the platform's name
	Nodes    int      // that train; 0: not said
	Least    int      // with how many the job may begin; 0: Nodes
	Rank     int      // this node's number; -1: not said, or it has none
	Prefer   int      // the number that it likes to have, where the rendezvous gives them; -1: any
	Host     string   // the master's name or address, as Host spells it; "" when there is none
	Port     int      // 0: not said
	Etcd     []string // members of the etcd in which the nodes meet, as Members spells them; then there is no Host
	NProc    string   // workers per node, as the platform says it: a number, "auto", "gpu", "cpu"; "" when not said
	JobID    string   // "" when not said
	Restarts int      // how often a failed round may be followed by another; -1: not said
	NProcBy  string   // the variable that says NProc
	JobIDBy  string   // the variable that says JobID
	RankZero bool     // Host is where node 0 runs, so that node 0 may know itself by its number
	Self     bool     // Host is this node, which the platform does not name to itself
	Taken    bool     // the training framework itself listens at Port
	// Framework is that of the training, where the system runs trainings of one only; FrameworkBy is the variable that tells.
	Framework, FrameworkBy string

	Role    string   // of this node in its job, as the manifest or the framework calls it; "": not said
	Index   int      // among the nodes of its role; -1: not said
	Hosts   []string // of the nodes that train, by rank, where the platform says them
	Servers int      // parameter servers beside the nodes that train
	Serves  bool     // this node is one of them, number Index
	Members int      // size of the platform's own group, where it does not say how many of them train
	Group   int      // number of this job among those of one manifest, as LeaderWorkerSet has them; -1: there is one
	Attempt int      // the platform's count of starts of this job; -1: not said
	// AttemptBy is the variable that says Attempt, where all nodes of the job are told the same; "": each may be told of its own starts alone.
	AttemptBy string
	Namespace string // of Kubernetes, in which Host is a name; "": Host is one everywhere
	FixPort   int    // Port, where another variable has a wrong one

	Sparse  bool   // the platform tells nobody of all nodes
	ToldBy  string // who tells the number of nodes to this one, which cannot know it
	Park    bool   // what ends well is started again by the platform, unless it stays
	Decider bool   // this node's end is the job's
	Outside bool   // this node does its work beside the world of those who train, and meets nobody
	LastArg string // what the platform puts behind the command's own arguments; "": nothing

	PerProcess  bool   // there is one agent for each process, not for each node
	Processes   int    // how many there are on all nodes; 0: there is one for each node
	ProcessRank int    // the process's number; -1: not said
	LocalRank   int    // the process's number on its node; -1: not said
	Machine     string // the node's name, where processes of one node may find it called otherwise; "": the host's
	GPUs        int    // of the node, of which a process may see fewer; 0: not said
	Nested      bool   // this is already a worker, which another launcher started

	counts string // the variable behind Nodes, where it may count processes
	asked  bool   // Nodes is what muster's own flag or variable says, beside which the platform knows none

	Evidence []string // NAME=VALUE of everything that the finding rests on
	// Problem is what is wrong with the values, nil if nothing is. It matters unless flags settle nodes, rank and
	// endpoint, for flags win over the platform.
	Problem error
	// Barred is why muster run has no part in this, though nothing is wrong; nil: it has.
	Barred   error
	Warnings []Warning // what a person should know
	// Leftover is evidence of a job of several nodes that no rule made sense of. N silent single trainings are the
	// worst outcome, so a node that finds any must not run alone unless it is told to.
	Leftover []string
}

// A Warning is a sentence for people, with a word for programs.
type Warning struct{ Code, Text string }

// A platform knows the traces of one system.
type platform struct {
	name string
	here func(r *reader) bool              // something is there that this system leaves
	find func(r *reader, f *Finding) error // a halfMatch: it does not say enough
	over []string                          // later platforms whose words mean something else beside this one's; "*": all of them
}

// platforms is every platform that muster knows, in the order in which they are tried:
// tell-tale traces first, what any other system may leave as well last.
var platforms = []platform{
	nested, sagemaker, awsBatch, vertex, azureML, volcengine, modelArts, lepton, dlrover, determined, ascend, googleBatch, tencent,
	slurm, lws, trainJobTorch, trainJobJAX, trainJobXGBoost, volcano, xgboostJob, dlc, pytorchJob, paddleOperator, paddleLaunch, jaxJob, tfJob,
	mpiJob, hostfile, mpirun, jobSet, indexed, statefulSet, pet, generic,
}

func unsaid(rule string) Finding {
	return Finding{Rule: rule, Rank: -1, Prefer: -1, Restarts: -1, Index: -1, Group: -1, Attempt: -1, ProcessRank: -1, LocalRank: -1}
}

// Detect returns what the first platform that left all its traces says, with what the others have against it, or the finding
// "single" when there are none.
func Detect(h job.Host) Finding {
	var halves []Finding
	var warnings []Warning
	for i, p := range platforms {
		f, r, err := p.read(h)
		switch half := new(halfMatch); {
		case r == nil:
		case errors.As(err, half):
			if warnings = append(warnings, r.warnings...); !half.harmless {
				f.Problem, f.Evidence = fmt.Errorf("%s: %w", f.Rule, err), r.evidence
				halves = append(halves, f)
			}
		default:
			r.warnings = append(warnings, r.warnings...)
			return f.complete(r, err).started(h).placeless().within(r).witnessed(h, p.over, platforms[i+1:])
		}
	}
	return alone(h, halves, warnings)
}

// Standalone is a node that is alone whatever its platform says. What torchrun's variables say of its workers counts, as it does for torchrun.
func Standalone(h job.Host) Finding {
	r := &reader{host: h}
	f := unsaid("standalone")
	f.Nodes = 1
	f.Problem = petWorkers(r, &f)
	f.Evidence, f.Warnings = r.evidence, r.warnings
	return f
}

// read is what a platform says; r is nil if it left nothing.
func (p platform) read(h job.Host) (f Finding, r *reader, err error) {
	r = &reader{host: h}
	if !p.here(r) {
		return f, nil, nil
	}
	f = unsaid(p.name)
	err = p.find(r, &f)
	return f, r, err
}

// alone is a node that no platform claims; halves are what those say that left something. The first of them has a name for what this
// may be.
func alone(h job.Host, halves []Finding, warnings []Warning) Finding {
	r := &reader{host: h, warnings: warnings}
	if len(halves) > 0 {
		f := halves[0]
		for _, other := range halves[1:] {
			f.Problem = fmt.Errorf("%w; %w", f.Problem, other.Problem)
			f.Evidence = append(f.Evidence, other.Evidence...)
		}
		f.Warnings = warnings
		return f
	}
	f := unsaid("single")
	f.Nodes, f.Leftover = 1, leftover(r)
	if _, role, n, ok := member(first(h.Hostname), roles...); ok && r.inKubernetes() {
		f.Role, f.Index = role, n
	}
	return f.complete(r, nil)
}

// complete adds what torchrun's own variables say of a job whatever system told the rest, and looks for
// contradictions. err is what the platform's own values have against them.
func (f Finding) complete(r *reader, err error) Finding {
	if err == nil {
		err = addPET(r, &f)
	}
	if err == nil {
		err = told(r, &f)
	}
	if err == nil {
		err = again(r, &f)
	}
	if f.Framework == "" {
		f.Framework, f.FrameworkBy = trains(r.host, f.Rule)
	}
	if tfNobody(r.host) {
		r.warn("tf-config", "TF_CONFIG=%s names nobody: taken for none", clip(r.get("TF_CONFIG")))
	}
	for _, name := range []string{"CLUSTER_SPEC", "DLTS_HOSTFILE"} {
		if r.get(name) == "" && slices.ContainsFunc(r.host.Environ, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
			r.warn("empty", "%s= is empty: taken for none", name)
		}
	}
	f.Evidence, f.Warnings = r.evidence, r.warnings
	if err != nil {
		f.Problem = fmt.Errorf("%s: %w", f.Rule, err)
	} else {
		f.Problem = contradiction(f)
	}
	return f
}

// told is the number of nodes in muster's own variable, where the platform knows none.
func told(r *reader, f *Finding) error {
	if f.Nodes > 0 || f.Nested || r.get(sizeVariable) == "" {
		return nil
	}
	return r.size(f)
}

// attemptVariable is --attempt, for platforms that count the starts of a job where no variable has it: a JobSet's label, Volcano's annotation.
const attemptVariable = "MUSTER_ATTEMPT"

// again is the number of this start of the job, as the manifest hands it on.
func again(r *reader, f *Finding) error {
	n, err := r.number(attemptVariable, 0)
	if err == nil {
		f.Attempt, f.AttemptBy = n, attemptVariable
	}
	_, err = optional(n, err, 0)
	return err
}

// witnessed asks the platforms after the one that was found whether they say the same. Those that it is over are known not to. What nobody
// reads, but only one of several nodes has, speaks against one node, too.
func (f Finding) witnessed(h job.Host, over []string, others []platform) Finding {
	for _, p := range others {
		w, r, err := p.read(h)
		settled := (slices.Contains(over, p.name) || slices.Contains(over, "*")) && !f.solo(w)
		switch {
		case r == nil || isHalf(err) || f.Problem != nil:
		case err != nil && !settled:
			f.warn(p.name, "left aside: %s: %v", p.name, err)
		case err != nil || f.agrees(r, w):
		case settled:
			f.warn(cmp.Or(w.counts, p.name), "%s says %s, %s (%s) %s: the first counts", f.Rule, f.count(), w.Rule, strings.Join(r.evidence, ", "), w.count())
		default:
			f.Problem = fmt.Errorf("%s says %s (%s), but %s says %s (%s): correct one of them, or say --nnodes, --node-rank and --rdzv-endpoint",
				f.Rule, f.count(), strings.Join(f.Evidence, ", "), w.Rule, w.count(), strings.Join(r.evidence, ", "))
		}
	}
	if numbers := ofSeveral(&reader{host: h}); f.Nodes == 1 && f.Least == 0 && f.Barred == nil && !f.Serves && !f.PerProcess && !f.Outside && f.Problem == nil && len(numbers) > 0 {
		f.Problem = fmt.Errorf("%s says 1 node (%s), but there is %s as one of several has it: correct one of them, or say --nnodes (1 for a run of this node alone), "+
			"--node-rank and --rdzv-endpoint", f.Rule, strings.Join(f.Evidence, ", "), strings.Join(numbers, ", "))
	}
	if f.Problem == nil && f.Barred == nil {
		f.Problem = slurmLoop(&reader{host: h}, f)
	}
	return f
}

// warn keeps a warning, unless there is one of its kind.
func (f *Finding) warn(code, format string, args ...any) {
	if !slices.ContainsFunc(f.Warnings, func(w Warning) bool { return w.Code == code }) {
		f.Warnings = append(f.Warnings, Warning{code, fmt.Sprintf(format, args...)})
	}
}

// solo reports whether this would train alone, where another platform says that it is one of several: nothing settles that.
func (f Finding) solo(w Finding) bool {
	return f.Nodes == 1 && f.Least == 0 && (w.Nodes > 1 || w.Least > 1) && !w.asked
}

// agrees reports whether another platform says the same, or would if its numbers were of processes and not of nodes. The processes of one
// node meet on it, and what is started once for them all is the first.
func (f Finding) agrees(r *reader, w Finding) bool {
	if f.Outside || w.Outside {
		return true
	}
	if f.PerProcess && w.counts != "" && w.Nodes == f.Processes && (w.Rank < 0 || w.Rank == f.ProcessRank) {
		return true
	}
	if f.solo(w) && f.Barred == nil && w.Barred == nil && !f.Serves {
		return w.counts != "" && w.Rank <= 0 && (w.Host == f.Host || w.Self || r.isHere(w.Host))
	}
	if f.Least != 0 || w.Least != 0 || f.Barred != nil || w.Barred != nil || f.Serves || f.Nodes == 0 || w.Nodes == 0 {
		return true
	}
	share := 1
	if w.counts != "" && w.Nodes%f.Nodes == 0 {
		share = w.Nodes / f.Nodes
	}
	return w.Nodes/share == f.Nodes && (f.Rank < 0 || w.Rank < 0 || w.Rank == f.Rank || w.Rank/share == f.Rank)
}

// count is what a finding says in numbers, for people.
func (f Finding) count() string {
	if f.Rank < 0 {
		return fmt.Sprintf("%d nodes", f.Nodes)
	}
	return fmt.Sprintf("this is node %d of %d", f.Rank, f.Nodes)
}

// Trouble is why this cannot be acted on as it is: a problem of what the platform said, or traces of others that nobody could read.
func (f Finding) Trouble() error {
	if f.Problem == nil && len(f.Leftover) > 0 {
		return fmt.Errorf("%s: this looks like one of several nodes, but nothing says where they meet", strings.Join(f.Leftover, ", "))
	}
	return f.Problem
}

// started is for a process of a launcher that starts one for each GPU, on the nodes of which a platform tells: without a number of its own each
// of them would train alone. A launcher that starts processes on this node alone, beside others, makes no world of them all.
func (f Finding) started(h job.Host) Finding {
	w, r, err := mpirun.read(h)
	if r == nil || err != nil || f.PerProcess || f.Nested {
		return f
	}
	if f.Rule == slurm.name && w.Nodes != f.Nodes {
		return f.underDaemon(w, r)
	}
	if !w.PerProcess {
		return f
	}
	f.process(w.ProcessRank, w.LocalRank, w.Processes)
	if w.Nodes != f.Nodes && f.Barred == nil {
		f.Barred = fmt.Errorf("the launcher's %d processes are not those of all nodes, of which %s says %d: %w", f.Processes, f.Rule, f.Nodes, f.AsProcess())
	}
	if w.Host != "" && f.Rule == mpiJob.name { // on which all ranks agree, and not all see the same files
		f.Host, f.Port, f.RankZero = w.Host, w.Port, w.RankZero
	}
	if w.JobID != "" && f.JobID != "" { // a platform's job may start several of them
		if f.JobID += "." + w.JobID; f.Rule == slurm.name {
			f.Port = slurmPort(f.JobID)
		}
	} else if f.Rule == slurm.name && w.Nodes == 1 && w.Host == "" && f.Barred == nil { // whose word is that of all launchers in one step
		f.Barred = fmt.Errorf("this is process %d of %d, %w: say --rdzv-endpoint HOST:PORT, the same to all processes of this launcher, and to no other", f.ProcessRank, f.Processes, ErrUnnamed)
	}
	f.Evidence = append(f.Evidence, r.evidence...)
	return f
}

// underDaemon is for a rank of a launcher whose daemons alone are a step of Slurm's: that step lacks the node where the launcher is, and numbers the others from 0.
func (f Finding) underDaemon(w Finding, r *reader) Finding {
	rank, all, step := w.Rank, w.Nodes, fmt.Sprint(f.Nodes, " nodes")
	if f.Nodes == 1 {
		step = "1 node"
	}
	if w.PerProcess {
		rank, all = w.ProcessRank, w.Processes
		f.process(rank, w.LocalRank, all)
	}
	if f.Barred == nil {
		f.Barred = fmt.Errorf("this is process %d of %d of a launcher inside a job of Slurm's, whose own step here has %s: start muster by srun instead of that launcher, "+
			"one task a node or one for each GPU", rank, all, step)
	}
	f.Evidence = append(f.Evidence, r.evidence...)
	return f
}

// process says that this agent was started for one process, not for one node, and is one of so many on all nodes.
func (f *Finding) process(rank, local, all int) {
	f.PerProcess, f.ProcessRank, f.LocalRank, f.Processes = true, rank, local, all
}

// AsProcess is why an agent that was started for one process does not take a node's part.
func (f Finding) AsProcess() error {
	return fmt.Errorf("this was started as process %d of %d, one of several on its node: start muster once per node, which starts the processes itself "+
		"(srun --ntasks-per-node 1, mpirun --map-by ppr:1:node, process_count_per_instance: 1), or leave numbers of nodes and workers to the launcher", f.ProcessRank, f.Processes)
}

// placeless bars a process whose launcher says nothing of where they meet: flags may.
func (f Finding) placeless() Finding {
	if f.PerProcess && f.Host == "" && len(f.Etcd) == 0 && f.Barred == nil {
		f.Barred = fmt.Errorf("this is process %d of %d, %w: say --rdzv-endpoint HOST:PORT, the same to all, or set MASTER_ADDR to where process 0 runs", f.ProcessRank, f.Processes, ErrNowhere)
	}
	return f
}

// ErrNowhere is the problem of several nodes whose meeting point the platform leaves to flags.
var ErrNowhere = errors.New("but nothing says where they meet")

// ErrUnnamed is why processes do not meet where nothing tells their launcher from another one beside it.
var ErrUnnamed = errors.New("and a launcher that has no name for its job started it")

// contradiction refuses numbers that cannot all be true.
func contradiction(f Finding) error {
	if f.Nodes > 0 && f.Rank >= f.Nodes {
		return fmt.Errorf("%s: this is node %d, but there are only %d nodes, numbered from 0 (%s): "+
			"does one of these count processes? say --nnodes and --node-rank", f.Rule, f.Rank, f.Nodes, strings.Join(f.Evidence, ", "))
	}
	if f.Nodes > job.MaxNodes {
		return fmt.Errorf("%s: %d nodes (%s), and at most %d are possible", f.Rule, f.Nodes, strings.Join(f.Evidence, ", "), job.MaxNodes)
	}
	if f.PerProcess && (f.Processes < 1 || f.ProcessRank >= f.Processes) {
		return fmt.Errorf("%s: this is process %d of %d (%s): these cannot both be true", f.Rule, f.ProcessRank, f.Processes, strings.Join(f.Evidence, ", "))
	}
	if f.Nodes > 1 && f.Host == "" && len(f.Etcd) == 0 && f.Barred == nil && !f.PerProcess {
		return fmt.Errorf("%s: %d nodes, %w (%s): say --rdzv-endpoint HOST:PORT", f.Rule, f.Nodes, ErrNowhere, strings.Join(f.Evidence, ", "))
	}
	return nil
}
