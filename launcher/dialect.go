package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/dialect"
	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/framework"
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/launcher/pid1"
	"github.com/muster-run/muster/lazy"
	"github.com/muster-run/muster/topology"
)

// This file is what remains of another launcher's words once its flags are muster's: variables and arguments of workers, and
// that launcher in places where it must not start anything.

// Tasks are those of this node in a round: what the framework expects, and over it what another launcher gives its workers.
func (p Plan) Tasks(place framework.Place, c Config) []job.Task {
	tasks := p.Framework.Tasks(place, p.Command, c.given)
	for i := range tasks {
		local, _ := place.Local(tasks[i].LocalRank)
		tasks[i].Env = slices.Concat(place.Networks, tasks[i].Env, c.Dialect.Env, c.virtual(local, hip(p.machine)))
		p.bind(c, &tasks[i])
		if c.Debug == "" {
			tasks[i].Argv = c.arguments(tasks[i].Argv, strconv.Itoa(local))
		}
	}
	return tasks
}

// planCores decides on which cores each worker runs, where another launcher was asked for that.
func planCores(c Config, _ discovery.Finding, p *Plan) (err error) {
	b := c.Dialect.Cores
	if !b.Asked || p.Spec.Self.Slots == 0 {
		return nil
	}
	if b.Near != "" {
		return planNear(c, p)
	}
	if value, set := c.getenv("KMP_AFFINITY"); set { // which DeepSpeed refuses, too: OpenMP would bind otherwise
		return fail(job.ExitUsage, "unset it, or leave the flag out", "KMP_AFFINITY=%s and %s both say where threads run", value, b.From)
	}
	p.Bindings, err = b.Bindings(c.Host, p.Spec.Self.Slots)
	switch {
	case errors.Is(err, dialect.ErrNotHere) || err != nil && b.List == "": // another node may have other cores
		return p.bars(fail(job.ExitRefused, "", "%w", err))
	case err != nil:
		return fail(job.ExitUsage, "", "%w", err)
	}
	each := len(p.Bindings[0].CPUs)
	p.Settings = append(p.Settings, Setting{Name: "cores", Value: fmt.Sprintf("%d for each worker", each), From: b.From})
	return nil
}

// planNear decides on which cores near its GPU each worker runs. PyTorch counts GPUs as their driver does: by their place, where all are of one kind.
func planNear(c Config, p *Plan) (err error) {
	var nodes []int
	gpus := p.machine.Seen(c.getenv)
	for _, g := range gpus {
		order, _ := c.getenv("CUDA_DEVICE_ORDER")
		if g.PCI.Address == (topology.Address{}) || g.Vendor != "nvidia" || g.Model != gpus[0].Model && order != "PCI_BUS_ID" {
			return p.bars(fail(job.ExitRefused, "leave it out, or set CUDA_DEVICE_ORDER=PCI_BUS_ID where GPUs of NVIDIA are of several kinds",
				"%s: which of this node's GPUs is whose is their driver's choice, which muster does not know", c.Dialect.Cores.From))
		}
		nodes = append(nodes, g.PCI.NUMA)
	}
	if p.Bindings, err = c.Dialect.Cores.NearGPUs(c.Host, nodes, p.Spec.Self.Slots); err != nil {
		return p.bars(fail(job.ExitRefused, "", "%w", err))
	}
	p.Settings = append(p.Settings, Setting{Name: "cores", Value: "near each worker's GPU (" + c.Dialect.Cores.Near + ")", From: c.Dialect.Cores.From})
	return nil
}

// planVirtual makes sure that there is a GPU for each worker that is to see one alone.
func planVirtual(c Config, _ discovery.Finding, p *Plan) error {
	name, list := c.visible(hip(p.machine))
	if n := len(strings.Split(list, ",")); c.Dialect.Virtual != "" && list != "" && n < p.Spec.Self.Slots {
		return fail(job.ExitUsage, "", "%s: %s=%s has %d GPUs for %d workers", c.Dialect.Virtual, name, list, n, p.Spec.Self.Slots)
	}
	return nil
}

// virtual is what a worker is told that sees one GPU alone (torch/distributed/elastic/agent/server/local_elastic_agent.py,
// _set_local_rank_env).
func (c Config) virtual(local int, hip bool) job.Env {
	if c.Dialect.Virtual == "" {
		return nil
	}
	name, list := c.visible(hip)
	device := strconv.Itoa(local)
	if all := strings.Split(list, ","); list != "" && local < len(all) {
		device = strings.TrimSpace(all[local])
	}
	e := job.Env{
		{Name: "LOCAL_RANK", Value: "0", Why: c.Dialect.Virtual + ": the number of its GPU, as this worker sees it"},
		{Name: "CUDA_VISIBLE_DEVICES", Value: device, Why: c.Dialect.Virtual + ": the GPU of this worker alone"},
	}
	if name != "CUDA_VISIBLE_DEVICES" {
		e = append(e, job.Var{Name: name, Value: device, Why: c.Dialect.Virtual + ": the GPU of this worker alone"})
	}
	return e
}

// hip reports whether HIP's list may count, as it does for PyTorch: where no GPU of another vendor is seen.
func hip(m topology.Machine) bool {
	gpus := m.Slots()
	return len(gpus) == 0 || gpus[0].Vendor == "amd"
}

