package dialect

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// accelerate is the launcher of Hugging Face's library of that name (accelerate/commands/launch.py, accelerate/utils/launch.py). Its
// other commands start nothing.
var accelerate = Dialect{
	Name:     "accelerate",
	Doc:      "start a job as accelerate launch does, with its flags and its configuration file",
	Programs: []string{"accelerate launch", "accelerate-launch"},
	Modules:  []string{"accelerate.commands.launch"},
	Whole:    "accelerate.commands.accelerate_cli",
	parse:    parseAccelerate,
}

func parseAccelerate(h job.Host, _ string, args []string) (r Request, err error) {
	l, err := accelerateOptions().parse(args)
	if err != nil {
		return r, err
	}
	if r.Help = l.has("help"); r.Help {
		return r, nil
	}
	if err := accelerateRefuses(l); err != nil {
		return r, err
	}
	s, err := settle(h, l)
	if err != nil {
		return r, err
	}
	way, err := s.way()
	if err != nil {
		return r, err
	}
	r.Command, r.Template = l.rest, true
	r.Script = !s.yes("module") && !s.yes("no_python")
	if err := s.flags(way, &r); err != nil {
		return r, err
	}
	r.Env, err = s.env(h, way)
	slices.Sort(s.notes)
	r.Notes = s.notes
	return r, err
}

// accelerateRefuses reports a flag for what is not in muster, and flags that contradict each other.
func accelerateRefuses(l line) error {
	for _, r := range accelerateRefusals {
		if s, ok := l.last(r.name()); ok {
			return fmt.Errorf("%s is not in muster: %s", s.as, r.instead)
		}
	}
	var ways []string
	for _, name := range []string{"cpu", "multi_gpu", "use_deepspeed", "use_fsdp"} {
		if s, ok := l.last(name); ok {
			ways = append(ways, s.as)
		}
	}
	switch {
	case len(ways) > 1:
		return fmt.Errorf("%s contradict each other: give one of them", strings.Join(ways, " and "))
	case l.has("module") && l.has("no_python"):
		return errors.New("--module is Python, --no_python is not: give one of them")
	case len(l.rest) == 0:
		return errors.New("no script: it follows the flags")
	}
	return nil
}

// A way is how accelerate trains: the plugin that its workers are to load, and on what.
type way struct {
	deepspeed, fsdp, megatron, parallel bool
	multi                               bool // several processes and no plugin
	cpu                                 bool
	from, cpuFrom                       string
}

// plain reports whether accelerate would start one process, whatever their number, unless it sees several GPUs.
func (w way) plain() bool { return !w.deepspeed && !w.fsdp && !w.megatron && !w.multi }

// distributedTypes are accelerate's, and the flags that mean them.
var distributedTypes = map[string]string{
	"NO": "", "MULTI_CPU": "", "DEEPSPEED": "use_deepspeed", "FSDP": "use_fsdp", "MEGATRON_LM": "use_megatron_lm",
	"MULTI_GPU": "multi_gpu", "MULTI_XPU": "multi_gpu", "MULTI_NPU": "multi_gpu", "MULTI_MLU": "multi_gpu",
	"MULTI_SDAA": "multi_gpu", "MULTI_MUSA": "multi_gpu", "MULTI_HPU": "multi_gpu", "MULTI_NEURON": "multi_gpu",
}

// way finds it out: flags win, then the configuration file's distributed_type. On a CPU accelerate loads no plugin.
func (s *settings) way() (w way, err error) {
	on := map[string]bool{}
	for _, name := range []string{"use_deepspeed", "use_fsdp", "use_megatron_lm", "multi_gpu"} {
		if said, ok := s.line.last(name); ok {
			on[name], w.from = true, said.as
		}
	}
	if kind := s.byName["distributed_type"]; s.file != "" && len(on) == 0 {
		flag, ok := distributedTypes[kind.value]
		if !ok {
			return w, noType(kind)
		}
		on[flag], w.from = true, kind.from
	}
	if w.cpu = s.byName["distributed_type"].value == "MULTI_CPU"; w.cpu {
		w.cpuFrom = w.from
	}
	for _, name := range []string{"use_cpu", "cpu"} {
		if s.yes(name) {
			w.cpu, w.cpuFrom = true, s.byName[name].from
		}
	}
	if !s.yes("cpu") {
		w.deepspeed = on["use_deepspeed"]
		w.fsdp, w.megatron = on["use_fsdp"] && !w.deepspeed, on["use_megatron_lm"] && !w.deepspeed
		w.multi = on["multi_gpu"]
	}
	return w, s.parallelism(&w)
}

