// Package view shows a machine: as tables with a matrix of distances, as JSON, and as a drawing.
package view

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/muster-run/muster/affinity"
	"github.com/muster-run/muster/topology"
)

// Table writes what a person wants to know of a machine.
func Table(w io.Writer, m topology.Machine) error {
	var b strings.Builder
	summary(&b, m)
	gpus(&b, m)
	adapters(&b, m)
	nodes(&b, m)
	workers(&b, m)
	nets(&b, m)
	matrix(&b, m)
	unknown(&b, m)
	_, err := io.WriteString(w, b.String())
	return err
}

// called is a machine's vendor and product; some products begin with their vendor's name.
func called(d topology.DMI) string {
	if strings.HasPrefix(d.Product+" ", d.Vendor+" ") {
		return d.Product
	}
	return d.Vendor + " " + d.Product
}

func summary(b *strings.Builder, m topology.Machine) {
	what := strings.Join(strings.Fields(called(m.DMI)), " ")
	fmt.Fprintf(b, "platform   %s%s\n", m.Platform(), inside(what))
	p := m.Processor
	if len(p.Online) == 0 {
		fmt.Fprintf(b, "CPUs       not known\n")
	} else {
		fmt.Fprintf(b, "CPUs       %d on %s in %s%s%s\n", len(p.Online), count(len(p.Cores), "core"), count(p.Sockets(), "socket"), lead(", ", p.Model), when(p.Virtual, ", of a virtual machine"))
	}
	fmt.Fprintf(b, "this one   may use %s%s\n", allowed(m), quota(m.Limits))
	if len(m.GPUs) > 0 && m.NVIDIA.Driver != "" || len(m.NVSwitches) > 0 {
		kind := "proprietary"
		if m.NVIDIA.Open {
			kind = "open"
		}
		fmt.Fprintf(b, "NVIDIA     driver %s%s%s\n", or(m.NVIDIA.Driver, "not shown"), when(m.NVIDIA.Driver != "", ", "+kind+" kernel module"),
			when(len(m.NVSwitches) > 0, ", "+count(len(m.NVSwitches), "NVSwitch")))
	}
	if m.MNNVL() {
		fmt.Fprintf(b, "NVLink     to other machines: %s\n", count(len(m.NVIDIA.IMEX), "IMEX channel"))
	}
	fmt.Fprintf(b, "training   over %s\n", transport(m))
	if m.Hidden != "" {
		fmt.Fprintf(b, "hidden     %s\n", m.Hidden)
	}
	if pairs := m.Veiled(); pairs != nil {
		fmt.Fprintf(b, "veiled     this virtual machine does not show which GPU shares a PCIe switch with which adapter; its vendor says:\n")
		for _, p := range pairs {
			fmt.Fprintf(b, "           GPU%d and %s\n", p.GPU, p.HCA)
		}
	}
}

func allowed(m topology.Machine) string {
	usable := m.Limits.Usable(m.Processor.Online)
	if slices.Equal(usable, m.Processor.Online) {
		return "all of them"
	}
	return fmt.Sprintf("%d of them, %s", len(usable), or(usable.String(), "none"))
}

func quota(l topology.Limits) string {
	if l.Quota == 0 {
		return ", no quota"
	}
	return fmt.Sprintf(", for the time of %.4g (%s)", l.Quota, l.From)
}

func transport(m topology.Machine) string {
	words := map[string]string{"ib": "InfiniBand", "roce": "RoCE", "efa": "EFA", "none": "IP: no adapter for RDMA that can be used"}
	text := words[m.Transport()]
	if i, ok := m.GIDIndex(); ok {
		text += fmt.Sprintf(" (GID %d)", i)
	}
	return text + lead(": ", strings.Join(topology.Names(m.Compute()), " "))
}

func gpus(b *strings.Builder, m topology.Machine) {
	if len(m.GPUs) == 0 {
		b.WriteString("\nno accelerators\n")
		return
	}
	t := table(b, "GPU", "ADDRESS", "MODEL", "LINK", "NUMA", "CPUS", "DEVICE", "USABLE")
	for _, g := range m.GPUs {
		t.row(gpuName(g), dash(g.PCI.Address.String()), g.Model, link(g.PCI.Link), node(g.PCI.NUMA), dash(m.Near(g.PCI).String()), dash(g.Device), usable(g.Visible, g.Why))
		for _, i := range g.MIG {
			t.row("", "", fmt.Sprintf("MIG gi%d ci%d", i.GPUInstance, i.Compute), "", "", "", dash(i.Device), usable(i.Visible, "not in this container")+lead(" ", i.UUID))
		}
	}
	t.end()
	for _, g := range m.GPUs {
		health(b, g)
	}
}

// health is what nvidia-smi says that is not as it should be.
func health(b *strings.Builder, g topology.GPU) {
	if n := g.Told.Uncorrected; n != nil && *n > 0 {
		fmt.Fprintf(b, "GPU%d has %s of memory since its driver was loaded\n", g.Index, count(*n, "uncorrected error"))
	}
	if f := g.Told.Fabric; f != "" && f != "Completed" {
		fmt.Fprintf(b, "GPU%d's NVLink fabric is %s%s: CUDA does not start before it is Completed (nvidia-fabricmanager)\n", g.Index, f, lead(", ", g.Told.FabricStatus))
	}
}

