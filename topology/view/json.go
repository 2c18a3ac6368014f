package view

import (
	"encoding/json"
	"io"

	"github.com/muster-run/muster/topology"
)

// A document is a machine for programs. Keys stay; new ones may come. docs/probe.md explains them.
type document struct {
	Platform   string    `json:"platform"`
	Transport  string    `json:"transport"`
	Compute    []string  `json:"compute_hcas"`
	GIDIndex   *int      `json:"gid_index,omitempty"`
	NVSwitches int       `json:"nvswitches"`
	Driver     string    `json:"nvidia_driver,omitempty"`
	OpenDriver bool      `json:"nvidia_open_driver,omitempty"`
	IMEX       []int     `json:"imex_channels,omitempty"`
	Hidden     string    `json:"hidden,omitempty"`
	GPUs       []gpu     `json:"gpus"`
	HCAs       []hca     `json:"hcas"`
	Affinity   []nearest `json:"affinity"`
	Binding    []binding `json:"binding"`
	Processor  processor `json:"cpus"`
	Nodes      []numa    `json:"nodes"`
	Nets       []network `json:"nets"`
	DMI        dmi       `json:"dmi"`
	Unknown    []string  `json:"unknown,omitempty"`
}

type gpu struct {
	Index      int        `json:"index"`
	Vendor     string     `json:"vendor"`
	Address    string     `json:"address"`
	UUID       string     `json:"uuid"`
	Model      string     `json:"model"`
	NUMA       int        `json:"numa"` // -1: the kernel does not say
	CPUs       string     `json:"cpus"`
	Visible    bool       `json:"visible"`
	Why        string     `json:"why,omitempty"`
	Device     string     `json:"device,omitempty"`
	MemoryNode *int       `json:"memory_node,omitempty"`
	Link       linkWidth  `json:"link"`
	MIG        []instance `json:"mig,omitempty"`
	Links      []peer     `json:"links,omitempty"`
	Told       *told      `json:"nvidia_smi,omitempty"`
}

type linkWidth struct {
	Speed    float64 `json:"gts,omitempty"`
	Width    int     `json:"lanes,omitempty"`
	MaxSpeed float64 `json:"max_gts,omitempty"`
	MaxWidth int     `json:"max_lanes,omitempty"`
}

type instance struct {
	GPUInstance int    `json:"gpu_instance"`
	Compute     int    `json:"compute_instance"`
	UUID        string `json:"uuid,omitempty"`
	Visible     bool   `json:"visible"`
}

type peer struct {
	GPU   int    `json:"gpu"`
	Kind  string `json:"kind"`
	Links int    `json:"links,omitempty"`
	MBps  int    `json:"mbps,omitempty"`
}

type told struct {
	MIG          string `json:"mig,omitempty"`
	ECC          string `json:"ecc,omitempty"`
	Uncorrected  *int   `json:"ecc_uncorrected,omitempty"`
	Fabric       string `json:"fabric,omitempty"`
	FabricStatus string `json:"fabric_status,omitempty"`
	Cluster      string `json:"fabric_cluster,omitempty"`
	Clique       string `json:"fabric_clique,omitempty"`
}

type hca struct {
	Name     string  `json:"name"`
	Address  string  `json:"address"`
	Port     int     `json:"port"`
	State    string  `json:"state"`
	Phys     string  `json:"phys_state"`
	Rate     float64 `json:"rate_gbps"`
	Lanes    int     `json:"lanes,omitempty"`
	Layer    string  `json:"link_layer"`
	NUMA     int     `json:"numa"`
	Usable   bool    `json:"usable"`
	Why      string  `json:"why"`
	Training bool    `json:"training"`
	EFA      bool    `json:"efa,omitempty"`
	Bond     bool    `json:"bond,omitempty"`
	Virtual  bool    `json:"virtual,omitempty"`
	Net      string  `json:"net,omitempty"`
	Device   string  `json:"device,omitempty"`
	Type     string  `json:"type,omitempty"`
	Firmware string  `json:"firmware,omitempty"`
	RoCE     *gid    `json:"roce_v2_gid,omitempty"`
}

type gid struct {
	Index int    `json:"index"`
	GID   string `json:"gid"`
}

type nearest struct {
	GPU      int      `json:"gpu"`
	HCAs     []string `json:"hcas"`
	Relation string   `json:"relation"` // "-": there is no adapter
}

type binding struct {
	GPU     int    `json:"gpu"`
	CPUs    string `json:"cpus"`   // "": wherever muster may run
	Memory  int    `json:"memory"` // -1: where it runs
	Threads int    `json:"threads"`
	Why     string `json:"why"`
}

type processor struct {
	Model   string  `json:"model"`
	Sockets int     `json:"sockets"`
	Cores   int     `json:"cores"`
	Online  string  `json:"online"`
	Usable  string  `json:"usable"`
	Quota   float64 `json:"quota,omitempty"`
	Virtual bool    `json:"virtual,omitempty"`
}

