package dialect

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// paddle is PaddlePaddle's launcher (python/paddle/distributed/launch), and the one before it, whose name it bears.
var paddle = Dialect{
	Name:     "paddle",
	Doc:      "start a job as python -m paddle.distributed.launch does, with its flags",
	Programs: []string{"fleetrun"},
	Modules:  []string{"paddle.distributed.launch", "paddle.distributed.run", "paddle.distributed.fleet.launch"},
	Whole:    "paddle.distributed.launch",
	parse:    parsePaddle,
}

// paddleOptions are those of Paddle 2.0 to 3.3, and the names that some of them had in fleet's launcher.
var paddleOptions = options{abbreviate: true, known: []option{
	{names: "--help -h", alone: true},
	{names: "--nnodes --np"}, {names: "--nproc_per_node", takes: whole(1)},
	{names: "--master"}, {names: "--rank", takes: whole(-1)}, {names: "--host"}, {names: "--ips"}, {names: "--start_port", takes: whole(0)},
	{names: "--devices --gpus --selected_gpus"}, {names: "--npus"}, {names: "--xpus --selected_xpus"},
	{names: "--job_id"}, {names: "--run_mode", takes: among("collective ps ps-heter rpc")}, {names: "--legacy", takes: yesOrNo}, {names: "--backend", takes: among("auto nccl gloo bkcl heter xccl")},
	{names: "--log_dir"}, {names: "--log_level", takes: aLevel}, {names: "--log_overwrite", takes: yesOrNo}, {names: "--enable_gpu_log", takes: yesOrNo}, {names: "--sort_ip", takes: yesOrNo},
	{names: "--servers"}, {names: "--trainers --workers"},
	{names: "--server_num", takes: whole(0)}, {names: "--trainer_num --worker_num", takes: whole(0)},
	{names: "--gloo_port --http_port", takes: whole(0)}, {names: "--with_gloo"},
	{names: "--heter_workers"}, {names: "--heter_devices"}, {names: "--heter_worker_num"}, {names: "--coordinators"}, {names: "--coordinator_num"},
	{names: "--auto_parallel_config"}, {names: "--auto_cluster_config"}, {names: "--auto_tuner_json"},
	{names: "--cluster_topo_path"}, {names: "--rank_mapping_path"}, {names: "--enable_auto_mapping"},
	{names: "--max_restart", takes: whole(0)}, {names: "--elastic_level", takes: whole(-1)}, {names: "--elastic_timeout", takes: whole(0)},
	{names: "--elastic_server"}, {names: "--elastic_pre_hook"}, {names: "--scale"}, {names: "--force"},
}}

// aLevel takes a level of Python's logging.
func aLevel(value string) error {
	return among("debug info warning error critical")(strings.ToLower(value))
}

// paddleVariables say what flags say. Which of the two counts differs from release to release.
var paddleVariables = []struct{ name, option string }{
	{"PADDLE_NNODES", "nnodes"}, {"PADDLE_NPROC_PER_NODE", "nproc_per_node"}, {"PADDLE_MASTER", "master"},
	{"PADDLE_TRAINER_ID", "rank"}, {"PADDLE_RANK", "rank"}, {"PADDLE_IPS", "ips"}, {"PADDLE_DEVICES", "devices"},
	{"PADDLE_JOB_ID", "job_id"}, {"PADDLE_RUN_MODE", "run_mode"}, {"PADDLE_LOG_DIR", "log_dir"},
	{"PADDLE_SERVERS_ENDPOINTS", "servers"}, {"PADDLE_TRAINERS_ENDPOINTS", "trainers"},
	{"PADDLE_SERVER_NUM", "server_num"}, {"PADDLE_TRAINER_NUM", "trainer_num"},
	{"PADDLE_MAX_RESTART", "max_restart"}, {"PADDLE_ELASTIC_LEVEL", "elastic_level"}, {"PADDLE_ELASTIC_TIMEOUT", "elastic_timeout"},
}

// paddleRefused are options without which the job would be another, and what to do instead.
var paddleRefused = []struct{ names, instead string }{
	{"npus xpus", "of Paddle's devices it knows GPUs only"},
	{"auto_parallel_config auto_cluster_config auto_tuner_json cluster_topo_path rank_mapping_path enable_auto_mapping",
		"tune with Paddle's own launcher (MUSTER_BYPASS=1), then start the job as it says"},
	{"heter_workers heter_devices heter_worker_num coordinators coordinator_num", "of Paddle's roles it knows servers and trainers only"},
	{"elastic_pre_hook scale", "leave it out: nodes come and go by --nnodes MIN:MAX"},
}

