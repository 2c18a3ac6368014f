package preflight

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-run/muster/lazy"
	"github.com/muster-run/muster/topology"
)

// nvidia are the GPUs of NVIDIA that this container may use.
func nvidia(h Host) (all []topology.GPU) {
	for _, g := range h.Machine.GPUs {
		if g.Vendor == "nvidia" && g.Visible {
			all = append(all, g)
		}
	}
	return all
}

// gpus compares what is there with what is to run.
func gpus(h Host, n Need) []Finding {
	m := h.Machine
	slots := len(m.Slots())
	switch {
	case m.Hidden != "":
		give := "docker: --gpus all; Kubernetes: resources.limits nvidia.com/gpu"
		if !slices.ContainsFunc(m.GPUs, func(g topology.GPU) bool { return g.Vendor != "amd" }) {
			give = "docker: --device=/dev/kfd --device=/dev/dri; Kubernetes: resources.limits amd.com/gpu"
		}
		return found(Fail, "workers find no GPU", give, "%s", m.Hidden)
	case len(m.GPUs) == 0:
		return pass("no accelerators")
	case slots < n.Workers && slots > 0:
		return found(Fail, "workers without a GPU fail, or train on another one's", "give the container the GPUs, or start fewer workers (--nproc-per-node)",
			"%s for %s", plural(slots, "GPU"), plural(n.Workers, "worker"))
	case slots == 0:
		return found(Fail, "workers find no GPU", "give the container its GPUs", "%s, of which this container may use none: %s", plural(len(m.GPUs), "GPU"), m.GPUs[0].Why)
	}
	return pass("%s, of %d", plural(slots, "GPU"), len(m.GPUs))
}

// gpuDevices opens the devices that CUDA opens beside the GPUs' own.
func gpuDevices(h Host, _ Need) (all []Finding) {
	if len(nvidia(h)) == 0 {
		return nil
	}
	for _, name := range []string{"dev/nvidiactl", "dev/nvidia-uvm"} {
		if why := h.Root.Openable(name); why != "" {
			all = append(all, found(Fail, "CUDA finds no GPU",
				"start the container again with its GPUs; if they went away while it ran, systemd took them: see libnvidia-container, \"lost GPU access\", for the host's cure", "%s", why)...)
		}
	}
	if all == nil {
		return pass("/dev/nvidiactl and /dev/nvidia-uvm can be opened")
	}
	return all
}

// libraries is where container runtimes and packages put the driver's libraries.
var libraries = []string{"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/local/nvidia/lib64", "usr/lib/wsl/lib"}

// driver compares the kernel's module with the library that talks to it.
func driver(h Host, _ Need) []Finding {
	kernel := h.Machine.NVIDIA.Driver
	if len(nvidia(h)) == 0 {
		return nil
	}
	if kernel == "" {
		return unknown("the version of NVIDIA's driver is not shown")
	}
	var seen []string
	for _, dir := range libraries {
		for _, version := range drivers(h, dir) {
			if !slices.Contains(seen, version) {
				seen = append(seen, version)
			}
		}
	}
	dir, first := foremost(h)
	switch {
	case first != "" && older(first, kernel): // a newer one is what that directory is for
		return found(Fail, "CUDA fails with \"system has unsupported display driver / cuda driver combination\" (803) or \"forward compatibility was attempted\" (804)",
			"take "+dir+" out of LD_LIBRARY_PATH: the driver is newer than what it brings", "LD_LIBRARY_PATH leads to %s first, a library of the driver %s; the kernel's is %s", dir, first, kernel)
	case len(seen) == 0:
		return unknown("driver %s; no libcuda.so of a version is found in the usual places", kernel)
	case !slices.Contains(seen, kernel):
		return found(Fail, "CUDA fails with \"Driver/library version mismatch\" (803)",
			"after an update of the host's driver: load the new module or start the host again; in an image: do not install the driver's libraries",
			"the kernel's driver is %s, the library %s", kernel, strings.Join(seen, " and "))
	case len(seen) > 1:
		return found(Warn, "which one is loaded is the order of the search", "remove the one that the image brings", "libraries of the drivers %s; the kernel's is %s", strings.Join(seen, " and "), kernel)
	}
	return pass("driver and library are %s", kernel)
}

// drivers are the versions of the driver's libraries in a directory.
func drivers(h Host, dir string) (all []string) {
	for _, name := range h.Root.Names(dir) {
		for _, of := range []string{"libcuda.so.", "libnvidia-ml.so."} {
			if version, ok := strings.CutPrefix(name, of); ok && strings.Contains(version, ".") {
				all = append(all, version)
			}
		}
	}
	return all
}

