package dialect

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// An arg is one of accelerate's settings. Most are a flag as well as a key of a map in its configuration file.
type arg struct {
	names    string // as an option has them
	alone    bool
	takes    func(value string) error
	spelt    func(value string) error // what the flag takes, where the file may have it in capitals, too; nil: the same
	usual    string                   // the default, as accelerate writes it; "": none
	write    writing                  // nil: as it is given
	variable string                   // that tells the workers; "": none, or the one that its group's names make
	lower    bool                     // the variable's value is in lower case
	above    string                   // the variable is set only if this arg, a number, is above 1
}

func (a arg) option() option {
	if a.spelt != nil {
		return option{a.names, a.alone, a.spelt}
	}
	return option{a.names, a.alone, a.takes}
}

// name is the arg's, with underscores.
func (a arg) name() string { return a.option().name() }

// accelerateArgs are those of accelerate launch 1.15 (accelerate/commands/launch.py) that say what is started, and how.
var accelerateArgs = []arg{
	{names: "--help -h", alone: true},
	{names: "--config_file"},
	{names: "--quiet -q", alone: true},
	{names: "--debug", alone: true},
	{names: "--cpu", alone: true},
	{names: "--multi_gpu", alone: true},
	{names: "--use_deepspeed", alone: true},
	{names: "--use_fsdp", alone: true},
	{names: "--use_megatron_lm", alone: true},
	{names: "--use_parallelism_config", alone: true},
	{names: "--mixed_precision", spelt: among(precisions)},
	{names: "--num_processes", takes: whole(1)},
	{names: "--num_machines", takes: whole(1)},
	{names: "--machine_rank", takes: whole(0)},
	{names: "--num_cpu_threads_per_process", write: pyInt},
	{names: "--enable_cpu_affinity", alone: true},
	{names: "--gpu_ids", takes: gpuNames},
	{names: "--same_network", alone: true},
	{names: "--main_process_ip"},
	{names: "--main_process_port", takes: aPort},
	{names: "--tee -t"},
	{names: "--log_dir"},
	{names: "--role"},
	{names: "--rdzv_backend"},
	{names: "--rdzv_conf"},
	{names: "--max_restarts", takes: whole(0)},
	{names: "--monitor_interval"},
	{names: "--module -m", alone: true},
	{names: "--no_python", alone: true},
}

// dynamoArgs are those of torch.compile.
var dynamoArgs = named("ACCELERATE_", []arg{
	{names: "--dynamo_backend", spelt: among(strings.ToLower(dynamoBackends)), usual: "no"},
	{names: "--dynamo_mode", takes: among("default reduce-overhead max-autotune"), usual: "default"},
	{names: "--dynamo_use_fullgraph", alone: true, usual: "False"},
	{names: "--dynamo_use_dynamic", alone: true, usual: "False"},
	{names: "--dynamo_use_regional_compilation", alone: true, usual: "False"},
})

// precisions are those of --mixed_precision.
const precisions = "no fp16 bf16 fp8"

// gpuNames takes what vendors' variables do that say which devices are seen: numbers, of parts as well (0.1), and the names that NVIDIA and AMD give them.
func gpuNames(value string) error {
	if value == "" || value == "all" {
		return nil
	}
	seen := map[string]bool{}
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		if seen[name] {
			return fmt.Errorf("%q has GPU %.80s twice", value, name)
		}
		seen[name] = true
		if (name == "" || strings.Trim(name, "0123456789.") != "") && !strings.HasPrefix(name, "GPU-") && !strings.HasPrefix(name, "MIG-") {
			return fmt.Errorf("%q is no list of GPUs: give all, or numbers as 0,1, or names as GPU-…", value)
		}
	}
	return nil
}

