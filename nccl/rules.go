package nccl

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-run/muster/topology"
)

// A rule is when a variable is set, and to what. Without a value, the reason says why it is left alone though it may matter; without either
// there is nothing to say.
type rule struct {
	name   string
	needs  need
	choose func(*facts) (value, why string)
	source string
}

// rules are asked in this order. What is not here is left to NCCL, which since 2.21 finds rings, GIDs, nearest adapters and levels
// better than anybody before it runs.
var rules = []rule{
	{"NCCL_CONF_FILE", sockets, (*facts).gib, "GoogleCloudPlatform/cluster-toolkit; NCCL: NCCL_CONF_FILE"},
	{"NCCL_TOPO_FILE", sockets, (*facts).topoFile, "Azure/azhpc-images, topology; NCCL: NCCL_TOPO_FILE"},
	{"NCCL_SOCKET_IFNAME", sockets, (*facts).bootstrap, "NCCL: NCCL_SOCKET_IFNAME"},
	{"GLOO_SOCKET_IFNAME", several, (*facts).gloo, "PyTorch: torch.distributed, choosing the network interface"},
	{"TP_SOCKET_IFNAME", several, (*facts).gloo, "PyTorch: torch.distributed.rpc, TensorPipe"},
	{"NCCL_IB_HCA", fabric, (*facts).hcas, "NCCL: NCCL_IB_HCA; NVIDIA/nccl issues 1277, 1363, 1519"},
	{"UCX_NET_DEVICES", fabric, (*facts).ucx, "UCX: UCX_NET_DEVICES"},
	{"NCCL_IB_GID_INDEX", fabric, (*facts).gidIndex, "NVIDIA/nccl issues 890, 1538, 1573"},
	{"NCCL_IB_ADDR_FAMILY", fabric, (*facts).family, "NCCL: NCCL_IB_ADDR_FAMILY"},
	{"NCCL_IB_TC", fabric, (*facts).trafficClass, "oracle-quickstart/oci-hpc, nccl.conf"},
	{"NCCL_IB_TIMEOUT", fabric, (*facts).timeout, "NCCL: NCCL_IB_TIMEOUT; NVIDIA/nccl issue 426"},
	{"NCCL_IB_QPS_PER_CONNECTION", fabric, (*facts).queuePairs, "NVIDIA/nccl pull request 2150; oracle-quickstart/oci-hpc, nccl.conf"},
	{"NCCL_SOCKET_NTHREADS", sockets, (*facts).socketThreads, "NCCL: NCCL_SOCKET_NTHREADS"},
	{"NCCL_NSOCKS_PERTHREAD", sockets, (*facts).socketsEach, "NCCL: NCCL_NSOCKS_PERTHREAD"},
	{"NCCL_CUMEM_HOST_ENABLE", gpus, (*facts).hostMemory, "NCCL: troubleshooting, NCCL_CUMEM_HOST_ENABLE"},
	{"NCCL_MNNVL_ENABLE", sockets, (*facts).noMNNVL, "NCCL: troubleshooting, MNNVL"},
	{"NCCL_P2P_DISABLE", gpus, (*facts).noPeers, "huggingface/accelerate: GeForce RTX 40 before driver 550.40.07"},
	{"NCCL_DEBUG", gpus, (*facts).debug, "NCCL: NCCL_DEBUG"},
	{"TORCH_NCCL_DUMP_ON_TIMEOUT", gpus, (*facts).dump, "PyTorch: ProcessGroupNCCL.hpp, TORCH_NCCL_DUMP_ON_TIMEOUT"},
	{"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", gpus, (*facts).dumpFile, "PyTorch: FlightRecorder, TORCH_FR_DUMP_TEMP_FILE"},
}

