package preflight

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/topology"
)

// rdma is whether this container may use the machine's adapters at all.
func rdma(h Host, n Need) []Finding {
	m := h.Machine
	if len(m.HCAs) == 0 {
		return nil
	}
	if anyOpen(m) {
		return pass("%s, training goes over %s", plural(len(m.HCAs), "adapter"), none(strings.Join(topology.Names(m.Compute()), " ")))
	}
	return found(needed(n.network(h)), "training between machines goes over TCP, at a fraction of the bandwidth",
		"Kubernetes: request the adapters (rdma/hca…, vpc.amazonaws.com/efa); docker: --device=/dev/infiniband",
		"the machine has %s, and this container may use none: %s", plural(len(m.HCAs), "adapter"), m.HCAs[0].Why)
}

// anyOpen reports whether some adapter of the machine is this container's, too.
func anyOpen(m topology.Machine) bool {
	return slices.ContainsFunc(m.HCAs, func(a topology.HCA) bool { return a.Why == "" })
}

// hcas looks for ports that should train and cannot.
func hcas(h Host, n Need) (all []Finding) {
	m := h.Machine
	compute := m.Compute()
	elsewhere := misaligned(m, compute)
	if len(elsewhere) > 0 {
		all = found(Warn, "between GPUs and adapters data goes through the processor, and perhaps to another socket",
			"have both given out together: whole machines, or Kubernetes' Topology Manager with single-numa-node", "this container's adapters (%s) are near other GPUs than its own, which are near %s",
			some(topology.Names(compute)), some(elsewhere))
	}
	for _, r := range m.Rails() {
		switch { // others are storage's, the management's, or other containers'
		case r.Port.Usable || !anyOpen(m) || slices.Contains(elsewhere, r.Name()):
		case m.ForTraining(r):
			all = append(all, found(needed(n.network(h)), "its GPU sends through another one's adapter, and all nodes wait for this one", portCure(r), "%s: %s", r.Name(), r.Port.Why)...)
		case m.Spare(r):
			all = append(all, found(Warn, "nothing goes through it, which is well only if nothing should", portCure(r), "%s: %s", r.Name(), r.Port.Why)...)
		}
	}
	if all == nil {
		all = absent(m)
	}
	if all == nil && len(compute) > 0 {
		return pass("the ports of %s are active", plural(len(compute), "adapter"))
	}
	return all
}

// absent are adapters that the kernel does not show at all, as far as the machine's other parts tell.
func absent(m topology.Machine) []Finding {
	const means, hint = "its GPU sends through another one's adapter, and all nodes wait for this one", "see the host's kernel log, and whether lspci shows it there: it may have fallen off the bus, or its driver may not run"
	if at := m.Missing(); len(at) > 0 {
		return found(Warn, means, hint, "machines of this kind have an adapter at %s, and the kernel shows none there", some(at))
	}
	var names []string
	for _, g := range m.Bare() {
		names = append(names, gpuName(g.Index))
	}
	if len(names) == 0 {
		return nil
	}
	return found(Warn, means, hint, "%s: no adapter for training is behind its PCIe switches, as one is behind those of most GPUs", some(names))
}

// misaligned are the adapters that are near the GPUs of a container with a part of the machine, which was given as many others.
func misaligned(m topology.Machine, compute []topology.Rail) (names []string) {
	if !slices.ContainsFunc(m.GPUs, func(g topology.GPU) bool { return !g.Visible }) {
		return nil
	}
	for _, r := range m.Rails() {
		if r.HCA.Why != "" && m.ForTraining(r) {
			names = append(names, r.Name())
		}
	}
	if len(compute) < len(names) {
		return nil
	}
	return names
}