// foremost is the first directory of LD_LIBRARY_PATH with the driver's library, and of which driver that is; "": none has it.
func foremost(h Host) (dir, version string) {
	if h.Getenv == nil {
		return "", ""
	}
	for _, dir := range strings.Split(h.Getenv("LD_LIBRARY_PATH"), ":") {
		if !strings.HasPrefix(dir, "/") {
			continue
		}
		if all := drivers(h, strings.Trim(dir, "/")); len(all) > 0 {
			return dir, all[0]
		}
	}
	return "", ""
}

// older reports whether a version, numbers between dots, comes before another one.
func older(a, b string) bool {
	numbers := func(version string) (all []int) {
		for _, part := range strings.Split(version, ".") {
			n, _ := strconv.Atoi(part)
			all = append(all, n)
		}
		return all
	}
	return slices.Compare(numbers(a), numbers(b)) < 0
}

// gpuLink looks at the lanes of each GPU: they do not become fewer when it is idle, as the speed of some does.
func gpuLink(h Host, _ Need) (all []Finding) {
	looked := false
	for _, g := range h.Machine.GPUs {
		l := g.PCI.Link
		if !g.Visible || l.Width == 0 {
			continue
		}
		looked = true
		switch full := h.lanes(g); {
		case l.Width*2 < full:
			all = append(all, found(Fail, "its PCIe link has lost lanes", "reseat or replace the GPU or its riser", "%s has %d lanes of %d", gpuName(g.Index), l.Width, full)...)
		case l.Width < full:
			all = append(all, found(Warn, "copies from and to it take twice the time", "reseat or replace the GPU or its riser", "%s has %d lanes of %d", gpuName(g.Index), l.Width, full)...)
		}
	}
	if all == nil && looked {
		return pass("each GPU has all its PCIe lanes")
	}
	return all
}

// lanes is how many a GPU should have: no more than its slot, which the bridge above it knows, else no more than its equals have.
func (h Host) lanes(g topology.GPU) int {
	l, above := g.PCI.Link, ""
	if n := len(g.PCI.Path); n > 1 {
		above = g.PCI.Path[n-2]
	}
	if slot, err := strconv.Atoi(h.Root.Line("sys/bus/pci/devices/" + above + "/max_link_width")); above != "" && err == nil && slot > 0 {
		return min(l.MaxWidth, slot)
	}
	most := l.Width
	for _, o := range h.Machine.GPUs {
		if o.Visible && o.Model == g.Model {
			most = max(most, o.PCI.Link.Width)
		}
	}
	return min(l.MaxWidth, most)
}

const freeMemory = 1024 // MiB that may be taken before a job: contexts of monitors

// gpuMemory is what nvidia-smi says of each GPU's memory.
func gpuMemory(h Host, _ Need) (all []Finding) {
	const replace = "reset the GPU (nvidia-smi -r) or have it replaced"
	told := false
	for _, g := range nvidia(h) {
		t, name := g.Told, gpuName(g.Index)
		told = told || t.Uncorrected != nil || t.RemapPending != ""
		switch {
		case t.RemapFailed == "Yes":
			all = append(all, found(Fail, "its memory has an error that cannot be worked round", "have the GPU replaced", "%s could not remap a row of its memory", name)...)
		case t.RemapPending == "Yes":
			all = append(all, found(Fail, "a row of its memory had an error, and is replaced at the next reset; until then another process may meet one", replace, "%s is to be reset, to remap a row of its memory", name)...)
		case t.Uncorrected != nil && *t.Uncorrected > 0:
			all = append(all, found(Warn, "processes that met one were killed", replace, "%s: %s of memory since its driver was loaded", name, plural(*t.Uncorrected, "uncorrected error"))...)
		}
		if t.Used > freeMemory {
			all = append(all, found(Warn, "a process of the job before may still be there: CUDA out of memory", "nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
				"%s: %d MiB of memory are taken", name, t.Used)...)
		}
	}
	for _, g := range h.Machine.GPUs {
		if g.Vendor != "amd" || !g.Visible {
			continue
		}
		n, known := unmended(h, g)
		if told = told || known; n > 0 {
			all = append(all, found(Fail, "processes that met one were killed, and results may be wrong", "reset or replace the GPU", "%s: %s of memory since its driver was loaded", gpuName(g.Index), plural(n, "uncorrected error"))...)
		}
	}
	if all == nil && told {
		return pass("no uncorrected errors, nothing to remap")
	}
	if all == nil && len(nvidia(h)) > 0 {
		return unknown("nvidia-smi says nothing of the GPUs' memory")
	}
	return all
}

// unmended is how many errors of memory the driver of an AMD GPU has counted that were not corrected (Documentation/gpu/amdgpu/ras.rst).
func unmended(h Host, g topology.GPU) (n int, known bool) {
	return tallied(h.Root.Text("sys/bus/pci/devices/"+g.PCI.Address.String()+"/ras/umc_err_count"), "ue:")
}