// handsOff is who chooses for the fabric, as a sentence: the vendor's plugin, which sets what it needs, and may refuse what others set. ask
// reports whether the user has to do something for that.
func (f *facts) handsOff() (who string, ask bool) {
	switch {
	case !f.collective() || f.World.Nodes < 2:
		return "", false
	case f.transport == "efa" && !f.plugged():
		return "aws-ofi-nccl, NCCL's plugin for EFA, was not found in this container: without it NCCL goes by TCP, many times slower; install it (libnccl-net.so), or use an image that has it", true
	case f.transport == "efa":
		return "EFA: aws-ofi-nccl chooses for its fabric by itself", false
	case f.googles():
		return "GCP: gIB's own profile " + f.Container.Profile.Name + " counts, and its plugin refuses what differs from it", false
	case f.cloud("gcp") && f.Container.Script != "":
		return "GCP: nothing is set for the fabric, for the plugin refuses what differs from its own profile; source " + f.Container.Script + " before training", true
	}
	return "", false
}

// plugged reports whether NCCL will find a plugin for networks, as far as files and variables say.
func (f *facts) plugged() bool {
	_, _, named := f.set("NCCL_NET_PLUGIN")
	return named || len(f.Container.Plugins) > 0
}

// googles reports whether gIB will be what data goes by: its profile in an image that runs elsewhere, or without its plugin, says nothing.
func (f *facts) googles() bool {
	return f.Container.Profile != nil && f.cloud("gcp") && f.plugged()
}

// gib points NCCL to the profile of Google's plugin, where nobody did.
func (f *facts) gib() (value, why string) {
	p := f.Container.Profile
	if p == nil {
		return "", ""
	}
	switch {
	case !f.cloud("gcp"):
		return "", fmt.Sprintf("%s is in this image, and the machine is not Google's", p.Name)
	case !f.plugged():
		return "", fmt.Sprintf("%s is here, and no plugin is found that it is for: has LD_LIBRARY_PATH /usr/local/gib/lib64?", p.Name)
	case f.before(2, 23, 0):
		return "", fmt.Sprintf("NCCL %v does not read it yet; source set_nccl_env.sh beside %s before training", f.Container.Version, p.Name)
	}
	for _, name := range p.Names() {
		if _, from, set := f.set(name); set {
			return "", fmt.Sprintf("%s is set by %s; either all of %s counts, or what was set by hand does", name, from, p.Name)
		}
	}
	for _, file := range f.Container.Files {
		if file.Home {
			return "", fmt.Sprintf("NCCL would no longer read %s", file.Name)
		}
	}
	return p.Name, "the profile of Google's plugin for this machine, in full"
}

// topoFile tells NCCL what a virtual machine hides.
func (f *facts) topoFile() (value, why string) {
	switch missing := f.Machine.Missing(); {
	case f.Container.Mapped:
		return "", ""
	case f.gpus[0].Vendor == "nvidia" && len(missing) > 0:
		return "", fmt.Sprintf("machines of this kind have an adapter at %s, and the kernel shows none there: the topology that is known of them does not fit, and GPUDirect stays off", list(missing))
	case f.gpus[0].Vendor != "nvidia" || f.Machine.Veiled() == nil:
		return "", f.flat()
	case f.TopoFile == "":
		return "", "there is nowhere to write it, and without it GPUs seem to be far from their adapters: GPUDirect stays off"
	}
	return f.TopoFile, "this virtual machine does not show which GPU and adapter share a PCIe switch: without it GPUDirect stays off"
}

// flat says of a virtual machine of which no topology is known that it hides how near GPUs and adapters are; "" of any other.
func (f *facts) flat() string {
	near := slices.ContainsFunc(f.gpus, func(g topology.GPU) bool {
		return g.Memory >= 0 || slices.ContainsFunc(f.rails, func(r topology.Rail) bool { return topology.Relate(g.PCI, r.HCA.PCI) <= topology.PXB }) // Grace needs no switch
	})
	if near || !f.Machine.Processor.Virtual || f.transport != "ib" && f.transport != "roce" {
		return ""
	}
	return "this virtual machine shows no PCIe switch that a GPU and an adapter share, and its topology is not known here: GPUDirect stays off unless its provider has a topology file to name"
}

// interfaces are those that NCCL would choose among: it passes over Docker's and libvirt's own bridges.
func (f *facts) interfaces() (all []topology.Net) {
	for _, n := range f.Machine.Nets {
		if !n.Loopback && n.State != "down" && n.Master == "" && !strings.HasPrefix(n.Name, "docker") && !strings.HasPrefix(n.Name, "virbr") {
			all = append(all, n)
		}
	}
	return all
}