// some are a few of many names.
func some(names []string) string {
	const most = 4
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// portCure is what to do about a port that is not active.
func portCure(r topology.Rail) string {
	switch p := r.Port; {
	case r.HCA.Why != "":
		return "give the container the adapters that are near its GPUs, or none"
	case p.State == "":
		return "look again in a minute; if it is still so, see the host's kernel log for its driver, and have the adapter or the machine reset"
	case p.State == "INIT" && p.Layer == "InfiniBand":
		return "start the subnet manager, or have it include this port"
	case p.State == "ARMED":
		return "look at the subnet manager: it has not finished"
	case p.Layer == "Ethernet":
		return "on the host: ip link set up; look at the switch port, and at LACP where it is part of a bond"
	}
	return "look at the cable and at the switch port"
}

// hcaRate compares the ports for training with each other. EFA's driver makes its rate up.
func hcaRate(h Host, _ Need) (all []Finding) {
	rails := slices.DeleteFunc(h.Machine.Compute(), func(r topology.Rail) bool { return r.HCA.EFA() })
	most := 0.0
	for _, r := range rails {
		most = max(most, r.Port.Rate)
	}
	for _, r := range rails {
		p := r.Port
		lanes := ""
		if p.Lanes > 0 && p.Lanes < 4 {
			lanes = fmt.Sprintf(" over %s of 4", plural(p.Lanes, "lane"))
		}
		switch {
		case p.Rate*2 < most:
			all = append(all, found(Fail, "each collective runs at the pace of this port", "look at its cable, its switch port and its transceiver", "%s: %g Gb/s%s, others %g", r.Name(), p.Rate, lanes, most)...)
		case p.Rate < most || lanes != "" && narrow(rails, p):
			all = append(all, found(Warn, "each collective runs at the pace of this port", "look at its cable, its switch port and its transceiver", "%s: %g Gb/s%s, others %g", r.Name(), p.Rate, lanes, most)...)
		}
	}
	if all == nil && len(rails) > 0 {
		return pass("%s: %g Gb/s each", plural(len(rails), "port"), most)
	}
	return all
}

// narrow reports whether a port of fewer lanes than four has a neighbour of more.
func narrow(rails []topology.Rail, p topology.Port) bool {
	return slices.ContainsFunc(rails, func(r topology.Rail) bool { return r.Port.Lanes > p.Lanes })
}

const someFailures = 5 // since the adapter was set up: boots and work on cables count, too

// hcaErrors reads each port's counters, once: on some adapters each read is a line in the kernel's log.
func hcaErrors(h Host, _ Need) (all []Finding) {
	looked := false
	for _, r := range h.Machine.Compute() {
		c := h.Root.Counters(r.HCA.Name, r.Port.Number)
		looked = looked || c.LinkDowned != nil
		const hint = "look at the cable and the transceiver, and whether the number grows during a job"
		switch {
		case c.Saturated():
			all = append(all, found(Warn, "what happened since then is not counted", "on the host: perfquery -R resets it; then look again", "%s: a counter of errors stands at its end", r.Name())...)
		case c.LinkDowned != nil && *c.LinkDowned >= someFailures:
			all = append(all, found(Warn, "a link that goes down during a job ends it", hint, "%s: its link went down %d times", r.Name(), *c.LinkDowned)...)
		case c.Symbols != nil && *c.Symbols > 0:
			all = append(all, found(Warn, "what is broken on the way is sent again", hint, "%s: %s", r.Name(), plural(*c.Symbols, "symbol error"))...)
		case c.Recovered != nil && *c.Recovered > 0:
			all = append(all, found(Warn, "while it does nothing goes through", hint, "%s: its link had to recover %d times", r.Name(), *c.Recovered)...)
		}
	}
	if all == nil && looked {
		return pass("no errors are counted")
	}
	return all
}

// providers are the parts of rdma-core without which verbs find no adapter, by the driver's name.
var providers = map[string]string{"mlx5_core": "libmlx5.so", "efa": "libefa.so", "bnxt_en": "libbnxt_re-rdmav", "irdma": "libirdma-rdmav", "erdma": "liberdma-rdmav", "hns_roce": "libhns.so"}

// verbs is whether the image has the library by which NCCL talks to adapters: without it NCCL takes sockets, and says so at INFO alone.
func verbs(h Host, _ Need) []Finding {
	if len(h.Machine.Compute()) == 0 || h.Space == nil {
		return nil
	}
	var names []string
	for _, dir := range append(libraries, "usr/lib/x86_64-linux-gnu/libibverbs", "usr/lib64/libibverbs", "usr/lib/aarch64-linux-gnu/libibverbs", "lib/x86_64-linux-gnu", "lib64", "opt/amazon/efa/lib", "usr/local/lib", "opt/conda/lib") {
		names = append(names, h.Root.Names(dir)...)
	}
	has := func(prefix string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, prefix) })
	}
	const slow = "NCCL takes TCP without a word, at a fraction of the bandwidth"
	const install = "install rdma-core (Debian: libibverbs1 ibverbs-providers) in the image"
	if !has("libibverbs.so.1") { // it may be where only the workers' environment leads
		return found(Warn, slow, install, "no libibverbs.so.1 in the usual places")
	}
	for _, r := range h.Machine.Compute() {
		if lib := providers[r.HCA.PCI.Driver]; lib != "" && !has(lib) {
			return found(Warn, slow, install, "libibverbs is there, and no %s, which %s needs", lib, r.Name())
		}
	}
	return pass("libibverbs and what it needs for the adapters are there")
}

