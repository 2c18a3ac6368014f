package preflight

import (
	"github.com/muster-run/muster/job"
	"github.com/muster-run/muster/topology"
)

// Meters reads what this machine counts of its ports, GPUs and adapters now. What could not be read at the first time is not read again.
func (w *Monitor) Meters() (all job.Meters) {
	first := w.countable == nil
	if first {
		w.countable = make([][]string, len(w.ports))
	}
	for i := range w.ports {
		p := &w.ports[i]
		if first {
			w.countable[i] = topology.PortCounters
		}
		m := job.PortMeter{Device: p.HCA.Name, Port: p.Port.Number, Up: p.why == ""}
		if !p.HCA.EFA() { // whose driver makes it up
			m.Rate = p.rate * 1e9 / 8
		}
		m.Counters, w.countable[i] = w.host.Root.PortCounts(p.HCA.Name, p.Port.Number, w.countable[i])
		all.Ports = append(all.Ports, m)
	}
	known := map[topology.Address]bool{{}: true}
	add := func(name string, p topology.PCI, memory *int) {
		if known[p.Address] {
			return
		}
		known[p.Address] = true
		link := w.host.Root.PCIeLink(p.Address)
		all.Devices = append(all.Devices, job.DeviceMeter{
			Name: name, Place: p.Address.String(), Speed: link.Speed * 1e9, MaxSpeed: link.MaxSpeed * 1e9, Lanes: link.Width, MaxLanes: link.MaxWidth,
			Errors: w.host.Root.PCIeErrors(p.Address), Uncorrected: memory,
		})
	}
	for _, g := range w.host.Machine.GPUs {
		if g.Visible {
			add(gpuName(g.Index), g.PCI, w.uncorrected(g))
		}
	}
	for _, p := range w.ports {
		add(p.HCA.Name, p.HCA.PCI, nil)
	}
	return all
}

// uncorrected is how many errors of a GPU's memory were not mended since its driver was loaded; nil: nobody says.
func (w *Monitor) uncorrected(g topology.GPU) *int {
	if g.Vendor == "amd" {
		if n, known := unmended(w.host, g); known {
			return &n
		}
		return nil
	}
	return g.Told.Uncorrected
}