// tallied is the number behind a word at the begin of a line.
func tallied(text, word string) (n int, known bool) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, word); ok {
			n, err := strconv.Atoi(strings.TrimSpace(rest))
			return n, err == nil
		}
	}
	return 0, false
}

// pcieErrors are those that PCIe itself counts of GPUs and adapters for training, which no link that is well has.
func pcieErrors(h Host, _ Need) (all []Finding) {
	looked := false
	look := func(name string, p topology.PCI) {
		errors := h.Root.PCIeErrors(p.Address)
		for _, kind := range []string{"fatal", "nonfatal"} {
			n, known := errors[kind]
			if looked = looked || known; n > 0 {
				all = append(all, found(Warn, "it was reset, or lost what was on its way", "look at its slot, riser or cable; the host's kernel log says which errors (AER)", "%s (%v): %s of PCIe since the machine runs", name, p.Address, plural(int(n), kind+" error"))...)
			}
		}
	}
	for _, g := range h.Machine.GPUs {
		if g.Visible && g.PCI.Address != (topology.Address{}) {
			look(gpuName(g.Index), g.PCI)
		}
	}
	for _, r := range h.Machine.Compute() {
		look(r.Name(), r.HCA.PCI)
	}
	if all == nil && looked {
		return pass("PCIe counts no errors")
	}
	return all
}

// nvlinks compares how many links GPUs have on a board where each is linked to all others, as far as nvidia-smi says.
func nvlinks(h Host, _ Need) (all []Finding) {
	gpus := nvidia(h)
	best := make([]int, len(gpus))
	whole := 0 // of these GPUs, those that are linked to all, or all but a broken one
	for i, g := range gpus {
		linked := 0
		for _, p := range g.Links {
			if p.Kind == "nvlink" && p.Links > 0 {
				linked++
				best[i] = max(best[i], p.Links)
			}
		}
		if linked >= len(gpus)-2 {
			whole++
		}
	}
	if len(gpus) < 3 || 2*whole <= len(gpus) {
		return nil
	}
	usual := slices.Max(best)
	if usual == 0 {
		return nil
	}
	for i, g := range gpus {
		if best[i] < usual {
			all = append(all, found(Fail, "all-reduces within the machine are slower, or fail", "see nvidia-smi nvlink -s and the host's kernel log; reset or replace the GPU or its board", "%s has %s, others %d", gpuName(g.Index), plural(best[i], "NVLink"), usual)...)
		}
	}
	if all == nil {
		return pass("each GPU has %s", plural(usual, "NVLink"))
	}
	return all
}