// visible is the variable that says which GPUs can be seen, and its value. HIP's means nothing to CUDA.
func (c Config) visible(hip bool) (name, list string) {
	if list, _ = c.getenv("HIP_VISIBLE_DEVICES"); list != "" && hip {
		return "HIP_VISIBLE_DEVICES", list
	}
	list, _ = c.getenv("CUDA_VISIBLE_DEVICES")
	return "CUDA_VISIBLE_DEVICES", list
}

// localRank is what torchrun's users write in a script's arguments for the local rank
// (torch/distributed/elastic/agent/server/api.py, macros).
var localRank = lazy.Regexp(`\$\{local_rank\}|\$local_rank\b`)

// arguments is a worker's command with its local rank in it, where the other launcher puts it.
func (c Config) arguments(command []string, local string) []string {
	if !c.Dialect.Template && c.Dialect.LocalRank == "" {
		return command
	}
	script := len(command) - len(c.Argv) + 1 // where its arguments begin
	argv := slices.Clone(command)
	for i := script; i < len(argv) && c.Dialect.Template; i++ {
		argv[i] = localRank().ReplaceAllLiteralString(argv[i], local)
	}
	if c.Dialect.LocalRank != "" {
		argv = slices.Insert(argv, script, c.Dialect.LocalRank+"="+local)
	}
	return argv
}

// Become returns the program, with its arguments and environment, that a worker becomes in which another launcher was called.
func Become(c Config, local string) (argv, environ []string, err error) {
	if argv, err = command(c); err != nil {
		return nil, nil, err
	}
	argv = slices.Clone(c.arguments(argv, local))
	if argv[0], err = pid1.LookPath(argv[0], "", c.Environ); err != nil {
		return nil, nil, err
	}
	rank, _ := strconv.Atoi(local) // else it is no worker's, and 0 does no harm
	var machine topology.Machine
	if c.Dialect.Virtual != "" {
		machine, _ = topology.Probe(c.Root) // without one it has no GPUs
	}
	return argv, slices.Concat(c.Dialect.Env, c.virtual(rank, hip(machine))).Over(c.Environ), nil
}

// worldOf is which variable of a worker says what a flag asks for, what it counts, and which flag of muster run asks for as many. Frameworks other than torch say it otherwise, or not.
var worldOf = map[string]struct{ variable, what, flag string }{
	"nnodes":         {"GROUP_WORLD_SIZE", "nodes", "nnodes"},
	"standalone":     {"GROUP_WORLD_SIZE", "nodes", "nnodes"},
	"nproc-per-node": {"LOCAL_WORLD_SIZE", "workers on each node", "nproc-per-node"},
}

// Fits reports why what another launcher is asked for is not the world in which it was called as a worker.
func Fits(r dialect.Request, getenv func(string) string) error {
	if r.Tuning != "" {
		return fmt.Errorf("%s starts jobs, and this is a worker of one: call it where the job would be started", r.Tuning)
	}
	if r.Cores.Asked {
		return fmt.Errorf("%s says on which cores workers run, and they run; let muster start it: muster run -- and this command line", r.Cores.From)
	}
	for _, f := range r.Flags {
		if f.Name == "standalone" && f.Value == "true" {
			f.Value = "1"
		}
		w := worldOf[f.Name]
		asked, err := strconv.Atoi(f.Value)
		if w.variable == "" || f.Default || err != nil { // a range, auto: it takes what there is
			continue
		}
		if there := getenv(w.variable); there != "" && there != strconv.Itoa(asked) {
			return fmt.Errorf("%s says %d %s, but the job has %s; muster did not find this launcher behind what runs it: leave that out, or say it to muster run, too: --%s %d", f.From, asked, w.what, there, w.flag, asked)
		}
	}
	return nil
}

// Real finds the real program for a command line of another launcher, of which muster may have taken the place: the next of its name in
// PATH, or else its module in Python.
func Real(words, environ []string) (path string, args []string, err error) {
	name := filepath.Base(words[0])
	if found := Programs(name, environ); len(found) > 0 {
		if i := slices.IndexFunc(found, func(p Program) bool { return !p.Muster }); i >= 0 {
			return found[i].Path, words, nil
		}
	}
	c := Config{Environ: environ}
	python, err := c.interpreter()
	if err != nil {
		return "", nil, fail(ExitCode(err), "", "there is no real %s in PATH, and %w", name, err)
	}
	return python, slices.Concat([]string{python, "-m", dialect.Whole(name)}, words[1:]), nil
}

// A Program is a file that a name stands for.
type Program struct {
	Path   string
	Muster bool // it is this program
}

// Programs are all files that a name in PATH stands for, the one that is run first.
func Programs(name string, environ []string) (found []Program) {
	path, _ := Config{Environ: environ}.getenv("PATH")
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		info, missing := os.Stat(file)
		if missing != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			continue
		}
		found = append(found, Program{Path: file, Muster: isMuster(file)})
	}
	return found
}

// isMuster reports whether a file is this program, or a link to it.
func isMuster(file string) bool {
	self, err := os.Stat("/proc/self/exe")
	info, missing := os.Stat(file)
	return err == nil && missing == nil && os.SameFile(self, info)
}
