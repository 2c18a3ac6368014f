package topology

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	vendorAMD = 0x1002
	kfdNodes  = "sys/class/kfd/kfd/topology/nodes"
	linkXGMI  = 11 // io_links/<n>/properties type (drivers/gpu/drm/amd/amdkfd/kfd_crat.h)
)

// maxIntegrated bounds the SIMDs of a GPU that is part of a processor, and serves a display: 16 compute units of two. The kernel calls such GPUs
// by no other name, and their share of the memory looks like a card's own. A part of a partitioned card has more.
const maxIntegrated = 32

// A kfd is one GPU of AMD's compute driver: a card, or a part of one that is partitioned.
type kfd struct {
	node int
	properties
	at Address
}

// properties are the lines "key value" of a node or link.
type properties map[string]uint64

func parseProperties(text string) properties {
	all := properties{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			all[key] = n
		}
	}
	return all
}

// kfds reads the nodes that are GPUs; the first ones are CPUs. Those of another container cannot be read.
func (t tree) kfds() (all []kfd) {
	for _, n := range t.numbered(kfdNodes, "") {
		k := kfd{node: n, properties: parseProperties(t.text(fmt.Sprintf("%s/%d/properties", kfdNodes, n)))}
		if k.properties["simd_count"] == 0 {
			continue
		}
		at := k.properties["location_id"] // bus, device and function in 16 bits
		k.at = Address{Domain: uint32(k.properties["domain"]), Bus: uint8(at >> 8), Device: uint8(at>>3) & 0x1f, Fun: uint8(at) & 7}
		all = append(all, k)
	}
	return all
}

// amd reads AMD's GPUs: those of the compute driver, and those on the PCI buses that are no display.
func (t tree) amd(devices []PCI) []GPU {
	var gpus []GPU
	nodes := t.kfds()
	for _, k := range nodes {
		g := GPU{Vendor: "amd", Memory: -1, PCI: t.complete(t.card(devices, k.at))}
		g.integrated = k.properties["simd_count"] <= maxIntegrated && g.PCI.base() != 0x12
		g.Model = t.modelAMD(g.PCI)
		if id := k.properties["unique_id"]; id != 0 {
			g.UUID = fmt.Sprintf("GPU-%016x", id) // as ROCm writes it
		}
		if minor := k.properties["drm_render_minor"]; minor != 0 && minor <= maxMinor {
			t.giveNode(&g, "dev/dri/renderD"+strconv.FormatUint(minor, 10))
		} else {
			g.Why = "its driver shows no render node"
		}
		if why := t.device("dev/kfd"); g.Visible && why != "" {
			g.Visible, g.Why = false, why
		}
		gpus = append(gpus, g)
	}
	for _, p := range devices {
		compute := p.base() == 0x12 || p.sub() == 0x0380
		known := slices.ContainsFunc(gpus, func(g GPU) bool { return g.PCI.Address == p.Address })
		if p.Vendor != vendorAMD || !compute || known {
			continue
		}
		p = t.complete(p)
		why := "AMD's compute driver does not show it to this container"
		if p.Driver != "amdgpu" {
			why = "its driver is not amdgpu"
		}
		gpus = append(gpus, GPU{Vendor: "amd", Model: t.modelAMD(p), PCI: p, Why: why, Memory: -1})
	}
	if len(gpus) == 0 && t.device("dev/kfd") == "" {
		gpus = t.renderNodes()
	}
	return gpus
}

// card is the PCI device at an address; the parts of a partitioned card have functions that no PCI device has.
func (t tree) card(devices []PCI, at Address) PCI {
	for _, a := range []Address{at, {Domain: at.Domain, Bus: at.Bus, Device: at.Device}} {
		if i := slices.IndexFunc(devices, func(p PCI) bool { return p.Address == a }); i >= 0 {
			return devices[i]
		}
	}
	return PCI{Address: at, Vendor: vendorAMD, NUMA: -1, Path: []string{at.String()}}
}

// renderNodes is a GPU for each render node, where the compute driver is open and shows nothing of them.
func (t tree) renderNodes() (gpus []GPU) {
	for _, n := range t.numbered("dev/dri", "renderD") {
		g := GPU{Vendor: "amd", Model: "AMD GPU", PCI: PCI{NUMA: -1}, Memory: -1}
		t.giveNode(&g, "dev/dri/renderD"+strconv.Itoa(n))
		gpus = append(gpus, g)
	}
	return gpus
}

// instincts names AMD's accelerators where the driver does not.
var instincts = map[uint16]string{
	0x738c: "AMD Instinct MI100", 0x7408: "AMD Instinct MI250X", 0x740c: "AMD Instinct MI250X", 0x740f: "AMD Instinct MI210",
	0x74a0: "AMD Instinct MI300A", 0x74a1: "AMD Instinct MI300X", 0x74b5: "AMD Instinct MI300X (VF)", 0x74a2: "AMD Instinct MI308X",
	0x74a5: "AMD Instinct MI325X", 0x75a0: "AMD Instinct MI350X", 0x75a3: "AMD Instinct MI355X",
}

func (t tree) modelAMD(p PCI) string {
	if name := t.line(path.Join(pciDevices, p.Address.String(), "product_name")); name != "" {
		return name
	}
	if name := instincts[p.Device]; name != "" {
		return name
	}
	return p.number()
}

// xgmi reads which of AMD's GPUs are linked to which.
func (t tree) xgmi(gpus []GPU) {
	nodes := t.kfds()
	place := map[uint64]int{} // of a KFD node among gpus: the nodes of one address follow each other
	used := map[int]bool{}
	for _, k := range nodes {
		at := t.card(pciOf(gpus), k.at).Address
		for i, g := range gpus {
			if g.Vendor == "amd" && g.PCI.Address == at && !used[i] {
				place[uint64(k.node)], used[i] = i, true
				break
			}
		}
	}
	for _, k := range nodes {
		from, ok := place[uint64(k.node)]
		dir := fmt.Sprintf("%s/%d/io_links", kfdNodes, k.node)
		for _, n := range t.numbered(dir, "") {
			p := parseProperties(t.text(fmt.Sprintf("%s/%d/properties", dir, n)))
			to, known := place[p["node_to"]]
			if ok && known && p["type"] == linkXGMI {
				gpus[from].Links = append(gpus[from].Links, Peer{Index: to, Kind: "xgmi", MBps: int(min(p["max_bandwidth"], 1<<30))})
			}
		}
	}
}

func pciOf(gpus []GPU) (all []PCI) {
	for _, g := range gpus {
		all = append(all, g.PCI)
	}
	return all
}