// route is the interface by which this node reaches the others; without others there is no choice.
func (f *facts) route() (route topology.Net, others []topology.Net, why string) {
	all := f.interfaces()
	switch len(all) {
	case 0:
		return route, nil, ""
	case 1:
		return all[0], nil, ""
	}
	if f.World.Route == "" {
		return route, nil, cmp.Or(f.World.Unrouted, "by which interface the others are reached is not known")
	}
	i := slices.IndexFunc(all, func(n topology.Net) bool { return n.Name == f.World.Route })
	if i < 0 {
		return route, nil, fmt.Sprintf("the others are reached by %s, which is none of this node's own", f.World.Route)
	}
	return all[i], slices.Delete(slices.Clone(all), i, i+1), ""
}

// bootstrap is where ranks of NCCL meet. Without RDMA their data goes there, too: then a slow interface is worse than none at all.
func (f *facts) bootstrap() (value, why string) {
	r, others, why := f.route()
	if len(others) == 0 {
		return "", why
	}
	if f.transport == "none" {
		for _, n := range others {
			if !virtual(n) && (n.Speed == 0 || n.Speed >= r.Speed) {
				return "", fmt.Sprintf("data goes by it, and %s may be as fast as %s, by which nodes meet", n.Name, r.Name)
			}
		}
	}
	return "=" + r.Name, routed(r, others)
}

// gloo is the same for PyTorch's collectives on CPUs and for its RPC, which else take whatever address the host's name has, be it 127.0.1.1, or none.
func (f *facts) gloo() (value, why string) {
	r, others, why := f.route()
	switch {
	case len(others) > 0:
	case r.Name != "" && f.World.Own != "":
		return r.Name, f.World.Own
	default:
		return "", why
	}
	return r.Name, routed(r, others)
}

func routed(r topology.Net, others []topology.Net) string {
	var names []string
	for _, n := range others {
		names = append(names, n.Name)
	}
	return fmt.Sprintf("by %s this node reaches the others; it also has %s", r.Name, list(names))
}

// bridges are beginnings of names of interfaces that lead to containers and tunnels alone.
var bridges = []string{"br-", "cali", "cbr", "cilium", "cni", "dummy", "flannel", "geneve", "gre", "kube", "lxc", "nodelocaldns", "podman", "tailscale", "tap", "tun", "veth", "vxlan", "weave", "wg"}

// virtual reports whether an interface leads to no network of the machine's.
func virtual(n topology.Net) bool {
	return n.Address == (topology.Address{}) && len(n.Slaves) == 0 && slices.ContainsFunc(bridges, func(p string) bool { return strings.HasPrefix(n.Name, p) })
}

// verbs are the ports that NCCL's own transport would use.
func (f *facts) verbs() (all []topology.Rail) {
	for _, r := range f.Machine.Rails() {
		if r.Port.Usable && !r.HCA.EFA() {
			all = append(all, r)
		}
	}
	return all
}

// maxHCAs is how many adapters NCCL knows at most (MAX_IB_DEVS in its src/transport).
const maxHCAs = 32

// hcas leaves out what is for storage and management: NCCL would send a part of the data through it, and wait for that.
func (f *facts) hcas() (value, why string) {
	rails, why := f.agreed()
	if rails == nil {
		return "", why
	}
	names, all := topology.Names(rails), topology.Names(f.rails)
	var out []string
	for _, r := range f.verbs() {
		if !slices.Contains(all, r.Name()) {
			out = append(out, f.odd(r))
		}
	}
	switch {
	case len(out) == 0 && len(names) == len(all):
		return "", ""
	case len(names) > maxHCAs:
		return "", fmt.Sprintf("%d adapters are for training, more than the %d that NCCL knows", len(names), maxHCAs)
	case len(out) > 0:
		why = strings.TrimPrefix(why+"; not for training: "+list(out), "; ")
	}
	return "=" + strings.Join(names, ","), why
}

