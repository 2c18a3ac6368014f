package dialect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// An exporter collects the variables that accelerate gives its workers.
type exporter struct {
	s   *settings
	env job.Env
}

func (x *exporter) add(name, value, why string) {
	x.env = append(x.env, job.Var{Name: name, Value: value, Why: why})
}

// env is what accelerate's workers read (accelerate/utils/launch.py, prepare_*_env), in its own spelling of each value.
func (s *settings) env(h job.Host, w way) (job.Env, error) {
	x := &exporter{s: s}
	if err := x.precision(); err != nil {
		return nil, err
	}
	if s.yes("debug") {
		x.add("ACCELERATE_DEBUG_MODE", "true", s.byName["debug"].from)
	}
	if s.yes("enable_cpu_affinity") {
		x.add("ACCELERATE_CPU_AFFINITY", "1", s.byName["enable_cpu_affinity"].from)
	}
	if role, ok := s.byName["role"]; ok {
		x.add("ROLE_NAME", role.value, role.from)
	}
	x.devices()
	if err := x.plugin(h, w); err != nil {
		return nil, err
	}
	if w.parallel {
		x.add("ACCELERATE_USE_PARALLELISM_CONFIG", "true", "its workers train in several dimensions")
		x.group(parallelArgs)
	}
	return x.env, nil
}

// plugin exports what the training's way needs. DeepSpeed's workers get nothing of torch.compile.
func (x *exporter) plugin(h job.Host, w way) error {
	if w.deepspeed {
		x.deepspeed(h, w)
		return nil
	}
	if err := x.dynamo(); err != nil {
		return err
	}
	x.threads(h)
	x.cpu(w)
	if w.megatron {
		x.add("ACCELERATE_USE_MEGATRON_LM", "true", w.from)
		x.group(megatronArgs)
	}
	if !w.fsdp {
		return nil
	}
	x.add("ACCELERATE_USE_FSDP", "true", w.from)
	x.group(fsdpArgs)
	return x.s.loading()
}

// loading reports settings of FSDP that contradict each other, where accelerate does: as truths of its file.
func (s *settings) loading() error {
	load, sync := s.byName["fsdp_cpu_ram_efficient_loading"], s.byName["fsdp_sync_module_states"]
	if load.value != "False" && sync.value == "False" {
		return fmt.Errorf("%s is false, but fsdp_cpu_ram_efficient_loading needs it (%s)", sync.from, load.from)
	}
	return nil
}

// group exports all args of a group that have a value.
func (x *exporter) group(args []arg) {
	for _, a := range args {
		said, ok := x.s.byName[a.name()]
		if !ok || a.variable == "" || a.above != "" && x.s.number(a.above) <= 1 {
			continue
		}
		if a.lower {
			said.value = strings.ToLower(said.value)
		}
		x.add(a.variable, said.value, said.from)
	}
}

// precision exports how precisely the workers calculate.
func (x *exporter) precision() error {
	said, ok := x.s.byName["mixed_precision"]
	value := strings.ToLower(said.value)
	switch {
	case !ok:
		value, said.from = "no", "accelerate's default"
	case value == "false": // an unquoted no in YAML
		value = "no"
	}
	if err := among(precisions)(value); err != nil {
		return fmt.Errorf("%s: %w", said.from, err)
	}
	x.add("ACCELERATE_MIXED_PRECISION", value, said.from)
	if value == "fp8" {
		return x.fp8()
	}
	return nil
}

// fp8 exports the settings of training in eight bits, of which one is three truths.
func (x *exporter) fp8() error {
	x.group(slices.DeleteFunc(slices.Clone(fp8Args), func(a arg) bool { return a.names == fp8Override }))
	said := x.s.byName[strings.TrimPrefix(fp8Override, "--")]
	truths := strings.Split(said.value, ",")
	if len(truths) != 3 {
		return fmt.Errorf("%s: %q is not three truths: for fprop, dgrad and wgrad, such as false,false,true", said.from, said.value)
	}
	for i, name := range []string{"FPROP", "DGRAD", "WGRAD"} {
		x.add("ACCELERATE_FP8_OVERRIDE_"+name, truths[i], said.from)
	}
	return nil
}

// visible are the variables that say which devices workers see, by the distributed_type of their vendors.
var visible = map[string]string{
	"MULTI_XPU": "ZE_AFFINITY_MASK", "MULTI_MLU": "MLU_VISIBLE_DEVICES", "MULTI_SDAA": "SDAA_VISIBLE_DEVICES",
	"MULTI_MUSA": "MUSA_VISIBLE_DEVICES", "MULTI_NPU": "ASCEND_RT_VISIBLE_DEVICES",
	"MULTI_HPU": "HABANA_VISIBLE_MODULES", "MULTI_NEURON": "NEURON_RT_VISIBLE_CORES",
}

