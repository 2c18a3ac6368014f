package launcher

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/muster-run/muster/affinity"
	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/job"
)

// This file is where on their node workers run, and with how many threads, as package affinity chooses it for this machine.

// planBind decides that, where no other launcher was asked for it.
func planBind(c Config, _ discovery.Finding, p *Plan) error {
	if c.Dialect.Cores.Asked || p.Spec.Self.Slots == 0 || c.Bind == "" {
		return nil
	}
	asked := c.From["bind"] != "" && c.Bind != affinity.None
	if rival := affinity.Rival(c.getenv); asked && rival != "" {
		return fail(job.ExitUsage, "unset it, or leave the flag out", "%s and %s both say where threads run", rival, c.said("bind", c.Bind))
	}
	choice := affinity.Choose(affinity.Given{Machine: p.machine, Mode: c.Bind, Workers: p.Spec.Self.Slots, Getenv: c.getenv, Sealed: sealed()})
	if c.Dialect.Command == nil && p.Process == nil { // else that launcher's own default counts, or other agents' workers are there, too
		for _, w := range choice.Workers {
			p.Threads = append(p.Threads, w.Threads)
		}
	}
	if why := c.unbound(p, choice); why != "" {
		p.set(c, "bind", "no worker: "+why, "default")
		if asked {
			p.Notes = append(p.Notes, fmt.Sprintf("%s binds no worker: %s", c.said("bind", c.Bind), why))
		}
		return nil
	}
	for _, w := range choice.Workers {
		p.Bindings = append(p.Bindings, bindingOf(w))
		if w.CPUs == nil && asked {
			p.Notes = append(p.Notes, fmt.Sprintf("%s does not bind all workers: %s", c.said("bind", c.Bind), w.Why))
			asked = false // which is said
		}
	}
	for _, l := range choice.Lines() {
		p.set(c, "bind", l, "default")
	}
	if choice.Sealed {
		const text = "this container's seccomp profile does not let memory be placed (set_mempolicy wants CAP_SYS_NICE): it will be near the CPU that first writes to it"
		p.set(c, "bind", text, "default")
		if c.From["bind"] != "" {
			p.Notes = append(p.Notes, c.said("bind", c.Bind)+": "+text)
		}
	}
	return nil
}

// unbound is why no worker is bound.
func (c Config) unbound(p *Plan, choice affinity.Choice) string {
	switch {
	case c.Dialect.Binds && c.From["bind"] == "":
		return "the launcher whose words these are binds none unless it is asked to"
	case p.Process != nil:
		return "whoever started one agent for each process binds them (srun --cpu-bind)"
	case choice.Bound():
		return ""
	}
	return cmp.Or(choice.Why, choice.Workers[0].Why)
}

func bindingOf(w affinity.Worker) job.Binding {
	b := job.Binding{CPUs: w.CPUs}
	if w.Memory >= 0 {
		b.Memory, b.Prefer = []int{w.Memory}, true
	}
	return b
}

// threadsVariable is what OpenMP, and with it MKL and PyTorch, takes the number of threads from.
const threadsVariable = "OMP_NUM_THREADS"

// bind gives a task its place, and threads for it.
func (p Plan) bind(c Config, t *job.Task) {
	if t.LocalRank < len(p.Bindings) {
		t.Binding = p.Bindings[t.LocalRank]
		if c.Dialect.Cores.Asked && c.Dialect.Cores.Near == "" { // torchrun leaves the threads as they are
			t.Env = append(t.Env, job.Var{Name: threadsVariable, Value: strconv.Itoa(len(t.Binding.CPUs)), Why: "this worker's cores by " + c.Dialect.Cores.From})
		}
	}
	if i := slices.IndexFunc(t.Env, func(v job.Var) bool { return v.Name == threadsVariable }); i >= 0 && t.LocalRank < len(p.Threads) {
		t.Env[i].Value, t.Env[i].Why = strconv.Itoa(p.Threads[t.LocalRank]), "its part of the cores where it may run, and of the quota; for OpenMP, MKL and PyTorch"
	}
}
