package dialect

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// deepspeed is DeepSpeed's launcher (deepspeed/launcher/runner.py on one node, launch.py on each).
var deepspeed = Dialect{
	Name:     "deepspeed",
	Doc:      "start a job as deepspeed does, with its flags and its hostfile",
	Programs: []string{"deepspeed", "ds", "deepspeed.pt"},
	Modules:  []string{"deepspeed.launcher.runner", "deepspeed.launcher.launch"},
	Whole:    "deepspeed.launcher.runner",
	parse:    parseDeepspeed,
}

// deepspeedOptions are those of DeepSpeed 0.9 to 0.19.
var deepspeedOptions = options{abbreviate: true, known: []option{
	{names: "--help -h", alone: true},
	{names: "--hostfile -H"}, {names: "--include -i"}, {names: "--exclude -e"},
	{names: "--num_nodes", takes: countOrAll}, {names: "--num_gpus --num_accelerators", takes: countOrAll},
	{names: "--min_elastic_nodes", takes: countOrAll}, {names: "--max_elastic_nodes", takes: countOrAll},
	{names: "--elastic_training", alone: true},
	{names: "--master_addr"}, {names: "--master_port", takes: aPort}, {names: "--node_rank", takes: whole(-1)},
	{names: "--launcher", takes: anyLauncher}, {names: "--launcher_args"},
	{names: "--no_ssh", alone: true}, {names: "--no_ssh_check", alone: true}, {names: "--force_multi", alone: true},
	{names: "--ssh_port"}, {names: "--venv_script"},
	{names: "--module", alone: true}, {names: "--no_python", alone: true}, {names: "--no_local_rank", alone: true},
	{names: "--save_pid", alone: true}, {names: "--enable_each_rank_log"},
	{names: "--autotuning", takes: among("tune run")},
	{names: "--bind_cores_to_rank", alone: true}, {names: "--bind_core_list", takes: ascending},
	{names: "--log_level", takes: among("debug info warning error critical")}, {names: "--quiet -q", alone: true},
}}

// deepspeedNodeOptions are those of launch.py, which DeepSpeed starts on each node.
var deepspeedNodeOptions = options{abbreviate: true, known: []option{
	{names: "--help -h", alone: true},
	{names: "--world_info"}, {names: "--node_rank", takes: whole(0)}, {names: "--master_addr"}, {names: "--master_port", takes: aPort},
	{names: "--module", alone: true}, {names: "--no_python", alone: true}, {names: "--no_local_rank", alone: true},
	{names: "--elastic_training --enable_elastic_training", alone: true},
	{names: "--min_elastic_nodes", takes: countOrAll}, {names: "--max_elastic_nodes", takes: countOrAll},
	{names: "--save_pid", takes: whole(0)}, {names: "--enable_each_rank_log"},
	{names: "--bind_cores_to_rank", alone: true}, {names: "--bind_core_list", takes: ascending},
	{names: "--log_level", takes: among("debug info warning error critical")}, {names: "--quiet -q", alone: true},
}}

// countOrAll takes a count, and -1, which is DeepSpeed's word for all.
func countOrAll(value string) error {
	if value == "-1" {
		return nil
	}
	return whole(1)(value)
}

// anyLauncher takes the programs by which DeepSpeed reaches other nodes. muster needs none.
func anyLauncher(value string) error {
	return among("pdsh openmpi mvapich slurm mpich impi")(strings.ToLower(value))
}

// ascending takes a list of processor cores: 1,3-5,7.
func ascending(value string) error {
	last := -1
	for part := range strings.SplitSeq(value, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		a, errA := strconv.Atoi(low)
		b, errB := strconv.Atoi(high)
		if errA != nil || errB != nil || a <= last || b < a || b > maxCPU {
			return fmt.Errorf("%q is no list of cores that ascends, such as 1,3-5,7", value)
		}
		last = b
	}
	return nil
}

func parseDeepspeed(h job.Host, as string, args []string) (r Request, err error) {
	known, node := deepspeedOptions, as == "deepspeed.launcher.launch"
	if node {
		known = deepspeedNodeOptions
	}
	l, err := known.parse(args)
	if err != nil {
		return r, err
	}
	if r.Help = l.has("help"); r.Help {
		return r, nil
	}
	if err := deepspeedRefused(l); err != nil {
		return r, err
	}
	r.Command, r.Binds = l.rest, true
	deepspeedScript(l, &r)
	deepspeedCores(l, &r)
	r.notes(l, deepspeedIdle)
	if node {
		return r, deepspeedNode(h, l, &r)
	}
	path, hosts, err := deepspeedHosts(h, l, &r)
	switch {
	case err != nil:
		return r, err
	case hosts == nil:
		err = deepspeedAlone(h, l, &r)
	default:
		err = deepspeedListed(h, l, "hostfile "+path, hosts, &r)
	}
	if err != nil {
		return r, err
	}
	return r, deepspeedTuning(l, &r)
}

