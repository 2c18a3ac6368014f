package topology

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	vendorNVIDIA = 0x10de
	nvidiaGPUs   = "proc/driver/nvidia/gpus"
	nvidiaNode   = "dev/nvidia" // and the minor number; the container runtime shows those that the container was given
)

// An NVIDIA is what its driver says of itself.
type NVIDIA struct {
	Driver string // version: 570.133.20; "": no driver is loaded, or none is shown
	Open   bool   // the open kernel module, which can share GPU memory as DMA-BUF
	IMEX   []int  // channels that this container may use, for NVLink between machines
}

// driverNVIDIA reads /proc/driver/nvidia/version.
func (t tree) driverNVIDIA() NVIDIA {
	first, _, _ := strings.Cut(t.text("proc/driver/nvidia/version"), "\n")
	n := NVIDIA{Open: strings.Contains(first, "Open Kernel Module")}
	if i := strings.Index(first, "Kernel Module"); i >= 0 {
		words := strings.Fields(first[i+len("Kernel Module"):])
		version := func(w string) bool { return strings.Contains(w, ".") && digits(w) > 0 }
		if i := slices.IndexFunc(words, version); i >= 0 {
			n.Driver = words[i]
		}
	}
	n.IMEX = t.numbered("dev/nvidia-caps-imex-channels", "channel")
	return n
}

// A card is /proc/driver/nvidia/gpus/<address>/information.
type card struct {
	model, uuid string
	minor       int // -1: not told
	excluded    bool
}

// parseCard reads lines such as "GPU UUID: \t GPU-5a1…".
func parseCard(text string) card {
	c := card{minor: -1}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "Model":
			c.model = value
		case "GPU UUID":
			if !strings.Contains(value, "?") { // the GPU was not set up since the driver was loaded
				c.uuid = value
			}
		case "Device Minor":
			if n, err := strconv.Atoi(value); err == nil && n >= 0 && n <= maxMinor {
				c.minor = n
			}
		case "GPU Excluded":
			c.excluded = value == "Yes"
		}
	}
	return c
}

// nvidia reads NVIDIA's GPUs: those on the PCI buses, and what the driver says of them. Where the kernel shows neither
// (gVisor), the device nodes are what there is.
func (t tree) nvidia(devices []PCI) []GPU {
	cards := t.cards()
	var gpus []GPU
	for _, p := range devices {
		if p.Vendor == vendorNVIDIA && p.base() == 0x03 {
			gpus = append(gpus, GPU{Vendor: "nvidia", PCI: t.complete(p), Memory: -1})
		}
	}
	for a := range cards {
		if !slices.ContainsFunc(gpus, func(g GPU) bool { return g.PCI.Address == a }) {
			gpus = append(gpus, GPU{Vendor: "nvidia", PCI: PCI{Address: a, NUMA: -1, Path: []string{a.String()}}, Memory: -1})
		}
	}
	slices.SortFunc(gpus, func(a, b GPU) int { return a.PCI.Address.Compare(b.PCI.Address) })
	taken := map[int]bool{}
	for i := range gpus {
		g := &gpus[i]
		c, known := cards[g.PCI.Address]
		switch {
		case !known && len(cards) > 0: // nvidia-container-cli shows a container the directories of its GPUs alone
			g.Model, g.Why = g.PCI.number(), notGiven(g.PCI)
		case !known || c.minor < 0: // numbers are given in the order of the addresses
			c.minor = i
			fallthrough
		default:
			taken[c.minor] = true
			t.nvidiaGPU(g, c)
		}
	}
	if len(cards) == 0 {
		gpus = append(gpus, t.nodesAlone(taken)...)
	}
	t.graceMemory(gpus)
	return gpus
}

func notGiven(p PCI) string {
	if p.Driver != "" && p.Driver != "nvidia" {
		return "its driver is " + p.Driver + ", not nvidia"
	}
	return "this container was not given it"
}

func (t tree) nvidiaGPU(g *GPU, c card) {
	g.Model, g.UUID = c.model, c.uuid
	if g.Model == "" {
		g.Model = g.PCI.number()
	}
	if g.PCI.Driver != "" && g.PCI.Driver != "nvidia" {
		g.Why = notGiven(g.PCI)
		return
	}
	t.giveNode(g, nvidiaNode+strconv.Itoa(c.minor))
	if c.excluded {
		g.Visible, g.Why = false, "the driver was told to leave it out (NVreg_ExcludedGpus)"
	}
	g.MIG = t.mig(c.minor)
	if g.Visible && len(g.MIG) > 0 && !slices.ContainsFunc(g.MIG, func(m MIG) bool { return m.Visible }) {
		g.Visible, g.Why = false, "it is cut up (MIG), and this container was given none of its instances"
	}
}

// cards reads what the driver says of each GPU.
func (t tree) cards() map[Address]card {
	cards := map[Address]card{}
	for _, name := range t.names(nvidiaGPUs) {
		a, err := ParseAddress(name)
		if err != nil {
			t.note("%s: %v", nvidiaGPUs, err)
			continue
		}
		cards[a] = parseCard(t.text(path.Join(nvidiaGPUs, name, "information")))
	}
	return cards
}

// nodesAlone is a GPU for each device node that belongs to none that is known.
func (t tree) nodesAlone(taken map[int]bool) (gpus []GPU) {
	for _, n := range t.numbered("dev", "nvidia") {
		if !taken[n] {
			g := GPU{Vendor: "nvidia", Model: "NVIDIA GPU", PCI: PCI{NUMA: -1}, Memory: -1}
			t.giveNode(&g, nvidiaNode+strconv.Itoa(n))
			gpus = append(gpus, g)
		}
	}
	return gpus
}

// graceMemory finds the NUMA nodes that are GPUs' own memory: what the driver says, else the nodes with memory and
// without CPUs, in order, if there are as many.
func (t tree) graceMemory(gpus []GPU) {
	var nodes []int
	for _, n := range t.numbered(nodesDir, "node") {
		if t.memory(n) > 0 && len(t.cpus(nodeFile(n, "cpulist"))) == 0 {
			nodes = append(nodes, n)
		}
	}
	for i := range gpus {
		status := t.text(path.Join(nvidiaGPUs, gpus[i].PCI.Address.String(), "numa_status"))
		for line := range strings.Lines(status) {
			if value, ok := strings.CutPrefix(line, "Node:"); ok {
				if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && n >= 0 && n < maxNodes {
					gpus[i].Memory = n
				}
			}
		}
		if gpus[i].Memory < 0 && len(nodes) == len(gpus) {
			gpus[i].Memory = nodes[i]
		}
	}
}

// hidden says why a machine whose GPUs a driver runs shows none of them to this container; "" where there is no reason to wonder.
func hidden(gpus []GPU) string {
	var running []GPU
	for _, g := range gpus {
		if g.Visible {
			return ""
		}
		if g.integrated {
			continue
		}
		if g.UUID != "" || g.Device != "" || g.PCI.Driver == "nvidia" || g.PCI.Driver == "amdgpu" {
			running = append(running, g)
		}
	}
	if len(running) == 0 {
		return ""
	}
	return fmt.Sprintf("the machine has %s, but this container may use none of them (GPU %d: %s): it was given none "+
		"(nvidia.com/gpu or amd.com/gpu in the pod's limits, or --gpus)", plural(len(running), "accelerator"), running[0].Index, running[0].Why)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
