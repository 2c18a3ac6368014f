package view

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"github.com/muster-run/muster/topology"
)

// Sizes in the drawing.
const (
	boxWidth, boxHeight = 190, 34
	gap                 = 10
	middle              = 120 // between GPUs on the left and adapters on the right, where the lines are
	title               = 24
	perRow              = 4 // NUMA nodes beside each other
	nodeWidth           = 4*gap + 2*boxWidth + middle
)

// SVG draws a machine: NUMA nodes, in them PCIe switches, in these GPUs on the left and adapters on the right. Lines join each GPU with
// the adapters for training that are the nearest to it.
func SVG(w io.Writer, m topology.Machine) error {
	d := drawing{m: m, at: map[string]spot{}, training: topology.Names(m.Compute())}
	width, height := d.nodes()
	d.lines()
	height = d.switches(height)
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">
<style>text{fill:#222}.node{fill:#f4f6f8;stroke:#8a97a5}.switch{fill:#fff;stroke:#b9c2cc;stroke-dasharray:4 3}.gpu{fill:#dcefd2;stroke:#5f8f45}.nic{fill:#d8e6f6;stroke:#4a77a8}.off{fill:#eee;stroke:#aaa}.off+text{fill:#888}.small{font-size:10px;fill:#555}line{stroke:#c05a1c;stroke-width:1.5}</style>
%s</svg>
`, width, height, width, height, d.b.String())
	return err
}

type spot struct{ x, y int }

type drawing struct {
	m        topology.Machine
	b        strings.Builder
	at       map[string]spot // of the boxes of GPUs and adapters, their upper left corners
	training []string
}

// A group is what hangs under one port of a host bridge.
type group struct {
	title string // "" if there is no switch
	gpus  []topology.GPU
	hcas  []topology.HCA
}

func (g group) height() int { return title + max(len(g.gpus), len(g.hcas))*(boxHeight+gap) }

// groups are the devices of one NUMA node, by what they hang under.
func (d *drawing) groups(node int) []group {
	var keys []string
	all := map[string]*group{}
	under := func(p topology.PCI) *group {
		key := strings.Join(p.Path[:min(2, len(p.Path))], "/")
		if all[key] == nil {
			all[key] = &group{}
			keys = append(keys, key)
		}
		if b := p.Bridges(); len(b) > 2 { // a port of the host bridge, and a switch's two sides
			all[key].title = "switch " + b[1]
		} else if all[key].title == "" {
			all[key].title = strings.Join(p.Path[:min(1, len(p.Path))], "")
		}
		return all[key]
	}
	for _, g := range d.m.GPUs {
		if g.PCI.NUMA == node {
			u := under(g.PCI)
			u.gpus = append(u.gpus, g)
		}
	}
	for _, h := range d.m.HCAs {
		if h.PCI.NUMA == node {
			u := under(h.PCI)
			u.hcas = append(u.hcas, h)
		}
	}
	slices.SortStableFunc(keys, func(a, b string) int { return strings.Compare(a, b) })
	var groups []group
	for _, k := range keys {
		groups = append(groups, *all[k])
	}
	return groups
}

// nodes draws the NUMA nodes that have CPUs or devices, and what is in them.
func (d *drawing) nodes() (width, height int) {
	ids := []int{}
	for _, n := range d.m.Nodes {
		if len(n.CPUs) > 0 {
			ids = append(ids, n.ID)
		}
	}
	for _, p := range d.devices() {
		if !slices.Contains(ids, p.NUMA) {
			ids = append(ids, p.NUMA)
		}
	}
	y, tallest := gap+title, 0
	for i, id := range ids {
		if i > 0 && i%perRow == 0 {
			y, tallest = y+tallest+gap, 0
		}
		x := gap + i%perRow*(nodeWidth+gap)
		tallest = max(tallest, d.node(id, x, y))
		width = max(width, x+nodeWidth+gap)
	}
	d.text(gap, gap+12, "", d.m.Platform()+lead(": ", strings.TrimSpace(called(d.m.DMI))))
	return max(width, 400), y + tallest + gap
}

func (d *drawing) devices() (all []topology.PCI) {
	for _, g := range d.m.GPUs {
		all = append(all, g.PCI)
	}
	for _, h := range d.m.HCAs {
		all = append(all, h.PCI)
	}
	return all
}

// node draws one NUMA node and returns its height.
func (d *drawing) node(id, x, y int) int {
	groups := d.groups(id)
	height := title + gap
	for _, g := range groups {
		height += g.height() + gap
	}
	name := fmt.Sprintf("NUMA node %d", id)
	if id < 0 {
		name = "no NUMA node known"
	}
	d.box("node", x, y, nodeWidth, height)
	d.text(x+gap, y+16, "", name+lead(": CPUs ", d.m.CPUs(id).String()))
	top := y + title
	for _, g := range groups {
		d.box("switch", x+gap, top, nodeWidth-2*gap, g.height())
		d.text(x+2*gap, top+15, "small", g.title)
		for i, gpu := range g.gpus {
			d.device(gpuName(gpu), class("gpu", gpu.Visible), spot{x + 2*gap, top + title + i*(boxHeight+gap) - 4}, gpuName(gpu)+" "+gpu.Model, gpu.PCI)
		}
		for i, h := range g.hcas {
			d.device(h.Name, class("nic", d.trains(h)), spot{x + 2*gap + boxWidth + middle, top + title + i*(boxHeight+gap) - 4}, h.Name+lead(" ", adapter(h)), h.PCI)
		}
		top += g.height() + gap
	}
	return height
}

func class(name string, on bool) string {
	if on {
		return name
	}
	return "off"
}

// trains reports whether a port of the adapter is for training.
func (d *drawing) trains(h topology.HCA) bool {
	return slices.ContainsFunc(h.Ports, func(p topology.Port) bool {
		return slices.Contains(d.training, topology.Rail{HCA: h, Port: p}.Name())
	})
}

// adapter is what an adapter's first port does.
func adapter(h topology.HCA) string {
	if len(h.Ports) == 0 {
		return ""
	}
	p := h.Ports[0]
	if !p.Usable {
		return or(p.State, "unknown")
	}
	return or(when(h.EFA(), "EFA"), fmt.Sprintf("%g Gb/s", p.Rate))
}

func (d *drawing) device(name, class string, s spot, label string, p topology.PCI) {
	d.at[name] = s
	d.box(class, s.x, s.y, boxWidth, boxHeight)
	if runes := []rune(label); len(runes) > 30 {
		label = string(runes[:29]) + "…"
	}
	d.text(s.x+6, s.y+14, "", label)
	d.text(s.x+6, s.y+28, "small", p.Address.String())
}

// lines join GPUs with their nearest adapters, unless these are across the link between NUMA nodes.
func (d *drawing) lines() {
	for _, a := range d.m.Affinity() {
		if a.Relation >= topology.SYS {
			continue
		}
		from := d.at[fmt.Sprintf("GPU%d", a.GPU)]
		for _, r := range a.Rails {
			to := d.at[r.HCA.Name]
			fmt.Fprintf(&d.b, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"><title>%s</title></line>\n",
				from.x+boxWidth, from.y+boxHeight/2, to.x, to.y+boxHeight/2, html.EscapeString(fmt.Sprintf("GPU%d %s %s", a.GPU, a.Relation, r.Name())))
		}
	}
}

// switches draws NVSwitches below, which have all GPUs in common.
func (d *drawing) switches(y int) int {
	if len(d.m.NVSwitches) == 0 {
		return y
	}
	d.box("node", gap, y, nodeWidth, title+gap)
	d.text(2*gap, y+20, "", count(len(d.m.NVSwitches), "NVSwitch")+" between the GPUs")
	return y + title + 2*gap
}

func (d *drawing) box(class string, x, y, width, height int) {
	fmt.Fprintf(&d.b, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\"/>", class, x, y, width, height)
}

func (d *drawing) text(x, y int, class, text string) {
	fmt.Fprintf(&d.b, "<text%s x=\"%d\" y=\"%d\">%s</text>\n", when(class != "", ` class="`+class+`"`), x, y, html.EscapeString(text))
}