// deepspeedTuning is DeepSpeed's search for the best configuration, which calls deepspeed for each trial.
func deepspeedTuning(l line, r *Request) error {
	s := l.given("autotuning")
	nodes := slices.ContainsFunc(r.Flags, func(f Flag) bool { return f.Name == "nnodes" && f.Value != "1" })
	if s.as == "" {
		return nil
	}
	if nodes && len(r.Others) == 0 {
		return fmt.Errorf("%s calls deepspeed for one trial after the other, on the first node alone: call it there, without --no_ssh and --node_rank, "+
			"and let the other nodes run sshd, a link to muster (docs/no-ssh.md)", s.as)
	}
	r.Tuning = s.as + " " + s.value
	return nil
}

// deepspeedNode is what DeepSpeed would start on this node, which needs no hostfile, and has its environment already.
func deepspeedNode(h job.Host, l line, r *Request) error {
	s := l.given("world_info")
	if s.as == "" {
		return errors.New("no --world_info, which says which nodes there are: call deepspeed itself")
	}
	hosts, err := worldInfo(s.value)
	if err != nil {
		return fmt.Errorf("%s: %w", s.as, err)
	}
	l.said = append([]said{{name: "node_rank", value: "0", as: "--node_rank"}, {name: "no_ssh", value: "true", as: "--no_ssh"}}, l.said...)
	return deepspeedListed(h, l, s.as, hosts, r)
}

// deepspeedRefused is what cannot be, or not in muster.
func deepspeedRefused(l line) error {
	for _, pair := range [][2]string{
		{"include", "exclude"},
		{"include", "num_nodes"}, {"include", "num_gpus"}, {"exclude", "num_nodes"}, {"exclude", "num_gpus"},
		{"module", "no_python"}, {"elastic_training", "no_local_rank"},
	} {
		a, b := l.given(pair[0]), l.given(pair[1])
		if a.as != "" && b.as != "" {
			return fmt.Errorf("%s and %s do not go together: leave one of them out", a.as, b.as)
		}
	}
	if s := l.given("venv_script"); s.as != "" {
		return fmt.Errorf("%s is not in muster: activate the environment before, or start its own python", s.as)
	}
	if len(l.rest) == 0 {
		return errors.New("no script: it follows the flags")
	}
	return nil
}

// deepspeedScript says how each worker is started.
func deepspeedScript(l line, r *Request) {
	r.Script = !l.has("module") && !l.has("no_python")
	for name, flag := range map[string]string{"module": "module", "no_python": "no-python"} {
		if s, ok := l.last(name); ok {
			r.set(flag, "true", s.as)
		}
	}
	if !l.has("no_local_rank") && !l.has("elastic_training") {
		r.LocalRank = "--local_rank"
	}
	if s := l.given("enable_each_rank_log"); s.as != "" {
		r.set("log-dir", s.value, s.as)
		r.set("redirects", "3", s.as)
	}
	switch s, ok := l.last("save_pid"); {
	case ok && s.value == "true":
		r.PIDFile = "/tmp/%d.deepspeed"
	case ok && s.value != "0": // of the process that told launch.py to
		r.PIDFile = "/tmp/" + s.value + ".deepspeed"
	}
	r.Without = []string{"OMP_NUM_THREADS"} // ZeRO-Offload steps on the processor, with all its threads
}

// deepspeedIdle are options that change nothing.
var deepspeedIdle = []without{
	{"launcher launcher_args no_ssh_check force_multi ssh_port", "each node's muster starts its own workers, and no ssh"},
	{"log_level", "it is for DeepSpeed's launcher, which does not run"},
}

// deepspeedHosts reads the hostfile; none: there is no such file, and DeepSpeed knows of this node alone.
func deepspeedHosts(h job.Host, l line, r *Request) (path string, hosts []slotted, err error) {
	s, given := l.last("hostfile")
	if path = s.value; !given {
		path = "/job/hostfile"
	}
	if path == "" {
		return "", nil, nil
	}
	text, ok, err := readFile(h, path)
	switch {
	case err != nil:
		return "", nil, fmt.Errorf("hostfile: %w", err)
	case ok:
		hosts, err = parseHostfile(path, text)
	case given:
		r.Notes = append(r.Notes, fmt.Sprintf("there is no hostfile %s: the nodes are those that the platform tells of, or this one is alone", path))
	}
	return path, hosts, err
}

