package dialect

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-run/muster/job"
)

// torchrun is PyTorch's own launcher (torch/distributed/run.py, torch/distributed/launch.py).
var torchrun = Dialect{
	Name:     "torchrun",
	Doc:      "start a job as torchrun does, with its flags",
	Programs: []string{"torchrun"},
	Modules:  []string{"torch.distributed.run", "torch.distributed.launch"},
	Whole:    "torch.distributed.run",
	parse:    parseTorchrun,
}

// torchrunOptions are those of PyTorch 1.13 to 2.15. The variables that set them, PET_ and the name, set those of
// muster run, and are not read here.
var torchrunOptions = options{abbreviate: true, spellings: true, known: []option{
	{names: "--help -h", alone: true},
	{names: "--nnodes"}, {names: "--nproc-per-node"}, {names: "--node-rank"},
	{names: "--rdzv-backend"}, {names: "--rdzv-endpoint"}, {names: "--rdzv-id"}, {names: "--rdzv-conf"},
	{names: "--standalone", alone: true},
	{names: "--max-restarts", takes: whole(0)}, {names: "--monitor-interval"},
	{names: "--start-method"}, {names: "--event-log-handler"}, {names: "--role"},
	{names: "--module -m", alone: true}, {names: "--no-python", alone: true}, {names: "--run-path", alone: true},
	{names: "--log-dir"}, {names: "--redirects -r"}, {names: "--tee -t"}, {names: "--local-ranks-filter"},
	{names: "--duplicate-stdout-filters"}, {names: "--duplicate-stderr-filters"},
	{names: "--master-addr"}, {names: "--master-port"}, {names: "--local-addr"},
	{names: "--logs-specs"}, {names: "--numa-binding", takes: among("node socket exclusive core-complex")},
	{names: "--signals-to-handle"}, {names: "--shutdown-timeout"}, {names: "--virtual-local-rank", alone: true},
}}

// launchOptions are those of torch.distributed.launch, which has one more.
var launchOptions = options{abbreviate: true, spellings: true, known: append(slices.Clone(torchrunOptions.known),
	option{names: "--use-env", alone: true})}

// sameWords are options that muster run has by the same name, with the same values.
var sameWords = strings.Fields("nnodes nproc-per-node node-rank rdzv-backend rdzv-conf standalone max-restarts " +
	"monitor-interval start-method module no-python log-dir redirects tee local-ranks-filter local-addr")

// notInMuster are options that would change what a job does, and what to do without them.
var notInMuster = map[string]string{
	"duplicate_stdout_filters": "leave it out and use grep on what --tee keeps",
	"duplicate_stderr_filters": "leave it out and use grep on what --tee keeps",
}

func parseTorchrun(_ job.Host, as string, args []string) (r Request, err error) {
	known := torchrunOptions
	if as == "torch.distributed.launch" {
		known = launchOptions
	}
	l, err := known.parse(args)
	if err != nil {
		return r, err
	}
	if r.Help = l.has("help"); r.Help {
		return r, nil
	}
	if len(l.rest) == 0 {
		return r, errors.New("no script: it follows the flags")
	}
	for name, instead := range notInMuster {
		if s, ok := l.last(name); ok {
			return r, fmt.Errorf("%s is not in muster: %s", s.as, instead)
		}
	}
	if s, ok := l.last("logs_specs"); ok && s.value != "default" {
		return r, fmt.Errorf("%s is not in muster: leave it out: only default can be, for others are classes of Python's that lay out log files; --log-dir, --tee and --redirects are understood", s.as)
	}
	r.Command, r.Template, r.Binds, r.PerCPU = l.rest, true, true, true
	r.Script = !l.has("module") && !l.has("no_python")
	if s, ok := l.last("numa_binding"); ok {
		r.Cores = Cores{Asked: true, Near: s.value, From: s.as}
	}
	if s, ok := l.last("virtual_local_rank"); ok {
		r.Virtual = s.as
	}
	for _, word := range sameWords {
		if s, ok := l.last(strings.ReplaceAll(word, "-", "_")); ok {
			r.set(word, s.value, s.as)
		}
	}
	if err := torchrunMeeting(l, &r); err != nil {
		return r, err
	}
	torchrunRest(l, &r)
	if as == "torch.distributed.launch" {
		return r, torchLaunch(l, &r)
	}
	return r, nil
}

// torchrunMeeting says where the nodes meet. torchrun takes an endpoint before an address of node 0, and neither for a
// node that stands alone. A port of 0 is a free one, as always in muster.
func torchrunMeeting(l line, r *Request) error {
	if id, ok := l.last("rdzv_id"); ok && id.value != "none" { // which is torchrun's word for no name
		r.set("rdzv-id", id.value, id.as)
	}
	if l.has("standalone") {
		return nil
	}
	if s, ok := l.last("rdzv_endpoint"); ok && s.value != "" {
		r.set("rdzv-endpoint", s.value, s.as)
		return nil
	}
	if s, ok := l.last("master_addr"); ok {
		r.set("master-addr", s.value, s.as)
	}
	port, ok := l.last("master_port")
	if nodes := l.given("nnodes").value; nodes != "" && nodes != "1" && nodes != "1:1" {
		if err := unknownPort(port); err != nil {
			return err
		}
	}
	switch {
	case ok && port.value == "0":
		r.Free = port.as + " 0"
	case ok:
		r.set("master-port", port.value, port.as)
	}
	return nil
}

// torchrunRest are the options that mean something else to muster, or nothing.
func torchrunRest(l line, r *Request) {
	if !l.has("nproc_per_node") {
		r.Flags = append(r.Flags, Flag{Name: "nproc-per-node", Value: "1", From: "torchrun's default", Default: true})
	}
	if s, ok := l.last("role"); ok {
		r.Env = append(r.Env, job.Var{Name: "ROLE_NAME", Value: s.value, Why: s.as})
	}
	if s, ok := l.last("shutdown_timeout"); ok {
		r.set("grace", s.value, s.as)
	}
	for name, why := range map[string]string{
		"signals_to_handle": "muster passes TERM, INT and HUP on to the workers",
		"event_log_handler": "muster's events are in its log, and in what --journal keeps",
		"run_path":          "a script is run by python, as a program of its own",
	} {
		if s, ok := l.last(name); ok {
			r.Notes = append(r.Notes, s.as+" changes nothing: "+why)
		}
	}
	slices.Sort(r.Notes)
}

// torchLaunch is what torch.distributed.launch does otherwise: it tells each script its local rank by a flag.
func torchLaunch(l line, r *Request) error {
	if l.has("use_env") {
		return nil
	}
	if l.has("no_python") {
		return errors.New("--no-python needs --use-env: a program that is not Python gets no --local-rank")
	}
	r.LocalRank = "--local-rank"
	return nil
}