// paddleIdle are options that change nothing.
var paddleIdle = []without{
	{"log_level log_overwrite enable_gpu_log legacy force", "it is for Paddle's launcher, which does not run"},
	{"sort_ip", "nodes rank by --rank, or else by place and name"},
	{"start_port gloo_port", "muster takes free ports"},
	{"with_gloo", "nobody meets beside the lists of servers and trainers"},
}

func parsePaddle(h job.Host, _ string, args []string) (r Request, err error) {
	l, err := paddleOptions.parse(args)
	if err != nil {
		return r, err
	}
	if r.Help = l.has("help"); r.Help {
		return r, nil
	}
	if len(l.rest) == 0 {
		return r, errors.New("no script: it follows the flags")
	}
	if l, err = paddleSays(h, l); err != nil {
		return r, err
	}
	r.Command = l.rest
	r.set("framework", "paddle", "Paddle's launcher")
	if err := paddleRest(l, &r); err != nil {
		return r, err
	}
	if l.paddleServers() {
		return r, paddleRoles(h, l, &r)
	}
	if err := paddleNodes(h, l, &r); err != nil {
		return r, err
	}
	return r, paddleDevices(h, l, &r)
}

// paddleSays adds to a line what variables say. One that says otherwise than a flag is refused, but for what no other node
// need know. In a worker they are not for a launcher.
func paddleSays(h job.Host, l line) (line, error) {
	if h.Getenv("PADDLE_CURRENT_ENDPOINT") != "" {
		return l, nil
	}
	if list := h.Getenv("PADDLE_TRAINER_ENDPOINTS"); list != "" { // which counts more than flags
		l.said = append(l.said, said{name: "ips", value: hostsOf(list), as: "PADDLE_TRAINER_ENDPOINTS"})
		l.said = slices.DeleteFunc(l.said, func(s said) bool { return s.name == "master" })
	}
	for _, v := range paddleVariables {
		value := h.Getenv(v.name)
		if value == "" || value == "-1" {
			continue
		}
		flag := l.given(v.option)
		if flag.as != "" && flag.value != value && v.option != "log_dir" {
			return l, fmt.Errorf("%s %s, but %s=%s: which of them counts differs from Paddle to Paddle, so drop one", flag.as, flag.value, v.name, value)
		}
		i := slices.IndexFunc(paddleOptions.known, func(o option) bool { return o.name() == v.option })
		if takes := paddleOptions.known[i].takes; takes != nil {
			if err := takes(value); err != nil {
				return l, fmt.Errorf("%s: %w", v.name, err)
			}
		}
		l.said = append([]said{{name: v.option, value: value, as: v.name}}, l.said...)
	}
	return l, nil
}

