package dialect

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// A setting is one of accelerate's values, as Python's str() writes it, and where it is from.
type setting struct {
	value, from string
	inFile      bool
}

// settings are accelerate's values: those of the command line, else those of its configuration file, else its defaults.
type settings struct {
	host    job.Host
	line    line
	file    string // "": there is none
	keys    []key  // the file's
	byName  map[string]setting
	notes   []string
	dsNames []string // what the file says of DeepSpeed
}

// settle collects the values of a command line and of the configuration file that goes with it.
func settle(h job.Host, l line) (*settings, error) {
	s := &settings{host: h, line: l, byName: map[string]setting{}}
	for _, a := range settled {
		if a.usual != "" {
			s.byName[a.name()] = setting{value: a.usual, from: "accelerate's default"}
		}
	}
	if err := s.open(h); err != nil {
		return nil, err
	}
	if err := s.heedFile(); err != nil {
		return nil, fmt.Errorf("%s: %w", s.file, err)
	}
	return s, s.heedLine()
}

// open reads the configuration file: the one that is named, or the one that accelerate config writes, if it is there.
func (s *settings) open(h job.Host) error {
	file := defaultFile(h)
	named, ok := s.line.last("config_file")
	if ok {
		file = named.value
	} else if s.line.has("cpu") || file == "" {
		return nil
	}
	data, err := h.ReadFile(file)
	switch {
	case err != nil && !ok && errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil && ok && errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %s: there is no such file; paths are relative to the working directory", named.as, file)
	case err != nil && ok:
		return fmt.Errorf("%s: %w", named.as, err)
	case err != nil:
		return fmt.Errorf("accelerate's configuration: %w", err)
	}
	s.file = file
	if s.keys, err = readKeys(data, filepath.Ext(file) == ".json"); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	s.repeated(s.keys, "")
	return nil
}

// repeated tells of keys that stand in the file more than once.
func (s *settings) repeated(keys []key, in string) {
	for _, k := range keys {
		if k.over > 0 {
			s.notes = append(s.notes, fmt.Sprintf("%s%s stands in %s twice: of lines %d and %d the later one counts", in, k.name, s.file, k.over, k.line))
		}
		s.repeated(k.keys, k.name+".")
	}
}

// defaultFile is where accelerate config writes; "" if nobody can tell.
func defaultFile(h job.Host) string {
	cache, home := h.Getenv("XDG_CACHE_HOME"), h.Getenv("HOME")
	if cache == "" {
		cache = "~/.cache"
	}
	hub := h.Getenv("HF_HOME")
	if hub == "" {
		hub = filepath.Join(cache, "huggingface")
	}
	if rest, ok := strings.CutPrefix(hub, "~/"); ok {
		if home == "" {
			return ""
		}
		hub = filepath.Join(home, rest)
	}
	return filepath.Join(hub, "accelerate", "default_config.yaml")
}

// fileMaps are the maps in a configuration file, and what their keys' names begin with, where that may be left out.
var fileMaps = map[string]string{
	"fsdp_config": "fsdp_", "fp8_config": "fp8_", "dynamo_config": "dynamo_",
	"deepspeed_config": "", "megatron_lm_config": "", "parallelism_config": "", "mpirun_config": "",
}

// fileScalars are keys that are flags, too, or stand for one.
var fileScalars = strings.Fields("num_processes machine_rank num_machines gpu_ids main_process_ip main_process_port " +
	"rdzv_backend same_network enable_cpu_affinity mixed_precision debug use_cpu distributed_type compute_environment")

// fileIdle are keys that change nothing where there is no TPU, and those of older releases that change nothing in newer ones.
var fileIdle = strings.Fields("main_training_function downcast_bf16 tpu_name tpu_zone tpu_use_cluster tpu_use_sudo " +
	"command_file commands tpu_vm tpu_env ipex_config")

// keyNames are those that newer releases, or accelerate config itself, have for keys of maps.
var keyNames = map[string]string{
	"fp8_amax_history_length": "fp8_amax_history_len", "fp8_amax_compute_algorithm": "fp8_amax_compute_algo",
	"fp8_optimization_level": "fp8_opt_level", "fsdp_backward_prefetch_policy": "fsdp_backward_prefetch",
}

// heedFile takes over what the configuration file says.
func (s *settings) heedFile() error {
	if s.file == "" {
		return nil
	}
	var unknown []string
	for _, k := range s.keys {
		_, isMap := fileMaps[k.name]
		var err error
		switch {
		case isMap:
			err = s.heedMap(k)
		case slices.Contains(fileScalars, k.name):
			err = s.heedScalar(k)
		case k.name == "fp16" || k.name == "dynamo_backend":
			s.heedOld(k)
		case !slices.Contains(fileIdle, k.name):
			unknown = append(unknown, k.name)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", k.line, err)
		}
	}
	return s.strange(unknown)
}

// strange reports a configuration file that is none of muster's: for what it lacks, or for keys that nobody knows.
func (s *settings) strange(unknown []string) error {
	e := s.byName["compute_environment"]
	_, typed := s.byName["distributed_type"]
	switch {
	case e.value != "" && e.value != "LOCAL_MACHINE":
		return fmt.Errorf("compute_environment %s is not in muster: %s", e.value, noSageMaker)
	case len(unknown) > 0:
		return fmt.Errorf("muster does not know %s: written by a newer accelerate, or misspelt", strings.Join(unknown, ", "))
	case !typed:
		return errors.New("distributed_type is missing, which accelerate wants in such a file: NO, MULTI_GPU, FSDP, DEEPSPEED and so on")
	}
	return nil
}