func adapters(b *strings.Builder, m topology.Machine) {
	if len(m.HCAs) == 0 {
		return
	}
	training := topology.Names(m.Compute())
	t := table(b, "NIC", "NAME", "PORT", "ADDRESS", "STATE", "RATE", "LAYER", "NUMA", "NETWORK", "TRAINING", "USABLE")
	for i, h := range m.HCAs {
		for _, p := range h.Ports {
			name := topology.Rail{HCA: h, Port: p}.Name()
			t.row(fmt.Sprintf("NIC%d", i), h.Name, strconv.Itoa(p.Number), dash(h.PCI.Address.String()), dash(p.State), rate(h, p), kind(h, p), node(h.PCI.NUMA), dash(p.Net),
				yes(slices.Contains(training, name)), usable(p.Usable, p.Why))
		}
		if len(h.Ports) == 0 {
			t.row(fmt.Sprintf("NIC%d", i), h.Name, "-", dash(h.PCI.Address.String()), "-", "-", "-", node(h.PCI.NUMA), "-", "-", "no: it shows no port")
		}
	}
	t.end()
}

// rate is what the port says; of a port that is not active and of EFA it means nothing.
func rate(h topology.HCA, p topology.Port) string {
	if h.EFA() || p.Rate == 0 || p.State != "ACTIVE" {
		return "-"
	}
	return fmt.Sprintf("%g Gb/s%s", p.Rate, inside(strings.TrimSpace(lanes(p.Lanes)+" "+p.Speed)))
}

func lanes(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n) + "X"
}

func kind(h topology.HCA, p topology.Port) string {
	text := p.Layer
	switch {
	case h.EFA():
		text = "EFA"
	case h.Kind == "RNIC":
		text = "iWARP"
	case p.Layer == "":
		text = "-"
	}
	return text + when(h.Bond, ", bond") + when(h.Virtual, ", VF")
}

func nodes(b *strings.Builder, m topology.Machine) {
	var shown []topology.Node
	for _, n := range m.Nodes {
		if len(n.CPUs) > 0 || n.Memory > 0 {
			shown = append(shown, n)
		}
	}
	if len(shown) == 0 {
		return
	}
	t := table(b, "NUMA", "CPUS", "MEMORY", "DISTANCES")
	for _, n := range shown {
		var far []string
		for _, o := range shown {
			if i := slices.IndexFunc(m.Nodes, func(n topology.Node) bool { return n.ID == o.ID }); i < len(n.Distance) {
				far = append(far, strconv.Itoa(n.Distance[i]))
			}
		}
		t.row(strconv.Itoa(n.ID), dash(n.CPUs.String()), bytes(n.Memory), dash(strings.Join(far, " ")))
	}
	t.end()
	if more := len(m.Nodes) - len(shown); more > 0 {
		fmt.Fprintf(b, "and %s without CPUs and memory\n", count(more, "node"))
	}
}

// workers are where those of muster run would be, one for each GPU, if nothing else is said.
func workers(b *strings.Builder, m topology.Machine) {
	c := bound(m)
	switch {
	case len(c.Workers) == 0:
	case c.Why != "":
		fmt.Fprintf(b, "\nno worker is bound to CPUs (--bind auto): %s\n", c.Why)
	default:
		b.WriteString("\none worker for each GPU would run so (--bind auto):\n")
		for _, l := range c.Lines() {
			fmt.Fprintf(b, "  %s\n", l)
		}
	}
}

// bound is what --bind auto does on a machine. The user's environment may say otherwise, as muster env shows.
func bound(m topology.Machine) affinity.Choice {
	return affinity.Choose(affinity.Given{Machine: m, Mode: affinity.Auto, Workers: len(m.Slots()), Getenv: func(string) (string, bool) { return "", false }})
}

func nets(b *strings.Builder, m topology.Machine) {
	if len(m.Nets) == 0 {
		return
	}
	t := table(b, "NETWORK", "TYPE", "ADDRESS", "STATE", "SPEED", "MTU", "PART OF")
	for _, n := range m.Nets {
		speed := "-"
		if n.Speed > 0 {
			speed = fmt.Sprintf("%g Gb/s", float64(n.Speed)/1000)
		}
		t.row(n.Name, netKind(n), dash(n.Address.String()), dash(n.State), speed, strconv.Itoa(n.MTU), dash(n.Master))
	}
	t.end()
}

func netKind(n topology.Net) string {
	switch {
	case n.Loopback:
		return "loopback"
	case len(n.Slaves) > 0:
		return "bond" + inside(n.Mode)
	case n.Type == 32:
		return "InfiniBand"
	case n.Type == 1 && n.Address == topology.Address{}:
		return "Ethernet, virtual"
	case n.Type == 1:
		return "Ethernet"
	}
	return fmt.Sprintf("type %d", n.Type)
}

func unknown(b *strings.Builder, m topology.Machine) {
	if len(m.Unknown) > 0 {
		b.WriteString("\nnot known:\n")
	}
	for _, u := range m.Unknown {
		fmt.Fprintf(b, "  %s\n", u)
	}
}

// A grid is a table whose columns line up.
type grid struct{ w *tabwriter.Writer }

func table(b *strings.Builder, head ...string) grid {
	b.WriteString("\n")
	t := grid{tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)}
	t.row(head...)
	return t
}

func (t grid) row(cells ...string) { fmt.Fprintln(t.w, strings.Join(cells, "\t")) }

func (t grid) end() { _ = t.w.Flush() } // into a string

func gpuName(g topology.GPU) string { return "GPU" + strconv.Itoa(g.Index) }

func link(l topology.Link) string {
	return dash(l.String()) + when(l.Degraded(), fmt.Sprintf(" of x%d", l.MaxWidth))
}

func node(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func bytes(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.4g GiB", float64(n)/(1<<30))
}

func usable(is bool, why string) string {
	if is {
		return "yes"
	}
	return "no" + lead(": ", why)
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "-"
}

func count(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "ch"):
		return strconv.Itoa(n) + " " + what + "es"
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func when(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

func lead(with, text string) string { return when(text != "", with+text) }

func inside(text string) string { return when(text != "", " ("+text+")") }

func dash(text string) string { return or(text, "-") }

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