// hostsOf are the different hosts of a list of addresses, with ports or without.
func hostsOf(list string) string {
	var hosts []string
	for at := range strings.SplitSeq(list, ",") {
		if host := hostOf(at); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return strings.Join(hosts, ",")
}

// hostOf is the host of an address, with a port or without: 10.0.0.7:6170, [fd00::7]:6170, and fd00::7:6170, as Paddle would write it.
func hostOf(at string) string {
	if host, _, err := net.SplitHostPort(at); err == nil {
		return host
	}
	colon := strings.LastIndexByte(at, ':')
	if _, err := netip.ParseAddr(at[:max(colon, 0)]); err == nil {
		return at[:colon]
	}
	return strings.Trim(at, "[]")
}

// paddleServers reports whether there are parameter servers.
func (l line) paddleServers() bool {
	mode, _ := l.last("run_mode")
	return mode.value == "ps" || l.given("servers").as != "" || l.given("trainers").as != "" || l.counts("server_num") || l.counts("trainer_num")
}

// counts reports whether an option says more than none.
func (l line) counts(name string) bool { s := l.given(name); return s.as != "" && s.value != "0" }

// paddleRest are the options that have nothing to do with nodes.
func paddleRest(l line, r *Request) error {
	for _, refused := range paddleRefused {
		for _, name := range strings.Fields(refused.names) {
			if s := l.given(name); s.as != "" && s.value != "0" && !strings.EqualFold(s.value, "false") {
				return fmt.Errorf("%s is not in muster: %s", s.as, refused.instead)
			}
		}
	}
	if s := l.given("run_mode"); s.value == "rpc" || s.value == "ps-heter" {
		return fmt.Errorf("%s %s is not in muster, which knows collective and ps", s.as, s.value)
	}
	r.notes(l, paddleIdle)
	for _, same := range [][2]string{{"log_dir", "log-dir"}, {"host", "local-addr"}} {
		if s := l.given(same[0]); s.as != "" {
			r.set(same[1], s.value, s.as)
		}
	}
	if s := l.given("job_id"); s.as != "" && s.value != "default" {
		r.set("rdzv-id", s.value, s.as)
	}
	if s := l.given("backend"); s.as != "" && s.value != "auto" {
		r.Env = append(r.Env, job.Var{Name: "PADDLE_DISTRI_BACKEND", Value: s.value, Why: s.as})
	}
	paddleRestarts(l, r)
	return nil
}

// paddleRestarts says what follows when a worker fails: without an elastic level, the end.
func paddleRestarts(l line, r *Request) {
	restarts := l.given("max_restart")
	if level := l.given("elastic_level"); level.as != "" && level.value != "0" {
		flag := Flag{Name: "max-restarts", Value: "3", From: "Paddle's default for " + level.as, Default: true}
		if restarts.as != "" {
			flag = Flag{Name: "max-restarts", Value: restarts.value, From: restarts.as}
		}
		r.Flags = append(r.Flags, flag)
	} else if restarts.as != "" {
		r.Notes = append(r.Notes, restarts.as+": without effect, for Paddle restarts nothing without --elastic_level 1")
	}
	if s := l.given("elastic_timeout"); s.as != "" {
		r.set("last-call", s.value, s.as)
	}
}

// paddleNodes says which nodes there are, and where they meet.
func paddleNodes(h job.Host, l line, r *Request) error {
	nodes, master, ips := l.given("nnodes"), l.given("master"), l.given("ips")
	if server := l.given("elastic_server"); master.as == "" && server.as != "" {
		master = said{name: "master", value: "etcd://" + server.value, as: server.as}
	}
	if ips.as != "" && master.as == "" {
		return paddleIPs(h, l, ips, r)
	}
	r.Meet = "--master HOST:PORT"
	if nodes.as != "" {
		r.set("nnodes", nodes.value, nodes.as)
	}
	if rank := l.given("rank"); rank.as != "" && nodes.value != "1" {
		r.set("node-rank", rank.value, rank.as)
	}
	if master.as == "" {
		return nil
	}
	endpoint := strings.TrimPrefix(master.value, "http://")
	if !strings.Contains(endpoint[strings.LastIndexByte(endpoint, ']')+1:], ":") {
		return fmt.Errorf("%s %s has no port: HOST:PORT, or etcd://HOST:PORT", master.as, master.value)
	}
	if nodes.as == "" {
		r.Notes = append(r.Notes, master.as+" does not say how many nodes there are: say --nnodes, unless the platform does")
	}
	r.set("rdzv-endpoint", endpoint, master.as)
	return nil
}

// paddleIPs is a job whose nodes are listed by their addresses.
func paddleIPs(h job.Host, l line, ips said, r *Request) error {
	var hosts []slotted
	for ip := range strings.SplitSeq(ips.value, ",") {
		hosts = append(hosts, slotted{name: strings.Trim(strings.TrimSpace(ip), "[]")})
	}
	if nodes := l.given("nnodes"); nodes.as != "" && nodes.value != strconv.Itoa(len(hosts)) {
		return fmt.Errorf("%s %s, but %s has %d: drop one of them", nodes.as, nodes.value, ips.as, len(hosts))
	}
	_, err := paddlePlace(h, l, hosts, ips.as, r)
	return err
}

// paddlePlace is which of the listed nodes this one is.
func paddlePlace(h job.Host, l line, hosts []slotted, from string, r *Request) (me int, err error) {
	for i, host := range hosts {
		if host.name == "" || slices.ContainsFunc(hosts[:i], func(b slotted) bool { return b.name == host.name }) {
			return 0, fmt.Errorf("%s: %q is no list of different nodes", from, names(hosts))
		}
	}
	r.set("nnodes", strconv.Itoa(len(hosts)), from)
	if len(hosts) == 1 {
		if from == "--ips" && !strings.HasPrefix(hosts[0].name, "127.") && here(h, hosts) < 0 {
			return 0, fmt.Errorf("%s: its only node %.80s is not this one, %s: give the address of this node, or leave it out", from, hosts[0].name, h.Hostname)
		}
		return 0, nil
	}
	if i := slices.IndexFunc(hosts, func(host slotted) bool { return host.name == "localhost" || strings.HasPrefix(host.name, "127.") }); i >= 0 {
		return 0, fmt.Errorf("%s: %s is every node's own name, and cannot be one of %d", from, hosts[i].name, len(hosts))
	}
	me = here(h, hosts)
	if rank := l.given("rank"); rank.as != "" {
		if me, _ = strconv.Atoi(rank.value); me >= len(hosts) {
			return 0, fmt.Errorf("%s %s: %s has %d nodes, from 0", rank.as, rank.value, from, len(hosts))
		}
	}
	if me < 0 {
		return 0, fmt.Errorf("%s does not have this node, %s; it has %s: use addresses or names that the nodes have, or --rank", from, h.Hostname, names(hosts))
	}
	r.set("node-rank", strconv.Itoa(me), from)
	r.set("master-addr", hosts[0].name, from)
	return me, nil
}

// paddleDevices says how many workers run here, and which of the GPUs they see: Paddle has one for each.
func paddleDevices(h job.Host, l line, r *Request) error {
	devices, slots := l.given("devices"), l.given("nproc_per_node")
	if devices.as != "" {
		list := strings.Split(strings.ReplaceAll(devices.value, " ", ""), ",")
		if visible := h.Getenv("CUDA_VISIBLE_DEVICES"); visible != "" && visible != "all" {
			for _, d := range list {
				if !slices.Contains(strings.Split(visible, ","), d) {
					return fmt.Errorf("%s %s: device %s is none of CUDA_VISIBLE_DEVICES=%s", devices.as, devices.value, d, visible)
				}
			}
		}
		for i, d := range list {
			if slices.Contains(list[:i], d) {
				return fmt.Errorf("%s %s: device %.80s is there twice", devices.as, devices.value, d)
			}
			if n, err := strconv.Atoi(d); (err != nil || n < 0) && !strings.HasPrefix(d, "GPU-") && !strings.HasPrefix(d, "MIG-") {
				return fmt.Errorf("%s %s: %q is no device: their numbers, such as 0,1,2", devices.as, devices.value, d)
			}
		}
		r.Env = append(r.Env, job.Var{Name: "CUDA_VISIBLE_DEVICES", Value: strings.Join(list, ","), Why: devices.as})
		switch n, _ := strconv.Atoi(slots.value); {
		case slots.as == "":
			slots = said{value: strconv.Itoa(len(list)), as: devices.as}
		case n > len(list): // Paddle's launcher ends there, with an IndexError
			return fmt.Errorf("%s %s, but %s %s has %d: a worker has a device of its own", slots.as, slots.value, devices.as, devices.value, len(list))
		case n < len(list):
			r.Notes = append(r.Notes, fmt.Sprintf("%s %s, but %s %s has %d: Paddle uses one device in each worker, which leaves %d idle",
				slots.as, slots.value, devices.as, devices.value, len(list), len(list)-n))
		}
	}
	if slots.as != "" {
		r.set("nproc-per-node", slots.value, slots.as)
	}
	return nil
}

// paddleRoles is a job with parameter servers: nodes of their own, which the lists of servers and of trainers tell apart.
func paddleRoles(h job.Host, l line, r *Request) error {
	const instead = "in muster parameter servers are nodes of their own: muster run --framework paddle --nnodes N --ps K on each of them"
	servers, trainers := l.given("servers"), l.given("trainers")
	for _, name := range []string{"server_num", "trainer_num", "run_mode"} {
		if s := l.given(name); s.as != "" && (servers.as == "" || trainers.as == "") {
			return fmt.Errorf("%s %s runs servers and trainers on one node; %s", s.as, s.value, instead)
		}
	}
	if servers.as == "" || trainers.as == "" {
		return fmt.Errorf("%s without the list of the others; %s", servers.as+trainers.as, instead)
	}
	hosts, err := endpoints(trainers)
	if err != nil {
		return err
	}
	serving, err := endpoints(servers)
	if err != nil {
		return err
	}
	for _, s := range serving {
		if slices.ContainsFunc(hosts, func(t slotted) bool { return t.name == s.name }) {
			return fmt.Errorf("%s and %s both have %s; %s", servers.as, trainers.as, s.name, instead)
		}
	}
	hosts = append(hosts, serving...)
	lists := trainers.as + " and " + servers.as
	me, err := paddlePlace(h, l, hosts, lists, r)
	if err != nil {
		return err
	}
	r.set("ps", strconv.Itoa(len(serving)), servers.as)
	r.set("nproc-per-node", strconv.Itoa(len(hosts[me].slots)), lists)
	if uneven(hosts) {
		r.set("uneven", "true", lists)
	}
	return nil
}

// endpoints are the nodes of a list of addresses and ports, with a slot for each port.
func endpoints(s said) (hosts []slotted, err error) {
	for at := range strings.SplitSeq(s.value, ",") {
		colon := strings.LastIndexByte(at, ':')
		port, err := strconv.ParseUint(at[colon+1:], 10, 16)
		if colon < 1 || err != nil {
			return nil, fmt.Errorf("%s %s: %q is not HOST:PORT", s.as, s.value, at)
		}
		host := strings.Trim(at[:colon], "[]")
		i := slices.IndexFunc(hosts, func(h slotted) bool { return h.name == host })
		if i < 0 {
			i, hosts = len(hosts), append(hosts, slotted{name: host})
		}
		hosts[i].slots = append(hosts[i].slots, int(port))
	}
	return hosts, nil
}