// odd is a port that is not for training, and why.
func (f *facts) odd(r topology.Rail) string {
	like := f.rails[0].Port
	switch {
	case r.Port.Layer != like.Layer:
		return fmt.Sprintf("%s (%s)", r.Name(), r.Port.Layer)
	case r.Port.Rate < like.Rate:
		return fmt.Sprintf("%s (%g Gb/s)", r.Name(), r.Port.Rate)
	}
	return r.Name() + " (near no GPU)"
}

// ucx is the same for UCX, with the interface by which it goes where it has no RDMA.
func (f *facts) ucx() (value, why string) {
	only, why := f.hcas()
	if only == "" {
		return "", "" // it was said of NCCL
	}
	r, _, _ := f.route()
	if f.limitedUCX() || r.Name == "" {
		return "", ""
	}
	rails, _ := f.agreed()
	var names []string
	for _, r := range rails {
		names = append(names, r.HCA.Name+":"+strconv.Itoa(r.Port.Number))
	}
	return strings.Join(append(names, r.Name), ","), why
}

// limitedUCX reports whether somebody has told UCX by what it is to go, perhaps in a file that a variable would override.
func (f *facts) limitedUCX() bool {
	for _, name := range []string{"UCX_TLS", "UCX_CONFIG_DIR"} {
		if _, set := f.Getenv(name); set {
			return true
		}
	}
	return slices.ContainsFunc(f.Container.UCX, func(file File) bool {
		_, devices := file.Values["UCX_NET_DEVICES"]
		_, ways := file.Values["UCX_TLS"]
		return devices || ways
	})
}

// gidIndex is what versions of NCCL need that take the first GID, or stumble over those of other network namespaces.
func (f *facts) gidIndex() (value, why string) {
	if f.transport != "roce" || !f.before(2, 26, 0) {
		return "", ""
	}
	index, ok := f.Machine.GIDIndex()
	if !ok {
		return "", fmt.Sprintf("NCCL %v needs it, but the adapters do not have their GIDs of RoCE v2 at the same place; use 2.26 or newer", f.Container.Version)
	}
	if f.before(2, 21, 0) {
		return strconv.Itoa(index), fmt.Sprintf("NCCL %v takes GID 0, and that of RoCE v2 is another", f.Container.Version)
	}
	return strconv.Itoa(index), fmt.Sprintf("NCCL %v ends when it meets GIDs of other network namespaces", f.Container.Version)
}

// family is that of the fabric's addresses; NCCL looks for those of IPv4.
func (f *facts) family() (value, why string) {
	if f.transport != "roce" || f.before(2, 21, 0) {
		return "", ""
	}
	for _, r := range f.rails {
		g, ok := r.Port.RoCE(f.Machine.Nets)
		if !ok || g.Addr.Is4In6() || !g.Addr.IsGlobalUnicast() {
			return "", ""
		}
	}
	return "AF_INET6", "the adapters have addresses of IPv6 alone"
}

// trafficClass is how switches tell training from the rest. Nothing on a machine says so: only where a cloud publishes it.
func (f *facts) trafficClass() (value, why string) {
	if f.transport != "roce" || !f.cloud("oci") {
		return "", ""
	}
	return "41", "the class that OCI's switches keep lossless"
}

// manyNodes is how many make a fabric in which links fail during a job.
const manyNodes = 32

func (f *facts) timeout() (value, why string) {
	const much = "22"
	switch {
	case f.transport == "roce":
		return much, "rides out congestion and links that come back: 2 minutes, not 30 seconds or less"
	case f.World.Nodes >= manyNodes:
		return much, fmt.Sprintf("rides out links that come back, on %d nodes: 2 minutes, not 30 seconds or less", f.World.Nodes)
	}
	return "", ""
}

// queuePairs are more than one where a single one would go by one of several paths.
func (f *facts) queuePairs() (value, why string) {
	switch {
	case f.transport != "roce":
		return "", ""
	case f.platform == "oci-a100":
		return "4", "OCI's network has several paths, and each queue pair takes one"
	case !slices.ContainsFunc(f.rails, func(r topology.Rail) bool { return !r.HCA.Bond }):
		return "2", "each adapter is a bond, and one queue pair would go by one of its links"
	}
	return "", ""
}