// plugin is whether NCCL finds what it needs for EFA, of which it knows nothing itself.
func plugin(h Host, n Need) []Finding {
	if h.Machine.Transport() != "efa" || h.Getenv == nil {
		return nil
	}
	if name := h.Getenv("NCCL_NET_PLUGIN"); name != "" {
		return pass("NCCL_NET_PLUGIN=%s", name)
	}
	dirs := slices.Concat(strings.Split(h.Getenv("LD_LIBRARY_PATH"), ":"), libraries, strings.Fields("opt/amazon/ofi-nccl/lib opt/amazon/ofi-nccl/lib64 opt/amazon/ofi-nccl/lib/x86_64-linux-gnu opt/aws-ofi-nccl/lib usr/local/lib opt/conda/lib"))
	for _, dir := range dirs {
		dir = strings.Trim(dir, "/")
		for _, name := range h.Root.Names(dir) {
			if dir != "" && strings.HasPrefix(name, "libnccl-net") && strings.Contains(name, ".so") {
				return pass("/%s/%s", dir, name)
			}
		}
	}
	return found(needed(n.network(h)), "NCCL goes by TCP, many times slower", "install aws-ofi-nccl in the image, or set LD_LIBRARY_PATH to where its libnccl-net.so is",
		"aws-ofi-nccl, NCCL's plugin for EFA, is not in the usual places")
}

// gid is whether RoCE has an address to send from.
func gid(h Host, n Need) (all []Finding) {
	if h.Machine.Transport() != "roce" {
		return nil
	}
	for _, r := range h.Machine.Compute() {
		if _, ok := r.Port.RoCE(h.Machine.Nets); !ok {
			all = append(all, found(needed(n.network(h)), "NCCL fails in ibv_modify_qp", "give its network device an IP address in this network namespace (Multus, hostNetwork)",
				"%s has no GID of RoCE v2 here", r.Name())...)
		}
	}
	if all != nil {
		return all
	}
	if i, ok := h.Machine.GIDIndex(); ok {
		return pass("RoCE v2 has GID %d on all adapters", i)
	}
	return found(Warn, "NCCL 2.21 to 2.25 take one index for all, and fail on some", "use NCCL 2.26 or newer, which finds each one's", "the adapters have their GIDs of RoCE v2 at different indices")
}

const (
	roceMTU     = 4200 // from here RoCE sends 4096 bytes at a time
	ethernetMTU = 9000
	googleMTU   = 8244  // of the networks beside GPUs in Google's blueprints (GoogleCloudPlatform/cluster-toolkit); 8896 is the most there
	fastNet     = 25000 // Mb/s
)