// noType says why a distributed_type is none of muster's.
func noType(kind setting) error {
	if kind.value == "XLA" || kind.value == "TPU" {
		return fmt.Errorf("%s is %s, which is not in muster: %s", kind.from, kind.value, noTPU)
	}
	var known []string
	for name := range distributedTypes {
		known = append(known, name)
	}
	slices.Sort(known)
	return fmt.Errorf("%s is %q, which is none of %s", kind.from, kind.value, strings.Join(known, ", "))
}

// parallelism decides whether the workers are told of several dimensions. Those need FSDP or DeepSpeed.
func (s *settings) parallelism(w *way) error {
	flag, said := s.line.last("use_parallelism_config")
	i := slices.IndexFunc(s.keys, func(k key) bool { return k.name == "parallelism_config" && len(k.keys) > 0 })
	w.parallel = (said || i >= 0) && !s.yes("cpu") && !w.plain()
	if w.parallel && !said && w.from != s.byName["distributed_type"].from {
		s.notes = append(s.notes, fmt.Sprintf("parallelism_config in %s is heeded here; with %s accelerate itself passes over it", s.file, w.from))
	}
	if said && !w.fsdp && !s.yes("cpu") {
		return fmt.Errorf("%s needs --use_fsdp and --fsdp_version 2", flag.as)
	}
	return nil
}

// accelerateWords are settings that muster run has under another name, or the same, with the same values.
var accelerateWords = []struct{ name, flag string }{
	{"num_machines", "nnodes"}, {"rdzv_backend", "rdzv-backend"}, {"rdzv_conf", "rdzv-conf"}, {"max_restarts", "max-restarts"},
	{"monitor_interval", "monitor-interval"}, {"tee", "tee"}, {"log_dir", "log-dir"},
}

// flags says what muster run is asked for.
func (s *settings) flags(w way, r *Request) error {
	for _, word := range accelerateWords {
		if said := s.byName[word.name]; said.value != "" {
			r.set(word.flag, said.value, said.from)
		}
	}
	for _, name := range []string{"module", "no_python"} {
		if said := s.byName[name]; s.yes(name) {
			r.set(strings.ReplaceAll(name, "_", "-"), "true", said.from)
		}
	}
	if err := s.meeting(r); err != nil {
		return err
	}
	if err := s.hostfile(w); err != nil {
		return err
	}
	s.idle()
	s.heeded(w)
	return s.workers(w, r)
}

// meeting says where the machines meet, and which one this is. A single machine needs neither, and its file may name both.
func (s *settings) meeting(r *Request) error {
	several := s.number("num_machines") > 1
	if rank := s.byName["machine_rank"]; rank.value != "" && several {
		r.set("node-rank", rank.value, rank.from)
	}
	ip, port := s.byName["main_process_ip"], s.byName["main_process_port"]
	if several {
		r.Meet = "--main_process_ip and --main_process_port"
		if err := unknownPort(said{value: port.value, as: port.from}); err != nil {
			return err
		}
	}
	if strings.HasPrefix(s.byName["rdzv_backend"].value, "etcd") && ip.value != "" && several { // whose place that is, then
		r.set("rdzv-endpoint", "etcd://"+net.JoinHostPort(strings.Trim(ip.value, "[]"), cmp.Or(port.value, "2379")), ip.from)
		return nil
	}
	if ip.value != "" && several {
		r.set("master-addr", ip.value, ip.from)
	}
	switch {
	case s.number("main_process_port") > 0:
		r.set("master-port", port.value, port.from)
	case port.value != "": // a free one, as always in muster
		r.Free = port.from + " 0"
	}
	return nil
}

