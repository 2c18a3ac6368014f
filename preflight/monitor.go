package preflight

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-run/muster/topology"
)

// A Monitor looks at what may break during a job. Each of its looks says what has changed since the one before it; a finding that passes takes
// one back. It is for one goroutine at a time: some files take their time where firmware has died.
type Monitor struct {
	host      Host
	ports     []watched
	lanes     map[int]int       // of each GPU, by its index
	told      map[string]string // of nvidia-smi's findings, by GPU
	countable [][]string        // of each port, the counters that can be read; nil: nobody has tried
	log       int               // the kernel's, from its end on; -1: it cannot be read
}

// A watched is a port by which the job trains, as it was at the last look.
type watched struct {
	topology.Rail
	why      string
	rate     float64
	counters [counted]tally
}

// A tally is one counter: what it was at the last look, by how much it has grown since the job began, and by how much when it was told of last.
type tally struct {
	known             bool
	last, grown, told int
}

const counted = 4

// counts are what is counted of a port, and what it means that a number grows.
var counts = [counted]struct{ what, means string }{
	{"its link went down", "what is on its way then is lost, and NCCL may end with error 12"},
	{"its link had to recover", "while it does nothing goes through"},
	{"symbol errors", "what is broken on the way is sent again"},
	{"its network device lost its carrier", "what is on its way then is lost, and NCCL may end with error 12"},
}

// NewMonitor begins with a machine as it was found. Its first look at counters says nothing: what they count until then was before the job.
func NewMonitor(root topology.Root, m topology.Machine) *Monitor {
	m.GPUs = slices.Clone(m.GPUs) // of which nvidia-smi tells
	w := &Monitor{host: Host{Machine: m, Root: root}, lanes: map[int]int{}, told: map[string]string{}, log: -1}
	for _, r := range m.Compute() {
		w.ports = append(w.ports, watched{Rail: r, why: r.Port.Why, rate: r.Port.Rate})
	}
	for _, g := range m.GPUs {
		if g.Visible && g.PCI.Link.Width > 0 {
			w.lanes[g.Index] = g.PCI.Link.Width
		}
	}
	if len(nvidia(w.host)) > 0 {
		w.log = end(filepath.Join(string(root), "dev/kmsg"))
	}
	w.Counters()
	return w
}

// end opens a file to read what is written from now on.
func end(file string) int {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil {
		unix.Close(fd)
		return -1
	}
	return fd
}

// Close ends it.
func (w *Monitor) Close() {
	if w.log >= 0 {
		unix.Close(w.log)
	}
	w.log = -1
}

// Ports looks at the state and the rate of each port.
func (w *Monitor) Ports() (all []Finding) {
	for i := range w.ports {
		p := &w.ports[i]
		now := w.host.Root.Port(p.HCA, p.Port.Number)
		if now.Why != p.why && now.Why == "" { // as fast as it was, or not
			all = append(all, pass("%s is active again", p.Name())...)
			p.why = ""
		}
		switch {
		case now.Why != p.why && now.Why != "":
			r := p.Rail
			r.Port = now
			all = append(all, found(Fail, "what goes through it waits or fails, and all nodes wait for that", portCure(r), "%s: %s", p.Name(), now.Why)...)
		case now.Why == "" && now.Rate < p.rate && !p.HCA.EFA():
			all = append(all, found(Warn, "each collective runs at the pace of this port", "look at its cable, its switch port and its transceiver", "%s: %g Gb/s, %g before", p.Name(), now.Rate, p.rate)...)
		case now.Why == "" && now.Rate > p.rate && p.rate > 0 && !p.HCA.EFA():
			all = append(all, pass("%s: %g Gb/s again", p.Name(), now.Rate)...)
		}
		if p.why = now.Why; now.Why == "" {
			p.rate = now.Rate
		}
	}
	return named("hca", all)
}

// Counters looks at how often each port's link failed. One that grows is told of when it has doubled since it was told of last.
func (w *Monitor) Counters() (all []Finding) {
	for i := range w.ports {
		p := &w.ports[i]
		c := w.host.Root.Counters(p.HCA.Name, p.Port.Number)
		for j, n := range [counted]*int{c.LinkDowned, c.Recovered, c.Symbols, w.host.Root.CarrierDown(p.Port.Net)} {
			t := &p.counters[j]
			if n == nil {
				continue
			}
			if more := *n - t.last; t.known && more > 0 {
				if t.grown += more; t.grown >= 2*t.told {
					t.told = t.grown
					all = append(all, found(Warn, counts[j].means, "look at its cable, its transceiver and its switch port", "%s: %s: %d more during the job", p.Name(), counts[j].what, t.grown)...)
				}
			}
			t.known, t.last = true, *n
		}
	}
	return named("hca-errors", all)
}

// Lanes looks at the PCIe link of each GPU.
func (w *Monitor) Lanes() (all []Finding) {
	for _, g := range w.host.Machine.GPUs {
		before, known := w.lanes[g.Index]
		width := w.host.Root.Width(g.PCI.Address)
		if !known || width == before {
			continue
		}
		switch w.lanes[g.Index] = width; {
		case width == 0: // as sysfs has it of a device that does not answer
			all = append(all, found(Fail, "it fell off the bus, or is being reset", "have the machine looked at", "%s has no PCIe link any more, and had %d lanes", gpuName(g.Index), before)...)
		case width < before:
			all = append(all, found(Fail, "its PCIe link has lost lanes", "reseat or replace the GPU or its riser", "%s has %d lanes of the %d that it had", gpuName(g.Index), width, before)...)
		default:
			all = append(all, pass("%s has %d PCIe lanes again", gpuName(g.Index), width)...)
		}
	}
	return named("gpu-link", all)
}

// Kernel reads what the kernel's log has since the last look of broken GPUs.
func (w *Monitor) Kernel() (all []Finding) {
	h := w.host
	b := make([]byte, maxRecord)
	for range maxRecords {
		if w.log < 0 {
			return nil
		}
		n, err := unix.Read(w.log, b)
		if err == syscall.EPIPE || err == syscall.EINTR { // overwritten while we read: go on behind it
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		for line := range bytes.Lines(b[:n]) { // of the log itself, each read is one record
			if r, ok := parseRecord(string(line), 0); ok {
				r.Age = 0
				h.Errors = append(h.Errors, r)
			}
		}
	}
	for _, f := range xid(h, Need{}) {
		if f.Result == Fail {
			f.Found = strings.TrimSuffix(f.Found, ", 0s ago")
			f.Hint = "reset or replace the GPU, or start the machine again"
			all = append(all, f)
		}
	}
	return named("xid", all)
}

// Memory has nvidia-smi say what became of the GPUs' memory.
func (w *Monitor) Memory(smi topology.SMI) (all []Finding) {
	w.host.Machine.Unknown = nil
	w.host.Machine.AskMemory(smi)
	now := map[string]string{}
	for _, f := range gpuMemory(w.host, Need{}) {
		if f.Result < Warn {
			continue
		}
		name, _, _ := strings.Cut(f.Found, ":")
		if now[name] = f.Found; w.told[name] != f.Found {
			all = append(all, f)
		}
	}
	w.told = now
	return named("gpu-memory", all)
}

func named(check string, all []Finding) []Finding {
	for i := range all {
		all[i].Check = check
	}
	return all
}