// heedScalar takes over a key that holds one value.
func (s *settings) heedScalar(k key) error {
	if k.none {
		return nil
	}
	if k.list != nil || k.keys != nil {
		return fmt.Errorf("%s is a value, not several", k.name)
	}
	a, _ := argNamed(k.name)
	if k.name == "num_processes" && k.text == "-1" { // it is to be said on the command line
		return nil
	}
	if a.takes != nil {
		if err := a.takes(k.text); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	s.byName[k.name] = s.said(k, k.text)
	return nil
}

// said is the setting that a key of the file makes.
func (s *settings) said(k key, value string) setting {
	return setting{value: value, from: k.name + " in " + s.file, inFile: true}
}

// heedOld takes over a key that newer releases write otherwise.
func (s *settings) heedOld(k key) {
	_, said := s.byName["mixed_precision"]
	if k.name == "dynamo_backend" && !k.none {
		s.byName["dynamo_backend"] = s.said(k, k.text)
	} else if yes, _ := truth(k.text); yes && !said {
		s.byName["mixed_precision"] = s.said(k, "fp16")
	}
}

// heedMap takes over the keys of a map.
func (s *settings) heedMap(m key) error {
	if m.keys == nil && !m.none && m.text != "" || m.list != nil {
		return fmt.Errorf("%s is a map of settings, not a value", m.name)
	}
	for _, k := range m.keys {
		if err := s.heedInner(m.name, k); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// heedInner takes over one key of a map.
func (s *settings) heedInner(in string, k key) error {
	if in == "deepspeed_config" {
		s.dsNames = append(s.dsNames, k.name)
	}
	said, name := s.said(k, k.text), innerName(in, k.name)
	if today := keyNames[name]; today != "" {
		s.notes = append(s.notes, fmt.Sprintf("%s is taken for %s, which accelerate itself does not do", said.from, today))
		name = today
	}
	if k.none {
		return nil
	}
	if r, ok := refusalNamed(name); ok && k.text != "" {
		return fmt.Errorf("%s is not in muster: %s", k.name, r.instead)
	}
	if k.list != nil && "--"+name == fp8Override {
		k.list, said.value = nil, strings.Join(k.list, ",")
	}
	a, known := argNamed(name)
	switch {
	case known && (k.list != nil || k.keys != nil):
		return fmt.Errorf("%s is a value, not several", k.name)
	case known && !a.inFile(k.text):
		return fmt.Errorf("%s: %w", k.name, a.takes(k.text))
	case known:
		s.byName[name] = said
	case in != "mpirun_config": // whose other keys are for mpirun
		s.notes = append(s.notes, fmt.Sprintf("%s.%s changes nothing: accelerate has no such setting; is it misspelt, or of another release?", in, said.from))
	}
	return nil
}

// inFile reports whether a flag takes a value as the file may have it, also in capitals (accelerate config writes TE).
func (a arg) inFile(value string) bool {
	return a.takes == nil || a.takes(value) == nil || a.takes(strings.ToLower(value)) == nil || a.takes(strings.ToUpper(value)) == nil
}

// innerName is what a map's key is called as a flag.
func innerName(in, name string) string {
	if prefix := fileMaps[in]; !strings.HasPrefix(name, strings.TrimSuffix(prefix, "_")) {
		return prefix + name
	}
	return name
}

// heedLine takes over what the command line says.
func (s *settings) heedLine() error {
	for _, said := range s.line.said {
		for _, b := range accelerateBygones {
			if b.name() == said.name {
				said = s.bygone(b, said)
			}
		}
		a, ok := argNamed(said.name)
		if !ok {
			continue
		}
		value, err := a.given(said)
		if err != nil {
			return err
		}
		if on, ok := truth(said.value); ok && !on && value == "True" {
			s.notes = append(s.notes, fmt.Sprintf("%s %s means true to accelerate, as any text does; leave it out for false", said.as, said.value))
		}
		s.byName[said.name] = setting{value: value, from: said.as}
	}
	return nil
}

// bygone is today's flag for one of another release, or none.
func (s *settings) bygone(b bygone, as said) said {
	if b.why != "" {
		s.notes = append(s.notes, fmt.Sprintf("%s changes nothing: %s", as.as, b.why))
		return said{}
	}
	if b.value != "" {
		as.value = b.value
	}
	s.notes = append(s.notes, fmt.Sprintf("%s is --%s %s in newer accelerate, and is taken for that", as.as, b.means, as.value))
	as.name = b.means
	return as
}

// given is the value of an arg on the command line, as accelerate writes it.
func (a arg) given(s said) (string, error) {
	switch {
	case a.alone:
		return "True", nil
	case a.write == nil:
		return s.value, nil
	}
	value, err := a.write(s.value)
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.as, err)
	}
	return value, nil
}

// yes reports whether a setting is on.
func (s *settings) yes(name string) bool {
	on, _ := truth(s.byName[name].value)
	return on
}

// number is a setting that is a whole one; 0 if nobody said it.
func (s *settings) number(name string) int {
	n, _ := strconv.Atoi(s.byName[name].value) // was checked
	return n
}