// workers says how many workers this machine has. accelerate counts those of all machines. Where nobody says how many, there is
// one per GPU.
func (s *settings) workers(w way, r *Request) error {
	all, n, machines := s.byName["num_processes"], s.number("num_processes"), max(s.number("num_machines"), 1)
	if n == 0 {
		if s.yes("cpu") {
			r.Flags = append(r.Flags, Flag{Name: "nproc-per-node", Value: "1", From: "accelerate's default with --cpu", Default: true})
		}
		return nil
	}
	if err := s.miscounted(w, n, machines); err != nil {
		return err
	}
	if pet := s.host.Getenv("PET_NNODES"); pet != "" && pet != "1" && pet != "1:1" && machines == 1 && s.line.given("num_machines").as == "" {
		s.notes = append(s.notes, fmt.Sprintf("%s is %d on each machine: PET_NNODES says %s of them, which accelerate takes where nothing says --num_machines", all.from, n, pet))
		r.Flags = slices.DeleteFunc(r.Flags, func(f Flag) bool { return f.Name == "nnodes" })
	} else if s.number("num_machines") == 0 { // a platform that knows of more must not multiply what is all machines'
		r.set("nnodes", "1", "accelerate's default of --num_machines")
		r.Hint = "say --num_machines, and in --num_processes how many there are on all machines together; as it is, accelerate would train on each alone"
	}
	r.set("nproc-per-node", strconv.Itoa(n/machines), all.from)
	if n > 1 && w.plain() && (w.cpu || s.file != "" || n == machines) {
		s.notes = append(s.notes, fmt.Sprintf("%s is %d: muster starts them all, where accelerate would start one on each machine", all.from, n))
	}
	return nil
}

// miscounted reports a number of processes that does not go with machines or GPUs.
func (s *settings) miscounted(w way, n, machines int) error {
	all, multi, ids := s.byName["num_processes"], s.byName["multi_gpu"], s.byName["gpu_ids"]
	oneGPU := ids.value != "" && ids.value != "all" && !strings.Contains(ids.value, ",")
	switch {
	case n%machines != 0:
		return fmt.Errorf("%s is %d for all machines together, which the %d of %s cannot share evenly: give a multiple of %d",
			all.from, n, machines, s.byName["num_machines"].from, machines)
	case n == 1 && multi.value != "":
		return fmt.Errorf("%s needs at least 2 processes, but %s is 1", multi.from, all.from)
	case n > 1 && machines == 1 && oneGPU && w.multi && s.file != "":
		return fmt.Errorf("%s names one GPU, but %s is %d", ids.from, all.from, n)
	}
	return nil
}

// hostfile holds the hostfile that accelerate would hand to DeepSpeed, whose nodes are then those of the job, against the number of machines. One that
// is not there changes nothing: DeepSpeed's job would be of this machine alone.
func (s *settings) hostfile(w way) error {
	said, machines := s.byName["deepspeed_hostfile"], s.byName["num_machines"]
	if !w.deepspeed || said.value == "" || s.number("num_machines") < 2 || s.byName["deepspeed_multinode_launcher"].value == "standard" {
		return nil
	}
	text, there, err := readFile(s.host, said.value)
	if err != nil {
		return fmt.Errorf("%s: %w", said.from, err)
	}
	if !there {
		return nil
	}
	hosts, err := parseHostfile(said.value, text)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", said.from, err)
	case len(hosts) != s.number("num_machines"):
		return fmt.Errorf("%s: %s lists %d, but %s is %s: which machines are the job's?", said.from, said.value, len(hosts), machines.from, machines.value)
	}
	return nil
}

// idle notes what changes nothing in muster.
func (s *settings) idle() {
	for name, why := range map[string]string{
		"quiet":                        "muster always says in one line how the job ended",
		"deepspeed_hostfile":           "the machines are those on which this line is run",
		"deepspeed_multinode_launcher": "muster starts the workers, without ssh",
	} {
		if said := s.byName[name]; said.value != "" && said.value != "standard" {
			s.notes = append(s.notes, said.from+" changes nothing: "+why)
		}
	}
}

// heeded notes what accelerate itself passes over.
func (s *settings) heeded(w way) {
	for _, it := range []struct {
		name  string
		usual string
		here  bool // where accelerate passes over it
	}{
		{"rdzv_backend", "static", s.byName["rdzv_backend"].inFile},
		{"enable_cpu_affinity", "False", s.byName["enable_cpu_affinity"].inFile},
		{"use_cpu", "False", !w.plain() && !w.deepspeed},
		{"offload_optimizer_nvme_path", "none", w.deepspeed},
		{"offload_param_nvme_path", "none", w.deepspeed},
	} {
		if said := s.byName[it.name]; it.here && said.value != "" && said.value != it.usual {
			s.notes = append(s.notes, fmt.Sprintf("%s is %s: heeded here; accelerate itself passes over it", said.from, said.value))
		}
	}
}