// mtu is how much goes into one packet.
func mtu(h Host, _ Need) (all []Finding) {
	byName := map[string]topology.Net{}
	for _, n := range h.Machine.Nets {
		byName[n.Name] = n
	}
	looked := map[string]bool{}
	for _, r := range h.Machine.Compute() {
		n, ok := byName[r.Port.Net]
		if !ok || r.Port.Layer != "Ethernet" || looked[n.Name] {
			continue
		}
		if looked[n.Name] = true; n.MTU > 0 && n.MTU < roceMTU {
			all = append(all, found(Warn, "RoCE sends 1024 bytes at a time in place of 4096", "set it to 9000 on the host and on the switches", "%s, of %s, has MTU %d", n.Name, r.Name(), n.MTU)...)
		}
	}
	if len(h.Machine.Compute()) == 0 {
		all = smallMTUs(h.Machine)
	}
	if all == nil && len(looked) > 0 {
		return pass("the MTU of %s is large enough", plural(len(looked), "network device"))
	}
	return all
}

// smallMTUs are the fast interfaces by which data would go by TCP in small packets: a finding for those that are alike.
func smallMTUs(m topology.Machine) (all []Finding) {
	enough := ethernetMTU
	if m.Platform() == "gcp" {
		enough = googleMTU
	}
	type kind struct{ speed, mtu int }
	names := map[kind][]string{}
	var kinds []kind
	for _, n := range m.Nets {
		if k := (kind{n.Speed, n.MTU}); n.Type == 1 && n.State == "up" && n.Speed >= fastNet && n.MTU > 0 && n.MTU < enough {
			if names[k] == nil {
				kinds = append(kinds, k)
			}
			names[k] = append(names[k], n.Name)
		}
	}
	for _, k := range kinds {
		all = append(all, found(Warn, "TCP needs more of the processor", fmt.Sprintf("set it to %d on the host and on the switches", enough), "MTU %d on %s, of %d Gb/s", k.mtu, some(names[k]), k.speed/1000)...)
	}
	return all
}

// hostname is whether this machine's own name leads others to it.
func hostname(h Host, n Need) []Finding {
	if h.Resolve == nil {
		return nil
	}
	name, addresses, err := h.Resolve()
	if err != nil {
		return found(Warn, "Gloo asks for it, and takes the loopback device", "put it into /etc/hosts, or set GLOO_SOCKET_IFNAME", "the own name %s does not resolve: %v", name, err)
	}
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil && !a.IsLoopback() {
			return pass("the own name %s is %s", name, text)
		}
	}
	if n.Nodes < 2 {
		return nil
	}
	return found(Warn, "Gloo may offer 127.0.0.1 to other machines", "take the name out of the line 127.0.… of /etc/hosts, or set GLOO_SOCKET_IFNAME", "the own name %s is %s", name, strings.Join(addresses, ", "))
}

const fewPorts = 10000

// portRange is how many ports there are for connections, of which NCCL needs many.
func portRange(h Host, n Need) []Finding {
	words := strings.Fields(h.Root.Line("proc/sys/net/ipv4/ip_local_port_range"))
	if len(words) != 2 {
		return nil
	}
	first, err1 := strconv.Atoi(words[0])
	last, err2 := strconv.Atoi(words[1])
	if err1 != nil || err2 != nil || last < first {
		return nil
	}
	if ports := last - first + 1; ports < fewPorts && n.Nodes > 1 {
		return found(Warn, "connections fail with \"Cannot assign requested address\"", "sysctl net.ipv4.ip_local_port_range=\"10000 65000\"", "%d ports for outgoing connections (%d to %d)", ports, first, last)
	}
	return pass("ports %d to %d for connections; firewalls between the nodes have to let them pass", first, last)
}