// fast is the speed in Mb/s of the interface by which data goes, where it goes by TCP; 0: it does not, or too little is known.
func (f *facts) fast() int {
	if f.transport != "none" || f.cloud("aws") || f.cloud("gcp") {
		return 0
	}
	r, others, _ := f.route()
	if value, _ := f.bootstrap(); value == "" && len(others) > 0 {
		return 0
	}
	return r.Speed
}

func (f *facts) socketThreads() (value, why string) {
	if speed := f.fast(); speed >= 25000 {
		return "4", fmt.Sprintf("data goes by TCP at %d Gb/s, more than a connection carries", speed/1000)
	}
	return "", ""
}

func (f *facts) socketsEach() (value, why string) {
	switch speed := f.fast(); {
	case speed >= 100000:
		return "4", fmt.Sprintf("data goes by TCP at %d Gb/s, more than a connection carries", speed/1000)
	case speed >= 25000:
		return "2", fmt.Sprintf("data goes by TCP at %d Gb/s, more than a connection carries", speed/1000)
	}
	return "", ""
}

// hostMemory keeps versions from memory that they cannot place.
func (f *facts) hostMemory() (value, why string) {
	if !f.Sealed || f.before(2, 24, 0) || !f.before(2, 26, 5) {
		return "", ""
	}
	return "0", fmt.Sprintf("this container may not place memory on NUMA nodes, and NCCL %v fails or hangs there", f.Container.Version)
}

// noMNNVL keeps versions that insist on it from NVLink to other machines, for which this container has no channel.
func (f *facts) noMNNVL() (value, why string) {
	if f.unchanneled() {
		return "0", "this container has no channel of IMEX, without which NCCL from 2.27 on fails where GPUs have NVLink to other machines"
	}
	return "", ""
}

// unchanneled reports whether GPUs have NVLink to those of other machines, and this container may not use it.
func (f *facts) unchanneled() bool {
	return (f.platform == "gb200" || f.platform == "gb300" || f.platform == "oci-gb200") && !f.Machine.MNNVL() && !f.before(2, 27, 0)
}

// noPeers is for GPUs whose older drivers say that they reach each other though they do not.
func (f *facts) noPeers() (value, why string) {
	driver, err := ParseVersion(f.Machine.NVIDIA.Driver)
	if err != nil || driver.Compare(Version{550, 40, 7}) >= 0 || len(f.gpus) < 2 || !strings.Contains(f.gpus[0].Model, "GeForce RTX 40") {
		return "", ""
	}
	return "1", "driver " + f.Machine.NVIDIA.Driver + " offers these GPUs a way to each other that corrupts data"
}

func (f *facts) debug() (value, why string) {
	return "WARN", "the cause of a failure is in the worker's output"
}

// dump is off by default before PyTorch 2.9 or so.
func (f *facts) dump() (value, why string) {
	return "1", "what PyTorch's flight recorder holds is kept when its own time-out ends a job"
}

// dumpFile is where. PyTorch appends the rank.
func (f *facts) dumpFile() (value, why string) {
	if f.Logs == "" {
		return "", ""
	}
	if newer, set := f.Getenv("TORCH_FR_DUMP_TEMP_FILE"); set {
		return "", "TORCH_FR_DUMP_TEMP_FILE=" + newer + ", its newer name, counts"
	}
	return f.Logs + "/nccl_trace_rank_", "beside the log files: /tmp is gone with its container"
}

// broken names the nodes that lack adapters, or where all are alike the adapters like those for training that cannot be used.
func (f *facts) broken() (notes []string) {
	if !f.fits(sockets) {
		return nil
	}
	if differ := Disagreement(f.World.Peers); differ != "" { // this node may be the one that has none
		return []string{differ + "; NCCL pairs them by their places (--nccl-rails)"}
	}
	if !f.fits(fabric) {
		return nil
	}
	for _, r := range f.Machine.Rails() {
		if !r.Port.Usable && f.Machine.ForTraining(r) {
			notes = append(notes, fmt.Sprintf("%s, which is for training, cannot be used: %s", r.Name(), r.Port.Why))
		}
	}
	return notes
}