// dynamoBackends are accelerate's DynamoBackend, by which it knows one from the command line or from its file.
const dynamoBackends = "NO EAGER AOT_EAGER INDUCTOR AOT_TS_NVFUSER NVPRIMS_NVFUSER CUDAGRAPHS OFI FX2TRT ONNXRT TENSORRT " +
	"AOT_TORCHXLA_TRACE_ONCE TORCHXLA_TRACE_ONCE TVM HPU_BACKEND NEURON"

// deepspeedArgs are those that DeepSpeed's plugin reads. accelerate itself does not pass on the two paths of NVMe, which it reads.
var deepspeedArgs = []arg{
	{names: "--deepspeed_config_file", variable: "ACCELERATE_DEEPSPEED_CONFIG_FILE"},
	{names: "--zero_stage", write: pyInt, variable: "ACCELERATE_DEEPSPEED_ZERO_STAGE"},
	{names: "--offload_optimizer_device", lower: true, variable: "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE"},
	{names: "--offload_param_device", lower: true, variable: "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE"},
	{names: "--offload_optimizer_nvme_path", variable: "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH"},
	{names: "--offload_param_nvme_path", variable: "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH"},
	{names: "--gradient_accumulation_steps", write: pyInt, variable: "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"},
	{names: "--gradient_clipping", write: pyFloat, lower: true, variable: "ACCELERATE_GRADIENT_CLIPPING"},
	{names: "--zero3_init_flag", lower: true, variable: "ACCELERATE_DEEPSPEED_ZERO3_INIT"},
	{names: "--zero3_save_16bit_model", lower: true, variable: "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL"},
	{names: "--deepspeed_moe_layer_cls_names", variable: "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES"},
	{names: "--deepspeed_hostfile"},
	{names: "--deepspeed_multinode_launcher", takes: among("pdsh standard openmpi mvapich mpich nossh slurm")},
}

// fsdpArgs are those of FSDP's plugin. What it takes for unset is not what the launcher takes, so all have a variable.
var fsdpArgs = named("", []arg{
	{names: "--fsdp_version", takes: among("1 2"), usual: "1"},
	{names: "--fsdp_sharding_strategy", usual: "FULL_SHARD"},
	{names: "--fsdp_reshard_after_forward", usual: "true", lower: true},
	{names: "--fsdp_offload_params", usual: "false", lower: true},
	{names: "--fsdp_min_num_params", usual: "100000000", write: pyInt},
	{names: "--fsdp_auto_wrap_policy"},
	{names: "--fsdp_transformer_layer_cls_to_wrap", variable: "FSDP_TRANSFORMER_CLS_TO_WRAP"},
	{names: "--fsdp_backward_prefetch"},
	{names: "--fsdp_state_dict_type"},
	{names: "--fsdp_forward_prefetch", usual: "false", lower: true},
	{names: "--fsdp_use_orig_params", usual: "true", lower: true},
	{names: "--fsdp_cpu_ram_efficient_loading", usual: "true", lower: true},
	{names: "--fsdp_sync_module_states", usual: "true", lower: true},
	{names: "--fsdp_activation_checkpointing", usual: "false", lower: true},
	{names: "--fsdp_activation_checkpointing_offload", usual: "false", lower: true},
	{names: "--fsdp_ignored_modules"}, // in accelerate a key of its file only
})