type numa struct {
	ID       int    `json:"id"`
	CPUs     string `json:"cpus"`
	Memory   int64  `json:"memory_bytes"`
	Distance []int  `json:"distance"`
	Socket   int    `json:"socket"`
}

type network struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
	Kind    string `json:"kind"`
	State   string `json:"state"`
	Speed   int    `json:"speed_mbps,omitempty"`
	MTU     int    `json:"mtu"`
	Master  string `json:"master,omitempty"`
}

type dmi struct {
	Vendor  string `json:"sys_vendor,omitempty"`
	Product string `json:"product_name,omitempty"`
	Board   string `json:"board_name,omitempty"`
	BIOS    string `json:"bios_vendor,omitempty"`
}

// JSON writes a machine as one JSON object.
func JSON(w io.Writer, m topology.Machine) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(documentOf(m))
}

func documentOf(m topology.Machine) document {
	d := document{
		Platform: m.Platform(), Transport: m.Transport(), Compute: []string{}, NVSwitches: len(m.NVSwitches),
		Driver: m.NVIDIA.Driver, OpenDriver: m.NVIDIA.Open, IMEX: m.NVIDIA.IMEX, Hidden: m.Hidden, Unknown: m.Unknown,
		GPUs: []gpu{}, HCAs: []hca{}, Affinity: []nearest{}, Binding: []binding{}, Nodes: []numa{}, Nets: []network{},
		DMI: dmi{m.DMI.Vendor, m.DMI.Product, m.DMI.Board, m.DMI.BIOS},
	}
	training := map[string]bool{}
	for _, name := range topology.Names(m.Compute()) {
		training[name] = true
		if d.Transport != "efa" { // verbs' own transports cannot use EFA
			d.Compute = append(d.Compute, name)
		}
	}
	if i, ok := m.GIDIndex(); ok {
		d.GIDIndex = &i
	}
	for _, g := range m.GPUs {
		d.GPUs = append(d.GPUs, gpuOf(m, g))
	}
	for _, r := range m.Rails() {
		d.HCAs = append(d.HCAs, hcaOf(m, r, training[r.Name()]))
	}
	for _, a := range m.Affinity() {
		d.Affinity = append(d.Affinity, nearest{a.GPU, topology.Names(a.Rails), a.Relation.String()})
	}
	for i, w := range bound(m).Workers {
		d.Binding = append(d.Binding, binding{m.Slots()[i].Index, w.CPUs.String(), w.Memory, w.Threads, w.Why})
	}
	p := m.Processor
	d.Processor = processor{p.Model, p.Sockets(), len(p.Cores), p.Online.String(), m.Limits.Usable(p.Online).String(), m.Limits.Quota, p.Virtual}
	for _, n := range m.Nodes {
		d.Nodes = append(d.Nodes, numa{n.ID, n.CPUs.String(), n.Memory, append([]int{}, n.Distance...), n.Package})
	}
	for _, n := range m.Nets {
		d.Nets = append(d.Nets, network{n.Name, n.Address.String(), netKind(n), n.State, n.Speed, n.MTU, n.Master})
	}
	return d
}

func gpuOf(m topology.Machine, g topology.GPU) gpu {
	l := g.PCI.Link
	j := gpu{
		Index: g.Index, Vendor: g.Vendor, Address: g.PCI.Address.String(), UUID: g.UUID, Model: g.Model, NUMA: g.PCI.NUMA, CPUs: m.Near(g.PCI).String(),
		Visible: g.Visible, Why: g.Why, Device: g.Device, Link: linkWidth{l.Speed, l.Width, l.MaxSpeed, l.MaxWidth},
	}
	if g.Memory >= 0 {
		j.MemoryNode = &g.Memory
	}
	for _, i := range g.MIG {
		j.MIG = append(j.MIG, instance{i.GPUInstance, i.Compute, i.UUID, i.Visible})
	}
	for _, p := range g.Links {
		j.Links = append(j.Links, peer{p.Index, p.Kind, p.Links, p.MBps})
	}
	if t := g.Told; t != (topology.Told{}) {
		j.Told = &told{t.MIG, t.ECC, t.Uncorrected, t.Fabric, t.FabricStatus, t.FabricCluster, t.Clique}
	}
	return j
}

func hcaOf(m topology.Machine, r topology.Rail, training bool) hca {
	h, p := r.HCA, r.Port
	j := hca{
		Name: h.Name, Address: h.PCI.Address.String(), Port: p.Number, State: p.State, Phys: p.Phys, Rate: p.Rate, Lanes: p.Lanes, Layer: p.Layer,
		NUMA: h.PCI.NUMA, Usable: p.Usable, Why: p.Why, Training: training, EFA: h.EFA(), Bond: h.Bond, Virtual: h.Virtual,
		Net: p.Net, Device: h.Device, Type: h.Type, Firmware: h.Firmware,
	}
	if g, ok := p.RoCE(m.Nets); ok && p.Layer == "Ethernet" {
		j.RoCE = &gid{g.Index, g.Text()}
	}
	return j
}