// deepspeedAlone is a job without a hostfile: for DeepSpeed this node alone, for muster also the nodes of which the
// platform or --num_nodes tells.
func deepspeedAlone(h job.Host, l line, r *Request) error {
	nodes, err := deepspeedCount(l, 0)
	if err != nil {
		return err
	}
	many := nodes.Value != "" && nodes.Value != "1"
	if nodes.Value != "" {
		r.Flags = append(r.Flags, nodes)
	}
	if s := l.given("exclude"); s.as != "" {
		return fmt.Errorf("%s needs a hostfile, to say which slots there are: say --include localhost:0,1,2 instead", s.as)
	}
	slots, s, err := localSlots(l)
	if err != nil {
		return err
	}
	deepspeedSlots(h, slots, s.as, r)
	if err := deepspeedMeeting(l, many, r); err != nil || !many {
		return err
	}
	if s := l.given("node_rank"); s.as != "" {
		r.set("node-rank", s.value, s.as)
	}
	return deepspeedEnv(h, r)
}

// localSlots are those of a node that no hostfile tells of; none: all that it has.
func localSlots(l line) ([]int, said, error) {
	if s := l.given("num_gpus"); s.as != "" {
		n, err := strconv.Atoi(s.value)
		if err != nil || n > mostSlots {
			return nil, s, fmt.Errorf("%s: %s are more than the %d that a node can have", s.as, s.value, mostSlots)
		}
		return firstSlots(n), s, nil
	}
	s := l.given("include")
	if s.as == "" {
		return nil, s, nil
	}
	specs, err := nodeSpecs(s.value, []slotted{{name: "localhost"}})
	if err != nil {
		return nil, s, fmt.Errorf("%s %s without a hostfile: %w", s.as, s.value, err)
	}
	slots := specs["localhost"]
	slices.Sort(slots)
	return slices.Compact(slots), s, nil
}

// deepspeedListed is a job whose nodes a hostfile lists.
func deepspeedListed(h job.Host, l line, file string, hosts []slotted, r *Request) error {
	active, from, err := deepspeedChoice(l, file, hosts)
	if err != nil {
		return err
	}
	nodes, err := deepspeedCount(l, len(active))
	if err != nil {
		return err
	}
	nodes.From = cmp.Or(nodes.From, from)
	r.Flags = append(r.Flags, nodes)
	me, err := deepspeedPlace(h, l, file, hosts, active, r)
	r.Others = deepspeedOthers(l, active, me)
	if err != nil || r.Idle != "" {
		return err
	}
	many := len(active) > 1
	if many && !l.has("elastic_training") {
		r.set("node-rank", strconv.Itoa(me), cmp.Or(l.given("node_rank").as, file))
	}
	deepspeedSlots(h, active[me].slots, from, r)
	if uneven(active) {
		r.set("uneven", "true", file)
	}
	if many && l.given("master_addr").as == "" {
		r.set("master-addr", active[0].name, file)
	}
	if err := deepspeedMeeting(l, many, r); err != nil {
		return err
	}
	if (many || l.has("force_multi")) && !l.has("no_ssh") {
		return deepspeedEnv(h, r)
	}
	return nil
}

// deepspeedChoice is which of the hostfile's nodes and slots the flags leave, and by whose word.
func deepspeedChoice(l line, file string, hosts []slotted) (active []slotted, from string, err error) {
	active, from = hosts, file
	for _, name := range []string{"include", "exclude"} {
		if s := l.given(name); s.as != "" {
			if active, err = filter(active, s); err != nil {
				return nil, "", err
			}
			active, from = some(active), s.as
		}
	}
	if s := l.given("num_nodes"); s.as != "" {
		n, err := strconv.Atoi(s.value)
		if err != nil || n > len(active) {
			return nil, "", fmt.Errorf("%s %s: %s has no more than %d", s.as, s.value, file, len(active))
		}
		active = active[:n]
	}
	if s := l.given("num_gpus"); s.as != "" {
		slots, _, err := localSlots(l)
		if err != nil {
			return nil, "", err
		}
		active, from = slices.Clone(active), s.as
		for i := range active {
			active[i].slots = slots
		}
	}
	if active = some(active); len(active) == 0 {
		return nil, "", fmt.Errorf("no slots are left of %s by %s", file, from)
	}
	return active, from, nil
}

// deepspeedCount is the flag for how many nodes there are: all of those that can be, unless a flag says otherwise.
func deepspeedCount(l line, all int) (Flag, error) {
	nodes := Flag{Name: "nnodes"}
	if all > 0 {
		nodes.Value = strconv.Itoa(all)
	}
	if s := l.given("num_nodes"); s.as != "" {
		nodes.Value, nodes.From = s.value, s.as
	}
	elastic := l.given("elastic_training")
	if elastic.as == "" {
		return nodes, nil
	}
	least := cmp.Or(l.given("min_elastic_nodes").value, "1")
	most := cmp.Or(l.given("max_elastic_nodes").value, nodes.Value)
	low, _ := strconv.Atoi(least)
	high, err := strconv.Atoi(most)
	switch {
	case most == "":
		return nodes, fmt.Errorf("%s needs --max_elastic_nodes, for there is no hostfile", elastic.as)
	case err != nil || low > high:
		return nodes, fmt.Errorf("%s: at least %s nodes and at most %s cannot be", elastic.as, least, most)
	}
	nodes.Value, nodes.From = least+":"+most, elastic.as
	return nodes, nil
}