// megatronArgs are those of Megatron-LM's plugin.
var megatronArgs = named("", []arg{
	{names: "--megatron_lm_tp_degree", usual: "1", write: pyInt},
	{names: "--megatron_lm_pp_degree", usual: "1", write: pyInt},
	{names: "--megatron_lm_gradient_clipping", usual: "1.0", write: pyFloat},
	{names: "--megatron_lm_use_custom_fsdp", usual: "False", write: pyBool},
	{names: "--megatron_lm_no_load_optim", usual: "False", write: pyBool},
	{names: "--megatron_lm_eod_mask_loss", usual: "False", write: pyBool},
	{names: "--megatron_lm_no_save_optim", usual: "False", write: pyBool},
	{names: "--megatron_lm_optimizer_cpu_offload", usual: "False", write: pyBool},
	{names: "--megatron_lm_overlap_cpu_optimizer_d2h_h2d", usual: "False", write: pyBool},
	{names: "--megatron_lm_use_precision_aware_optimizer", usual: "False", write: pyBool},
	{names: "--megatron_lm_decoder_last_pipeline_num_layers", write: pyInt},
	{names: "--megatron_lm_num_micro_batches", write: pyInt},
	{names: "--megatron_lm_sequence_parallelism"},
	{names: "--megatron_lm_recompute_activations"},
	{names: "--megatron_lm_use_distributed_optimizer"},
	{names: "--megatron_lm_recompute_granularity"},
	{names: "--megatron_lm_recompute_method"},
	{names: "--megatron_lm_recompute_num_layers", write: pyInt},
	{names: "--megatron_lm_attention_backend"},
	{names: "--megatron_lm_expert_model_parallel_size", write: pyInt},
	{names: "--megatron_lm_context_parallel_size", write: pyInt},
	{names: "--megatron_lm_attention_dropout", write: pyFloat},
	{names: "--megatron_lm_hidden_dropout", write: pyFloat},
	{names: "--megatron_lm_attention_softmax_in_fp32"},
	{names: "--megatron_lm_expert_tensor_parallel_size", write: pyInt},
	{names: "--megatron_lm_calculate_per_token_loss"},
	{names: "--megatron_lm_use_rotary_position_embeddings"},
})

// fp8Args are those of training in eight bits. accelerateTriple stands for three variables.
var fp8Args = named("ACCELERATE_", []arg{
	{names: "--fp8_backend", takes: among("ao te msamp")},
	{names: "--fp8_use_autocast_during_eval", alone: true, usual: "False"},
	{names: "--fp8_margin", usual: "0", write: pyInt},
	{names: "--fp8_interval", usual: "1", write: pyInt},
	{names: "--fp8_format", takes: among("HYBRID E4M3 E5M2"), usual: "HYBRID"},
	{names: "--fp8_amax_history_len", usual: "1024", write: pyInt},
	{names: "--fp8_amax_compute_algo", takes: among("max most_recent"), usual: "most_recent"},
	{names: fp8Override, usual: "False,False,False", write: pyDigits},
	{names: "--fp8_opt_level", takes: among("O1 O2"), usual: "O2"},
	{names: "--fp8_enable_fsdp_float8_all_gather", usual: "1", write: pyDigit},
	{names: "--fp8_pad_inner_dim", usual: "1", write: pyDigit},
})

// fp8Override is three truths, of which each has a variable.
const fp8Override = "--fp8_override_linear_precision"

// parallelArgs are those of training that is parallel in several dimensions.
var parallelArgs = named("", []arg{
	{names: "--parallelism_config_dp_replicate_size", usual: "1", write: pyInt},
	{names: "--parallelism_config_dp_shard_size", usual: "1", write: pyInt},
	{names: "--parallelism_config_tp_size", usual: "1", write: pyInt},
	{names: "--parallelism_config_cp_size", usual: "1", write: pyInt},
	{names: "--parallelism_config_cp_backend", takes: among("torch"), usual: "torch"},
	{names: "--parallelism_config_sp_size", usual: "1", write: pyInt},
	{names: "--parallelism_config_sp_backend", takes: among("deepspeed"), usual: "deepspeed"},
	{names: "--parallelism_config_cp_comm_strategy", usual: "allgather", above: "parallelism_config_cp_size"},
	{names: "--parallelism_config_sp_seq_length", usual: "None", above: "parallelism_config_sp_size"},
	{names: "--parallelism_config_sp_seq_length_is_variable", usual: "True", write: pyBool, above: "parallelism_config_sp_size"},
	{names: "--parallelism_config_sp_attn_implementation", usual: "sdpa", above: "parallelism_config_sp_size"},
})

// A bygone is a flag that other releases of accelerate have.
type bygone struct {
	option
	means, value string // the flag that it is today, and that one's value; "": its own
	why          string // it changes nothing
}

