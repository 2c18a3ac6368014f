package topology

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	rdma     = "sys/class/infiniband"
	verbs    = "sys/class/infiniband_verbs"
	maxPorts = 254 // ports of one adapter
)

// An HCA is an RDMA adapter: /sys/class/infiniband/<Name>. Its name may change from boot to boot; its address does not.
type HCA struct {
	Name     string
	PCI      PCI
	Kind     string // node_type without its number: CA, RNIC (iWARP), unspecified (EFA)
	Type     string // hca_type: MT4129; drivers of Mellanox alone
	Board    string // board_id
	Firmware string // fw_ver
	GUID     string // node_guid
	Device   string // /dev/infiniband/uverbs<N>, "" if the kernel shows none
	Why      string // that device cannot be opened: no process of this container can use the adapter; else ""
	Virtual  bool   // a virtual function
	Bond     bool   // two ports in one: its rate is that of one of them
	Ports    []Port
}

// A Port is /sys/class/infiniband/<HCA>/ports/<Number>.
type Port struct {
	Number int
	State  string  // DOWN, INIT, ARMED, ACTIVE, …
	Phys   string  // Polling, Disabled, LinkUp, …
	Rate   float64 // Gb/s; means nothing while the port is not ACTIVE
	Lanes  int     // 4 of "4X NDR"
	Speed  string  // NDR; old kernels leave it out
	Layer  string  // InfiniBand, Ethernet, Unknown (EFA)
	LID    int
	SMLID  int // of the subnet manager
	GIDs   []GID
	Net    string // the network device of this port, as far as this network namespace has it
	Usable bool   // by processes of this container: the port is ACTIVE and the adapter's device can be opened
	Why    string // it is not usable
}

// EFA reports whether the adapter is AWS's: its rate and link layer are made up by its driver, and verbs' own transports cannot use it.
func (h HCA) EFA() bool {
	return h.PCI.Driver == "efa" || h.PCI.Vendor == 0x1d0f && h.PCI.Device>>8 == 0xef
}

// virtualFunctions are devices that are a virtual function where no physfn says so, in a virtual machine.
var virtualFunctions = map[uint32]bool{
	0x15b31014: true, 0x15b31016: true, 0x15b31018: true, 0x15b3101a: true, 0x15b3101c: true, 0x15b3101e: true,
}

// hcas reads the RDMA adapters, by name. All of the machine are shown to a container; what it may use, its devices tell.
func (t tree) hcas(devices []PCI, nets []Net) (all []HCA) {
	nodes := t.uverbs()
	for _, name := range t.names(rdma) {
		dir := path.Join(rdma, name)
		home := t.link(dir) // sys/devices/pci…/infiniband/mlx5_0
		if home == "" {
			home = dir
		}
		at := addressIn(t.link(path.Join(home, "device")))
		if at == (Address{}) {
			at = addressIn(home)
		}
		if on := path.Base(t.link(path.Join(home, "device"))); strings.Count(on, ":") == 2 {
			if _, err := ParseAddress(on); err != nil {
				t.note("%s/device: %v", dir, err)
			}
		}
		h := HCA{
			Name: name, PCI: PCI{Address: at, NUMA: -1, Path: []string{at.String()}}, Kind: word(t.line(dir + "/node_type")),
			Type: t.line(dir + "/hca_type"), Board: t.line(dir + "/board_id"), Firmware: t.line(dir + "/fw_ver"), GUID: t.line(dir + "/node_guid"),
		}
		if i := slices.IndexFunc(devices, func(p PCI) bool { return p.Address == at }); i >= 0 {
			h.PCI = t.complete(devices[i])
		}
		h.Virtual = h.PCI.Virtual || virtualFunctions[uint32(h.PCI.Vendor)<<16|uint32(h.PCI.Device)]
		h.Device, h.Why = "", "the kernel shows no verbs device for it"
		if node := nodes[name]; node != "" {
			h.Device, h.Why = "/"+node, t.device(node)
		}
		for _, n := range t.numbered(dir+"/ports", "") {
			if n <= maxPorts {
				h.Ports = append(h.Ports, t.port(h, n, nets))
			}
		}
		h.Bond = slices.ContainsFunc(h.Ports, func(p Port) bool { return bonded(p.Net, nets) })
		all = append(all, h)
	}
	return all
}

// uverbs finds each adapter's device node: /sys/class/infiniband_verbs/uverbs3/ibdev is mlx5_3.
func (t tree) uverbs() map[string]string {
	nodes := map[string]string{}
	for _, n := range t.numbered(verbs, "uverbs") {
		if name := t.line(fmt.Sprintf("%s/uverbs%d/ibdev", verbs, n)); name != "" {
			nodes[name] = "dev/infiniband/uverbs" + strconv.Itoa(n)
		}
	}
	return nodes
}

func (t tree) port(h HCA, number int, nets []Net) Port {
	dir := portDir(h.Name, number)
	p := Port{Number: number}
	t.state(dir, &p)
	p.LID, _ = t.number(dir + "/lid")
	p.SMLID, _ = t.number(dir + "/sm_lid")
	p.GIDs = t.gids(dir)
	p.Net = netOf(h, p, nets)
	p.Why = unusable(h, p)
	p.Usable = p.Why == ""
	return p
}

func portDir(hca string, number int) string {
	return fmt.Sprintf("%s/%s/ports/%d", rdma, hca, number)
}

// state reads what may change of a port at any time.
func (t tree) state(dir string, p *Port) {
	p.State, p.Phys, p.Layer = word(t.line(dir+"/state")), word(t.line(dir+"/phys_state")), t.line(dir+"/link_layer")
	p.Rate, p.Lanes, p.Speed = rate(t.line(dir + "/rate"))
}

// unusable says why a port cannot be used, and what that means; "" if it can.
func unusable(h HCA, p Port) string {
	switch {
	case h.Why != "":
		return h.Why
	case p.State == "ACTIVE":
		return ""
	case p.State == "":
		return "its state cannot be read: the adapter is being reset, or its firmware is dead"
	case p.State == "INIT" && p.Layer != "Ethernet":
		return "INIT: the link is up, but no subnet manager has set the port up"
	case p.State == "ARMED":
		return "ARMED: the subnet manager has not finished"
	case p.Phys == "Polling":
		return p.State + ", Polling: no cable, or nobody at its other end"
	case p.Phys == "Disabled" && p.Layer == "Ethernet":
		return p.State + ", Disabled: its network device is down"
	case p.Phys == "Disabled":
		return p.State + ", Disabled: by an administrator, or by its firmware"
	case p.Phys != "":
		return p.State + ", " + p.Phys
	}
	return p.State
}

// word is the text of "4: ACTIVE".
func word(text string) string {
	number, rest, ok := strings.Cut(text, ": ")
	if _, err := strconv.Atoi(number); !ok || err != nil {
		return text
	}
	return strings.Trim(rest, "<>")
}

// rate reads "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)" or, of old kernels, "10 Gb/sec (4X)".
func rate(text string) (gbps float64, lanes int, speed string) {
	number, rest, _ := strings.Cut(text, " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !(v > 0 && v < 1e6) || !strings.HasPrefix(rest, "Gb/sec") {
		return 0, 0, ""
	}
	_, inside, _ := strings.Cut(rest, "(")
	inside, _, _ = strings.Cut(inside, ")")
	width, speed, _ := strings.Cut(inside, " ")
	if n, err := strconv.Atoi(strings.TrimSuffix(width, "X")); err == nil && n > 0 && n <= 16 {
		lanes = n
	}
	return v, lanes, speed
}