// devices exports which GPUs of this machine the workers see.
func (x *exporter) devices() {
	ids := x.s.byName["gpu_ids"]
	if ids.value == "" || ids.value == "all" {
		return
	}
	name := visible[x.s.byName["distributed_type"].value]
	if name == "" {
		name = "CUDA_VISIBLE_DEVICES"
	}
	x.add(name, ids.value, ids.from)
}

// dynamo exports the settings of torch.compile.
func (x *exporter) dynamo() error {
	said := x.s.byName["dynamo_backend"]
	said.value = strings.ToUpper(said.value)
	if said.value == "FALSE" { // an unquoted no in YAML
		said.value = "NO"
	}
	if err := among(dynamoBackends)(said.value); err != nil {
		return fmt.Errorf("%s: %w", said.from, err)
	}
	x.s.byName["dynamo_backend"] = said
	x.group(dynamoArgs)
	return nil
}

// cpu exports that workers train without a GPU: else each of them would believe that it is alone. OpenMP of Intel's then binds
// its threads to cores.
func (x *exporter) cpu(w way) {
	one := x.s.number("num_processes") == 1 && x.s.number("num_machines") <= 1
	switch {
	case w.cpu:
		x.add("ACCELERATE_USE_CPU", "True", w.cpuFrom)
		x.add("KMP_AFFINITY", "granularity=fine,compact,1,0", w.cpuFrom)
		x.add("KMP_BLOCKTIME", "1", w.cpuFrom)
	case w.plain() && one:
		x.add("ACCELERATE_USE_CPU", "False", x.s.byName["num_processes"].from+" is 1")
	}
}

// deepspeed exports what DeepSpeed's plugin reads, and where its workers find the user's modules.
func (x *exporter) deepspeed(h job.Host, w way) {
	x.add("ACCELERATE_USE_DEEPSPEED", "true", w.from)
	names := x.s.dsNames
	if x.s.byName["mixed_precision"].inFile {
		names = append(slices.Clone(names), "mixed_precision")
	}
	x.add("ACCELERATE_CONFIG_DS_FIELDS", strings.ToLower(strings.Join(names, ",")), "what accelerate's file says of DeepSpeed")
	path := slices.DeleteFunc(strings.Split(h.Getenv("PYTHONPATH"), ":"), func(dir string) bool { return dir == "" })
	x.add("PYTHONPATH", strings.Join(append(path, cmp.Or(h.Dir, ".")), ":"), "DeepSpeed's workers import from the working directory")
	x.group(deepspeedArgs)
}

// threads exports how many threads each worker calculates with: one, or what is there of a machine without GPUs.
func (x *exporter) threads(h job.Host) {
	said, ok := x.s.byName["num_cpu_threads_per_process"]
	user, err := strconv.Atoi(h.Getenv("OMP_NUM_THREADS"))
	switch {
	case ok:
	case err == nil && user > 0:
		said = setting{value: strconv.Itoa(user), from: "OMP_NUM_THREADS"}
	default:
		said = setting{value: "1", from: "accelerate's default"}
		if n := x.share(h); n > 1 {
			said = setting{value: strconv.Itoa(n), from: "this machine's cores, shared by its workers on the CPU"}
		}
	}
	x.add("OMP_NUM_THREADS", said.value, said.from)
}

// share is each worker's part of the machine's cores, when there is no GPU; 0 if that is not said.
func (x *exporter) share(h job.Host) int {
	onCPU := x.s.yes("use_cpu") || x.s.file == "" && x.s.yes("cpu")
	local := x.s.number("num_processes") / max(x.s.number("num_machines"), 1)
	if !onCPU || local < 1 {
		return 0
	}
	return cores(h) / local
}

// cores counts the machine's cores, of which each may run several threads; 0 where the kernel does not say.
func cores(h job.Host) int {
	online, err := h.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return 0
	}
	return coresOf(h, cpuList(strings.TrimSpace(string(online))))
}

// coresOf counts the cores whose threads some CPUs are; 0 where the kernel does not say.
func coresOf(h job.Host, cpus []int) int {
	seen := map[string]bool{}
	for _, cpu := range cpus {
		threads, err := h.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/core_cpus_list", cpu))
		if err != nil {
			return 0
		}
		seen[string(threads)] = true
	}
	return len(seen)
}

// maxCPU bounds a CPU's number.
const maxCPU = 1 << 16

// cpuList reads the kernel's form of a set of CPUs: 0-3,8.
func cpuList(text string) (cpus []int) {
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		first, err := strconv.Atoi(low)
		last, err2 := strconv.Atoi(high)
		if err != nil || err2 != nil || first < 0 || last > maxCPU {
			return nil
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}