var accelerateBygones = []bygone{
	{option{names: "--fp16", alone: true}, "mixed_precision", "fp16", ""},
	{option{names: "--fsdp_backward_prefetch_policy"}, "fsdp_backward_prefetch", "", ""},
	{option{names: "--use_mps_device", alone: true}, "", "", "there are no GPUs of Apple's where muster runs"},
	{option{names: "--mps", alone: true}, "", "", "there are no GPUs of Apple's where muster runs"},
	{option{names: "--use_xpu", alone: true}, "", "", "newer accelerate finds Intel's GPUs by itself"},
	{option{names: "--ipex", alone: true}, "", "", "newer accelerate has no use for Intel's extension"},
	{option{names: "--mpirun_ccl"}, "", "", "muster starts the workers without mpirun"},
	{option{names: "--use_tp", alone: true}, "", "", "newer accelerate has --parallelism_config_tp_size instead"},
	{option{names: "--tp_size"}, "", "", "newer accelerate has --parallelism_config_tp_size instead"},
}

const (
	noTPU       = "muster starts workers for GPUs and CPUs; MUSTER_BYPASS=1 runs the real accelerate"
	noSageMaker = "muster starts workers on the machine where it runs; MUSTER_BYPASS=1 runs the real accelerate"
	noMPIRun    = "leave it out and run this line on every machine: muster starts the workers itself"
	noFilter    = "leave it out: the machines are those on which this line is run, and --gpu_ids names their GPUs"
)

// A refusal is a flag for what is not in muster, and what to do instead.
type refusal struct {
	option
	instead string
}

var accelerateRefusals = []refusal{
	{option{names: "--tpu", alone: true}, noTPU},
	{option{names: "--tpu_cluster", alone: true}, noTPU},
	{option{names: "--no_tpu_cluster", alone: true}, noTPU},
	{option{names: "--tpu_use_sudo", alone: true}, noTPU},
	{option{names: "--vm"}, noTPU},
	{option{names: "--env"}, noTPU},
	{option{names: "--main_training_function"}, noTPU},
	{option{names: "--downcast_bf16", alone: true}, noTPU},
	{option{names: "--aws_access_key_id"}, noSageMaker},
	{option{names: "--aws_secret_access_key"}, noSageMaker},
	{option{names: "--mpirun_hostfile"}, noMPIRun},
	{option{names: "--deepspeed_exclusion_filter"}, noFilter},
	{option{names: "--deepspeed_inclusion_filter"}, noFilter},
}

// settled are all args whose values come from the command line, the file or a default.
var settled = slices.Concat(accelerateArgs, dynamoArgs, deepspeedArgs, fsdpArgs, megatronArgs, fp8Args, parallelArgs)

// accelerateOptions are all that accelerate launch takes, and what it took once.
var accelerateOptions = sync.OnceValue(func() (o options) {
	o.spellings = true
	for _, a := range settled {
		o.known = append(o.known, a.option())
	}
	for _, b := range accelerateBygones {
		o.known = append(o.known, b.option)
	}
	for _, r := range accelerateRefusals {
		o.known = append(o.known, r.option)
	}
	return o
})

// named gives each arg a variable: a prefix and its own name.
func named(prefix string, args []arg) []arg {
	for i, a := range args {
		if a.variable == "" {
			args[i].variable = prefix + strings.ToUpper(a.name())
		}
	}
	return args
}

// argNamed finds an arg by its name.
func argNamed(name string) (arg, bool) {
	i := slices.IndexFunc(settled, func(a arg) bool { return a.name() == name })
	if i < 0 {
		return arg{}, false
	}
	return settled[i], true
}

// refusalNamed finds a refusal by its name.
func refusalNamed(name string) (refusal, bool) {
	i := slices.IndexFunc(accelerateRefusals, func(r refusal) bool { return r.name() == name })
	if i < 0 {
		return refusal{}, false
	}
	return accelerateRefusals[i], true
}