// persistence is whether the driver forgets GPUs that nobody uses.
func persistence(h Host, _ Need) []Finding {
	var names []string
	for _, g := range nvidia(h) {
		if g.Told.Persistence == "Disabled" {
			names = append(names, gpuName(g.Index))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return found(Warn, "the driver sets a GPU up anew for each job, for seconds, and forgets what it counted", "on the host: start nvidia-persistenced, or nvidia-smi -pm 1", "persistence mode is off on %s", some(names))
}

// slowed are the bits of clocks_throttle_reasons.active that no healthy machine has (nvml.h, nvmlClocksEventReason…).
var slowed = []struct {
	bit uint64
	why string
}{{0x8, "hardware slowdown"}, {0x40, "too hot, by the hardware"}, {0x80, "power brake of the machine"}, {0x20, "too hot, by the driver"}}

// gpuClocks is why GPUs run slower than they could.
func gpuClocks(h Host, _ Need) (all []Finding) {
	for _, g := range nvidia(h) {
		for _, s := range slowed {
			if g.Told.Throttled&s.bit != 0 {
				all = append(all, found(Warn, "all others wait for this one", "look at the machine's cooling and power supply", "%s is slowed down: %s", gpuName(g.Index), s.why)...)
			}
		}
	}
	return all
}

// gpuMode is who may use a GPU.
func gpuMode(h Host, _ Need) (all []Finding) {
	for _, g := range nvidia(h) {
		switch g.Told.Compute {
		case "Prohibited":
			all = append(all, found(Fail, "CUDA refuses it", "on the host: nvidia-smi -c 0", "%s is in the compute mode Prohibited", gpuName(g.Index))...)
		case "Exclusive_Process":
			all = append(all, found(Warn, "a second process on it fails: no sharing between ranks, no monitor with a context", "on the host: nvidia-smi -c 0", "%s is in the compute mode Exclusive_Process", gpuName(g.Index))...)
		}
	}
	return all
}

// fabric is NVSwitch's, without which CUDA does not start.
func fabric(h Host, _ Need) (all []Finding) {
	for _, g := range nvidia(h) {
		t := g.Told
		if t.Fabric == "" || t.Fabric == "Completed" && (t.FabricStatus == "" || t.FabricStatus == "Success") {
			continue
		}
		all = append(all, found(Fail, "CUDA does not start on it (error 802)", "on the host: systemctl start nvidia-fabricmanager; its version has to be the driver's",
			"%s: its NVLink fabric is %s", gpuName(g.Index), strings.Trim(t.Fabric+", "+t.FabricStatus, ", "))...)
	}
	switch told := slices.ContainsFunc(nvidia(h), func(g topology.GPU) bool { return g.Told.Fabric != "" }); {
	case all == nil && told:
		return pass("the NVLink fabric is set up")
	case all == nil && len(h.Machine.NVSwitches) > 0 && len(nvidia(h)) > 0:
		return unknown("the machine has NVSwitches, and nobody says whether the NVLink fabric is set up")
	}
	return all
}

// fatalXIDs are numbers of NVIDIA's driver after which a GPU is not to be used; others come of the program that ran on it.
var fatalXIDs = map[int]string{
	48: "an uncorrectable memory error", 56: "the display engine", 57: "memory of the adapter", 58: "a memory error", 62: "the GPU's own processor halted",
	63: "a row of memory is to be replaced at the next reset", 64: "a row of memory could not be remapped", 65: "the video processor", 68: "the video processor", 69: "the graphics engine", 73: "the encoder", 74: "an error of NVLink",
	79: "the GPU fell off the bus", 80: "corrupted data was sent to it", 81: "the display engine", 92: "many errors of memory", 95: "an error of memory that others may have met", 119: "the GPU's system processor does not answer",
	120: "the GPU's system processor failed", 140: "an unrecovered memory error", 144: "an error of NVLink", 145: "an error of NVLink", 146: "an error of NVLink", 147: "an error of NVLink",
	148: "an error of NVLink", 149: "an error of NVLink", 150: "an error of NVLink",
}

var (
	xidLine  = lazy.Regexp(`NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+),`)
	sxidLine = lazy.Regexp(`SXid \(PCI:([0-9a-fA-F:.]+)\): (\d+), Fatal`)
)

// remapped is told of a GPU that works on.
const remapped = 63

// after is how long a word of the driver keeps a machine out: one that is older may be of before a reset, of which the log says nothing.
const after = time.Hour

// xid looks for what the driver said of broken hardware since yesterday: NVSwitches', and GPUs' that this container may use.
func xid(h Host, _ Need) (all []Finding) {
	if len(nvidia(h)) == 0 {
		return nil
	}
	if h.NoLog != "" {
		return unknown("the kernel's log cannot be read: %s", h.NoLog)
	}
	type key struct {
		at     string
		number int
	}
	last := map[key]time.Duration{}
	var order []key
	for _, r := range h.Errors {
		words := xidLine().FindStringSubmatch(r.Text)
		if words == nil {
			words = sxidLine().FindStringSubmatch(r.Text)
		}
		if words == nil || r.Age > 24*time.Hour || !h.ours(words[1]) {
			continue
		}
		number, _ := strconv.Atoi(words[2])
		k := key{words[1], number}
		if _, seen := last[k]; !seen {
			order = append(order, k)
		}
		last[k] = r.Age
	}
	for _, k := range order {
		why, fatal := fatalXIDs[k.number]
		if strings.Contains(k.at, ":") && k.number > 10000 { // numbers of NVSwitches
			why, fatal = "a fatal error of an NVSwitch", true
		}
		if fatal {
			all = append(all, found(needed(last[k] < after && k.number != remapped), why, "reset or replace the GPU, or start the machine again, if that was not done since", "%s: Xid %d, %v ago", nameAt(h, k.at), k.number, last[k].Round(time.Minute))...)
		}
	}
	if all == nil {
		return pass("the kernel's log has no fatal Xid of the last day")
	}
	return all
}

// at is the GPU at a PCI address; nil: there is none, or it is an NVSwitch's.
func (h Host) at(text string) *topology.GPU {
	a, err := topology.ParseAddress(strings.TrimSuffix(text, ".0") + ".0")
	for i := range h.Machine.GPUs {
		if err == nil && h.Machine.GPUs[i].PCI.Address == a {
			return &h.Machine.GPUs[i]
		}
	}
	return nil
}

// ours reports whether what happens at a PCI address is of interest here: it is not at a GPU that another container has.
func (h Host) ours(text string) bool {
	g := h.at(text)
	return g == nil || g.Visible
}

// nameAt is the GPU at a PCI address.
func nameAt(h Host, text string) string {
	if g := h.at(text); g != nil {
		return gpuName(g.Index) + " (" + text + ")"
	}
	return text
}