// deepspeedPlace is which of the nodes this one is.
func deepspeedPlace(h job.Host, l line, file string, hosts, active []slotted, r *Request) (int, error) {
	if s := l.given("node_rank"); s.as != "" {
		n, err := strconv.Atoi(s.value)
		if err != nil || n >= len(active) {
			return 0, fmt.Errorf("%s %s: %s leaves %d nodes, from 0", s.as, s.value, file, len(active))
		}
		return n, nil
	}
	me := here(h, hosts)
	if me < 0 && h.Getenv("K_MPI_JOB_ROLE") == "launcher" { // mpi-operator's, which holds no rank
		r.Idle = fmt.Sprintf("%s does not have this node, %s, which only starts the others", file, h.Hostname)
		return -1, nil
	}
	if me < 0 && len(active) == 1 { // which DeepSpeed takes for the node that it runs on
		r.Notes = append(r.Notes, fmt.Sprintf("%s does not have %s; its only node %.80s is taken for this one", file, h.Hostname, active[0].name))
		return 0, nil
	}
	if me < 0 {
		return 0, fmt.Errorf("%s does not have this node, %s; it has %s: use the names that the nodes have, or --node_rank", file, h.Hostname, names(hosts))
	}
	place := slices.IndexFunc(active, func(host slotted) bool { return host.name == hosts[me].name })
	if place < 0 {
		r.Idle = fmt.Sprintf("%s has this node, %.80s, but the job is to run without it", file, hosts[me].name)
	}
	return place, nil
}

// deepspeedOthers are the nodes that DeepSpeed would start by ssh, from the first one or one that has no part in the job.
func deepspeedOthers(l line, active []slotted, me int) (names []string) {
	if l.has("no_ssh") || l.given("node_rank").as != "" || me > 0 {
		return nil
	}
	for i, host := range active {
		if i != me {
			names = append(names, host.name)
		}
	}
	return names
}

// deepspeedSlots says how many workers run here, and which GPUs they see: all of the node's slots, none one's own only.
func deepspeedSlots(h job.Host, slots []int, from string, r *Request) {
	if len(slots) == 0 {
		return
	}
	r.set("nproc-per-node", strconv.Itoa(len(slots)), from)
	var list []string
	for _, slot := range slots {
		list = append(list, strconv.Itoa(slot))
	}
	name := cmp.Or(visibleDevices[h.Getenv("DS_ACCELERATOR")], "CUDA_VISIBLE_DEVICES")
	r.Env = append(r.Env, job.Var{Name: name, Value: strings.Join(list, ","), Why: "this node's slots by " + from})
}

// deepspeedCores says on which cores workers run.
func deepspeedCores(l line, r *Request) {
	bind, list := l.given("bind_cores_to_rank"), l.given("bind_core_list")
	switch {
	case bind.as != "":
		r.Cores = Cores{Asked: true, List: list.value, From: cmp.Or(list.as, bind.as)}
	case list.as != "":
		r.Notes = append(r.Notes, list.as+": without effect, for there is no --bind_cores_to_rank")
	}
}

// visibleDevices are variables by which programs see devices other than NVIDIA's, by DeepSpeed's names for those.
var visibleDevices = map[string]string{
	"xpu": "ZE_AFFINITY_MASK", "npu": "ASCEND_RT_VISIBLE_DEVICES", "mlu": "MLU_VISIBLE_DEVICES",
	"sdaa": "SDAA_VISIBLE_DEVICES", "supa": "SUPA_VISIBLE_DEVICES",
}

// deepspeedMeeting says where many nodes meet; one alone meets nobody.
func deepspeedMeeting(l line, many bool, r *Request) error {
	r.Meet = "--master_addr and --master_port"
	if err := unknownPort(l.given("master_port")); many && err != nil {
		return err
	}
	for _, name := range []string{"master-addr", "master-port"} {
		s := l.given(strings.ReplaceAll(name, "-", "_"))
		switch {
		case s.as == "":
		case many:
			r.set(name, s.value, s.as)
		default:
			r.Notes = append(r.Notes, s.as+": without effect, for one node needs none, and many meet where the platform says")
		}
	}
	if l.has("elastic_training") {
		r.Flags = append(r.Flags, Flag{Name: "max-restarts", Value: "100", From: "DeepSpeed's default for --elastic_training", Default: true})
	}
	return nil
}
